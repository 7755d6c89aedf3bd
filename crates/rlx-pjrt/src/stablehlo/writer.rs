//! The text of a module as it is written: values with their types, ops in MLIR's generic form, regions, constants.

use std::fmt::Write;

use rlx_ir::{ConstData, DType, Error, ErrorKind, Graph, Result, Shape};

/// The type of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) dtype: DType,
    pub(super) dims: Vec<usize>,
}

impl Type {
    pub(super) fn new(dtype: DType, dims: &[usize]) -> Type {
        Type { dtype, dims: dims.to_vec() }
    }

    pub(super) fn scalar(dtype: DType) -> Type {
        Type::new(dtype, &[])
    }

    /// Of a shape whose dimensions are numbers.
    pub(super) fn of(shape: &Shape) -> Result<Type> {
        let open = || Error::new(ErrorKind::Internal, format!("{shape} has a dimension that is no number"));
        Ok(Type { dtype: shape.dtype(), dims: shape.static_dims().ok_or_else(open)? })
    }

    pub(super) fn with(&self, dtype: DType) -> Type {
        Type { dtype, dims: self.dims.clone() }
    }

    pub(super) fn elements(&self) -> usize {
        self.dims.iter().product()
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("tensor<")?;
        self.dims.iter().try_for_each(|dim| write!(f, "{dim}x"))?;
        write!(f, "{}>", element(self.dtype))
    }
}

/// What MLIR calls an element type.
fn element(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F64 => "f64",
        DType::I8 => "i8",
        DType::I16 => "i16",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::U8 => "ui8",
        DType::U16 => "ui16",
        DType::U32 => "ui32",
        DType::U64 => "ui64",
        DType::Bool => "i1",
        DType::C64 => "complex<f32>",
        DType::F8E4M3FN => "f8E4M3FN",
        DType::F8E4M3FNUZ => "f8E4M3FNUZ",
        DType::F8E5M2 => "f8E5M2",
        DType::F8E5M2FNUZ => "f8E5M2FNUZ",
        DType::F8E8M0 => "f8E8M0FNU",
        DType::F4E2M1 => "f4E2M1FN",
        DType::I4 => "i4",
        DType::U4 => "ui4",
        DType::I2 => "i2",
        DType::U2 => "ui2",
        _ => "none",
    }
}

/// A value that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Val(usize);

/// An index that the program checks: what is wrong where it is out of range.
#[derive(Debug, Clone)]
pub(crate) struct Check {
    pub(crate) node: String,
    pub(crate) origin: Option<String>,
    pub(crate) axis: usize,
    pub(crate) size: usize,
}

/// Writes the nodes of a graph whose inputs are given, and gives its outputs.
pub(super) type WriteGraph = fn(&mut Writer, &Graph, &[Val]) -> Result<Vec<Val>>;

/// A function that is being written.
pub(super) struct Writer {
    /// Writes the nodes of a graph: what bodies of control flow are written by.
    write_graph: WriteGraph,
    text: String,
    values: Vec<(String, Type)>,
    names: usize,
    /// The record of the first index out of range, `[number of the check, index]`; there only in programs that check any.
    pub(super) fault: Option<Val>,
    pub(super) checks: Vec<Check>,
}

impl Writer {
    pub(super) fn new(write_graph: WriteGraph) -> Writer {
        Writer {
            write_graph,
            text: String::new(),
            values: Vec::new(),
            names: 0,
            fault: None,
            checks: Vec::new(),
        }
    }

    /// Writes the nodes of another graph, and gives its outputs.
    pub(super) fn graph(&mut self, graph: &Graph, given: &[Val]) -> Result<Vec<Val>> {
        (self.write_graph)(self, graph, given)
    }

    pub(super) fn ty(&self, value: Val) -> &Type {
        &self.values[value.0].1
    }

    pub(super) fn dims(&self, value: Val) -> Vec<usize> {
        self.ty(value).dims.clone()
    }

    pub(super) fn dtype(&self, value: Val) -> DType {
        self.ty(value).dtype
    }

    pub(super) fn name(&self, value: Val) -> &str {
        &self.values[value.0].0
    }

