//! Emulation, closer than an op's tolerance: half precision to the bit, library functions to a few units in the
//! last place.

use half::{bf16, f16};
use rlx_ir::DType;
use rlx_kernel::TypeSupport;
use rlx_kernel::build::Builder;
use rlx_kernel::emulate::emulate;
use rlx_kernel::interp::{Binding, Pools, dispatch};
use rlx_kernel::ir::{Access, BinOp, Cmp, Inst, Kernel, MathFn, Stmt, Ty, UnOp, Value};
use rlx_kernel::verify::verify;

/// `y[i] = f(x[i])` on a device with 32-bit types only: the bytes of `y`.
fn run(input: (DType, &[u8]), to: DType, f: impl FnOnce(&mut Builder, Value) -> Value) -> Vec<u8> {
    run_compiled(input, to, |kernel| emulate(kernel, TypeSupport::WGSL).unwrap(), f)
}

/// The same, by what `compile` makes of the kernel.
fn run_compiled(
    (from, x): (DType, &[u8]),
    to: DType,
    compile: impl FnOnce(&Kernel) -> Kernel,
    f: impl FnOnce(&mut Builder, Value) -> Value,
) -> Vec<u8> {
    let n = x.len() / from.size_bytes();
    let mut b = Builder::new("map", 64);
    let (input, output) = (b.buffer("x", from, Access::Read), b.buffer("y", to, Access::Write));
    let (i, count) = (b.global_id(), b.uniform("n", 0, i32::MAX));
    let inside = b.lt(i, count);
    b.if_then(inside, |b| {
        let v = b.load(input, i);
        let v = f(b, v);
        b.store(output, i, v);
    });
    let kernel = compile(&b.finish());
    verify(&kernel).unwrap();
    let bytes = (n * to.size_bytes()).next_multiple_of(4);
    let mut pools = Pools(vec![x.to_vec(), vec![0; bytes]]);
    pools.0[0].resize(x.len().next_multiple_of(4), 0);
    let bindings = [0, 1].map(|pool| Binding { pool, offset: 0, len: pools.0[pool].len() });
    dispatch(&kernel, n.div_ceil(64) as i64, &[n as i32], &bindings, &mut pools).unwrap();
    pools.0[1].truncate(n * to.size_bytes());
    pools.0.remove(1)
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn read(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

/// Every binary16 number, those half-way to the next, and their neighbours.
fn around_halves() -> Vec<f32> {
    let mut all = Vec::new();
    for bits in (0..=u16::MAX).step_by(7) {
        let x = f16::from_bits(bits).to_f32();
        let next = f16::from_bits(bits.wrapping_add(1)).to_f32();
        let middle = x + (next - x) / 2.0;
        all.extend([x, middle, f32::from_bits(middle.to_bits() ^ 1)]);
    }
    all.extend([65_519.9, 65_520.0, 65_535.0, 1e30, 5.9e-8, 2.9e-8, 3.0e-8, -0.0, f32::NAN, f32::INFINITY]);
    all
}

#[test]
fn half_precision_is_exact_to_the_bit() {
    let x = around_halves();
    let same = |got: f32, want: f32| got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
    for (op, exact) in [
        (UnOp::RoundF16, &(|v: f32| f16::from_f32(v).to_f32()) as &dyn Fn(f32) -> f32),
        (UnOp::RoundBF16, &|v| bf16::from_f32(v).to_f32()),
    ] {
        let got = read(&run((DType::F32, &f32s(&x)), DType::F32, |b, v| b.unary(op, v)));
        for (&v, &got) in x.iter().zip(&got) {
            assert!(same(got, exact(v)), "{op:?} of {v:e}: {got:e} where {:e} is right", exact(v));
        }
    }
    // Through memory: every pattern loads as itself and stores as itself.
    for dtype in [DType::F16, DType::BF16] {
        let all: Vec<u8> = (0..=u16::MAX).step_by(3).flat_map(|v| v.to_le_bytes()).collect();
        let loaded = read(&run((dtype, &all), DType::F32, |_, v| v));
        let stored = run((DType::F32, &f32s(&loaded)), dtype, |_, v| v);
        for (i, pair) in all.chunks_exact(2).enumerate() {
            let bits = u16::from_le_bytes([pair[0], pair[1]]);
            let want = if dtype == DType::F16 {
                f16::from_bits(bits).to_f32()
            } else {
                bf16::from_bits(bits).to_f32()
            };
            assert!(same(loaded[i], want), "{dtype} {bits:#06x}: {}", loaded[i]);
            let back = u16::from_le_bytes([stored[2 * i], stored[2 * i + 1]]);
            assert!(back == bits || want.is_nan(), "{dtype} {bits:#06x} came back as {back:#06x}");
        }
    }
}

/// How far `got` is from `want`, in units of binary32 at `want` or, below 1, of 1 (functions near their zeros).
fn error(got: f32, want: f64) -> f64 {
    let (w, g) = (want as f32, f64::from(got));
    if w == got || (w.is_nan() && got.is_nan()) {
        return 0.0;
    }
    (g - want).abs() / (want.abs().max(1.0) * f64::from(f32::EPSILON))
}

/// A function, where it is looked at, what is right, and the most units it may be off.
type Accuracy = (MathFn, f32, f32, fn(f64) -> f64, f64);

#[test]
fn library_functions_are_accurate() {
    let grid = |low: f32, high: f32| -> Vec<f32> {
        (0..=4000).map(|i| low + (high - low) * i as f32 / 4000.0).collect()
    };
    let ends = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let cases: &[Accuracy] = &[
        (MathFn::Exp, -20.0, 20.0, f64::exp, 3.0),
        (MathFn::Exp, -87.0, 88.0, f64::exp, 3.0),
        (MathFn::Log, 1e-3, 50.0, f64::ln, 2.0),
        (MathFn::Log, 1e-38, 1e38, f64::ln, 2.0),
        (MathFn::Sin, -100.0, 100.0, f64::sin, 2.0),
        (MathFn::Cos, -100.0, 100.0, f64::cos, 2.0),
        (MathFn::Tan, -1.4, 1.4, f64::tan, 4.0),
        (MathFn::Asin, -1.0, 1.0, f64::asin, 4.0),
        (MathFn::Acos, -1.0, 1.0, f64::acos, 4.0),
        (MathFn::Atan, -30.0, 30.0, f64::atan, 2.0),
        (MathFn::Sinh, -10.0, 10.0, f64::sinh, 4.0),
        (MathFn::Cosh, -10.0, 10.0, f64::cosh, 4.0),
        (MathFn::Tanh, -10.0, 10.0, f64::tanh, 2.0),
        (MathFn::Asinh, -50.0, 50.0, f64::asinh, 4.0),
        (MathFn::Acosh, 1.0, 50.0, f64::acosh, 4.0),
        (MathFn::Atanh, -0.99, 0.99, f64::atanh, 8.0),
    ];
    for &(f, low, high, exact, most) in cases {
        let mut x = grid(low, high);
        if matches!(f, MathFn::Exp | MathFn::Log | MathFn::Tanh | MathFn::Atan) {
            x.extend(ends);
        }
        let got = read(&run((DType::F32, &f32s(&x)), DType::F32, |b, v| b.math(f, v)));
        for (&v, &got) in x.iter().zip(&got) {
            let want = exact(f64::from(v));
            let e = error(got, want);
            assert!(e <= most, "{} {v:e}: {got:e} where {want:e} is right ({e:.1} units)", f.name());
        }
    }
}

#[test]
fn powers_remainders_and_angles_are_right_at_their_edges() {
    let x = [2.0, -2.0, 0.0, 1.5, -1.5, 7.25, -7.25, 1e-3, 3.0, f32::INFINITY];
    for y in [2.0f32, 3.0, -1.0, 0.5, 0.0, -2.5] {
        for (op, exact) in [
            (BinOp::Pow, &(|a: f64, b: f64| a.powf(b)) as &dyn Fn(f64, f64) -> f64),
            (BinOp::Fmod, &|a, b| a % b),
            (BinOp::Atan2, &f64::atan2),
        ] {
            let got = read(&run((DType::F32, &f32s(&x)), DType::F32, |b, v| {
                let y = b.number(Ty::F32, f64::from(y));
                b.binary(op, v, y)
            }));
            for (&v, &got) in x.iter().zip(&got) {
                let want = exact(f64::from(v), f64::from(y));
                assert!(error(got, want) <= 8.0, "{op:?} {v} {y}: {got} where {want} is right");
            }
        }
    }
}

/// What a compiler makes of a kernel that takes floats to have no NaN: it moves negations inwards, and the negation of `x < y` is `x >= y`.
struct Inverting {
    values: Vec<Ty>,
    made: Vec<Option<Inst>>,
}

impl Inverting {
    fn compile(kernel: &Kernel) -> Kernel {
        let mut this = Inverting { values: kernel.values.clone(), made: vec![None; kernel.values.len()] };
        let body = this.block(&kernel.body);
        Kernel { body, values: this.values, ..kernel.clone() }
    }

    fn block(&mut self, stmts: &[Stmt]) -> Vec<Stmt> {
        let mut out = Vec::new();
        for stmt in stmts {
            match stmt {
                &Stmt::Let(v, inst) => {
                    self.made[v.index()] = Some(inst);
                    let inverted = match inst {
                        Inst::Unary(UnOp::Not, of) => self.negation(of, &mut out),
                        _ => inst,
                    };
                    out.push(Stmt::Let(v, inverted));
                }
                Stmt::If { cond, then, otherwise } => {
                    let (then, otherwise) = (self.block(then), self.block(otherwise));
                    out.push(Stmt::If { cond: *cond, then, otherwise });
                }
                other => out.push(other.clone()),
            }
        }
        out
    }

    fn negation(&mut self, of: Value, out: &mut Vec<Stmt>) -> Inst {
        match self.made[of.index()] {
            Some(Inst::Compare(op, x, y)) => {
                let inverse = match op {
                    Cmp::Lt => Cmp::Ge,
                    Cmp::Le => Cmp::Gt,
                    Cmp::Gt => Cmp::Le,
                    Cmp::Ge => Cmp::Lt,
                    Cmp::Eq => Cmp::Ne,
                    Cmp::Ne => Cmp::Eq,
                };
                Inst::Compare(inverse, x, y)
            }
            Some(Inst::Binary(op @ (BinOp::And | BinOp::Or), x, y)) => {
                let [x, y] = [x, y].map(|v| {
                    let inst = self.negation(v, out);
                    let name = Value(self.values.len() as u32);
                    self.values.push(Ty::Bool);
                    self.made.push(Some(inst));
                    out.push(Stmt::Let(name, inst));
                    name
                });
                Inst::Binary(if op == BinOp::And { BinOp::Or } else { BinOp::And }, x, y)
            }
            _ => Inst::Unary(UnOp::Not, of),
        }
    }
}

/// Whether two numbers compare so.
type Holds = fn(f32, f32) -> bool;

#[test]
fn negated_comparisons_with_nan_survive_a_compiler_that_inverts_them() {
    let x = [f32::NAN, -1.0, 0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN, -0.0];
    let comparisons: [(Cmp, Holds); 4] = [
        (Cmp::Lt, |x, y| x < y),
        (Cmp::Le, |x, y| x <= y),
        (Cmp::Gt, |x, y| x > y),
        (Cmp::Ge, |x, y| x >= y),
    ];
    for (op, holds) in comparisons {
        for y in [0.0, f32::NAN] {
            let want: Vec<f32> = x.iter().map(|&x| f32::from(u8::from(!holds(x, y)))).collect();
            let got = |types: TypeSupport| {
                let compile = |kernel: &Kernel| Inverting::compile(&emulate(kernel, types).unwrap());
                read(&run_compiled((DType::F32, &f32s(&x)), DType::F32, compile, |b, v| {
                    let y = b.number(Ty::F32, f64::from(y));
                    let compared = b.compare(op, v, y);
                    let not = b.not(compared);
                    let (one, zero) = (b.number(Ty::F32, 1.0), b.number(Ty::F32, 0.0));
                    b.select(not, one, zero)
                }))
            };
            assert_eq!(got(TypeSupport { nan_order: false, ..TypeSupport::WGSL }), want, "{op:?} {y}");
            // Such a compiler it is.
            assert_ne!(got(TypeSupport::WGSL), want, "{op:?} {y}");
        }
    }
}

#[test]
fn a_sum_of_a_product_is_rounded_once_where_the_device_can_and_twice_elsewhere() {
    let x: Vec<f32> = (0..200).map(|i| 1.0 + (2 * i + 1) as f32 * 2f32.powi(-13)).collect();
    let got = |types: TypeSupport| {
        let compile = |kernel: &Kernel| emulate(kernel, types).unwrap();
        read(&run_compiled((DType::F32, &f32s(&x)), DType::F32, compile, |b, v| {
            let sum = b.number(Ty::F32, -1.0);
            b.multiply_add(v, v, sum)
        }))
    };
    let (once, twice): (Vec<f32>, Vec<f32>) = x.iter().map(|&x| (x.mul_add(x, -1.0), x * x - 1.0)).unzip();
    assert!(once.iter().zip(&twice).all(|(once, twice)| once != twice), "no product here is a float");
    assert_eq!(got(TypeSupport::ALL), once);
    assert_eq!(got(TypeSupport::MSL), once);
    assert_eq!(got(TypeSupport::WGSL), twice);
    let wide = |types: TypeSupport| {
        let x: Vec<u8> = x.iter().flat_map(|&x| (f64::from(x) / 3.0).to_le_bytes()).collect();
        let compile = |kernel: &Kernel| emulate(kernel, types).unwrap();
        let y = run_compiled((DType::F64, &x), DType::F64, compile, |b, v| b.multiply_add(v, v, v));
        y.chunks_exact(8).map(|c| f64::from_le_bytes(c.try_into().unwrap())).collect::<Vec<f64>>()
    };
    let thirds = x.iter().map(|&x| f64::from(x) / 3.0);
    let (once, twice): (Vec<f64>, Vec<f64>) = thirds.map(|x| (x.mul_add(x, x), x * x + x)).unzip();
    assert_eq!(wide(TypeSupport::ALL), once);
    assert_eq!(wide(TypeSupport { fma: false, ..TypeSupport::ALL }), twice);
    assert_ne!(once, twice);
}

#[test]
fn a_sum_of_a_product_is_of_floats_of_one_type() {
    let kernel = |ty: Ty, sum: Ty| {
        let mut b = Builder::new("fma", 1);
        let (x, z) = (b.declare_var(ty), b.declare_var(sum));
        let (x, z) = (b.get(x), b.get(z));
        let mut kernel = b.finish();
        let value = Value(2);
        kernel.values = vec![ty, sum, ty];
        kernel.body = vec![
            Stmt::Let(x, Inst::Get(rlx_kernel::ir::Var(0))),
            Stmt::Let(z, Inst::Get(rlx_kernel::ir::Var(1))),
            Stmt::Let(value, Inst::Fma(x, x, z)),
        ];
        kernel
    };
    verify(&kernel(Ty::F32, Ty::F32)).unwrap();
    verify(&kernel(Ty::F64, Ty::F64)).unwrap();
    for (ty, sum) in [(Ty::I32, Ty::I32), (Ty::F32, Ty::F64), (Ty::F64, Ty::F32), (Ty::Bool, Ty::Bool)] {
        assert!(verify(&kernel(ty, sum)).is_err(), "{} and {}", ty.name(), sum.name());
    }
}
