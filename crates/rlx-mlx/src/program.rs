//! Programs for the shim: the words of its interface, and a builder that knows every value's type.

use rlx_ir::{DType, Error, ErrorKind, Result};

/// Declares the operations that programs use, by the names that the shim knows them by.
macro_rules! codes {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// An operation of the shim.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code { $($variant),* }

        /// The names of all operations, in the order of [`Code`].
        pub(crate) const NAMES: &[&str] = &[$($name),*];
    };
}

codes! {
    Abs = "abs", Negative = "negative", Sign = "sign", Exp = "exp", Expm1 = "expm1", Log = "log", Log1p = "log1p",
    Sqrt = "sqrt", Rsqrt = "rsqrt", Reciprocal = "reciprocal", Square = "square", Sin = "sin", Cos = "cos", Tan = "tan",
    Arcsin = "arcsin", Arccos = "arccos", Arctan = "arctan", Sinh = "sinh", Cosh = "cosh", Tanh = "tanh",
    Arcsinh = "arcsinh", Arccosh = "arccosh", Arctanh = "arctanh", Floor = "floor", Ceil = "ceil", Round = "round",
    Erf = "erf", Erfinv = "erfinv", Sigmoid = "sigmoid", LogicalNot = "logical_not", BitwiseInvert = "bitwise_invert",
    IsNan = "isnan", IsInf = "isinf", IsPosInf = "isposinf", IsNegInf = "isneginf",
    Add = "add", Subtract = "subtract", Multiply = "multiply", Divide = "divide", FloorDivide = "floor_divide",
    Remainder = "remainder", Maximum = "maximum", Minimum = "minimum", Power = "power",
    Arctan2 = "arctan2", Equal = "equal", NotEqual = "not_equal", Less = "less", LessEqual = "less_equal",
    Greater = "greater", GreaterEqual = "greater_equal", LogicalAnd = "logical_and", LogicalOr = "logical_or",
    BitwiseAnd = "bitwise_and", BitwiseOr = "bitwise_or", BitwiseXor = "bitwise_xor", LeftShift = "left_shift",
    RightShift = "right_shift", MatMul = "matmul",
    Sum = "sum", Prod = "prod", Max = "max", Min = "min", All = "all", Any = "any",
    CumSum = "cumsum", CumProd = "cumprod", CumMax = "cummax", CumMin = "cummin",
    ScatterAdd = "scatter_add", ScatterProd = "scatter_prod", ScatterMax = "scatter_max",
    Constant = "constant", Arange = "arange", Where = "where", AsType = "astype", View = "view", Contiguous = "contiguous",
    Reshape = "reshape", Transpose = "transpose", BroadcastTo = "broadcast_to", Slice = "slice", Pad = "pad",
    Windows = "windows", Concatenate = "concatenate", Take = "take", TakeAlongAxis = "take_along_axis",
    SliceUpdate = "slice_update", Argsort = "argsort", Softmax = "softmax", Conv = "conv", Attention = "attention",
    LayerNorm = "layer_norm", RmsNorm = "rms_norm", QuantizedMatMul = "quantized_matmul", If = "if", Loop = "loop",
}

/// The numbers that a loaded shim gives the operations.
#[derive(Debug, Clone)]
pub(crate) struct Codes(Vec<i64>);

impl Codes {
    /// The numbers that `number` gives each name.
    ///
    /// # Errors
    /// The name that has none.
    pub(crate) fn of(mut number: impl FnMut(&str) -> i64) -> std::result::Result<Codes, &'static str> {
        let numbered = NAMES.iter().map(|&name| Some(number(name)).filter(|&n| n >= 0).ok_or(name));
        numbered.collect::<std::result::Result<_, _>>().map(Codes)
    }
}

/// The shim's number of an element type; elements that share a byte are the bytes that they are in.
pub(crate) fn dtype_code(dtype: DType) -> Option<i64> {
    Some(match dtype {
        DType::Bool => 0,
        DType::U8 | DType::U2 | DType::I2 | DType::U4 | DType::I4 => 1,
        DType::U16 => 2,
        DType::U32 => 3,
        DType::U64 => 4,
        DType::I8 => 5,
        DType::I16 => 6,
        DType::I32 => 7,
        DType::I64 => 8,
        DType::F16 => 9,
        DType::BF16 => 10,
        DType::F32 => 11,
        DType::F64 => 12,
        _ => return None,
    })
}

/// A tensor's dimensions as MLX has it: packed elements are a row of bytes.
pub(crate) fn stored_dims(dtype: DType, dims: &[usize]) -> Vec<usize> {
    if dtype.is_packed() {
        vec![dtype.storage_bytes(dims.iter().product()).unwrap_or(usize::MAX)]
    } else {
        dims.to_vec()
    }
}

