//! The tables of matrix instructions against the formulas that vendors document.

use rlx_ir::DType;
use rlx_tile::Arch;
use rlx_tile::atom::{ATOMS, Atom, Loading};

/// The row and column of an element of a lane.
type Formula = fn(u32, u32) -> (u32, u32);

/// An instruction's operands and sums.
struct Documented {
    left: Formula,
    right: Formula,
    sum: Formula,
}

/// "Matrix Fragments for mma.m16n8k16 with floating point type" and "… mma.m16n8k8": `groupID = %laneid >> 2`,
/// `threadID_in_group = %laneid % 4`; row and column of each element by its number `i` in the lane.
mod documented {
    fn group(lane: u32) -> u32 {
        lane >> 2
    }

    fn thread(lane: u32) -> u32 {
        lane % 4
    }

    /// A of m16n8k16: row is groupID for 0 <= i < 2 || 4 <= i < 6, else groupID + 8; col is threadID_in_group * 2 + (i & 1), + 8 for i >= 4.
    pub fn left_k16(lane: u32, i: u32) -> (u32, u32) {
        let row = if i < 2 || (4..6).contains(&i) { group(lane) } else { group(lane) + 8 };
        let col = thread(lane) * 2 + (i & 1);
        (row, if i < 4 { col } else { col + 8 })
    }

    /// B of m16n8k16: row is threadID_in_group * 2 + (i & 1), + 8 for i >= 2; col is groupID.
    pub fn right_k16(lane: u32, i: u32) -> (u32, u32) {
        let row = thread(lane) * 2 + (i & 1);
        (if i < 2 { row } else { row + 8 }, group(lane))
    }

    /// A of m16n8k8: row is groupID for i < 2, else groupID + 8; col is threadID_in_group * 2 + (i & 1).
    pub fn left_k8(lane: u32, i: u32) -> (u32, u32) {
        (if i < 2 { group(lane) } else { group(lane) + 8 }, thread(lane) * 2 + (i & 1))
    }

    /// B of m16n8k8: row is threadID_in_group * 2 + i; col is groupID.
    pub fn right_k8(lane: u32, i: u32) -> (u32, u32) {
        (thread(lane) * 2 + i, group(lane))
    }

    /// C and D of both: row is groupID for i < 2, else groupID + 8; col is threadID_in_group * 2 + (i & 1).
    pub fn sum(lane: u32, i: u32) -> (u32, u32) {
        (if i < 2 { group(lane) } else { group(lane) + 8 }, thread(lane) * 2 + (i & 1))
    }
}

/// AMD's Matrix Instruction Calculator for `v_mfma_f32_16x16x16_f16` and `…_bf16` (CDNA 2 and 3), and the articles on RDNA 3 and 4 for
/// `v_wmma_f32_16x16x16_f16` and `…_bf16` with warps of 32 lanes.
mod amd {
    /// A: i = lane mod 16, k = 4·(lane / 16) + e.
    pub fn left_mfma(lane: u32, e: u32) -> (u32, u32) {
        (lane % 16, 4 * (lane / 16) + e)
    }

    /// D: i = 4·(lane / 16) + e, j = lane mod 16.
    pub fn sum_mfma(lane: u32, e: u32) -> (u32, u32) {
        (4 * (lane / 16) + e, lane % 16)
    }

    /// A on RDNA 3: row lane mod 16, all of the depth, in both halves of the warp.
    pub fn left_wmma11(lane: u32, e: u32) -> (u32, u32) {
        (lane % 16, e)
    }

    /// D on RDNA 3: row 2·e + lane / 16, column lane mod 16.
    pub fn sum_wmma11(lane: u32, e: u32) -> (u32, u32) {
        (2 * e + lane / 16, lane % 16)
    }

    /// A on RDNA 4: row lane mod 16, k = 8·(lane / 16) + e.
    pub fn left_wmma12(lane: u32, e: u32) -> (u32, u32) {
        (lane % 16, 8 * (lane / 16) + e)
    }

    /// D on RDNA 4: row 8·(lane / 16) + e, column lane mod 16.
    pub fn sum_wmma12(lane: u32, e: u32) -> (u32, u32) {
        (8 * (lane / 16) + e, lane % 16)
    }
}

