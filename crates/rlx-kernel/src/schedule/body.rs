//! Computing elements of a body: [`Cx::elements`] asks the nodes before for those it needs, [`Cx::element`] for one.
//!
//! Elementwise ops ask for the same (broadcast) index, movement ops for another one; inputs are loads. So a
//! chain of any length becomes straight code, and a movement in the middle of a region costs its index
//! arithmetic and nothing else. An anchor's value is given beforehand ([`Cx::bind`]). Neighbours are asked for
//! together ([`Run`]) as far as they are neighbours, so that what is the same for all of them is computed once.

use rlx_ir::op::PadMode;
use rlx_ir::{Dim, Extent, Graph, Node, NodeId, Op};

use super::cx::{Arg, Cx};
use super::run::{Needs, Run, dim_groups};
use super::{Scheduled, elementwise, reject};
use crate::ir::{Const, Ty, Value, Var};

/// Whether an element of the result is an element of an input at another index.
pub(super) fn is_index_map(op: &Op) -> bool {
    super::index::is_indexed(op)
        || matches!(
            op,
            Op::Constant { .. }
                | Op::Reshape { .. }
                | Op::Transpose { .. }
                | Op::Expand { .. }
                | Op::Slice { .. }
                | Op::Pad { .. }
                | Op::Concat { .. }
                | Op::Tile { .. }
        )
}

/// Whether a result may be written over input number `input` of a body. Nothing but elementwise ops of the results' own dimensions may be between
/// that input and the results: then each of its elements is read by the invocation alone that computes the results at its place, and
/// that invocation computes all of them before it stores one ([`Cx::store_results`]).
pub fn may_be_written_over(body: &Graph, input: usize) -> bool {
    let Some(input) = body.inputs().nth(input) else { return false };
    let same = |id: NodeId| body.shape(id).dims() == input.shape.dims();
    let mut reached = vec![false; body.nodes().len()];
    reached[input.id.index()] = true;
    let stays = body.nodes().iter().all(|node| {
        let reads = node.inputs.iter().any(|id| reached[id.index()]);
        reached[node.id.index()] |= reads;
        !reads || node.op.is_elementwise() && same(node.id)
    });
    stays && body.outputs.iter().all(|&id| same(id))
}