    pub(super) fn text(self) -> String {
        self.text
    }

    /// A value that is there already, under this name.
    pub(super) fn named(&mut self, name: String, ty: Type) -> Val {
        self.values.push((name, ty));
        Val(self.values.len() - 1)
    }

    fn fresh(&mut self) -> String {
        self.names += 1;
        format!("%{}", self.names)
    }

    /// An op of one result. `attributes` is the inside of the braces.
    pub(super) fn op(&mut self, op: &str, inputs: &[Val], attributes: &str, ty: Type) -> Val {
        self.ops(op, inputs, attributes, &[], &[ty])[0]
    }

    /// An op of any results, with regions.
    pub(super) fn ops(
        &mut self,
        op: &str,
        inputs: &[Val],
        attributes: &str,
        regions: &[String],
        results: &[Type],
    ) -> Vec<Val> {
        let name = self.fresh();
        let list = |types: &mut dyn Iterator<Item = String>| types.collect::<Vec<_>>().join(", ");
        let operands = list(&mut inputs.iter().map(|&v| self.name(v).to_owned()));
        let taken = list(&mut inputs.iter().map(|&v| self.ty(v).to_string()));
        let given = list(&mut results.iter().map(Type::to_string));
        let bound = if results.len() == 1 { name.clone() } else { format!("{name}:{}", results.len()) };
        let regions = if regions.is_empty() { String::new() } else { format!(" ({})", regions.join(", ")) };
        let attributes = if attributes.is_empty() { String::new() } else { format!(" {{{attributes}}}") };
        let line = format!(
            "{bound} = \"stablehlo.{op}\"({operands}){regions}{attributes} : ({taken}) -> ({given})\n"
        );
        self.text.push_str(&line);
        let names = results.iter().enumerate();
        let names: Vec<(String, Type)> = names
            .map(|(i, ty)| {
                (if results.len() == 1 { name.clone() } else { format!("{name}#{i}") }, ty.clone())
            })
            .collect();
        names.into_iter().map(|(name, ty)| self.named(name, ty)).collect()
    }

    /// What ends a function or a region.
    pub(super) fn end(&mut self, op: &str, values: &[Val]) {
        let names: Vec<&str> = values.iter().map(|&v| self.name(v)).collect();
        let types: Vec<String> = values.iter().map(|&v| self.ty(v).to_string()).collect();
        let line = format!("\"{op}\"({}) : ({}) -> ()\n", names.join(", "), types.join(", "));
        self.text.push_str(&line);
    }

    /// A region of these arguments; what `body` gives it returns.
    pub(super) fn region(
        &mut self,
        arguments: &[Type],
        body: impl FnOnce(&mut Writer, &[Val]) -> Result<Vec<Val>>,
    ) -> Result<String> {
        let before = std::mem::take(&mut self.text);
        let names: Vec<String> = arguments.iter().map(|_| self.fresh()).collect();
        let mut head = String::new();
        if !arguments.is_empty() {
            let list: Vec<String> = names.iter().zip(arguments).map(|(n, t)| format!("{n}: {t}")).collect();
            _ = writeln!(head, "^bb0({}):", list.join(", "));
        }
        let values: Vec<Val> =
            names.into_iter().zip(arguments).map(|(name, ty)| self.named(name, ty.clone())).collect();
        let results = body(self, &values);
        if let Ok(results) = &results {
            self.end("stablehlo.return", results);
        }
        let inside = std::mem::replace(&mut self.text, before);
        results.map(|_| format!("{{\n{head}{inside}}}"))
    }

    /// A tensor that is fixed in the program.
    pub(super) fn constant(&mut self, data: &ConstData) -> Val {
        let ty = Type::new(data.dtype(), data.dims());
        if ty.dtype == DType::Bool {
            // Bits of i1 are packed in MLIR's raw form.
            let bytes = self.dense(&Type::new(DType::U8, data.dims()), data.bytes());
            let zero = self.splat(&Type::new(DType::U8, data.dims()), &[0]);
            return self.compare("NE", bytes, zero);
        }
        let bytes = super::dtypes::unpacked(ty.dtype, ty.elements(), data.bytes());
        self.dense(&ty, &bytes)
    }

