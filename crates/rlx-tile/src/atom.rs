//! Matrix instructions (*atoms*), and where the elements of their operands are in the registers of a warp's lanes.
//!
//! Vendors document these layouts as formulas. All of them are linear in the bits of the lane's and the element's number, so each is
//! a short table here: what every bit adds to the row and to the column. Sources: PTX ISA, "Matrix Fragments for mma.m16n8k8" and
//! "… for mma.m16n8k16"; AMD's *Matrix Instruction Calculator* and the articles "AMD matrix cores", "How to accelerate AI applications on
//! RDNA 3 using WMMA" and "Using the Matrix Cores of AMD RDNA 4 architecture GPUs". Apple documents no layout; the one here is that of its library
//! MLX (`steel/gemm/mma.h`), and no program's text depends on it. `tests/atoms.rs` holds these tables to the formulas written there.

use rlx_ir::DType;
use serde::{Deserialize, Serialize};

use crate::layout::CHUNK;

/// Who makes the device, which decides how a program is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// CUDA C with inline PTX.
    Nvidia,
    /// HIP C with the compiler's builtins.
    Amd,
    /// The Metal Shading Language.
    Apple,
    /// Anybody whose device Vulkan drives: WGSL with wgpu's cooperative matrices.
    Khronos,
}

/// What the machine code is made for: the least architecture that has the instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Arch {
    /// Turing: `mma.sync` of f16, `ldmatrix`.
    Sm75,
    /// Ampere and everything later: also bf16, twice the depth, asynchronous copies.
    Sm80,
    /// Hopper: what Ampere has, and the group level ([`crate::group`]).
    Sm90a,
    /// Blackwell of data centres: what Ampere has, and the group level with tensor memory ([`crate::group::tensor`]).
    Sm100a,
    /// CDNA 2 and 3 (gfx90a, gfx942): MFMA, warps of 64 lanes.
    Gfx90a,
    /// RDNA 3 (gfx11): WMMA whose operands are in both halves of a warp.
    Gfx1100,
    /// RDNA 4 (gfx12): WMMA whose operands are divided between the halves of a warp.
    Gfx1200,
    /// Metal's GPU family 7 (A14, M1) and later ones: `simdgroup_matrix`.
    Apple7,
    /// Vulkan's cooperative matrices of 16 × 16 × 16, where subgroups have 32 lanes.
    Coop16,
}

impl Arch {
    /// Every architecture whose programs are made of warps alone; [`Arch::Sm90a`] and [`Arch::Sm100a`] run those of [`Arch::Sm80`], and have others of
    /// their own. [`Arch::Coop16`] is not among them: its language cannot say all of theirs.
    pub const ALL: [Arch; 6] =
        [Arch::Sm75, Arch::Sm80, Arch::Gfx90a, Arch::Gfx1100, Arch::Gfx1200, Arch::Apple7];

    /// Every architecture that has programs of the group level.
    pub const OF_GROUPS: [Arch; 2] = [Arch::Sm90a, Arch::Sm100a];

    /// Whether it has programs of the group level.
    pub const fn has_groups(self) -> bool {
        matches!(self, Arch::Sm90a | Arch::Sm100a)
    }

    /// The one whose programs of warps it runs: [`Arch::Sm80`] of those that have programs of the group level of their own.
    pub const fn of_warps(self) -> Arch {
        if self.has_groups() { Arch::Sm80 } else { self }
    }

