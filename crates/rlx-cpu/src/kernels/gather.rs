//! `Gather` and `GatherNd`: slices read at positions that are data.
//!
//! Slices are copied as bytes: the table is never packed or walked, so its size costs nothing.

use rlx_ir::{Op, Result};

use super::elementwise::sized;
pub(crate) use super::indices::claim;
use super::indices::{Indices, Misses};
use super::moves::RowCopy;
use super::transpose::Cell;
use super::{BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::isa::{Isa, Kernel};
use crate::layout::{At, Bound, Layout, collapse};
use crate::simd::{LANES, Simd};
use crate::stores::{LINE, Stores};

/// Longer slices, in bytes, are fetched before their turn.
const LONG: usize = 64;

/// How many long slices are looked up at a time.
const STARTS: usize = 256;

/// Blocks of a table for which it is worth finding out first what the indices mean.
const SEVERAL: usize = 4;

/// The kernel of a gather of slices.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::Gather { axis } => Ok(Box::new(Slices { axis, batch_dims: None, ..Slices::EMPTY })),
        Op::GatherNd { batch_dims } => Ok(Box::new(Slices { batch_dims: Some(batch_dims), ..Slices::EMPTY })),
        ref op => Err(no_kernel(op, "it is no gather")),
    }
}

/// How the slices of a table are addressed: `Gather` and `GatherNd`.
///
/// Block `b` of the result (batch index, or index of the dimensions before the axis) begins at `blocks.at(b)`
/// of the table; each of its `rows` slices is addressed by `count` indices into `axes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    /// The dimensions before the addressed ones.
    pub(crate) blocks: Layout,
    /// The addressed dimensions.
    pub(crate) axes: Layout,
    /// The number of the first addressed dimension.
    pub(crate) first_axis: usize,
    /// Slices of each block.
    pub(crate) rows: usize,
    /// Whether each block has indices of its own.
    pub(crate) own_indices: bool,
    /// Elements of a slice.
    pub(crate) len: usize,
}

impl Addresses {
    const EMPTY: Addresses = Addresses {
        blocks: Layout::SCALAR,
        axes: Layout::SCALAR,
        first_axis: 0,
        rows: 0,
        own_indices: false,
        len: 0,
    };

    /// Addresses of dense `x` by `rows` of indices into the dimensions from `first` to `first + count`.
    pub(crate) fn new(x: &Bound, first: usize, count: usize, rows: usize, own_indices: bool) -> Addresses {
        let (l, rank) = (x.layout, x.layout.rank());
        let len = l.range(first + count, rank).elements();
        let mut blocks = [l.range(0, first)];
        collapse(&mut blocks);
        Addresses {
            blocks: blocks[0],
            axes: l.range(first, first + count),
            first_axis: first,
            rows,
            own_indices,
            len,
        }
    }

    /// How many indices address a slice.
    pub(crate) fn count(&self) -> usize {
        self.axes.rank()
    }

    /// Where slice `row` of all blocks begins; the number of the index that is out of range otherwise.
    ///
    /// # Safety
    /// The indices must be readable.
    #[inline(always)]
    pub(crate) unsafe fn place(&self, indices: &Indices, row: usize) -> Result<isize, usize> {
        let (block, own) =
            if self.blocks.rank() == 0 { (0, row) } else { (row / self.rows, row % self.rows) };
        let first = if self.own_indices { row } else { own } * self.count();
        let mut place = self.blocks.at(block);
        for i in 0..self.count() {
            // SAFETY: the caller's promise.
            let index = unsafe { indices.place(first + i, self.axes.dims()[i]) };
            place += index.ok_or(first + i)? as isize * self.axes.strides()[i];
        }
        Ok(place)
    }

    /// The axis that index number `i` is for, and its size.
    pub(crate) fn axis_of(&self, i: usize) -> (usize, usize) {
        let own = i % self.count().max(1);
        (self.first_axis + own, self.axes.dims().get(own).copied().unwrap_or(0))
    }
}

/// `Gather` and `GatherNd`.
#[derive(Debug, Clone, Copy)]
struct Slices {
    axis: usize,
    /// Of `GatherNd`.
    batch_dims: Option<usize>,
    table: Option<Bound>,
    indices: Option<Bound>,
    out: At,
    addresses: Addresses,
    tasks: usize,
    /// Whether what the indices mean is found once, in shared scratch, for several blocks.
    shared: bool,
    worth: bool,
}

