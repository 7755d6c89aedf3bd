//! Loops over elements in blocks: every type, with operands of one value, of lengths about a block's and a tile's.

mod common;

use common::check;
use rlx_ir::op::{BinaryOp, CmpOp};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, DimBinding, Graph, GraphExt, NodeId, Op, Value};

const LENGTHS: [usize; 9] = [1, 7, 8, 31, 64, 65, 511, 1000, 9001];

const INTEGERS: [DType; 8] =
    [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];

/// Checks `op` on values of these types: each of `n` elements, then one after the other of a single one.
fn with_single_values(g: &mut Gen, n: usize, op: &Op, dtypes: &[DType]) {
    for single in std::iter::once(None).chain((0..dtypes.len()).map(Some)) {
        let (mut graph, mut bindings) = (Graph::new("loops"), Bindings::default());
        let operands: Vec<NodeId> = (0..dtypes.len())
            .map(|i| {
                let dims: &[usize] = if single == Some(i) { &[] } else { &[n] };
                let (name, value) = (format!("x{i}"), g.value(dtypes[i], dims, -9.0..9.0));
                let node = graph.input(&name, value.shape());
                bindings.set_input(&name, value);
                node
            })
            .collect();
        let y = graph.try_add(op.clone(), &operands).unwrap();
        graph.set_outputs(vec![y]);
        check(&graph, &bindings, &DimBinding::new());
    }
}

#[test]
fn truth_values_and_integers() {
    let g = &mut Gen::new(1);
    for n in LENGTHS {
        for f in [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor] {
            with_single_values(g, n, &Op::Binary(f), &[DType::Bool; 2]);
        }
    }
    for dtype in INTEGERS {
        for n in [7, 65, 1000] {
            for f in
                [BinaryOp::Add, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Min, BinaryOp::BitXor, BinaryOp::Div]
            {
                with_single_values(g, n, &Op::Binary(f), &[dtype; 2]);
            }
        }
    }
}

#[test]
fn comparisons_and_choices() {
    let g = &mut Gen::new(2);
    for dtype in [DType::F32, DType::F64, DType::F16, DType::I64, DType::I32, DType::U8, DType::Bool] {
        for n in [7, 64, 1000] {
            for f in [CmpOp::Eq, CmpOp::Ne, CmpOp::Lt, CmpOp::Le, CmpOp::Gt, CmpOp::Ge] {
                with_single_values(g, n, &Op::Compare(f), &[dtype; 2]);
            }
        }
        for n in LENGTHS {
            with_single_values(g, n, &Op::Where, &[DType::Bool, dtype, dtype]);
        }
    }
}

#[test]
fn casts() {
    let g = &mut Gen::new(3);
    let floats = [DType::F32, DType::F64, DType::F16, DType::BF16, DType::Bool];
    let all: Vec<DType> = floats.into_iter().chain(INTEGERS).collect();
    for &from in &all {
        for &to in &all {
            for n in [7, 65, 1000] {
                with_single_values(g, n, &Op::Cast { to }, &[from]);
            }
        }
    }
}

#[test]
fn floats_beyond_every_integer() {
    let odd = [
        0.5,
        -7.9,
        2147483648.0,
        -2147483648.0,
        3e9,
        -1e19,
        1e30,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    for to in [DType::I64, DType::I32, DType::U8] {
        for n in [7, 8, 1000] {
            let (mut graph, mut bindings) = (Graph::new("integers"), Bindings::default());
            let value = Value::float(DType::F32, &[n], (0..n).map(|i| odd[i * 7 / 16 % odd.len()]).collect());
            let x = graph.input("x", value.shape());
            bindings.set_input("x", value);
            let y = graph.try_add(Op::Cast { to }, &[x]).unwrap();
            graph.set_outputs(vec![y]);
            check(&graph, &bindings, &DimBinding::new());
        }
    }
}

/// Ordinary and other numbers.
fn odd_values(n: usize) -> Value {
    let odd = [0.0, -0.0, 0.5, -0.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-40, -3.0, 7.0, 6.0];
    Value::float(DType::F32, &[n], (0..n).map(|i| odd[i * 7 % odd.len()]).collect())
}

/// A graph of what `build` makes of such numbers, in f32 and in a 16-bit float.
fn on_odd_values(build: impl Fn(&mut Graph, NodeId) -> Vec<NodeId>) {
    for n in [7, 64, 1000] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let (mut graph, mut bindings) = (Graph::new("functions"), Bindings::default());
            let value = odd_values(n);
            let x = graph.input("x", value.shape());
            bindings.set_input("x", value);
            let short = graph.try_add(Op::Cast { to: dtype }, &[x]).unwrap();
            let outputs = build(&mut graph, short);
            graph.set_outputs(outputs);
            check(&graph, &bindings, &DimBinding::new());
        }
    }
}

#[test]
fn bounds_are_one_function_unless_something_else_reads_between_them() {
    for (lo, hi) in [(-0.5, 0.5), (0.0, 6.0), (2.0, -2.0)] {
        for keeps_first in [false, true] {
            on_odd_values(|g, x| {
                let dtype = g.shape(x).dtype();
                let (lo, hi) = (g.scalar(lo, dtype), g.scalar(hi, dtype));
                let above = g.try_add(Op::Binary(BinaryOp::Max), &[lo, x]).unwrap();
                let within = g.try_add(Op::Binary(BinaryOp::Min), &[above, hi]).unwrap();
                let again = g.try_add(Op::Binary(BinaryOp::Max), &[within, lo]).unwrap();
                let sum = g.try_add(Op::Binary(BinaryOp::Add), &[again, x]).unwrap();
                if keeps_first { vec![sum, above] } else { vec![sum] }
            });
        }
    }
}

#[test]
fn leaky_rectifiers_are_one_function_unless_something_else_reads_within_them() {
    for keeps_scaled in [false, true] {
        on_odd_values(|g, x| {
            let dtype = g.shape(x).dtype();
            let (alpha, zero) = (g.scalar(0.125, dtype), g.scalar(0.0, dtype));
            let below = g.try_add(Op::Compare(CmpOp::Lt), &[x, zero]).unwrap();
            let scaled = g.try_add(Op::Binary(BinaryOp::Mul), &[alpha, x]).unwrap();
            let chosen = g.try_add(Op::Where, &[below, scaled, x]).unwrap();
            if keeps_scaled { vec![chosen, scaled] } else { vec![chosen] }
        });
    }
}

#[test]
fn what_is_rounded_last_is_rounded_as_it_is_stored() {
    let g = &mut Gen::new(4);
    for to in [DType::F16, DType::BF16] {
        for n in [7, 64, 1000] {
            let (mut graph, mut bindings) = (Graph::new("rounded"), Bindings::default());
            let value = g.value(DType::F32, &[n], -9.0..9.0);
            let x = graph.input("x", value.shape());
            bindings.set_input("x", value);
            let sum = graph.try_add(Op::Binary(BinaryOp::Add), &[x, x]).unwrap();
            let short = graph.try_add(Op::Cast { to }, &[sum]).unwrap();
            let long = graph.try_add(Op::Cast { to: DType::F32 }, &[short]).unwrap();
            // The short value as the only result, and read again as well.
            graph.set_outputs(vec![short]);
            check(&graph, &bindings, &DimBinding::new());
            graph.set_outputs(vec![short, long]);
            check(&graph, &bindings, &DimBinding::new());
        }
    }
}
