//! Matmuls of bytes with zero points, exact in i32: `C = (A − za) · (B − zb)`; what follows on the sums is a [`ByteEpilogue`].
//!
//! The instruction that multiplies bytes (VPDPBUSD: AVX-512 VNNI) takes four unsigned bytes by four signed ones in each
//! 32-bit lane and adds the products to the lane, exactly. So A is read as unsigned and B packed as signed: bytes of the
//! other kind have their highest bit flipped, which moves them and their zero point by 128. Where the processor has no such
//! instruction the bytes are widened to 16 bits and multiplied in pairs ([`Simd::dot_bytes`]): the sums are the same.
//!
//! Zero points are put in behind, from sums over the rows of A and over the columns of B:
//! `Σ(a−za)(b−zb) = Σab − za·Σb − zb·Σa + k·za·zb`, all in i32, which wraps, so that no order changes a bit.
//!
//! A packed panel has 48 columns: for each tap, rows of words that hold four steps of depth, and at its end one row
//! of i32, the columns' sums.
//!
//! ```
//! use rlx_cpu::gemm::{Ahead, AnyRows, ByteGemm, Strided, ZeroPoints, byte_words, pack_bytes};
//! use rlx_cpu::isa::Isa;
//! let (a, b) = ([1u8, 2, 3], [4i8, -5, 6]);
//! let mut packed = vec![0.0f32; byte_words(1, 3, 1).unwrap()];
//! let (mut c, zero) = ([0i32; 1], 0u8);
//! // SAFETY: all pointers cover the extents given.
//! unsafe {
//!     pack_bytes(b.as_ptr().cast(), true, [1, 1], 3, 1, packed.as_mut_ptr(), 0..1);
//!     let rows = AnyRows::Matrix(Strided { ptr: a.as_ptr(), row_stride: 3 });
//!     let b_zero = ZeroPoints { ptr: &zero, step: 0, signed: true };
//!     let (b, c) = (packed.as_ptr(), c.as_mut_ptr());
//!     let g = ByteGemm { m: 1, n: 1, k: 3, terms: 3, rows, even: None, signed: false, b, a_zero: 1, b_zero, c, c_stride: 1, epilogue: None, ahead: Ahead::Panels };
//!     g.run(Isa::detect(), 0..g.tasks(Isa::detect()));
//! }
//! assert_eq!(c, [-5 + 2 * 6]);
//! ```

use std::mem::MaybeUninit;
use std::ops::Range;

use super::fixed_tile::FixedTile;
use super::kernel::{AnyRows, Even, Rows, Strided, first_taps, next_taps};
use super::panels::{VECTORS, WIDEST, WIDEST_ROWS, tiles_across, vector_at};
use super::prefetch::{Evenly, Prefetch, fetch_row, fetch_words};
use super::requantise::{ByteEpilogue, Sums, TileColumns};
use super::tiling::{TileSizes, Tiling};
use super::{Ahead, PANEL, panels};
use crate::isa::{Isa, IsaKind, Kernel};
use crate::simd::{LANES, Simd};

/// Steps of depth in a word.
const GROUP: usize = 4;

/// Flips the highest bit of four bytes.
const FLIP: u32 = 0x8080_8080;

/// Words of a packed matrix of `taps` times `k` rows and `n` columns; `None` if that overflows.
pub const fn byte_words(taps: usize, k: usize, n: usize) -> Option<usize> {
    let Some(depth) = k.div_ceil(GROUP).checked_mul(taps) else { return None };
    let Some(columns) = panels(n).checked_mul(PANEL) else { return None };
    match depth.checked_add(1) {
        Some(rows) => rows.checked_mul(columns),
        None => None,
    }
}

/// Rows of words of each packed panel, with the one of its sums; `None` if all of a panel's words cannot be counted.
pub(crate) const fn byte_rows(taps: usize, k: usize) -> Option<usize> {
    match byte_words(taps, k, PANEL) {
        Some(words) => Some(words / PANEL),
        None => None,
    }
}

/// Packs some panels of a `k`×`n` matrix of bytes (signed or not) whose element (i, j) is at `b + i·strides[0] + j·strides[1]`.
///
/// # Safety
/// Every element must be readable, and `out` writable for `byte_words(1, k, n)` words; only the given panels are written.
pub unsafe fn pack_bytes(
    b: *const u8,
    signed: bool,
    strides: [isize; 2],
    k: usize,
    n: usize,
    out: *mut f32,
    which: Range<usize>,
) {
    let rows = k.div_ceil(GROUP) + 1;
    for panel in which {
        let first = panel * PANEL;
        // SAFETY: the caller's promises; the panel is within `out`.
        unsafe {
            let from = b.wrapping_offset(first as isize * strides[1]);
            let source = Columns { ptr: from, strides, signed, depth: k, width: PANEL.min(n - first) };
            pack_byte_panel(&source, 1, |_| 0, out.wrapping_add(panel * rows * PANEL));
        }
    }
}