    /// The architecture in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Arch::Sm75 => "sm_75",
            Arch::Sm80 => "sm_80",
            Arch::Sm90a => "sm_90a",
            Arch::Sm100a => "sm_100a",
            Arch::Gfx90a => "gfx90a",
            Arch::Gfx1100 => "gfx1100",
            Arch::Gfx1200 => "gfx1200",
            Arch::Apple7 => "apple7",
            Arch::Coop16 => "coop16",
        }
    }

    /// Who makes it.
    pub const fn vendor(self) -> Vendor {
        match self {
            Arch::Sm75 | Arch::Sm80 | Arch::Sm90a | Arch::Sm100a => Vendor::Nvidia,
            Arch::Gfx90a | Arch::Gfx1100 | Arch::Gfx1200 => Vendor::Amd,
            Arch::Apple7 => Vendor::Apple,
            Arch::Coop16 => Vendor::Khronos,
        }
    }

    /// Lanes of a warp.
    pub const fn lanes(self) -> u32 {
        if matches!(self, Arch::Gfx90a) { 64 } else { 32 }
    }

    /// Whether copies from global to workgroup memory may be asynchronous (`cp.async`).
    pub const fn copies_async(self) -> bool {
        matches!(self, Arch::Sm80 | Arch::Sm90a | Arch::Sm100a)
    }

    /// Bytes of workgroup memory that a kernel may have, as dynamic memory where it may not declare so much: every GPU of the architecture has them.
    pub const fn shared_bytes(self) -> u32 {
        match self {
            Arch::Sm90a | Arch::Sm100a => 227 << 10,
            // sm_86, sm_89 and sm_120; others have more.
            Arch::Sm80 => 99 << 10,
            _ => self.declared_bytes(),
        }
    }

    /// Bytes of workgroup memory that a kernel may declare.
    pub const fn declared_bytes(self) -> u32 {
        match self.vendor() {
            Vendor::Nvidia => 48 << 10,
            Vendor::Amd => 64 << 10,
            Vendor::Apple => 32 << 10,
            // What NVIDIA's driver reports; a device may have less, which its limits say.
            Vendor::Khronos => 48 << 10,
        }
    }

    /// Whether it has the instructions of `least`: NVIDIA's later architectures have those of earlier ones.
    fn has(self, least: Arch) -> bool {
        self == least || self.vendor() == Vendor::Nvidia && least.vendor() == Vendor::Nvidia && least < self
    }
}

/// Where the elements of an operand are: what each bit of the lane's number and of the element's number within its
/// lane adds to (row, column).
#[derive(Debug, PartialEq, Eq)]
pub struct Lanes {
    lane: &'static [(u32, u32)],
    element: &'static [(u32, u32)],
}

impl Lanes {
    /// The row and column of an element of a lane.
    pub fn at(&self, lane: u32, element: u32) -> (u32, u32) {
        let bits = |n: u32, table: &[(u32, u32)]| {
            let set = table.iter().enumerate().filter(|(bit, _)| n >> bit & 1 == 1);
            set.fold((0, 0), |sum, (_, at)| (sum.0 + at.0, sum.1 + at.1))
        };
        let (l, e) = (bits(lane, self.lane), bits(element, self.element));
        (l.0 + e.0, l.1 + e.1)
    }

    /// Bits of a lane's number.
    pub fn lane_bits(&self) -> u32 {
        self.lane.len() as u32
    }

    /// Rows of a square matrix that is dealt out so.
    pub fn side(&self) -> u32 {
        1 << ((self.lane.len() + self.element.len()) / 2)
    }

    /// Elements of each lane.
    pub fn elements(&self) -> u32 {
        1 << self.element.len()
    }

    /// How many rows a lane has elements of.
    pub fn rows(&self) -> u32 {
        1 << self.element.iter().filter(|at| at.0 > 0).count()
    }

    /// Which of its lane's rows an element is in.
    pub fn row_of(&self, element: u32) -> u32 {
        let down = self.element.iter().enumerate().filter(|(_, at)| at.0 > 0);
        down.enumerate().fold(0, |row, (i, (bit, _))| row | (element >> bit & 1) << i)
    }

    /// The first element that a lane has of one of its rows.
    pub fn first_of_row(&self, row: u32) -> u32 {
        (0..self.elements()).find(|&e| self.row_of(e) == row).unwrap_or(0)
    }