impl Slices {
    const EMPTY: Slices = Slices {
        axis: 0,
        batch_dims: None,
        table: None,
        indices: None,
        out: At::NOWHERE,
        addresses: Addresses::EMPTY,
        tasks: 0,
        shared: false,
        worth: false,
    };
}

impl StepKernel for Slices {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, indices, out) = (cx.inputs[0], cx.inputs[1], cx.outputs[0]);
        self.addresses = match self.batch_dims {
            None => Addresses::new(&x, self.axis, 1, indices.layout.elements(), false),
            Some(batch) => {
                let rank = indices.layout.rank();
                let count = *indices.dims().last().ok_or_else(|| mismatch("indices without a dimension"))?;
                if batch + count > x.layout.rank()
                    || batch >= rank
                    || x.dims()[..batch] != indices.dims()[..batch]
                {
                    return Err(mismatch(format!(
                        "slices of {:?} by indices {:?}",
                        x.dims(),
                        indices.dims()
                    )));
                }
                let rows = indices.layout.range(batch, rank - 1).elements();
                Addresses::new(&x, batch, count, rows, true)
            }
        };
        let a = &self.addresses;
        self.tasks = a.blocks.elements() * a.rows;
        if self.tasks * a.len != out.layout.elements() {
            return Err(mismatch(format!("a result {:?} of slices of {:?}", out.dims(), x.dims())));
        }
        // Slices without elements need none of the indices, in range or not.
        if a.len == 0 {
            self.tasks = 0;
        }
        (self.table, self.indices, self.out) = (Some(x), Some(indices), out.at);
        let nanos = self.tasks as f64 * (1.0 + (a.len * x.dtype.size_bytes()) as f64 * 0.05);
        self.worth = nanos > WORTH_NANOS;
        let size = a.axes.dims().first().copied().unwrap_or(0);
        let shared = a.count() == 1 && !a.own_indices && u32::try_from(size).is_ok();
        let bytes = a.rows.checked_mul(size_of::<u32>()).filter(|_| shared && a.blocks.elements() >= SEVERAL);
        self.shared = bytes.is_some();
        Ok(Needs { shared_scratch: bytes.unwrap_or(0), ..Needs::time(nanos) })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let (Some(table), Some(indices)) = (self.table, self.indices) else { return Err(unbound()) };
        let (a, word) = (self.addresses, table.dtype.size_bytes());
        let bytes = a.len * word;
        let indices = Indices::new(cx.ptr(indices.at), indices.dtype);
        if self.shared && self.tasks > 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.blocks(cx, &indices, &table) };
        }
        let (from, to, misses) = (cx.shared::<u8>(table.at), cx.shared::<u8>(self.out), Misses::none());
        let (isa, step) = (cx.isa, word as isize);
        cx.parallel(self.worth, self.tasks, &|range, _| {
            if bytes <= LONG {
                for row in range {
                    // SAFETY: indices and operands are the caller's promise; a place is within the table, rows of
                    // the result are disjoint.
                    unsafe {
                        match a.place(&indices, row) {
                            Ok(place) => {
                                let from = from.get().wrapping_offset(place * step).cast_const();
                                copy_bytes(from, to.get().wrapping_add(row * bytes), bytes);
                            }
                            Err(miss) => return misses.note(miss),
                        }
                    }
                }
                return;
            }
            for first in range.clone().step_by(STARTS) {
                let mut places = [0i64; STARTS];
                let places = &mut places[..STARTS.min(range.end - first)];
                for (i, found) in places.iter_mut().enumerate() {
                    // SAFETY: as above.
                    match unsafe { a.place(&indices, first + i) } {
                        Ok(place) => *found = place as i64,
                        Err(miss) => return misses.note(miss),
                    }
                }
                let (from, to) = (from.get().cast_const(), to.get().wrapping_add(first * bytes));
                isa.run(Long { from, stride: step, places, to, bytes });
            }
        });
        // SAFETY: as above.
        unsafe { misses.check(&indices, |i| a.axis_of(i)) }
    }
}

