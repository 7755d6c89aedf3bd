//! Tiles whose rows are those of a matrix, with little between one tile and the next.
//!
//! A processor that looks some 300 instructions ahead begins with the next tile while it still multiplies for the last one, if what is between
//! them is short: stores, addresses, zeros. In [`tile`](super::kernel), which knows all sources of rows and all epilogues, it is longer than that;
//! of a matmul 28 deep, a seventh of the time was lost there (Zen 4). So what most matmuls are has a loop of its own: rows of a matrix, sums
//! that begin at zero, and an epilogue of at most a bias for each column, a residual, and bounds.

use super::element::Packed;
use super::epilogue::{ShortEpilogue, each_row};
use super::kernel::{Ends, Rows, Strided, Tiles, store_tile};
use super::panels::{PANEL, VECTORS, lanes_of};
use super::prefetch::{Evenly, Prefetch, fetch_result, fetch_words};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// The tiles of some rows, one below the other.
pub(super) struct MatrixTiles<'a, T> {
    /// The first row of A, at the part's first step, and elements to the next row.
    a: *const T,
    a_stride: usize,
    /// The part's first row of words, and how far behind those of the next panel are.
    b: *const f32,
    far: usize,
    /// Groups of steps of depth, and whether the last one lacks its second step.
    groups: usize,
    is_odd: bool,
    /// How many rows there are, a multiple of a tile's, and how many columns are left.
    rows: usize,
    width: usize,
    to: To<T>,
    /// Whether the result is far away.
    is_far: bool,
    ahead: &'a mut Prefetch,
    /// The same at the pace of these tiles.
    evenly: Evenly,
}

/// Where results go, from the first row and column on, and elements to the next row.
#[derive(Clone, Copy)]
enum To<T> {
    /// Sums as they are.
    Sums(*mut f32, usize),
    /// What the epilogue makes of them.
    Results(*mut T, usize, ShortEpilogue<T>),
}

impl<'a, T: Packed> MatrixTiles<'a, T> {
    /// These tiles, of [`FETCH_FROM`](super::prefetch::FETCH_FROM) rows or more of a matrix, if the rest is of this kind, too.
    #[inline(always)]
    pub(super) fn of<A: Rows<Element = T>>(t: &'a mut Tiles<'_, A>, matrix: Strided<T>) -> Option<Self> {
        let (g, k, row, col) = (t.g, &t.part.k, t.rows.start, t.col);
        let ends = Ends::of(g, t.part);
        let (None, true) = (ends.from, t.ahead.is_slow()) else { return None };
        let to = match ends.to {
            Some((p, stride)) => To::Sums(p.wrapping_add(row * stride + col), stride),
            None => {
                let c = g.c.wrapping_add(row * g.c_stride + col);
                To::Results(c, g.c_stride, ShortEpilogue::of(&g.epilogue, row, col)?)
            }
        };
        Some(MatrixTiles {
            a: matrix.ptr.wrapping_add(k.start * T::GROUP),
            a_stride: matrix.row_stride as usize,
            b: t.b,
            far: g.depth() * PANEL,
            groups: k.len(),
            is_odd: k.end * T::GROUP > g.k,
            rows: t.rows.len(),
            width: g.n - col,
            to,
            is_far: ends.is_far,
            evenly: t.ahead.pace(t.b),
            ahead: t.ahead,
        })
    }

    /// Computes them in tiles of so many rows and vectors.
    ///
    /// # Safety
    /// As [`tiles_any`](super::tiles::tiles_any).
    #[inline(always)]
    pub(super) unsafe fn enter<S: Simd>(mut self, s: S, height: usize, vecs: usize) {
        macro_rules! heights {
            ($v:literal; $($r:literal)*) => {
                match height {
                    $($r => s.enter(SizedTiles::<T, $r, $v>(&mut self)),)*
                    _ => unreachable!("a tile has at most GEMM_ROWS rows"),
                }
            };
        }
        match vecs {
            4 if const { T::GROUP == 1 || S::BF16_DOT } => heights!(4; 3 4 5 6),
            3 => heights!(3; 3 4 5 6 7 8 9),
            2 => heights!(2; 3 4 5 6 7 8 9),
            _ => heights!(1; 3 4 5 6 7 8 9),
        }
    }
}

/// Tiles of R rows × V vectors: one function per size, so that each has the registers to itself.
struct SizedTiles<'a, 'b, T, const R: usize, const V: usize>(&'b mut MatrixTiles<'a, T>);

impl<T: Packed, const R: usize, const V: usize> Kernel for SizedTiles<'_, '_, T, R, V> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let t = self.0;
        let &mut MatrixTiles { a_stride, is_odd, width, rows, is_far, to, .. } = t;
        let far = if const { V > VECTORS } { t.far } else { 0 };
        let whole = t.groups - usize::from(is_odd);
        let (mut first, mut fetched, mut row) = (t.a, t.evenly, 0);
        while row < rows {
            if let (true, To::Results(c, stride, _)) = (is_far, to) {
                fetch_result::<S, T, R, V>(s, c.wrapping_add(row * stride), stride);
            }
            t.ahead.check(&mut fetched, t.b);
            let mut a = [first; R];
            for r in 0..R {
                a[r] = first.wrapping_add(a_stride.wrapping_mul(r));
            }
            let mut acc = [[s.zero(); V]; R];
            let (mut b, mut group) = (t.b, 0);
            // SAFETY: `enter` was promised the panel, the rows, the result, and the epilogue's operands.
            unsafe {
                while group < whole {
                    fetch_words::<S, V>(s, b, far);
                    T::multiply(s, &mut acc, &a, group * T::GROUP, [b, b.wrapping_add(far)], false);
                    fetched.step(s);
                    group += 1;
                    b = b.wrapping_add(PANEL);
                }
                if const { T::GROUP > 1 } && is_odd {
                    T::multiply(s, &mut acc, &a, group * T::GROUP, [b, b.wrapping_add(far)], true);
                }
                match to {
                    To::Sums(to, stride) => {
                        store_tile(s, &acc, to.wrapping_add(row * stride), stride, width);
                    }
                    To::Results(c, stride, epilogue) => {
                        epilogue.apply(s, &mut acc, row, width);
                        let c = c.wrapping_add(row * stride);
                        each_row!(R, r => {
                            for v in 0..V {
                                let to = c.wrapping_add(r * stride + v * LANES);
                                T::store_sum(s, to, lanes_of(v, width), acc[r][v]);
                            }
                        });
                    }
                }
            }
            first = first.wrapping_add(a_stride.wrapping_mul(R));
            row += R;
        }
        t.ahead.resume(fetched);
    }
}
