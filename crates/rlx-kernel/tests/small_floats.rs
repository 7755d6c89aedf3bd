//! Casts from and to numbers of 8 bits on the interpreter: every code, and every number between two of them that could be rounded wrongly, as the oracle has it.

mod common;

use common::{compiled, native, processor, shorts, try_compiled, words};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::{DType, Graph, Op, Shape, Value};

const SMALL: [DType; 5] =
    [DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ, DType::F8E8M0];

fn cast(from: DType, to: DType, n: usize) -> Graph {
    let mut graph = Graph::new("cast");
    let x = graph.input("x", Shape::new(&[n], from));
    let y = graph.try_add(Op::Cast { to }, &[x]).unwrap();
    graph.set_outputs(vec![y]);
    graph
}

/// Compares a cast of these on every device with the oracle's, to the bit but for those of a NaN.
fn check(x: &Value, to: DType) -> Value {
    let graph = cast(x.dtype, to, x.len());
    let mut bindings = Bindings::default();
    bindings.set_input("x", x.clone());
    let want = oracle::evaluate(&graph, &bindings).unwrap().remove(0);
    for target in [native(), words(), shorts(), processor()] {
        let got = compiled(&graph, &target).run(&bindings).unwrap().remove(0);
        for ((x, want), got) in x.to_f64().iter().zip(want.to_f64()).zip(got.to_f64()) {
            let same = want.to_bits() == got.to_bits() || want.is_nan() && got.is_nan();
            assert!(
                same,
                "{}: {x:e} of {} is {got:e} in {to}, not {want:e}",
                target.name,
                graph.inputs().next().unwrap().shape
            );
        }
    }
    want
}

/// All codes of a type.
fn codes(dtype: DType) -> Value {
    Value::try_decode(dtype, &[256], &(0..=255).collect::<Vec<u8>>()).unwrap()
}

#[test]
fn every_code_is_the_number_that_it_is_and_comes_back() {
    for dtype in SMALL {
        let wide = check(&codes(dtype), DType::F32);
        check(&wide, dtype);
        check(&codes(dtype), DType::F16);
        check(&codes(dtype), DType::I32);
        check(&codes(dtype), DType::Bool);
        for other in SMALL {
            check(&codes(dtype), other);
        }
    }
}

/// Halves between neighbours, and what f32 has on either side.
#[test]
fn numbers_are_rounded_to_the_nearest() {
    for dtype in SMALL {
        let mut numbers: Vec<f64> =
            codes(dtype).to_f64().into_iter().filter(|x| !x.is_nan()).map(f64::abs).collect();
        numbers.push(0.0);
        numbers.sort_by(f64::total_cmp);
        let beyond = numbers.iter().rev().find(|x| x.is_finite()).map_or(1.0, |most| 1.25 * most);
        numbers.push(beyond);
        let halves = numbers.windows(2).map(|pair| ((pair[0] + pair[1]) / 2.0) as f32);
        let near = halves.chain(numbers.iter().map(|&x| x as f32)).filter(|x| x.is_finite());
        let near = near.flat_map(|x| [x.next_down(), x, x.next_up()]);
        let more = [f32::MAX, f32::INFINITY, f32::NAN, f32::MIN_POSITIVE, f32::from_bits(1), 1.0e6, 0.7];
        let all: Vec<f64> = near.chain(more).flat_map(|x| [f64::from(x), f64::from(-x)]).collect();
        check(&Value::float(DType::F32, &[all.len()], all.clone()), dtype);
        check(&Value::float(DType::BF16, &[all.len()], all).rounded(), dtype);
        let integers: Vec<i128> = (-600..600).chain([1 << 20, (1 << 31) - 1, -(1 << 31)]).collect();
        check(&Value::int(DType::I32, &[integers.len()], integers), dtype);
    }
}

/// One that rounds to f32 first would round twice.
#[test]
fn f64_is_not_cast() {
    for dtype in SMALL {
        assert!(try_compiled(&cast(DType::F64, dtype, 9), &native()).is_err(), "{dtype}");
        compiled(&cast(dtype, DType::F64, 9), &native());
    }
}