/// Columns of bytes that become a panel.
pub(crate) struct Columns {
    pub(crate) ptr: *const u8,
    /// From one step of depth to the next, and from column to column.
    pub(crate) strides: [isize; 2],
    pub(crate) signed: bool,
    /// Steps of depth of each tap.
    pub(crate) depth: usize,
    pub(crate) width: usize,
}

impl Columns {
    /// Four steps of depth of each column, from step `first` on, as they are multiplied; what is not there is 0. Where either the steps or the columns
    /// are neighbours in memory, several bytes are moved at once: the keys and values of an attention are packed in every run.
    ///
    /// # Safety
    /// Step `first` and those behind it must be readable, in columns from `from` on.
    unsafe fn words(&self, from: *const u8, first: usize) -> [u32; PANEL] {
        let steps = GROUP.min(self.depth - first);
        let from = from.wrapping_offset(first as isize * self.strides[0]);
        let flip = if self.signed { 0 } else { FLIP };
        let mut words = [0u32; PANEL];
        // SAFETY: the caller's promise; only the columns and the steps that are there are read.
        unsafe {
            match self.strides {
                [1, stride] if steps == GROUP => {
                    for (column, word) in words[..self.width].iter_mut().enumerate() {
                        let at = from.wrapping_offset(column as isize * stride).cast::<u32>();
                        *word = at.read_unaligned().to_le() ^ flip;
                    }
                }
                [stride, 1] if steps == GROUP => {
                    let mut rows = [[0u8; PANEL]; GROUP];
                    for (step, row) in rows.iter_mut().enumerate() {
                        let at = from.wrapping_offset(step as isize * stride);
                        std::ptr::copy_nonoverlapping(at, row.as_mut_ptr(), self.width);
                    }
                    let [a, b, c, d] = rows;
                    for (column, word) in words.iter_mut().enumerate() {
                        *word = u32::from_le_bytes([a[column], b[column], c[column], d[column]]) ^ flip;
                    }
                    words[self.width..].fill(0);
                }
                [down, across] => {
                    for (column, word) in words[..self.width].iter_mut().enumerate() {
                        let mut bytes = [0u8; GROUP];
                        for (step, byte) in bytes[..steps].iter_mut().enumerate() {
                            let at = from.wrapping_offset(step as isize * down + column as isize * across);
                            *byte = *at ^ flip as u8;
                        }
                        *word = u32::from_le_bytes(bytes);
                    }
                }
            }
        }
        words
    }
}

/// Packs one panel: the columns of each tap, which lie `offset(tap)` further on, then their sums.
///
/// # Safety
/// Every element must be readable, and `out` writable for the panel.
pub(crate) unsafe fn pack_byte_panel(
    source: &Columns,
    taps: usize,
    offset: impl Fn(usize) -> isize,
    out: *mut f32,
) {
    let groups = source.depth.div_ceil(GROUP);
    let mut sums = [0i32; PANEL];
    for tap in 0..taps {
        let from = source.ptr.wrapping_offset(offset(tap));
        for group in 0..groups {
            // SAFETY: the caller's promise; the steps from the group's first on are there.
            let words = unsafe { source.words(from, group * GROUP) };
            for (sum, word) in sums.iter_mut().zip(words) {
                let [a, b, c, d] = word.to_le_bytes().map(|byte| i32::from(byte as i8));
                *sum = sum.wrapping_add(a + b + c + d);
            }
            let line = out.wrapping_add((tap * groups + group) * PANEL).cast::<[u32; PANEL]>();
            // SAFETY: the caller's promise; the line is within the panel, whose words may lie anywhere.
            unsafe { line.write_unaligned(words) };
        }
    }
    let last = out.wrapping_add(taps * groups * PANEL).cast::<i32>();
    // SAFETY: the panel's last line.
    unsafe { std::ptr::copy_nonoverlapping(sums.as_ptr(), last, PANEL) };
}