impl Slices {
    /// Looks at each index once, and then gathers the same slices of all blocks.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; the shared scratch has room for a place of each index.
    unsafe fn blocks(&self, cx: &mut RunCx<'_, '_>, indices: &Indices, table: &Bound) -> Result<()> {
        let (a, word) = (self.addresses, table.dtype.size_bytes());
        let stride = a.axes.strides()[0] * word as isize;
        let places = Shared::new(cx.shared_scratch.cast::<u32>());
        // SAFETY: as above; all places are written.
        let times = unsafe { resolve(indices, a.rows, places.get(), |i| a.axis_of(i))? };
        let (from, to, bytes) = (cx.shared::<u8>(table.at), cx.shared::<u8>(self.out), a.len * word);
        let isa = cx.isa;
        cx.parallel(self.worth, self.tasks, &|range, _| {
            let (mut block, mut row, mut task) = (range.start / a.rows, range.start % a.rows, range.start);
            while task < range.end {
                let n = (a.rows - row).min(range.end - task);
                let to = to.get().wrapping_add(task * bytes);
                // SAFETY: places are within the table, and rows of the result are disjoint.
                unsafe {
                    let from = from.get().wrapping_offset(a.blocks.at(block) * word as isize).cast_const();
                    let places = std::slice::from_raw_parts(places.get().add(row), n);
                    line(isa, times, (from, stride), places, row, (to, bytes));
                }
                (block, row, task) = (block + 1, 0, task + n);
            }
        });
        Ok(())
    }
}

/// Writes the places that `rows` indices mean into an axis that `axis_of` says the number and the size of; how many times each occurs, if
/// [that is regular](repeats).
///
/// # Safety
/// The indices must be readable, and `places` writable for as many.
pub(super) unsafe fn resolve(
    indices: &Indices,
    rows: usize,
    places: *mut u32,
    axis_of: impl Fn(usize) -> (usize, usize),
) -> Result<Option<usize>> {
    let (misses, size) = (Misses::none(), axis_of(0).1);
    // SAFETY: the caller's promise; all places were written where there is no miss.
    unsafe {
        for i in 0..rows {
            match indices.place(i, size) {
                Some(place) => places.add(i).write(place as u32),
                None => {
                    misses.note(i);
                    break;
                }
            }
        }
        misses.check(indices, axis_of)?;
        Ok(repeats(std::slice::from_raw_parts(places, rows)))
    }
}

/// Copies the slices at `places`, which begin with number `row` of those that occur so many `times` each and are `stride` bytes apart, one behind the
/// other.
///
/// # Safety
/// As [`pick`].
pub(super) unsafe fn line(
    isa: Isa,
    times: Option<usize>,
    (from, stride): (*const u8, isize),
    places: &[u32],
    row: usize,
    (to, bytes): (*mut u8, usize),
) {
    // SAFETY: the caller's promise.
    unsafe {
        match times {
            Some(1) => {
                let first = from.wrapping_offset(places[0] as isize * stride);
                std::ptr::copy_nonoverlapping(first, to, places.len() * bytes);
            }
            Some(2) if bytes == stride as usize => twice(isa, from, places, row % 2, to, bytes),
            _ => pick(isa, from, stride, places, to, bytes),
        }
    }
}

/// How many times each place occurs, if they are neighbours that all occur as often (the last one at most as often).
fn repeats(places: &[u32]) -> Option<usize> {
    let &first = places.first()?;
    let times = places.iter().take_while(|&&p| p == first).count();
    let regular = places.iter().enumerate().all(|(i, &p)| p as usize == first as usize + i / times);
    regular.then_some(times)
}

/// Copies neighbours that occur twice each, in vectors; `skip` copies of the first one are already there.
///
/// # Safety
/// As [`pick`].
unsafe fn twice(isa: Isa, from: *const u8, places: &[u32], skip: usize, to: *mut u8, bytes: usize) {
    let stride = bytes as isize;
    let (lead, rest) = places.split_at(skip.min(places.len()));
    let (pairs, last) = rest.split_at(rest.len() / 2 * 2);
    // SAFETY: the caller's promise; the pairs begin with the first copy of a neighbour.
    unsafe {
        pick(isa, from, stride, lead, to, bytes);
        if let Some(&first) = pairs.first() {
            let start = from.wrapping_offset(first as isize * stride);
            let to = to.wrapping_add(lead.len() * bytes);
            let n = pairs.len() / 2;
            match bytes {
                1 => isa.run(Doubled { from: start, to, n }),
                2 => isa.run(Doubled { from: start.cast::<u16>(), to: to.cast(), n }),
                4 => isa.run(Doubled { from: start.cast::<u32>(), to: to.cast(), n }),
                _ => pick(isa, from, stride, pairs, to, bytes),
            }
        }
        pick(isa, from, stride, last, to.wrapping_add((lead.len() + pairs.len()) * bytes), bytes);
    }
}

