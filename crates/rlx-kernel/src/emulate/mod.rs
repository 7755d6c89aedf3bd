//! Emulation: the same kernel in terms of what a device has.
//!
//! A kernel is written again with [`TypeSupport`] in mind:
//! - 64-bit integers become pairs of `u32`, their arithmetic exact (`int64.rs`);
//! - elements of 16 bits are unsigned integers where the device has those in buffers, and it is for the kernel to know what their bits mean;
//! - other elements of less than 32 bits are in `u32` words: loads extract, stores change their bits of the word
//!   atomically, so that neighbours may write at the same time (`narrow.rs`);
//! - elementary functions that the device has not become those of [`rlx_math`] (`lanes.rs`, `math.rs`), so that they are as
//!   accurate on every device;
//! - neighbouring elements that are accessed together ([`Stmt::LoadWide`], [`Stmt::StoreWide`]) are accessed one after the other where the language has no such access;
//! - products that are added are rounded before that where the language does not promise to round once;
//! - comparisons of floats by order say by bits that neither is NaN, where the device's compiler would not keep it.
//!
//! binary64 is not emulated: a kernel that computes in it is rejected. Elements of 4 bits are packed into
//! words on every device.

mod int64;
mod lanes;
mod math;
mod narrow;

use rlx_ir::DType;
use rlx_math::Form;

use crate::build::Builder;
use crate::ir::{
    Access, BinOp, Buffer, BufferDecl, Cmp, Inst, Kernel, MathFn, Shared, Stmt, Ty, UnOp, Value, Var, WIDTHS,
};
use crate::schedule::elementwise::is_nan;
use crate::schedule::{Scheduled, reject};
use crate::target::TypeSupport;

pub use math::expand;

/// What stands for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rep {
    /// One value.
    One(Value),
    /// Low and high word of a 64-bit integer.
    Two(Value, Value),
}

impl Rep {
    fn one(self) -> Value {
        match self {
            Rep::One(v) | Rep::Two(v, _) => v,
        }
    }

    fn two(self) -> (Value, Value) {
        match self {
            Rep::One(v) => (v, v),
            Rep::Two(low, high) => (low, high),
        }
    }
}

struct Emulator<'k> {
    old: &'k Kernel,
    types: TypeSupport,
    b: Builder,
    values: Vec<Option<Rep>>,
    vars: Vec<(Var, Option<Var>)>,
    shared: Vec<(Shared, Option<Shared>)>,
}

/// Writes `kernel` in terms of `types`.
///
/// # Errors
/// A type that can neither be had nor emulated.
pub fn emulate(kernel: &Kernel, types: TypeSupport) -> Scheduled<Kernel> {
    if !types.float64 && kernel.values.contains(&Ty::F64) {
        return reject("it computes in f64, which the device does not have");
    }
    if !types.int64 && types.float64 && kernel.values.iter().any(|t| matches!(t, Ty::I64 | Ty::U64)) {
        return reject("64-bit integers beside f64, of which the device has only the latter");
    }
    let mut e = Emulator {
        old: kernel,
        types,
        b: Builder::new(kernel.name.clone(), kernel.workgroup),
        values: vec![None; kernel.values.len()],
        vars: Vec::new(),
        shared: Vec::new(),
    };
    e.b.set_subgroup(kernel.subgroup);
    for decl in &kernel.buffers {
        let words = e.in_words(decl.dtype);
        let access = match decl.access {
            Access::Write if words && decl.dtype.bits() < 32 => Access::Atomic,
            access => access,
        };
        let dtype = match decl.dtype {
            _ if words => DType::U32,
            dtype if e.as_shorts(dtype) => DType::U16,
            dtype => dtype,
        };
        e.b.buffer(decl.name.clone(), dtype, access);
    }
    for name in &kernel.uniforms {
        e.b.uniform(name.clone(), i32::MIN, i32::MAX);
    }
    e.declare_state();
    for s in &kernel.body {
        e.stmt(s)?;
    }
    Ok(e.b.finish())
}

