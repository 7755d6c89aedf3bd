//! The tables of matrix instructions against the formulas of the PTX ISA, and the interpreter's `ldmatrix` and `mma` on single instructions.

use rlx_ir::DType;
use rlx_tile::Arch;
use rlx_tile::atom::{ATOMS, Atom, LANES};

/// The row and column of an element of a lane.
type Formula = fn(u32, u32) -> (u32, u32);

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

#[test]
fn lanes_have_the_elements_that_the_vendor_documents() {
    for atom in &ATOMS {
        let (left, right): (Formula, Formula) = match atom.k {
            16 => (documented::left_k16, documented::right_k16),
            8 => (documented::left_k8, documented::right_k8),
            k => panic!("no formulas for a depth of {k}"),
        };
        for (layout, of, elements) in [
            (&atom.left, left, atom.m * atom.k / LANES),
            (&atom.right, right, atom.k * atom.n / LANES),
            (&atom.sum, documented::sum, atom.m * atom.n / LANES),
        ] {
            assert_eq!(layout.elements(), elements);
            for lane in 0..LANES {
                for i in 0..elements {
                    assert_eq!(layout.at(lane, i), of(lane, i), "{} lane {lane} element {i}", atom.ptx());
                }
            }
        }
    }
}

#[test]
fn every_element_of_an_operand_is_in_one_lane() {
    for atom in &ATOMS {
        for (layout, rows, cols) in
            [(&atom.left, atom.m, atom.k), (&atom.right, atom.k, atom.n), (&atom.sum, atom.m, atom.n)]
        {
            let mut at: Vec<_> =
                (0..LANES).flat_map(|l| (0..layout.elements()).map(move |e| layout.at(l, e))).collect();
            at.sort_unstable();
            at.dedup();
            assert_eq!(at.len() as u32, rows * cols);
            assert!(at.iter().all(|&(r, c)| r < rows && c < cols));
        }
    }
}

#[test]
fn architectures_have_the_instructions_of_their_types() {
    let ptx = |arch, dtype| Atom::of(arch, dtype).map(Atom::ptx);
    assert_eq!(ptx(Arch::Sm75, DType::F16).unwrap(), "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32");
    assert_eq!(ptx(Arch::Sm80, DType::F16).unwrap(), "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32");
    assert_eq!(ptx(Arch::Sm80, DType::BF16).unwrap(), "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
    assert_eq!(ptx(Arch::Sm75, DType::BF16), None);
    assert_eq!(ptx(Arch::Sm80, DType::F32), None);
}

/// The registers that make up each operand of a step are those of the matrices that it multiplies.
#[test]
fn steps_take_the_registers_of_their_depth() {
    for atom in &ATOMS {
        let mut left: Vec<u32> = (0..atom.steps()).flat_map(|s| atom.left_registers(s)).collect();
        left.sort_unstable();
        assert_eq!(left, [0, 1, 2, 3]);
        let halves = |half| (0..atom.steps()).flat_map(move |s| atom.right_registers(half, s));
        assert_eq!(halves(0).chain(halves(1)).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}
