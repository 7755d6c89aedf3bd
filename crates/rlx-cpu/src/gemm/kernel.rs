//! The micro-kernel: a tile of R rows × V vectors of columns in registers.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::conv::{ConvRows, Windows};
use super::element::Packed;
use super::epilogue::{Finish, Sums, each_row, finish_in_registers, is_light};
use super::panels::{VECTORS, lanes_of};
use super::prefetch::{FAR, FETCH_FROM, GROUP, Prefetch, fetch_result, fetch_words};
use super::{Gemm, PANEL};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Where the rows of the left-hand side lie.
///
/// A row is `taps()` pieces of `k` contiguous elements each, so that a convolution's window is a row too.
pub trait Rows: Copy + Send + Sync {
    /// What rows are made of.
    type Element: Copy + Send + Sync + 'static;

    /// Pieces of a row.
    fn taps(&self) -> usize;

    /// What is worked out once for `N` rows.
    type Tile<const N: usize>: Copy;

    /// Works it out for the rows `row .. row + N`.
    fn tile<const N: usize>(&self, row: usize) -> Self::Tile<N>;

    /// The same, where `following` is what followed the tile before, if `row` is the row behind that; and what follows this one.
    #[inline(always)]
    fn next_tile<const N: usize>(
        &self,
        row: usize,
        following: &mut Following<Self::Element>,
    ) -> Self::Tile<N> {
        let _ = following;
        self.tile(row)
    }

    /// The rows behind the first `row`.
    fn skip(&self, row: usize) -> Self;

    /// The same rows without their own type: matmuls are compiled once for all sources.
    fn any(&self) -> AnyRows<Self::Element>;

    /// Up to which of these rows, whole tiles of `height`, tiles are of one kind; and the matrix that those are the rows of, if they are.
    #[inline(always)]
    fn next_rows(&self, rows: &Range<usize>, height: usize) -> (usize, Option<Strided<Self::Element>>) {
        let _ = height;
        (rows.end, None)
    }

    /// Elements from one step of depth to the next in units of [`Packed::GROUP`] steps: 1 where rows are contiguous.
    #[inline(always)]
    fn step(&self) -> usize {
        1
    }

    /// Where piece `tap` of each of those rows starts.
    fn pointers<const N: usize>(&self, tile: &Self::Tile<N>, tap: usize) -> [*const Self::Element; N];

    /// The taps that are not zeros for all rows of a tile, as far as that is cheap to see.
    #[inline(always)]
    fn inside<const N: usize>(&self, tile: &Self::Tile<N>) -> Range<usize> {
        let _ = tile;
        0..self.taps()
    }

    /// Of how many rows a line is, where rows of a line may have the same taps [`inside`](Rows::inside).
    #[inline(always)]
    fn line(&self) -> Option<usize> {
        None
    }

    /// Whether these pieces are known to be zeros, and to be so often enough to look.
    #[inline(always)]
    fn are_zeros<const N: usize>(&self, pieces: &[*const Self::Element; N]) -> bool {
        let _ = pieces;
        false
    }
}

/// The windows that follow a tile, as long as they are on one line and inside their image: where those are need not be worked out again.
#[derive(Debug, Clone, Copy)]
pub struct Following<T> {
    /// Where the first of them begins.
    pub(super) at: *const T,
    /// How many there are.
    pub(super) left: usize,
}

impl<T> Following<T> {
    /// None.
    pub(super) const fn none() -> Following<T> {
        Following { at: std::ptr::null(), left: 0 }
    }
}

/// The rows of a matrix.
#[derive(Debug, Clone, Copy)]
pub struct Strided<T = f32> {
    /// The first row.
    pub ptr: *const T,
    /// Elements from one row to the next; 0 and negative are fine.
    pub row_stride: isize,
}

// SAFETY: a plain address; anyone who reads through it (`Gemm::run`) was promised that it may.
unsafe impl<T> Send for Strided<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Strided<T> {}

