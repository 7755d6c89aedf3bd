//! Matmuls: [`rlx_ir::Op::MatMul`] as a `Gemm` of its operands (see [`super::gemm`]).
//!
//! An operand may have rows that a gather picks, which are computed as they are loaded: keys and values in pages of a table. Such a row has
//! a page and a place in it, and where the sum goes along these rows, it goes along pages and, within each, along places. So what page it is
//! is looked up once for all of its rows; the order of the sum is the same.
//!
//! ```text
//! table [pages, 16, 64]   list [2, 5]   Reshape(Gather(table, list)) : [2, 80, 64]
//! weights [2, 4, 80] · values [2, 80, 64]      k = [5, 16]:  for page { at = list[item, page]; for row { … table[at, row, n] } }
//! ```

use rlx_ir::lir::Operand;
use rlx_ir::ops::linalg::MatMulDims;
use rlx_ir::{Dim, Extent, Graph, Node, NodeId, Op};

use super::cx::{Arg, Cx};
use super::gemm::{Gemm, GemmVariant, Gemv, Neighbours, Operands, Room, Wide};
use super::run::dim_groups;
use super::{Launch, Scheduled, StepDesc, elementwise, reject};
use crate::ir::{Value, WIDTHS};

impl Cx<'_> {
    fn matrix_element(
        &mut self,
        id: NodeId,
        to: &[Dim],
        batch: &[Value],
        row: &[Value],
        column: &[Value],
    ) -> Scheduled<Value> {
        let dims = self.graph().shape(id).dims().to_vec();
        let mut index = self.broadcast_dims(&dims[..dims.len().saturating_sub(2)], to, batch);
        index.extend_from_slice(row);
        index.extend_from_slice(column);
        self.element(id, &index)
    }

    /// Neighbours of an operand that is stored, from an element on.
    fn matrix_elements(
        &mut self,
        (id, to): (NodeId, &[Dim]),
        batch: &[Value],
        [row, column]: [&[Value]; 2],
        count: usize,
    ) -> Scheduled<Vec<Value>> {
        let Some(Stored { number, axes, picked }) = stored(self.step, id) else {
            return reject("neighbours of what is not stored");
        };
        let dims = self.graph().shape(id).dims().to_vec();
        let mut along = self.broadcast_dims(&dims[..dims.len().saturating_sub(2)], to, batch);
        along.extend_from_slice(row);
        along.extend_from_slice(column);
        let mut index = along.clone();
        axes.iter().zip(along).for_each(|(&axis, i)| index[axis] = i);
        if let Some([table, list]) = picked {
            let taken = self.graph().shape(list).rank();
            // There always is an element to read, as the table has some.
            let (number, _) = self.resolved(list, &index[..taken], table, 0)?;
            index.splice(..taken, [number]);
        }
        let place = self.place(Arg::Input(number));
        let at = self.address(&place, &index);
        Ok(self.b.load_wide(place.buffer, at, count))
    }
}

/// A matrix whose elements are read where they are stored.
struct Stored {
    /// The input of the step that has them.
    number: usize,
    /// Which dimension of what is stored, or picked, each of the matrix's dimensions is.
    axes: Vec<usize>,
    /// The table and the list, where a gather picks the matrix along the table's first axis: the experts of a mixture.
    picked: Option<[NodeId; 2]>,
}

/// Where a matrix is stored: it is an input of the step, or picked from one that has elements, transposed at most, and nothing is written to its buffer.
fn stored(step: &StepDesc, id: NodeId) -> Option<Stored> {
    let graph = &step.graph;
    let mut node = graph.node(id);
    let mut axes: Vec<usize> = (0..node.shape.rank()).collect();
    while let Op::Transpose { perm } = &node.op {
        axes.iter_mut().for_each(|axis| *axis = perm[*axis]);
        node = graph.node(node.inputs[0]);
    }
    let (source, picked) = match (&node.op, &node.inputs[..]) {
        (Op::Gather { axis: 0 }, &[table, list]) => (table, Some([table, list])),
        _ => (node.id, None),
    };
    let is_empty = |id: NodeId| graph.shape(id).dim(0).as_static().is_none_or(|size| size == 0);
    if picked.is_some_and(|[table, _]| is_empty(table)) {
        return None;
    }
    let number = graph.inputs().position(|input| input.id == source)?;
    let buffer = step.inputs[number].buffer;
    step.outputs.iter().all(|output| output.buffer != buffer).then_some(Stored { number, axes, picked })
}

/// The operand that has a stored matrix, and which of its dimensions is the matrix's last but `behind`.
fn stored_axis(step: &StepDesc, id: NodeId, behind: usize) -> Option<(&Operand, usize)> {
    let Stored { number, axes, picked } = stored(step, id)?;
    let axis = axes[axes.len().checked_sub(1 + behind)?];
    let taken = picked.map(|[_, list]| step.graph.shape(list).rank());
    let axis = match taken {
        // Behind what the list picks are the table's other dimensions.
        Some(taken) => axis.checked_sub(taken)? + 1,
        None => axis,
    };
    Some((&step.inputs[number], axis))
}