impl Cx<'_> {
    /// States the value of a node at an index. Ops that broadcast ask for index 0 of dimensions that are 1: they find it, too.
    pub fn bind(&mut self, node: NodeId, index: &[Value], value: Value) {
        let dims = self.graph().shape(node).dims();
        let single: Vec<bool> = dims.iter().map(|d| d.as_static() == Some(1)).collect();
        if single.len() == index.len() && single.contains(&true) {
            let zero = self.b.int(0);
            let at = index.iter().zip(&single).map(|(&i, &single)| if single { zero } else { i });
            self.made.insert((node, at.collect()), value);
        }
        self.made.insert((node, index.to_vec()), value);
    }

    /// The element of `node` at `index`.
    ///
    /// # Errors
    /// The op that has no element-by-element form.
    pub fn element(&mut self, id: NodeId, index: &[Value]) -> Scheduled<Value> {
        if let Some(&v) = self.made.get(&(id, index.to_vec())) {
            return Ok(v);
        }
        Ok(self.elements(id, &Run::one(index))?[0])
    }

    /// The elements of `node` that a run has.
    ///
    /// # Errors
    /// The op that has no element-by-element form.
    pub(super) fn elements(&mut self, id: NodeId, run: &Run) -> Scheduled<Vec<Value>> {
        let places = self.places_of(run);
        let made = |at: &Vec<Value>| self.made.get(&(id, at.clone())).copied();
        if let Some(values) = places.iter().map(made).collect() {
            return Ok(values);
        }
        let node = self.graph().node(id);
        let is_apart = |i: usize| self.needs(node, i, run) == Needs::Apart;
        if (0..node.inputs.len()).any(is_apart) {
            return places.iter().map(|at| self.element(id, at)).collect();
        }
        let values = match &node.op {
            Op::Input { .. } => {
                let number = self.input_numbers[&id];
                self.load_run(Arg::Input(number), run)
            }
            Op::Constant { data } => vec![self.constant(data)?; run.width],
            op if op.is_elementwise() => self.elementwise(node, run)?,
            op if super::index::is_indexed(op) => self.indexed(node, run)?,
            op if is_index_map(op) => self.moved(node, run)?,
            op => return reject(format!("{} within a region, at an index of its own", op.kind())),
        };
        for (at, &value) in places.into_iter().zip(&values) {
            self.made.insert((id, at), value);
        }
        Ok(values)
    }

    /// What a run of a node needs of its operand number `i`.
    fn needs(&self, node: &Node, i: usize, run: &Run) -> Needs {
        match run.width {
            1 => Needs::One,
            _ if self.flat => Needs::Run(run.axis),
            width => Needs::of(self.graph(), node, i, (run.axis, width)),
        }
    }

    /// The elements of operand number `i` of a node that a run of it needs, the first being at `first`.
    pub(super) fn needed(
        &mut self,
        node: &Node,
        i: usize,
        first: &[Value],
        run: &Run,
    ) -> Scheduled<Vec<Value>> {
        match self.needs(node, i, run) {
            Needs::Run(axis) => {
                self.elements(node.inputs[i], &Run { first: first.to_vec(), axis, width: run.width })
            }
            _ => Ok(vec![self.element(node.inputs[i], first)?; run.width]),
        }
    }

    fn elementwise(&mut self, node: &Node, run: &Run) -> Scheduled<Vec<Value>> {
        let mut args = Vec::with_capacity(node.inputs.len());
        for (i, &input) in node.inputs.iter().enumerate() {
            let first =
                if self.flat { run.first.clone() } else { self.broadcast(input, node.id, &run.first) };
            args.push(self.needed(node, i, &first, run)?);
        }
        let from = self.dtype(*node.inputs.last().unwrap_or(&node.id));
        let mut apply = |k: usize| {
            let args: Vec<Value> = args.iter().map(|values| values[k]).collect();
            elementwise::apply(&mut self.b, &node.op, &args, from, node.shape.dtype())
        };
        (0..run.width).map(&mut apply).collect()
    }

    /// The index into an operand that broadcasts to the space of `index`.
    pub(super) fn broadcast(&mut self, input: NodeId, to: NodeId, index: &[Value]) -> Vec<Value> {
        let shape = |id| self.graph().shape(id).dims().to_vec();
        let (dims, to) = (shape(input), shape(to));
        self.broadcast_dims(&dims, &to, index)
    }

    /// The index into dimensions that broadcast to those of `index`, which are `to`.
    pub(super) fn broadcast_dims(&mut self, dims: &[Dim], to: &[Dim], index: &[Value]) -> Vec<Value> {
        let skip = index.len().saturating_sub(dims.len());
        let along = |((d, to), &i): ((&Dim, &Dim), &Value)| match d.extent().broadcast_factor(to.extent()) {
            Extent::Const(0) => self.b.int(0),
            Extent::Const(_) => i,
            factor => {
                let factor = self.size("repeats", factor);
                self.b.mul(i, factor)
            }
        };
        dims.iter().zip(&to[skip..]).zip(&index[skip..]).map(along).collect()
    }

    /// A constant of one value.
    pub(super) fn constant(&mut self, data: &rlx_ir::ConstData) -> Scheduled<Value> {
        let value = data.value();
        let ty = Ty::of(data.dtype());
        let uniform = data.num_elements() >= 1
            && match &value.elements {
                rlx_ir::tensor::Elements::Float(v) => v.windows(2).all(|w| w[0].to_bits() == w[1].to_bits()),
                rlx_ir::tensor::Elements::Int(v) => v.windows(2).all(|w| w[0] == w[1]),
            };
        if !uniform || data.num_elements() > 1 << 16 {
            return reject(format!("a constant {} of several values within a region", data.shape()));
        }
        let c = match &value.elements {
            rlx_ir::tensor::Elements::Float(v) if ty.is_float() => Const::float(ty, v[0]),
            rlx_ir::tensor::Elements::Int(v) => Const::int(ty, v[0] as i64),
            _ => return reject(format!("a constant of {}", data.dtype())),
        };
        Ok(self.b.constant(c))
    }

    fn node_dims(&mut self, id: NodeId) -> Vec<Value> {
        let dims = self.extents(id);
        self.dims_as_values(id, &dims, 0)
    }

    fn extents(&self, id: NodeId) -> Vec<Extent> {
        self.graph().shape(id).dims().iter().map(|d| d.extent()).collect()
    }

    /// Dimensions of a node, from number `first` on.
    fn dims_as_values(&mut self, id: NodeId, dims: &[Extent], first: usize) -> Vec<Value> {
        (dims.iter().zip(first..)).map(|(&d, i)| self.size(&format!("n{}.dim{i}", id.index()), d)).collect()
    }

    /// Where the element of `to` at `index` is in `from`, which is reshaped. Dimensions that have as many elements in both are taken apart from the
    /// others: what is not split or joined is not divided either.
    fn reshaped(&mut self, to: NodeId, from: NodeId, index: &[Value]) -> Vec<Value> {
        let (to_dims, from_dims) = (self.extents(to), self.extents(from));
        let mut found = Vec::with_capacity(from_dims.len());
        for (of_to, of_from) in dim_groups(&to_dims, &from_dims) {
            let (own, split) = (&index[of_to.clone()], &from_dims[of_from.clone()]);
            if let (&[i], 1) = (own, split.len()) {
                found.push(i);
                continue;
            }
            if let &[i] = own
                && let Some((dims, parts)) = self.joined.get(&i)
                && dims == split
            {
                found.extend_from_slice(&parts.clone());
                continue;
            }
            let sizes = self.dims_as_values(to, &to_dims[of_to.clone()], of_to.start);
            let flat = self.flatten(own, &sizes);
            let sizes = self.dims_as_values(from, split, of_from.start);
            found.extend(self.unflatten(flat, &sizes));
        }
        found
    }

    fn moved(&mut self, node: &Node, run: &Run) -> Scheduled<Vec<Value>> {
        let (source, index) = (node.inputs[0], &run.first[..]);
        let index: Vec<Value> = match &node.op {
            Op::Reshape { .. } => self.reshaped(node.id, source, index),
            Op::Transpose { perm } => {
                let mut out = index.to_vec();
                perm.iter().zip(index).for_each(|(&p, &i)| out[p] = i);
                out
            }
            Op::Expand { .. } => self.broadcast(source, node.id, index),
            Op::Slice { starts, steps, .. } => (0..index.len())
                .map(|i| {
                    let start = self.size("start", starts[i]);
                    let step = self.extent("step", Extent::Const(steps[i]));
                    let along = self.b.mul(index[i], step);
                    self.b.add(start, along)
                })
                .collect(),
            Op::Tile { .. } => {
                let from = self.node_dims(source);
                index.iter().zip(from).map(|(&i, d)| self.b.rem(i, d)).collect()
            }
            Op::Pad { before, mode, .. } => return self.padded(node, before, *mode, run),
            Op::Concat { axis } => return self.joined(node, *axis, run),
            op => return reject(format!("{} is no index map", op.kind())),
        };
        self.needed(node, 0, &index, run)
    }

    /// Where `place`, which may be outside, is in a dimension of `size` elements.
    fn border(&mut self, place: Value, size: Value, mode: PadMode) -> Value {
        let (zero, one) = (self.b.int(0), self.b.int(1));
        match mode {
            PadMode::Edge => {
                let last = self.b.sub(size, one);
                let low = self.b.max(place, zero);
                self.b.min(low, last)
            }
            PadMode::Wrap => self.modulo(place, size),
            PadMode::Reflect => {
                // There and back again, neither end twice; a single element is all there is.
                let last = self.b.sub(size, one);
                let round = self.b.add(last, last);
                let round = self.b.max(round, one);
                let at = self.modulo(place, round);
                let back = self.b.sub(round, at);
                let at = self.b.min(at, back);
                self.b.min(at, last)
            }
            _ => place,
        }
    }

    /// `a mod n` in `0..n`.
    fn modulo(&mut self, a: Value, n: Value) -> Value {
        let r = self.b.rem(a, n);
        let (zero, up) = (self.b.int(0), self.b.add(r, n));
        let negative = self.b.lt(r, zero);
        self.b.select(negative, up, r)
    }

    fn padded(&mut self, node: &Node, before: &[Extent], mode: PadMode, run: &Run) -> Scheduled<Vec<Value>> {
        let dims = self.node_dims(node.inputs[0]);
        let mut first = Vec::with_capacity(run.first.len());
        let mut inside = self.b.constant(Const::bool(true));
        for (axis, &i) in run.first.iter().enumerate() {
            let skip = self.size("before", before[axis]);
            let place = self.b.sub(i, skip);
            if mode == PadMode::Constant {
                let zero = self.b.int(0);
                let (low, high) = (self.b.ge(place, zero), self.b.lt(place, dims[axis]));
                let both = self.b.and(low, high);
                inside = self.b.and(inside, both);
                first.push(place);
            } else {
                first.push(self.border(place, dims[axis], mode));
            }
        }
        if mode != PadMode::Constant {
            return self.needed(node, 0, &first, run);
        }
        let border = match node.inputs.get(1) {
            Some(&value) => self.element(value, &[])?,
            None => {
                let stored = self.step.stored(node.shape.dtype());
                let zero = Const { ty: Ty::of(stored), bits: 0 };
                self.b.constant(zero)
            }
        };
        self.values_if(inside, (border, run.width), |cx| cx.needed(node, 0, &first, run))
    }

    fn joined(&mut self, node: &Node, axis: usize, run: &Run) -> Scheduled<Vec<Value>> {
        let stored = self.step.stored(node.shape.dtype());
        let zero = self.b.constant(Const { ty: Ty::of(stored), bits: 0 });
        let vars: Vec<Var> = (0..run.width).map(|_| self.b.var(zero)).collect();
        let (index, mut start) = (&run.first, self.b.int(0));
        for (i, &input) in node.inputs.iter().enumerate() {
            let along = self.graph().shape(input).dim(axis).extent();
            let len = self.size("part", along);
            let end = self.b.add(start, len);
            let (low, high) = (self.b.ge(index[axis], start), self.b.lt(index[axis], end));
            let here = self.b.and(low, high);
            let mut own = index.clone();
            own[axis] = self.b.sub(index[axis], start);
            self.if_then(here, |cx| {
                let values = cx.needed(node, i, &own, run)?;
                vars.iter().zip(values).for_each(|(&var, v)| cx.b.set(var, v));
                Ok(())
            })?;
            start = end;
        }
        Ok(vars.into_iter().map(|var| self.b.get(var)).collect())
    }
}
