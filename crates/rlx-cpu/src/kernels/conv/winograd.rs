//! Convolutions by Winograd's algorithm ([`crate::gemm::WinogradConv`]): which, and with what operands.
//!
//! Weights that are known before the run are packed for it where bits may change and the algorithm is expected to be faster: it
//! multiplies less, but its weights are 1.8 to 9 times as many bytes, and its tiles reach over the edges of small images. A
//! step reads from the format of its weights how it computes.

use rlx_ir::op::{DataFormat, PackFormat};
use rlx_ir::{DType, Dim, Graph, Node, Op, OpKind, Result, Shape};
use rlx_opt::facts::Users;

use super::{Conv, Shape as Bounds, is_fast, triple};
use crate::formats;
use crate::gemm::{
    self, Filters, Packed, WinogradConv, WinogradTile, WinogradWork, pack_filters, packed_filters,
};
use crate::isa::Isa;
use crate::kernels::matmul::is_packed;
use crate::kernels::{Needs, RunCx, mismatch};
use crate::layout::{At, Bound};

/// Multiplications of f32 in the time that reading a byte of weights takes, from the last cache or memory.
const PER_BYTE: f64 = 9.0;
/// Multiplications of f32 in the time that moving an element of a result to its plane takes, behind the algorithm.
const TRANSPOSING: f64 = 50.0;
/// How much of the direct sum's time the algorithm may be expected to take to be chosen.
const GAIN: f64 = 0.8;
/// Where the size of images is open: pixels along an axis times channels, as in most nets for images of 224 pixels …
const PIXEL_CHANNELS: usize = 56 * 64;
/// … and positions times channels of what has lines only, as in nets for a second of sound.
const LINE_CHANNELS: usize = 1024 * 64;

/// Whether there are weights `[O, I, k…]` to be packed for it.
pub(crate) fn packs(tile: WinogradTile, weights: &Shape) -> bool {
    let windows = weights.static_dims().and_then(|dims| Windows::of(&dims));
    is_packed(weights.dtype()) && windows.is_some_and(|w| w.are_for(tile))
}

/// The windows of a convolution.
#[derive(Debug, Clone, Copy)]
struct Windows {
    /// Filters, channels and frames.
    extents: [usize; 3],
    /// Lines and pixels, how far they go in a step, and how far apart they are.
    window: [usize; 2],
    step: [usize; 2],
    dilation: [usize; 2],
}

impl Windows {
    /// Those of weights, with steps of 1.
    fn of(dims: &[usize]) -> Option<Windows> {
        let (extents, window) = match *dims {
            [filters, channels, x] => ([filters, channels, 1], [1, x]),
            [filters, channels, y, x] => ([filters, channels, 1], [y, x]),
            [filters, channels, frames, y, x] => ([filters, channels, frames], [y, x]),
            _ => return None,
        };
        Some(Windows { extents, window, step: [1; 2], dilation: [1; 2] })
    }

    fn are_for(&self, tile: WinogradTile) -> bool {
        tile.computes(self.window, self.step, self.dilation)
    }

    fn pieces(&self, tile: WinogradTile) -> usize {
        tile.pieces(self.window).iter().product()
    }
}

/// Bytes of weights in a format for the algorithm; `None` if that overflows, or they are for another.
pub(crate) fn packed_bytes(format: PackFormat, dims: &[usize]) -> Option<usize> {
    let (tile, windows) = (formats::winograd_tile(format)?, Windows::of(dims)?);
    let windows = Some(windows).filter(|w| w.are_for(tile))?;
    packed_filters(tile, windows.extents, windows.window)?.checked_mul(4)
}

