//! Why a network, a file of one, or a plan is refused.

use std::io;
use std::path::PathBuf;

use crate::layer::HeightWidth;
use crate::shape::Shape;

/// Why a network or a plan is refused. Messages name the layer and what to change.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A name would not be safe in files. Rename.
    #[error(
        "name {name:?} is not allowed: use at most 128 letters, digits, '.', '_' and '-', the first a letter, a digit or '_'"
    )]
    InvalidName {
        /// The name.
        name: String,
    },
    /// Two layers have one name. Rename one.
    #[error("two layers are named {name}: give each its own name")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A layer of a document reads a layer that is not there. Correct the name.
    #[error("layer {layer} reads {input}, which is not a layer of the network")]
    UnknownInput {
        /// The reader.
        layer: String,
        /// The name it asks for.
        input: String,
    },
    /// A layer reads a layer of another builder. Use the ids that this builder gave.
    #[error(
        "layer {layer} reads layer number {index} of another builder: this one has {layers} layers so far"
    )]
    ForeignInput {
        /// The reader.
        layer: String,
        /// The index it asks for.
        index: usize,
        /// How many layers there are.
        layers: usize,
    },
    /// A layer has too many or too few inputs.
    #[error("layer {layer}: {kind} reads {expected}, got {got}")]
    WrongInputCount {
        /// The layer.
        layer: String,
        /// Its kind.
        kind: &'static str,
        /// How many it reads.
        expected: &'static str,
        /// How many it was given.
        got: usize,
    },
    /// A size is zero.
    #[error("layer {layer}: {field} must be at least 1, got 0")]
    ZeroSize {
        /// The layer.
        layer: String,
        /// The size, such as `oc`.
        field: &'static str,
    },
    /// A tensor, a window or the work of one layer is beyond what any machine holds.
    #[error("layer {layer}: {what} is too large: {limit}")]
    TooLarge {
        /// The layer.
        layer: String,
        /// What is too large.
        what: &'static str,
        /// How large it may be.
        limit: &'static str,
    },
    /// A number is outside what makes sense.
    #[error("layer {layer}: {field} must be {allowed}, got {value}")]
    OutOfRange {
        /// The layer.
        layer: String,
        /// The setting.
        field: &'static str,
        /// Its value.
        value: f64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A layer for features follows maps. Insert a flatten layer.
    #[error(
        "layer {layer}: {kind} expects features, got maps {got}: insert a flatten layer before it"
    )]
    FeaturesExpected {
        /// The layer.
        layer: String,
        /// Its kind.
        kind: &'static str,
        /// The input's shape.
        got: Shape,
    },
    /// A layer for maps follows features.
    #[error("layer {layer}: {kind} expects maps (channels x height x width), got {got} features")]
    MapsExpected {
        /// The layer.
        layer: String,
        /// Its kind.
        kind: &'static str,
        /// The input's shape.
        got: Shape,
    },
    /// No window fits. Make it smaller, or pad.
    #[error(
        "layer {layer}: window {kernel} is larger than the padded map {padded} (input {input}, padding {pad})"
    )]
    WindowTooLarge {
        /// The layer.
        layer: String,
        /// The window.
        kernel: HeightWidth,
        /// The map with its padding.
        padded: HeightWidth,
        /// The input.
        input: Shape,
        /// The padding on each side.
        pad: HeightWidth,
    },
    /// A pooling window could lie in the padding alone.
    #[error("layer {layer}: padding {pad} is more than half of the pooling window {kernel}")]
    PaddingTooLarge {
        /// The layer.
        layer: String,
        /// The padding on each side.
        pad: HeightWidth,
        /// The window.
        kernel: HeightWidth,
    },
    /// Groups do not divide a convolution's channels.
    #[error("layer {layer}: {groups} groups do not divide {channels} {side} channels evenly")]
    IndivisibleChannels {
        /// The layer.
        layer: String,
        /// `input` or `output`.
        side: &'static str,
        /// The channels.
        channels: usize,
        /// The groups.
        groups: usize,
    },
    /// What should be added has different shapes.
    #[error("layer {layer}: cannot add different shapes: {}", list(.inputs))]
    AddMismatch {
        /// The layer.
        layer: String,
        /// Name and shape of each input.
        inputs: Vec<(String, Shape)>,
    },
    /// What should be concatenated differs in more than channels.
    #[error("layer {layer}: cannot concatenate shapes that differ in more than channels: {}", list(.inputs))]
    ConcatMismatch {
        /// The layer.
        layer: String,
        /// Name and shape of each input.
        inputs: Vec<(String, Shape)>,
    },
    /// Layers depend on each other in a circle.
    #[error("layers form a cycle: {} -> {}", .layers.join(" -> "), .layers[0])]
    Cycle {
        /// The layers, each read by the next and the last by the first; never empty.
        layers: Vec<String>,
    },
    /// A second input was added. One is supported: put what belongs together into the channels of one sample.
    #[error("layer {second} is a second input beside {first}: a network has exactly one")]
    SecondInput {
        /// The first one.
        first: String,
        /// The other one.
        second: String,
    },
    /// A second loss was added.
    #[error("layer {second} is a second loss beside {first}: a network has at most one")]
    SecondLoss {
        /// The first one.
        first: String,
        /// The other one.
        second: String,
    },
    /// A layer reads the loss.
    #[error("layer {layer} reads the loss {loss}: no layer can follow the loss")]
    LossIsRead {
        /// The reader.
        layer: String,
        /// The loss.
        loss: String,
    },
    /// A layer's output is used by nobody, so its parameters would never learn.
    #[error(
        "layer {layer} is a dead branch: nothing reads it, and the network's output is {output}; connect it or remove it"
    )]
    DeadBranch {
        /// The layer.
        layer: String,
        /// The network's loss, or its last layer.
        output: String,
    },
    /// The network has no input.
    #[error("network {network} has no input layer")]
    NoInput {
        /// The network.
        network: String,
    },
    /// Training or scoring a network without a loss.
    #[error("network {network} has no loss: end it with softmax_cross_entropy")]
    NoLoss {
        /// The network.
        network: String,
    },
    /// An input layer of a document has no shape.
    #[error("layer {layer}: an input needs a shape, such as [3, 224, 224]")]
    MissingShape {
        /// The layer.
        layer: String,
    },
    /// A layer of a document has a shape and is not the input.
    #[error("layer {layer}: {kind} cannot have a shape: only an input has, all others follow")]
    StrayShape {
        /// The layer.
        layer: String,
        /// Its kind.
        kind: &'static str,
    },
    /// A layer of a document is tied to a layer that is not there. Correct the name.
    #[error("layer {layer} is tied to {owner}, which is not a layer of the network")]
    UnknownOwner {
        /// The tied layer.
        layer: String,
        /// The name that it is tied to.
        owner: String,
    },
    /// A layer of another builder was tied. Use the ids that this builder gave.
    #[error(
        "layer number {index} of another builder cannot be tied: this one has {layers} layers so far"
    )]
    ForeignTie {
        /// The index.
        index: usize,
        /// How many layers there are.
        layers: usize,
    },
    /// A layer cannot compute with another layer's parameters.
    #[error("layer {layer} cannot be tied to {owner}: {problem}")]
    Tie {
        /// The layer that was to be tied.
        layer: String,
        /// The layer whose parameters it was to use.
        owner: String,
        /// Why not.
        problem: TieProblem,
    },
    /// A document is not JSON, or not the JSON of a network.
    #[error("line {line}, column {column}: {reason}")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What the reader stumbled over.
        reason: String,
    },
    /// A document is something else than a network.
    #[error("\"format\" is {got:?}, of a network it is \"lockstep-network\"")]
    WrongFormat {
        /// What it says it is.
        got: String,
    },
    /// A document is of another version of the format.
    #[error("version {got} of the network format is unknown: this program reads version {known}")]
    WrongVersion {
        /// The document's version.
        got: u64,
        /// The one that can be read.
        known: u64,
    },
    /// A file could not be read.
    #[error("cannot read network file {}: {kind}", .path.display())]
    FileUnreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        kind: io::ErrorKind,
    },
    /// A file does not hold a valid network.
    #[error("network file {}: {error}", .path.display())]
    NetworkFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<GraphError>,
    },
    /// A network that does not exist.
    #[error("unknown network {name:?}: use {known} or a .json file")]
    UnknownNetwork {
        /// What was asked for.
        name: String,
        /// What there is, as a list.
        known: String,
    },
    /// A plan for no samples.
    #[error("a minibatch must have at least one sample")]
    EmptyMinibatch,
    /// Groups of ranks that do not divide the ranks.
    #[error("{ranks} ranks cannot form {groups} equal groups")]
    UnevenMesh {
        /// All ranks.
        ranks: usize,
        /// Groups asked for.
        groups: usize,
    },
    /// The same bits on any number of ranks cannot be had.
    #[error(
        "reproducible training is not possible: {reason}; it needs 1, 2, 4 or 8 ranks, the strategy data and statistics \
         over the whole minibatch"
    )]
    NotReproducible {
        /// What is in the way.
        reason: String,
    },
    /// A strategy that does not exist.
    #[error("unknown strategy {name:?}: {known}")]
    UnknownStrategy {
        /// What was asked for.
        name: String,
        /// What there is.
        known: &'static str,
    },
    /// A file of strategies that cannot be used.
    #[error("strategy file {}: {reason}", .path.display())]
    StrategyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file of strategies gives two layers different strategies that must lie alike on the ranks.
    #[error(
        "strategy file {}: {first} and {second} must have the same strategy, because parameters are tied between them \
         or between layers that follow them: name one of them, or give both the same", .path.display()
    )]
    StrategyTied {
        /// The file.
        path: PathBuf,
        /// One layer.
        first: String,
        /// The other.
        second: String,
    },
    /// A file of strategies names a layer that cannot be split.
    #[error(
        "strategy file {}: {layer} is not a linear layer or a convolution of one group of this network: \
         name layers with weights, all others follow their input", .path.display()
    )]
    StrategyLayer {
        /// The file.
        path: PathBuf,
        /// The layer.
        layer: String,
    },
}

