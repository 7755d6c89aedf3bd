//! What is written again computes what it did, whatever is known.

use rlx_ir::DType;
use rlx_ir::OpKind;
use rlx_ir::testing::Case;

use super::*;
use crate::interp::{Binding, Pools, dispatch};
use crate::ir::{Access, Ty};
use crate::schedule::{self, StepDesc, UniformArg};
use crate::unroll::unroll;
use crate::verify::verify;

/// The words that a kernel of one buffer writes.
fn words_of(kernel: &Kernel, uniforms: &[i32]) -> Vec<u8> {
    verify(kernel).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
    let mut pools = Pools(vec![vec![0; 4 * 64]]);
    let binding = Binding { pool: 0, offset: 0, len: 4 * 64 };
    dispatch(kernel, 1, uniforms, &[binding], &mut pools).unwrap();
    pools.0.remove(0)
}

fn known(values: &[i32]) -> Known {
    Known { uniforms: values.iter().map(|&v| Some(v)).collect(), ..Known::default() }
}

fn count(kernel: &Kernel, is: fn(&Stmt) -> bool) -> usize {
    let mut count = 0;
    kernel.for_each_stmt(&mut |s| count += usize::from(is(s)));
    count
}

fn is_loop(s: &Stmt) -> bool {
    matches!(s, Stmt::For { .. })
}

fn is_no_constant(s: &Stmt) -> bool {
    !matches!(s, Stmt::Let(_, Inst::Const(_)))
}

/// A sum of floats over two loops, into which lanes look at each other's parts after each turn of the outer one.
fn nested() -> Kernel {
    let mut b = Builder::new("nested", 64);
    let y = b.buffer("y", DType::F32, Access::Write);
    let (rows, cols) = (b.uniform("rows", 0, i32::MAX), b.uniform("cols", 0, i32::MAX));
    let parts = b.shared(Ty::F32, 64);
    let (zero, lane, last) = (b.number(Ty::F32, 0.1), b.inst(Inst::LocalId), b.int(63));
    let sum = b.var(zero);
    b.for_each(rows, |b, i| {
        b.for_each(cols, |b, j| {
            let at = b.mul(i, cols);
            let at = b.add(at, j);
            let at = b.add(at, lane);
            let x = b.convert(Ty::F32, at);
            let third = b.number(Ty::F32, 1.0 / 3.0);
            let (x, before) = (b.mul(x, third), b.get(sum));
            let more = b.add(before, x);
            b.set(sum, more);
        });
        let part = b.get(sum);
        b.store_shared(parts, lane, part);
        b.barrier();
        let other = b.sub(last, lane);
        let (x, before) = (b.load_shared(parts, other), b.get(sum));
        let more = b.add(before, x);
        b.set(sum, more);
        b.barrier();
    });
    let sum = b.get(sum);
    b.store(y, lane, sum);
    b.finish()
}

#[test]
fn loops_are_written_out_with_what_they_carry_and_wait_for() {
    let kernel = nested();
    for (sizes, loops) in
        [([3, 5], 0), ([1, 1], 0), ([0, 7], 0), ([2, 100], 2), ([200, 3], 1), ([900, 900], 2)]
    {
        let written = unroll(rewrite(&kernel, &known(&sizes)));
        assert_eq!(count(&written, is_loop), loops, "{sizes:?}\n{written}");
        assert!(written.uniforms.is_empty());
        if sizes[1] < 900 {
            assert_eq!(words_of(&written, &[]), words_of(&kernel, &sizes), "{sizes:?}\n{written}");
        }
        let barriers = count(&written, |s| matches!(s, Stmt::Barrier));
        assert_eq!(barriers, if loops > 0 { 2 } else { 2 * sizes[0] as usize }, "{sizes:?}");
    }
    // A sum that is known at every place needs no variable.
    let written = unroll(rewrite(&kernel, &known(&[3, 5])));
    assert_eq!((written.vars.len(), count(&written, |s| matches!(s, Stmt::Set(..)))), (0, 0));
}

