//! A layer's buffers, and its passes on them.

use lockstep::RunError;
use lockstep::ops::{
    Arena, Conv2d, Conv2dBackwardData, Conv2dBackwardWeights, Conv2dDesc, Conv2dForward, Isa,
    Linear, LinearBackwardData, LinearBackwardWeights, LinearForward, Maps, Pass, ShapeError,
    Tiles, WinogradTile,
};
use lockstep::scheduler::{ScheduleError, detect_caches};

use super::layers::{Conv, Kind, Layer, linear_desc};

/// What a pass costs at least.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) flops: f64,
    /// Every operand read or written once, without padding.
    pub(super) bytes: f64,
}

/// Receives each pass in turn, by name.
type OnPass<'a> = &'a mut dyn FnMut(&'static str, Cost, Pass<'_>);

/// Gives the three passes of a layer of `mb` samples to `on_pass`, cut for so many workers.
pub(super) fn each(
    layer: Layer,
    isa: Isa,
    (mb, tile, workers): (usize, Option<WinogradTile>, usize),
    on_pass: OnPass<'_>,
) -> Result<(), RunError> {
    let done = match layer.kind {
        Kind::Conv(conv) => convolution(conv, isa, (mb, tile, workers), on_pass),
        Kind::Linear { inputs, outputs } => {
            let linear = Linear::new(linear_desc(inputs, outputs), isa);
            linear.and_then(|plan| linear_passes(&plan.for_workers(workers), isa, mb, on_pass))
        }
    };
    done.map_err(|source| ScheduleError::Kernel { layer: layer.name.to_owned(), source }.into())
}

/// A buffer of which every element is `fill`, aligned as a network's tensors are: vectors that cross cache lines would cost a
/// tenth of the speed.
fn filled(len: usize, fill: f32) -> Arena {
    let mut buffer = Arena::new(len);
    buffer.as_slice_mut().fill(fill);
    buffer
}

/// Values between -1 and 1, none of them special.
fn values(len: usize) -> Arena {
    let mut buffer = Arena::new(len);
    for (i, value) in buffer.as_slice_mut().iter_mut().enumerate() {
        *value = ((i * 7919) % 2003) as f32 / 1001.5 - 1.0;
    }
    buffer
}

fn bytes(elements: usize) -> f64 {
    (elements * size_of::<f32>()) as f64
}

/// A convolution for so many workers, by Winograd's method where a tile is given and the layer can have it.
pub(super) fn plan(
    desc: Conv2dDesc,
    isa: Isa,
    (tile, workers): (Option<WinogradTile>, usize),
) -> Result<Conv2d, ShapeError> {
    let caches = detect_caches();
    match tile.map(|tile| Conv2d::winograd(desc, tile, isa, caches)) {
        Some(Ok(conv)) => Ok(conv),
        _ => Ok(Conv2d::for_caches(desc, isa, caches)?.for_workers(workers)),
    }
}

