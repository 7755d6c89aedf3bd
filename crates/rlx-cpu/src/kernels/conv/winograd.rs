//! Convolutions by Winograd's algorithm ([`crate::gemm::WinogradConv`]): which, and with what operands.
//!
//! Weights that are known before the run are packed for it where bits may change and the algorithm is expected to be faster: it
//! multiplies less, but its weights are 1.8 or 4 times as many bytes, and its tiles reach over the edges of small images. A
//! step reads from the format of its weights how it computes.

use rlx_ir::op::{DataFormat, PackFormat};
use rlx_ir::{DType, Dim, Graph, Node, Op, Result, Shape};

use super::{Conv, Shape as Bounds, is_fast};
use crate::formats;
use crate::gemm::{self, Filters, WinogradConv, WinogradTile, pack_filters, packed_filters};
use crate::kernels::{Needs, RunCx, mismatch};
use crate::layout::{At, Bound};

/// Multiplications in the time that reading a byte of weights takes, from the last cache or memory.
const PER_BYTE: f64 = 9.0;
/// How much of the direct sum's time the algorithm may be expected to take to be chosen.
const GAIN: f64 = 0.8;
/// Where the size of images is open: pixels along an axis times channels, as in most nets for images of 224 pixels.
const PIXEL_CHANNELS: usize = 56 * 64;

/// Whether there are weights `[O, I, k…, 3, 3]` to be packed.
pub(crate) fn packs(weights: &Shape) -> bool {
    let dims = weights.static_dims().unwrap_or_default();
    weights.dtype() == DType::F32 && matches!(dims.len(), 4 | 5) && dims.ends_with(&[3, 3])
}

/// The extents of weights: filters, channels, frames.
fn extents(dims: &[usize]) -> Option<[usize; 3]> {
    match *dims {
        [filters, channels, 3, 3] => Some([filters, channels, 1]),
        [filters, channels, frames, 3, 3] => Some([filters, channels, frames]),
        _ => None,
    }
}

/// Bytes of weights in a format for the algorithm; `None` if that overflows.
pub(crate) fn packed_bytes(format: PackFormat, dims: &[usize]) -> Option<usize> {
    packed_filters(formats::winograd_tile(format)?, extents(dims)?)?.checked_mul(4)
}

/// Packs weights.
pub(crate) fn pack(cx: &mut RunCx<'_, '_>, tile: WinogradTile, weights: &Bound, to: At) -> Result<()> {
    let extents = extents(weights.dims());
    let extents =
        extents.ok_or_else(|| mismatch(format!("weights {:?} of windows of 3 × 3", weights.dims())))?;
    let (from, to, isa) = (cx.shared::<f32>(weights.at), cx.shared::<f32>(to), cx.isa);
    let given = weights.layout.strides();
    let mut strides = [given[0], given[1], 0, given[given.len() - 2], given[given.len() - 1]];
    if given.len() == 5 {
        strides[2] = given[2];
    }
    cx.parallel(true, gemm::panels(extents[0]), &|range, _| {
        let filters = Filters { ptr: from.get().cast_const(), strides, extents };
        // SAFETY: the view is within its buffer, the packed buffer was sized for it, and every panel is written once.
        unsafe { pack_filters(isa, tile, &filters, to.get(), range) }
    });
    Ok(())
}

/// The format in which weights are wanted for the algorithm; `None` where the direct sum is as fast, or the form is another.
pub(crate) fn pack_format(node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
    let Op::Conv { strides, dilations, groups: 1, format: DataFormat::ChannelsLast, .. } = &node.op else {
        return None;
    };
    let (x, weights) = (graph.shape(*node.inputs.first()?), graph.shape(*node.inputs.get(1)?));
    // Frames far apart would be transformed for one output each.
    let dense = strides.ends_with(&[1, 1]) && strides[0] <= 2 && dilations.iter().all(|&d| d == 1);
    let fits = input == 1 && is_fast(&node.op, x) && packs(weights) && dense;
    let extents = extents(&weights.static_dims()?).filter(|_| fits)?;
    let work = Work::of(&node.shape, extents)?;
    let candidates = [(formats::WINOGRAD_2, WinogradTile::Two), (formats::WINOGRAD_4, WinogradTile::Four)];
    let times = candidates.map(|(format, tile)| (format, work.by(tile)));
    let (format, time) = times.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    (time < GAIN * work.directly()).then_some(format)
}