/// Each of `n` elements twice.
struct Doubled<T> {
    from: *const T,
    to: *mut T,
    n: usize,
}

impl<T: Cell> Kernel for Doubled<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Doubled { from, to, n } = self;
        // SAFETY: `twice` was promised the elements and room for two of each.
        unsafe { double::<S, T, 1, false>(s, from, [to], n) }
    }
}

/// Writes each of `n` elements twice to all of `N` lines, past the caches if `PAST`.
///
/// # Safety
/// The elements must be readable, and each line writable for `2·n` and apart from the others. If `PAST`, a vector must have a line of memory, at which each
/// line begins, and nothing may read them before [`fence`](crate::stores::fence).
#[inline(always)]
unsafe fn double<S: Simd, T: Cell, const N: usize, const PAST: bool>(
    s: S,
    from: *const T,
    to: [*mut T; N],
    n: usize,
) {
    for i in (0..n).step_by(LANES) {
        let n = LANES.min(n - i);
        // SAFETY: the caller's promise.
        unsafe {
            let x = T::load(s, from.add(i), n);
            let (low, high) = s.zip(x, x);
            for to in to {
                let to = to.add(2 * i);
                if PAST && n == LANES {
                    s.store_non_temporal(to.cast(), low);
                    s.store_non_temporal(to.add(LANES).cast(), high);
                    continue;
                }
                T::store(s, to, LANES.min(2 * n), low);
                if 2 * n > LANES {
                    T::store(s, to.add(LANES), 2 * n - LANES, high);
                }
            }
        }
    }
}

/// Rows of `width` elements, of which each becomes two of twice as many: an image enlarged by the nearest element.
struct DoubledRows<T> {
    from: *const T,
    to: *mut T,
    rows: usize,
    width: usize,
    stores: Stores,
}

impl<T: Cell> Kernel for DoubledRows<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let DoubledRows { from, to, rows, width, stores } = self;
        let whole = LANES * size_of::<T>() == LINE
            && to.align_offset(LINE) == 0
            && (2 * width * size_of::<T>()).is_multiple_of(LINE);
        let past = stores == Stores::NonTemporal && whole;
        for row in 0..rows {
            let (from, to) = (from.wrapping_add(row * width), to.wrapping_add(row * 4 * width));
            let to = [to, to.wrapping_add(2 * width)];
            // SAFETY: `double_rows` was promised the rows and room for what they become; past the caches, all begin at a line of memory.
            unsafe {
                if past {
                    double::<S, T, 2, true>(s, from, to, width);
                } else {
                    double::<S, T, 2, false>(s, from, to, width);
                }
            }
        }
    }
}

/// Whether [`double_rows`] has code for elements of so many bytes.
pub(super) fn doubles(bytes: usize) -> bool {
    matches!(bytes, 1 | 2 | 4)
}

/// Doubles `rows` neighbouring rows of `width` elements of `bytes` along both axes.
///
/// # Safety
/// The rows must be readable, and `to` writable for four times as much and apart from them. Unless they are stored by way of the caches, nothing may read them
/// before [`fence`](crate::stores::fence).
pub(super) unsafe fn double_rows(
    isa: Isa,
    from: *const u8,
    to: *mut u8,
    (rows, width): (usize, usize),
    bytes: usize,
    stores: Stores,
) {
    match bytes {
        1 => isa.run(DoubledRows { from, to, rows, width, stores }),
        2 => isa.run(DoubledRows { from: from.cast::<u16>(), to: to.cast(), rows, width, stores }),
        _ => isa.run(DoubledRows { from: from.cast::<u32>(), to: to.cast(), rows, width, stores }),
    }
}

/// [`pick`]s slices of one value each, which need not be aligned.
///
/// # Safety
/// As [`pick`], for slices of one `T`.
#[inline(always)]
pub(super) unsafe fn pick_each<T: Copy>(from: *const u8, stride: isize, places: &[u32], to: *mut u8) {
    for (i, &place) in places.iter().enumerate() {
        let from = from.wrapping_offset(place as isize * stride).cast::<T>();
        // SAFETY: the caller's promise.
        unsafe { to.cast::<T>().add(i).write_unaligned(from.read_unaligned()) };
    }
}