    /// The bits of a lane's number that lead to other columns of the same rows, each as a number.
    pub fn across(&self) -> impl Iterator<Item = u32> {
        self.lane.iter().enumerate().filter(|(_, at)| at.1 > 0).map(|(bit, _)| 1 << bit)
    }

    /// How many elements of a lane, from each multiple of that on, are neighbours in a row.
    pub fn neighbours(&self) -> u32 {
        let doubling = self.element.iter().enumerate().take_while(|(bit, at)| **at == (0, 1 << bit));
        1 << doubling.count()
    }
}

/// Lanes of NVIDIA's warps that have one row of an instruction's sums, two neighbours each.
pub const QUAD: u32 = 4;

/// How lanes come to their elements of a block of an operand.
#[derive(Debug, PartialEq, Eq)]
pub enum Loading {
    /// A load by the whole warp deals out the rows of four matrices (`ldmatrix`).
    Dealt,
    /// Each lane loads its own, of left and right blocks alike: where they are, (row or column, depth). Elements of a lane are neighbours along
    /// the depth.
    Own(Lanes),
    /// The whole warp loads the operand of one instruction: from a tile that is stored in such matrices (`simdgroup_load`), or from rows (`coopLoad`).
    Matrix,
}

/// A matrix instruction: `sum[m×n] += left[m×k] · right[k×n]`, the operands of 16 bits (Apple's also f32), the sums f32.
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
    /// Rows of the left blocks and columns of the right ones that operands are loaded in.
    pub block: u32,
    /// Depth of these blocks, a multiple of `k`.
    pub depth: u32,
    /// The left operand, rows × depth.
    pub left: Lanes,
    /// The right operand, depth × columns.
    pub right: Lanes,
    /// The sums, rows × columns.
    pub sum: Lanes,
    /// How operands are loaded.
    pub loading: Loading,
    /// Where a lane's elements are in the left block that it makes of sums, and in right blocks that are multiplied with that, as [`Loading::Own`] has
    /// them. None where blocks are loaded so, too.
    pub chained: Option<Lanes>,
    /// The instruction is given the right operand first and makes the transposed sums, so that a lane has neighbours in a row.
    pub exchanged: bool,
}

/// Where an element of a left operand is among the sums of the same rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The number of the instruction's columns beside each other.
    pub beside: u32,
    /// The element of a lane's sums there.
    pub element: u32,
    /// The lane itself has it, or the lane at the same place of the lower (0) or upper (1) half of the warp.
    pub half: Option<u32>,
}

impl Held {
    /// The number of the lane that has it, for one of a warp of so many.
    pub fn lane(&self, lane: u32, lanes: u32) -> u32 {
        self.half.map_or(lane, |half| lane % (lanes / 2) + half * (lanes / 2))
    }
}

const SUM: Lanes = Lanes { lane: &[(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)], element: &[(0, 1), (8, 0)] };

const fn k8(dtype: DType, arch: Arch) -> Atom {
    Atom {
        dtype,
        arch,
        m: 16,
        n: 8,
        k: 8,
        block: 16,
        depth: 16,
        left: Lanes { lane: &[(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)], element: &[(0, 1), (8, 0)] },
        right: Lanes { lane: &[(2, 0), (4, 0), (0, 1), (0, 2), (0, 4)], element: &[(1, 0)] },
        sum: SUM,
        loading: Loading::Dealt,
        chained: None,
        exchanged: false,
    }
}

const fn k16(dtype: DType) -> Atom {
    Atom {
        k: 16,
        left: Lanes { lane: &[(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)], element: &[(0, 1), (8, 0), (0, 8)] },
        right: Lanes { lane: &[(2, 0), (4, 0), (0, 1), (0, 2), (0, 4)], element: &[(1, 0), (8, 0)] },
        ..k8(dtype, Arch::Sm80)
    }
}

