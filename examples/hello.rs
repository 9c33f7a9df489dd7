//! LeNet, layer by layer: what the builder knows without a minibatch and without data.
//!
//! `cargo run --example hello`
#![expect(clippy::print_stdout, reason = "the table is what the example is for")]

use lockstep::graph::{Conv2d, GraphError, Linear, NetworkBuilder, Pool, SoftmaxCrossEntropy, zoo};

fn main() -> Result<(), GraphError> {
    let mut net = NetworkBuilder::new("lenet");
    let data = net.input("data", (1, 28, 28))?;
    let conv1 = net.conv2d("conv1", data, Conv2d::new(20, 5))?;
    let relu1 = net.relu("relu1", conv1)?;
    let pool1 = net.max_pool("pool1", relu1, Pool::new(2))?;
    let conv2 = net.conv2d("conv2", pool1, Conv2d::new(50, 5))?;
    let relu2 = net.relu("relu2", conv2)?;
    let pool2 = net.max_pool("pool2", relu2, Pool::new(2))?;
    let features = net.flatten("flatten", pool2)?;
    let fc1 = net.linear("fc1", features, Linear::new(500))?;
    let relu3 = net.relu("relu3", fc1)?;
    let fc2 = net.linear("fc2", relu3, Linear::new(10))?;
    net.softmax_cross_entropy("loss", fc2, SoftmaxCrossEntropy::default())?;
    let net = net.build()?;

    print!("{}", net.to_table());

    assert_eq!(net.layer(pool2).shape.to_string(), "50x4x4");
    assert_eq!(net.parameter_count(), 431_080);
    // The same network comes with the library.
    assert_eq!(net, zoo::lenet()?);

    // What does not fit is refused at once, by name and shape.
    let mut wrong = NetworkBuilder::new("wrong");
    let data = wrong.input("data", (1, 4, 4))?;
    let refused = wrong.conv2d("conv1", data, Conv2d::new(20, 5)).map_err(|e| e.to_string());
    let reason =
        "layer conv1: window 5x5 is larger than the padded map 4x4 (input 1x4x4, padding 0x0)";
    assert_eq!(refused, Err(reason.to_owned()));
    Ok(())
}