impl<T: Copy + Send + Sync + 'static> Rows for Strided<T> {
    type Element = T;

    #[inline(always)]
    fn taps(&self) -> usize {
        1
    }
    type Tile<const N: usize> = [*const T; N];

    #[inline(always)]
    fn tile<const N: usize>(&self, row: usize) -> [*const T; N] {
        let mut out = [self.ptr; N];
        for (r, p) in out.iter_mut().enumerate() {
            *p = self.ptr.wrapping_offset((row + r) as isize * self.row_stride);
        }
        out
    }
    #[inline(always)]
    fn pointers<const N: usize>(&self, tile: &[*const T; N], _tap: usize) -> [*const T; N] {
        *tile
    }
    fn skip(&self, row: usize) -> Self {
        Strided { ptr: self.ptr.wrapping_offset(row as isize * self.row_stride), ..*self }
    }
    #[inline(always)]
    fn next_rows(&self, rows: &Range<usize>, _: usize) -> (usize, Option<Strided<T>>) {
        (rows.end, Some(self.skip(rows.start)))
    }
    fn any(&self) -> AnyRows<T> {
        AnyRows::Matrix(*self)
    }
}

/// The columns of a packed matrix of f32 as rows, one group of depth after the other: the matrix from the left.
#[derive(Debug, Clone, Copy)]
pub struct PackedColumns<T = f32> {
    /// The panels.
    pub panels: *const T,
    /// Rows of words in a panel.
    pub depth: usize,
    /// The column that is the first row.
    pub first: usize,
}

// SAFETY: a plain address; anyone who reads through it (`Gemm::run`) was promised that it may.
unsafe impl<T> Send for PackedColumns<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for PackedColumns<T> {}

impl<T: Copy + Send + Sync + 'static> Rows for PackedColumns<T> {
    type Element = T;
    type Tile<const N: usize> = [*const T; N];

    #[inline(always)]
    fn taps(&self) -> usize {
        1
    }
    #[inline(always)]
    fn tile<const N: usize>(&self, row: usize) -> [*const T; N] {
        let mut out = [self.panels; N];
        for (r, p) in out.iter_mut().enumerate() {
            let column = self.first + row + r;
            *p = self.panels.wrapping_add(column / PANEL * self.depth * PANEL + column % PANEL);
        }
        out
    }
    #[inline(always)]
    fn step(&self) -> usize {
        PANEL
    }
    #[inline(always)]
    fn pointers<const N: usize>(&self, tile: &[*const T; N], _tap: usize) -> [*const T; N] {
        *tile
    }
    fn skip(&self, row: usize) -> Self {
        PackedColumns { first: self.first + row, ..*self }
    }
    fn any(&self) -> AnyRows<T> {
        AnyRows::Columns(*self)
    }
}

/// The rows of a matrix, the windows of an image, or the columns of packed panels.
#[derive(Debug, Clone, Copy)]
pub enum AnyRows<T = f32> {
    /// A matrix.
    Matrix(Strided<T>),
    /// Panels.
    Columns(PackedColumns<T>),
    /// Images.
    Windows(ConvRows<T>),
}

/// Rows that are windows of an image without padding: those of a line are equally far apart, and so are their taps.
#[derive(Debug, Clone, Copy)]
pub struct Even {
    /// Bytes from one tap of a row to the next.
    pub tap_step: usize,
    /// Rows of a line.
    pub line: usize,
    /// Bytes from one row of a line to the next.
    pub row_step: usize,
}

/// The first taps of the R rows from `row` on: behind those before, where so many rows of their line are `left`.
#[inline(always)]
pub(super) fn first_taps<const R: usize>(
    (rows, even): (&AnyRows<u8>, Option<Even>),
    row: usize,
    lines: &mut AnyTile<u8, R>,
    (next, left): (&mut *const u8, &mut usize),
) -> [*const u8; R] {
    let mut a = [*next; R];
    if let Some(even) = even.filter(|_| *left >= R) {
        for r in 0..R {
            a[r] = next.wrapping_add(r * even.row_step);
        }
        *left -= R;
    } else if rows.taps() > 0 {
        *lines = rows.tile::<R>(row);
        a = rows.pointers::<R>(lines, 0);
        if let Some(even) = even {
            *left = (even.line - row % even.line).saturating_sub(R);
        }
    }
    if let Some(even) = even {
        *next = a[0].wrapping_add(R * even.row_step);
    }
    a
}

/// Goes on from the taps `a` of R rows to number `tap`.
#[inline(always)]
pub(super) fn next_taps<const R: usize>(
    (rows, even): (&AnyRows<u8>, Option<Even>),
    tap: usize,
    lines: &AnyTile<u8, R>,
    a: &mut [*const u8; R],
) {
    match even {
        Some(even) => {
            for r in 0..R {
                a[r] = a[r].wrapping_add(even.tap_step);
            }
        }
        None => *a = rows.pointers::<R>(lines, tap),
    }
}

