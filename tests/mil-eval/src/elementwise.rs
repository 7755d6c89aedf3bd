//! Functions of elements at one position.

use crate::call::Call;
use crate::tensor::{broadcast, broadcast_offsets};
use crate::{Data, Res, Tensor, Ty};

const NUMBERS: [Ty; 3] = [Ty::F32, Ty::F16, Ty::I32];

/// Computes an operation of this family.
pub fn compute(op: &str, call: &Call) -> Res<Option<Vec<Tensor>>> {
    let result = match op {
        "cast" => cast(call)?,
        "select" => select(call)?,
        "logical_not" => {
            let x = call.of("x", &[Ty::Bool])?;
            Tensor::bools(&x.dims, x.as_bools()?.iter().map(|v| !v).collect())
        }
        "logical_and" | "logical_or" | "logical_xor" => {
            let (x, y) = (call.of("x", &[Ty::Bool])?, call.of("y", &[Ty::Bool])?);
            let dims = broadcast(&x.dims, &y.dims)?;
            let (a, b) = (x.as_bools()?, y.as_bools()?);
            let pairs = pairs(&x, &y, &dims).map(|(i, j)| (a[i], b[j]));
            let f = |(a, b): (bool, bool)| match op {
                "logical_and" => a && b,
                "logical_or" => a || b,
                _ => a != b,
            };
            Tensor::bools(&dims, pairs.map(f).collect())
        }
        "equal" | "not_equal" | "less" | "less_equal" | "greater" | "greater_equal" => compared(op, call)?,
        "identity" => (*call.any("x")?).clone(),
        "gelu" => gelu(call)?,
        "log" => {
            let (x, eps) = (call.float("x")?, call.number("epsilon")?);
            map(&x, |v| (v + f64::from(eps)).ln())?
        }
        "sigmoid_hard" => {
            let (x, alpha, beta) = (call.float("x")?, call.number("alpha")?, call.number("beta")?);
            map(&x, |v| (f64::from(alpha) * v + f64::from(beta)).clamp(0.0, 1.0))?
        }
        _ => match (unary(op), binary(op)) {
            (Some(f), _) => {
                let x = call.float("x")?;
                map(&x, f)?
            }
            (_, Some(f)) => return arithmetic(op, f, call).map(|t| Some(vec![t])),
            _ => match op {
                "abs" | "sign" => signs(op, call)?,
                _ => return Ok(None),
            },
        },
    };
    Ok(Some(vec![result]))
}

fn map(x: &Tensor, f: impl Fn(f64) -> f64) -> Res<Tensor> {
    let values = x.as_floats()?.iter().map(|&v| f(f64::from(v)) as f32).collect();
    Ok(Tensor::of_floats(x.ty, &x.dims, values))
}

/// The error function, by its series near 0 and a continued fraction beyond.
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    if x.is_nan() {
        return x;
    }
    if a < 2.5 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term.abs() > 1e-17 * sum.abs() && n < 200.0 {
            n += 1.0;
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        return (sum * std::f64::consts::FRAC_2_SQRT_PI).copysign(x);
    }
    let mut fraction = 0.0;
    for k in (1..=60).rev() {
        fraction = f64::from(k) / 2.0 / (a + fraction);
    }
    let tail = (-a * a).exp() / (a + fraction) / std::f64::consts::PI.sqrt();
    (1.0 - tail).copysign(x)
}

fn gelu(call: &Call) -> Res<Tensor> {
    let x = call.float("x")?;
    let mode = call.mode("mode", &["EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"])?;
    map(&x, |v| match mode.as_str() {
        "EXACT" => 0.5 * v * (1.0 + erf(v / std::f64::consts::SQRT_2)),
        "TANH_APPROXIMATION" => {
            0.5 * v * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v.powi(3))).tanh())
        }
        _ => v / (1.0 + (-1.702 * v).exp()),
    })
}

fn unary(op: &str) -> Option<fn(f64) -> f64> {
    Some(match op {
        "acos" => f64::acos,
        "asin" => f64::asin,
        "atan" => f64::atan,
        "atanh" => f64::atanh,
        "ceil" => f64::ceil,
        "cos" => f64::cos,
        "cosh" => f64::cosh,
        "erf" => erf,
        "exp" => f64::exp,
        "floor" => f64::floor,
        "relu" => |v| if v < 0.0 { 0.0 } else { v },
        "round" => f64::round_ties_even,
        "sigmoid" => |v| 1.0 / (1.0 + (-v).exp()),
        "silu" => |v| v / (1.0 + (-v).exp()),
        "sin" => f64::sin,
        "sinh" => f64::sinh,
        "softplus" => |v| if v > 30.0 { v } else { v.exp().ln_1p() },
        "softsign" => |v| v / (1.0 + v.abs()),
        "sqrt" => f64::sqrt,
        "tan" => f64::tan,
        "tanh" => f64::tanh,
        _ => return None,
    })
}