/// B is laid out as A is, with columns for rows; so are transposed sums, which an instruction makes whose operands are exchanged.
fn formulas(atom: &Atom) -> Documented {
    use {amd::*, documented::*};
    let of = |left, right, sum| Documented { left, right, sum };
    match (atom.arch, atom.k) {
        (Arch::Sm80, 16) => of(left_k16, right_k16, sum),
        (Arch::Sm75, 8) => of(left_k8, right_k8, sum),
        (Arch::Gfx90a, 16) => of(left_mfma, |l, e| swapped(left_mfma(l, e)), |l, e| swapped(sum_mfma(l, e))),
        (Arch::Gfx1100, 16) if atom.exchanged => {
            of(left_wmma11, |l, e| swapped(left_wmma11(l, e)), |l, e| swapped(sum_wmma11(l, e)))
        }
        (Arch::Gfx1100, 16) => of(left_wmma11, |l, e| swapped(left_wmma11(l, e)), sum_wmma11),
        (Arch::Gfx1200, 16) => {
            of(left_wmma12, |l, e| swapped(left_wmma12(l, e)), |l, e| swapped(sum_wmma12(l, e)))
        }
        (Arch::Apple7, 8) => of(simdgroup, simdgroup, simdgroup),
        (Arch::Coop16, 16) => of(half_rows, half_rows, half_rows),
        (arch, k) => panic!("no formulas for a depth of {k} on {}", arch.name()),
    }
}

/// MLX's `BaseMMAFrag<T, 8, 8>::get_coord` (`steel/gemm/mma.h`): `qid = lane / 4`, row `(qid & 4) + (lane / 2) % 4`, first column
/// `(qid & 2) * 2 + (lane % 2) * 2`, for operands and sums alike.
fn simdgroup(lane: u32, e: u32) -> (u32, u32) {
    let qid = lane / 4;
    ((qid & 4) + (lane / 2) % 4, (qid & 2) * 2 + (lane % 2) * 2 + e)
}

/// Vulkan documents no layout: lanes take half a row each of what a warp leaves in workgroup memory, in order.
fn half_rows(lane: u32, e: u32) -> (u32, u32) {
    (lane / 2, lane % 2 * 8 + e)
}

fn swapped((row, col): (u32, u32)) -> (u32, u32) {
    (col, row)
}

/// How many lanes have the same element.
fn copies(atom: &Atom) -> u32 {
    if atom.arch == Arch::Gfx1100 { 2 } else { 1 }
}

#[test]
fn lanes_have_the_elements_that_the_vendor_documents() {
    for atom in &ATOMS {
        let (of, lanes) = (formulas(atom), atom.arch.lanes());
        for (layout, of, elements) in [
            (&atom.left, of.left, copies(atom) * atom.m * atom.k / lanes),
            (&atom.right, of.right, copies(atom) * atom.k * atom.n / lanes),
            (&atom.sum, of.sum, atom.m * atom.n / lanes),
        ] {
            assert_eq!((layout.elements(), 1 << layout.lane_bits()), (elements, lanes));
            for lane in 0..lanes {
                for i in 0..elements {
                    let at = layout.at(lane, i);
                    assert_eq!(at, of(lane, i), "{} lane {lane} element {i}", atom.instruction());
                }
            }
        }
        let neighbours = matches!(atom.arch, Arch::Gfx90a | Arch::Gfx1200);
        let of_rows = atom.arch == Arch::Gfx1100 && Atom::of(atom.arch, atom.dtype) != Some(atom);
        assert_eq!(atom.exchanged, neighbours || of_rows);
    }
}

/// What a lane makes a left block of is the block, in an order of the depth that right blocks are loaded in, too: an instruction multiplies the same part of
/// it in both operands. A register is made of two sums of one lane.
#[test]
fn blocks_that_are_made_of_sums_are_whole() {
    for atom in &ATOMS {
        let Some(order) = &atom.chained else { continue };
        let lanes = || 0..atom.arch.lanes();
        let mut all: Vec<_> =
            lanes().flat_map(|l| (0..order.elements()).map(move |e| order.at(l, e))).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len() as u32, atom.block * atom.depth, "{}", atom.instruction());
        assert!(all.iter().all(|&(a, d)| a < atom.block && d < atom.depth));
        let (Loading::Own(own), Some(held)) = (&atom.loading, atom.left_of_sums()) else {
            panic!("{atom:?}")
        };
        assert_eq!([order.elements(), held.len() as u32], [own.elements(); 2]);
        for lane in lanes() {
            let rows = [own.at(lane, 0).0, atom.left.at(lane, 0).0, atom.right.at(lane, 0).1];
            assert_eq!([order.at(lane, 0).0; 3], rows);
            for (e, held) in held.iter().enumerate() {
                let (row, col) = atom.sum.at(held.lane(lane, atom.arch.lanes()), held.element);
                assert_eq!((row, col + held.beside * atom.n), order.at(lane, e as u32));
            }
        }
        assert!(held.chunks(2).all(|two| (two[0].half, two[0].beside) == (two[1].half, two[1].beside)));
    }
}

