//! Matrix instructions (*atoms*), and where the elements of their operands are in the registers of a warp's lanes.
//!
//! Vendors document these layouts as formulas. All of them are linear in the bits of the lane's and the element's number, so each is
//! a short table here: what every bit adds to the row and to the column. Source: PTX ISA, "Matrix Fragments for mma.m16n8k8" and
//! "… for mma.m16n8k16"; `tests/atoms.rs` holds these tables to the formulas written there.

use rlx_ir::DType;

/// Lanes of a warp.
pub const LANES: u32 = 32;

/// What the machine code is made for: the least architecture that has the instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arch {
    /// Turing: `mma.sync` of f16, `ldmatrix`.
    Sm75,
    /// Ampere and everything later: also bf16, twice the depth, asynchronous copies.
    Sm80,
}

impl Arch {
    /// The architecture in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Arch::Sm75 => "sm_75",
            Arch::Sm80 => "sm_80",
        }
    }

    /// Whether copies from global to workgroup memory may be asynchronous (`cp.async`).
    pub const fn copies_async(self) -> bool {
        matches!(self, Arch::Sm80)
    }

    /// Bytes of workgroup memory that a kernel may declare.
    pub const fn shared_bytes(self) -> u32 {
        48 << 10
    }
}

/// Where the elements of an operand are: what each bit of the lane's number and of the element's number within its
/// lane adds to (row, column).
#[derive(Debug, PartialEq, Eq)]
pub struct Lanes {
    lane: [(u32, u32); 5],
    element: &'static [(u32, u32)],
}

impl Lanes {
    /// The row and column of an element of a lane.
    pub fn at(&self, lane: u32, element: u32) -> (u32, u32) {
        let bits = |n: u32, table: &[(u32, u32)]| {
            let set = table.iter().enumerate().filter(|(bit, _)| n >> bit & 1 == 1);
            set.fold((0, 0), |sum, (_, at)| (sum.0 + at.0, sum.1 + at.1))
        };
        let (l, e) = (bits(lane, &self.lane), bits(element, self.element));
        (l.0 + e.0, l.1 + e.1)
    }

    /// Elements of each lane.
    pub fn elements(&self) -> u32 {
        1 << self.element.len()
    }
}

/// A matrix instruction: `sum[m×n] += left[m×k] · right[k×n]`, the operands of 16 bits, the sums f32.
#[derive(Debug, PartialEq, Eq)]
pub struct Atom {
    /// The type of the operands' elements.
    pub dtype: DType,
    /// The least architecture that has it.
    pub arch: Arch,
    /// Rows of the result.
    pub m: u32,
    /// Columns of the result.
    pub n: u32,
    /// Depth of one instruction.
    pub k: u32,
    /// The left operand, rows × depth.
    pub left: Lanes,
    /// The right operand, depth × columns.
    pub right: Lanes,
    /// The sums, rows × columns.
    pub sum: Lanes,
}

const SUM: Lanes = Lanes { lane: [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)], element: &[(0, 1), (8, 0)] };

const fn k8(dtype: DType, arch: Arch) -> Atom {
    Atom {
        dtype,
        arch,
        m: 16,
        n: 8,
        k: 8,
        left: Lanes { lane: [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)], element: &[(0, 1), (8, 0)] },
        right: Lanes { lane: [(2, 0), (4, 0), (0, 1), (0, 2), (0, 4)], element: &[(1, 0)] },
        sum: SUM,
    }
}

const fn k16(dtype: DType) -> Atom {
    Atom {
        dtype,
        arch: Arch::Sm80,
        m: 16,
        n: 8,
        k: 16,
        left: Lanes { lane: [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)], element: &[(0, 1), (8, 0), (0, 8)] },
        right: Lanes { lane: [(2, 0), (4, 0), (0, 1), (0, 2), (0, 4)], element: &[(1, 0), (8, 0)] },
        sum: SUM,
    }
}

/// The matrix instructions that programs use, the best of each architecture and type first.
pub static ATOMS: [Atom; 3] = [k16(DType::F16), k16(DType::BF16), k8(DType::F16, Arch::Sm75)];

impl Atom {
    /// The instruction that multiplies elements of `dtype` on `arch`; `None` where there is none.
    pub fn of(arch: Arch, dtype: DType) -> Option<&'static Atom> {
        ATOMS.iter().find(|a| a.dtype == dtype && a.arch <= arch)
    }

    /// Its name in PTX, such as `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`.
    pub fn ptx(&self) -> String {
        let ty = self.short();
        format!("mma.sync.aligned.m{}n{}k{}.row.col.f32.{ty}.{ty}.f32", self.m, self.n, self.k)
    }

    /// The type of its operands, as PTX has it.
    pub fn short(&self) -> &'static str {
        if self.dtype == DType::F16 { "f16" } else { "bf16" }
    }

    /// Instructions that go through 16 steps of depth: fragments are loaded in blocks of 16 × 16.
    pub fn steps(&self) -> u32 {
        BLOCK / self.k
    }

    /// Registers (pairs of elements) of a left block of 16 × 16 that are the operand of step `step`.
    pub fn left_registers(&self, step: u32) -> std::ops::Range<u32> {
        let n = self.left.elements() / 2;
        step * n..(step + 1) * n
    }

    /// Registers of a right block of 16 × 16 that are the operand of step `step` for its columns `8·half..`.
    pub fn right_registers(&self, half: u32, step: u32) -> std::ops::Range<u32> {
        let n = self.right.elements() / 2;
        let first = 2 * half + step * n;
        first..first + n
    }
}

/// Rows and columns of the blocks that fragments of operands are loaded in: four matrices of 8 × 8.
pub const BLOCK: u32 = 16;