/// Element type and dimensions of a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Type {
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<usize>,
}

impl Type {
    fn bytes(&self) -> u64 {
        let all = self.dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64));
        all.and_then(|n| n.checked_mul(self.dtype.size_bytes() as u64)).unwrap_or(u64::MAX)
    }
}

impl Code {
    /// Whether the result is what was there, read in another way.
    fn is_view(self) -> bool {
        matches!(self, Code::BroadcastTo | Code::Windows | Code::Transpose | Code::Reshape | Code::Slice)
    }
}

/// A value of a program: its number.
pub(crate) type Val = usize;

/// A program that is being written.
pub(crate) struct Builder<'c> {
    codes: &'c Codes,
    inputs: usize,
    instructions: Vec<i64>,
    count: i64,
    types: Vec<Type>,
    /// The largest value that something is written into, in bytes.
    largest: u64,
}

/// A dimension or a number of things as a word.
pub(crate) fn word(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The dimensions that two broadcast to.
fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    (0..rank).map(|i| if at(a, i) == 1 { at(b, i) } else { at(a, i) }).collect()
}

impl<'c> Builder<'c> {
    /// A program with inputs of these types.
    pub(crate) fn new(codes: &'c Codes, inputs: Vec<Type>) -> Self {
        Builder { codes, inputs: inputs.len(), instructions: Vec::new(), count: 0, types: inputs, largest: 0 }
    }

