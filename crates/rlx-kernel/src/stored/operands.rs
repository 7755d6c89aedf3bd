//! What launches refer to: operands, extents, uniforms.

use std::collections::HashMap;

use rlx_ir::lir::{LirModule, Step};
use rlx_ir::text::Lexer;
use rlx_ir::{DType, Extent, Result};
use serde::{Deserialize, Serialize};

use super::malformed;
use crate::ir::{Access, BufferDecl};
use crate::schedule::{Arg, UniformArg};

/// An operand of a step.
#[derive(Debug, Serialize, Deserialize, Clone, Copy)]
pub enum ArgRecord {
    /// An input.
    Input(u32),
    /// An output.
    Output(u32),
}

/// The value of a uniform, with extents by their places in the list of all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum UniformRecord {
    /// [`UniformArg::Extent`].
    Extent(u32),
    /// [`UniformArg::Base`].
    Base(ArgRecord, u32),
}

/// A list of extents, each once, in which they are entered as they come. What is stored refers to them by position.
#[derive(Debug, Default)]
pub struct Extents {
    /// In the text form.
    pub texts: Vec<String>,
    places: HashMap<Extent, u32>,
}

impl Extents {
    /// The place of an extent.
    pub fn add(&mut self, e: Extent) -> u32 {
        let next = self.texts.len() as u32;
        let at = *self.places.entry(e).or_insert(next);
        if at == next {
            self.texts.push(e.to_string());
        }
        at
    }

    /// The value of a uniform.
    pub fn uniform(&mut self, uniform: &UniformArg) -> UniformRecord {
        match *uniform {
            UniformArg::Extent(e) => UniformRecord::Extent(self.add(e)),
            UniformArg::Base { operand, offset } => {
                UniformRecord::Base(ArgRecord::of(operand), self.add(offset))
            }
        }
    }
}

/// Such a list as it is read: of expressions over a module's symbols.
#[derive(Debug)]
pub struct ReadExtents(Vec<Extent>);

impl ReadExtents {
    /// Reads the expressions.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`](rlx_ir::ErrorKind::Malformed) for what is none, or has symbols that the module does not have.
    pub fn of(texts: &[String], module: &LirModule) -> Result<Self> {
        texts.iter().map(|text| extent(text, module)).collect::<Result<_>>().map(ReadExtents)
    }

    /// The extent at a place.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`](rlx_ir::ErrorKind::Malformed) where there is none.
    pub fn get(&self, at: u32) -> Result<Extent> {
        let found = self.0.get(at as usize).copied();
        found.ok_or_else(|| malformed(format!("extent {at} of {}", self.0.len())))
    }

    /// The value of a uniform of a step's launch.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`](rlx_ir::ErrorKind::Malformed) where there is no such extent or operand.
    pub fn uniform(&self, record: &UniformRecord, step: &Step) -> Result<UniformArg> {
        Ok(match *record {
            UniformRecord::Extent(e) => UniformArg::Extent(self.get(e)?),
            UniformRecord::Base(arg, e) => {
                UniformArg::Base { operand: arg.operand(step)?, offset: self.get(e)? }
            }
        })
    }
}

/// The expression, whose symbols must be the module's.
fn extent(text: &str, module: &LirModule) -> Result<Extent> {
    let extent = Lexer::whole_extent(text).map_err(|e| malformed(e.message()))?;
    match extent.symbols().into_iter().all(|s| module.symbols.contains(&s)) {
        true => Ok(extent),
        false => Err(malformed(format!("{text} has a symbol that the module does not have"))),
    }
}

impl ArgRecord {
    /// Of an operand.
    pub fn of(arg: Arg) -> Self {
        match arg {
            Arg::Input(i) => ArgRecord::Input(i as u32),
            Arg::Output(i) => ArgRecord::Output(i as u32),
        }
    }

    /// The operand, which the step must have.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`](rlx_ir::ErrorKind::Malformed) where it has none.
    pub fn operand(self, step: &Step) -> Result<Arg> {
        let (arg, at, count) = match self {
            ArgRecord::Input(i) => (Arg::Input(i as usize), i, step.inputs.len()),
            ArgRecord::Output(i) => (Arg::Output(i as usize), i, step.outputs.len()),
        };
        if (at as usize) < count { Ok(arg) } else { Err(malformed(format!("operand {at} of {count}"))) }
    }
}

/// Whether what a launch does with a buffer may be done with an operand of its step.
///
/// # Errors
/// Why not.
pub fn fits_operand(buffer: &BufferDecl, arg: Arg, step: &Step) -> std::result::Result<(), &'static str> {
    let (own, reads) = match arg {
        Arg::Input(i) => (step.inputs[i].dtype, true),
        Arg::Output(i) => (step.outputs[i].dtype, false),
    };
    // What a device has no elements of is in words.
    if buffer.dtype.bits() != own.bits() && buffer.dtype != DType::U32 {
        return Err("a buffer of other elements than its operand");
    }
    // An input may be shared with whatever else runs: it is never written.
    if reads != (buffer.access == Access::Read) {
        return Err("inputs are read, outputs written");
    }
    Ok(())
}