/// Packs weights of `T`.
pub(crate) fn pack<T: Packed>(
    cx: &mut RunCx<'_, '_>,
    tile: WinogradTile,
    weights: &Bound,
    to: At,
) -> Result<()> {
    let windows = Windows::of(weights.dims()).filter(|w| w.are_for(tile));
    let windows = windows.ok_or_else(|| mismatch(format!("weights {:?} for {tile:?}", weights.dims())))?;
    let Windows { extents, window, .. } = windows;
    let (from, to, isa) = (cx.shared::<T>(weights.at), cx.shared::<f32>(to), cx.isa);
    let given = weights.layout.strides();
    // Those of frames and lines are 0 where there are none.
    let mut strides = [given[0], given[1], 0, 0, 0];
    strides[2 + 5 - given.len()..].copy_from_slice(&given[2..]);
    cx.parallel(true, gemm::panels(extents[0]), &|range, _| {
        let filters = Filters { ptr: from.get().cast_const(), strides, extents, window };
        // SAFETY: the view is within its buffer, the packed buffer was sized for it, and every panel is written once.
        unsafe { pack_filters(isa, tile, &filters, to.get(), range) }
    });
    Ok(())
}

/// The format in which weights are wanted for the algorithm; `None` where the direct sum is as fast, or the form is another.
pub(crate) fn pack_format(
    isa: Isa,
    (node, input): (&Node, usize),
    graph: &Graph,
    users: &Users,
) -> Option<PackFormat> {
    let Op::Conv { strides, dilations, groups: 1, format: DataFormat::ChannelsLast, .. } = &node.op else {
        return None;
    };
    let (x, weights) = (graph.shape(*node.inputs.first()?), graph.shape(*node.inputs.get(1)?));
    let ([over, step @ ..], [apart, dilation @ ..]) = (triple(strides, 1), triple(dilations, 1));
    // Frames far apart would be transformed for one output each.
    let dense = over <= 2 && apart == 1;
    if input != 1 || !is_fast(&node.op, x) || !is_packed(weights.dtype()) || !dense {
        return None;
    }
    let windows = Windows { step, dilation, ..Windows::of(&weights.static_dims()?)? };
    let work = Work::of(isa, &node.shape, windows)?;
    let candidates = formats::WINOGRAD.iter().filter(|(_, tile)| windows.are_for(*tile));
    let times = candidates.map(|&(format, tile)| (format, work.by(tile)));
    let (format, time) = times.min_by(|a, b| a.1.total_cmp(&b.1))?;
    // The direct sum goes from planes to planes.
    let transposed = if is_transposed(node, graph, users) { work.transposing() } else { 0.0 };
    (time + transposed < GAIN * work.directly()).then_some(format)
}

/// Whether the result has its channels first in the end, with nothing but elementwise ops before that.
fn is_transposed<'a>(mut node: &'a Node, graph: &'a Graph, users: &Users) -> bool {
    while let [user] = users[node.id.index()] {
        node = graph.node(user);
        if !node.op.is_elementwise() {
            return node.op.kind() == OpKind::Transpose;
        }
    }
    false
}

/// What there is to compute.
struct Work {
    /// Output frames of all volumes, and lines and pixels of each.
    frames: usize,
    out: [usize; 2],
    windows: Windows,
    /// Bytes of a weight, and multiplications of its type in the time of one of f32.
    size: usize,
    rate: f64,
}

impl Work {
    fn of(isa: Isa, result: &Shape, windows: Windows) -> Option<Work> {
        let dtype = result.dtype();
        // The sum over windows is of products of pairs where the processor has them; the algorithm's are of f32.
        let rate = if dtype == DType::BF16 && isa.multiplies_bf16() { 2.0 } else { 1.0 };
        let (frames, out) = Work::sizes(result, &windows)?;
        Some(Work { frames, out, windows, size: dtype.size_bytes(), rate })
    }

    /// Output frames of all volumes, and lines and pixels of each.
    fn sizes(result: &Shape, windows: &Windows) -> Option<(usize, [usize; 2])> {
        let wide = windows.extents[0].max(windows.extents[1]).max(1);
        let size = |dim: Dim, open: usize| dim.as_static().unwrap_or(open);
        if let &[batch, pixels, _] = result.dims() {
            return Some((size(batch, 1), [1, size(pixels, (LINE_CHANNELS / wide).max(7))]));
        }
        let (&[batch, ref frames @ .., h, w, _], usual) = (result.dims(), (PIXEL_CHANNELS / wide).max(7))
        else {
            return None;
        };
        let frames = frames.iter().map(|&d| size(d, usual)).product::<usize>();
        Some((size(batch, 1) * frames, [size(h, usual), size(w, usual)]))
    }