/// What is worked out once for N rows of any of them.
#[derive(Debug, Clone, Copy)]
pub enum AnyTile<T, const N: usize> {
    /// Where they begin.
    Matrix([*const T; N]),
    /// Windows.
    Windows(Windows<T, N>),
}

impl<T: Copy + Send + Sync + 'static> Rows for AnyRows<T> {
    type Element = T;
    type Tile<const N: usize> = AnyTile<T, N>;

    #[inline(always)]
    fn taps(&self) -> usize {
        match self {
            AnyRows::Matrix(_) | AnyRows::Columns(_) => 1,
            AnyRows::Windows(w) => w.taps(),
        }
    }
    #[inline(always)]
    fn tile<const N: usize>(&self, row: usize) -> AnyTile<T, N> {
        match self {
            AnyRows::Matrix(m) => AnyTile::Matrix(m.tile(row)),
            AnyRows::Columns(c) => AnyTile::Matrix(c.tile(row)),
            AnyRows::Windows(w) => AnyTile::Windows(w.tile(row)),
        }
    }
    #[inline(always)]
    fn next_tile<const N: usize>(&self, row: usize, following: &mut Following<T>) -> AnyTile<T, N> {
        match self {
            AnyRows::Windows(w) => AnyTile::Windows(w.next_tile(row, following)),
            AnyRows::Matrix(_) | AnyRows::Columns(_) => self.tile(row),
        }
    }
    #[inline(always)]
    fn step(&self) -> usize {
        match self {
            AnyRows::Matrix(_) | AnyRows::Windows(_) => 1,
            AnyRows::Columns(c) => c.step(),
        }
    }
    #[inline(always)]
    fn pointers<const N: usize>(&self, tile: &AnyTile<T, N>, tap: usize) -> [*const T; N] {
        match (self, tile) {
            (AnyRows::Windows(w), AnyTile::Windows(windows)) => w.pointers(windows, tap),
            (_, AnyTile::Matrix(starts)) => *starts,
            (AnyRows::Matrix(_) | AnyRows::Columns(_), AnyTile::Windows(_)) => {
                unreachable!("a tile is of its own rows")
            }
        }
    }
    #[inline(always)]
    fn inside<const N: usize>(&self, tile: &AnyTile<T, N>) -> Range<usize> {
        match (self, tile) {
            (AnyRows::Windows(w), AnyTile::Windows(windows)) => w.inside(windows),
            _ => 0..1,
        }
    }
    #[inline(always)]
    fn line(&self) -> Option<usize> {
        match self {
            AnyRows::Matrix(_) | AnyRows::Columns(_) => None,
            AnyRows::Windows(w) => w.line(),
        }
    }
    #[inline(always)]
    fn are_zeros<const N: usize>(&self, pieces: &[*const T; N]) -> bool {
        match self {
            AnyRows::Matrix(_) | AnyRows::Columns(_) => false,
            AnyRows::Windows(w) => w.are_zeros(pieces),
        }
    }
    fn skip(&self, row: usize) -> Self {
        match self {
            AnyRows::Matrix(m) => AnyRows::Matrix(m.skip(row)),
            AnyRows::Columns(c) => AnyRows::Columns(c.skip(row)),
            AnyRows::Windows(w) => AnyRows::Windows(w.skip(row)),
        }
    }
    #[inline(always)]
    fn next_rows(&self, rows: &Range<usize>, height: usize) -> (usize, Option<Strided<T>>) {
        match self {
            AnyRows::Matrix(m) => m.next_rows(rows, height),
            AnyRows::Columns(c) => c.next_rows(rows, height),
            AnyRows::Windows(w) => w.next_rows(rows, height),
        }
    }
    fn any(&self) -> AnyRows<T> {
        *self
    }
}

/// Which block of the depth is computed.
pub(super) struct Part {
    /// The taps.
    pub taps: Range<usize>,
    /// Groups of steps of depth of each of them.
    pub k: Range<usize>,
    /// Whether sums start at zero rather than from C.
    pub first: bool,
    /// Whether the epilogue follows.
    pub last: bool,
}

impl Part {
    /// Its rows of the packed panel.
    pub fn depth(&self) -> usize {
        self.taps.len() * self.k.len()
    }
}

