//! Weights of 2, 4 or 8 bits in blocks with a scale each: matmuls with them, and rows of a table.
//!
//! Packed constants stay packed: 4-bit elements are a parameter of 4-bit integers over the file's own bytes, and what
//! makes floats of them is a `Dequantize` with one scale for each block. The compiler decides where that happens.

use crate::import::NodeCx;
use crate::ops::{Entry, microsoft, quant};
use rlx_ir::op::BinaryOp as B;
use rlx_ir::{DType, Dim, Error, ErrorKind, Extent, NodeId, Op, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(in crate::ops) const OPS: &[Entry] = &[
    microsoft("GatherBlockQuantized", gather),
    microsoft("MatMulBnb4", bnb4),
    microsoft("MatMulNBits", matmul),
];

/// The width of an element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bits {
    Two,
    Four,
    Eight,
}

impl Bits {
    pub fn read(cx: &NodeCx<'_, '_>, name: &str, default: i64) -> Result<Bits, Error> {
        match cx.attrs.int(name, default)? {
            2 => Ok(Bits::Two),
            4 => Ok(Bits::Four),
            8 => Ok(Bits::Eight),
            other => Err(cx.bad_attr(name, other)),
        }
    }

    /// How many share a byte.
    pub fn in_byte(self) -> usize {
        match self {
            Bits::Two => 4,
            Bits::Four => 2,
            Bits::Eight => 1,
        }
    }

    fn width(self) -> usize {
        8 / self.in_byte()
    }

    /// The zero point where none is given: the middle of the range.
    pub fn middle(self) -> i128 {
        1 << (self.width() - 1)
    }
}

/// A whole attribute above 0.
fn positive(cx: &NodeCx<'_, '_>, name: &str) -> Result<usize, Error> {
    let value = cx.attrs.required(name, cx.attrs.int_opt(name)?)?;
    let positive = usize::try_from(value).ok().filter(|&n| n > 0 && n <= i32::MAX as usize);
    positive.ok_or_else(|| cx.malformed(format!("{name} = {value}")))
}

/// Bytes as the elements packed in them along the last dimension, low bits first: `[…, n]` as `[…, n·(8 / bits)]`.
/// A 4-bit constant is reinterpreted; else the bits are cut out of the bytes, which stay unsigned bytes then.
pub(super) fn unpacked(cx: Cx, i: usize, bits: Bits) -> Result<NodeId, Error> {
    if cx.dtype(i)? != DType::U8 {
        return cx.x(i);
    }
    if bits == Bits::Four {
        let slot = cx.slot(i)?;
        if let Some(view) = cx.importer.reinterpreted(slot, DType::U4)? {
            return cx.importer.materialize(view);
        }
    }
    let bytes = cx.x(i)?;
    from_bytes(cx, bytes, bits, false)
}

/// The elements packed in bytes, as unsigned bytes; those in the high bits first if `high_first`.
fn from_bytes(cx: Cx, bytes: NodeId, bits: Bits, high_first: bool) -> Result<NodeId, Error> {
    if bits == Bits::Eight {
        return Ok(bytes);
    }
    let shape = cx.shape_of(bytes);
    let Some((&last, lead)) = shape.dims().split_last() else { return Ok(bytes) };
    let (count, width) = (bits.in_byte(), bits.width());
    let mut shifts: Vec<i128> = (0..count).map(|i| (i * width) as i128).collect();
    if high_first {
        shifts.reverse();
    }
    let shifts = cx.constant(Value::int(DType::U8, &[count], shifts));
    let apart = cx.unsqueeze(bytes, &[shape.rank()])?;
    let shifted = cx.binary(B::Shr, apart, shifts)?;
    let mask = (1u32 << width) - 1;
    let elements = cx.with_scalar(B::BitAnd, shifted, f64::from(mask))?;
    let mut dims = lead.to_vec();
    dims.push(Dim::from(last.extent() * count as i64));
    cx.reshape(elements, dims)
}

/// The weights of a matmul: `rows` of `depth` elements, in blocks along them.
pub(super) struct Blocks {
    pub rows: usize,
    pub depth: usize,
    pub size: usize,
    pub bits: Bits,
    /// Operands: packed bytes, scales, zero points.
    pub packed: usize,
    pub scales: usize,
    pub zeros: usize,
    /// The type of the result.
    pub to: DType,
}