/// Why a layer cannot be tied to another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TieProblem {
    /// Both are one layer, or the other one is tied to it.
    #[error("both have the same parameters already")]
    Itself,
    /// It is tied to another layer.
    #[error("it is tied to {first} already")]
    Already {
        /// The other layer.
        first: String,
    },
    /// They are of different kinds.
    #[error(
        "it is a {kind} layer and the other a {owner_kind} layer, and both must be of one kind"
    )]
    Kinds {
        /// The layer's kind.
        kind: &'static str,
        /// The other's.
        owner_kind: &'static str,
    },
    /// Layers of this kind have no parameters.
    #[error("a {kind} layer has no parameters")]
    NoParameters {
        /// Their kind.
        kind: &'static str,
    },
    /// They are convolutions of different numbers of groups.
    #[error(
        "it has {groups} groups and the other {owner_groups}, and both must have the same number"
    )]
    Groups {
        /// The layer's groups.
        groups: usize,
        /// The other's.
        owner_groups: usize,
    },
    /// Their parameters differ in shape, or one has a bias and the other not.
    #[error("its parameters are {params}, the other's {owner_params}, and both must be alike")]
    Shapes {
        /// The layer's parameters with their shapes.
        params: String,
        /// The other's.
        owner_params: String,
    },
    /// The other one comes later.
    #[error("the other comes later, so tie the other to it")]
    Later,
}

/// `conv1 16x4x4, conv2 24x4x4`.
fn list(inputs: &[(String, Shape)]) -> String {
    let each: Vec<String> = inputs.iter().map(|(name, shape)| format!("{name} {shape}")).collect();
    each.join(", ")
}
