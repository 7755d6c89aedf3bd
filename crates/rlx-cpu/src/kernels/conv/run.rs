//! How a bound convolution runs: weights packed if no one has, the image with its border or as rows of channels, then a matmul for each group.

use super::border::Border;
use super::{Conv, Route, Shape};
use crate::gemm::{self, Bias, ConvRows, Epilogue, Gemm, Packed, Rows, Strided};
use crate::kernels::matmul::{packed_bytes, run_gemm};
use crate::kernels::pack::pack_conv;
use crate::kernels::{RunCx, Shared, packed_type};

impl Conv {
    /// Elements of a pixel of the copy with its border: whole groups of the type.
    pub(super) fn bordered_pixel(&self, s: &Shape) -> usize {
        packed_type!(self.dtype, T => s.channels.next_multiple_of(T::GROUP), _ => s.channels)
    }

    /// Bytes of the packed weights of one group.
    pub(super) fn group_bytes(&self, s: &Shape) -> Option<usize> {
        let tap = packed_bytes(self.dtype, s.channels, s.filters)?;
        tap.checked_mul(s.kernel.iter().product())
    }

    /// # Safety
    /// As [`StepKernel::run`]; the operands must be of `T`, and `zeros` as many as there are channels.
    pub(super) unsafe fn run_as<T: Packed>(&self, cx: &mut RunCx<'_, '_>, s: &Shape, zeros: *const T) {
        // SAFETY: the caller's promise.
        unsafe {
            let weights = self.weights_at::<T>(cx, s);
            self.copy_image::<T>(cx, s);
            let words = self.group_bytes(s).unwrap_or(0) / 4;
            for group in 0..self.groups {
                let b = weights.get().wrapping_add(group * words);
                self.product::<T>(cx, s, group, b, zeros);
            }
            if let Some(planes) = &s.whole.y {
                planes.put_all::<T>(cx, s.worth, cx.ptr::<T>(s.y));
            }
        }
    }