impl Blocks {
    fn per_row(&self) -> usize {
        self.depth.div_ceil(self.size)
    }

    /// How many blocks all rows have.
    fn count(&self, cx: &NodeCx<'_, '_>) -> Result<usize, Error> {
        let count = self.rows.checked_mul(self.per_row());
        count.ok_or_else(|| cx.malformed(format!("{} rows of {} elements", self.rows, self.depth)))
    }

    /// The zero points of all blocks, or nothing if they are not integers of the elements' type.
    fn zero_points(&self, cx: Cx, dtype: DType) -> Result<Option<NodeId>, Error> {
        let count = self.count(cx)?;
        if !cx.has(self.zeros) {
            if !dtype.is_int() {
                let message = format!("weights of {dtype}, where integers are needed");
                return Err(Error::new(ErrorKind::DType, message));
            }
            let middle = cx.constant(Value::int(dtype, &[], vec![self.bits.middle()]));
            return cx.expand(middle, vec![Dim::Static(count)]).map(Some);
        }
        if cx.dtype(self.zeros)? != DType::U8 {
            return Ok(None);
        }
        let zeros = unpacked(cx, self.zeros, self.bits)?;
        let held = self.per_row().next_multiple_of(self.bits.in_byte());
        let zeros = cx.reshape(zeros, vec![Dim::Static(self.rows), Dim::Static(held)])?;
        let zeros = cx.slice_axis(zeros, 1, Extent::Const(0), Dim::Static(self.per_row()).extent())?;
        let zeros = cx.reshape(zeros, vec![Dim::Static(count)])?;
        cx.cast(zeros, dtype).map(Some)
    }

    /// The floats `[rows, depth]`.
    pub fn floats(&self, cx: Cx) -> Result<NodeId, Error> {
        let count = self.count(cx)?;
        let (all, size) = (Dim::Static(count), Dim::Static(self.size));
        let elements = unpacked(cx, self.packed, self.bits)?;
        let elements = cx.reshape(elements, vec![all, size])?;
        let scales = cx.x(self.scales)?;
        let scales = cx.reshape(scales, vec![all])?;
        let dtype = cx.shape_of(elements).dtype();
        let floats = match self.zero_points(cx, dtype)? {
            Some(zeros) => {
                let op = Op::Dequantize { axis: Some(0), to: self.to };
                cx.add(op, &[elements, scales, zeros])?
            }
            None => self.with_float_zeros(cx, elements, scales)?,
        };
        let width = self.per_row().checked_mul(self.size);
        let width = width.ok_or_else(|| cx.malformed(format!("blocks of {}", self.size)))?;
        let floats = cx.reshape(floats, vec![Dim::Static(self.rows), Dim::Static(width)])?;
        cx.slice_axis(floats, 1, Extent::Const(0), Dim::Static(self.depth).extent())
    }

    /// Whether rows are quantised where they may be: zero points that are floats leave no integers to multiply.
    fn quantizes_rows(&self, cx: &NodeCx<'_, '_>) -> Result<bool, Error> {
        Ok(!cx.has(self.zeros) || cx.dtype(self.zeros)? == DType::U8)
    }

    /// The product of the rows `a`, quantised dynamically in the same blocks, and these weights.
    fn multiply_quantized(&self, cx: Cx, a: NodeId) -> Result<NodeId, Error> {
        self.count(cx)?;
        let [rows, per_row] = [self.rows, self.per_row()].map(Dim::Static);
        let elements = unpacked(cx, self.packed, self.bits)?;
        let dtype = cx.shape_of(elements).dtype();
        let elements = cx.reshape(elements, vec![rows, per_row, Dim::Static(self.size)])?;
        let mut operands = vec![a, elements];
        for param in [Some(cx.x(self.scales)?), self.zero_points(cx, dtype)?].into_iter().flatten() {
            let param = cx.cast(param, self.to)?;
            let param = cx.reshape(param, vec![rows, per_row])?;
            operands.push(cx.transpose(param, &[1, 0])?);
        }
        cx.add(Op::DynamicMatMulBlocks, &operands)
    }