/// The blocks of `taps` taps of `groups` groups of steps, of some `most` of them each. A tap is split only where it is the
/// only one.
pub(super) fn parts(taps: usize, groups: usize, most: usize) -> impl Iterator<Item = Part> {
    let (whole, of_taps) = if taps == 1 { (groups, false) } else { (taps, true) };
    let blocks = taps.saturating_mul(groups).div_ceil(most).max(1);
    let each = whole.div_ceil(blocks).max(1);
    let blocks = whole.div_ceil(each).max(1);
    (0..blocks).map(move |block| {
        let here = block * each..((block + 1) * each).min(whole);
        let (taps, k) = if of_taps { (here, 0..groups) } else { (0..taps, here) };
        Part { taps, k, first: block == 0, last: block + 1 == blocks }
    })
}

/// What tiles of one height, one below the other, are computed from.
pub(super) struct Tiles<'a, A: Rows> {
    pub(super) g: &'a Gemm<A>,
    pub(super) rows: Range<usize>,
    pub(super) col: usize,
    pub(super) b: *const f32,
    pub(super) part: &'a Part,
    pub(super) ahead: &'a mut Prefetch,
}

/// Tiles of R rows × V vectors: one function per size, so that each has the registers to itself. It computes many tiles, because of a shallow
/// matmul the call would be a tenth.
///
/// Behind a reference: of what is copied, the processor would wait for fields that were just written, one by one, and are read together.
pub(super) struct SizedTiles<'a, 'b, A: Rows, const R: usize, const V: usize>(
    pub(super) &'b mut Tiles<'a, A>,
);

impl<A: Rows<Element: Packed>, const R: usize, const V: usize> Kernel for SizedTiles<'_, '_, A, R, V> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let t = self.0;
        let (mut ahead, mut row) = (*t.ahead, t.rows.start);
        let (ends, mut following) = (Ends::of(t.g, t.part), Following::none());
        while row < t.rows.end {
            let lines = t.g.rows.next_tile::<R>(row, &mut following);
            // SAFETY: `tiles_any` was promised tiles in range.
            unsafe { tile::<S, A, R, V>(s, t, &ends, (row, &lines), &mut ahead) }
            row += R;
        }
        *t.ahead = ahead;
    }
}

/// What the sums of all tiles of a part begin with, and where they go.
pub(super) struct Ends {
    /// Sums in f32 that theirs are added to.
    pub(super) from: Option<(*const f32, usize)>,
    /// Where sums are stored as they are; elsewhere the epilogue follows.
    pub(super) to: Option<(*mut f32, usize)>,
    /// Whether what is written is far away.
    pub(super) is_far: bool,
}

impl Ends {
    #[inline(always)]
    pub(super) fn of<A: Rows<Element: Packed>>(g: &Gemm<A>, part: &Part) -> Ends {
        // The sums of a part wait in C.
        let c = const { A::Element::GROUP == 1 }.then_some((g.c.cast::<f32>(), g.c_stride));
        let from = match g.wide {
            Some(wide) => wide.add.then_some((wide.sums, wide.stride)),
            None => c.filter(|_| !part.first),
        };
        let to = match g.wide {
            Some(wide) => Some((wide.sums, wide.stride)),
            None => c.filter(|_| !part.last || g.epilogue.is_none()),
        };
        let bytes = g.m.saturating_mul(g.c_stride).saturating_mul(size_of::<A::Element>());
        let is_far = part.last && g.wide.is_none() && bytes > FAR;
        Ends { from: from.map(|(p, stride)| (p.cast_const(), stride)), to, is_far }
    }
}