fn signs(op: &str, call: &Call) -> Res<Tensor> {
    let x = call.of("x", &NUMBERS)?;
    match (&x.data, op) {
        (Data::Ints(v), "abs") => Ok(Tensor::ints(&x.dims, v.iter().map(|v| v.wrapping_abs()).collect())),
        (Data::Ints(v), _) => Ok(Tensor::ints(&x.dims, v.iter().map(|v| v.signum()).collect())),
        (_, "abs") => map(&x, f64::abs),
        _ => map(&x, |v| {
            if v > 0.0 {
                1.0
            } else if v < 0.0 {
                -1.0
            } else {
                v
            }
        }),
    }
}

type Pair = (fn(f64, f64) -> f64, fn(i32, i32) -> Res<i32>);

fn binary(op: &str) -> Option<Pair> {
    Some(match op {
        "add" => (|a, b| a + b, |a, b| Ok(a.wrapping_add(b))),
        "sub" => (|a, b| a - b, |a, b| Ok(a.wrapping_sub(b))),
        "mul" => (|a, b| a * b, |a, b| Ok(a.wrapping_mul(b))),
        "real_div" => (|a, b| a / b, |_, _| Err("its division of integers is not documented".to_string())),
        "floor_div" => (
            |a, b| (a / b).floor(),
            |a, b| {
                if b == 0 { Err("division by 0".to_string()) } else { Ok(i64::from(a).div_floor_i32(b)) }
            },
        ),
        "mod" => (
            |a, b| a - b * (a / b).floor(),
            |a, b| {
                if b == 0 {
                    Err("division by 0".to_string())
                } else {
                    Ok((i64::from(a) - i64::from(b) * i64::from(i64::from(a).div_floor_i32(b))) as i32)
                }
            },
        ),
        "maximum" => (|a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }, |a, b| Ok(a.max(b))),
        "minimum" => (|a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }, |a, b| Ok(a.min(b))),
        "pow" => (f64::powf, |_, _| Err("its powers of integers are not documented".to_string())),
        _ => return None,
    })
}

trait FloorDiv {
    fn div_floor_i32(self, by: i32) -> i32;
}

impl FloorDiv for i64 {
    /// The quotient towards −∞.
    fn div_floor_i32(self, by: i32) -> i32 {
        let by = i64::from(by);
        let down = self / by - i64::from(self % by != 0 && (self < 0) != (by < 0));
        down as i32
    }
}

fn pairs<'t>(x: &Tensor, y: &Tensor, dims: &'t [usize]) -> impl Iterator<Item = (usize, usize)> + use<'t> {
    broadcast_offsets(&x.dims, dims).into_iter().zip(broadcast_offsets(&y.dims, dims))
}

fn arithmetic(op: &str, (of_floats, of_ints): Pair, call: &Call) -> Res<Tensor> {
    let (x, y) = (call.of("x", &NUMBERS)?, call.of("y", &NUMBERS)?);
    if x.ty != y.ty {
        return Err(format!("{op} of {:?} and {:?}", x.ty, y.ty));
    }
    let dims = broadcast(&x.dims, &y.dims)?;
    if x.ty == Ty::I32 {
        let (a, b) = (x.as_ints()?, y.as_ints()?);
        let values = pairs(&x, &y, &dims).map(|(i, j)| of_ints(a[i], b[j])).collect::<Res<Vec<i32>>>()?;
        return Ok(Tensor::ints(&dims, values));
    }
    let (a, b) = (x.as_floats()?, y.as_floats()?);
    let one = |(i, j): (usize, usize)| of_floats(f64::from(a[i]), f64::from(b[j])) as f32;
    Ok(Tensor::of_floats(x.ty, &dims, pairs(&x, &y, &dims).map(one).collect()))
}