    /// `(elements − zero points)·scales` with zero points that are floats.
    fn with_float_zeros(&self, cx: Cx, elements: NodeId, scales: NodeId) -> Result<NodeId, Error> {
        let count = Dim::Static(self.count(cx)?);
        let zeros = cx.x(self.zeros)?;
        let zeros = cx.cast(zeros, self.to)?;
        let zeros = cx.reshape(zeros, vec![count, Dim::Static(1)])?;
        let scales = cx.cast(scales, self.to)?;
        let scales = cx.reshape(scales, vec![count, Dim::Static(1)])?;
        let elements = cx.cast(elements, self.to)?;
        let centred = cx.binary(B::Sub, elements, zeros)?;
        cx.binary(B::Mul, centred, scales)
    }

    /// The floats where each column has a group of its own number (`g_idx`), which a permuted quantisation leaves.
    fn grouped_floats(&self, cx: Cx, groups: usize) -> Result<NodeId, Error> {
        let per_row = Dim::Static(self.per_row());
        let (rows, depth) = (Dim::Static(self.rows), Dim::Static(self.depth));
        let index = cx.x(groups)?;
        if cx.rank(groups)? != 1 {
            return Err(cx.malformed(format!("groups {}", cx.shape(groups)?)));
        }
        let index = cx.slice_axis(index, 0, Extent::Const(0), depth.extent())?;
        let elements = unpacked(cx, self.packed, self.bits)?;
        let dtype = cx.shape_of(elements).dtype();
        let width = self.per_row().checked_mul(self.size);
        let width = width.ok_or_else(|| cx.malformed(format!("blocks of {}", self.size)))?;
        let elements = cx.reshape(elements, vec![rows, Dim::Static(width)])?;
        let elements = cx.slice_axis(elements, 1, Extent::Const(0), depth.extent())?;
        let zeros = match self.zero_points(cx, dtype)? {
            Some(zeros) => zeros,
            None => cx.x(self.zeros)?,
        };
        let mut of_column = [cx.x(self.scales)?, zeros];
        for x in &mut of_column {
            let table = cx.cast(*x, self.to)?;
            let table = cx.reshape(table, vec![rows, per_row])?;
            *x = cx.add(Op::Gather { axis: 1 }, &[table, index])?;
        }
        let elements = cx.cast(elements, self.to)?;
        let centred = cx.binary(B::Sub, elements, of_column[1])?;
        cx.binary(B::Mul, centred, of_column[0])
    }
}

/// The `accuracy_level` that allows rows to be integers of 8 bits.
const INT8: i64 = 4;

/// `A, B, scales, zero_points, g_idx, bias`. Rows are quantised to 8 bits where the model allows it and ONNX Runtime does so, on every device alike; lower levels ask
/// for nothing that floats of `A`'s type do not give.
fn matmul(cx: Cx) -> Nodes {
    if cx.attrs.int("weight_prepacked", 0)? != 0 {
        return Err(cx.unsupported("weights packed for a device (weight_prepacked)"));
    }
    let (rows, depth, size) = (positive(cx, "N")?, positive(cx, "K")?, positive(cx, "block_size")?);
    let bits = Bits::read(cx, "bits", 4)?;
    let blocks = Blocks { rows, depth, size, bits, packed: 1, scales: 2, zeros: 3, to: cx.dtype(0)? };
    let a = cx.x(0)?;
    let may_quantize = cx.attrs.int("accuracy_level", 0)? == INT8 && !cx.has(4);
    let y = if may_quantize && blocks.quantizes_rows(cx)? {
        blocks.multiply_quantized(cx, a)?
    } else {
        let w = if cx.has(4) { blocks.grouped_floats(cx, 4)? } else { blocks.floats(cx)? };
        let w = cx.transpose(w, &[1, 0])?;
        cx.add(Op::MatMul, &[a, w])?
    };
    with_bias(cx, y, 5)
}

fn with_bias(cx: Cx, y: NodeId, at: usize) -> Nodes {
    Ok(vec![match cx.x_opt(at)? {
        Some(bias) => cx.binary(B::Add, y, bias)?,
        None => y,
    }])
}

/// The values of 4-bit floats and of the normal float, each for 0 to 15.
const FP4: [f64; 16] = [
    0.0,
    5.208_333_333e-03,
    0.666_666_67,
    1.0,
    0.333_333_33,
    0.5,
    0.166_666_67,
    0.25,
    0.0,
    -5.208_333_333e-03,
    -0.666_666_67,
    -1.0,
    -0.333_333_33,
    -0.5,
    -0.166_666_67,
    -0.25,
];
const NF4: [f64; 16] = [
    -1.0,
    -0.696_192_800_998_687_7,
    -0.525_073_051_452_636_7,
    -0.394_917_488_098_144_53,
    -0.284_441_381_692_886_35,
    -0.184_773_430_228_233_34,
    -0.091_050_036_251_544_95,
    0.0,
    0.079_580_299_556_255_34,
    0.160_930_201_411_247_25,
    0.246_112_301_945_686_34,
    0.337_915_241_718_292_24,
    0.440_709_829_330_444_34,
    0.562_617_003_917_694_1,
    0.722_956_836_223_602_3,
    1.0,
];

