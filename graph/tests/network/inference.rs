//! Shapes, parameters and operations against values computed by hand (output sizes as PyTorch prints them).

use lockstep_graph::{
    AvgPool, BatchNorm, Conv2d, Dropout, GraphError, LayerId, Linear, Lrn, Network, NetworkBuilder,
    Param, ParamRole, Pool, Shape, SoftmaxCrossEntropy,
};

/// The network of an input and one layer.
#[track_caller]
fn single(
    input: impl Into<Shape>,
    layer: impl FnOnce(&mut NetworkBuilder, LayerId) -> Result<LayerId, GraphError>,
) -> Network {
    let mut net = NetworkBuilder::new("single");
    let data = net.input("data", input).unwrap();
    layer(&mut net, data).unwrap();
    net.build().unwrap()
}

/// Output shape, trainable values and operations of the network's last layer.
fn facts(net: &Network) -> (String, usize, u64) {
    let last = net.layers().last().unwrap();
    (last.shape.to_string(), net.parameter_count(), net.forward_flops_per_sample(last.id))
}

#[track_caller]
fn check_conv(input: (usize, usize, usize), conv: Conv2d, shape: &str, params: usize, flops: u64) {
    let net = single(input, |net, data| net.conv2d("conv", data, conv));
    assert_eq!(facts(&net), (shape.to_owned(), params, flops));
}

#[test]
fn convolutions() {
    check_conv((1, 28, 28), Conv2d::new(20, 5), "20x24x24", 520, 576_000);
    // VGG's first and AlexNet's first two layers.
    check_conv((3, 224, 224), Conv2d::new(64, 3).pad(1), "64x224x224", 1792, 173_408_256);
    check_conv((3, 227, 227), Conv2d::new(96, 11).stride(4), "96x55x55", 34_944, 210_830_400);
    check_conv(
        (96, 27, 27),
        Conv2d::new(256, 5).pad(2).groups(2),
        "256x27x27",
        307_456,
        447_897_600,
    );
    // ResNet's first layer: an odd size that is rounded down.
    check_conv(
        (3, 224, 224),
        Conv2d::new(64, 7).stride(2).pad(3).no_bias(),
        "64x112x112",
        9408,
        236_027_904,
    );
    // Rectangular, the kernel larger than the unpadded map, and a stride above the kernel.
    check_conv((4, 11, 9), Conv2d::new(6, (3, 5)).pad((1, 2)), "6x11x9", 366, 71_280);
    check_conv((40, 3, 3), Conv2d::new(8, 5).pad(1), "8x1x1", 8008, 16_000);
    check_conv((2, 7, 8), Conv2d::new(3, 1).stride((3, 4)), "3x3x2", 9, 72);
    // Depth-wise.
    check_conv((8, 5, 5), Conv2d::new(8, 3).groups(8).no_bias(), "8x3x3", 72, 1296);
}

#[track_caller]
fn check_pool(input: (usize, usize, usize), pool: Pool, shape: &str) {
    let max = single(input, |net, data| net.max_pool("pool", data, pool));
    let average =
        single(input, |net, data| net.avg_pool("pool", data, AvgPool::from(pool).exclude_pad()));
    assert_eq!(facts(&max), facts(&average));
    assert_eq!(facts(&max).0, shape);
}

#[test]
fn pooling() {
    check_pool((5, 24, 24), Pool::new(2), "5x12x12");
    check_pool((5, 9, 9), Pool::new(3).stride(2), "5x4x4");
    check_pool((16, 9, 7), Pool::new(3).stride(2).pad(1), "16x5x4");
    check_pool((3, 10, 10), Pool::new(3).stride(2), "3x4x4");
    check_pool((3, 10, 10), Pool::new(3).stride(2).ceil(), "3x5x5");
    check_pool((64, 112, 112), Pool::new(3).stride(2).ceil(), "64x56x56");
    // A last window that would start in the padding behind the map does not count.
    check_pool((1, 4, 4), Pool::new(2).stride(2).pad(1).ceil(), "1x3x3");
    check_pool((1, 3, 3), Pool::new(2).stride(2).pad(1).ceil(), "1x2x2");
    check_pool((1, 5, 5), Pool::new(1).stride(3).ceil(), "1x2x2");
    // In ceil mode one window may stick out of a map that is smaller.
    check_pool((1, 1, 1), Pool::new(2).ceil(), "1x1x1");
    check_pool((2, 6, 9), Pool::new((2, 3)).stride((4, 1)), "2x2x7");
}

#[test]
fn operations_of_pooling_are_window_values() {
    let net = single((5, 24, 24), |net, data| net.max_pool("pool", data, Pool::new(2)));
    assert_eq!(facts(&net).2, 5 * 12 * 12 * 4);
    let net = single((11, 7, 7), |net, data| net.global_avg_pool("pool", data));
    assert_eq!(facts(&net), ("11x1x1".to_owned(), 0, 539));
}