    /// A constant of raw elements; those of one element are all elements.
    fn dense(&mut self, ty: &Type, bytes: &[u8]) -> Val {
        let size = ty.dtype.size_bytes();
        let mut elements = bytes.chunks_exact(size);
        let first = elements.next();
        let uniform = first.filter(|&first| elements.all(|element| element == first));
        let bytes = uniform.unwrap_or(bytes);
        let mut value = String::with_capacity(2 * bytes.len() + 16);
        if ty.elements() == 0 {
            value.push_str("dense<>");
        } else {
            value.push_str("dense<\"0x");
            bytes.iter().for_each(|byte| _ = write!(value, "{byte:02X}"));
            value.push_str("\">");
        }
        self.op("constant", &[], &format!("value = {value} : {ty}"), ty.clone())
    }

    /// A constant whose elements all have these bytes.
    pub(super) fn splat(&mut self, ty: &Type, element: &[u8]) -> Val {
        self.dense(ty, element)
    }

    /// A constant whose elements are all this number, as far as the type has it.
    pub(super) fn number(&mut self, ty: &Type, value: f64) -> Val {
        if ty.dtype == DType::Bool {
            let wide = self.number(&ty.with(DType::U8), value);
            let zero = self.splat(&ty.with(DType::U8), &[0]);
            return self.compare("NE", wide, zero);
        }
        let mut bytes = rlx_ir::Value::float(DType::F64, &[1], vec![value]);
        if ty.dtype.is_float() {
            bytes = rlx_ir::Value::float(ty.dtype, &[1], vec![value]);
        } else if ty.dtype != DType::C64 {
            bytes = rlx_ir::Value::int(ty.dtype, &[1], vec![value as i128]);
        }
        let bytes = bytes.encode();
        self.splat(ty, &bytes)
    }

    /// A one-dimensional constant of i32.
    pub(super) fn indices(&mut self, values: &[i64]) -> Val {
        let bytes: Vec<u8> = values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect();
        self.dense(&Type::new(DType::I32, &[values.len()]), &bytes)
    }

    // ---- What several families use.

    /// An elementwise op of operands of one type, which the result has, too.
    pub(super) fn map(&mut self, op: &str, inputs: &[Val]) -> Val {
        let ty = self.ty(inputs[0]).clone();
        self.op(op, inputs, "", ty)
    }

    pub(super) fn compare(&mut self, direction: &str, a: Val, b: Val) -> Val {
        let ty = self.ty(a).with(DType::Bool);
        let attribute = format!("comparison_direction = #stablehlo<comparison_direction {direction}>");
        self.op("compare", &[a, b], &attribute, ty)
    }

    pub(super) fn select(&mut self, condition: Val, a: Val, b: Val) -> Val {
        let ty = self.ty(a).clone();
        self.op("select", &[condition, a, b], "", ty)
    }

    /// The same values in another element type, by the device's own conversion.
    pub(super) fn convert(&mut self, x: Val, to: DType) -> Val {
        if self.dtype(x) == to {
            return x;
        }
        let ty = self.ty(x).with(to);
        self.op("convert", &[x], "", ty)
    }

    pub(super) fn reshape(&mut self, x: Val, dims: &[usize]) -> Val {
        if self.ty(x).dims == dims {
            return x;
        }
        let ty = Type::new(self.dtype(x), dims);
        self.op("reshape", &[x], "", ty)
    }

    pub(super) fn transpose(&mut self, x: Val, perm: &[usize]) -> Val {
        let dims: Vec<usize> = perm.iter().map(|&axis| self.ty(x).dims[axis]).collect();
        let ty = Type::new(self.dtype(x), &dims);
        self.op("transpose", &[x], &format!("permutation = {}", array(perm)), ty)
    }

    /// Broadcast by NumPy's rule.
    pub(super) fn broadcast(&mut self, x: Val, dims: &[usize]) -> Val {
        let from = self.ty(x).dims.len();
        let axes: Vec<usize> = (dims.len() - from..dims.len()).collect();
        self.broadcast_along(x, &axes, dims)
    }