/// `A, B, absmax`: 4-bit floats of bitsandbytes, the first of two in the high bits, in blocks over all weights.
fn bnb4(cx: Cx) -> Nodes {
    let (rows, depth, size) = (positive(cx, "N")?, positive(cx, "K")?, positive(cx, "block_size")?);
    let table = match cx.attrs.int("quant_type", 1)? {
        0 => FP4,
        1 => NF4,
        other => return Err(cx.bad_attr("quant_type", other)),
    };
    let to = cx.dtype(0)?;
    let elements = rows.checked_mul(depth).filter(|n| n.is_multiple_of(size));
    let elements =
        elements.ok_or_else(|| cx.unsupported(format!("{rows}·{depth} elements in blocks of {size}")))?;
    let bytes = cx.x(1)?;
    let codes = from_bytes(cx, bytes, Bits::Four, true)?;
    let codes = cx.cast(codes, DType::I32)?;
    let (count, size) = (Dim::Static(elements / size), Dim::Static(size));
    let codes = cx.reshape(codes, vec![count, size])?;
    let table = cx.float_constant(to, &[16], table.to_vec())?;
    let floats = cx.add(Op::Gather { axis: 0 }, &[table, codes])?;
    let largest = cx.x(2)?;
    let largest = cx.cast(largest, to)?;
    let largest = cx.reshape(largest, vec![count, Dim::Static(1)])?;
    let floats = cx.binary(B::Mul, floats, largest)?;
    let w = cx.reshape(floats, vec![Dim::Static(rows), Dim::Static(depth)])?;
    let w = if cx.attrs.flag("transB", true)? { cx.transpose(w, &[1, 0])? } else { w };
    let a = cx.x(0)?;
    Ok(vec![cx.add(Op::MatMul, &[a, w])?])
}

/// `data, indices, scales, zero_points`: rows of a table are taken while they are packed, and become floats then.
fn gather(cx: Cx) -> Nodes {
    let bytes = cx.dtype(0)? == DType::U8;
    let small_float = cx.dtype(0)?.is_float();
    let bits = if bytes { Bits::read(cx, "bits", 4)? } else { Bits::Eight };
    let shape = cx.shape(0)?;
    let gathered = shape.axis(cx.attrs.int("gather_axis", 0)?)?;
    let quantized = shape.axis(cx.attrs.int("quantize_axis", 1)?)?;
    let size = cx.attrs.int("block_size", 128)?;
    let index = cx.x(1)?;
    let table = rows(cx, gathered)?;
    let mut x = cx.add(Op::Gather { axis: gathered }, &[table, index])?;
    if bytes {
        x = from_bytes(cx, x, bits, false)?;
    } else if cx.shape_of(x).dtype() == DType::U8 {
        x = small_integers(cx, x)?;
    }
    let middle = match (bytes, bits) {
        (true, bits) => bits.middle(),
        (false, _) => 0,
    };
    let to = cx.dtype(2)?;
    let place = place_of(cx, quantized, gathered)?;
    let dims = cx.shape_of(x).dims().to_vec();
    let whole = Blocked { shape: shape.dims().to_vec(), gathered, quantized, place, size, bits };
    let scale = whole.widened(cx, 2, index, &dims, false)?;
    let mut y = cx.cast(x, to)?;
    if cx.has(3) && !small_float {
        let zero = whole.widened(cx, 3, index, &dims, bytes)?;
        let zero = cx.cast(zero, to)?;
        y = cx.binary(B::Sub, y, zero)?;
    } else if middle != 0 {
        y = cx.with_scalar(B::Sub, y, middle as f64)?;
    }
    Ok(vec![cx.binary(B::Mul, y, scale)?])
}

/// Where dimension `quantized` of the table is in the result.
fn place_of(cx: &NodeCx<'_, '_>, quantized: usize, gathered: usize) -> Result<usize, Error> {
    Ok(if quantized < gathered { quantized } else { (quantized + cx.rank(1)?).saturating_sub(1) })
}