    /// Multiplications of f32, or the time for reading so many bytes of weights of a filter's channel, which goes on meanwhile.
    fn time(&self, work: f64, bytes: usize) -> f64 {
        let weights = self.windows.extents.iter().map(|&n| n as f64).product::<f64>() * bytes as f64;
        work.max(weights * PER_BYTE)
    }

    /// Positions of the result.
    fn outputs(&self) -> f64 {
        self.frames as f64 * self.out[0] as f64 * self.out[1] as f64
    }

    fn directly(&self) -> f64 {
        let extents = self.windows.extents.iter().map(|&n| n as f64).product::<f64>();
        let taps = self.windows.window.iter().product::<usize>();
        self.time(self.outputs() * taps as f64 * extents / self.rate, taps * self.size)
    }

    fn transposing(&self) -> f64 {
        TRANSPOSING * self.outputs() * self.windows.extents[0] as f64
    }

    fn by(&self, tile: WinogradTile) -> f64 {
        let [filters, channels, frames] = self.windows.extents;
        let work = WinogradWork {
            tile,
            tiles: tile.tiles(self.out, self.windows.dilation[1]),
            pieces: self.windows.pieces(tile),
            dense: self.windows.dilation[1] == 1,
            frames: [frames, self.frames],
            channels,
            filters,
        };
        self.time(work.multiplications(), tile.points() * work.pieces * 4)
    }
}

impl Conv {
    /// What binding asks for, where the algorithm is used: scratch of each thread, and the time.
    pub(super) fn winograd_needs(&self, s: &Bounds, tile: WinogradTile) -> Result<Needs> {
        let conv = self.winograd_conv::<f32>(s, tile);
        // More threads make blocks smaller.
        let scratch = conv.scratch_bytes(&conv.blocks(1));
        let thread_scratch = scratch.ok_or_else(|| mismatch("a convolution that is too large"))?;
        let work = WinogradWork {
            tile,
            tiles: tile.tiles([s.out[1], s.out[2]], self.window.dilation[2]),
            pieces: tile.pieces([s.kernel[1], s.kernel[2]]).iter().product(),
            dense: self.window.dilation[2] == 1,
            frames: [s.kernel[0], s.batch * s.out[0]],
            channels: s.channels,
            filters: s.filters,
        };
        Ok(Needs { thread_scratch, ..Needs::time(work.multiplications() / super::F32_PER_NANO) })
    }

    /// The convolution by its numbers, without addresses.
    fn winograd_conv<T: Packed>(&self, s: &Bounds, tile: WinogradTile) -> WinogradConv<T> {
        let null = std::ptr::null();
        WinogradConv {
            tile,
            volumes: s.batch,
            windows: self.windows(s, null, null),
            channels: s.channels,
            filters: s.filters,
            weights: std::ptr::null(),
            c: std::ptr::null_mut(),
            c_stride: s.c_stride,
            epilogue: gemm::Epilogue::NONE,
            tile_sizes: self.tile_sizes,
            ahead: gemm::Ahead::Panels,
        }
    }

    /// # Safety
    /// As [`crate::kernels::StepKernel::run`]; the operands must be of `T`.
    pub(super) unsafe fn run_winograd<T: Packed>(
        &self,
        cx: &mut RunCx<'_, '_>,
        s: &Bounds,
        tile: WinogradTile,
        zeros: *const T,
    ) {
        let input = cx.ptr::<T>(s.x).cast_const();
        if let Some(planes) = &s.whole.x {
            // SAFETY: the caller's promise; scratch was asked for when the step was bound.
            unsafe { planes.take_all::<T>(cx, s.worth, cx.ptr(s.x)) };
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
            unsafe { planes.put_all::<T>(cx, s.worth, cx.ptr::<T>(s.y)) };
        }
    }
}
