//! Squared distances between rows and columns.
//!
//! A tile of some rows and two vectors of columns has its sums in registers, as a matmul's has; a step is a subtraction and a
//! multiply-add. Columns are read where they are: a task reads a strip of them, as wide as a tile, once for each tile of rows.

use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::isa::Kernel;
use crate::layout::At;
use crate::simd::{LANES, Simd};

/// f32.
pub(crate) fn claim(node: &Node, _: &Graph) -> Claim {
    match node.shape.dtype() {
        DType::F32 => Claim::Native,
        dtype => Claim::No(format!("there is no kernel for distances of {dtype}")),
    }
}

/// The kernel.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::SquaredDistances => Ok(Box::new(Distances(None))),
        ref op => Err(no_kernel(op, "it has no distances")),
    }
}

/// Columns of a tile.
const WIDTH: usize = 2 * LANES;
/// Rows of a tile.
const ROWS: usize = 6;
/// Rows of a task, if there are as many.
const BLOCK: usize = 16 * ROWS;

#[derive(Debug, Clone, Copy)]
struct Distances(Option<Plan>);

#[derive(Debug, Clone, Copy)]
struct Plan {
    rows: At,
    columns: At,
    out: At,
    n: usize,
    m: usize,
    k: usize,
    worth: bool,
}

impl StepKernel for Distances {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (rows, columns, out) = (&cx.inputs[0], &cx.inputs[1], &cx.outputs[0]);
        let (&[n, k], &[depth, m]) = (rows.dims(), columns.dims()) else {
            return Err(mismatch("distances of operands of other ranks"));
        };
        let dense = [rows, columns, out].iter().all(|o| o.layout.is_dense());
        if depth != k || out.dims() != [n, m] || !dense {
            let message = format!("distances {:?} of {:?} and {:?}", out.dims(), rows.dims(), columns.dims());
            return Err(mismatch(message));
        }
        let nanos = (n * m) as f64 * (k as f64 * 0.02 + 0.1);
        let (rows, columns, out) = (rows.at, columns.at, out.at);
        self.0 = Some(Plan { rows, columns, out, n, m, k, worth: nanos > WORTH_NANOS });
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = self.0 else { return Err(unbound()) };
        let (rows, columns, out) =
            (cx.shared::<f32>(plan.rows), cx.shared::<f32>(plan.columns), cx.shared::<f32>(plan.out));
        let strips = plan.m.div_ceil(WIDTH);
        let isa = cx.isa;
        cx.parallel(plan.worth, strips * plan.n.div_ceil(BLOCK), &|tasks, _| {
            for task in tasks {
                let (first, column) = (task / strips * BLOCK, task % strips * WIDTH);
                for row in (first..plan.n.min(first + BLOCK)).step_by(ROWS) {
                    isa.run(Tile {
                        rows: rows.get().wrapping_add(row * plan.k).cast_const(),
                        columns: columns.get().wrapping_add(column).cast_const(),
                        out: out.get().wrapping_add(row * plan.m + column),
                        height: ROWS.min(plan.n - row),
                        width: WIDTH.min(plan.m - column),
                        m: plan.m,
                        k: plan.k,
                    });
                }
            }
        });
        Ok(())
    }
}

/// The distances of up to [`ROWS`] rows to up to [`WIDTH`] columns. Who makes one promises that the rows and columns can be read and that
/// no other tile has these results.
struct Tile {
    rows: *const f32,
    columns: *const f32,
    out: *mut f32,
    height: usize,
    width: usize,
    m: usize,
    k: usize,
}

impl Kernel for Tile {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the tile's promise.
        unsafe {
            match (self.height, self.width) {
                (ROWS, WIDTH) => self.sums::<S, ROWS, true>(s, 0),
                (height, WIDTH) => (0..height).for_each(|row| self.sums::<S, 1, true>(s, row)),
                (height, _) => (0..height).for_each(|row| self.sums::<S, 1, false>(s, row)),
            }
        }
    }
}

impl Tile {
    /// `R` rows from `first`, with `WHOLE` vectors or parts of them.
    ///
    /// # Safety
    /// As the tile promises; there are such rows.
    #[inline(always)]
    unsafe fn sums<S: Simd, const R: usize, const WHOLE: bool>(&self, s: S, first: usize) {
        let lanes = [self.width.min(LANES), self.width.saturating_sub(LANES)];
        let mut sums = [[s.splat(0.0); 2]; R];
        // SAFETY: the caller's promise: parts of vectors are as wide as the tile.
        unsafe {
            for p in 0..self.k {
                let at = self.columns.wrapping_add(p * self.m);
                let b = if WHOLE {
                    [s.load(at), s.load(at.add(LANES))]
                } else {
                    [s.load_n(at, lanes[0]), s.load_n(at.wrapping_add(LANES), lanes[1])]
                };
                for (row, sums) in sums.iter_mut().enumerate() {
                    let a = s.splat(*self.rows.add((first + row) * self.k + p));
                    for half in 0..2 {
                        let difference = s.sub(a, b[half]);
                        sums[half] = s.mul_add(difference, difference, sums[half]);
                    }
                }
            }
            for (row, sums) in sums.into_iter().enumerate() {
                let to = self.out.wrapping_add((first + row) * self.m);
                if WHOLE {
                    s.store(to, sums[0]);
                    s.store(to.add(LANES), sums[1]);
                } else {
                    s.store_n(to, lanes[0], sums[0]);
                    s.store_n(to.wrapping_add(LANES), lanes[1], sums[1]);
                }
            }
        }
    }
}
