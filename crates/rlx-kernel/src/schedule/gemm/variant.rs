//! The variants of a matmul: what each is, which suit a matmul, and which of those fit a device.
//!
//! All variants give the same bits: every result is one chain of sums in order of `k`, and only who computes it, and how its
//! operands reach it, differ. Which one is fastest depends on the device, so it may be found by measurement; what is
//! taken unmeasured (the first of `variants`) depends on the shape alone.

use std::fmt;

use rlx_ir::Extent;

use super::tiled::Layout;
use super::{Gemm, Gemv, Neighbours};
use crate::ir::{Ty, WIDTHS};

/// Matmuls with fewer rows or columns than this are done serially unless measured.
const THIN: i64 = 8;

/// The results that one workgroup makes, and how many of them each invocation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Rows of the tile.
    pub m: i32,
    /// Columns of the tile.
    pub n: i32,
    /// Rows of an invocation.
    pub own_m: i32,
    /// Columns of an invocation.
    pub own_n: i32,
}

impl Tile {
    pub(super) const fn new(m: i32, n: i32, own_m: i32, own_n: i32) -> Tile {
        Tile { m, n, own_m, own_n }
    }

    /// Invocations along the rows.
    pub const fn lanes_m(self) -> i32 {
        self.m / self.own_m
    }

    /// Invocations along the columns.
    pub const fn lanes_n(self) -> i32 {
        self.n / self.own_n
    }

    /// Whether a matmul of `m` rows and `n` columns, where they are known, fills a good part of such tiles, and does not
    /// need too many of them.
    fn suits(self, [m, n]: [Option<i64>; 2], least: i64) -> bool {
        let along = |tile: i32, count: Option<i64>| {
            let (tile, Some(count)) = (i64::from(tile), count) else { return true };
            tile <= least.max(2 * count) && (tile >= 16 || count <= 2 * tile)
        };
        along(self.m, m) && along(self.n, n)
    }
}

/// How a matmul is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GemmVariant {
    /// An invocation for each result, through the flat space of all results: for matmuls too thin to fill tiles.
    Serial,
    /// A workgroup for each tile; each invocation loads what its own results need, and keeps their sums.
    Direct(Tile),
    /// As `Direct`, of columns that are neighbours in memory and read together.
    Wide(Tile),
    /// As `Direct`, of columns whose elements are neighbours in memory and read together.
    Deep(Tile),
    /// A workgroup for each tile; strips of both operands, so deep, go through workgroup memory.
    Tiled(Tile, i32),
    /// The sum is divided among the invocations of a workgroup, so it is another one: no variant among others, but taken where that is allowed.
    Gemv(Gemv),
}

/// The variants there are, but for the serial one; the first is taken unmeasured.
const VARIANTS: [GemmVariant; 15] = [
    GemmVariant::Tiled(Tile::new(32, 32, 4, 4), 16),
    GemmVariant::Tiled(Tile::new(64, 64, 4, 4), 16),
    GemmVariant::Tiled(Tile::new(64, 64, 8, 8), 16),
    GemmVariant::Tiled(Tile::new(128, 128, 8, 8), 8),
    GemmVariant::Tiled(Tile::new(16, 16, 2, 2), 16),
    GemmVariant::Tiled(Tile::new(16, 64, 4, 4), 16),
    GemmVariant::Tiled(Tile::new(64, 16, 4, 4), 16),
    GemmVariant::Tiled(Tile::new(8, 64, 2, 4), 16),
    GemmVariant::Tiled(Tile::new(64, 8, 4, 2), 16),
    GemmVariant::Direct(Tile::new(16, 64, 4, 4)),
    GemmVariant::Direct(Tile::new(64, 16, 4, 4)),
    GemmVariant::Direct(Tile::new(4, 64, 4, 1)),
    GemmVariant::Direct(Tile::new(64, 4, 1, 4)),
    GemmVariant::Direct(Tile::new(1, 256, 1, 4)),
    GemmVariant::Direct(Tile::new(256, 1, 4, 1)),
];

