//! One invocation for each result.

use rlx_ir::Extent;

use super::{Gemm, Operands, Sizes, elements, for_k};
use crate::schedule::cx::Cx;
use crate::schedule::{Launch, Scheduled};

pub(super) fn launch(mut cx: Cx<'_>, p: &Gemm, operands: Operands<'_>) -> Scheduled<Launch> {
    let Operands { a, b, mut share, finish } = operands;
    let sizes = Sizes::new(&mut cx, p);
    let space = [&sizes.batch[..], &sizes.m, &sizes.n].concat();
    let total = cx.product(&space);
    let i = cx.b.global_id();
    let inside = cx.b.lt(i, total);
    cx.if_then(inside, |cx| {
        let index = cx.unflatten(i, &space);
        let (batch, rest) = index.split_at(sizes.batch.len());
        let (m, n) = rest.split_at(sizes.m.len());
        let zero = p.zero(cx);
        let sum = cx.b.var(zero);
        let mut outer = |cx: &mut Cx<'_>, begin| share.as_mut().map_or(Ok(()), |share| share(cx, begin, n));
        for_k(&mut *cx, &sizes.k, &mut outer, &mut |cx, k| {
            let (x, y) = (a(cx, batch, m, k)?, b(cx, batch, k, n)?);
            let product = cx.b.mul(x, y);
            let now = cx.b.get(sum);
            let next = cx.b.add(now, product);
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