/// The zero points of B's columns: one for each (`step` 1), or one for all (`step` 0).
#[derive(Debug, Clone, Copy)]
pub struct ZeroPoints {
    /// The first.
    pub ptr: *const u8,
    /// 1 or 0.
    pub step: usize,
    /// Whether they, and B's elements, are i8.
    pub signed: bool,
}

impl ZeroPoints {
    /// Those of the `lanes` columns from `column` on, as B was packed: what is unsigned moved down by 128.
    ///
    /// # Safety
    /// There must be a zero point for each column.
    #[inline(always)]
    pub(crate) unsafe fn load<S: Simd>(&self, s: S, column: usize, lanes: usize) -> S::I {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.step, self.signed) {
                (0, true) => s.splat_i(i32::from(*self.ptr as i8)),
                (0, false) => s.splat_i(i32::from(*self.ptr) - 128),
                (_, true) => s.load_bytes::<true>(self.ptr.wrapping_add(column), lanes),
                (_, false) => {
                    let bytes = s.load_bytes::<false>(self.ptr.wrapping_add(column), lanes);
                    s.sub_i(bytes, s.splat_i(128))
                }
            }
        }
    }
}

/// One matmul, as the module says.
#[derive(Debug, Clone, Copy)]
pub struct ByteGemm {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Contiguous bytes of a row of A (per tap).
    pub k: usize,
    /// How many of a row's bytes count, of all taps: others are between them, multiply zeros of B, and are 0 as they are
    /// multiplied (−128 if A's bytes are i8).
    pub terms: usize,
    /// Where the rows of A lie.
    pub rows: AnyRows<u8>,
    /// Where that is simple, how far taps and rows are apart: then few rows are asked where they are.
    pub even: Option<Even>,
    /// Whether A's bytes are i8.
    pub signed: bool,
    /// B in packed panels.
    pub b: *const f32,
    /// The zero point of A.
    pub a_zero: i32,
    /// The zero points of B.
    pub b_zero: ZeroPoints,
    /// The result, row-major: i32, or what the epilogue makes (f32, bytes) at the same address.
    pub c: *mut i32,
    /// Elements from one row of C to the next.
    pub c_stride: usize,
    /// What becomes of the sums.
    pub epilogue: Option<ByteEpilogue>,
    /// What is prefetched while panels are multiplied.
    pub ahead: Ahead,
}

// SAFETY: plain addresses; `run`, which uses them, is unsafe and says what must hold across threads.
unsafe impl Send for ByteGemm {}
// SAFETY: as above.
unsafe impl Sync for ByteGemm {}

/// Rows of the highest tile.
pub(super) const MOST_ROWS: usize = 8;

/// Panels whose columns are kept from one block of rows to the next: what follows on the sums takes some divisions to prepare.
const KEPT: usize = 16;

/// The sums of a tile, between the multiplications and what follows: rows of [`WIDEST`].
#[repr(align(64))]
struct TileSums(MaybeUninit<[i32; MOST_ROWS * WIDEST]>);

impl ByteGemm {
    /// The matmul of some of the rows, which are read at `from`, one behind the other. `size`: bytes of an element of the result.
    pub fn of_rows(&self, rows: Range<usize>, from: *const u8, size: usize) -> ByteGemm {
        let mut part = *self;
        part.m = rows.len();
        part.rows = AnyRows::Matrix(Strided { ptr: from, row_stride: self.k as isize });
        part.c = self.c.cast::<u8>().wrapping_add(rows.start * self.c_stride * size).cast();
        part.epilogue = self.epilogue.map(|e| e.skip(rows.start));
        part
    }

    /// Rows of a task's tiles.
    fn height(&self, isa: Isa) -> usize {
        match isa.kind() {
            IsaKind::Avx512 if self.n > PANEL && self.n <= WIDEST => WIDEST_ROWS,
            IsaKind::Avx512 => MOST_ROWS,
            _ => 4,
        }
    }

    fn tiling(&self, isa: Isa) -> Tiling {
        let height = self.height(isa);
        Tiling {
            // As high as they can be.
            tiles: self.m.div_ceil(height),
            panels: tiles_across(self.n, isa.kind() == IsaKind::Avx512),
            ..Tiling::new(self.m, self.n, self.depth(), height, TileSizes::DEFAULT)
        }
    }

    /// Rows of words in a panel, but for the one of its sums.
    fn depth(&self) -> usize {
        self.k.div_ceil(GROUP) * self.rows.taps()
    }

    /// Into how many tasks the matmul is split: a function of shape and instruction set.
    pub fn tasks(&self, isa: Isa) -> usize {
        self.tiling(isa).tasks()
    }

