//! Choices and loops. The shim evaluates conditions between programs, so what is in a body may be compiled by MLX, and what is around
//! control flow is not.
//!
//! A body's faults leave it as one more result: of a choice beside the other branch's, of a loop carried along.

use std::sync::Arc;

use rlx_ir::op::Body;
use rlx_ir::{DType, Dim, Node, NodeId, Result};

use super::{Emitter, Fault, NO_FAULT, type_of};
use crate::program::{Code, Type, Val, unsupported, word};

impl<'a> Emitter<'a> {
    /// A body as a program of its own, up to its outputs.
    fn body(&self, node: &Node, body: &'a Arc<Body>) -> Result<Emitter<'a>> {
        let types = body.graph.inputs().map(type_of).collect::<Result<Vec<_>>>()?;
        let given: Vec<NodeId> = body.graph.inputs().map(|node| node.id).collect();
        Emitter::new(&body.graph, self.b.inner(types), Some(self.within.unwrap_or(node.id)), &given)
    }

    /// Takes over what can fail in a body, which is among the results of `node` from `first` on.
    fn inherit(&mut self, faults: Vec<(Fault, Val)>, vector: Val, first: usize) {
        for (i, (fault, _)) in faults.into_iter().enumerate() {
            let value = self.b.narrow(vector, 0, first + i, first + i + 1);
            self.faults.push((fault, value));
        }
    }

    pub(super) fn choice(
        &mut self,
        node: &Node,
        then: &'a Arc<Body>,
        otherwise: &'a Arc<Body>,
        x: &[Val],
    ) -> Result<Vec<Val>> {
        let branches = [self.body(node, then)?, self.body(node, otherwise)?];
        let counts = [branches[0].faults.len(), branches[1].faults.len()];
        let (given, first) = (branches[0].outputs()?, &branches[0].b);
        let mut results: Vec<Type> =
            given.iter().map(|&v| Type { dtype: first.dtype(v), dims: first.dims(v).to_vec() }).collect();
        let all = counts[0] + counts[1];
        if all > 0 {
            results.push(Type { dtype: DType::I64, dims: vec![all] });
        }
        let (mut programs, mut faults) = (Vec::new(), Vec::new());
        for (i, mut branch) in branches.into_iter().enumerate() {
            let mut outputs = branch.outputs()?;
            if all > 0 {
                let none = branch.b.int(DType::I64, NO_FAULT.into());
                let other = branch.b.full(none, &[counts[1 - i]]);
                let own = branch.fault_vector();
                let mut parts: Vec<Val> =
                    own.into_iter().chain((counts[1 - i] > 0).then_some(other)).collect();
                if i == 1 {
                    parts.reverse();
                }
                outputs.push(branch.b.concatenate(&parts, 0));
            }
            faults.append(&mut branch.faults);
            programs.push(branch.b.finish(&outputs));
        }
        let mut attrs = vec![word(programs[0].len())];
        attrs.extend(programs.concat());
        let count = results.len();
        let first = self.b.push(Code::If, x, &attrs, results);
        if all > 0 {
            self.inherit(faults, first + count - 1, 0);
        }
        Ok((first..first + count - usize::from(all > 0)).collect())
    }

    pub(super) fn repeat(
        &mut self,
        node: &Node,
        body: &'a Arc<Body>,
        trips: Dim,
        carried: usize,
        scanned: usize,
        x: &[Val],
    ) -> Result<Vec<Val>> {
        let Some(trips) = trips.as_static() else {
            return unsupported(format!("a loop of {trips} iterations"));
        };
        // Faults are carried behind the others; how many there are is known once the body is written.
        let count = self.body(node, body)?.faults.len();
        let mut types: Vec<Type> = body.graph.inputs().map(type_of).collect::<Result<_>>()?;
        let vector = Type { dtype: DType::I64, dims: vec![count] };
        // Behind the carried values, both in the body and around it.
        let place = 2 + carried;
        if count > 0 {
            types.insert(place, vector.clone());
        }
        let within = Some(self.within.unwrap_or(node.id));
        let extra = (count > 0).then_some(place);
        let given: Vec<NodeId> = body.graph.inputs().map(|node| node.id).collect();
        let mut inner = Emitter::with_extra(&body.graph, self.b.inner(types), within, &given, extra)?;
        let mut outputs = inner.outputs()?;
        let mut results: Vec<Type> = outputs
            .iter()
            .map(|&v| Type { dtype: inner.b.dtype(v), dims: inner.b.dims(v).to_vec() })
            .collect();
        results.remove(0);
        for stack in results.iter_mut().skip(carried) {
            stack.dims.insert(0, trips);
        }
        let mut operands = x.to_vec();
        if count > 0 {
            let own = inner.fault_vector();
            let joined = own.map_or(place, |own| inner.b.binary(Code::Maximum, own, place));
            outputs.insert(1 + carried, joined);
            let none = self.b.int(DType::I64, NO_FAULT.into());
            operands.insert(place, self.b.full(none, &[count]));
            results.insert(carried, vector);
        }
        let faults = std::mem::take(&mut inner.faults);
        let mut attrs = vec![word(carried + usize::from(count > 0)), word(scanned), word(trips)];
        attrs.extend(inner.b.finish(&outputs));
        let total = results.len();
        let first = self.b.push(Code::Loop, &operands, &attrs, results);
        if count > 0 {
            self.inherit(faults, first + carried, 0);
        }
        Ok((first..first + total).filter(|&v| count == 0 || v != first + carried).collect())
    }
}