impl Emulator<'_> {
    /// Whether elements of `dtype` are not elements of a buffer of this device.
    fn in_words(&self, dtype: DType) -> bool {
        match dtype.bits() {
            2 | 4 => true,
            8 => !self.types.narrow,
            16 => !self.types.narrow && !self.types.int16,
            64 => dtype != DType::F64 && !self.types.int64,
            _ => false,
        }
    }

    /// Whether elements of `dtype` are had as unsigned integers of 16 bits.
    fn as_shorts(&self, dtype: DType) -> bool {
        dtype.bits() == 16 && self.types.int16 && !self.types.narrow
    }

    fn is_pair(&self, ty: Ty) -> bool {
        matches!(ty, Ty::I64 | Ty::U64) && !self.types.int64
    }

    /// Whether the device has the function in this type.
    fn has(&self, f: MathFn, ty: Ty) -> bool {
        (self.types.math || ty == Ty::F64) && matches!(f.form(), Form::Library(_))
    }

    fn declare_state(&mut self) {
        for &ty in &self.old.vars {
            let pair = self.is_pair(ty);
            let ty = if pair { Ty::U32 } else { ty };
            let first = self.b.declare_var(ty);
            let second = pair.then(|| self.b.declare_var(ty));
            self.vars.push((first, second));
        }
        for s in &self.old.shared {
            let pair = self.is_pair(s.ty);
            let ty = if pair { Ty::U32 } else { s.ty };
            let first = self.b.shared(ty, s.len);
            let second = pair.then(|| self.b.shared(ty, s.len));
            self.shared.push((first, second));
        }
    }

    fn rep(&self, v: Value) -> Rep {
        // The verifier's rule: what is used was defined.
        self.values[v.index()].unwrap_or(Rep::One(Value(0)))
    }

    fn one(&self, v: Value) -> Value {
        self.rep(v).one()
    }

    fn ty(&self, v: Value) -> Ty {
        self.old.values[v.index()]
    }

    fn block(&mut self, stmts: &[Stmt]) -> Scheduled<Vec<Stmt>> {
        self.b.open();
        let result = stmts.iter().try_for_each(|s| self.stmt(s));
        let block = self.b.close();
        result.map(|()| block)
    }

    fn stmt(&mut self, s: &Stmt) -> Scheduled<()> {
        match s {
            Stmt::Let(v, inst) => {
                let rep = self.inst(inst)?;
                self.values[v.index()] = Some(rep);
            }
            Stmt::LoadWide { values, buffer, index } => self.load_wide(values, *buffer, *index),
            Stmt::Set(var, v) => match (self.vars[var.index()], self.rep(*v)) {
                ((low, Some(high)), Rep::Two(a, b)) => {
                    self.b.set(low, a);
                    self.b.set(high, b);
                }
                ((var, _), rep) => self.b.set(var, rep.one()),
            },
            Stmt::Store { buffer, index, value } => {
                let (index, rep) = (self.one(*index), self.rep(*value));
                self.store(*buffer, index, rep)?;
            }
            Stmt::StoreWide { buffer, index, values } => self.store_wide(*buffer, *index, values)?,
            Stmt::StoreShared { shared, index, value } => {
                let (index, rep) = (self.one(*index), self.rep(*value));
                match (self.shared[shared.index()], rep) {
                    ((low, Some(high)), Rep::Two(a, b)) => {
                        self.b.store_shared(low, index, a);
                        self.b.store_shared(high, index, b);
                    }
                    ((shared, _), rep) => self.b.store_shared(shared, index, rep.one()),
                }
            }
            Stmt::MergeBits { buffer, index, mask, bits } => {
                let (index, mask, bits) = (self.one(*index), self.one(*mask), self.one(*bits));
                self.b.merge_bits(*buffer, index, mask, bits);
            }
            Stmt::If { cond, then, otherwise } => {
                let cond = self.one(*cond);
                let (then, otherwise) = (self.block(then)?, self.block(otherwise)?);
                self.b.push_if(cond, then, otherwise);
            }
            Stmt::For { counter, from, to, step, body } => {
                let (from, to) = (self.one(*from), self.one(*to));
                let own = self.b.counter(from, to);
                self.values[counter.index()] = Some(Rep::One(own));
                let body = self.block(body)?;
                self.b.push_for(own, from, to, *step, body);
            }
            Stmt::Barrier => self.b.barrier(),
            Stmt::Fail { code, value } => {
                let value = self.one(*value);
                self.b.fail(*code, value);
            }
        }
        Ok(())
    }

    fn store(&mut self, buffer: Buffer, index: Value, rep: Rep) -> Scheduled<()> {
        let dtype = self.old.buffers[buffer.index()].dtype;
        if self.as_shorts(dtype) {
            let bits = narrow::bits(&mut self.b, dtype, rep.one());
            self.b.store(buffer, index, bits);
        } else if !self.in_words(dtype) {
            self.b.store(buffer, index, rep.one());
        } else if let Rep::Two(low, high) = rep {
            let (first, one) = (self.b.shl(index, 1), self.b.int(1));
            let second = self.b.add(first, one);
            self.b.store(buffer, first, low);
            self.b.store(buffer, second, high);
        } else {
            narrow::store(&mut self.b, buffer, dtype, index, rep.one());
        }
        Ok(())
    }

    fn load(&mut self, buffer: Buffer, index: Value) -> Rep {
        let dtype = self.old.buffers[buffer.index()].dtype;
        if self.as_shorts(dtype) {
            let bits = self.b.load(buffer, index);
            return Rep::One(narrow::value(&mut self.b, dtype, bits));
        }
        if !self.in_words(dtype) {
            return Rep::One(self.b.load(buffer, index));
        }
        if dtype.bits() == 64 {
            let (first, one) = (self.b.shl(index, 1), self.b.int(1));
            let second = self.b.add(first, one);
            return Rep::Two(self.b.load(buffer, first), self.b.load(buffer, second));
        }
        Rep::One(narrow::load(&mut self.b, buffer, dtype, index))
    }

    /// Neighbours, by one access where the device has that and elements are as they are stored.
    fn load_wide(&mut self, values: &[Value], buffer: Buffer, index: Value) {
        let index = self.one(index);
        let &BufferDecl { dtype, access, .. } = &self.old.buffers[buffer.index()];
        if access != Access::Atomic && self.types.wide.has(dtype) {
            let read = self.b.load_wide(buffer, index, values.len());
            for (v, read) in values.iter().zip(read) {
                self.values[v.index()] = Some(Rep::One(read));
            }
            return;
        }
        // Elements of 16 bits that are in words: those words, each once.
        if self.in_words(dtype) && dtype.bits() == 16 {
            let first = self.b.shr(index, 1);
            let words = self.words(buffer, first, values.len() / 2);
            for (pair, word) in values.chunks(2).zip(words) {
                let read = narrow::pair(&mut self.b, dtype, word);
                for (v, read) in pair.iter().zip(read) {
                    self.values[v.index()] = Some(Rep::One(read));
                }
            }
            return;
        }
        for (i, v) in values.iter().enumerate() {
            let away = self.b.int(i as i32);
            let at = self.b.add(index, away);
            self.values[v.index()] = Some(self.load(buffer, at));
        }
    }

    /// Neighbouring words of a buffer that has other elements, from one on whose number is a multiple of how many they are.
    fn words(&mut self, buffer: Buffer, first: Value, count: usize) -> Vec<Value> {
        let only_read = self.old.buffers[buffer.index()].access == Access::Read;
        if WIDTHS.contains(&count) && only_read && self.types.wide.has(DType::U32) {
            return self.b.load_wide(buffer, first, count);
        }
        let word = |i: usize| {
            let away = self.b.int(i as i32);
            let at = self.b.add(first, away);
            self.b.load(buffer, at)
        };
        (0..count).map(word).collect()
    }

    fn store_wide(&mut self, buffer: Buffer, index: Value, values: &[Value]) -> Scheduled<()> {
        let index = self.one(index);
        if self.types.wide.has(self.old.buffers[buffer.index()].dtype) {
            let values = values.iter().map(|&v| self.one(v)).collect();
            self.b.store_wide(buffer, index, values);
            return Ok(());
        }
        for (i, &v) in values.iter().enumerate() {
            let away = self.b.int(i as i32);
            let (at, rep) = (self.b.add(index, away), self.rep(v));
            self.store(buffer, at, rep)?;
        }
        Ok(())
    }

    fn inst(&mut self, inst: &Inst) -> Scheduled<Rep> {
        if let Some(rep) = self.pair_inst(inst) {
            return Ok(rep);
        }
        let one = |v: Value| self.one(v);
        let same = match *inst {
            Inst::Unary(UnOp::Math(f), v) if !self.has(f, self.ty(v)) => {
                if self.ty(v) == Ty::F64 && f.form() == Form::Own {
                    return reject(format!("there is no {} of f64", f.name()));
                }
                let x = self.one(v);
                return Ok(Rep::One(math::unary(&mut self.b, f, x, self.types.math)));
            }
            Inst::Binary(op @ (BinOp::Pow | BinOp::Fmod | BinOp::Atan2), x, y)
                if !self.types.math && self.ty(x) == Ty::F32 =>
            {
                let (x, y) = (self.one(x), self.one(y));
                return Ok(Rep::One(math::binary(&mut self.b, op, x, y)));
            }
            Inst::Unary(op @ (UnOp::RoundF16 | UnOp::RoundBF16), v) if !self.types.narrow => {
                let x = self.one(v);
                return Ok(Rep::One(narrow::rounded(&mut self.b, op, x)));
            }
            Inst::Compare(op @ (Cmp::Lt | Cmp::Le | Cmp::Gt | Cmp::Ge), x, y)
                if !self.types.nan_order && self.ty(x) == Ty::F32 =>
            {
                let (x, y) = (self.one(x), self.one(y));
                return Ok(Rep::One(self.ordered(op, x, y)));
            }
            // Two roundings instead of one.
            Inst::Fma(x, y, z) if !self.types.fma => {
                let (x, y, z) = (self.one(x), self.one(y), self.one(z));
                let product = self.b.mul(x, y);
                return Ok(Rep::One(self.b.add(z, product)));
            }
            Inst::Load(buffer, i) => {
                let index = self.one(i);
                return Ok(self.load(buffer, index));
            }
            Inst::LoadShared(s, i) => {
                let index = self.one(i);
                return Ok(match self.shared[s.index()] {
                    (low, Some(high)) => {
                        Rep::Two(self.b.load_shared(low, index), self.b.load_shared(high, index))
                    }
                    (s, None) => Rep::One(self.b.load_shared(s, index)),
                });
            }
            Inst::ShuffleXor(v, bits) => {
                return Ok(match self.rep(v) {
                    Rep::One(v) => Rep::One(self.b.shuffle_xor(v, bits)),
                    Rep::Two(low, high) => {
                        Rep::Two(self.b.shuffle_xor(low, bits), self.b.shuffle_xor(high, bits))
                    }
                });
            }
            Inst::Get(var) => {
                return Ok(match self.vars[var.index()] {
                    (low, Some(high)) => Rep::Two(self.b.get(low), self.b.get(high)),
                    (var, None) => Rep::One(self.b.get(var)),
                });
            }
            Inst::Unary(op, v) => Inst::Unary(op, one(v)),
            Inst::Binary(op, x, y) => Inst::Binary(op, one(x), one(y)),
            Inst::Compare(op, x, y) => Inst::Compare(op, one(x), one(y)),
            Inst::Select(c, x, y) => Inst::Select(one(c), one(x), one(y)),
            Inst::Fma(x, y, z) => Inst::Fma(one(x), one(y), one(z)),
            Inst::Convert(ty, v) => Inst::Convert(ty, one(v)),
            Inst::Bitcast(ty, v) => Inst::Bitcast(ty, one(v)),
            Inst::Const(_) | Inst::Uniform(_) | Inst::LocalId | Inst::GroupId => *inst,
        };
        Ok(Rep::One(self.b.inst(same)))
    }

    /// Whether `x` and `y` compare so and neither is NaN, which integers decide: the negation is true of NaN even when a compiler takes
    /// `!(x < y)` for `x >= y`.
    fn ordered(&mut self, op: Cmp, x: Value, y: Value) -> Value {
        let (x_nan, y_nan) = (is_nan(&mut self.b, x), is_nan(&mut self.b, y));
        let either = self.b.or(x_nan, y_nan);
        let (neither, compared) = (self.b.not(either), self.b.compare(op, x, y));
        self.b.and(compared, neither)
    }
}
