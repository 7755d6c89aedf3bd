//! What a schedule writes a kernel with: the builder, the step's operands, and the body around its anchor.

use std::collections::HashMap;
use std::sync::Arc;

use rlx_ir::lir::Operand;
use rlx_ir::{DType, Extent, Graph, NodeId};

use super::run::{Along, Run};
use super::{Launch, Scheduled, StepDesc, UniformArg, reject};
use crate::build::Builder;
use crate::ir::{Access, Buffer, BufferDecl, Stmt, Value, Var};

/// The largest size of a window, or of a block of weights, that is part of a kernel.
const MOST_OF_WINDOW: i64 = 256;

/// Which operand of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arg {
    /// Input number `.0`.
    Input(usize),
    /// Output number `.0`.
    Output(usize),
}

/// How a kernel reaches an operand: `buffer[base + Σ index·stride]`.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub buffer: Buffer,
    pub base: Value,
    pub strides: Vec<Value>,
    /// The strides as what they are of the step's numbers.
    pub extents: Vec<Extent>,
}

/// Writes the kernel of one step.
pub(crate) struct Cx<'a> {
    pub b: Builder,
    pub step: &'a StepDesc,
    uniforms: Vec<UniformArg>,
    bindings: Vec<Arg>,
    /// The slots of operands that speak for all that share them: see [`Cx::bound`].
    slots: HashMap<Arg, Buffer>,
    places: HashMap<Arg, Place>,
    /// Values of body nodes at the index they were made for.
    pub(super) made: HashMap<(NodeId, Vec<Value>), Value>,
    /// How many of the innermost open lists are those of loops.
    loops: usize,
    /// Numbers that were made of an index into smaller dimensions: see [`Cx::joined_index`].
    pub(super) joined: HashMap<Value, (Vec<Extent>, Vec<Value>)>,
    /// In a body of elementwise ops alone, indices are those of the collapsed space, and operands are
    /// reached by these strides.
    pub(super) flat: bool,
    /// Which operand each input node of the body is.
    pub(super) input_numbers: HashMap<NodeId, usize>,
}

impl<'a> Cx<'a> {
    pub fn new(name: &str, workgroup: u32, step: &'a StepDesc) -> Self {
        let inputs = step.graph.inputs().enumerate().map(|(i, n)| (n.id, i)).collect();
        Cx {
            b: Builder::new(name, workgroup),
            step,
            uniforms: Vec::new(),
            bindings: Vec::new(),
            slots: HashMap::new(),
            places: HashMap::new(),
            made: HashMap::new(),
            loops: 0,
            joined: HashMap::new(),
            flat: false,
            input_numbers: inputs,
        }
    }

    /// For a body of one invocation within something that has buffers and uniforms of its own: these come first. Inputs that are among them
    /// are read through their buffers.
    pub fn over(
        name: &str,
        step: &'a StepDesc,
        buffers: &[(BufferDecl, Arg)],
        uniforms: &[(String, UniformArg)],
    ) -> Self {
        let mut cx = Cx::new(name, 1, step);
        for (decl, arg) in buffers {
            let slot = cx.b.buffer(decl.name.clone(), decl.dtype, decl.access);
            cx.bindings.push(*arg);
            cx.slots.insert(cx.bound(*arg), slot);
        }
        for (name, value) in uniforms {
            cx.b.uniform(name.clone(), i32::MIN, i32::MAX);
            cx.uniforms.push(*value);
        }
        cx
    }