/// Copies the slices at `places`, which are `stride` bytes apart, one behind the other.
///
/// # Safety
/// All slices must be readable, `to` writable for them, and apart from them.
pub(super) unsafe fn pick(
    isa: Isa,
    from: *const u8,
    stride: isize,
    places: &[u32],
    to: *mut u8,
    bytes: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (bytes, stride) {
            // The stride is a scale of the address.
            (2, 2) => pick_each::<u16>(from, 2, places, to),
            (4, 4) => pick_each::<u32>(from, 4, places, to),
            (8, 8) => pick_each::<u64>(from, 8, places, to),
            (1, _) => pick_each::<u8>(from, stride, places, to),
            (2, _) => pick_each::<u16>(from, stride, places, to),
            (4, _) => pick_each::<u32>(from, stride, places, to),
            (8, _) => pick_each::<u64>(from, stride, places, to),
            (16, _) => pick_each::<[u64; 2]>(from, stride, places, to),
            (32, _) => pick_each::<[u64; 4]>(from, stride, places, to),
            (64, _) => pick_each::<[u64; 8]>(from, stride, places, to),
            _ => isa.run(Long { from, stride, places, to, bytes }),
        }
    }
}

/// Slices that lie apart in memory. No stride leads from one to the next, so that the processor does not fetch them by itself: their first
/// lines are fetched while slices before them are copied.
struct Long<'a, P> {
    from: *const u8,
    /// Bytes from one place to the next.
    stride: isize,
    places: &'a [P],
    to: *mut u8,
    bytes: usize,
}

impl<P> Long<'_, P> {
    /// Bytes that are fetched before they are copied.
    const AHEAD: usize = 2048;
    /// The most lines of 64 bytes of one slice; the processor finds the others by those.
    const LINES: usize = 8;
}

impl<P: Copy + Into<i64>> Kernel for Long<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Long { from, stride, places, to, bytes } = self;
        let (ahead, lines) = ((Self::AHEAD / bytes.max(1)).max(1), bytes.div_ceil(64).min(Self::LINES));
        let row = RowCopy::of(bytes);
        for (i, &place) in places.iter().enumerate() {
            if let Some(&next) = places.get(i + ahead) {
                let next = from.wrapping_offset(next.into() as isize * stride);
                for line in 0..lines {
                    s.prefetch_l1(next.wrapping_add(line * 64).cast());
                }
            }
            let from = from.wrapping_offset(place.into() as isize * stride);
            // SAFETY: who runs this was promised the slices, and room for them.
            unsafe { row.copy(s, from, to.wrapping_add(i * bytes)) };
        }
    }
}

/// Copies a slice; short ones without a call.
///
/// # Safety
/// Both must be valid for `bytes`, and apart.
#[inline(always)]
pub(super) unsafe fn copy_bytes(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            1 | 2 | 4 | 8 => {
                sized!(bytes, T => to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned()))
            }
            _ => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_occur_alike_are_found() {
        assert_eq!(repeats(&[]), None);
        assert_eq!(repeats(&[3, 4, 5]), Some(1));
        assert_eq!(repeats(&[3, 3, 4, 4, 5]), Some(2));
        assert_eq!(repeats(&[0, 0, 0]), Some(3));
        assert_eq!(repeats(&[0, 0, 1, 2, 2]), None);
        assert_eq!(repeats(&[1, 0]), None);
    }

    #[test]
    fn doubled_elements_are_those_picked_one_by_one() {
        let table: Vec<u8> = (0..=255).collect();
        for isa in Isa::available() {
            for bytes in [1, 2, 4, 8] {
                for (n, skip) in [(1, 0), (1, 1), (2, 0), (15, 1), (32, 0), (33, 0), (50, 1)] {
                    let places: Vec<u32> = (0..n).map(|i| (2 + (i + skip) / 2) as u32).collect();
                    let (mut got, mut want) = (vec![0u8; n * bytes + 1], vec![0u8; n * bytes + 1]);
                    // SAFETY: the table holds all places, and there is room.
                    unsafe {
                        twice(isa, table.as_ptr(), &places, skip, got.as_mut_ptr(), bytes);
                        pick(isa, table.as_ptr(), bytes as isize, &places, want.as_mut_ptr(), bytes);
                    }
                    assert_eq!(got, want, "{isa} {bytes} {n} {skip}");
                }
            }
        }
    }
}