/// The table to take rows from: 4-bit integers as the bytes that hold them, where rows are whole bytes.
fn rows(cx: Cx, gathered: usize) -> Result<NodeId, Error> {
    let (shape, slot) = (cx.shape(0)?, cx.slot(0)?);
    if !matches!(shape.dtype(), DType::I4 | DType::U4) {
        return cx.x(0);
    }
    if gathered + 1 < shape.rank()
        && let Some(view) = cx.importer.reinterpreted(slot, DType::U8)?
    {
        return cx.importer.materialize(view);
    }
    let x = cx.x(0)?;
    cx.cast(x, DType::I8)
}

/// Bytes as the 4-bit integers of operand 0's type that they hold, as i8.
fn small_integers(cx: Cx, bytes: NodeId) -> Result<NodeId, Error> {
    let unsigned = from_bytes(cx, bytes, Bits::Four, false)?;
    let x = cx.cast(unsigned, DType::I8)?;
    if cx.dtype(0)? != DType::I4 {
        return Ok(x);
    }
    // The sign bit moved to the top and back.
    let flipped = cx.with_scalar(B::BitXor, x, 8.0)?;
    cx.with_scalar(B::Sub, flipped, 8.0)
}

/// How scales and zero points of a table's blocks relate to the rows taken from it.
struct Blocked {
    /// The table's dimensions, as it is packed.
    shape: Vec<Dim>,
    gathered: usize,
    quantized: usize,
    /// Where dimension `quantized` is in the result.
    place: usize,
    size: i64,
    bits: Bits,
}

impl Blocked {
    /// Operand `i`, a scale or zero point for each block, as one for each element of the result of these dimensions.
    fn widened(&self, cx: Cx, i: usize, index: NodeId, dims: &[Dim], packed: bool) -> Result<NodeId, Error> {
        let mut table = cx.x(i)?;
        if packed {
            table = from_bytes(cx, table, self.bits, false)?;
        } else if matches!(cx.dtype(i)?, DType::I4 | DType::U4) {
            table = cx.cast(table, DType::I8)?;
        }
        let held = cx.shape_of(table);
        if held.rank() != self.shape.len() {
            return Err(cx.malformed(format!("operand {i} of {} dimensions", held.rank())));
        }
        if self.gathered == self.quantized {
            // Every index has the scale of its block.
            let mut like = held.dims().to_vec();
            like[self.quantized] = self.shape[self.quantized];
            let wide = quant::widen(cx, table, &like, self.quantized, self.block(cx, like[self.quantized])?)?;
            return cx.add(Op::Gather { axis: self.gathered }, &[wide, index]);
        }
        // A dimension of 1 is every row's.
        if held.dim(self.gathered) != Dim::Static(1) || self.shape[self.gathered] == Dim::Static(1) {
            table = cx.add(Op::Gather { axis: self.gathered }, &[table, index])?;
        } else {
            let rank = cx.shape_of(index).rank();
            let mut to = held.dims().to_vec();
            to.splice(self.gathered..=self.gathered, vec![Dim::Static(1); rank]);
            table = cx.reshape(table, to)?;
        }
        let mut like = cx.shape_of(table).dims().to_vec();
        let (Some(own), Some(&wanted)) = (like.get_mut(self.place), dims.get(self.place)) else {
            return Err(cx.malformed(format!("operand {i} for {} dimensions", dims.len())));
        };
        *own = wanted;
        let size = self.block(cx, wanted)?;
        // Packed zero points may be more than there are blocks: a row of them is whole bytes.
        if packed && size > 0 {
            let blocks = wanted.extent().ceil_div(size);
            table = cx.slice_axis(table, self.place, Extent::Const(0), blocks)?;
        }
        quant::widen(cx, table, &like, self.place, size)
    }

    /// The number of elements in a block; 0 means all.
    fn block(&self, cx: &NodeCx<'_, '_>, dim: Dim) -> Result<i64, Error> {
        if self.size > 0 && self.size <= i64::from(i32::MAX) {
            return Ok(self.size);
        }
        let whole = dim.as_static().and_then(|n| i64::try_from(n).ok());
        match (self.size, whole) {
            (0, Some(n)) => Ok(n.max(1)),
            (other, _) => Err(cx.malformed(format!("block_size = {other}"))),
        }
    }
}