    /// Copies the image to scratch, in the form that windows are read in.
    ///
    /// # Safety
    /// As [`Conv::run_as`].
    pub(super) unsafe fn copy_image<T: Packed>(&self, cx: &mut RunCx<'_, '_>, s: &Shape) {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(planes) = &s.whole.x {
                planes.take_all::<T>(cx, s.worth, cx.ptr(s.x));
            }
            if s.route == Route::Bordered {
                let (pixel, zeros) = (self.bordered_pixel(s), [T::zero(); 2]);
                self.copy_with_border::<T>(cx, s, s.parts[0], pixel, Border::Sides, zeros);
            }
        }
    }

    /// Where the packed weights are; packs them now if no one has.
    ///
    /// # Safety
    /// As [`Conv::run_as`].
    pub(super) unsafe fn weights_at<T: Packed>(&self, cx: &mut RunCx<'_, '_>, s: &Shape) -> Shared<f32> {
        if s.packed {
            return cx.shared(s.w);
        }
        let to = Shared::new(cx.shared_scratch.wrapping_add(s.parts[0] + s.parts[1]).cast::<f32>());
        let from = cx.shared::<T>(s.w);
        let (groups, panels) = (self.groups, gemm::panels(s.filters));
        let per_group = self.group_bytes(s).unwrap_or(0) / 4;
        cx.parallel(s.worth, groups * panels, &|range, _| {
            for unit in range {
                let (group, panel) = (unit / panels, unit % panels);
                let to = to.get().wrapping_add(group * per_group);
                let rows = group * s.filters..(group + 1) * s.filters;
                // SAFETY: the view is within its buffer; panels are disjoint.
                unsafe { pack_conv(from.get().cast_const(), &s.weights, rows, to, panel..panel + 1) }
            }
        });
        to
    }

    pub(super) fn epilogue<T>(&self, cx: &RunCx<'_, '_>, s: &Shape, group: usize) -> Epilogue<T> {
        let mut epilogue = self.tail.epilogue::<T>(cx);
        if let Some(at) = s.bias {
            epilogue.bias = Bias::OfSum(cx.ptr(at));
        }
        if let Bias::PerColumn(p) | Bias::OfSum(p) = &mut epilogue.bias {
            *p = p.wrapping_add(group * s.filters);
        }
        if let Some(combine) = &mut epilogue.combine {
            combine.ptr = combine.ptr.wrapping_add(group * s.filters);
        }
        epilogue
    }

    /// The windows of a group's input channels.
    pub(super) fn windows<T>(&self, s: &Shape, input: *const T, zeros: *const T) -> ConvRows<T> {
        ConvRows {
            input,
            zeros,
            size: s.size,
            strides: [s.strides[1], s.strides[2], s.strides[3]],
            volume_stride: s.strides[0],
            out: s.out,
            kernel: s.kernel,
            stride: self.window.stride,
            dilation: self.window.dilation,
            pad: self.window.before,
            first: 0,
        }
    }

    /// The matmul of a group's filters with these rows.
    pub(super) fn gemm<R: Rows<Element: Packed>>(
        &self,
        cx: &RunCx<'_, '_>,
        s: &Shape,
        group: usize,
        b: *const f32,
        rows: R,
    ) -> Gemm<R> {
        Gemm {
            m: s.batch * s.out.iter().product::<usize>(),
            n: s.filters,
            k: s.channels,
            rows,
            b,
            c: cx.ptr::<R::Element>(s.y).wrapping_add(group * s.filters),
            c_stride: s.c_stride,
            epilogue: self.epilogue(cx, s, group),
            tile_sizes: self.tile_sizes,
            ahead: cx.ahead(self.next),
            wide: None,
        }
    }

    /// Computes the filters of a group.
    ///
    /// # Safety
    /// As [`Conv::run_as`]; `b` must be the group's packed weights.
    unsafe fn product<T: Packed>(
        &self,
        cx: &mut RunCx<'_, '_>,
        s: &Shape,
        group: usize,
        b: *const f32,
        zeros: *const T,
    ) {
        // SAFETY: the caller's promise: windows are within the image or read the zeros.
        unsafe {
            match s.route {
                Route::Im2col | Route::Direct => unreachable!("they have ways of their own"),
                Route::Matmul(row_stride) => {
                    let input = cx.ptr::<T>(s.x).wrapping_add(group * s.channels).cast_const();
                    let rows = Strided { ptr: input, row_stride };
                    let gemm = self.gemm(cx, s, group, b, rows);
                    self.multiply(cx, s, &gemm);
                }
                Route::Windows | Route::Bordered => {
                    let gemm = self.of_windows(cx, s, group, b, zeros);
                    self.multiply(cx, s, &gemm);
                }
            }
        }
    }

    /// The matmul of a group's filters with the windows of the image, or of its copy with its border.
    pub(super) fn of_windows<T: Packed>(
        &self,
        cx: &RunCx<'_, '_>,
        s: &Shape,
        group: usize,
        b: *const f32,
        zeros: *const T,
    ) -> Gemm<ConvRows<T>> {
        let input = cx.ptr::<T>(s.x).wrapping_add(group * s.channels).cast_const();
        let windows = self.windows(s, input, zeros);
        if s.route != Route::Bordered {
            return self.gemm(cx, s, group, b, windows);
        }
        let [h, w] = self.bordered(s, Border::Sides);
        let c = self.bordered_pixel(s);
        let rows = ConvRows {
            input: cx.shared_scratch.wrapping_add(s.parts[0]).cast_const().cast(),
            size: [s.size[0], h, w],
            strides: [h * w * c, w * c, c],
            volume_stride: s.size[0] * h * w * c,
            kernel: [s.kernel[0], s.kernel[1], 1],
            pad: [windows.pad[0], windows.pad[1], 0],
            ..windows
        };
        Gemm { k: s.kernel[2] * c, ..self.gemm(cx, s, group, b, rows) }
    }

    /// Computes a matmul.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    unsafe fn multiply<R: Rows<Element: Packed>>(&self, cx: &mut RunCx<'_, '_>, s: &Shape, gemm: &Gemm<R>) {
        // SAFETY: the caller's promise; scratch was asked for when the step was bound.
        unsafe {
            if s.ends.is_none() { run_gemm(cx, cx.isa, s.worth, gemm) } else { self.by_blocks(cx, s, gemm) }
        }
    }
}
