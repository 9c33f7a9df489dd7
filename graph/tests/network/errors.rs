//! Every way to write a wrong network, with the message that it gets.

use lockstep_graph::{
    AvgPool, BatchNorm, Conv2d, Dropout, GraphError, LayerId, Linear, Lrn, NetworkBuilder, Pool,
    Shape, SoftmaxCrossEntropy,
};

/// The message of what `layer` does wrong after an input of this shape.
#[track_caller]
fn refused(
    input: impl Into<Shape>,
    layer: impl FnOnce(&mut NetworkBuilder, LayerId) -> Result<LayerId, GraphError>,
) -> String {
    let mut net = NetworkBuilder::new("wrong");
    let data = net.input("data", input).unwrap();
    layer(&mut net, data).unwrap_err().to_string()
}

#[test]
fn names() {
    for name in ["", "a b", "a/b", "..", "a\\b", "a\n", "-x", "größe", "a:b", &"x".repeat(129)] {
        let message = format!(
            "name {name:?} is not allowed: use at most 128 letters, digits, '.', '_' and '-', the first a letter, a \
             digit or '_'"
        );
        assert_eq!(refused(1, |net, data| net.relu(name, data)), message);
        let mut net = NetworkBuilder::new(name);
        net.input("data", 1).unwrap();
        assert_eq!(net.build().unwrap_err().to_string(), message);
    }
    assert_eq!(
        refused(1, |net, data| net.relu("data", data)),
        "two layers are named data: give each its own name"
    );
}

#[test]
fn a_failed_step_leaves_the_builder_as_it_was() {
    let mut net = NetworkBuilder::new("retry");
    let data = net.input("data", (3, 2, 2)).unwrap();
    net.conv2d("conv", data, Conv2d::new(4, 3)).unwrap_err();
    let conv = net.conv2d("conv", data, Conv2d::new(4, 1)).unwrap();
    let net = net.build().unwrap();
    assert_eq!((net.layers().len(), net.logits()), (2, conv));
}

#[test]
fn windows() {
    let conv = |conv: Conv2d| refused((3, 4, 6), |net, data| net.conv2d("conv1", data, conv));
    assert_eq!(
        conv(Conv2d::new(8, (5, 9)).pad((1, 1))),
        "layer conv1: window 5x9 is larger than the padded map 6x8 (input 3x4x6, padding 1x1)"
    );
    assert_eq!(conv(Conv2d::new(8, (0, 3))), "layer conv1: kernel must be at least 1, got 0");
    assert_eq!(
        conv(Conv2d::new(8, 3).stride((1, 0))),
        "layer conv1: stride must be at least 1, got 0"
    );
    assert_eq!(conv(Conv2d::new(0, 3)), "layer conv1: oc must be at least 1, got 0");
    assert_eq!(conv(Conv2d::new(8, 3).groups(0)), "layer conv1: groups must be at least 1, got 0");
    assert_eq!(
        conv(Conv2d::new(8, 3).groups(2)),
        "layer conv1: 2 groups do not divide 3 input channels evenly"
    );
    assert_eq!(
        conv(Conv2d::new(8, 3).groups(3)),
        "layer conv1: 3 groups do not divide 8 output channels evenly"
    );

    let pool = |pool: Pool| refused((3, 1, 1), |net, data| net.max_pool("pool1", data, pool));
    assert_eq!(
        pool(Pool::new(2)),
        "layer pool1: window 2x2 is larger than the padded map 1x1 (input 3x1x1, padding 0x0)"
    );
    assert_eq!(
        pool(Pool::new(4).stride(2).ceil()),
        "layer pool1: window 4x4 is larger than the padded map 1x1 (input 3x1x1, padding 0x0)"
    );
    assert_eq!(
        pool(Pool::new((3, 2)).pad((1, 2))),
        "layer pool1: padding 1x2 is more than half of the pooling window 3x2"
    );
    assert_eq!(pool(Pool::new(0).pad(1)), "layer pool1: kernel must be at least 1, got 0");
}