/// Those that read neighbours of the right matrix together: for few rows. Processors take the first that suits.
const WIDE: [GemmVariant; 6] = [
    GemmVariant::Wide(Tile::new(4, 64, 4, 8)),
    GemmVariant::Wide(Tile::new(1, 128, 1, 16)),
    GemmVariant::Wide(Tile::new(1, 64, 1, 8)),
    GemmVariant::Wide(Tile::new(1, 256, 1, 4)),
    GemmVariant::Deep(Tile::new(4, 32, 4, 1)),
    GemmVariant::Deep(Tile::new(1, 32, 1, 1)),
];

/// The fewest tiles along the columns for an invocation to have more of those than one access reads: processors have several cores.
const FEW_TILES: i64 = 4;

/// So many columns fill half of a tile of 64.
const FEW_COLUMNS: i64 = 32;

impl GemmVariant {
    /// Invocations of a workgroup.
    pub const fn workgroup(self) -> u32 {
        match self {
            GemmVariant::Serial => 64,
            GemmVariant::Gemv(gemv) => gemv.workgroup(),
            GemmVariant::Direct(tile)
            | GemmVariant::Tiled(tile, _)
            | GemmVariant::Wide(tile)
            | GemmVariant::Deep(tile) => (tile.lanes_m() * tile.lanes_n()) as u32,
        }
    }

    /// Whether its tiles have several rows and columns, and an invocation uses what it loads for several results.
    pub const fn loads_for_several(self) -> bool {
        matches!(self, GemmVariant::Direct(tile) if tile.m > 1 && tile.n > 1)
    }

    /// Whether it reads neighbours of the right matrix together.
    pub const fn reads_neighbours(self) -> bool {
        matches!(self, GemmVariant::Wide(_) | GemmVariant::Deep(_))
    }

    /// Elements of workgroup memory.
    pub fn shared_len(self) -> u32 {
        match self {
            GemmVariant::Tiled(tile, depth) => Layout::new(tile, depth).len as u32,
            GemmVariant::Gemv(gemv) => gemv.shared_len(),
            _ => 0,
        }
    }

    /// Bytes of workgroup memory for elements computed in `ty`.
    pub fn shared_bytes(self, ty: Ty) -> usize {
        self.shared_len() as usize * ty.bits().div_ceil(8) as usize
    }

    /// Whether it is worth trying for a matmul of these sizes whose right matrix has such neighbours.
    fn suits(self, sizes: [Option<i64>; 2], neighbours: Option<Neighbours>) -> bool {
        // Rows that are known to be few, and read by no more tiles than they have to be.
        let few = |tile: Tile| sizes[0].is_some_and(|m| m < THIN && (tile.m == 1) == (m == 1));
        match self {
            GemmVariant::Serial => true,
            GemmVariant::Gemv(_) => false,
            GemmVariant::Direct(tile) => {
                // Of tiles that differ in their direction alone, a matmul of many columns takes the wide one.
                let narrow = || tile.n == 1 || sizes[1].is_some_and(|n| n < FEW_COLUMNS);
                tile.suits(sizes, 1) && (tile.n > tile.m || narrow())
            }
            GemmVariant::Tiled(tile, _) => tile.suits(sizes, THIN),
            GemmVariant::Wide(tile) => {
                let (own, many) = (i64::from(tile.own_n), i64::from(tile.n) * FEW_TILES);
                let fills = |n: i64| n % own == 0 && (own <= WIDTHS[1] as i64 || n >= many);
                let columns = matches!(neighbours, Some(Neighbours::Columns(_)));
                columns && few(tile) && sizes[1].is_some_and(fills)
            }
            GemmVariant::Deep(tile) => few(tile) && matches!(neighbours, Some(Neighbours::Depth(_))),
        }
    }
}

/// The variants worth trying for a matmul; the first is the one taken unmeasured.
pub(in crate::schedule) fn variants(problem: &Gemm) -> Vec<GemmVariant> {
    let sizes = [&problem.m, &problem.n].map(|dims| super::elements(dims).as_const());
    let thin = sizes.iter().flatten().any(|&n| n < THIN);
    let first = if thin { GemmVariant::Serial } else { VARIANTS[0] };
    let suits = |&f: &GemmVariant| f != first && f.suits(sizes, problem.neighbours);
    let others = VARIANTS.into_iter().chain(WIDE).chain([GemmVariant::Serial]).filter(suits);
    [first].into_iter().chain(others).collect()
}

