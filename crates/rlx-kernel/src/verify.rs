//! The verifier: what must hold of every kernel.
//!
//! Values are defined once, before their use, in a block that encloses it; operands have the types their
//! instruction asks for; constant indices into workgroup memory are within it; barriers and loops around
//! them are in uniform control flow, and so are exchanges within subgroups, which means that no condition or bound on the way there depends on
//! the invocation (its number in the workgroup, or memory that invocations write).

use rlx_ir::{Error, ErrorKind, Result};

use crate::ir::{Access, Buffer, Const, Inst, Kernel, SUBGROUPS, Stmt, Ty, Value, WIDTHS, type_of};
use crate::simplify::operands;

struct Verifier<'k> {
    kernel: &'k Kernel,
    /// Whether each value is visible here.
    visible: Vec<bool>,
    defined: Vec<bool>,
    /// Whether each value is the same for the whole workgroup.
    uniform: Vec<bool>,
    uniform_vars: Vec<bool>,
    constants: Vec<Option<Const>>,
}

/// Checks a kernel.
///
/// # Errors
/// [`ErrorKind::Internal`] naming the kernel and the first rule that is broken.
pub fn verify(kernel: &Kernel) -> Result<()> {
    let n = kernel.values.len();
    let mut v = Verifier {
        kernel,
        visible: vec![false; n],
        defined: vec![false; n],
        uniform: vec![false; n],
        uniform_vars: vec![true; kernel.vars.len()],
        constants: vec![None; n],
    };
    if let Some(lanes) = kernel.subgroup
        && !(SUBGROUPS.contains(&lanes) && kernel.workgroup.is_multiple_of(lanes))
    {
        return v.fault(format!("a workgroup of {} in subgroups of {lanes}", kernel.workgroup));
    }
    // A variable is uniform when all that is ever put into it is, under uniform control: found by going
    // through until nothing changes (each round takes at least one variable away).
    for _ in 0..=kernel.vars.len() {
        let before = v.uniform_vars.clone();
        v.visible.fill(false);
        v.defined.fill(false);
        v.block(&kernel.body, true, false)?;
        if before == v.uniform_vars {
            break;
        }
    }
    v.visible.fill(false);
    v.defined.fill(false);
    v.block(&kernel.body, true, true)
}