    /// Computes a range of the tasks.
    ///
    /// # Safety
    /// Every row of A must be readable for `k` bytes per tap, B must be packed for this depth, the zero points and the
    /// epilogue's operands must be there, and the m×n elements of C writable and apart from everything else. No two threads
    /// may run the same task at once.
    pub unsafe fn run(&self, isa: Isa, tasks: Range<usize>) {
        isa.run_vnni(RunTasks { g: self, height: self.height(isa), tiling: self.tiling(isa), tasks });
    }

    /// Starts moving what the columns of a panel are prepared from into the first-level cache, long before the multiplications get there: its
    /// last row and the epilogue's operands.
    #[inline(always)]
    fn fetch_columns<S: Simd>(&self, s: S, panel: usize) {
        let depth = self.depth() + 1;
        fetch_row::<S, VECTORS>(s, self.b.wrapping_add(((panel + 1) * depth - 1) * PANEL));
        if let Some(e) = &self.epilogue {
            e.fetch(s, panel * PANEL);
        }
    }

    /// The sum of each row's bytes as they are multiplied; at most [`MOST_ROWS`] rows.
    ///
    /// # Safety
    /// The rows must be readable for `k` bytes per tap.
    #[inline(always)]
    pub(super) unsafe fn row_sums<S: Simd>(&self, s: S, rows: &Range<usize>) -> [i32; MOST_ROWS] {
        const STEP: usize = LANES * GROUP;
        let (flip, ones) = (if self.signed { FLIP } else { 0 }, s.splat_i(0x0101_0101));
        let flips = s.splat_i(flip as i32);
        let mut sums = [0i32; MOST_ROWS];
        for (sum, row) in sums.iter_mut().zip(rows.clone()) {
            let line = self.rows.tile::<1>(row);
            let mut lanes = s.splat_i(0);
            for tap in 0..self.rows.taps() {
                let [a] = self.rows.pointers::<1>(&line, tap);
                let whole = self.k - self.k % STEP;
                for at in (0..whole).step_by(STEP) {
                    // SAFETY: `at + STEP ≤ whole ≤ k`, and the caller promises k readable bytes from `a` on; loads need no alignment.
                    let bytes = unsafe { s.bits(s.load(a.wrapping_add(at).cast())) };
                    lanes = s.dot_bytes(lanes, s.xor_i(bytes, flips), ones);
                }
                // SAFETY: from `whole` on these are the last of the k bytes that the caller promises, which are only read.
                let rest = unsafe { std::slice::from_raw_parts(a.wrapping_add(whole), self.k - whole) };
                *sum = rest.iter().fold(*sum, |sum, &byte| sum.wrapping_add(i32::from(byte ^ flip as u8)));
            }
            let lanes = s.to_array(s.from_bits(lanes));
            *sum = lanes.iter().fold(*sum, |sum, lane| sum.wrapping_add(lane.to_bits() as i32));
        }
        sums
    }
}

struct RunTasks<'a> {
    g: &'a ByteGemm,
    height: usize,
    tiling: Tiling,
    tasks: Range<usize>,
}

impl Kernel for RunTasks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (g, height, tiling) = (self.g, self.height, self.tiling);
        let depth = g.depth() + 1;
        let mut sums = TileSums(MaybeUninit::uninit());
        let at = sums.0.as_mut_ptr().cast::<i32>();
        let mut kept = [const { None::<TileColumns> }; KEPT];
        let (first, mut stretches) = (self.tasks.start, tiling.stretches(self.tasks));
        let holds = |of: &Option<TileColumns>, first| of.as_ref().is_some_and(|kept| kept.first() == first);
        let mut next = stretches.next();
        while let Some((panel, tiles)) = next {
            next = stretches.next();
            let b = g.b.wrapping_add(panel * depth * PANEL);
            let columns = tiling.columns(panel, g.n);
            // A panel whose columns are kept was read for rows before these.
            let is_new = next.as_ref().is_none_or(|(next, _)| !holds(&kept[next % KEPT], next * PANEL));
            let slot = &mut kept[panel % KEPT];
            let columns = match slot {
                Some(kept) if kept.first() == columns.start => kept,
                // SAFETY: `ByteGemm::run` was promised valid operands.
                _ => slot.insert(unsafe {
                    TileColumns::of(s, g, columns, b.wrapping_add((depth - 1) * PANEL), depth * PANEL)
                }),
            };
            let columns = &*columns;
            let mut ahead = Prefetch::NONE;
            if is_new {
                ahead = g.ahead.prefetch(&tiling, (g.b, depth, g.n), panel, next.as_ref(), first);
                ahead.spread(tiles.len() * (depth - 1));
                if let Some((next, _)) = next {
                    g.fetch_columns(s, next);
                }
            }
            let mut meanwhile = Meanwhile { evenly: ahead.pace(b), ahead, panel: b };
            let most = if columns.vectors() > VECTORS { WIDEST_ROWS } else { height };
            let (mut row, end) = (tiles.start * height, (tiles.end * height).min(g.m));
            while row < end {
                let (rows, height) = run_of_tiles(end - row, most);
                // Sums that wait in memory are those of one tile.
                let in_registers = columns.bytes(g, at, row).is_some();
                let rows = row..row + if in_registers { rows } else { height };
                // SAFETY: as above; tiles cover each element of C once.
                unsafe {
                    tiles_any(s, g, (rows.clone(), height), columns, b, at, &mut meanwhile);
                    if !in_registers {
                        columns.finish(s, &Sums { at, rows: rows.clone(), g });
                    }
                }
                row = rows.end;
            }
        }
    }
}

