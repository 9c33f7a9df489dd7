//! The layers that `lockstep bench ops` measures: those of the paper's networks and of later ones. `benches/peers` has the same
//! list under the same names.

use lockstep::ops::{Conv2dDesc, Isa, Layout, LinearDesc};

/// A layer by name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layer {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Conv(Conv),
    Linear { inputs: usize, outputs: usize },
}

/// A convolution of square maps with a square kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conv {
    pub(super) ic: usize,
    pub(super) oc: usize,
    pub(super) map: usize,
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) pad: usize,
}

const fn conv(
    name: &'static str,
    channels: (usize, usize),
    map: usize,
    window: [usize; 3],
) -> Layer {
    let [kernel, stride, pad] = window;
    Layer {
        name,
        kind: Kind::Conv(Conv { ic: channels.0, oc: channels.1, map, kernel, stride, pad }),
    }
}

const fn linear(name: &'static str, inputs: usize, outputs: usize) -> Layer {
    Layer { name, kind: Kind::Linear { inputs, outputs } }
}

/// All layers: name, channels in and out, map, kernel with stride and padding; linear: inputs, outputs.
pub(super) const LAYERS: [Layer; 21] = [
    conv("lenet_conv1", (1, 20), 28, [5, 1, 0]),
    conv("lenet_conv2", (20, 50), 12, [5, 1, 0]),
    conv("overfeat_c1", (3, 96), 231, [11, 4, 0]),
    conv("overfeat_c2", (96, 256), 28, [5, 1, 0]),
    conv("overfeat_c3", (256, 512), 12, [3, 1, 1]),
    conv("overfeat_c5", (1024, 1024), 12, [3, 1, 1]),
    conv("vgg_c1", (3, 64), 224, [3, 1, 1]),
    conv("vgg_c2", (64, 128), 112, [3, 1, 1]),
    conv("vgg_c4", (256, 256), 56, [3, 1, 1]),
    conv("vgg_c6", (512, 512), 28, [3, 1, 1]),
    conv("vgg_c7", (512, 512), 14, [3, 1, 1]),
    conv("resnet_1x1a", (256, 64), 56, [1, 1, 0]),
    conv("resnet_1x1b", (64, 256), 56, [1, 1, 0]),
    conv("resnet_3x3", (128, 128), 28, [3, 1, 1]),
    conv("resnet_1x1s2", (256, 512), 56, [1, 2, 0]),
    conv("resnet_7x7s2", (3, 64), 224, [7, 2, 3]),
    conv("resnet_late", (2048, 512), 7, [1, 1, 0]),
    linear("lenet_fc1", 800, 500),
    linear("fc_4096", 4096, 4096),
    linear("fc_2048", 2048, 2048),
    linear("fc_vgg6", 25088, 4096),
];

impl Conv {
    /// The descriptor on an instruction set; a source with fewer channels than a vector is plain, as a network's input is.
    pub(super) fn desc(self, isa: Isa) -> Conv2dDesc {
        let Self { ic, oc, map, kernel, stride, pad } = self;
        let plain = ic < isa.lanes();
        Conv2dDesc {
            ic,
            oc,
            ih: map,
            iw: map,
            kh: kernel,
            kw: kernel,
            sh: stride,
            sw: stride,
            ph: pad,
            pw: pad,
            groups: 1,
            bias: true,
            src_layout: if plain { Layout::Plain } else { Layout::Blocked(isa.lanes()) },
            src_activation: None,
            dst_activation: None,
        }
    }

    /// The descriptor with a source in channel blocks: what has a data gradient. The first layer of a network has none.
    pub(super) fn inner_desc(self, isa: Isa) -> Conv2dDesc {
        Conv2dDesc { src_layout: Layout::Blocked(isa.lanes()), ..self.desc(isa) }
    }
}

/// The descriptor of a linear layer.
pub(super) fn linear_desc(inputs: usize, outputs: usize) -> LinearDesc {
    LinearDesc {
        in_features: inputs,
        out_features: outputs,
        bias: true,
        src_activation: None,
        dst_activation: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every layer in the words of the peer's table.
    #[test]
    fn the_peers_table_is_the_same() {
        let peer = include_str!("../../../benches/peers/torch_layers.py");
        for Layer { name, kind } in LAYERS {
            let entry = match kind {
                Kind::Linear { inputs, outputs } => format!("{name}=({inputs}, {outputs})"),
                Kind::Conv(Conv { ic, oc, map, kernel, stride, pad }) => {
                    format!("{name}=({ic}, {oc}, {map}, {map}, {kernel}, {stride}, {pad})")
                }
            };
            assert!(peer.contains(&entry), "no {entry}");
        }
    }
}
