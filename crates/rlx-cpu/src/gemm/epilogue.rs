//! What is done to each element of the matmul before it is written.

use std::mem::MaybeUninit;

use super::element::Packed;
use super::panels::{VECTORS, lanes_of};
use crate::math::{self, Light, Unary, bounds};
use crate::simd::{LANES, Simd};

/// `act(α·x + bias ⊕ operand)`, or `act(α·x + bias) ⊕ operand`, rounded to the result's type after each of them.
#[derive(Debug, Clone, Copy)]
pub struct Epilogue<T = f32> {
    /// A factor; 1 costs nothing.
    pub alpha: f32,
    /// Added after the factor.
    pub bias: Bias<T>,
    /// Another matrix of C's shape, added or multiplied.
    pub combine: Option<Combine<T>>,
    /// The activation.
    pub activation: Option<Unary>,
}

/// A vector added to each row or column.
#[derive(Debug, Clone, Copy)]
pub enum Bias<T = f32> {
    /// None.
    None,
    /// One value per column of C.
    PerColumn(*const T),
    /// One value per column of C that belongs to the sum, which is not rounded before.
    OfSum(*const T),
    /// One value per row of C.
    PerRow(*const T),
}

/// A matrix combined with the result: a residual, or a gate.
#[derive(Debug, Clone, Copy)]
pub struct Combine<T = f32> {
    /// Its first element.
    pub ptr: *const T,
    /// Elements from one row to the next; 0 repeats one row.
    pub row_stride: usize,
    /// How.
    pub op: BinaryOp,
    /// After the activation rather than before.
    pub after: bool,
}

/// How two matrices are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryOp {
    /// x + y.
    Add,
    /// x · y.
    Mul,
}

impl<T> Epilogue<T> {
    /// The matmul as it is.
    pub const NONE: Self = Epilogue { alpha: 1.0, bias: Bias::None, combine: None, activation: None };

    /// Whether the matmul is left as it is.
    #[inline(always)]
    pub fn is_none(&self) -> bool {
        let Epilogue { alpha, bias, combine, activation } = self;
        *alpha == 1.0 && matches!(bias, Bias::None) && combine.is_none() && activation.is_none()
    }

    /// With one bias per column.
    pub const fn bias(ptr: *const T) -> Self {
        Epilogue { bias: Bias::PerColumn(ptr), ..Self::NONE }
    }

    /// With an activation.
    pub const fn with(self, activation: Unary) -> Self
    where
        T: Copy,
    {
        Epilogue { activation: Some(activation), ..self }
    }
}

/// A tile's sums, one row of whole vectors behind the other.
pub(super) type Sums<const R: usize, const V: usize> = [[[f32; LANES]; V]; R];

/// Whether [`finish_in_registers`] takes this epilogue: what most matmuls end with.
#[inline(always)]
pub(super) fn is_light<O: Packed>(e: &Epilogue<O>) -> bool {
    e.alpha == 1.0
}

/// A block for each row of a tile, where the row's number is a constant: sums that are touched by constant indices only stay in registers.
macro_rules! each_row {
    ($rows:ident, $r:ident => $body:block) => { each_row!($rows, $r => $body; 0 1 2 3 4 5 6 7 8) };
    ($rows:ident, $r:ident => $body:block; $($number:literal)*) => {
        $(if const { $number < $rows } {
            #[allow(non_upper_case_globals)]
            const $r: usize = $number;
            $body
        })*
    };
}
pub(crate) use each_row;

/// An epilogue of few instructions, for the tiles from a row and a column on. It rounds where [`finish_in_registers`] does.
#[derive(Clone, Copy)]
pub(super) struct ShortEpilogue<T> {
    /// Added, for each column.
    bias: Option<*const T>,
    /// Whether sums are rounded before.
    rounds: bool,
    /// Added, for each element; elements to the next row.
    residual: Option<(*const T, usize)>,
    /// The smallest and the largest result.
    bounds: Option<(f32, f32)>,
}