impl Gemm {
    /// How many workgroups of `tile` it takes, along rows and columns.
    pub(super) fn tiles(&self, tile: Tile) -> [Extent; 2] {
        let along = |dims: &[Extent], size: i32| super::elements(dims).ceil_div(i64::from(size));
        [along(&self.m, tile.m), along(&self.n, tile.n)]
    }
}

impl fmt::Display for GemmVariant {
    /// `serial`, `direct16x64.4x4`, `wide1x64.1x8`, `tile32x32x16.4x4`: the tile, its depth, what each invocation does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            GemmVariant::Serial => f.write_str("serial"),
            GemmVariant::Gemv(gemv) => gemv.fmt(f),
            GemmVariant::Direct(Tile { m, n, own_m, own_n }) => write!(f, "direct{m}x{n}.{own_m}x{own_n}"),
            GemmVariant::Wide(Tile { m, n, own_m, own_n }) => write!(f, "wide{m}x{n}.{own_m}x{own_n}"),
            GemmVariant::Deep(Tile { m, n, own_m, own_n }) => write!(f, "deep{m}x{n}.{own_m}x{own_n}"),
            GemmVariant::Tiled(Tile { m, n, own_m, own_n }, depth) => {
                write!(f, "tile{m}x{n}x{depth}.{own_m}x{own_n}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(m: Extent, n: Extent) -> Vec<String> {
        let dtype = rlx_ir::DType::F32;
        let k = vec![Extent::Const(32)];
        let problem =
            Gemm { batch: vec![], m: vec![m], k, n: vec![n], dtype, rows_are_inner: false, neighbours: None };
        variants(&problem).iter().map(GemmVariant::to_string).collect()
    }

    #[test]
    fn tiles_divide_evenly_and_fit_what_every_device_has() {
        for variant in VARIANTS {
            assert!((32..=256).contains(&variant.workgroup()), "{variant}");
            assert!(variant.shared_bytes(Ty::F32) <= 16 << 10, "{variant}");
            let (GemmVariant::Direct(tile) | GemmVariant::Tiled(tile, _)) = variant else {
                panic!("{variant}")
            };
            assert!(tile.m % tile.own_m == 0 && tile.n % tile.own_n == 0, "{variant}");
            let sizes = [tile.m, tile.n, tile.own_m, tile.own_n];
            assert!(
                sizes.iter().all(|n| n.count_ones() == 1),
                "{variant}: index arithmetic should be shifts"
            );
        }
    }

    #[test]
    fn the_first_form_follows_from_the_shape_alone() {
        let n = Extent::Const;
        assert_eq!(names(n(128), n(384))[0], "tile32x32x16.4x4");
        assert_eq!(names(n(1), n(384))[0], "serial");
        assert_eq!(names(n(384), n(7))[0], "serial");
        let open = Extent::sym(rlx_ir::sym::SEQ);
        assert_eq!(names(open, n(384))[0], "tile32x32x16.4x4");
        let all = VARIANTS.len() + 1;
        assert_eq!(
            names(open, open).len(),
            all - 2,
            "any may suit sizes known only at the run, but two for few columns"
        );
    }

    #[test]
    fn what_a_product_cannot_fill_is_not_tried() {
        let n = Extent::Const;
        assert_eq!(names(n(1), n(384)), ["serial", "tile8x64x16.2x4", "direct1x256.1x4"]);
        let large = names(n(512), n(512));
        assert!(large.contains(&"tile128x128x8.8x8".into()) && !large.contains(&"tile8x64x16.2x4".into()));
        assert!(names(n(256), n(16)).contains(&"direct64x16.4x4".into()));
        assert_eq!(names(n(512), n(4)), ["serial", "tile64x8x16.4x2", "direct64x4.1x4"]);
        let small = names(n(12), n(12));
        assert_eq!(small, ["tile32x32x16.4x4", "tile16x16x16.2x2", "serial"]);
    }
}
