//! `TfIdfVectorizer`: how often each n-gram of a pool occurs in a row.
//!
//! All windows of a row are compared with all n-grams of one length at once, for each distance between their items:
//!
//! ```text
//! hits[row, window, gram] = ∧ⱼ x[row, window + j·distance] = pool[gram, j]      counts = Σ over windows and distances
//! ```

use super::strings::{integers, words};
use crate::import::{NodeCx, SlotId};
use rlx_ir::op::{BinaryOp as B, CmpOp, ReduceOp};
use rlx_ir::{DType, Error, Extent, NodeId, Op, Value};
use std::collections::HashSet;

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;

/// The n-grams of a pool by their length: where each length begins, and all items.
struct Pool {
    items: Vec<i64>,
    starts: Vec<usize>,
}

impl Pool {
    fn read(cx: Cx, operand: NodeId) -> Result<Pool, Error> {
        let items = match (words(cx, "pool_strings")?, cx.attrs.ints("pool_int64s")?) {
            (Some(list), _) if cx.is_strings(0) => {
                let strings = cx.strings(0)?;
                cx.codes(&strings.words, &list)
            }
            (None, Some(list)) if !cx.is_strings(0) => list.to_vec(),
            _ => return Err(cx.malformed(format!("a pool of another type than {}", cx.shape_of(operand)))),
        };
        let starts = cx.attrs.required("ngram_counts", cx.attrs.ints("ngram_counts")?)?;
        let starts = starts.iter().map(|&s| usize::try_from(s).ok()).collect::<Option<Vec<_>>>();
        let starts = starts.filter(|s| s.is_sorted() && s.iter().all(|&s| s <= items.len()));
        let starts = starts.ok_or_else(|| cx.malformed("ngram_counts are no places in the pool"))?;
        Ok(Pool { items, starts })
    }

    /// The items of the n-grams of length `n`, and how many n-grams are before them.
    fn of_length(&self, cx: &NodeCx<'_, '_>, n: usize) -> Result<(usize, &[i64]), Error> {
        let end = |i: usize| self.starts.get(i).copied().unwrap_or(self.items.len());
        let mut before = 0;
        for i in 1..=self.starts.len() {
            let count = end(i) - self.starts[i - 1];
            if !count.is_multiple_of(i) {
                return Err(cx.malformed(format!("{count} items of n-grams of {i}")));
            }
            if i == n {
                return Ok((before, &self.items[self.starts[i - 1]..end(i)]));
            }
            before += count / i;
        }
        Ok((before, &[]))
    }
}

/// What the counts of n-grams become.
fn weighted(cx: Cx, counts: NodeId, weights: Option<&[f32]>, mode: &str) -> Result<NodeId, Error> {
    let (zero, one) = (cx.scalar(DType::F32, 0.0), cx.scalar(DType::F32, 1.0));
    let counts = if mode == "IDF" {
        let any = cx.compare(CmpOp::Gt, counts, zero)?;
        cx.select(any, one, counts)?
    } else {
        counts
    };
    match weights.filter(|_| mode != "TF") {
        Some(w) => {
            let values = w.iter().map(|&w| f64::from(w)).collect();
            let w = cx.constant(Value::float(DType::F32, &[w.len()], values));
            cx.binary(B::Mul, counts, w)
        }
        None => Ok(counts),
    }
}

/// The counts of the n-grams of one length, `[rows, grams]`.
fn counts(cx: Cx, x: NodeId, grams: &[i64], n: usize, skips: i64) -> Result<NodeId, Error> {
    let shape = cx.shape_of(x);
    let width = shape.dim(1).as_static();
    let width =
        width.ok_or_else(|| cx.open_dimension(format!("n-grams in rows of {} items", shape.dim(1))))?;
    let count = grams.len() / n;
    let zeros = cx.scalar(DType::F32, 0.0);
    let mut total = cx.expand(zeros, vec![shape.dim(0), count.into()])?;
    let farthest = if n == 1 { 1 } else { skips.saturating_add(1) };
    for distance in 1..=farthest {
        let span = distance.saturating_mul(n as i64 - 1);
        let Some(windows) = usize::try_from(span).ok().and_then(|s| width.checked_sub(s)).filter(|&w| w > 0)
        else {
            break;
        };
        cx.importer.visit_many(1)?;
        let mut hits: Option<NodeId> = None;
        for j in 0..n {
            let start = Extent::Const(distance * j as i64);
            let items = cx.slice_axis(x, 1, start, Extent::Const(windows as i64))?;
            let items = cx.unsqueeze(items, &[2])?;
            let column: Vec<i64> = grams.iter().skip(j).step_by(n).copied().collect();
            let column = integers(cx, &[count], &column);
            let hit = cx.compare(CmpOp::Eq, items, column)?;
            hits = Some(match hits {
                Some(others) => cx.binary(B::And, others, hit)?,
                None => hit,
            });
        }
        let hits = hits.ok_or_else(|| cx.malformed("n-grams of no items"))?;
        let hits = cx.cast(hits, DType::F32)?;
        let found = cx.reduce(hits, ReduceOp::Sum, &[1], false)?;
        total = cx.binary(B::Add, total, found)?;
    }
    Ok(total)
}