impl<T: Packed> ShortEpilogue<T> {
    /// What an epilogue does to the tiles from (row, col) on, if it is of this kind.
    #[inline(always)]
    pub(super) fn of(e: &Epilogue<T>, row: usize, col: usize) -> Option<Self> {
        let bias = match e.bias {
            Bias::None => None,
            Bias::PerColumn(p) | Bias::OfSum(p) => Some(p.wrapping_add(col)),
            Bias::PerRow(_) => return None,
        };
        let residual = match e.combine {
            None => None,
            Some(with) if with.op == BinaryOp::Add && !with.after => {
                Some((with.ptr.wrapping_add(row * with.row_stride + col), with.row_stride))
            }
            Some(_) => return None,
        };
        let bounds = match e.activation {
            None => None,
            Some(function) => Some(bounds(function)?),
        };
        let rounds = const { T::GROUP != 1 } && !matches!(e.bias, Bias::OfSum(_));
        (e.alpha == 1.0).then_some(ShortEpilogue { bias, rounds, residual, bounds })
    }

    /// Makes results of the sums of the tile from `row` on, still in f32.
    ///
    /// # Safety
    /// There must be a bias for `width` columns, up to V vectors, and a residual for so many in each row.
    #[inline(always)]
    pub(super) unsafe fn apply<S: Simd, const R: usize, const V: usize>(
        &self,
        s: S,
        sums: &mut [[S::F; V]; R],
        row: usize,
        width: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(bias) = self.bias {
                let mut added = [s.zero(); V];
                for v in 0..V {
                    added[v] = T::load(s, bias.wrapping_add(v * LANES), lanes_of(v, width));
                }
                for r in 0..R {
                    for v in 0..V {
                        let x = if self.rounds { T::round_sum(s, sums[r][v]) } else { sums[r][v] };
                        sums[r][v] = s.add(x, added[v]);
                    }
                }
            }
            if let Some((residual, stride)) = self.residual {
                each_row!(R, r => {
                    let from = residual.wrapping_add((row + r) * stride);
                    for v in 0..V {
                        let y = T::load(s, from.wrapping_add(v * LANES), lanes_of(v, width));
                        sums[r][v] = s.add(T::round_sum(s, sums[r][v]), y);
                    }
                });
            }
            if let Some((lo, hi)) = self.bounds {
                for r in 0..R {
                    for v in 0..V {
                        sums[r][v] = rlx_math::clip(s, sums[r][v], lo, hi);
                    }
                }
            }
        }
    }
}

/// Applies an epilogue that [`is_light`] to a tile and writes it: what is cheap is done in registers. `width` columns are left from `col` on, more
/// than V − 1 vectors.
///
/// # Safety
/// The tile's columns must be writable, with the epilogue's operands for them.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn finish_in_registers<S: Simd, O: Packed, const R: usize, const V: usize>(
    s: S,
    e: &Epilogue<O>,
    sums: &[[S::F; V]; R],
    c: *mut O,
    stride: usize,
    row: usize,
    col: usize,
    width: usize,
) {
    let out = c.wrapping_add(row * stride + col);
    let (behind, width) = (Behind::of(e), width.min(V * LANES));
    // Only the last vector may be a part of one.
    let mut lanes = [LANES; V];
    lanes[V - 1] = width - (V - 1) * LANES;
    let (bias, of_rows) = match e.bias {
        Bias::None => (None, None),
        Bias::PerColumn(p) | Bias::OfSum(p) => (Some(p.wrapping_add(col)), None),
        Bias::PerRow(p) => (None, Some(p.wrapping_add(row))),
    };
    let combine = e.combine.filter(|with| !with.after);
    let light = e.activation.and_then(Light::of);
    let widened = const { O::GROUP != 1 } && behind.is_some();
    // SAFETY: the caller promises a tile of so many columns, a bias for each, and an operand of C's extents.
    unsafe {
        if matches!(e.bias, Bias::None) && combine.is_none() && light.is_none() && !widened {
            each_row!(R, r => {
                for v in 0..V {
                    O::store_sum(s, out.wrapping_add(r * stride + v * LANES), lanes[v], sums[r][v]);
                }
            });
        } else {
            let rounds = const { O::GROUP != 1 } && !matches!(e.bias, Bias::OfSum(_));
            let mut added = [s.zero(); V];
            if let Some(p) = bias {
                for v in 0..V {
                    added[v] = O::load(s, p.wrapping_add(v * LANES), lanes[v]);
                }
            }
            let mut wide = MaybeUninit::<Sums<R, V>>::uninit();
            let values = wide.as_mut_ptr().cast::<f32>();
            each_row!(R, r => {
                let mut line = sums[r];
                if let Some(p) = of_rows {
                    added = [O::splat(s, p.wrapping_add(r)); V];
                }
                if !matches!(e.bias, Bias::None) {
                    for v in 0..V {
                        let x = if rounds { O::round_sum(s, line[v]) } else { line[v] };
                        line[v] = s.add(x, added[v]);
                    }
                }
                if let Some(with) = combine {
                    let from = with.ptr.wrapping_add((row + r) * with.row_stride + col);
                    for v in 0..V {
                        let y = O::load(s, from.wrapping_add(v * LANES), lanes[v]);
                        line[v] = binary(s, with.op, O::round_sum(s, line[v]), y);
                    }
                }
                if let Some(function) = light {
                    function.apply::<S, O>(s, &mut line);
                }
                for v in 0..V {
                    if widened {
                        s.store(values.add((r * V + v) * LANES), O::round_sum(s, line[v]));
                    } else {
                        O::store_sum(s, out.wrapping_add(r * stride + v * LANES), lanes[v], line[v]);
                    }
                }
            });
            if widened {
                let values_stride = V * LANES;
                let pass =
                    SecondPass { behind, values, values_stride, out, stride, rows: R, width, row, col };
                return pass.enter(s);
            }
        }
        let values = out.cast();
        let pass =
            SecondPass { behind, values, values_stride: stride, out, stride, rows: R, width, row, col };
        pass.enter(s);
    }
}