#[test]
fn features_and_maps() {
    let message = |layer: &str, kind: &str| {
        format!(
            "layer {layer}: {kind} expects features, got maps 50x4x4: insert a flatten layer before it"
        )
    };
    let maps = (50, 4, 4);
    assert_eq!(
        refused(maps, |net, data| net.linear("fc1", data, Linear::new(10))),
        message("fc1", "linear")
    );
    assert_eq!(
        refused(maps, |net, data| net.softmax_cross_entropy(
            "loss",
            data,
            SoftmaxCrossEntropy::default()
        )),
        message("loss", "softmax_cross_entropy")
    );
    type Method = fn(&mut NetworkBuilder, LayerId) -> Result<LayerId, GraphError>;
    let methods: [(Method, &str); 5] = [
        (|net, data| net.conv2d("x", data, Conv2d::new(1, 1)), "conv2d"),
        (|net, data| net.max_pool("x", data, Pool::new(1)), "max_pool"),
        (|net, data| net.avg_pool("x", data, AvgPool::new(1)), "avg_pool"),
        (|net, data| net.global_avg_pool("x", data), "global_avg_pool"),
        (|net, data| net.lrn("x", data, Lrn::new(3)), "lrn"),
    ];
    for (method, kind) in methods {
        let message =
            format!("layer x: {kind} expects maps (channels x height x width), got 10 features");
        assert_eq!(refused(10, method), message);
    }
}

#[test]
fn joins() {
    let mut net = NetworkBuilder::new("wrong");
    let data = net.input("data", (3, 4, 4)).unwrap();
    let conv = net.conv2d("conv", data, Conv2d::new(8, 3)).unwrap();
    let flat = net.flatten("flat", data).unwrap();
    let add = |inputs: &[LayerId]| net.clone().add("sum", inputs).unwrap_err().to_string();
    assert_eq!(
        add(&[data, data, conv]),
        "layer sum: cannot add different shapes: data 3x4x4, data 3x4x4, conv 8x2x2"
    );
    assert_eq!(add(&[data]), "layer sum: add reads 2 or more inputs, got 1");
    assert_eq!(add(&[]), "layer sum: add reads 2 or more inputs, got 0");
    let concat = |inputs: &[LayerId]| net.clone().concat("cat", inputs).unwrap_err().to_string();
    assert_eq!(
        concat(&[data, conv]),
        "layer cat: cannot concatenate shapes that differ in more than channels: data 3x4x4, conv 8x2x2"
    );
    assert_eq!(
        concat(&[flat, data]),
        "layer cat: cannot concatenate shapes that differ in more than channels: flat 48, data 3x4x4"
    );
    assert_eq!(concat(&[conv]), "layer cat: concat reads 2 or more inputs, got 1");
}

#[test]
fn numbers() {
    let dropout = |p| refused(5, |net, data| net.dropout("drop", data, Dropout::new(p)));
    assert_eq!(dropout(1.0), "layer drop: p must be in [0, 1), got 1");
    assert_eq!(dropout(-0.5), "layer drop: p must be in [0, 1), got -0.5");
    assert_eq!(dropout(f64::NAN), "layer drop: p must be in [0, 1), got NaN");
    // One in the single precision that kernels compute in.
    assert_eq!(dropout(0.999_999_999), "layer drop: p must be in [0, 1), got 0.999999999");
    let norm = |norm| refused(5, |net, data| net.batch_norm("bn", data, norm));
    let usual = BatchNorm::default();
    assert_eq!(norm(BatchNorm { eps: 0.0, ..usual }), "layer bn: eps must be a number > 0, got 0");
    assert_eq!(
        norm(BatchNorm { momentum: 1.5, ..usual }),
        "layer bn: momentum must be in [0, 1], got 1.5"
    );
    let lrn = |lrn| refused((5, 1, 1), |net, data| net.lrn("lrn", data, lrn));
    let usual = Lrn::new(5);
    assert_eq!(lrn(Lrn { size: 0, ..usual }), "layer lrn: size must be at least 1, got 0");
    assert_eq!(lrn(Lrn { alpha: -1.0, ..usual }), "layer lrn: alpha must be a number >= 0, got -1");
    assert_eq!(
        lrn(Lrn { beta: f64::INFINITY, ..usual }),
        "layer lrn: beta must be a finite number, got inf"
    );
    assert_eq!(lrn(Lrn { k: 0.0, ..usual }), "layer lrn: k must be a number > 0, got 0");
    assert_eq!(
        refused(5, |net, data| net.softmax_cross_entropy(
            "loss",
            data,
            SoftmaxCrossEntropy::smoothed(1.1)
        )),
        "layer loss: label_smoothing must be in [0, 1], got 1.1"
    );
}