#[test]
fn layers_of_features() {
    let net = single(429, |net, data| net.linear("fc", data, Linear::new(64)));
    assert_eq!(facts(&net), ("64".to_owned(), 27_520, 54_912));
    let net = single(429, |net, data| net.linear("fc", data, Linear::new(64).no_bias()));
    assert_eq!(facts(&net), ("64".to_owned(), 27_456, 54_912));
    let net = single((50, 4, 4), |net, data| net.flatten("flatten", data));
    assert_eq!(facts(&net), ("800".to_owned(), 0, 0));
    let net = single(10, |net, data| {
        net.softmax_cross_entropy("loss", data, SoftmaxCrossEntropy::smoothed(0.1))
    });
    assert_eq!(facts(&net), ("1".to_owned(), 0, 100));
    assert_eq!(net.classes(), 10);
}

#[test]
fn element_wise_layers_keep_the_shape() {
    type Method = fn(&mut NetworkBuilder, LayerId) -> Result<LayerId, GraphError>;
    let methods: [(Method, usize, u64); 7] = [
        (|net, data| net.bias("l", data), 9, 1),
        (|net, data| net.relu("l", data), 0, 1),
        (|net, data| net.sigmoid("l", data), 0, 10),
        (|net, data| net.tanh("l", data), 0, 10),
        (|net, data| net.dropout("l", data, Dropout::new(0.5)), 0, 1),
        (|net, data| net.batch_norm("l", data, BatchNorm::default()), 18, 2),
        (|net, data| net.lrn("l", data, Lrn::new(5)), 0, 20),
    ];
    for (method, params, operations) in methods {
        let net = single((9, 5, 3), method);
        assert_eq!(facts(&net), ("9x5x3".to_owned(), params, operations * 135));
    }
    let net = single(6, |net, data| net.batch_norm("bn", data, BatchNorm::default()));
    assert_eq!(facts(&net), ("6".to_owned(), 12, 12));
}

#[test]
fn joins() {
    let mut net = NetworkBuilder::new("joins");
    let data = net.input("data", (3, 4, 5)).unwrap();
    let a = net.conv2d("a", data, Conv2d::new(2, 1)).unwrap();
    let b = net.conv2d("b", data, Conv2d::new(3, 1)).unwrap();
    let sum = net.add("sum", &[b, data, b]).unwrap();
    let cat = net.concat("cat", &[a, sum, data]).unwrap();
    let flat = net.flatten("flat", cat).unwrap();
    let all = net.concat("all", &[flat, flat]).unwrap();
    let net = net.build().unwrap();
    assert_eq!(net.layer(sum).shape.to_string(), "3x4x5");
    assert_eq!(net.forward_flops_per_sample(sum), 2 * 60);
    assert_eq!(net.layer(cat).shape.to_string(), "8x4x5");
    assert_eq!(net.layer(all).shape, Shape::Features(320));
    assert_eq!(net.consumers(data), [a, b, sum, cat]);
    // A layer that reads another twice is its consumer twice.
    assert_eq!(net.consumers(b), [sum, sum]);
    assert_eq!(net.consumers(all), []);
}

#[test]
fn parameters_are_named_and_shaped_as_in_pytorch() {
    let params = |net: &Network| net.layers()[1].params.clone();
    let named = |name: &str, shape: &[usize], role| Param {
        name: name.to_owned(),
        shape: shape.to_owned(),
        role,
    };
    let net =
        single((8, 9, 9), |net, data| net.conv2d("c", data, Conv2d::new(6, (3, 5)).groups(2)));
    assert_eq!(
        params(&net),
        [named("weight", &[6, 4, 3, 5], ParamRole::Weight), named("bias", &[6], ParamRole::Bias)]
    );
    assert_eq!(
        (params(&net)[0].fan_in(), params(&net)[0].elements(), params(&net)[1].fan_in()),
        (60, 360, 1)
    );
    let net = single(7, |net, data| net.linear("fc", data, Linear::new(5)));
    assert_eq!(
        params(&net),
        [named("weight", &[5, 7], ParamRole::Weight), named("bias", &[5], ParamRole::Bias)]
    );
    let net = single((4, 2, 2), |net, data| net.batch_norm("bn", data, BatchNorm::default()));
    assert_eq!(
        params(&net),
        [
            named("weight", &[4], ParamRole::Scale),
            named("bias", &[4], ParamRole::Shift),
            named("running_mean", &[4], ParamRole::RunningMean),
            named("running_var", &[4], ParamRole::RunningVar)
        ]
    );
}

#[test]
fn a_network_without_a_loss_ends_in_its_last_layer() {
    let net = single((8, 9, 9), |net, data| net.global_avg_pool("pool", data));
    assert_eq!(net.loss(), None);
    assert_eq!(net.layer(net.logits()).name, "pool");
    assert_eq!(net.classes(), 8);
    assert_eq!(net.find("pool").unwrap().id, net.logits());
    assert_eq!(net.find("nothing"), None);
}