/// How many of some rows are in tiles of one height, and that height: as high as it can be (`most`), then powers of two, since few heights serve all.
#[inline(always)]
fn run_of_tiles(rows: usize, most: usize) -> (usize, usize) {
    if rows >= most {
        return (rows - rows % most, most);
    }
    let height = 1 << rows.ilog2();
    (height, height)
}

/// What is fetched while a panel is multiplied.
struct Meanwhile {
    ahead: Prefetch,
    evenly: Evenly,
    panel: *const f32,
}

/// Multiplies rows by the columns of a panel, in tiles of 1, 2, 4, 6 or 8 of them; the result is written, or the sums of the only tile are left at
/// `sums`.
///
/// # Safety
/// As [`ByteGemm::run`], for these rows and columns; `b` must be the panel, with sums for a tile at `sums`.
#[inline(always)]
unsafe fn tiles_any<S: Simd>(
    s: S,
    g: &ByteGemm,
    (rows, height): (Range<usize>, usize),
    columns: &TileColumns,
    b: *const f32,
    sums: *mut i32,
    meanwhile: &mut Meanwhile,
) {
    let vecs = columns.vectors();
    macro_rules! heights {
        ($v:literal, $flips:literal, $vector:expr; $($r:literal)*) => {
            match height {
                $($r => s.enter(Tiles::<$r, $v, $flips> {
                    g,
                    rows: rows.clone(),
                    b: b.wrapping_add($vector * LANES),
                    far: columns.far(),
                    starts: columns.starts().wrapping_add($vector * LANES).cast(),
                    bytes: columns.bytes(g, sums, rows.start).map(|tile| tile.from($vector)),
                    sums: sums.wrapping_add($vector * LANES),
                    meanwhile: &mut *meanwhile,
                }),)*
                _ => unreachable!("tiles have 1, 2, 4 or 8 rows, the widest 1, 2, 4 or 6"),
            }
        };
    }
    if const { S::GEMM_VECS == 3 } {
        // In narrow tiles, flipping bytes takes longer than multiplying them.
        match (vecs, g.signed) {
            (4, false) => heights!(4, false, 0; 1 2 4 6),
            (4, true) => heights!(4, true, 0; 1 2 4 6),
            (3, false) => heights!(3, false, 0; 1 2 4 8),
            (3, true) => heights!(3, true, 0; 1 2 4 8),
            (2, false) => heights!(2, false, 0; 1 2 4 8),
            (2, true) => heights!(2, true, 0; 1 2 4 8),
            (_, false) => heights!(1, false, 0; 1 2 4 8),
            (_, true) => heights!(1, true, 0; 1 2 4 8),
        }
    } else {
        for v in 0..vecs {
            heights!(1, true, v; 1 2 4);
        }
    }
}

/// Tiles of R rows × V vectors, one below the other; where A's bytes may be signed, the tiles `FLIPS` their highest bits.
///
/// A call computes many: what is between the multiplications of two tiles is to be less than the processor looks ahead.
struct Tiles<'a, const R: usize, const V: usize, const FLIPS: bool> {
    g: &'a ByteGemm,
    /// A multiple of R.
    rows: Range<usize>,
    b: *const f32,
    /// How far the next panel is behind this one.
    far: usize,
    /// What the sums begin with: i32.
    starts: *const f32,
    /// How the sums of the first tile become bytes here, and then those of the others …
    bytes: Option<FixedTile<'a>>,
    /// … or where those of the only tile are left: rows of [`WIDEST`].
    sums: *mut i32,
    meanwhile: &'a mut Meanwhile,
}

