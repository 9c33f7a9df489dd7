//! The planner against the paper's numbers, and against the search without shortcuts.

use proptest::prelude::*;

use super::*;

/// Name, input channels, output channels, output map, kernel, stride: the convolutions of OverFeat-FAST and VGG-A.
type Layer = (&'static str, usize, usize, usize, usize, usize);

fn shape(&(_, ic, oc, map, k, s): &Layer) -> ConvShape {
    ConvShape { mb: 1, ic, oc, oh: map, ow: map, kh: k, kw: k, sh: s, sw: s }
}

const OVERFEAT_C5: Layer = ("OverFeat C5", 1024, 1024, 12, 3, 1);
const VGG_C1: Layer = ("VGG-A C1", 3, 64, 224, 3, 1);

/// A row of the table, with one digit more than is printed for people: unblocked; 64 KB isolated, 64 KB output kept, the same at 128 KB; the block (oc, ic, oh, ow) of 64 KB
/// with the output kept.
type Row = (Layer, [f64; 5], [usize; 4]);

const TABLE: [Row; 11] = [
    (("OverFeat C1", 3, 96, 56, 11, 4), [0.298, 0.0362, 0.0196, 0.0251, 0.0117], [32, 1, 8, 28]),
    (("OverFeat C2", 96, 256, 24, 5, 1), [0.192, 0.0214, 0.0103, 0.0153, 0.0069], [16, 1, 24, 24]),
    (("OverFeat C3", 256, 512, 12, 3, 1), [0.539, 0.0372, 0.0186, 0.0303, 0.0163], [64, 1, 12, 12]),
    (
        ("OverFeat C4", 512, 1024, 12, 3, 1),
        [0.539, 0.0372, 0.0186, 0.0303, 0.0163],
        [64, 1, 12, 12],
    ),
    (OVERFEAT_C5, [0.539, 0.0372, 0.0186, 0.0303, 0.0163], [64, 1, 12, 12]),
    (VGG_C1, [0.448, 0.0877, 0.0128, 0.0827, 0.0086], [32, 1, 16, 28]),
    (("VGG-A C2", 64, 128, 112, 3, 1), [0.453, 0.0317, 0.0128, 0.0235, 0.0086], [32, 1, 16, 28]),
    (("VGG-A C3", 128, 256, 56, 3, 1), [0.461, 0.0332, 0.0135, 0.0252, 0.0090], [32, 1, 8, 56]),
    (("VGG-A C4", 256, 256, 56, 3, 1), [0.461, 0.0332, 0.0135, 0.0252, 0.0090], [32, 1, 8, 56]),
    (("VGG-A C5", 256, 512, 28, 3, 1), [0.480, 0.0332, 0.0136, 0.0262, 0.0094], [32, 1, 14, 28]),
    (("VGG-A C7", 512, 512, 14, 3, 1), [0.523, 0.0332, 0.0147, 0.0262, 0.0125], [64, 1, 14, 14]),
];

/// What the table was made with: equal blocks, output channels in vectors of AVX2.
const TABLES: Constraints = Constraints { ic_lanes: 1, oc_lanes: 8, sizes: Sizes::Dividing };

const KB_64: CacheBudget = CacheBudget { live_bytes: 64 << 10 };
const KB_128: CacheBudget = CacheBudget { live_bytes: 128 << 10 };

#[track_caller]
fn same_digits(name: &str, digits: usize, got: f64, printed: f64) {
    assert_eq!(format!("{got:.digits$}"), format!("{printed:.digits$}"), "{name}");
}

#[test]
fn the_papers_table_is_reproduced() {
    for (layer, printed, block) in &TABLE {
        let (name, shape) = (layer.0, shape(layer));
        let found = |budget, traversal| search_traversal(&shape, budget, TABLES, traversal);
        same_digits(name, 3, shape.unblocked_bytes_per_flop(), printed[0]);
        for (budget, printed) in [(KB_64, &printed[1..3]), (KB_128, &printed[3..5])] {
            let isolated = found(budget, Traversal::Isolated);
            same_digits(name, 4, isolated.bytes_per_flop, printed[0]);
            let kept = found(budget, Traversal::OutputKept);
            same_digits(name, 4, kept.bytes_per_flop, printed[1]);
        }
        let Block { mb, ic, oc, oh, ow } = found(KB_64, Traversal::OutputKept).block;
        assert_eq!((mb, [oc, ic, oh, ow]), (1, *block), "{name}");
    }
}

#[test]
fn the_paper_counts_padding_as_input() {
    let unblocked = shape(&OVERFEAT_C5).unblocked_bytes_per_flop();
    assert!((unblocked - 4.0 * (144.0 + 196.0 + 9.0) / (2.0 * 9.0 * 144.0)).abs() < 1e-12);
    assert_eq!(format!("{unblocked:.2}"), "0.54");
}

#[test]
fn a_cache_of_128_kb_is_enough_for_all_but_the_first_layer_of_vgg_a() {
    let budget = CacheBudget::double_buffered(128 << 10);
    assert_eq!(budget, KB_64);
    for (layer, ..) in &TABLE {
        for sizes in [Sizes::Dividing, Sizes::Any] {
            let constraints = Constraints { sizes, ..TABLES };
            let found = search_traversal(&shape(layer), budget, constraints, Traversal::Isolated);
            assert_eq!(found.bytes_per_flop <= 0.04, *layer != VGG_C1, "{}: {found}", layer.0);
        }
        let found = search(&shape(layer), budget, 8);
        let limit = if *layer == VGG_C1 { 0.09 } else { 0.04 };
        assert!(found.bytes_per_flop <= limit, "{}: {found}", layer.0);
    }
}

#[test]
fn a_block_of_all_divides_bytes_by_operations() {
    // 2x2 results of 3 channels from 2x2 of 5: 4 (12 + 20 + 15) bytes, 2 * 60 operations.
    let shape = ConvShape { oh: 2, ow: 2, ..ConvShape::linear(1, 5, 3) };
    let found = search(&shape, KB_64, 1);
    assert_eq!(found.block, Block { mb: 1, ic: 5, oc: 3, oh: 2, ow: 2 });
    assert_eq!((found.block_bytes, found.block.count(&shape)), (188, 1));
    assert!((found.bytes_per_flop - 188.0 / 120.0).abs() < 1e-12);
}

#[test]
fn a_linear_layer_is_blocked_over_samples_and_features() {
    let shape = ConvShape::linear(256, 25088, 4096);
    let found = search(&shape, CacheBudget::double_buffered(2 << 20), 16);
    let Block { mb, ic, oc, oh, ow } = found.block;
    assert_eq!((oh, ow), (1, 1));
    assert!(mb > 1 && ic.is_multiple_of(16) && oc.is_multiple_of(16), "{found}");
    assert!(found.bytes_per_flop < 0.02, "{found}");
    assert_eq!(
        found.block.count(&shape),
        256_usize.div_ceil(mb) * 25088_usize.div_ceil(ic) * 4096_usize.div_ceil(oc)
    );
}

#[test]
fn strides_do_not_load_what_no_kernel_reads() {
    let strided = ConvShape { oh: 8, ow: 8, sh: 2, sw: 2, ..ConvShape::linear(1, 16, 16) };
    let dense = ConvShape { sh: 1, sw: 1, ..strided };
    assert_eq!(search(&strided, KB_64, 8), search(&dense, KB_64, 8));
}

#[test]
fn what_does_not_fit_is_cut_as_small_as_it_can_be() {
    let budget = CacheBudget { live_bytes: 100 };
    let found = search(&shape(&OVERFEAT_C5), budget, 16);
    assert_eq!(found.block, Block { mb: 1, ic: 16, oc: 16, oh: 1, ow: 1 });
    assert!(found.block_bytes > 100);
}

#[test]
fn a_blocking_can_be_logged() {
    let found = search(&ConvShape::linear(1, 2, 2), KB_64, 1);
    let text = "mb 1 ic 2 oc 2 oh 1 ow 1, output kept: 4.0000 bytes/flop, 32 bytes";
    assert_eq!(found.to_string(), text);
}

prop_compose! {
    fn any_shape()(
        [mb, ic, oc] in prop::array::uniform3(1_usize..6),
        [oh, ow] in prop::array::uniform2(1_usize..8),
        [kh, kw, sh, sw] in prop::array::uniform4(1_usize..4),
    ) -> ConvShape {
        ConvShape { mb, ic, oc, oh, ow, kh, kw, sh, sw }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// The pruned search finds what trying everything finds.
    #[test]
    fn the_search_is_exhaustive(shape in any_shape(), live_bytes in 60_usize..4000) {
        let budget = CacheBudget { live_bytes };
        let constraints = Constraints { ic_lanes: 1, oc_lanes: 1, sizes: Sizes::Any };
        let found = search_traversal(&shape, budget, constraints, Traversal::Isolated);
        let best = reference::isolated_bytes_per_flop(&shape, budget);
        if best.is_finite() {
            prop_assert!((found.bytes_per_flop / best - 1.0).abs() < 1e-12, "{found} {best}");
            prop_assert!(found.block_bytes <= live_bytes);
        } else {
            prop_assert_eq!(found.block, Block { mb: 1, ic: 1, oc: 1, oh: 1, ow: 1 });
        }
    }

    /// More cache, or freedom from equal blocks, never costs bytes; what is kept never costs more than what is not; and a
    /// block of one vector of channels and one pixel is never better than what is found.
    #[test]
    fn the_choice_is_never_worse_than_a_simpler_one(
        mut shape in any_shape(),
        scale in 1_usize..20,
        live_bytes in 4000_usize..100_000,
    ) {
        (shape.ic, shape.oc) = (shape.ic * scale, shape.oc * scale);
        let (budget, larger) = (CacheBudget { live_bytes }, CacheBudget { live_bytes: 2 * live_bytes });
        let constraints = Constraints { ic_lanes: 8, oc_lanes: 8, sizes: Sizes::Any };
        let isolated = search_traversal(&shape, budget, constraints, Traversal::Isolated);
        let found = |budget, sizes| {
            let constraints = Constraints { sizes, ..constraints };
            search_traversal(&shape, budget, constraints, Traversal::Isolated).bytes_per_flop
        };
        prop_assert!(isolated.block_bytes <= live_bytes);
        prop_assert!(found(larger, Sizes::Any) <= isolated.bytes_per_flop);
        let trivial = Block { mb: 1, ic: shape.ic.min(8), oc: shape.oc.min(8), oh: 1, ow: 1 };
        let trivial_bytes =
            traffic::paper_bytes(&shape, &trivial.counts(&shape), Traversal::Isolated);
        prop_assert!(isolated.bytes_per_flop <= trivial_bytes / shape.flops());
        let kept = search_traversal(&shape, budget, constraints, Traversal::OutputKept);
        prop_assert!(kept.bytes_per_flop <= isolated.bytes_per_flop);
        let whole = search(&shape, budget, 8);
        prop_assert!(whole.block_bytes <= live_bytes);
        for traversal in [Traversal::OutputKept, Traversal::InputKept, Traversal::WeightsKept] {
            let bytes = traffic::layer_bytes(&shape, &isolated.block.counts(&shape), traversal);
            prop_assert!(whole.bytes_per_flop <= bytes / shape.flops() * (1.0 + 1e-12));
        }
    }
}
