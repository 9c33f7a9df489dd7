//! The compiled inner loops: a kernel that is not inlined, or whose sums do not stay in registers, is several times slower
//! and still right, so this test disassembles itself and looks.
//!
//! Only in release builds, whose code is the one that matters: `cargo test --release -p lockstep-ops --test codegen`.

#![cfg(all(not(debug_assertions), target_arch = "x86_64", target_os = "linux"))]

use std::collections::HashMap;
use std::process::Command;

use lockstep_ops::{Conv2d, Conv2dBackwardWeights, Conv2dDesc, Conv2dForward, Isa, Layout, Tiles};

/// FMAs from which on a loop is taken for one of a register tile.
const TILE_FMAS: usize = 8;

/// Runs both convolution kernels, so that they are linked into this program.
fn use_kernels() {
    let isa = Isa::detect();
    let conv = Conv2d::new(
        Conv2dDesc {
            ic: 16,
            oc: 16,
            ih: 3,
            iw: 3,
            kh: 3,
            kw: 3,
            sh: 1,
            sw: 1,
            ph: 1,
            pw: 1,
            groups: 1,
            bias: false,
            src_layout: Layout::Blocked(isa.lanes()),
            src_activation: None,
            dst_activation: None,
        },
        isa,
    )
    .expect("the shape is possible");
    let (src, mut wei) = (vec![1.0; conv.src_layout().len(1)], vec![1.0; conv.wei_len()]);
    let mut dst = vec![0.0; conv.dst_layout().len(1)];
    let mut scratch =
        vec![0.0; conv.forward_scratch_len().max(conv.backward_weights_scratch_len())];
    for block in 0..conv.forward_blocks(1) {
        conv.forward(
            block,
            Conv2dForward {
                mb: 1,
                src: &src,
                wei: &wei,
                bia: None,
                dst: Tiles::from(&mut dst[..]),
                scratch: &mut scratch,
            },
        );
    }
    assert_eq!(dst[0], 4.0 * 16.0);
    for block in 0..conv.backward_weights_blocks(1) {
        conv.backward_weights(
            block,
            Conv2dBackwardWeights {
                mb: 1,
                src: &src,
                diff_dst: &dst,
                diff_wei: Tiles::from(&mut wei[..]).into(),
                diff_bia: None,
                scratch: &mut scratch,
            },
        );
    }
}

/// An instruction: its address and text.
type Instruction = (u64, String);

/// The functions of this program.
fn disassemble() -> Vec<Vec<Instruction>> {
    let program = std::env::current_exe().expect("a test knows its program");
    let output = Command::new("objdump")
        .args(["--disassemble", "--no-show-raw-insn"])
        .arg(program)
        .output()
        .expect("objdump runs: it is part of binutils, like the linker");
    assert!(output.status.success(), "objdump failed");
    let mut functions = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if line.ends_with(">:") {
            functions.push(Vec::new());
        } else if let Some((address, text)) = line.trim_start().split_once(":\t")
            && let (Ok(address), Some(function)) =
                (u64::from_str_radix(address, 16), functions.last_mut())
        {
            let function: &mut Vec<Instruction> = function;
            function.push((address, text.to_owned()));
        }
    }
    functions
}

/// The innermost loops of a function: from the target of a jump back to the jump, with no other such pair inside.
fn inner_loops(function: &[Instruction]) -> Vec<&[Instruction]> {
    let places: HashMap<u64, usize> =
        function.iter().enumerate().map(|(place, (address, _))| (*address, place)).collect();
    let mut loops = Vec::new();
    for (place, (_, text)) in function.iter().enumerate() {
        let mut words = text.split_whitespace();
        if words.next().is_some_and(|mnemonic| mnemonic.starts_with('j'))
            && let Some(target) = words.next().and_then(|to| u64::from_str_radix(to, 16).ok())
            && let Some(&start) = places.get(&target)
            && start <= place
        {
            loops.push((start, place));
        }
    }
    let inside = |outer: (usize, usize), inner: (usize, usize)| {
        outer != inner && outer.0 <= inner.0 && inner.1 <= outer.1
    };
    let is_innermost = |candidate| !loops.iter().any(|other| inside(candidate, *other));
    let innermost = loops.iter().copied().filter(|candidate| is_innermost(*candidate));
    innermost.map(|(start, end)| &function[start..=end]).collect()
}

fn is_vector_on_the_stack(text: &str) -> bool {
    (text.contains("%zmm") || text.contains("%ymm")) && text.contains("(%rsp")
}

/// Whether an instruction writes a vector to memory that is not the stack.
fn stores_a_vector(text: &str) -> bool {
    let stored = |text: &str| text.starts_with("%zmm") || text.starts_with("%ymm");
    let operands = text.split_whitespace().nth(1);
    text.starts_with("vmov")
        && text.ends_with(')')
        && operands.is_some_and(stored)
        && !text.contains("(%rsp")
}

#[test]
fn register_tiles_stay_in_registers() {
    use_kernels();
    let mut tiles = HashMap::from([("%zmm", 0), ("%ymm", 0)]);
    for function in disassemble() {
        for body in inner_loops(&function) {
            for (register, count) in &mut tiles {
                let fmas = body
                    .iter()
                    .filter(|(_, text)| text.starts_with("vfm") && text.contains(*register));
                if fmas.count() < TILE_FMAS {
                    continue;
                }
                // A loop that writes as it goes maps tiles to frequencies, more vectors than there are registers.
                if body.iter().any(|(_, text)| stores_a_vector(text)) {
                    continue;
                }
                *count += 1;
                let listing = || {
                    let lines = body.iter().map(|(at, text)| format!("{at:x}: {text}\n"));
                    lines.collect::<String>()
                };
                let calls = body.iter().any(|(_, text)| text.starts_with("call"));
                assert!(!calls, "a tile's loop calls a function:\n{}", listing());
                let on_stack = body.iter().filter(|(_, text)| is_vector_on_the_stack(text)).count();
                // The narrow strips' tile of 12 sums in 16 registers has two of them on the stack, one load and one store
                // each; it is faster nevertheless than a smaller one.
                let few = if *register == "%ymm" { 4 } else { 0 };
                assert!(on_stack <= few, "a tile's loop uses the stack:\n{}", listing());
            }
        }
    }
    // Forward and weights pass, plain and blocked, one and two vectors: dozens of each.
    assert!(tiles.values().all(|count| *count >= 20), "loops found: {tiles:?}");
}