/// `v_mfma_f32_16x16x16`. A lane has four elements along the depth, and loads those of two instructions at once, 16 bytes: which of
/// the block's depth an instruction multiplies does not matter, as long as both operands agree. The sums of an instruction lie as the left operand of another
/// one does, so a lane makes its part of a left block of two instructions' sums.
const fn mfma(dtype: DType) -> Atom {
    Atom {
        dtype,
        arch: Arch::Gfx90a,
        m: 16,
        n: 16,
        k: 16,
        block: 16,
        depth: 32,
        left: Lanes { lane: &[(1, 0), (2, 0), (4, 0), (8, 0), (0, 4), (0, 8)], element: &[(0, 1), (0, 2)] },
        right: Lanes { lane: &[(0, 1), (0, 2), (0, 4), (0, 8), (4, 0), (8, 0)], element: &[(1, 0), (2, 0)] },
        sum: Lanes { lane: &[(1, 0), (2, 0), (4, 0), (8, 0), (0, 4), (0, 8)], element: &[(0, 1), (0, 2)] },
        loading: Loading::Own(Lanes {
            lane: &[(1, 0), (2, 0), (4, 0), (8, 0), (0, 8), (0, 16)],
            element: &[(0, 1), (0, 2), (0, 4)],
        }),
        chained: Some(Lanes {
            lane: &[(1, 0), (2, 0), (4, 0), (8, 0), (0, 4), (0, 8)],
            element: &[(0, 1), (0, 2), (0, 16)],
        }),
        exchanged: true,
    }
}

/// `v_wmma_f32_16x16x16` of RDNA 3: both halves of a warp have the whole depth. Sums stay as documented: exchanged, neighbours
/// in a row would be in two lanes.
const fn wmma11(dtype: DType) -> Atom {
    Atom {
        dtype,
        arch: Arch::Gfx1100,
        m: 16,
        n: 16,
        k: 16,
        block: 16,
        depth: 16,
        left: Lanes {
            lane: &[(1, 0), (2, 0), (4, 0), (8, 0), (0, 0)],
            element: &[(0, 1), (0, 2), (0, 4), (0, 8)],
        },
        right: Lanes {
            lane: &[(0, 1), (0, 2), (0, 4), (0, 8), (0, 0)],
            element: &[(1, 0), (2, 0), (4, 0), (8, 0)],
        },
        sum: Lanes { lane: &[(0, 1), (0, 2), (0, 4), (0, 8), (1, 0)], element: &[(2, 0), (4, 0), (8, 0)] },
        loading: Loading::Own(Lanes {
            lane: &[(1, 0), (2, 0), (4, 0), (8, 0), (0, 0)],
            element: &[(0, 1), (0, 2), (0, 4), (0, 8)],
        }),
        chained: None,
        exchanged: false,
    }
}

/// The same with the right operand first: a lane has every second sum of one row, and the lane 16 on has the others. What a lane makes a left operand
/// of is first the sums of the lower half, then those of the upper one.
const fn wmma11_of_rows(dtype: DType) -> Atom {
    Atom {
        sum: Lanes { lane: &[(1, 0), (2, 0), (4, 0), (8, 0), (0, 1)], element: &[(0, 2), (0, 4), (0, 8)] },
        chained: Some(Lanes {
            lane: &[(1, 0), (2, 0), (4, 0), (8, 0), (0, 0)],
            element: &[(0, 2), (0, 4), (0, 8), (0, 1)],
        }),
        exchanged: true,
        ..wmma11(dtype)
    }
}

/// `v_wmma_f32_16x16x16` of RDNA 4: each half of a warp has half of the depth.
const fn wmma12(dtype: DType) -> Atom {
    Atom {
        arch: Arch::Gfx1200,
        left: Lanes { lane: &[(1, 0), (2, 0), (4, 0), (8, 0), (0, 8)], element: &[(0, 1), (0, 2), (0, 4)] },
        right: Lanes { lane: &[(0, 1), (0, 2), (0, 4), (0, 8), (8, 0)], element: &[(1, 0), (2, 0), (4, 0)] },
        sum: Lanes { lane: &[(1, 0), (2, 0), (4, 0), (8, 0), (0, 8)], element: &[(0, 1), (0, 2), (0, 4)] },
        loading: Loading::Own(Lanes {
            lane: &[(1, 0), (2, 0), (4, 0), (8, 0), (0, 8)],
            element: &[(0, 1), (0, 2), (0, 4)],
        }),
        exchanged: true,
        ..wmma11(dtype)
    }
}