impl Verifier<'_> {
    fn fault<T>(&self, what: impl std::fmt::Display) -> Result<T> {
        let message = format!("kernel {:?}: {what}", self.kernel.name);
        Err(Error::new(ErrorKind::Internal, message))
    }

    fn used(&self, v: Value) -> Result<Ty> {
        match self.visible.get(v.index()) {
            Some(true) => Ok(self.kernel.values[v.index()]),
            _ => self.fault(format!("{v} is used where it is not defined")),
        }
    }

    fn expect(&self, v: Value, ty: Ty, what: &str) -> Result<()> {
        let found = self.used(v)?;
        if found == ty {
            Ok(())
        } else {
            self.fault(format!("{what} {v} is {}, not {}", found.name(), ty.name()))
        }
    }

    fn define(&mut self, v: Value) -> Result<()> {
        match self.defined.get_mut(v.index()) {
            Some(d) if !*d => *d = true,
            _ => return self.fault(format!("{v} is defined twice or unknown")),
        }
        self.visible[v.index()] = true;
        Ok(())
    }

    /// `barriers`: whether barriers are checked (uniformity is known).
    fn block(&mut self, stmts: &[Stmt], uniform: bool, barriers: bool) -> Result<()> {
        let outside = self.visible.clone();
        for s in stmts {
            self.stmt(s, uniform, barriers)?;
        }
        self.visible = outside;
        Ok(())
    }

    fn stmt(&mut self, s: &Stmt, uniform: bool, barriers: bool) -> Result<()> {
        match s {
            Stmt::Let(v, inst) => {
                self.define_inst(*v, inst)?;
                if let Inst::ShuffleXor(_, bits) = *inst {
                    self.exchange(bits, uniform || !barriers)?;
                }
            }
            Stmt::LoadWide { values, buffer, index } => self.load_wide(values, *buffer, *index)?,
            Stmt::Set(var, v) => {
                let Some(&ty) = self.kernel.vars.get(var.index()) else {
                    return self.fault(format!("variable m{} is unknown", var.0));
                };
                self.expect(*v, ty, "what is put into a variable,")?;
                self.uniform_vars[var.index()] &= uniform && self.uniform[v.index()];
            }
            Stmt::Store { buffer, index, value } => {
                self.expect(*index, Ty::I32, "index")?;
                let Some(b) = self.kernel.buffers.get(buffer.index()) else {
                    return self.fault(format!("buffer b{} is unknown", buffer.0));
                };
                if b.access != Access::Write {
                    return self.fault(format!("buffer {} is stored to but declared {:?}", b.name, b.access));
                }
                self.expect(*value, Ty::of(b.dtype), "stored value")?;
            }
            Stmt::StoreWide { buffer, index, values } => self.store_wide(*buffer, *index, values)?,
            Stmt::StoreShared { shared, index, value } => {
                let Some(s) = self.kernel.shared.get(shared.index()) else {
                    return self.fault(format!("workgroup memory s{} is unknown", shared.0));
                };
                self.expect(*value, s.ty, "stored value")?;
                self.shared_index(*index, s.len)?;
            }
            Stmt::MergeBits { buffer, index, mask, bits } => {
                self.expect(*index, Ty::I32, "index")?;
                self.expect(*mask, Ty::U32, "mask")?;
                self.expect(*bits, Ty::U32, "bits")?;
                match self.kernel.buffers.get(buffer.index()) {
                    Some(b) if b.access == Access::Atomic => {}
                    _ => return self.fault(format!("b{} is no atomic buffer", buffer.0)),
                }
            }
            Stmt::If { cond, then, otherwise } => {
                self.expect(*cond, Ty::Bool, "condition")?;
                let inner = uniform && self.uniform[cond.index()];
                self.block(then, inner, barriers)?;
                self.block(otherwise, inner, barriers)?;
            }
            Stmt::For { counter, from, to, step, body } => {
                self.expect(*from, Ty::I32, "bound")?;
                self.expect(*to, Ty::I32, "bound")?;
                if *step < 1 {
                    return self.fault(format!("a loop grows by {step}"));
                }
                let inner = uniform && self.uniform[from.index()] && self.uniform[to.index()];
                let outside = self.visible.clone();
                self.define(*counter)?;
                self.expect(*counter, Ty::I32, "counter")?;
                self.uniform[counter.index()] = inner;
                self.block(body, inner, barriers)?;
                self.visible = outside;
            }
            Stmt::Barrier if barriers && !uniform => {
                return self.fault("a barrier in control flow that differs between invocations");
            }
            Stmt::Barrier => {}
            Stmt::Fail { value, .. } => self.expect(*value, Ty::I32, "reported value")?,
        }
        Ok(())
    }

    /// An exchange between invocations whose numbers differ in these bits, reached by all of them or none.
    fn exchange(&self, bits: u32, uniform: bool) -> Result<()> {
        if !uniform {
            return self.fault("an exchange in control flow that differs between invocations");
        }
        match self.kernel.subgroup {
            Some(lanes) if (1..lanes).contains(&bits) => Ok(()),
            lanes => self.fault(format!("an exchange over the bits {bits} in subgroups of {lanes:?}")),
        }
    }

    fn load_wide(&mut self, values: &[Value], buffer: Buffer, index: Value) -> Result<()> {
        self.expect(index, Ty::I32, "index")?;
        if !WIDTHS.contains(&values.len()) {
            return self.fault(format!("{} elements are read together", values.len()));
        }
        let Some(b) = self.kernel.buffers.get(buffer.index()) else {
            return self.fault(format!("buffer b{} is unknown", buffer.0));
        };
        if b.access == Access::Atomic {
            return self
                .fault(format!("neighbours are read of {}, which is declared {:?}", b.name, b.access));
        }
        for &v in values {
            let (ty, declared) = (Ty::of(b.dtype), self.kernel.values.get(v.index()).copied());
            if declared != Some(ty) {
                return self.fault(format!("{v} is declared {declared:?} but is {}", ty.name()));
            }
            self.define(v)?;
            self.uniform[v.index()] = self.uniform[index.index()];
        }
        Ok(())
    }

    fn store_wide(&self, buffer: Buffer, index: Value, values: &[Value]) -> Result<()> {
        self.expect(index, Ty::I32, "index")?;
        if !WIDTHS.contains(&values.len()) {
            return self.fault(format!("{} elements are written together", values.len()));
        }
        match self.kernel.buffers.get(buffer.index()) {
            Some(b) if b.access == Access::Write => {
                values.iter().try_for_each(|&v| self.expect(v, Ty::of(b.dtype), "stored value"))
            }
            _ => self.fault(format!("neighbours are written to b{}, which is not declared so", buffer.0)),
        }
    }

    fn shared_index(&self, index: Value, len: u32) -> Result<()> {
        self.expect(index, Ty::I32, "index")?;
        match self.constants[index.index()].and_then(Const::as_i32) {
            Some(i) if i < 0 || i as u32 >= len => {
                self.fault(format!("index {i} into workgroup memory of {len} elements"))
            }
            _ => Ok(()),
        }
    }

    fn define_inst(&mut self, v: Value, inst: &Inst) -> Result<()> {
        let mut fault = Ok(());
        let mut uniform = true;
        operands(inst, &mut |x| {
            if let Err(e) = self.used(x) {
                fault = Err(e);
            } else {
                uniform &= self.uniform[x.index()];
            }
        });
        fault?;
        let declared = self.kernel.values.get(v.index()).copied();
        let Some(ty) = type_of(inst, self.kernel) else {
            return self.fault(format!("operands do not fit {v} = {inst:?}"));
        };
        if declared != Some(ty) {
            return self.fault(format!("{v} is declared {declared:?} but computes {}", ty.name()));
        }
        match *inst {
            Inst::LoadShared(s, i) => self.shared_index(i, self.kernel.shared[s.index()].len)?,
            Inst::Const(c) => self.constants[v.index()] = Some(c),
            _ => {}
        }
        self.define(v)?;
        self.uniform[v.index()] = match *inst {
            Inst::LocalId | Inst::LoadShared(..) | Inst::ShuffleXor(..) => false,
            Inst::Get(var) => self.uniform_vars[var.index()],
            Inst::Load(b, _) => uniform && self.kernel.buffers[b.index()].access == Access::Read,
            _ => uniform,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Builder;
    use rlx_ir::DType;

    #[test]
    fn a_barrier_needs_uniform_control() {
        let mut b = Builder::new("t", 64);
        let local = b.inst(Inst::LocalId);
        let three = b.int(3);
        let some = b.lt(local, three);
        b.if_then(some, |b| b.barrier());
        assert!(verify(&b.finish()).unwrap_err().to_string().contains("barrier"));

        let mut b = Builder::new("t", 64);
        let group = b.inst(Inst::GroupId);
        let three = b.int(3);
        let some = b.lt(group, three);
        b.if_then(some, |b| b.barrier());
        verify(&b.finish()).unwrap();
    }

    #[test]
    fn a_variable_set_under_divergence_is_not_uniform() {
        let mut b = Builder::new("t", 64);
        let zero = b.int(0);
        let var = b.var(zero);
        let local = b.inst(Inst::LocalId);
        let three = b.int(3);
        let some = b.lt(local, three);
        b.if_then(some, |b| b.set(var, three));
        let v = b.get(var);
        let which = b.lt(v, three);
        b.if_then(which, |b| b.barrier());
        assert!(verify(&b.finish()).is_err());
    }

    #[test]
    fn an_exchange_is_within_a_subgroup_that_is_there_as_a_whole() {
        let kernel = |(workgroup, subgroup, bits): (u32, Option<u32>, u32), some: bool| {
            let mut b = Builder::new("t", workgroup);
            b.set_subgroup(subgroup);
            let y = b.buffer("y", DType::I32, Access::Write);
            let (lane, three) = (b.inst(Inst::LocalId), b.int(3));
            let cond = if some { b.lt(lane, three) } else { b.constant(Const::bool(true)) };
            b.if_then(cond, |b| {
                let other = b.shuffle_xor(lane, bits);
                b.store(y, lane, other);
            });
            verify(&b.finish()).map_err(|e| e.to_string())
        };
        kernel((64, Some(32), 16), false).unwrap();
        kernel((64, Some(64), 33), false).unwrap();
        assert!(kernel((64, Some(32), 16), true).unwrap_err().contains("differs between invocations"));
        for wrong in [(64, Some(32), 32), (64, Some(32), 0), (64, None, 1)] {
            assert!(kernel(wrong, false).unwrap_err().contains("an exchange over"), "{wrong:?}");
        }
        for wrong in [(64, Some(24), 1), (48, Some(32), 1), (64, Some(0), 1), (128, Some(128), 1)] {
            assert!(kernel(wrong, false).unwrap_err().contains("in subgroups of"), "{wrong:?}");
        }
    }

    #[test]
    fn types_memory_and_order_are_checked() {
        let mut b = Builder::new("t", 64);
        let s = b.shared(Ty::F32, 4);
        let (four, x) = (b.int(4), b.number(Ty::F32, 1.0));
        b.store_shared(s, four, x);
        assert!(verify(&b.finish()).unwrap_err().to_string().contains("index 4"));

        let mut b = Builder::new("t", 64);
        let out = b.buffer("y", DType::F32, Access::Write);
        let zero = b.int(0);
        b.store(out, zero, zero);
        assert!(verify(&b.finish()).unwrap_err().to_string().contains("stored value"));

        let mut b = Builder::new("t", 64);
        let out = b.buffer("y", DType::I32, Access::Write);
        let zero = b.int(0);
        b.store(out, zero, zero);
        let mut k = b.finish();
        k.body.reverse();
        assert!(verify(&k).unwrap_err().to_string().contains("not defined"));
    }
}