/// What is done to a tile after its sums are rounded: functions that are not [`Light`], and a late operand.
#[derive(Clone, Copy)]
pub(super) struct Behind<O> {
    activation: Option<Unary>,
    after: Option<Combine<O>>,
}

impl<O: Packed> Behind<O> {
    #[inline(always)]
    pub(super) fn of(e: &Epilogue<O>) -> Self {
        Behind {
            activation: e.activation.filter(|&a| Light::of(a).is_none()),
            after: e.combine.filter(|x| x.after),
        }
    }

    #[inline(always)]
    fn is_some(&self) -> bool {
        self.activation.is_some() || self.after.is_some()
    }
}

/// Applies any epilogue to a tile's sums and writes them: a call of its own, row by row, so that one copy of this code
/// serves every size of tile.
pub(super) struct Finish<'a, O> {
    pub e: &'a Epilogue<O>,
    /// `rows · vecs` vectors; what is in them afterwards means nothing.
    pub sums: *mut f32,
    pub rows: usize,
    pub vecs: usize,
    pub c: *mut O,
    pub stride: usize,
    pub row: usize,
    pub col: usize,
    /// Columns that are left from `col` on.
    pub width: usize,
}

impl<O: Packed> crate::isa::Kernel for Finish<'_, O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let in_registers = is_light(self.e) && !Behind::of(self.e).is_some();
        if in_registers && self.vecs <= VECTORS && self.width > (self.vecs - 1) * LANES {
            // SAFETY: as below.
            return unsafe {
                match self.vecs {
                    3 => self.light::<S, 3>(s),
                    2 => self.light::<S, 2>(s),
                    _ => self.light::<S, 1>(s),
                }
            };
        }
        let (e, light) = (self.e, self.e.activation.and_then(Light::of));
        let width = self.width.min(self.vecs * LANES);
        let behind = Behind::of(e);
        let widened = const { O::GROUP != 1 } && behind.is_some();
        let sums_stride = self.vecs * LANES;
        // SAFETY: the caller of `Gemm::run` promised operands in bounds for the tile; an operand may be the result itself,
        // of which each element is read before it is written.
        unsafe {
            for r in 0..self.rows {
                let row = self.row + r;
                let (line, out) = (self.sums.add(r * sums_stride), self.c.add(row * self.stride + self.col));
                let mut j = 0;
                while j < width {
                    let (n, col) = (LANES.min(width - j), self.col + j);
                    let mut x = linear(s, e, s.load(line.add(j)), row, col, n);
                    if let Some(with) = e.combine.filter(|with| !with.after) {
                        let y = O::load(s, with.ptr.add(row * with.row_stride + col), n);
                        x = binary(s, with.op, O::round_sum(s, x), y);
                    }
                    if let Some(function) = light {
                        function.apply::<S, O>(s, std::slice::from_mut(&mut x));
                    }
                    if widened {
                        s.store(line.add(j), O::round_sum(s, x));
                    } else {
                        O::store_sum(s, out.add(j), n, x);
                    }
                    j += LANES;
                }
            }
            let out = self.c.add(self.row * self.stride + self.col);
            let (values, values_stride) =
                if widened { (self.sums, sums_stride) } else { (out.cast(), self.stride) };
            let Finish { stride, rows, row, col, .. } = self;
            SecondPass { behind, values, values_stride, out, stride, rows, width, row, col }.enter(s);
        }
    }
}

