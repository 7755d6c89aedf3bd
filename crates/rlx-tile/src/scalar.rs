//! What becomes of one element on its way in or out: a body in the kernel language.

use rlx_ir::{Error, ErrorKind, Result};
use rlx_kernel::build::Builder;
use rlx_kernel::emulate::emulate;
use rlx_kernel::ir::{Buffer, BufferDecl, Inst, Stmt, Ty, Value, Var};
use rlx_kernel::schedule::{Scheduled, Unscheduled};
use rlx_kernel::stored::KernelRecord;
use rlx_kernel::{Kernel, TypeSupport, eval};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Variables of a scalar body that are given and taken: the element, its batch, its row, its column.
const GIVEN: [Ty; 4] = [Ty::F32, Ty::I32, Ty::I32, Ty::I32];

/// A scalar body: a kernel of one invocation that finds the element (an `f32`) in its first variable and leaves the result there. The next three
/// are the number of the batch, the row and the column of the view (`i32`), and where it is given numbers of the element's row or beside the element, those follow (`f32`). It may read the program's buffers and uniforms, and has no loops.
#[derive(Debug, Clone, PartialEq)]
pub struct Scalar {
    kernel: Kernel,
    /// How many numbers of the element's row, or beside the element, it is given.
    rows: usize,
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        (KernelRecord::of(&self.kernel), self.rows as u32).serialize(s)
    }
}

impl<'d> Deserialize<'d> for Scalar {
    /// As it is stored: the program's verifier looks at it.
    fn deserialize<D: Deserializer<'d>>(d: D) -> Result<Self, D::Error> {
        let (kernel, rows) = <(KernelRecord, u32)>::deserialize(d)?;
        let kernel = kernel.kernel().map_err(|e| D::Error::custom(e.message()))?;
        Ok(Scalar { kernel, rows: rows as usize })
    }
}

/// Where an element is.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The number of the batch, in row-major order of its dimensions.
    pub batch: Value,
    /// The row of the view.
    pub row: Value,
    /// The column.
    pub col: Value,
}

impl Scalar {
    /// Writes a body over a program's buffers and uniforms: `f` is given the element and where it is, and gives the result.
    ///
    /// ```
    /// use rlx_tile::Scalar;
    /// let relu = Scalar::new("relu", &[], &[], |b, x, _| {
    ///     let zero = b.number(rlx_kernel::ir::Ty::F32, 0.0);
    ///     b.max(x, zero)
    /// });
    /// assert_eq!(relu.kernel().vars.len(), 4);
    /// ```
    pub fn new(
        name: &str,
        buffers: &[BufferDecl],
        uniforms: &[String],
        f: impl FnOnce(&mut Builder, Value, Place) -> Value,
    ) -> Self {
        Scalar::with_rows(name, buffers, uniforms, 0, |b, x, _, place| f(b, x, place))
    }

    /// Writes a body that is also given so many numbers of the element's row ([`Stmt::Each`](crate::ir::Stmt::Each)), or beside the element
    /// ([`Copy::with`](crate::ir::Copy::with)).
    pub fn with_rows(
        name: &str,
        buffers: &[BufferDecl],
        uniforms: &[String],
        rows: usize,
        f: impl FnOnce(&mut Builder, Value, &[Value], Place) -> Value,
    ) -> Self {
        let mut b = Builder::new(name, 1);
        for buffer in buffers {
            b.buffer(buffer.name.clone(), buffer.dtype, buffer.access);
        }
        for name in uniforms {
            b.uniform(name.clone(), i32::MIN, i32::MAX);
        }
        let vars = GIVEN.map(|ty| b.declare_var(ty));
        let [x, batch, row, col] = vars.map(|v| b.get(v));
        let given: Vec<Value> = (0..rows)
            .map(|_| {
                let var = b.declare_var(Ty::F32);
                b.get(var)
            })
            .collect();
        let result = f(&mut b, x, &given, Place { batch, row, col });
        b.set(vars[0], result);
        Scalar { kernel: b.finish(), rows }
    }

    /// A kernel as a body.
    ///
    /// # Errors
    /// As [`Scalar::verify`].
    pub fn from_kernel(kernel: Kernel) -> Result<Self> {
        Scalar::from_kernel_with(kernel, 0)
    }

    /// A kernel of a step as a body that is also given so many numbers. Functions that no language has become those that all have.
    ///
    /// # Errors
    /// Why it is none.
    pub(crate) fn of_kernel(kernel: Kernel, given: usize) -> Scheduled<Self> {
        let body = Scalar::from_kernel_with(kernel, given).and_then(|body| body.emulated(TypeSupport::ALL));
        body.map_err(|e| Unscheduled(e.to_string()))
    }

    /// A kernel as a body that is also given so many numbers.
    ///
    /// # Errors
    /// As [`Scalar::verify`].
    pub fn from_kernel_with(kernel: Kernel, rows: usize) -> Result<Self> {
        let scalar = Scalar { kernel, rows };
        scalar.verify()?;
        Ok(scalar)
    }

    /// The same in terms of what a device has.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a type that can neither be had nor emulated.
    pub(crate) fn emulated(&self, types: TypeSupport) -> Result<Self> {
        let mut kernel = emulate(&self.kernel, types).map_err(|why| {
            Error::new(ErrorKind::Unsupported, format!("the scalar body {:?}: {why}", self.kernel.name))
        })?;
        // What it does not read is the program's to declare: packed integers stay those, and are no words here.
        for (i, decl) in self.kernel.buffers.iter().enumerate() {
            if kernel.buffers.get(i).is_some_and(|now| now != decl) && !self.reads(Buffer(i as u32)) {
                kernel.buffers[i] = decl.clone();
            }
        }
        Scalar::from_kernel_with(kernel, self.rows)
    }