/// `simdgroup_multiply_accumulate`. The layout is MLX's: programs load and store whole matrices, so only the interpreter uses it.
const fn simdgroup(dtype: DType) -> Atom {
    const MATRIX: Lanes = Lanes { lane: &[(0, 2), (1, 0), (2, 0), (0, 4), (4, 0)], element: &[(0, 1)] };
    Atom {
        dtype,
        arch: Arch::Apple7,
        m: 8,
        n: 8,
        k: 8,
        block: 8,
        depth: 8,
        left: MATRIX,
        right: MATRIX,
        sum: MATRIX,
        loading: Loading::Matrix,
        chained: None,
        exchanged: false,
    }
}

/// `coopMultiplyAdd`. Vulkan does not say which element a lane has. The layout is that in which lanes store sums, half a row each, behind workgroup memory.
const fn cooperative(dtype: DType) -> Atom {
    const MATRIX: Lanes =
        Lanes { lane: &[(0, 8), (1, 0), (2, 0), (4, 0), (8, 0)], element: &[(0, 1), (0, 2), (0, 4)] };
    Atom {
        dtype,
        arch: Arch::Coop16,
        m: 16,
        n: 16,
        k: 16,
        block: 16,
        depth: 16,
        left: MATRIX,
        right: MATRIX,
        sum: MATRIX,
        loading: Loading::Matrix,
        chained: None,
        exchanged: false,
    }
}

/// The matrix instructions that programs use, the best of each architecture and type first.
pub static ATOMS: [Atom; 15] = [
    k16(DType::F16),
    k16(DType::BF16),
    k8(DType::F16, Arch::Sm75),
    mfma(DType::F16),
    mfma(DType::BF16),
    wmma11(DType::F16),
    wmma11(DType::BF16),
    wmma11_of_rows(DType::F16),
    wmma11_of_rows(DType::BF16),
    wmma12(DType::F16),
    wmma12(DType::BF16),
    simdgroup(DType::F16),
    simdgroup(DType::BF16),
    simdgroup(DType::F32),
    cooperative(DType::F16),
];