impl<O: Packed> Finish<'_, O> {
    /// An epilogue in registers, row by row.
    ///
    /// # Safety
    /// As [`Gemm::run`](super::Gemm::run); the sums must be `V` vectors of each row.
    #[inline(always)]
    unsafe fn light<S: Simd, const V: usize>(self, s: S) {
        let Finish { e, c, stride, row, col, width, .. } = self;
        for r in 0..self.rows {
            let mut sums = [[s.zero(); V]; 1];
            // SAFETY: the caller's promise.
            unsafe {
                for v in 0..V {
                    sums[0][v] = s.load(self.sums.wrapping_add((r * V + v) * LANES));
                }
                finish_in_registers(s, e, &sums, c, stride, row + r, col, width);
            }
        }
    }
}

/// `α·x + bias` of `n` elements from (row, col) on.
///
/// # Safety
/// There must be a bias for each of them.
#[inline(always)]
unsafe fn linear<S: Simd, O: Packed>(
    s: S,
    e: &Epilogue<O>,
    x: S::F,
    row: usize,
    col: usize,
    n: usize,
) -> S::F {
    let x = if e.alpha != 1.0 { s.mul(O::round_sum(s, x), s.splat(e.alpha)) } else { x };
    // SAFETY: the caller's promise.
    unsafe {
        match e.bias {
            Bias::None => x,
            Bias::PerColumn(p) => s.add(O::round_sum(s, x), O::load(s, p.add(col), n)),
            Bias::OfSum(p) => s.add(x, O::load(s, p.add(col), n)),
            Bias::PerRow(p) => s.add(O::round_sum(s, x), s.splat((*p.add(row)).widen())),
        }
    }
}

#[inline(always)]
pub(super) fn binary<S: Simd>(s: S, op: BinaryOp, x: S::F, y: S::F) -> S::F {
    match op {
        BinaryOp::Add => s.add(x, y),
        BinaryOp::Mul => s.mul(x, y),
    }
}

/// Activation and late operand over a tile that is still in the first-level cache: over the result itself if that is f32, else over
/// its rounded sums, from which the result is written.
pub(super) struct SecondPass<O> {
    pub(super) behind: Behind<O>,
    /// The rounded sums as f32, and how far apart their rows are. Those of f32 are the result.
    pub(super) values: *mut f32,
    pub(super) values_stride: usize,
    pub(super) out: *mut O,
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) width: usize,
    pub(super) row: usize,
    pub(super) col: usize,
}

impl<O: Packed> SecondPass<O> {
    /// Runs it, if there is anything to do: as a call, so that one copy of each function serves every size of tile.
    ///
    /// # Safety
    /// The tile of `rows` by `width` at `out` must be writable, the values be there, and a late operand have C's extents.
    #[inline(always)]
    pub(super) unsafe fn enter<S: Simd>(self, s: S) {
        if self.behind.is_some() {
            s.enter_plain(self);
        }
    }
}

impl<O: Packed> crate::isa::Kernel for SecondPass<O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Behind { activation, after } = self.behind;
        // SAFETY: the tile was written by the caller just now, and the operand has C's extents.
        unsafe {
            if let (Some(op), true) = (activation, const { O::GROUP != 1 }) {
                // The rows lie behind each other. What is behind a row's last column has no meaning.
                let len = (self.rows - 1) * self.values_stride + self.width;
                math::apply_to_widened(s, op, self.values, len);
            } else if let Some(op) = activation {
                math::apply_to_lines(s, op, self.values, (self.rows, self.values_stride), self.width);
            }
            if const { O::GROUP == 1 } && after.is_none() {
                return;
            }
            for r in 0..self.rows {
                let (line, values) = (self.out.add(r * self.stride), self.values.add(r * self.values_stride));
                for j in (0..self.width).step_by(LANES) {
                    let n = LANES.min(self.width - j);
                    if let Some(with) = after {
                        let from = with.ptr.add((self.row + r) * with.row_stride + self.col + j);
                        let x = O::round_sum(s, s.load_upto(values.add(j), n));
                        O::store_sum(s, line.add(j), n, binary(s, with.op, x, O::load(s, from, n)));
                    } else if const { O::GROUP != 1 } {
                        O::store_sum(s, line.add(j), n, s.load_upto(values.add(j), n));
                    }
                }
            }
        }
    }
}