    /// How many numbers of the element's row, or beside the element, it is given.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many variables it is given.
    pub(crate) fn given(&self) -> usize {
        GIVEN.len() + self.rows
    }

    /// The body.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Whether it reads a buffer.
    pub(crate) fn reads(&self, buffer: Buffer) -> bool {
        let mut reads = false;
        self.kernel.for_each_stmt(&mut |s| {
            reads |= matches!(s, Stmt::Let(_, Inst::Load(of, _)) if *of == buffer);
        });
        reads
    }

    /// Checks it by the rules of kernels and those above.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] naming the body and the first rule that is broken.
    pub fn verify(&self) -> Result<()> {
        let k = &self.kernel;
        let broken =
            |what: &str| Err(Error::new(ErrorKind::Internal, format!("the scalar body {:?} {what}", k.name)));
        if k.vars.get(..GIVEN.len()) != Some(&GIVEN[..]) {
            return broken("does not begin with the variables of an element: f32, i32, i32, i32");
        }
        let rows = k.vars.get(GIVEN.len()..self.given());
        if !rows.is_some_and(|vars| vars.iter().all(|&ty| ty == Ty::F32)) {
            return broken("has no variables of f32 for the numbers of a row");
        }
        if !k.shared.is_empty() || k.workgroup != 1 {
            return broken("has workgroup memory or several invocations");
        }
        let mut foreign = false;
        k.for_each_stmt(&mut |s| {
            foreign |= !matches!(s, Stmt::Let(..) | Stmt::Set(..) | Stmt::If { .. });
            foreign |= matches!(s, Stmt::Let(_, Inst::LocalId | Inst::GroupId | Inst::LoadShared(..)));
        });
        if foreign {
            return broken("does more than to compute: it may not store, repeat, wait or fail");
        }
        rlx_kernel::verify::verify(k)
    }

    /// The result for the element `x` of a row with these numbers, with loads answered by `load` (buffer, index).
    pub(crate) fn eval(
        &self,
        x: f32,
        rows: &[f32],
        place: [i32; 3],
        uniforms: &[i32],
        load: &mut dyn FnMut(usize, i32) -> Result<u64, String>,
    ) -> Result<f32, String> {
        let mut run = Run {
            kernel: &self.kernel,
            uniforms,
            values: vec![0; self.kernel.values.len()],
            vars: vec![0; self.kernel.vars.len()],
            load,
        };
        run.vars[0] = u64::from(x.to_bits());
        run.vars[1..].iter_mut().zip(place).for_each(|(var, p)| *var = u64::from(p as u32));
        run.vars[GIVEN.len()..].iter_mut().zip(rows).for_each(|(var, r)| *var = u64::from(r.to_bits()));
        run.block(&self.kernel.body)?;
        Ok(f32::from_bits(run.vars[0] as u32))
    }
}

/// One evaluation.
struct Run<'a> {
    kernel: &'a Kernel,
    uniforms: &'a [i32],
    values: Vec<u64>,
    vars: Vec<u64>,
    load: &'a mut dyn FnMut(usize, i32) -> Result<u64, String>,
}

impl Run<'_> {
    fn at(&self, v: Value) -> u64 {
        self.values[v.index()]
    }

    fn block(&mut self, stmts: &[Stmt]) -> Result<(), String> {
        for s in stmts {
            match s {
                Stmt::Let(v, inst) => self.values[v.index()] = self.inst(inst)?,
                Stmt::Set(Var(var), v) => self.vars[*var as usize] = self.at(*v),
                Stmt::If { cond, then, otherwise } => {
                    self.block(if self.at(*cond) != 0 { then } else { otherwise })?;
                }
                _ => return Err("a statement that scalar bodies do not have".to_string()),
            }
        }
        Ok(())
    }

    fn inst(&mut self, inst: &Inst) -> Result<u64, String> {
        let ty = |v: Value| self.kernel.values[v.index()];
        Ok(match *inst {
            Inst::Const(c) => c.bits,
            Inst::Uniform(i) => u64::from(self.uniforms[i as usize] as u32),
            Inst::Get(Var(var)) => self.vars[var as usize],
            Inst::Unary(op, x) => eval::unary(op, ty(x), self.at(x)),
            Inst::Binary(op, x, y) => eval::binary(op, ty(x), self.at(x), self.at(y))
                .ok_or_else(|| format!("{op:?} of two numbers that has no value"))?,
            Inst::Compare(op, x, y) => u64::from(eval::compare(op, ty(x), self.at(x), self.at(y))),
            Inst::Select(c, x, y) => self.at(if self.at(c) != 0 { x } else { y }),
            Inst::Convert(to, x) => eval::convert(to, ty(x), self.at(x)),
            Inst::Fma(x, y, z) => eval::fma(ty(x), [x, y, z].map(|v| self.at(v))),
            Inst::Bitcast(_, x) => self.at(x),
            Inst::Load(b, i) => {
                let index = self.at(i) as u32 as i32;
                (self.load)(b.index(), index)?
            }
            Inst::LocalId | Inst::GroupId | Inst::LoadShared(..) | Inst::ShuffleXor(..) => {
                return Err("an instruction that scalar bodies do not have".to_string());
            }
        })
    }
}