fn compared(op: &str, call: &Call) -> Res<Tensor> {
    let (x, y) = (call.of("x", &NUMBERS)?, call.of("y", &NUMBERS)?);
    if x.ty != y.ty {
        return Err(format!("{op} of {:?} and {:?}", x.ty, y.ty));
    }
    let dims = broadcast(&x.dims, &y.dims)?;
    fn holds<T: PartialOrd>(op: &str, a: T, b: T) -> bool {
        match op {
            "equal" => a == b,
            "not_equal" => a != b,
            "less" => a < b,
            "less_equal" => a <= b,
            "greater" => a > b,
            _ => a >= b,
        }
    }
    let values = match (&x.data, &y.data) {
        (Data::Ints(a), Data::Ints(b)) => pairs(&x, &y, &dims).map(|(i, j)| holds(op, a[i], b[j])).collect(),
        (Data::Floats(a), Data::Floats(b)) => {
            pairs(&x, &y, &dims).map(|(i, j)| holds(op, a[i], b[j])).collect()
        }
        _ => return Err("operands of two kinds".to_string()),
    };
    Ok(Tensor::bools(&dims, values))
}

/// `cond ? a : b`. The result has the dimensions that the two values broadcast to, to which the condition must.
fn select(call: &Call) -> Res<Tensor> {
    let types = [Ty::F32, Ty::F16, Ty::I32, Ty::Bool];
    let (cond, a, b) = (call.of("cond", &[Ty::Bool])?, call.of("a", &types)?, call.of("b", &types)?);
    if a.ty != b.ty {
        return Err(format!("{:?} or {:?}", a.ty, b.ty));
    }
    let dims = broadcast(&a.dims, &b.dims)?;
    if broadcast(&cond.dims, &dims)? != dims {
        return Err("the condition is larger than the values".to_string());
    }
    let (at_a, at_b) = (broadcast_offsets(&a.dims, &dims), broadcast_offsets(&b.dims, &dims));
    let chosen: Vec<bool> = {
        let cond_values = cond.as_bools()?;
        broadcast_offsets(&cond.dims, &dims).into_iter().map(|i| cond_values[i]).collect()
    };
    let at = chosen.iter().zip(at_a.iter().zip(&at_b));
    let data = match (&a.data, &b.data) {
        (Data::Floats(x), Data::Floats(y)) => {
            Data::Floats(at.map(|(&c, (&i, &j))| if c { x[i] } else { y[j] }).collect())
        }
        (Data::Ints(x), Data::Ints(y)) => {
            Data::Ints(at.map(|(&c, (&i, &j))| if c { x[i] } else { y[j] }).collect())
        }
        (Data::Bools(x), Data::Bools(y)) => {
            Data::Bools(at.map(|(&c, (&i, &j))| if c { x[i] } else { y[j] }).collect())
        }
        _ => return Err("values of two kinds".to_string()),
    };
    Ok(Tensor { ty: a.ty, dims, data })
}

fn cast(call: &Call) -> Res<Tensor> {
    let x = call.any("x")?;
    let to = Ty::of_name(&call.mode("dtype", &["bool", "fp16", "fp32", "int32", "int8", "uint8"])?)?;
    let numbers: Vec<f64> = match &x.data {
        Data::Floats(v) => v.iter().map(|&v| f64::from(v)).collect(),
        Data::Ints(v) => v.iter().map(|&v| f64::from(v)).collect(),
        Data::Bools(v) => v.iter().map(|&v| f64::from(u8::from(v))).collect(),
        Data::Text(_) => return Err("a text".to_string()),
    };
    if to.is_float() {
        return Ok(Tensor::of_floats(to, &x.dims, numbers.iter().map(|&v| v as f32).collect()));
    }
    if to == Ty::Bool {
        return Ok(Tensor::bools(&x.dims, numbers.iter().map(|&v| v != 0.0).collect()));
    }
    let (low, high) = match to {
        Ty::I8 => (-128.0, 127.0),
        Ty::U8 => (0.0, 255.0),
        _ => (f64::from(i32::MIN), f64::from(i32::MAX)),
    };
    // What becomes of numbers that the type does not have is not documented.
    let whole = |&v: &f64| {
        let v = v.trunc();
        if v >= low && v <= high { Ok(v as i32) } else { Err(format!("{v} as {to:?}")) }
    };
    let values = numbers.iter().map(whole).collect::<Res<Vec<i32>>>()?;
    Ok(Tensor { ty: to, dims: x.dims.clone(), data: Data::Ints(values) })
}
