//! Mean and spread of a set of values, and those of two sets together.

use super::BatchNorm;
use crate::simd::Simd;

/// Count, mean and sum of squared deviations of a set of values, lane by lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moments<V> {
    pub(super) count: u64,
    pub(super) mean: V,
    pub(super) m2: V,
}

impl<V: Copy> Moments<V> {
    #[inline(always)]
    pub(super) fn empty<S: Simd<F32 = V>>(simd: S) -> Moments<V> {
        Moments { count: 0, mean: simd.zero(), m2: simd.zero() }
    }

    /// Both sets together (Chan, Golub and LeVeque 1979, eq. 2.1). An empty set counts for nothing, whatever it says.
    #[inline(always)]
    pub(super) fn merge<S: Simd<F32 = V>>(self, simd: S, other: Moments<V>) -> Moments<V> {
        if other.count == 0 {
            return self;
        }
        if self.count == 0 {
            return other;
        }
        let count = self.count + other.count;
        let part = other.count as f64 / count as f64;
        let delta = simd.sub(other.mean, self.mean);
        let spread =
            simd.mul(simd.mul(delta, delta), simd.splat((part * self.count as f64) as f32));
        Moments {
            count,
            mean: simd.mul_add(delta, simd.splat(part as f32), self.mean),
            m2: simd.add(simd.add(self.m2, other.m2), spread),
        }
    }

    /// The sum of squared deviations over `count - correction`, or over one where that would not be positive: a single
    /// value has no spread.
    #[inline(always)]
    pub(super) fn variance<S: Simd<F32 = V>>(self, simd: S, correction: u64) -> V {
        simd.div(self.m2, simd.splat(self.count.saturating_sub(correction).max(1) as f32))
    }

    /// The moments of a channel block over all slices or ranks, merged in their order.
    #[inline(always)]
    pub(super) fn gathered<S: Simd<F32 = V>>(
        simd: S,
        plan: &BatchNorm,
        channel_block: usize,
        stats: &[f32],
        counts: &[u64],
    ) -> Moments<V> {
        let mut total = Moments::empty(simd);
        for (stats, &count) in stats.chunks_exact(plan.stats_len()).zip(counts) {
            let mean = simd.load(&stats[plan.lanes(0, channel_block)]);
            let m2 = simd.load(&stats[plan.lanes(1, channel_block)]);
            total = total.merge(simd, Moments { count, mean, m2 });
        }
        total
    }
}