/// Computes R rows × V vectors, which `lines` says where to find.
///
/// # Safety
/// As [`tiles_any`](super::tiles::tiles_any).
#[inline(always)]
unsafe fn tile<S: Simd, A: Rows<Element: Packed>, const R: usize, const V: usize>(
    s: S,
    t: &Tiles<'_, A>,
    ends: &Ends,
    (row, lines): (usize, &A::Tile<R>),
    ahead: &mut Prefetch,
) {
    let (g, col, mut b, part) = (t.g, t.col, t.b, t.part);
    let (width, mut ahead_here) = (g.n - col, *ahead);
    // SAFETY: `Gemm::run`'s promises.
    unsafe {
        if ends.is_far {
            fetch_result::<S, A::Element, R, V>(s, g.c.wrapping_add(row * g.c_stride + col), g.c_stride);
        }
        let mut start = [[s.zero(); V]; R];
        if let Some((sums, stride)) = ends.from {
            load_tile(s, &mut start, sums.wrapping_add(row * stride + col), stride, width);
        }
        // The sums are an array of their own, touched by constant indices only: that keeps them in registers.
        let mut acc = [[s.zero(); V]; R];
        for r in 0..R {
            for v in 0..V {
                acc[r][v] = start[r][v];
            }
        }
        // Groups that are whole; the last one may lack its second step.
        let (k0, k1) = (part.k.start, part.k.end);
        let whole = if const { A::Element::GROUP == 1 } { k1 } else { k1.min(g.k / A::Element::GROUP) };
        let step = A::Element::GROUP * g.rows.step();
        // The next panel is behind the whole depth of this one.
        let far = if const { V > VECTORS } { g.depth() * PANEL } else { 0 };
        // Zeros add nothing to any sum.
        let inside = g.rows.inside(lines);
        let (from, end) = (part.taps.start.max(inside.start), part.taps.end.min(inside.end));
        b = b.wrapping_add((from - part.taps.start) * (k1 - k0) * PANEL);
        for tap in from..end {
            let a = g.rows.pointers::<R>(lines, tap);
            if g.rows.are_zeros(&a) {
                b = b.wrapping_add((k1 - k0) * PANEL);
                continue;
            }
            let (mut k, mut at) = (k0, k0 * step);
            while k < whole {
                ahead_here.step(s);
                // A count the compiler does not know: unrolled, the loads move up and the sums spill.
                let end = (k + GROUP).min(whole);
                while k < end {
                    if const { R >= FETCH_FROM } {
                        fetch_words::<S, V>(s, b, far);
                    }
                    A::Element::multiply(s, &mut acc, &a, at, [b, b.wrapping_add(far)], false);
                    k += 1;
                    at += step;
                    // After the last step this may point past the panel's end, which `add` must not.
                    b = b.wrapping_add(PANEL);
                }
            }
            if const { A::Element::GROUP > 1 } && k < k1 {
                A::Element::multiply(s, &mut acc, &a, at, [b, b.wrapping_add(far)], true);
                b = b.wrapping_add(PANEL);
            }
        }
        *ahead = ahead_here;
        if let Some((sums, stride)) = ends.to {
            return store_tile(s, &acc, sums.wrapping_add(row * stride + col), stride, width);
        }
        let (e, c, stride) = (&g.epilogue, g.c, g.c_stride);
        // (Elements that are not for speed have tiles of whole panels.)
        if width > (V - 1) * LANES && is_light(e) {
            finish_in_registers(s, e, &acc, c, stride, row, col, width);
        } else {
            let mut spilled = MaybeUninit::<Sums<R, V>>::uninit();
            let at = spilled.as_mut_ptr().cast::<f32>();
            each_row!(R, r => {
                for v in 0..V {
                    s.store(at.add((r * V + v) * LANES), acc[r][v]);
                }
            });
            s.enter_plain(Finish { e, sums: at, rows: R, vecs: V, c, stride, row, col, width });
        }
    }
}

/// Stores sums as they are, where `width` columns are left.
///
/// # Safety
/// So many columns, up to V vectors, must be writable in each row.
#[inline(always)]
pub(super) unsafe fn store_tile<S: Simd, const R: usize, const V: usize>(
    s: S,
    sums: &[[S::F; V]; R],
    to: *mut f32,
    stride: usize,
    width: usize,
) {
    // SAFETY: the caller promises so many writable columns in each row.
    unsafe {
        if width >= V * LANES {
            each_row!(R, r => {
                for v in 0..V {
                    s.store(to.wrapping_add(r * stride + v * LANES), sums[r][v]);
                }
            });
        } else {
            each_row!(R, r => {
                for v in 0..V {
                    s.store_upto(to.wrapping_add(r * stride + v * LANES), lanes_of(v, width), sums[r][v]);
                }
            });
        }
    }
}

/// The sums of the depths before, which wait in C, where `width` columns are left.
///
/// # Safety
/// So many columns, up to V vectors, must be readable in each row.
#[inline(always)]
unsafe fn load_tile<S: Simd, const R: usize, const V: usize>(
    s: S,
    sums: &mut [[S::F; V]; R],
    c: *const f32,
    stride: usize,
    width: usize,
) {
    for r in 0..R {
        for v in 0..V {
            let lanes = lanes_of(v, width);
            // SAFETY: the caller promises so many readable columns in each row.
            sums[r][v] = unsafe { s.load_upto(c.wrapping_add(r * stride + v * LANES), lanes) };
        }
    }
}