/// How many elements of a matrix along its last dimension but `behind` may be read by one access: as many of them are neighbours, wherever in the matrix
/// they begin. 0 where none are. The elements have one of these numbers of `bits`.
fn together(step: &StepDesc, id: NodeId, behind: usize, bits: &[usize]) -> usize {
    let Some((operand, axis)) = stored_axis(step, id, behind) else { return 0 };
    let view = &operand.view;
    if !bits.contains(&operand.dtype.bits()) {
        return 0;
    }
    let fits = |&width: &usize| {
        let whole = |e: Extent| e.as_const().is_some_and(|n| n % width as i64 == 0);
        let others = (0..view.dims.len()).filter(|&i| i != axis && view.dims[i] != Extent::Const(1));
        whole(view.offset) && whole(view.dims[axis]) && others.map(|i| view.strides[i]).all(whole)
    };
    let inner = view.strides[axis] == Extent::Const(1);
    WIDTHS.into_iter().rev().find(fits).filter(|_| inner).unwrap_or(0)
}

/// The elements of which variants read several together.
const WORDS: &[usize] = &[32];
/// Those of which matmuls of few rows do.
const SHORT: &[usize] = &[16, 32];

/// What of the right matrix may be read together, elements of 16 bits, too; or else in which direction they are neighbours one by one.
fn all_neighbours(step: &StepDesc, rhs: NodeId) -> Neighbours {
    let rank = step.graph.shape(rhs).rank();
    let along = |behind: usize| together(step, rhs, behind, SHORT);
    let inner = |behind: usize| {
        let stored = stored_axis(step, rhs, behind);
        stored.is_some_and(|(operand, axis)| operand.view.strides[axis] == Extent::Const(1))
    };
    match rank.checked_sub(2) {
        None => Neighbours::Depth(along(0).max(1)),
        Some(_) if along(0) > 0 => Neighbours::Columns(along(0)),
        Some(_) if along(1) > 0 => Neighbours::Depth(along(1)),
        Some(_) if inner(1) && !inner(0) => Neighbours::Depth(1),
        Some(_) => Neighbours::Columns(1),
    }
}

/// The rows of the matmul that a body around [`rlx_ir::Op::MatMul`] computes.
///
/// # Errors
/// As [`gemm`].
pub(super) fn rows(step: &StepDesc, anchor: &Node) -> Scheduled<Extent> {
    Ok(gemm(step, anchor)?.m.iter().fold(Extent::Const(1), |rows, &dim| rows * dim))
}

/// How a body around [`rlx_ir::Op::MatMul`] is computed where its rows are few and other bits than those of one chain of sums are allowed: for workgroups of so many rows.
///
/// # Errors
/// Why it is done as one of many rows is.
pub(super) fn gemv(step: &StepDesc, anchor: &Node, rows: i64, room: Room) -> Scheduled<Gemv> {
    let gemm = gemm(step, anchor)?;
    let rhs = step.graph.shape(anchor.inputs[1]);
    // Matrices that share their weights would read them again and again.
    let own = rhs.dims().len().saturating_sub(2);
    let repeated = gemm.batch.iter().rev().skip(own);
    if repeated.chain(gemm.m.iter().skip(1)).any(|&size| size != Extent::Const(1)) {
        return reject("several matrices by one");
    }
    Gemv::of(&gemm, all_neighbours(step, anchor.inputs[1]), rows, room)
}

/// What of the right matrix may be read together.
fn neighbours(step: &StepDesc, rhs: NodeId) -> Option<Neighbours> {
    let two = step.graph.shape(rhs).rank() >= 2;
    match [together(step, rhs, 0, WORDS), if two { together(step, rhs, 1, WORDS) } else { 0 }] {
        _ if !two => None,
        [0, 0] => None,
        [0, depth] => Some(Neighbours::Depth(depth)),
        [columns, _] => Some(Neighbours::Columns(columns)),
    }
}

/// The dimensions, page and place in it, of which `axis` of an operand is made, where a gather picks its pages.
fn paged(graph: &Graph, mut id: NodeId, mut axis: usize) -> Option<Vec<Extent>> {
    let mut pages = None;
    loop {
        let node = graph.node(id);
        match &node.op {
            Op::Gather { .. } => return pages,
            Op::Transpose { perm } => axis = *perm.get(axis)?,
            Op::Reshape { .. } => {
                let dims =
                    |id: NodeId| graph.shape(id).dims().iter().map(|d| d.extent()).collect::<Vec<Extent>>();
                let from = dims(node.inputs[0]);
                let (_, of_from) =
                    dim_groups(&dims(id), &from).into_iter().find(|(to, _)| *to == (axis..axis + 1))?;
                if of_from.len() > 1 && pages.replace(from[of_from.clone()].to_vec()).is_some() {
                    return None;
                }
                axis = of_from.start;
            }
            Op::Cast { .. } => {}
            _ => return None,
        }
        id = *node.inputs.first()?;
    }
}