    /// A builder for a body of this program's.
    pub(crate) fn inner(&self, inputs: Vec<Type>) -> Builder<'c> {
        Builder::new(self.codes, inputs)
    }

    pub(crate) fn dtype(&self, value: Val) -> DType {
        self.types[value].dtype
    }

    pub(crate) fn dims(&self, value: Val) -> &[usize] {
        &self.types[value].dims
    }

    /// The bytes of the largest value that an instruction writes. MLX's build for the CPU does not notice memory that it did not get.
    pub(crate) fn largest(&self) -> u64 {
        self.largest
    }

    /// The words of the program that gives `outputs`.
    pub(crate) fn finish(self, outputs: &[Val]) -> Vec<i64> {
        let mut words = vec![word(self.inputs), self.count];
        words.extend(self.instructions);
        words.push(word(outputs.len()));
        words.extend(outputs.iter().map(|&v| word(v)));
        words
    }

    /// An instruction with results of these types; gives the first of them.
    pub(crate) fn push(&mut self, code: Code, operands: &[Val], attrs: &[i64], results: Vec<Type>) -> Val {
        let head =
            [self.codes.0[code as usize], word(operands.len()), word(attrs.len()), word(results.len())];
        self.instructions.extend(head);
        self.instructions.extend(operands.iter().map(|&v| word(v)));
        self.instructions.extend(attrs);
        self.count += 1;
        if !code.is_view() {
            let bytes = results.iter().map(Type::bytes).max().unwrap_or(0);
            self.largest = self.largest.max(bytes);
        }
        let first = self.types.len();
        self.types.extend(results);
        first
    }

    fn one(&mut self, code: Code, operands: &[Val], attrs: &[i64], dtype: DType, dims: Vec<usize>) -> Val {
        self.push(code, operands, attrs, vec![Type { dtype, dims }])
    }

    /// A function of each element that keeps the type.
    pub(crate) fn unary(&mut self, code: Code, x: Val) -> Val {
        let Type { dtype, dims } = self.types[x].clone();
        self.one(code, &[x], &[], dtype, dims)
    }

    /// A question about each element.
    pub(crate) fn question(&mut self, code: Code, x: Val) -> Val {
        let dims = self.dims(x).to_vec();
        self.one(code, &[x], &[], DType::Bool, dims)
    }

    /// A function of two elements of one type, which it keeps.
    pub(crate) fn binary(&mut self, code: Code, a: Val, b: Val) -> Val {
        let (dtype, dims) = (self.dtype(a), broadcast(self.dims(a), self.dims(b)));
        self.one(code, &[a, b], &[], dtype, dims)
    }

    /// A comparison of two elements.
    pub(crate) fn compare(&mut self, code: Code, a: Val, b: Val) -> Val {
        let dims = broadcast(self.dims(a), self.dims(b));
        self.one(code, &[a, b], &[], DType::Bool, dims)
    }

    /// `condition ? a : b`.
    pub(crate) fn select(&mut self, condition: Val, a: Val, b: Val) -> Val {
        let dims = broadcast(self.dims(condition), &broadcast(self.dims(a), self.dims(b)));
        let dtype = self.dtype(a);
        self.one(Code::Where, &[condition, a, b], &[], dtype, dims)
    }

    /// MLX's own conversion: floats round to nearest even, integers wrap; floats to integers are the caller's affair.
    pub(crate) fn astype(&mut self, x: Val, to: DType) -> Val {
        if self.dtype(x) == to {
            return x;
        }
        let dims = self.dims(x).to_vec();
        self.one(Code::AsType, &[x], &[dtype_code(to).unwrap_or(-1)], to, dims)
    }

    /// The same bits as a type of the same width.
    pub(crate) fn view(&mut self, x: Val, to: DType) -> Val {
        let dims = self.dims(x).to_vec();
        self.view_as(x, to, dims)
    }

    /// The same bytes as another type, in a last dimension that fits.
    pub(crate) fn view_as(&mut self, x: Val, to: DType, dims: Vec<usize>) -> Val {
        self.one(Code::View, &[x], &[dtype_code(to).unwrap_or(-1)], to, dims)
    }

    /// A tensor of these row-major bytes.
    pub(crate) fn constant(&mut self, dtype: DType, dims: &[usize], bytes: &[u8]) -> Val {
        let dims = stored_dims(dtype, dims);
        let mut attrs = vec![dtype_code(dtype).unwrap_or(-1), word(dims.len())];
        attrs.extend(dims.iter().map(|&d| word(d)));
        attrs.push(word(bytes.len()));
        for chunk in bytes.chunks(8) {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            attrs.push(i64::from_le_bytes(eight));
        }
        self.one(Code::Constant, &[], &attrs, dtype, dims)
    }

    /// A vector of i64.
    pub(crate) fn numbers(&mut self, numbers: &[i64]) -> Val {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        self.constant(DType::I64, &[numbers.len()], &bytes)
    }

    /// A number of any type, without dimensions.
    pub(crate) fn scalar(&mut self, dtype: DType, value: f64) -> Val {
        let value = match dtype.class() {
            rlx_ir::DTypeClass::Float => rlx_ir::Value::float(dtype, &[], vec![value]).rounded(),
            _ => rlx_ir::Value::int(dtype, &[], vec![value as i128]),
        };
        self.constant(dtype, &[], &value.encode())
    }

    /// An integer, without dimensions.
    pub(crate) fn int(&mut self, dtype: DType, value: i128) -> Val {
        self.constant(dtype, &[], &rlx_ir::Value::int(dtype, &[], vec![value]).encode())
    }

    /// `0, 1, …`, as i64.
    pub(crate) fn arange(&mut self, len: usize) -> Val {
        let attrs = [dtype_code(DType::I64).unwrap_or(-1), word(len)];
        self.one(Code::Arange, &[], &attrs, DType::I64, vec![len])
    }

    pub(crate) fn reshape(&mut self, x: Val, dims: &[usize]) -> Val {
        if self.dims(x) == dims {
            return x;
        }
        let attrs: Vec<i64> = dims.iter().map(|&d| word(d)).collect();
        let dtype = self.dtype(x);
        self.one(Code::Reshape, &[x], &attrs, dtype, dims.to_vec())
    }

    pub(crate) fn broadcast_to(&mut self, x: Val, dims: &[usize]) -> Val {
        if self.dims(x) == dims {
            return x;
        }
        let attrs: Vec<i64> = dims.iter().map(|&d| word(d)).collect();
        let dtype = self.dtype(x);
        self.one(Code::BroadcastTo, &[x], &attrs, dtype, dims.to_vec())
    }

    pub(crate) fn transpose(&mut self, x: Val, perm: &[usize]) -> Val {
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return x;
        }
        let attrs: Vec<i64> = perm.iter().map(|&p| word(p)).collect();
        let (dtype, dims) = (self.dtype(x), perm.iter().map(|&p| self.dims(x)[p]).collect());
        self.one(Code::Transpose, &[x], &attrs, dtype, dims)
    }

    /// Elements `start, start + step, …`, `len` of them, along each dimension.
    pub(crate) fn slice(&mut self, x: Val, starts: &[i64], steps: &[i64], dims: &[usize]) -> Val {
        if dims.contains(&0) {
            return self.empty(self.dtype(x), dims);
        }
        // MLX's stop counts from the end where it is negative; what stops before the first element is one beyond that.
        let stop = |i: usize| {
            let last = starts[i] + (word(dims[i]) - 1) * steps[i];
            if steps[i] > 0 {
                last + 1
            } else if last > 0 {
                last - 1
            } else {
                -word(self.dims(x)[i]) - 1
            }
        };
        let mut attrs = starts.to_vec();
        attrs.extend((0..dims.len()).map(stop));
        attrs.extend(steps);
        let dtype = self.dtype(x);
        self.one(Code::Slice, &[x], &attrs, dtype, dims.to_vec())
    }

    /// Elements `from..to` of one axis.
    pub(crate) fn narrow(&mut self, x: Val, axis: usize, from: usize, to: usize) -> Val {
        let mut dims = self.dims(x).to_vec();
        if (from, to) == (0, dims[axis]) {
            return x;
        }
        dims[axis] = to - from;
        let mut starts = vec![0; dims.len()];
        starts[axis] = word(from);
        let steps = vec![1; dims.len()];
        self.slice(x, &starts, &steps, &dims)
    }

    /// A tensor without elements.
    pub(crate) fn empty(&mut self, dtype: DType, dims: &[usize]) -> Val {
        self.constant(dtype, dims, &[])
    }

    /// A tensor of one number.
    pub(crate) fn full(&mut self, value: Val, dims: &[usize]) -> Val {
        self.broadcast_to(value, dims)
    }

    pub(crate) fn concatenate(&mut self, parts: &[Val], axis: usize) -> Val {
        // Parts without elements along the axis add nothing.
        let filled: Vec<Val> = parts.iter().copied().filter(|&p| self.dims(p)[axis] > 0).collect();
        let parts = if filled.is_empty() { &parts[..1] } else { &filled[..] };
        if let [one] = parts {
            return *one;
        }
        let mut dims = self.dims(parts[0]).to_vec();
        dims[axis] = parts.iter().map(|&p| self.dims(p)[axis]).sum();
        let dtype = self.dtype(parts[0]);
        self.one(Code::Concatenate, parts, &[word(axis)], dtype, dims)
    }

    /// A border of `value`.
    pub(crate) fn pad(&mut self, x: Val, value: Val, before: &[usize], after: &[usize]) -> Val {
        let dims: Vec<usize> =
            self.dims(x).iter().zip(before.iter().zip(after)).map(|(d, (b, a))| d + b + a).collect();
        if dims == self.dims(x) {
            return x;
        }
        let attrs: Vec<i64> = before.iter().chain(after).map(|&n| word(n)).collect();
        let dtype = self.dtype(x);
        self.one(Code::Pad, &[x, value], &attrs, dtype, dims)
    }

    /// Windows into the row-major elements.
    pub(crate) fn windows(&mut self, x: Val, dims: &[usize], strides: &[usize]) -> Val {
        let attrs: Vec<i64> = dims.iter().chain(strides).map(|&n| word(n)).collect();
        let dtype = self.dtype(x);
        self.one(Code::Windows, &[x], &attrs, dtype, dims.to_vec())
    }

    /// Reduces over axes, which stay as dimensions of 1 or not.
    pub(crate) fn reduce(&mut self, code: Code, x: Val, axes: &[usize], keep: bool) -> Val {
        let mut attrs = vec![i64::from(keep)];
        attrs.extend(axes.iter().map(|&a| word(a)));
        let kept = |(i, &d): (usize, &usize)| match (axes.contains(&i), keep) {
            (false, _) => Some(d),
            (true, true) => Some(1),
            (true, false) => None,
        };
        let dims = self.dims(x).iter().enumerate().filter_map(kept).collect();
        let dtype = if matches!(code, Code::All | Code::Any) { DType::Bool } else { self.dtype(x) };
        self.one(code, &[x], &attrs, dtype, dims)
    }

    /// Whole slices at `indices`, which are within the axis.
    pub(crate) fn take(&mut self, x: Val, indices: Val, axis: usize) -> Val {
        let mut dims = self.dims(x).to_vec();
        dims.splice(axis..=axis, self.dims(indices).to_vec());
        let dtype = self.dtype(x);
        self.one(Code::Take, &[x, indices], &[word(axis)], dtype, dims)
    }

    /// An operation with attributes whose result has this type.
    pub(crate) fn op(
        &mut self,
        code: Code,
        operands: &[Val],
        attrs: &[i64],
        dtype: DType,
        dims: &[usize],
    ) -> Val {
        self.one(code, operands, attrs, dtype, dims.to_vec())
    }
}

/// A float as a word.
pub(crate) fn real(value: f32) -> i64 {
    f64::from(value).to_bits() as i64
}

/// What a program cannot say, which its claim should have kept from it.
pub(crate) fn unsupported<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, what.into()))
}
