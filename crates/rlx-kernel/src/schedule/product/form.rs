//! The forms of a product: what each is, which suit a product, and which of those fit a device.
//!
//! All forms give the same bits: every result is one chain of sums in order of `k`, and only who computes it, and how its
//! operands reach it, differ. Which one is fastest depends on the device, so it may be found by measurement; what is
//! taken unmeasured (the first of `forms`) depends on the shape alone.

use std::fmt;

use rlx_ir::Extent;

use super::Product;
use crate::ir::Ty;

/// Products with fewer rows or columns than this are done serially unless measured.
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
    const fn new(m: i32, n: i32, own_m: i32, own_n: i32) -> Tile {
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

    /// Whether a product of `m` rows and `n` columns, where they are known, fills a good part of such tiles, and does not
    /// need too many of them.
    fn suits(self, [m, n]: [Option<i64>; 2], least: i64) -> bool {
        let along = |tile: i32, count: Option<i64>| {
            let (tile, Some(count)) = (i64::from(tile), count) else { return true };
            tile <= least.max(2 * count) && (tile >= 16 || count <= 2 * tile)
        };
        along(self.m, m) && along(self.n, n)
    }
}

/// How a product is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// An invocation for each result, through the flat space of all results: for products too thin to fill tiles.
    Serial,
    /// A workgroup for each tile; each invocation loads what its own results need, and keeps their sums.
    Direct(Tile),
    /// A workgroup for each tile; strips of both operands, so deep, go through workgroup memory.
    Tiled(Tile, i32),
}

/// The forms there are, but for the serial one; the first is taken unmeasured.
const FORMS: [Form; 13] = [
    Form::Tiled(Tile::new(32, 32, 4, 4), 16),
    Form::Tiled(Tile::new(64, 64, 4, 4), 16),
    Form::Tiled(Tile::new(64, 64, 8, 8), 16),
    Form::Tiled(Tile::new(128, 128, 8, 8), 8),
    Form::Tiled(Tile::new(16, 16, 2, 2), 16),
    Form::Tiled(Tile::new(16, 64, 4, 4), 16),
    Form::Tiled(Tile::new(64, 16, 4, 4), 16),
    Form::Tiled(Tile::new(8, 64, 2, 4), 16),
    Form::Tiled(Tile::new(64, 8, 4, 2), 16),
    Form::Direct(Tile::new(16, 64, 4, 4)),
    Form::Direct(Tile::new(4, 64, 4, 1)),
    Form::Direct(Tile::new(1, 256, 1, 4)),
    Form::Direct(Tile::new(256, 1, 4, 1)),
];

impl Form {
    /// Invocations of a workgroup.
    pub const fn workgroup(self) -> u32 {
        match self {
            Form::Serial => 64,
            Form::Direct(tile) | Form::Tiled(tile, _) => (tile.lanes_m() * tile.lanes_n()) as u32,
        }
    }

    /// Elements of workgroup memory.
    pub const fn shared_len(self) -> u32 {
        let Form::Tiled(tile, depth) = self else { return 0 };
        let (strips, row) = ((tile.m + tile.n) * depth, tile.lanes_m() * tile.n);
        if strips > row { strips as u32 } else { row as u32 }
    }

    /// Bytes of workgroup memory for elements computed in `ty`.
    pub const fn shared_bytes(self, ty: Ty) -> usize {
        self.shared_len() as usize * ty.bits().div_ceil(8) as usize
    }

    /// Whether it is worth trying for a product of these sizes.
    fn suits(self, sizes: [Option<i64>; 2]) -> bool {
        match self {
            Form::Serial => true,
            Form::Direct(tile) => tile.suits(sizes, 1),
            Form::Tiled(tile, _) => tile.suits(sizes, THIN),
        }
    }
}

/// The forms worth trying for a product; the first is the one taken unmeasured.
pub(in crate::schedule) fn forms(product: &Product) -> Vec<Form> {
    let sizes = [&product.m, &product.n].map(|dims| super::elements(dims).as_const());
    let thin = sizes.iter().flatten().any(|&n| n < THIN);
    let first = if thin { Form::Serial } else { FORMS[0] };
    let others = FORMS.into_iter().chain([Form::Serial]).filter(|&f| f != first && f.suits(sizes));
    [first].into_iter().chain(others).collect()
}

impl Product {
    /// How many workgroups of `tile` it takes, along rows and columns.
    pub(super) fn tiles(&self, tile: Tile) -> [Extent; 2] {
        let along = |dims: &[Extent], size: i32| super::elements(dims).ceil_div(i64::from(size));
        [along(&self.m, tile.m), along(&self.n, tile.n)]
    }
}

impl fmt::Display for Form {
    /// `serial`, `direct16x64.4x4`, `tile32x32x16.4x4`: the tile, its depth, what each invocation does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Form::Serial => f.write_str("serial"),
            Form::Direct(Tile { m, n, own_m, own_n }) => write!(f, "direct{m}x{n}.{own_m}x{own_n}"),
            Form::Tiled(Tile { m, n, own_m, own_n }, depth) => {
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
        let product = Product { batch: vec![], m: vec![m], k: vec![Extent::Const(32)], n: vec![n], dtype };
        forms(&product).iter().map(Form::to_string).collect()
    }

    #[test]
    fn tiles_divide_evenly_and_fit_what_every_device_has() {
        for form in FORMS {
            assert!((32..=256).contains(&form.workgroup()), "{form}");
            assert!(form.shared_bytes(Ty::F32) <= 16 << 10, "{form}");
            let (Form::Direct(tile) | Form::Tiled(tile, _)) = form else { panic!("{form}") };
            assert!(tile.m % tile.own_m == 0 && tile.n % tile.own_n == 0, "{form}");
            let sizes = [tile.m, tile.n, tile.own_m, tile.own_n];
            assert!(sizes.iter().all(|n| n.count_ones() == 1), "{form}: index arithmetic should be shifts");
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
        assert_eq!(names(open, open).len(), FORMS.len() + 1, "any may suit sizes known only at the run");
    }

    #[test]
    fn what_a_product_cannot_fill_is_not_tried() {
        let n = Extent::Const;
        assert_eq!(names(n(1), n(384)), ["serial", "tile8x64x16.2x4", "direct1x256.1x4"]);
        let large = names(n(512), n(512));
        assert!(large.contains(&"tile128x128x8.8x8".into()) && !large.contains(&"tile8x64x16.2x4".into()));
        let small = names(n(12), n(12));
        assert_eq!(small, ["tile32x32x16.4x4", "tile16x16x16.2x2", "serial"]);
    }
}