/// A variable that a branch and a loop set is not known behind them, and one that they leave alone is.
#[test]
fn what_branches_and_loops_set_is_read_again() {
    let mut b = Builder::new("branches", 64);
    let y = b.buffer("y", DType::I32, Access::Write);
    let (n, most) = (b.uniform("n", i32::MIN, i32::MAX), b.uniform("most", i32::MIN, i32::MAX));
    let (lane, three, seven) = (b.inst(Inst::LocalId), b.int(3), b.int(7));
    let (kept, changed) = (b.var(three), b.var(seven));
    let small = b.lt(lane, most);
    b.if_else(
        small,
        |b| {
            let was = b.get(changed);
            let now = b.mul(was, lane);
            b.set(changed, now);
        },
        |b| b.set(changed, lane),
    );
    b.for_each(n, |b, i| {
        let (was, by) = (b.get(changed), b.get(kept));
        let now = b.add(was, by);
        let now = b.add(now, i);
        b.set(changed, now);
    });
    let (x, z) = (b.get(changed), b.get(kept));
    let sum = b.add(x, z);
    b.store(y, lane, sum);
    let kernel = b.finish();
    for uniforms in [[4, 10], [0, 64], [1, -5], [1000, 3], [-3, i32::MIN]] {
        for given in
            [vec![], vec![Some(uniforms[0])], vec![None, Some(uniforms[1])], known(&uniforms).uniforms]
        {
            let is_known = |i: usize| given.get(i).copied().flatten().is_some();
            let rest: Vec<i32> = (0..2).filter(|&i| !is_known(i)).map(|i| uniforms[i]).collect();
            let written = unroll(rewrite(&kernel, &Known { uniforms: given.clone(), ..Known::default() }));
            assert_eq!(written.uniforms.len(), rest.len());
            assert_eq!(words_of(&written, &rest), words_of(&kernel, &uniforms), "{given:?}\n{written}");
            // The one that nothing sets again is never read.
            assert!(written.vars.len() <= 1, "{written}");
        }
    }
}

#[test]
fn iterations_are_counted_without_overflow() {
    for (from, to, step, count) in [
        (0, 3, 1, 3),
        (0, 0, 1, 0),
        (5, 3, 1, 0),
        (0, 7, 3, 3),
        (-4, 5, 4, 3),
        (i32::MIN, i32::MAX, i32::MAX, 3),
        (i32::MAX, i32::MIN, 1, 0),
        (i32::MIN, i32::MAX, 1, u32::MAX as usize),
    ] {
        assert_eq!(iterations(from, to, step), count, "{from}..{to} by {step}");
    }
}

/// Workgroups that are all there are make conditions on their numbers known.
#[test]
fn conditions_that_hold_everywhere_are_gone() {
    let mut b = Builder::new("bounds", 64);
    let y = b.buffer("y", DType::I32, Access::Write);
    let n = b.uniform("n", 0, i32::MAX);
    let i = b.global_id();
    let inside = b.lt(i, n);
    b.if_then(inside, |b| b.store(y, i, i));
    let kernel = b.finish();
    let conditions = |n, groups| {
        let known = Known { uniforms: vec![Some(n)], groups, written_out: HashSet::new() };
        count(&rewrite(&kernel, &known), |s| matches!(s, Stmt::If { .. }))
    };
    assert_eq!([conditions(64, Some(1)), conditions(63, Some(1)), conditions(64, None)], [0, 1, 1]);
    assert_eq!([conditions(128, Some(2)), conditions(128, Some(3))], [0, 1]);
}

/// Every op's kernels, with all sizes known and loops left as they are.
#[test]
fn constants_make_no_kernel_longer() {
    let mut shorter = 0;
    for &kind in OpKind::ALL {
        for seed in 0..8 {
            let (graph, _) = Case::random(kind, seed).graph();
            for node in graph.nodes() {
                let Ok(step) = StepDesc::of_node(node, &graph) else { continue };
                let Ok(variants) = schedule::variants(&step, false) else { continue };
                let subgroup = (seed % 2 == 1).then_some(32);
                let launches = |v| schedule::schedule(&step, v, subgroup).unwrap_or_default();
                for launch in variants.into_iter().flat_map(launches) {
                    let number = |u: &UniformArg| match u {
                        UniformArg::Extent(e) => e.as_const().map(|n| n as i32),
                        UniformArg::Base { .. } => None,
                    };
                    let uniforms = launch.uniforms.iter().map(number).collect();
                    let written = rewrite(&launch.kernel, &Known { uniforms, ..Known::default() });
                    assert_eq!(written.subgroup, launch.kernel.subgroup, "{written}");
                    verify(&written).unwrap_or_else(|e| panic!("{kind} seed {seed}: {e}\n{written}"));
                    let [before, after] = [&*launch.kernel, &written].map(|k| count(k, is_no_constant));
                    assert!(
                        after <= before,
                        "{kind} seed {seed}: {before} → {after}\n{}\n{written}",
                        launch.kernel
                    );
                    shorter += usize::from(after < before);
                }
            }
        }
    }
    assert!(shorter > 200, "{shorter}");
}
