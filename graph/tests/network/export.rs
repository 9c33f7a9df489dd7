//! Networks as tables and as DOT.

use lockstep_graph::zoo;

#[test]
fn lenet_as_a_table() {
    insta::assert_snapshot!(zoo::lenet().unwrap().to_table());
}

#[test]
fn a_residual_network_as_dot() {
    insta::assert_snapshot!(zoo::golden::small_resnet().unwrap().to_dot());
}
