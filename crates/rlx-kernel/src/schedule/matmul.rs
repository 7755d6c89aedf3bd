//! Matrix products, and everything that is one after an index map.
//!
//! A `Product` says how large the matrices are and how to get an element of each; the two forms compute
//! `Σ_k a[m, k]·b[k, n]` for every batch:
//! - `tiled`: a workgroup makes a tile of `TILE`×`TILE` results. Strips of both operands, `DEPTH` deep,
//!   go through workgroup memory; each invocation keeps 4×4 sums. The finished tile goes through workgroup
//!   memory once more, so that the epilogue is written once and neighbours store side by side.
//! - `serial`: one invocation for each result, for products too thin to fill tiles.
//!
//! Every result is one chain of sums in order of `k`.

use rlx_ir::ops::linalg::MatMulDims;
use rlx_ir::{DType, Dim, Extent, Node, NodeId};

use super::cx::Cx;
use super::{Launch, Scheduled, StepDesc, elementwise, refuse};
use crate::ir::{Const, Inst, Ty, Value};

/// Rows and columns of a tile of results.
const TILE: i32 = 32;
/// How deep the strips in workgroup memory are.
const DEPTH: i32 = 16;
/// Sums each invocation keeps, along each dimension.
const OWN: i32 = 4;
/// Invocations of a workgroup.
const WORKGROUP: u32 = 64;
/// Products with fewer rows or columns than this are done without tiles.
const THIN: i64 = 8;

/// The sizes of a product.
pub(super) struct Product {
    /// Dimensions along which products repeat.
    pub batch: Vec<Extent>,
    /// Dimensions of a row index.
    pub m: Vec<Extent>,
    /// Dimensions that are summed over.
    pub k: Vec<Extent>,
    /// Dimensions of a column index.
    pub n: Vec<Extent>,
    /// The element type of operands and results.
    pub dtype: DType,
}

