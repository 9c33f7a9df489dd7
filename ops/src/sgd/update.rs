//! One step of SGD over a contiguous piece of a parameter.

use crate::Isa;
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};

/// The hyperparameters of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdHyper {
    /// The learning rate.
    pub lr: f32,
    /// What remains of the velocity each step.
    pub momentum: f32,
    /// The factor of the weights that is added to the gradient; 0 for parameters that are not to decay.
    pub weight_decay: f32,
    /// Looks a step ahead along the velocity.
    pub nesterov: bool,
}

/// Updates weights in place.
///
/// ```text
/// g   = diff + weight_decay * wei
/// v   = momentum * v + g              if momentum is not 0, else nothing is kept
/// wei = wei - lr * g                  without momentum
///     = wei - lr * v                  with momentum
///     = wei - lr * (g + momentum * v) with nesterov
/// ```
///
/// A velocity starts as zeros. Each element's result has the same bits wherever the slices begin and end, so a
/// parameter can be cut into strips anywhere. Padding stays zero.
///
/// # Shapes
///
/// Slices of equal length over the same elements.
///
/// # Cost
///
/// Memory bound: reads `wei`, `diff` and `velocity`, writes `wei` and `velocity`.
///
/// # Panics
///
/// If `diff` is shorter than `wei`, or momentum is not 0 and `velocity` is missing or shorter than `wei`.
///
/// # Source
///
/// PyTorch's `torch.optim.SGD` with dampening 0.
pub fn update(
    isa: Isa,
    hyper: SgdHyper,
    wei: &mut [f32],
    diff: &[f32],
    velocity: Option<&mut [f32]>,
) {
    update_scaled(isa, hyper, 1.0, wei, diff, velocity);
}

/// [`update`] with `gradient_scale * diff` in place of `diff`: with the
/// [coefficient](crate::gradient::clip_coefficient) of clipping by the global norm, the step that `PyTorch` makes after
/// `clip_grad_norm_`. The product is rounded before the decay is added. A scale of 1 leaves every bit as it is.
///
/// # Panics
///
/// As [`update`].
pub fn update_scaled(
    isa: Isa,
    hyper: SgdHyper,
    gradient_scale: f32,
    wei: &mut [f32],
    diff: &[f32],
    velocity: Option<&mut [f32]>,
) {
    expect_len("sgd", "diff", diff.len(), wei.len());
    let diff = &diff[..wei.len()];
    if hyper.momentum == 0.0 {
        isa.dispatch(Step { hyper, gradient_scale, wei, diff, velocity: None });
    } else {
        let velocity = velocity.expect("sgd: momentum needs a velocity");
        expect_len("sgd", "velocity", velocity.len(), wei.len());
        isa.dispatch(Step { hyper, gradient_scale, wei, diff, velocity: Some(velocity) });
    }
}

struct Step<'a> {
    hyper: SgdHyper,
    gradient_scale: f32,
    wei: &'a mut [f32],
    diff: &'a [f32],
    velocity: Option<&'a mut [f32]>,
}

impl Kernel for Step<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Step { hyper, gradient_scale, wei, diff, velocity } = self;
        let rule = Rule::new(simd, hyper, gradient_scale);
        let pieces = wei.chunks_mut(S::LANES).zip(diff.chunks(S::LANES));
        match velocity {
            None => {
                for (wei, diff) in pieces {
                    rule.step(simd, wei, load(simd, diff));
                }
            }
            Some(velocity) => {
                for ((wei, diff), velocity) in pieces.zip(velocity.chunks_mut(S::LANES)) {
                    rule.step_with_momentum(simd, wei, velocity, load(simd, diff));
                }
            }
        }
    }
}

/// The hyperparameters in vectors.
pub(crate) struct Rule<S: Simd> {
    hyper: SgdHyper,
    negative_lr: S::F32,
    momentum: S::F32,
    /// `None` if nothing decays: 0 times an infinite weight would be NaN.
    weight_decay: Option<S::F32>,
    /// `None` if gradients are taken as they are.
    gradient_scale: Option<S::F32>,
}

impl<S: Simd> Rule<S> {
    #[inline(always)]
    pub(crate) fn new(simd: S, hyper: SgdHyper, gradient_scale: f32) -> Rule<S> {
        Rule {
            hyper,
            negative_lr: simd.splat(-hyper.lr),
            momentum: simd.splat(hyper.momentum),
            weight_decay: (hyper.weight_decay != 0.0).then_some(simd.splat(hyper.weight_decay)),
            gradient_scale: (gradient_scale != 1.0).then_some(simd.splat(gradient_scale)),
        }
    }

    #[inline(always)]
    pub(crate) fn has_momentum(&self) -> bool {
        self.hyper.momentum != 0.0
    }

    /// Without momentum, the step of a vector of weights, or of what is left of one.
    #[inline(always)]
    pub(crate) fn step(&self, simd: S, wei: &mut [f32], diff: S::F32) {
        let w = load(simd, wei);
        let g = self.gradient(simd, w, diff);
        store(simd, wei, self.descend(simd, w, g));
    }

    /// With momentum, the same.
    #[inline(always)]
    pub(crate) fn step_with_momentum(
        &self,
        simd: S,
        wei: &mut [f32],
        velocity: &mut [f32],
        diff: S::F32,
    ) {
        let w = load(simd, wei);
        let g = self.gradient(simd, w, diff);
        let v = simd.mul_add(self.momentum, load(simd, velocity), g);
        store(simd, velocity, v);
        let ahead = if self.hyper.nesterov { simd.mul_add(self.momentum, v, g) } else { v };
        store(simd, wei, self.descend(simd, w, ahead));
    }

    #[inline(always)]
    fn gradient(&self, simd: S, wei: S::F32, diff: S::F32) -> S::F32 {
        let diff = self.gradient_scale.map_or(diff, |scale| simd.mul(scale, diff));
        match self.weight_decay {
            Some(decay) => simd.mul_add(decay, wei, diff),
            None => diff,
        }
    }

    #[inline(always)]
    fn descend(&self, simd: S, wei: S::F32, direction: S::F32) -> S::F32 {
        simd.mul_add(self.negative_lr, direction, wei)
    }
}

/// The last piece of a slice may be shorter than a vector.
#[inline(always)]
fn load<S: Simd>(simd: S, piece: &[f32]) -> S::F32 {
    if piece.len() == S::LANES { simd.load(piece) } else { simd.load_partial(piece) }
}

#[inline(always)]
fn store<S: Simd>(simd: S, piece: &mut [f32], value: S::F32) {
    if piece.len() == S::LANES {
        simd.store(piece, value);
    } else {
        simd.store_partial(piece, value);
    }
}
