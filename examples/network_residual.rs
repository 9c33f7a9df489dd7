//! A residual network with batch normalization: a layer that two others read, and a sum of two branches.
//!
//! `cargo run --example network_residual`
#![expect(clippy::print_stdout, reason = "the graph is what the example is for")]

use lockstep::graph::{
    BatchNorm, Conv2d, GraphError, LayerId, Linear, Network, NetworkBuilder, SoftmaxCrossEntropy,
};

/// `relu(bn(conv(relu(bn(conv(x))))) + shortcut(x))`: functions of the builder are how blocks are made.
fn block(
    net: &mut NetworkBuilder,
    name: &str,
    from: LayerId,
    (oc, stride): (usize, usize),
) -> Result<LayerId, GraphError> {
    let conv = Conv2d::new(oc, 3).pad(1).no_bias();
    let x = net.conv2d(format!("{name}.conv1"), from, conv.stride(stride))?;
    let x = net.batch_norm(format!("{name}.bn1"), x, BatchNorm::default())?;
    let x = net.relu(format!("{name}.relu1"), x)?;
    let x = net.conv2d(format!("{name}.conv2"), x, conv)?;
    let x = net.batch_norm(format!("{name}.bn2"), x, BatchNorm::default())?;
    let mut shortcut = from;
    if stride > 1 {
        let down = Conv2d::new(oc, 1).stride(stride).no_bias();
        shortcut = net.conv2d(format!("{name}.down"), from, down)?;
    }
    let sum = net.add(format!("{name}.sum"), &[x, shortcut])?;
    net.relu(format!("{name}.relu2"), sum)
}

fn main() -> Result<(), GraphError> {
    let mut net = NetworkBuilder::new("residual");
    let data = net.input("data", (3, 32, 32))?;
    let stem = net.conv2d("stem", data, Conv2d::new(16, 3).pad(1))?;
    let block1 = block(&mut net, "block1", stem, (16, 1))?;
    let block2 = block(&mut net, "block2", block1, (32, 2))?;
    let pool = net.global_avg_pool("pool", block2)?;
    let features = net.flatten("flatten", pool)?;
    let logits = net.linear("fc", features, Linear::new(10))?;
    net.softmax_cross_entropy("loss", logits, SoftmaxCrossEntropy::default())?;
    let net = net.build()?;

    // Pipe it into `dot -Tsvg` to see it.
    println!("{}", net.to_dot());

    assert_eq!(net.layer(block2).shape.to_string(), "32x16x16");
    let readers = |id| net.consumers(id).iter().map(|&id| net.layer(id).name.as_str());
    assert!(readers(stem).eq(["block1.conv1", "block1.sum"]));
    assert!(readers(block1).eq(["block2.conv1", "block2.down"]));

    // Networks travel as JSON.
    assert_eq!(Network::from_json(&net.to_json())?, net);
    Ok(())
}