#[test]
fn sizes() {
    let input =
        |shape: Shape| NetworkBuilder::new("wrong").input("data", shape).unwrap_err().to_string();
    assert_eq!(input(0.into()), "layer data: features must be at least 1, got 0");
    assert_eq!(input((0, 1, 1).into()), "layer data: channels must be at least 1, got 0");
    assert_eq!(input((1, 0, 1).into()), "layer data: height must be at least 1, got 0");
    assert_eq!(input((1, 1, 0).into()), "layer data: width must be at least 1, got 0");
    let too_large = |layer: &str, what: &str| {
        format!("layer {layer}: {what} is too large: at most 2^40 values are supported")
    };
    assert_eq!(input((usize::MAX, 2, 2).into()), too_large("data", "output"));
    assert_eq!(input(((1 << 40) + 1).into()), too_large("data", "output"));
    let linear = |out| refused(1 << 20, |net, data| net.linear("fc", data, Linear::new(out)));
    assert_eq!(linear(0), "layer fc: out_features must be at least 1, got 0");
    assert_eq!(linear((1 << 20) + 1), too_large("fc", "weight"));
    assert_eq!(linear(1 << 20), too_large("fc", "the network up to here"));
    assert_eq!(
        refused((1, 1, 1), |net, data| net.conv2d("conv", data, Conv2d::new(1, 1).pad(usize::MAX))),
        "layer conv: window is too large: at most 2^31 pixels along an axis are supported"
    );
    assert_eq!(
        refused((1, 1 << 20, 1 << 20), |net, data| net.conv2d(
            "conv",
            data,
            Conv2d::new(1, (1 << 13) + 1).pad(1 << 12)
        )),
        "layer conv: work is too large: at most 2^64 operations a sample are supported"
    );
    assert_eq!(
        refused(1 << 39, |net, data| net.concat("cat", &[data, data, data])),
        too_large("cat", "output")
    );
}

#[test]
fn ends_of_the_network() {
    let mut net = NetworkBuilder::new("wrong");
    assert_eq!(net.clone().build().unwrap_err().to_string(), "network wrong has no input layer");
    let data = net.input("data", 4).unwrap();
    assert_eq!(
        net.input("more", 4).unwrap_err().to_string(),
        "layer more is a second input beside data: a network has exactly one"
    );
    let fc = net.linear("fc", data, Linear::new(3)).unwrap();
    let loss = net.softmax_cross_entropy("loss", fc, SoftmaxCrossEntropy::default()).unwrap();
    assert_eq!(
        net.softmax_cross_entropy("loss2", fc, SoftmaxCrossEntropy::default())
            .unwrap_err()
            .to_string(),
        "layer loss2 is a second loss beside loss: a network has at most one"
    );
    assert_eq!(
        net.relu("after", loss).unwrap_err().to_string(),
        "layer after reads the loss loss: no layer can follow the loss"
    );
    let mut other = NetworkBuilder::new("other");
    other.input("data", 4).unwrap();
    assert_eq!(
        other.relu("relu", fc).unwrap_err().to_string(),
        "layer relu reads layer number 1 of another builder: this one has 1 layers so far"
    );
}