/// Steps between two looks at the end: unrolled further, loads move up and the sums spill.
const STEPS: usize = 16;

impl<const R: usize, const V: usize, const FLIPS: bool> Kernel for Tiles<'_, R, V, FLIPS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // (A copy, which stays in registers.)
        let (g, mut ahead) = (self.g, self.meanwhile.evenly);
        // Before a word is spread over a vector, where other ports do it than those that multiply.
        let flip = if g.signed { FLIP as i32 } else { 0 };
        let spread = |word: i32| s.splat_i(if FLIPS { word ^ flip } else { word });
        let (taps, whole, far) = (g.rows.taps(), g.k / GROUP, self.far);
        // Where the next rows of a line are, and how many it has left.
        let (mut next, mut left) = (std::ptr::null::<u8>(), 0);
        let mut lines = g.rows.tile::<R>(self.rows.start);
        for row in self.rows.clone().step_by(R) {
            self.meanwhile.ahead.check(&mut ahead, self.meanwhile.panel);
            let mut start = [s.splat_i(0); V];
            for v in 0..V {
                // SAFETY: `RunTasks` has starts for the widest tile.
                start[v] = s.bits(unsafe { s.load(self.starts.wrapping_add(v * LANES)) });
            }
            let mut acc = [start; R];
            let mut line = self.b;
            let mut a = first_taps::<R>((&g.rows, g.even), row, &mut lines, (&mut next, &mut left));
            // SAFETY: `ByteGemm::run`'s promises: rows of k bytes for each tap, panels of the whole depth.
            unsafe {
                for tap in 0..taps {
                    if tap > 0 {
                        next_taps::<R>((&g.rows, g.even), tap, &lines, &mut a);
                    }
                    let mut k = 0;
                    while k < whole {
                        let end = (k + STEPS).min(whole);
                        while k < end {
                            fetch_words::<S, V>(s, line, far);
                            let mut b = [s.splat_i(0); V];
                            for v in 0..V {
                                b[v] = s.bits(s.load(line.wrapping_add(vector_at(v, far))));
                            }
                            for r in 0..R {
                                let word = spread(a[r].add(k * GROUP).cast::<i32>().read_unaligned());
                                for v in 0..V {
                                    acc[r][v] = s.dot_bytes(acc[r][v], word, b[v]);
                                }
                            }
                            ahead.step(s);
                            line = line.wrapping_add(PANEL);
                            k += 1;
                        }
                    }
                    if !g.k.is_multiple_of(GROUP) {
                        for r in 0..R {
                            let word = spread(last_word(a[r], g.k) as i32);
                            for v in 0..V {
                                let b = s.bits(s.load(line.wrapping_add(vector_at(v, far))));
                                acc[r][v] = s.dot_bytes(acc[r][v], word, b);
                            }
                        }
                        line = line.wrapping_add(PANEL);
                    }
                }
                match &self.bytes {
                    Some(first) => first.at_row(row).write(s, &acc),
                    None => {
                        for r in 0..R {
                            for v in 0..V {
                                let to = self.sums.wrapping_add(r * WIDEST + v * LANES);
                                s.store(to.cast(), s.from_bits(acc[r][v]));
                            }
                        }
                    }
                }
            }
        }
        self.meanwhile.evenly = ahead;
    }
}

/// The last `k % GROUP` of a row's `k` bytes, and zeros; what those become when flipped meets zeros of B.
///
/// # Safety
/// `k` bytes must be readable from `row` on.
#[inline(always)]
unsafe fn last_word(row: *const u8, k: usize) -> u32 {
    let rest = k % GROUP;
    if k >= GROUP {
        // SAFETY: the caller promises `k` bytes, so the last four are there. (A word is in memory as its bytes from the lowest on.)
        let word = unsafe { row.add(k - GROUP).cast::<u32>().read_unaligned() };
        return word.to_le() >> (8 * (GROUP - rest));
    }
    let mut word = [0u8; GROUP];
    for (i, byte) in word.iter_mut().enumerate().take(rest) {
        // SAFETY: the caller promises so many bytes.
        *byte = unsafe { *row.add(i) };
    }
    u32::from_le_bytes(word)
}

#[cfg(test)]
#[path = "tests_integer.rs"]
mod tests;