/// The matmul that a body around [`rlx_ir::Op::MatMul`] computes.
///
/// # Errors
/// An element type without arithmetic.
pub(super) fn gemm(step: &StepDesc, anchor: &Node) -> Scheduled<Gemm> {
    let (lhs, rhs, dtype) = (anchor.inputs[0], anchor.inputs[1], anchor.shape.dtype());
    if !elementwise::computes(dtype) {
        return reject(format!("a matmul of {dtype}"));
    }
    let dims = MatMulDims::of(step.graph.shape(lhs), step.graph.shape(rhs));
    let dims = dims.map_err(|e| super::Unscheduled(e.to_string()))?;
    // A vector has no row (or column) dimension: its index is empty.
    let one = |vector: bool, d: Dim| if vector { vec![] } else { vec![d.extent()] };
    let axis = |id: NodeId, from_end: usize| step.graph.shape(id).rank().checked_sub(from_end);
    let of_left = || paged(&step.graph, lhs, axis(lhs, 1)?);
    let of_right = || paged(&step.graph, rhs, axis(rhs, if dims.b_is_vector { 1 } else { 2 })?);
    Ok(Gemm {
        batch: dims.batch.iter().map(|d| d.extent()).collect(),
        m: one(dims.a_is_vector, dims.m),
        k: of_right().or_else(of_left).unwrap_or_else(|| vec![dims.k.extent()]),
        n: one(dims.b_is_vector, dims.n),
        dtype,
        rows_are_inner: false,
        neighbours: neighbours(step, rhs),
    })
}

/// Makes the kernel of a body around [`rlx_ir::Op::MatMul`], in this variant.
///
/// # Errors
/// An element type without arithmetic, or an epilogue of other dimensions.
pub fn schedule(step: &StepDesc, anchor: &Node, variant: GemmVariant) -> Scheduled<Vec<Launch>> {
    let (lhs, rhs, dtype) = (anchor.inputs[0], anchor.inputs[1], anchor.shape.dtype());
    let gemm = gemm(step, anchor)?;
    let mut cx = Cx::new(&format!("matmul.{}", step.name), variant.workgroup(), step);
    cx.result_space()?;
    // The first size counts for nothing in a number.
    let inner = gemm.k.iter().enumerate().skip(1).map(|(i, &e)| cx.window_size(&format!("k{i}"), e));
    let mut sizes: Vec<Value> = inner.collect();
    if !sizes.is_empty() {
        sizes.insert(0, cx.b.int(0));
    }
    let along = |cx: &mut Cx<'_>, k: &[Value]| match k {
        [_, _, ..] => vec![cx.joined_index(k, &gemm.k, &sizes)],
        _ => k.to_vec(),
    };
    let lead = &anchor.shape.dims()[..gemm.batch.len()];
    // As many at once as the right matrix gives steps, or as few as any access reads.
    let (is_wide, steps, bits) = match (variant, gemm.neighbours) {
        (GemmVariant::Gemv(gemv), _) => (gemv.width() > 1, gemv.steps(), SHORT),
        (_, Some(Neighbours::Depth(steps))) => (true, steps, WORDS),
        (_, of) => (of.is_some(), WIDTHS[0], WORDS),
    };
    let left = gemm.m.len() <= 1 && steps > 1 && together(step, lhs, 0, bits) >= steps;
    let mut left_wide = |cx: &mut Cx<'_>, batch: &[Value], m: &[Value], k: &[Value], count: usize| {
        cx.matrix_elements((lhs, lead), batch, [m, k], count)
    };
    let mut right_wide = |cx: &mut Cx<'_>, batch: &[Value], k: &[Value], n: &[Value], count: usize| {
        cx.matrix_elements((rhs, lead), batch, [k, n], count)
    };
    let operands = Operands {
        a: &mut |cx, batch, m, k| {
            let k = along(cx, k);
            cx.matrix_element(lhs, lead, batch, m, &k)
        },
        b: &mut |cx, batch, k, n| {
            let k = along(cx, k);
            cx.matrix_element(rhs, lead, batch, &k, n)
        },
        share: None,
        wide: is_wide
            .then_some(Wide { a: if left { Some(&mut left_wide) } else { None }, b: &mut right_wide }),
        finish: &mut |cx, batch, m, n, v| {
            let index = [batch, m, n].concat();
            let v = elementwise::narrowed(&mut cx.b, v, dtype);
            cx.bind(anchor.id, &index, v);
            cx.store_results(&index)
        },
    };
    gemm.launch(cx, variant, operands).map(|launch| vec![launch])
}
