//! Tiles of any size: which function computes them.

use std::ops::Range;

use super::Gemm;
use super::element::Packed;
use super::kernel::{Part, Rows, SizedTiles, Tiles};
use super::matrix_tiles::MatrixTiles;
use super::prefetch::{FETCH_FROM, Prefetch};
use crate::simd::{LANES, Simd};

/// Computes rows in tiles of one height, up to `S::GEMM_ROWS`, of the columns of a panel, or of the widest tile (with up to six rows).
///
/// # Safety
/// As [`Gemm::run`]; the rows, the columns and the part must be in range and `b` the part's first row of words.
#[inline(always)]
pub(super) unsafe fn tiles_any<S: Simd, R: Rows<Element: Packed>>(
    s: S,
    g: &Gemm<R>,
    (rows, height): (Range<usize>, usize),
    columns: Range<usize>,
    b: *const f32,
    part: &Part,
    ahead: &mut Prefetch,
) {
    let (col, vecs) = (columns.start, columns.len().div_ceil(LANES));
    // Constant conditions: sizes an instruction set never uses are not even compiled for it.
    macro_rules! heights {
        ($v:literal, $t:expr; $($r:literal)*) => {
            match height {
                $($r => if const { $r <= S::GEMM_ROWS } { s.enter(SizedTiles::<R, $r, $v>(&mut $t)) },)*
                _ => unreachable!("a tile has at most GEMM_ROWS rows"),
            }
        };
    }
    if const { S::GEMM_VECS == 3 } {
        let mut rows = rows;
        while !rows.is_empty() {
            let (end, matrix) = match const { R::Element::GROUP == 1 || S::BF16_DOT } && height >= FETCH_FROM
            {
                true => g.rows.next_rows(&rows, height),
                false => (rows.end, None),
            };
            let mut t = Tiles { g, rows: rows.start..end, col, b, part, ahead: &mut *ahead };
            rows.start = end;
            if let Some(tiles) = matrix.and_then(|matrix| MatrixTiles::of(&mut t, matrix)) {
                // SAFETY: the caller's promise.
                unsafe { tiles.enter(s, height, vecs) };
                continue;
            }
            // Elements that are widened as they are loaded are not for speed: one width will do, over the panel's padding.
            if const { R::Element::GROUP > 1 && !S::BF16_DOT } {
                heights!(3, t; 1 2 3 4 5 6 7 8 9)
            } else {
                match vecs {
                    4 => heights!(4, t; 1 2 3 4 5 6),
                    3 => heights!(3, t; 1 2 3 4 5 6 7 8 9),
                    2 => heights!(2, t; 1 2 3 4 5 6 7 8 9),
                    _ => heights!(1, t; 1 2 3 4 5 6 7 8 9),
                }
            }
        }
    } else {
        // Rows stay in the first-level cache while all vectors of the panel pass by.
        for row in rows.step_by(height) {
            for j in (0..vecs).map(|v| v * LANES) {
                let (rows, b) = (row..row + height, b.wrapping_add(j));
                let mut t = Tiles { g, rows, col: col + j, b, part, ahead: &mut *ahead };
                heights!(1, t; 1 2 3 4 5 6);
            }
        }
    }
}