    pub fn graph(&self) -> &'a Graph {
        &self.step.graph
    }

    pub fn operand(&self, arg: Arg) -> &'a Operand {
        self.step.operand(arg)
    }

    /// A number of the step as a value: 0 and 1 are part of the kernel, everything else is a uniform.
    pub fn extent(&mut self, name: &str, e: Extent) -> Value {
        self.uniform(name, e, i32::MIN)
    }

    /// As [`Cx::extent`], for what is never negative.
    pub fn size(&mut self, name: &str, e: Extent) -> Value {
        self.uniform(name, e, 0)
    }

    fn uniform(&mut self, name: &str, e: Extent, min: i32) -> Value {
        match e {
            Extent::Const(c @ 0..=1) => self.b.int(c as i32),
            _ => {
                self.uniforms.push(UniformArg::Extent(e));
                self.b.uniform(name, min, i32::MAX)
            }
        }
    }

    /// The operand that is bound for `arg`: for an input, the result that is written over it, or else the first input in its buffer. A device
    /// may not bind memory twice where one binding writes it.
    fn bound(&self, arg: Arg) -> Arg {
        let Arg::Input(_) = arg else { return arg };
        let buffer = self.operand(arg).buffer;
        let first = |operands: &[Operand]| operands.iter().position(|o| o.buffer == buffer);
        let over = first(&self.step.outputs).map(Arg::Output);
        over.or_else(|| first(&self.step.inputs).map(Arg::Input)).unwrap_or(arg)
    }

    /// The buffer slot of an operand.
    fn slot(&mut self, arg: Arg) -> Buffer {
        let bound = self.bound(arg);
        if let Some(&slot) = self.slots.get(&bound) {
            return slot;
        }
        // Of inputs that share a buffer, the one that is used first is named.
        let named = if matches!(bound, Arg::Output(_)) { bound } else { arg };
        let (name, access) = match named {
            Arg::Input(i) => (format!("x{i}"), Access::Read),
            Arg::Output(i) => (format!("y{i}"), Access::Write),
        };
        let slot = self.b.buffer(name, self.step.stored(self.operand(named).dtype), access);
        self.bindings.push(named);
        self.slots.insert(bound, slot);
        slot
    }

    /// Reaches an operand through strides of a space of the schedule's own.
    pub fn place_by(&mut self, arg: Arg, strides: &[Extent]) -> Place {
        let buffer = self.slot(arg);
        let offset = self.operand(arg).view.offset;
        self.uniforms.push(UniformArg::Base { operand: arg, offset });
        let name = match arg {
            Arg::Input(i) => format!("x{i}"),
            Arg::Output(i) => format!("y{i}"),
        };
        let base = self.b.uniform(format!("{name}.base"), 0, i32::MAX);
        let extents = strides.to_vec();
        let strides = (strides.iter().enumerate())
            .map(|(i, &s)| self.extent(&format!("{name}.stride{i}"), s))
            .collect();
        let place = Place { buffer, base, strides, extents };
        self.places.insert(arg, place.clone());
        place
    }

    /// Reaches an operand through its own view.
    pub fn place(&mut self, arg: Arg) -> Place {
        if let Some(place) = self.places.get(&arg) {
            return place.clone();
        }
        let strides = self.operand(arg).view.strides.clone();
        self.place_by(arg, &strides)
    }

    /// Extents as values.
    pub fn sizes(&mut self, name: &str, dims: &[Extent]) -> Vec<Value> {
        dims.iter().enumerate().map(|(i, &d)| self.size(&format!("{name}{i}"), d)).collect()
    }

    /// A number of a window (its size along a dimension, how it moves) or of a block of weights: part of the kernel where it is small, because
    /// indices are divided by it, and windows and blocks of models are few.
    pub fn window_size(&mut self, name: &str, e: Extent) -> Value {
        match e {
            Extent::Const(c @ 0..=MOST_OF_WINDOW) => self.b.int(c as i32),
            _ => self.size(name, e),
        }
    }

    /// How many elements a space of `dims` has.
    pub fn product(&mut self, dims: &[Value]) -> Value {
        let one = self.b.int(1);
        dims.iter().fold(one, |n, &d| self.b.mul(n, d))
    }

    /// The dimensions that all results share.
    ///
    /// # Errors
    /// When they do not.
    pub fn result_space(&self) -> Scheduled<Arc<[Extent]>> {
        let space = self.step.outputs.first().map(|o| o.view.dims.clone()).unwrap_or_default();
        if self.step.outputs.iter().all(|o| o.view.dims == space) {
            return Ok(space);
        }
        reject("results of different dimensions")
    }

    /// Computes every result at `index` and stores it.
    pub fn store_results(&mut self, index: &[Value]) -> Scheduled<()> {
        self.store_run(&Run::one(index))
    }

    /// Computes a run of every result, and then stores them: a result may be written over an input.
    pub(super) fn store_run(&mut self, run: &Run) -> Scheduled<()> {
        let outputs = self.graph().outputs.clone();
        let values: Vec<Vec<Value>> =
            outputs.iter().map(|&id| self.elements(id, run)).collect::<Scheduled<_>>()?;
        for (k, values) in values.into_iter().enumerate() {
            let arg = Arg::Output(k);
            if self.along(arg, run) == Along::Together {
                let place = self.place(arg);
                let at = self.address(&place, &run.first);
                self.b.store_wide(place.buffer, at, values);
                continue;
            }
            for (index, value) in self.places_of(run).iter().zip(values) {
                self.store(arg, index, value);
            }
        }
        Ok(())
    }

    /// The index of each element of a run.
    pub(super) fn places_of(&mut self, run: &Run) -> Vec<Vec<Value>> {
        let place = |away: usize| {
            let mut index = run.first.clone();
            if let (1.., Some(at)) = (away, index.get_mut(run.axis)) {
                let away = self.b.int(away as i32);
                *at = self.b.add(*at, away);
            }
            index
        };
        (0..run.width).map(place).collect()
    }

    /// What a run is of an operand.
    fn along(&mut self, arg: Arg, run: &Run) -> Along {
        if run.width == 1 {
            return Along::Apart;
        }
        let place = self.place(arg);
        Along::of(self.step, self.operand(arg), &place.extents, (run.axis, run.width))
    }

    /// A run of an input: read by one access, or once where all of it is one element, or one by one.
    pub(super) fn load_run(&mut self, arg: Arg, run: &Run) -> Vec<Value> {
        match self.along(arg, run) {
            Along::Together => {
                let place = self.place(arg);
                let at = self.address(&place, &run.first);
                self.b.load_wide(place.buffer, at, run.width)
            }
            Along::Same => vec![self.load(arg, &run.first); run.width],
            Along::Apart => {
                let places = self.places_of(run);
                places.iter().map(|index| self.load(arg, index)).collect()
            }
        }
    }

    /// Runs `f` in one invocation for each row along `axis` of a space, with the row's index (0 along the axis)
    /// and length; gives the number of workgroups.
    pub fn for_rows(
        &mut self,
        space: &[Extent],
        axis: usize,
        f: impl FnOnce(&mut Self, &[Value], Value) -> Scheduled<()>,
    ) -> Scheduled<Extent> {
        let dims = self.sizes("dim", space);
        let mut others = dims.clone();
        others[axis] = self.b.int(1);
        let rows = others.iter().fold(self.b.int(1), |n, &d| self.b.mul(n, d));
        let i = self.b.global_id();
        let inside = self.b.lt(i, rows);
        self.if_then(inside, |cx| {
            let row = cx.unflatten(i, &others);
            f(cx, &row, dims[axis])
        })?;
        let count = (0..space.len()).filter(|&i| i != axis).fold(Extent::Const(1), |n, i| n * space[i]);
        Ok(count.ceil_div(i64::from(self.b.kernel().workgroup)))
    }

    /// `base + Σ index·stride`.
    pub fn address(&mut self, place: &Place, index: &[Value]) -> Value {
        let mut at = place.base;
        for (&i, &stride) in index.iter().zip(&place.strides) {
            let step = self.b.mul(i, stride);
            at = self.b.add(at, step);
        }
        at
    }

    /// The element of an operand at an index of its view.
    pub fn load(&mut self, arg: Arg, index: &[Value]) -> Value {
        let place = self.place(arg);
        let at = self.address(&place, index);
        self.b.load(place.buffer, at)
    }

    /// Writes the element of an output at an index of its view.
    pub fn store(&mut self, arg: Arg, index: &[Value], value: Value) {
        let place = self.place(arg);
        let at = self.address(&place, index);
        self.b.store(place.buffer, at, value);
    }

    /// The multi-index of element `i` of a space of `dims`, row-major.
    pub fn unflatten(&mut self, i: Value, dims: &[Value]) -> Vec<Value> {
        let mut index = vec![i; dims.len()];
        let mut rest = i;
        for axis in (1..dims.len()).rev() {
            (rest, index[axis]) = self.b.div_rem(rest, dims[axis]);
        }
        if let Some(first) = index.first_mut() {
            *first = rest;
            if let Some(&d) = dims.first()
                && self.b.as_const(d).and_then(|c| c.as_i32()) == Some(1)
            {
                *first = self.b.int(0);
            }
        }
        index
    }

    /// The row-major position of an index in a space of `dims`.
    pub fn flatten(&mut self, index: &[Value], dims: &[Value]) -> Value {
        let mut at = self.b.int(0);
        for (&i, &d) in index.iter().zip(dims) {
            let scaled = self.b.mul(at, d);
            at = self.b.add(scaled, i);
        }
        at
    }

    /// An index into several dimensions as a number of their product; what splits it again has the index.
    pub fn joined_index(&mut self, index: &[Value], dims: &[Extent], sizes: &[Value]) -> Value {
        let flat = self.flatten(index, sizes);
        if dims.len() > 1 {
            self.joined.insert(flat, (dims.to_vec(), index.to_vec()));
        }
        flat
    }

    /// Runs `f` in an inner list, that of a loop or of a condition: what it makes is forgotten after.
    fn inner(
        &mut self,
        is_loop: bool,
        f: impl FnOnce(&mut Self) -> Scheduled<()>,
    ) -> (Scheduled<()>, Vec<Stmt>) {
        let (made, loops) = (self.made.clone(), self.loops);
        self.loops = if is_loop { loops + 1 } else { 0 };
        self.b.open();
        let result = f(self);
        let stmts = self.b.close();
        (self.made, self.loops) = (made, loops);
        (result, stmts)
    }

    /// Runs `f` in front of the loops that do not change `index`, which it is given as it is there: what it makes is made once for all of their
    /// iterations. Conditions around it hold there, too.
    pub fn in_front<T>(&mut self, index: &[Value], f: impl FnOnce(&mut Self, &[Value]) -> T) -> T {
        let depth = self.b.depth();
        let reach = index.iter().map(|&v| self.b.reach(v)).max().unwrap_or(0);
        let level = reach.clamp(depth - self.loops, depth);
        let left = self.b.leave(level);
        let loops = self.loops;
        self.loops -= depth - level;
        // Some of what was made may stand in the lists that were left.
        let made = std::mem::take(&mut self.made);
        let index: Vec<Value> = index.iter().map(|&v| self.b.again(v)).collect();
        let result = f(self, &index);
        let made_here = std::mem::replace(&mut self.made, made);
        self.made.extend(made_here);
        self.loops = loops;
        self.b.enter(left);
        result
    }

    /// Runs `then` where `cond` holds.
    pub fn if_then(&mut self, cond: Value, then: impl FnOnce(&mut Self) -> Scheduled<()>) -> Scheduled<()> {
        match self.b.as_const(cond) {
            Some(c) if c.bits != 0 => then(self),
            Some(_) => Ok(()),
            None => {
                let (result, then) = self.inner(false, then);
                self.b.push_if(cond, then, Vec::new());
                result
            }
        }
    }

    /// What `f` gives where `cond` holds, else `otherwise`.
    pub fn value_if(
        &mut self,
        cond: Value,
        otherwise: Value,
        f: impl FnOnce(&mut Self) -> Scheduled<Value>,
    ) -> Scheduled<Value> {
        Ok(self.values_if(cond, (otherwise, 1), |cx| Ok(vec![f(cx)?]))?[0])
    }

    /// As [`Cx::value_if`], for so many values, each of which is else `otherwise`.
    pub fn values_if(
        &mut self,
        cond: Value,
        (otherwise, count): (Value, usize),
        f: impl FnOnce(&mut Self) -> Scheduled<Vec<Value>>,
    ) -> Scheduled<Vec<Value>> {
        let vars: Vec<Var> = (0..count).map(|_| self.b.var(otherwise)).collect();
        self.if_then(cond, |cx| {
            let values = f(cx)?;
            vars.iter().zip(values).for_each(|(&var, v)| cx.b.set(var, v));
            Ok(())
        })?;
        Ok(vars.into_iter().map(|var| self.b.get(var)).collect())
    }

    /// Repeats `body` with a counter from `from` to before `to`, growing by `step`.
    pub fn for_step(
        &mut self,
        (from, to, step): (Value, Value, i32),
        body: impl FnOnce(&mut Self, Value) -> Scheduled<()>,
    ) -> Scheduled<()> {
        let counter = self.b.counter(from, to);
        let (result, body) = self.inner(true, |cx| body(cx, counter));
        self.b.push_for(counter, from, to, step, body);
        result
    }

    /// Repeats `body` with a counter from 0 to before `to`.
    pub fn for_each(
        &mut self,
        to: Value,
        body: impl FnOnce(&mut Self, Value) -> Scheduled<()>,
    ) -> Scheduled<()> {
        let zero = self.b.int(0);
        self.for_step((zero, to, 1), body)
    }

    /// Repeats `body` for every index of a space of `dims`, outermost first.
    pub fn for_space(
        &mut self,
        dims: &[Value],
        body: &mut dyn FnMut(&mut Self, &[Value]) -> Scheduled<()>,
    ) -> Scheduled<()> {
        self.for_space_from(dims, &mut Vec::new(), body)
    }

    fn for_space_from(
        &mut self,
        dims: &[Value],
        index: &mut Vec<Value>,
        body: &mut dyn FnMut(&mut Self, &[Value]) -> Scheduled<()>,
    ) -> Scheduled<()> {
        let Some(&d) = dims.get(index.len()) else { return body(self, index) };
        self.for_each(d, |cx, i| {
            index.push(i);
            let result = cx.for_space_from(dims, index, body);
            index.pop();
            result
        })
    }

    /// The launch of the finished kernel over `groups` workgroups.
    pub fn finish(self, groups: Extent) -> Launch {
        let kernel = self.b.finish();
        Launch { kernel: Arc::new(kernel), bindings: self.bindings, uniforms: self.uniforms, groups }
    }

    /// The element type of a node of the body.
    pub fn dtype(&self, node: NodeId) -> DType {
        self.graph().shape(node).dtype()
    }
}
