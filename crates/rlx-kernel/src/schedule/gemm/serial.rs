//! One invocation for each result, in the order in which results are stored: neighbours write, and mostly read, neighbouring elements.

use rlx_ir::Extent;

use super::{Gemm, Operands, Sizes, elements, for_k};
use crate::ir::Value;
use crate::schedule::cx::Cx;
use crate::schedule::{Launch, Scheduled};

pub(super) fn launch(mut cx: Cx<'_>, p: &Gemm, operands: Operands<'_>) -> Scheduled<Launch> {
    let Operands { a, b, mut share, finish, .. } = operands;
    let sizes = Sizes::new(&mut cx, p);
    let space = [&sizes.batch[..], &sizes.m, &sizes.n].concat();
    // From here on are columns, which are outside of all but the first batch where rows are inner.
    let columns = sizes.batch.len() + sizes.m.len();
    let before = if p.rows_are_inner { 1 } else { columns };
    let order: Vec<usize> = (0..before).chain(columns..space.len()).chain(before..columns).collect();
    let ordered: Vec<Value> = order.iter().map(|&dim| space[dim]).collect();
    let total = cx.product(&space);
    let i = cx.b.global_id();
    let inside = cx.b.lt(i, total);
    cx.if_then(inside, |cx| {
        let mut index = space.clone();
        for (value, &dim) in cx.unflatten(i, &ordered).into_iter().zip(&order) {
            index[dim] = value;
        }
        let (batch, rest) = index.split_at(sizes.batch.len());
        let (m, n) = rest.split_at(sizes.m.len());
        let zero = p.zero(cx);
        let sum = cx.b.var(zero);
        let mut outer = |cx: &mut Cx<'_>, begin| share.as_mut().map_or(Ok(()), |share| share(cx, begin, n));
        for_k(&mut *cx, &sizes.k, &mut outer, &mut |cx, k| {
            let (x, y) = (a(cx, batch, m, k)?, b(cx, batch, k, n)?);
            let now = cx.b.get(sum);
            let next = cx.b.multiply_add(x, y, now);
            cx.b.set(sum, next);
            Ok(())
        })?;
        let v = cx.b.get(sum);
        finish(cx, batch, m, n, v)
    })?;
    let results: Extent = elements(&p.batch) * elements(&p.m) * elements(&p.n);
    let workgroup = i64::from(cx.b.kernel().workgroup);
    Ok(cx.finish(results.ceil_div(workgroup)))
}