/// What there is to compute.
struct Work {
    /// Output frames of all volumes, and lines and pixels of each.
    frames: usize,
    out: [usize; 2],
    extents: [usize; 3],
}

impl Work {
    fn of(result: &Shape, extents: [usize; 3]) -> Option<Work> {
        let wide = extents[0].max(extents[1]).max(1);
        let (&[batch, ref frames @ .., h, w, _], usual) = (result.dims(), (PIXEL_CHANNELS / wide).max(7))
        else {
            return None;
        };
        let size = |dim: Dim, open: usize| dim.as_static().unwrap_or(open);
        let frames = frames.iter().map(|&d| size(d, usual)).product::<usize>();
        Some(Work { frames: size(batch, 1) * frames, out: [size(h, usual), size(w, usual)], extents })
    }

    /// Multiplications, or the time for reading so many weights, which goes on meanwhile.
    fn time(&self, work: f64, points: usize) -> f64 {
        let weights = self.extents.iter().product::<usize>() * points * 4;
        work.max(weights as f64 * PER_BYTE)
    }

    fn directly(&self) -> f64 {
        let outputs = self.frames * self.out[0] * self.out[1];
        self.time(outputs as f64 * 9.0 * self.extents.iter().product::<usize>() as f64, 9)
    }

    fn by(&self, tile: WinogradTile) -> f64 {
        let [filters, channels, taps] = self.extents;
        let tiles = tile.tiles(self.out);
        self.time(WinogradConv::work(tile, [taps, self.frames], tiles, [channels, filters]), tile.points())
    }
}

impl Conv {
    /// What binding asks for, where the algorithm is used: scratch of each thread, and the time.
    pub(super) fn winograd_needs(&self, s: &Bounds, tile: WinogradTile) -> Result<Needs> {
        let conv = self.winograd_conv(s, tile);
        // More threads make blocks smaller.
        let scratch = conv.scratch_bytes(&conv.blocks(1));
        let thread_scratch = scratch.ok_or_else(|| mismatch("a convolution that is too large"))?;
        let (frames, tiles) = (s.batch * s.out[0], tile.tiles([s.out[1], s.out[2]]));
        let work = WinogradConv::work(tile, [s.kernel[0], frames], tiles, [s.channels, s.filters]);
        Ok(Needs { thread_scratch, ..Needs::time(work / super::F32_PER_NANO) })
    }

    /// The convolution by its numbers, without addresses.
    fn winograd_conv(&self, s: &Bounds, tile: WinogradTile) -> WinogradConv {
        let null = std::ptr::null();
        WinogradConv {
            tile,
            volumes: s.batch,
            windows: self.windows(s, null, null),
            channels: s.channels,
            filters: s.filters,
            weights: null,
            c: std::ptr::null_mut(),
            c_stride: s.c_stride,
            epilogue: gemm::Epilogue::NONE,
            tile_sizes: self.tile_sizes,
            ahead: gemm::Ahead::Panels,
        }
    }

    /// # Safety
    /// As [`crate::kernels::StepKernel::run`]; the operands must be f32.
    pub(super) unsafe fn run_winograd(
        &self,
        cx: &mut RunCx<'_, '_>,
        s: &Bounds,
        tile: WinogradTile,
        zeros: *const f32,
    ) {
        let input = cx.ptr::<f32>(s.x).cast_const();
        if let Some(planes) = &s.whole.x {
            // SAFETY: the caller's promise; scratch was asked for when the step was bound.
            unsafe { planes.take_all::<f32>(cx, s.worth, cx.ptr(s.x)) };
        }
        let conv = WinogradConv {
            windows: self.windows(s, input, zeros),
            weights: cx.ptr(s.w),
            c: cx.ptr(s.y),
            epilogue: self.epilogue(cx, s, 0),
            ahead: cx.ahead(self.next),
            ..self.winograd_conv(s, tile)
        };
        let (isa, threads) = (cx.isa, if s.worth { cx.pool.threads() } else { 1 });
        let blocks = conv.blocks(threads);
        cx.parallel(s.worth, blocks.count(), &|range, scratch| {
            // SAFETY: the caller's promise; each thread has the scratch that binding asked for.
            unsafe { conv.run(isa, &blocks, range, scratch.cast()) }
        });
        if let Some(planes) = &s.whole.y {
            // SAFETY: as above; the rows were written just now.
            unsafe { planes.put_all::<f32>(cx, s.worth, cx.ptr::<f32>(s.y)) };
        }
    }
}