fn convolution(
    layer: Conv,
    isa: Isa,
    (mb, tile, workers): (usize, Option<WinogradTile>, usize),
    on_pass: OnPass<'_>,
) -> Result<(), ShapeError> {
    let conv = plan(layer.desc(isa), isa, (tile, workers))?;
    // The first layer of a network has no data gradient; here its maps stand for an inner layer's.
    let inner = plan(layer.inner_desc(isa), isa, (tile, workers))?;
    let desc = *conv.desc();
    let plain = |maps: Maps| mb * maps.c * maps.h * maps.w;
    let elements = plain(desc.src_maps()) + plain(desc.dst_maps()) + desc.plain_wei_len();
    let cost = Cost { flops: desc.flops(mb) as f64, bytes: bytes(elements) };

    let mut src = values(conv.src_layout().len(mb));
    let mut diff_dst = values(conv.dst_layout().len(mb));
    let mut plain_wei = values(desc.plain_wei_len());
    let (src, diff_dst) = (&*src.as_slice_mut(), &*diff_dst.as_slice_mut());
    let plain_wei = &*plain_wei.as_slice_mut();
    let (mut wei, mut bia) = (filled(conv.wei_len(), 0.0), filled(conv.bia_len(), 0.5));
    let (wei, bia) = (wei.as_slice_mut(), bia.as_slice_mut());
    conv.pack_weights(plain_wei, wei);
    let mut prepared = filled(conv.forward_wei_len(), 0.0);
    for block in 0..conv.pack_forward_blocks() {
        conv.pack_forward(block, wei, Tiles::from(prepared.as_slice_mut()));
    }
    let mut dst = filled(diff_dst.len(), 0.0);
    let io = Conv2dForward {
        mb,
        src,
        wei: if conv.prepares_forward() { prepared.as_slice_mut() } else { wei },
        bia: Some(bia),
        dst: Tiles::from(dst.as_slice_mut()),
        scratch: &mut [],
    };
    on_pass("forward", cost, Pass::Conv2dForward(&conv, io));

    let mut inner_wei = filled(inner.wei_len(), 0.0);
    let inner_wei = inner_wei.as_slice_mut();
    inner.pack_weights(plain_wei, inner_wei);
    let mut backward_wei = filled(inner.backward_wei_len(), 0.0);
    let backward_wei = backward_wei.as_slice_mut();
    for block in 0..inner.pack_backward_blocks() {
        inner.pack_backward(block, inner_wei, Tiles::from(&mut *backward_wei));
    }
    let mut diff_src = filled(inner.src_layout().len(mb), 0.0);
    let io = Conv2dBackwardData {
        mb,
        diff_dst,
        wei: backward_wei,
        src: None,
        diff_src: Tiles::from(diff_src.as_slice_mut()),
        scratch: &mut [],
    };
    on_pass("backward_data", cost, Pass::Conv2dBackwardData(&inner, io));

    let (diff_wei, diff_bia) = (wei, bia);
    let io = Conv2dBackwardWeights {
        mb,
        src,
        diff_dst,
        diff_wei: Tiles::from(diff_wei).into(),
        diff_bia: Some(Tiles::from(diff_bia).into()),
        scratch: &mut [],
    };
    on_pass("backward_weights", cost, Pass::Conv2dBackwardWeights(&conv, io));
    Ok(())
}

fn linear_passes(
    linear: &Linear,
    isa: Isa,
    mb: usize,
    on_pass: OnPass<'_>,
) -> Result<(), ShapeError> {
    let (inputs, outputs) = (linear.desc().in_features, linear.desc().out_features);
    let elements = mb * (inputs + outputs) + inputs * outputs;
    let cost = Cost { flops: 2.0 * (mb * inputs * outputs) as f64, bytes: bytes(elements) };

    let padded = |features: usize| mb * features.next_multiple_of(isa.lanes());
    let (mut src, mut diff_dst) = (values(padded(inputs)), values(padded(outputs)));
    let (src, diff_dst) = (&*src.as_slice_mut(), &*diff_dst.as_slice_mut());
    let (mut wei, mut bia) = (filled(linear.wei_len(), 0.0), filled(linear.bia_len(), 0.5));
    let (wei, bia) = (wei.as_slice_mut(), bia.as_slice_mut());
    linear.pack_weights(values(inputs * outputs).as_slice_mut(), wei);
    let mut dst = filled(diff_dst.len(), 0.0);
    let io = LinearForward {
        mb,
        src,
        wei,
        bia: Some(bia),
        dst: Tiles::from(dst.as_slice_mut()),
        scratch: &mut [],
    };
    on_pass("forward", cost, Pass::LinearForward(linear, io));

    let mut diff_src = filled(src.len(), 0.0);
    let io = LinearBackwardData {
        mb,
        diff_dst,
        wei,
        src: None,
        diff_src: Tiles::from(diff_src.as_slice_mut()),
        scratch: &mut [],
    };
    on_pass("backward_data", cost, Pass::LinearBackwardData(linear, io));

    let (diff_wei, diff_bia) = (wei, bia);
    let io = LinearBackwardWeights {
        mb,
        src,
        diff_dst,
        diff_wei: Tiles::from(diff_wei).into(),
        diff_bia: Some(Tiles::from(diff_bia).into()),
        scratch: &mut [],
    };
    on_pass("backward_weights", cost, Pass::LinearBackwardWeights(linear, io));
    Ok(())
}