impl Atom {
    /// The instruction that multiplies elements of `dtype` on `arch`; `None` where there is none.
    pub fn of(arch: Arch, dtype: DType) -> Option<&'static Atom> {
        ATOMS.iter().find(|a| a.dtype == dtype && arch.has(a.arch))
    }

    /// The one for programs that compute on rows of the sums: the one whose lanes have sums of the fewest rows.
    pub fn of_rows(arch: Arch, dtype: DType) -> Option<&'static Atom> {
        ATOMS.iter().filter(|a| a.dtype == dtype && arch.has(a.arch)).min_by_key(|a| a.sum.rows())
    }

    /// Its name in a program's text: in PTX, such as `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`, the compiler's builtin, or Metal's
    /// function.
    pub fn instruction(&self) -> String {
        let (ty, shape) = (self.short(), format!("{}x{}x{}", self.m, self.n, self.k));
        match self.arch {
            Arch::Sm75 | Arch::Sm80 | Arch::Sm90a | Arch::Sm100a => {
                format!("mma.sync.aligned.m{}n{}k{}.row.col.f32.{ty}.{ty}.f32", self.m, self.n, self.k)
            }
            // The instruction of gfx90a for bf16 has another depth than the first one of that type.
            Arch::Gfx90a => {
                let later = if self.dtype == DType::BF16 { "_1k" } else { "" };
                format!("__builtin_amdgcn_mfma_f32_{shape}{ty}{later}")
            }
            Arch::Gfx1100 => format!("__builtin_amdgcn_wmma_f32_{shape}_{ty}_w32"),
            Arch::Gfx1200 => format!("__builtin_amdgcn_wmma_f32_{shape}_{ty}_w32_gfx12"),
            Arch::Apple7 => "simdgroup_multiply_accumulate".to_owned(),
            Arch::Coop16 => "coopMultiplyAdd".to_owned(),
        }
    }

    /// The type of its operands, as vendors write it.
    pub fn short(&self) -> &'static str {
        match self.dtype {
            DType::F32 => "f32",
            DType::F16 => "f16",
            _ => "bf16",
        }
    }

    /// Elements of a register.
    pub fn packed(&self) -> u32 {
        if self.dtype == DType::F32 { 1 } else { 2 }
    }

    /// Registers of a lane for a block of an operand. `ldmatrix` deals out 16 × 16 elements.
    pub fn block_registers(&self) -> u32 {
        match &self.loading {
            Loading::Dealt => 4,
            Loading::Own(own) => own.elements() / 2,
            Loading::Matrix => self.left.elements() / self.packed(),
        }
    }

    /// Whether tiles are stored in the matrices of 8 × 8 that are loaded.
    pub fn is_in_matrices(&self) -> bool {
        self.loading == Loading::Matrix && self.m == CHUNK
    }

    /// Chunks behind each row of a tile of which matrices are loaded with one stride ([`TileDecl::pad`](crate::ir::TileDecl::pad)).
    pub fn pad(&self) -> u32 {
        u32::from(self.loading == Loading::Matrix && self.m > CHUNK)
    }

    /// Instructions that go through the depth of a block.
    pub fn steps(&self) -> u32 {
        self.depth / self.k
    }

    /// Instructions side by side for the columns of a right block.
    pub fn halves(&self) -> u32 {
        self.block / self.n
    }

    /// Registers of a left block that are the operand of step `step`.
    pub fn left_registers(&self, step: u32) -> std::ops::Range<u32> {
        let n = self.left.elements() / self.packed();
        step * n..(step + 1) * n
    }

    /// Where each element of a lane's part of a left block is among sums. `None` where neither the lane nor the one half a warp on has it, or nobody
    /// knows.
    pub fn left_of_sums(&self) -> Option<Vec<Held>> {
        let found = |x: u32, half: Option<u32>, lane: u32| {
            let (row, depth) = self.left_place(lane, x)?;
            let from = Held { beside: depth / self.n, element: 0, half };
            let with = from.lane(lane, self.arch.lanes());
            let element =
                (0..self.sum.elements()).find(|&e| self.sum.at(with, e) == (row, depth % self.n))?;
            Some(Held { element, ..from })
        };
        let of_all = |x: u32, half: Option<u32>| {
            let first = found(x, half, 0)?;
            (1..self.arch.lanes()).all(|lane| found(x, half, lane) == Some(first)).then_some(first)
        };
        let halves = [None, Some(0), Some(1)];
        (0..self.block_registers() * self.packed())
            .map(|x| halves.into_iter().find_map(|half| of_all(x, half)))
            .collect()
    }

    /// The row and the depth of an element of a lane's part of a left block that is made of sums.
    fn left_place(&self, lane: u32, x: u32) -> Option<(u32, u32)> {
        match (&self.chained, &self.loading) {
            (Some(chained), _) => Some(chained.at(lane, x)),
            (None, Loading::Dealt) => {
                let (step, element) = (x / self.left.elements(), x % self.left.elements());
                let (row, depth) = self.left.at(lane, element);
                Some((row, depth + step * self.k))
            }
            (None, Loading::Own(own)) => Some(own.at(lane, x)),
            (None, Loading::Matrix) => None,
        }
    }

    /// Registers of a right block that are the operand of step `step` for its columns `n·half..`.
    pub fn right_registers(&self, half: u32, step: u32) -> std::ops::Range<u32> {
        let n = self.right.elements() / self.packed();
        let first = 2 * half + step * n;
        first..first + n
    }
}