pub(super) fn tf_idf(cx: Cx) -> Result<Vec<SlotId>, Error> {
    let vector = cx.rank(0)? == 1;
    let mut x = match cx.is_strings(0) {
        true => cx.strings(0).and_then(|s| cx.codes_node(&s))?,
        false => {
            let x = cx.x(0)?;
            cx.cast(x, DType::I64)?
        }
    };
    x = if vector { cx.unsqueeze(x, &[0])? } else { x };
    if cx.shape_of(x).rank() != 2 {
        return Err(cx.malformed(format!("{} are no rows of items", cx.shape_of(x))));
    }
    let pool = Pool::read(cx, x)?;
    let required = |name| -> Result<i64, Error> { cx.attrs.required(name, cx.attrs.int_opt(name)?) };
    let (shortest, longest) = (required("min_gram_length")?, required("max_gram_length")?);
    let skips = required("max_skip_count")?;
    let places = cx.attrs.required("ngram_indexes", cx.attrs.ints("ngram_indexes")?)?;
    let mode = cx.attrs.text("mode", "")?;
    if !matches!(mode, "TF" | "IDF" | "TFIDF") {
        return Err(cx.bad_attr("mode", mode));
    }
    let results = places.iter().map(|&p| usize::try_from(p).ok()).collect::<Option<Vec<_>>>();
    let results = results.ok_or_else(|| cx.malformed("a negative index of an n-gram"))?;
    let width = results.iter().max().map_or(0, |&m| m.saturating_add(1));
    let different: HashSet<&usize> = results.iter().collect();
    if different.len() != results.len() {
        return Err(cx.unsupported("several n-grams with one index"));
    }
    let weights = cx.attrs.floats("weights")?.filter(|w| !w.is_empty());
    if weights.is_some_and(|w| w.len() != results.len()) {
        return Err(cx.malformed("as many weights as n-grams are needed"));
    }
    cx.importer.spend(width)?;
    // For each result the column that has its count; the last one has none.
    let mut columns: Vec<i64> = vec![-1; width];
    let (mut parts, mut found) = (Vec::new(), 0usize);
    let lengths = shortest.max(1)..=longest.min(pool.starts.len() as i64);
    for n in lengths {
        let (before, grams) = pool.of_length(cx, n as usize)?;
        let count = grams.len() / n as usize;
        if count == 0 {
            continue;
        }
        let part = counts(cx, x, grams, n as usize, skips)?;
        let range = before..before + count;
        let places = results.get(range.clone()).ok_or_else(|| cx.malformed("fewer indexes than n-grams"))?;
        places.iter().zip(found as i64..).for_each(|(&place, column)| columns[place] = column);
        parts.push(weighted(cx, part, weights.map(|w| &w[range]), mode)?);
        found += count;
    }
    let zero = cx.scalar(DType::F32, 0.0);
    let rows = cx.shape_of(x).dim(0);
    parts.push(cx.expand(zero, vec![rows, 1usize.into()])?);
    let all = cx.add(Op::Concat { axis: 1 }, &parts)?;
    columns.iter_mut().filter(|c| **c < 0).for_each(|c| *c = found as i64);
    let columns = integers(cx, &[width], &columns);
    let y = cx.add(Op::Gather { axis: 1 }, &[all, columns])?;
    let y = if vector { cx.reshape(y, vec![width.into()])? } else { y };
    Ok(vec![cx.importer.node_slot(y)])
}