/// An index split into its batch part and the two parts of one operand.
type Load<'f> = &'f mut dyn FnMut(&mut Cx<'_>, &[Value], &[Value], &[Value]) -> Scheduled<Value>;
/// Stores a finished sum at `(batch, m, n)`.
type Finish<'f> = &'f mut dyn FnMut(&mut Cx<'_>, &[Value], &[Value], &[Value], Value) -> Scheduled<()>;

fn elements(dims: &[Extent]) -> Extent {
    dims.iter().fold(Extent::Const(1), |n, &d| n * d)
}

impl Product {
    /// Chooses the form by shape alone.
    pub fn is_thin(&self) -> bool {
        let thin = |dims: &[Extent]| elements(dims).as_const().is_some_and(|n| n < THIN);
        thin(&self.m) || thin(&self.n)
    }
}

/// A product's dimensions as values, and their counts.
struct Sizes {
    batch: Vec<Value>,
    m: Vec<Value>,
    k: Vec<Value>,
    n: Vec<Value>,
}

impl Sizes {
    fn new(cx: &mut Cx<'_>, p: &Product) -> Self {
        Sizes {
            batch: cx.sizes("batch", &p.batch),
            m: cx.sizes("m", &p.m),
            k: cx.sizes("k", &p.k),
            n: cx.sizes("n", &p.n),
        }
    }
}

fn count(cx: &mut Cx<'_>, dims: &[Value]) -> Value {
    let one = cx.b.int(1);
    dims.iter().fold(one, |n, &d| cx.b.mul(n, d))
}

/// One invocation for each result.
///
/// # Errors
/// What loading and storing report.
pub(super) fn serial(
    mut cx: Cx<'_>,
    p: &Product,
    a: Load<'_>,
    b: Load<'_>,
    finish: Finish<'_>,
) -> Scheduled<Launch> {
    let sizes = Sizes::new(&mut cx, p);
    let space: Vec<Value> = [&sizes.batch[..], &sizes.m, &sizes.n].concat();
    let total = count(&mut cx, &space);
    let i = cx.b.global_id();
    let inside = cx.b.lt(i, total);
    cx.if_then(inside, |cx| {
        let index = cx.unflatten(i, &space);
        let (batch, rest) = index.split_at(sizes.batch.len());
        let (m, n) = rest.split_at(sizes.m.len());
        let zero = cx.b.constant(Const { ty: Ty::of(p.dtype), bits: 0 });
        let sum = cx.b.var(zero);
        cx.for_space(&sizes.k, &mut |cx, k| {
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
    let results = elements(&p.batch) * elements(&p.m) * elements(&p.n);
    Ok(cx.finish(results.ceil_div(i64::from(WORKGROUP))))
}

/// Tiles through workgroup memory.
///
/// # Errors
/// What loading and storing report.
pub(super) fn tiled(
    mut cx: Cx<'_>,
    p: &Product,
    a: Load<'_>,
    b: Load<'_>,
    finish: Finish<'_>,
) -> Scheduled<Launch> {
    let ty = Ty::of(p.dtype);
    let sizes = Sizes::new(&mut cx, p);
    let (rows, columns) =
        (elements(&p.m).ceil_div(i64::from(TILE)), elements(&p.n).ceil_div(i64::from(TILE)));
    let (m_tiles, n_tiles) = (cx.size("m_tiles", rows), cx.size("n_tiles", columns));
    let [m_count, k_count, n_count] = [&sizes.m, &sizes.k, &sizes.n].map(|d| count(&mut cx, d));
    let batches = count(&mut cx, &sizes.batch);
    let tiles = cx.b.mul(m_tiles, n_tiles);
    let groups = cx.b.mul(batches, tiles);
    let strip_a = cx.b.shared(ty, (TILE * DEPTH) as u32);
    let strip_b = cx.b.shared(ty, (TILE * DEPTH) as u32);
    let tile = cx.b.shared(ty, (TILE * TILE) as u32);
    let (group, lane) = (cx.b.inst(Inst::GroupId), cx.b.inst(Inst::LocalId));
    let inside = cx.b.lt(group, groups);
    cx.if_then(inside, |cx| {
        let place = cx.unflatten(group, &[batches, m_tiles, n_tiles]);
        let batch = cx.unflatten(place[0], &sizes.batch);
        let size = cx.b.int(TILE);
        let (m0, n0) = (cx.b.mul(place[1], size), cx.b.mul(place[2], size));
        let zero = cx.b.constant(Const { ty, bits: 0 });
        let sums: Vec<_> = (0..OWN * OWN).map(|_| cx.b.var(zero)).collect();
        let per_row = cx.b.int(TILE / OWN);
        let (own_m, own_n) = (cx.b.div(lane, per_row), cx.b.rem(lane, per_row));
        let own = cx.b.int(OWN);
        let (own_m, own_n) = (cx.b.mul(own_m, own), cx.b.mul(own_n, own));
        let start = cx.b.int(0);
        cx.for_step((start, k_count, DEPTH), |cx, k0| {
            // Neighbouring invocations load neighbours along k of the left, along n of the right.
            cx.fill_strip(lane, |cx, flat| {
                let depth = cx.b.int(DEPTH);
                let (k, m) = (cx.b.rem(flat, depth), cx.b.div(flat, depth));
                let (at_m, at_k) = (cx.b.add(m0, m), cx.b.add(k0, k));
                let v = cx.element_or_zero([(at_m, m_count), (at_k, k_count)], zero, |cx| {
                    let (m, k) = (cx.unflatten(at_m, &sizes.m), cx.unflatten(at_k, &sizes.k));
                    a(cx, &batch, &m, &k)
                })?;
                let row = cx.b.mul(k, size);
                let at = cx.b.add(row, m);
                cx.b.store_shared(strip_a, at, v);
                Ok(())
            })?;
            cx.fill_strip(lane, |cx, flat| {
                let (k, n) = (cx.b.div(flat, size), cx.b.rem(flat, size));
                let (at_k, at_n) = (cx.b.add(k0, k), cx.b.add(n0, n));
                let v = cx.element_or_zero([(at_k, k_count), (at_n, n_count)], zero, |cx| {
                    let (k, n) = (cx.unflatten(at_k, &sizes.k), cx.unflatten(at_n, &sizes.n));
                    b(cx, &batch, &k, &n)
                })?;
                cx.b.store_shared(strip_b, flat, v);
                Ok(())
            })?;
            cx.b.barrier();
            let depth = cx.b.int(DEPTH);
            cx.for_each(depth, |cx, k| {
                let row = cx.b.mul(k, size);
                let mut load = |strip, start: Value| -> Vec<Value> {
                    let first = cx.b.add(row, start);
                    (0..OWN)
                        .map(|i| {
                            let i = cx.b.int(i);
                            let at = cx.b.add(first, i);
                            cx.b.load_shared(strip, at)
                        })
                        .collect()
                };
                let (x, y) = (load(strip_a, own_m), load(strip_b, own_n));
                for (i, &sum) in sums.iter().enumerate() {
                    let product = cx.b.mul(x[i / OWN as usize], y[i % OWN as usize]);
                    let now = cx.b.get(sum);
                    let next = cx.b.add(now, product);
                    cx.b.set(sum, next);
                }
                Ok(())
            })?;
            cx.b.barrier();
            Ok(())
        })?;
        for (i, &sum) in sums.iter().enumerate() {
            let (di, dj) = (cx.b.int(i as i32 / OWN), cx.b.int(i as i32 % OWN));
            let (m, n) = (cx.b.add(own_m, di), cx.b.add(own_n, dj));
            let row = cx.b.mul(m, size);
            let at = cx.b.add(row, n);
            let v = cx.b.get(sum);
            cx.b.store_shared(tile, at, v);
        }
        cx.b.barrier();
        let all = cx.b.int(TILE * TILE);
        cx.for_step((lane, all, WORKGROUP as i32), |cx, flat| {
            let (m, n) = (cx.b.div(flat, size), cx.b.rem(flat, size));
            let (m, n) = (cx.b.add(m0, m), cx.b.add(n0, n));
            let (row, column) = (cx.b.lt(m, m_count), cx.b.lt(n, n_count));
            let inside = cx.b.and(row, column);
            cx.if_then(inside, |cx| {
                let v = cx.b.load_shared(tile, flat);
                let (m, n) = (cx.unflatten(m, &sizes.m), cx.unflatten(n, &sizes.n));
                finish(cx, &batch, &m, &n, v)
            })
        })
    })?;
    Ok(cx.finish(elements(&p.batch) * rows * columns))
}

impl Cx<'_> {
    /// Runs `f` for every element of a strip that is this invocation's.
    fn fill_strip(
        &mut self,
        lane: Value,
        f: impl FnOnce(&mut Self, Value) -> Scheduled<()>,
    ) -> Scheduled<()> {
        let all = self.b.int(TILE * DEPTH);
        self.for_step((lane, all, WORKGROUP as i32), f)
    }

    /// What `f` gives where both indices are below their limits, else 0.
    fn element_or_zero(
        &mut self,
        limits: [(Value, Value); 2],
        zero: Value,
        f: impl FnOnce(&mut Self) -> Scheduled<Value>,
    ) -> Scheduled<Value> {
        let [p, q] = limits.map(|(i, limit)| self.b.lt(i, limit));
        let inside = self.b.and(p, q);
        let var = self.b.var(zero);
        self.if_then(inside, |cx| {
            let v = f(cx)?;
            cx.b.set(var, v);
            Ok(())
        })?;
        Ok(self.b.get(var))
    }

    /// The part of a batch index that an operand with leading dimensions `dims` is at.
    fn batch_index(&mut self, dims: &[Dim], batch: &[Value]) -> Vec<Value> {
        let zero = self.b.int(0);
        let skip = batch.len() - dims.len();
        dims.iter().zip(&batch[skip..]).map(|(d, &i)| if *d == Dim::Static(1) { zero } else { i }).collect()
    }

    fn matrix_element(
        &mut self,
        id: NodeId,
        batch: &[Value],
        row: &[Value],
        column: &[Value],
    ) -> Scheduled<Value> {
        let dims = self.graph().shape(id).dims().to_vec();
        let mut index = self.batch_index(&dims[..dims.len().saturating_sub(2)], batch);
        index.extend_from_slice(row);
        index.extend_from_slice(column);
        self.element(id, &index)
    }
}

/// Makes the kernel of a body around [`rlx_ir::Op::MatMul`].
///
/// # Errors
/// An element type without arithmetic, or an epilogue of other dimensions.
pub fn schedule(step: &StepDesc, anchor: &Node) -> Scheduled<Vec<Launch>> {
    let (lhs, rhs, dtype) = (anchor.inputs[0], anchor.inputs[1], anchor.shape.dtype());
    if !elementwise::computes(dtype) {
        return refuse(format!("a matrix product of {dtype}"));
    }
    let dims = MatMulDims::of(step.graph.shape(lhs), step.graph.shape(rhs));
    let dims = dims.map_err(|e| super::Unscheduled(e.to_string()))?;
    // A vector has no row (or column) dimension: its index is empty.
    let one = |vector: bool, d: Dim| if vector { vec![] } else { vec![d.extent()] };
    let product = Product {
        batch: dims.batch.iter().map(|d| d.extent()).collect(),
        m: one(dims.a_is_vector, dims.m),
        k: vec![dims.k.extent()],
        n: one(dims.b_is_vector, dims.n),
        dtype,
    };
    let cx = Cx::new(&format!("matmul.{}", step.name), WORKGROUP, step);
    cx.result_space()?;
    let mut a =
        |cx: &mut Cx<'_>, batch: &[Value], m: &[Value], k: &[Value]| cx.matrix_element(lhs, batch, m, k);
    let mut b =
        |cx: &mut Cx<'_>, batch: &[Value], k: &[Value], n: &[Value]| cx.matrix_element(rhs, batch, k, n);
    let mut finish = |cx: &mut Cx<'_>, batch: &[Value], m: &[Value], n: &[Value], v: Value| {
        let index = [batch, m, n].concat();
        let v = elementwise::narrowed(&mut cx.b, v, dtype);
        cx.bind(anchor.id, &index, v);
        cx.store_results(&index)
    };
    let form = if product.is_thin() { serial } else { tiled };
    form(cx, &product, &mut a, &mut b, &mut finish).map(|launch| vec![launch])
}