#[test]
fn dead_branches() {
    let dead = |layer: &str, output: &str| {
        format!(
            "layer {layer} is a dead branch: nothing reads it, and the network's output is {output}; connect it or \
             remove it"
        )
    };
    let mut net = NetworkBuilder::new("wrong");
    let data = net.input("data", 4).unwrap();
    let fc = net.linear("fc", data, Linear::new(3)).unwrap();
    let aux = net.linear("aux", data, Linear::new(2)).unwrap();
    net.relu("aux_relu", aux).unwrap();
    net.relu("relu", fc).unwrap();
    assert_eq!(net.clone().build().unwrap_err().to_string(), dead("aux_relu", "relu"));
    let relu = net.relu("relu2", fc).unwrap();
    net.softmax_cross_entropy("loss", relu, SoftmaxCrossEntropy::default()).unwrap();
    assert_eq!(net.build().unwrap_err().to_string(), dead("aux_relu", "loss"));
}

#[test]
fn ties() {
    let mut net = NetworkBuilder::new("wrong");
    let data = net.input("data", (8, 5, 5)).unwrap();
    let conv = |net: &mut NetworkBuilder, name: &str, conv: Conv2d| {
        net.conv2d(name, data, conv.pad(1)).unwrap()
    };
    let plain = conv(&mut net, "plain", Conv2d::new(8, 3));
    let strided = conv(&mut net, "strided", Conv2d::new(8, 3).stride(2));
    let bare = conv(&mut net, "bare", Conv2d::new(8, 3).no_bias());
    let other = conv(&mut net, "other", Conv2d::new(8, 3));
    let narrow = net.conv2d("narrow", data, Conv2d::new(4, 1).no_bias()).unwrap();
    let two = net.conv2d("two", narrow, Conv2d::new(4, 1).groups(2).no_bias()).unwrap();
    let half = net.conv2d("half", narrow, Conv2d::new(2, 1).no_bias()).unwrap();
    let one = net.conv2d("one", half, Conv2d::new(4, 1).no_bias()).unwrap();
    let bias = net.bias("bias", data).unwrap();
    let relus = [net.relu("relu", data).unwrap(), net.relu("relu2", data).unwrap()];
    let tie =
        |net: &NetworkBuilder, layer, owner| net.clone().tie(layer, owner).unwrap_err().to_string();
    for (layer, owner, problem) in [
        (plain, plain, "plain cannot be tied to plain: both have the same parameters already"),
        (
            bias,
            plain,
            "bias cannot be tied to plain: it is a bias layer and the other a conv2d layer, and both must be of one kind",
        ),
        (relus[1], relus[0], "relu2 cannot be tied to relu: a relu layer has no parameters"),
        (
            bare,
            plain,
            "bare cannot be tied to plain: its parameters are weight 8x8x3x3, the other's weight 8x8x3x3, bias 8, and \
             both must be alike",
        ),
        (
            one,
            two,
            "one cannot be tied to two: it has 1 groups and the other 2, and both must have the same number",
        ),
        (
            plain,
            strided,
            "plain cannot be tied to strided: the other comes later, so tie the other to it",
        ),
    ] {
        assert_eq!(tie(&net, layer, owner), format!("layer {problem}"));
    }
    net.tie(other, plain).unwrap();
    net.tie(other, plain).unwrap();
    net.tie(strided, other).unwrap();
    assert_eq!(
        tie(&net, plain, strided),
        "layer plain cannot be tied to strided: both have the same parameters already"
    );
    assert_eq!(
        tie(&net, strided, bare),
        "layer strided cannot be tied to bare: it is tied to plain already"
    );
    let mut small = NetworkBuilder::new("small");
    small.input("data", 1).unwrap();
    assert_eq!(
        small.tie(plain, data).unwrap_err().to_string(),
        "layer number 1 of another builder cannot be tied: this one has 1 layers so far"
    );
}
