//! Why an op cannot be planned, and why an instruction set cannot be used.

/// A descriptor that names no computable op. Nothing is allocated before these checks.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// A size is zero. Give every axis, kernel, stride and class count at least 1.
    #[error("{op}: {field} is 0, at least 1 is needed")]
    Zero {
        /// The op.
        op: &'static str,
        /// The field of its descriptor.
        field: &'static str,
    },
    /// The window does not fit into the padded map, so that the output would be empty. Use a smaller window or more padding.
    #[error("{op}: the window's {axis} {window} exceeds the padded map's {padded}")]
    WindowTooLarge {
        /// The op.
        op: &'static str,
        /// `"height"` or `"width"`.
        axis: &'static str,
        /// The window along the axis.
        window: usize,
        /// The map along the axis, padding included.
        padded: usize,
    },
    /// Padding so large that a window could see nothing but padding. Use less padding.
    #[error("{op}: {axis} padding {padding} is too large for a window of {window}")]
    PaddingTooLarge {
        /// The op.
        op: &'static str,
        /// `"height"` or `"width"`.
        axis: &'static str,
        /// The padding on each side.
        padding: usize,
        /// The window along the axis.
        window: usize,
    },
    /// Winograd's minimal filtering is for 3x3 kernels of stride 1, one group and a blocked source. Plan the layer directly.
    #[error(
        "conv2d: winograd is for 3x3 kernels of stride 1, one group and a blocked source, got {kh}x{kw}, stride {sh}x{sw}, {groups} group(s)"
    )]
    NoWinograd {
        /// Kernel height.
        kh: usize,
        /// Kernel width.
        kw: usize,
        /// Vertical stride.
        sh: usize,
        /// Horizontal stride.
        sw: usize,
        /// The groups.
        groups: usize,
    },
    /// The groups do not divide the channels. Choose a divisor of both `ic` and `oc`.
    #[error("{op}: {groups} groups do not divide {field} = {channels}")]
    GroupsDoNotDivide {
        /// The op.
        op: &'static str,
        /// `"ic"` or `"oc"`.
        field: &'static str,
        /// The groups asked for.
        groups: usize,
        /// The channels.
        channels: usize,
    },
    /// Plain activations enter only an ungrouped first convolution of few channels. Block the source.
    #[error(
        "{op}: a plain source needs one group and fewer than {lanes} channels, got {groups} and {channels}"
    )]
    PlainSource {
        /// The op.
        op: &'static str,
        /// Lanes of a vector.
        lanes: usize,
        /// The groups asked for.
        groups: usize,
        /// The channels.
        channels: usize,
    },
    /// The op would not keep padded lanes zero if it applied a function that is not zero at zero. Apply it by itself.
    #[error("{op}: cannot apply a function to its output whose value at zero is not zero")]
    PaddingNotKept {
        /// The op.
        op: &'static str,
    },
    /// The source is blocked by another number of lanes than the instruction set has. Lay it out by `Isa::lanes`.
    #[error("{op}: the source is blocked by {got} lanes, the instruction set has {expected}")]
    Lanes {
        /// The op.
        op: &'static str,
        /// Lanes of a vector.
        expected: usize,
        /// Lanes of the layout.
        got: usize,
    },
    /// A parameter lies outside its range.
    #[error("{op}: {field} = {value} is not within {min} and {max}")]
    OutOfRange {
        /// The op.
        op: &'static str,
        /// The field of its descriptor.
        field: &'static str,
        /// The value given.
        value: f32,
        /// The least value allowed.
        min: f32,
        /// The greatest value allowed.
        max: f32,
    },
    /// A member's classes go beyond those that there are. Deal out classes 0 to `classes` - 1.
    #[error("{op}: classes {start}..{end} are not among {classes} classes")]
    NotAmongClasses {
        /// The op.
        op: &'static str,
        /// The first class of the member.
        start: usize,
        /// The class after its last.
        end: usize,
        /// All classes.
        classes: usize,
    },
    /// A sample has more elements than the op can count.
    #[error("{op}: a sample of {elements} elements exceeds the limit of {limit}")]
    TooManyElements {
        /// The op.
        op: &'static str,
        /// Elements of a sample.
        elements: usize,
        /// The most that the op can count.
        limit: u32,
    },
}

/// An instruction set that cannot be used here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IsaError {
    /// No instruction set has this name. Use one of those listed.
    #[error("unknown instruction set \"{name}\", this CPU has {}", available.join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names that work here.
        available: Vec<&'static str>,
    },
    /// The instruction set is known, but this CPU lacks it. Use one of those listed.
    #[error("this CPU lacks the instruction set {name}, it has {}", available.join(", "))]
    Missing {
        /// The name asked for.
        name: &'static str,
        /// The names that work here.
        available: Vec<&'static str>,
    },
}