    /// Broadcast with dimension `i` of `x` as dimension `axes[i]` of the result.
    pub(super) fn broadcast_along(&mut self, x: Val, axes: &[usize], dims: &[usize]) -> Val {
        if self.ty(x).dims == dims {
            return x;
        }
        let ty = Type::new(self.dtype(x), dims);
        self.op("broadcast_in_dim", &[x], &format!("broadcast_dimensions = {}", array(axes)), ty)
    }

    pub(super) fn slice(&mut self, x: Val, starts: &[usize], limits: &[usize], steps: &[usize]) -> Val {
        let size = |((&from, &to), &step): ((&usize, &usize), &usize)| to.saturating_sub(from).div_ceil(step);
        let dims: Vec<usize> = starts.iter().zip(limits).zip(steps).map(size).collect();
        let ty = Type::new(self.dtype(x), &dims);
        let attributes = format!(
            "start_indices = {}, limit_indices = {}, strides = {}",
            array(starts),
            array(limits),
            array(steps)
        );
        self.op("slice", &[x], &attributes, ty)
    }

    pub(super) fn concat(&mut self, parts: &[Val], axis: usize) -> Val {
        let mut dims = self.dims(parts[0]);
        dims[axis] = parts.iter().map(|&part| self.ty(part).dims[axis]).sum();
        let ty = Type::new(self.dtype(parts[0]), &dims);
        self.op("concatenate", parts, &format!("dimension = {axis} : i64"), ty)
    }

    /// The position along an axis.
    pub(super) fn iota(&mut self, ty: &Type, axis: usize) -> Val {
        self.op("iota", &[], &format!("iota_dimension = {axis} : i64"), ty.clone())
    }

    /// Two values joined by `op` where a region joins many. The maximum of a number and NaN is NaN, but XLA's vectors on the CPU lose NaN
    /// in a reduction by `maximum`; so extremes of floats are chosen.
    pub(super) fn joined(&mut self, op: &str, a: Val, b: Val) -> Val {
        let direction = match op {
            "maximum" => "GE",
            "minimum" => "LE",
            _ => return self.map(op, &[a, b]),
        };
        if !self.dtype(a).is_float() {
            return self.map(op, &[a, b]);
        }
        let (further, nan) = (self.compare(direction, a, b), self.compare("NE", a, a));
        let first = self.map("or", &[further, nan]);
        self.select(first, a, b)
    }

    /// One value for all elements along some axes, joined by `op` from `start` on.
    pub(super) fn reduce(&mut self, op: &str, x: Val, start: Val, axes: &[usize]) -> Result<Val> {
        let scalar = Type::scalar(self.dtype(x));
        let body = self.region(&[scalar.clone(), scalar], |w, v| Ok(vec![w.joined(op, v[0], v[1])]))?;
        let kept = |(axis, &dim): (usize, &usize)| (!axes.contains(&axis)).then_some(dim);
        let dims: Vec<usize> = self.ty(x).dims.iter().enumerate().filter_map(kept).collect();
        let ty = Type::new(self.dtype(x), &dims);
        Ok(self.ops("reduce", &[x, start], &format!("dimensions = {}", array(axes)), &[body], &[ty])[0])
    }
}

/// `array<i64: 1, 2>`.
pub(super) fn array(numbers: &[usize]) -> String {
    signed(&numbers.iter().map(|&n| n as i64).collect::<Vec<_>>())
}

/// As [`array`], of numbers that may be negative.
pub(super) fn signed(numbers: &[i64]) -> String {
    if numbers.is_empty() {
        return "array<i64>".into();
    }
    let list: Vec<String> = numbers.iter().map(i64::to_string).collect();
    format!("array<i64: {}>", list.join(", "))
}

/// `[1, 2]`, as dimension numbers are written.
pub(super) fn list(numbers: &[usize]) -> String {
    let list: Vec<String> = numbers.iter().map(usize::to_string).collect();
    format!("[{}]", list.join(", "))
}