#[test]
fn every_element_of_an_operand_is_in_one_lane_or_in_both_halves() {
    for atom in &ATOMS {
        for (layout, rows, cols, copies) in [
            (&atom.left, atom.m, atom.k, copies(atom)),
            (&atom.right, atom.k, atom.n, copies(atom)),
            (&atom.sum, atom.m, atom.n, 1),
        ] {
            let lanes = 0..atom.arch.lanes();
            let mut at: Vec<_> =
                lanes.flat_map(|l| (0..layout.elements()).map(move |e| layout.at(l, e))).collect();
            assert_eq!(at.len() as u32, copies * rows * cols);
            at.sort_unstable();
            at.dedup();
            assert_eq!(at.len() as u32, rows * cols);
            assert!(at.iter().all(|&(r, c)| r < rows && c < cols));
        }
    }
}

/// Where lanes load for themselves: how.
fn own(atom: &Atom) -> Option<(&Atom, &rlx_tile::atom::Lanes)> {
    if let Loading::Own(own) = &atom.loading { Some((atom, own)) } else { None }
}

/// What lanes load for themselves is the block, neighbours along the depth, and what an instruction multiplies is the same part of the depth in
/// both operands: left and right blocks are loaded alike, and the registers of a step are at the same places.
#[test]
fn blocks_that_lanes_load_are_whole() {
    for (atom, own) in ATOMS.iter().filter_map(own) {
        let mut all: Vec<_> =
            (0..atom.arch.lanes()).flat_map(|l| (0..own.elements()).map(move |e| own.at(l, e))).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len() as u32, atom.block * atom.depth, "{}", atom.instruction());
        assert!(all.iter().all(|&(a, d)| a < atom.block && d < atom.depth));
        assert_eq!(own.neighbours(), own.elements());
        assert!(own.elements().is_multiple_of(8), "whole chunks");
        for lane in 0..atom.arch.lanes() {
            assert_eq!(own.at(lane, 0).0, atom.left.at(lane, 0).0);
            assert_eq!(own.at(lane, 0).0, atom.right.at(lane, 0).1);
        }
        for step in 0..atom.steps() {
            assert_eq!(atom.left_registers(step), atom.right_registers(0, step));
        }
    }
}

#[test]
fn architectures_have_the_instructions_of_their_types() {
    let ptx = |arch, dtype| Atom::of(arch, dtype).map(Atom::instruction);
    assert_eq!(ptx(Arch::Sm75, DType::F16).unwrap(), "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32");
    assert_eq!(ptx(Arch::Sm80, DType::F16).unwrap(), "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32");
    assert_eq!(ptx(Arch::Sm80, DType::BF16).unwrap(), "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
    assert_eq!(ptx(Arch::Sm75, DType::BF16), None);
    assert!(Arch::ALL.iter().all(|&arch| ptx(arch, DType::F32).is_some() == (arch == Arch::Apple7)));
    let amd = ptx(Arch::Gfx90a, DType::BF16).unwrap();
    assert_eq!(amd, "__builtin_amdgcn_mfma_f32_16x16x16bf16_1k");
    // Programs on rows of sums have the instruction whose lanes have sums of few rows.
    for arch in Arch::ALL {
        let (of, of_rows) = (Atom::of(arch, DType::F16).unwrap(), Atom::of_rows(arch, DType::F16).unwrap());
        assert_eq!(of.instruction(), of_rows.instruction());
        assert_eq!(of.sum.rows() > of_rows.sum.rows(), arch == Arch::Gfx1100);
    }
    let amd = ptx(Arch::Gfx1200, DType::F16).unwrap();
    assert_eq!(amd, "__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12");
}

/// The registers that make up each operand of a step are those of the block that it multiplies.
#[test]
fn steps_take_the_registers_of_their_depth() {
    for atom in &ATOMS {
        let mut left: Vec<u32> = (0..atom.steps()).flat_map(|s| atom.left_registers(s)).collect();
        left.sort_unstable();
        let all: Vec<u32> = (0..atom.block_registers()).collect();
        assert_eq!(left, all);
        let halves = |half| (0..atom.steps()).flat_map(move |s| atom.right_registers(half, s));
        assert_eq!((0..atom.halves()).flat_map(halves).collect::<Vec<_>>(), all);
    }
}
