//! Dispatches of steps: a tile program that does all of a step, or one for parts of its sums and a kernel that joins them.

use std::sync::Arc;

use rlx_ir::Extent;
use rlx_kernel::schedule::Arg;
use rlx_kernel::{Kernel, UniformArg};

use super::tilings::Tiling;
use crate::ir::Program;

/// One dispatch of a tile program; see [`rlx_kernel::Launch`].
#[derive(Debug, Clone)]
pub struct StepLaunch {
    /// The program.
    pub program: Arc<Program>,
    /// What each of the program's buffers is. Each is bound from where a multiple of 16 bytes is.
    pub bindings: Vec<Bound>,
    /// The value of each of its uniforms.
    pub uniforms: Vec<UniformArg>,
    /// How many workgroups.
    pub groups: Extent,
    /// How the program divides the result.
    pub tiling: Tiling,
    /// Rows and columns of the result, by which a run chooses among tilings.
    pub size: (Extent, Extent),
    /// What reports numbers of lists that are out of range; it makes nothing.
    pub checks: Vec<PartLaunch<Kernel>>,
    /// What is dispatched before the program, where that reads lists.
    pub lists: Option<Listed>,
}

/// What makes the lists that a program looks rows up in, in scratch memory.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The dispatch.
    pub launch: PartLaunch<Kernel>,
    /// Elements of the scratch memory, each an i32: as many for all programs of a step.
    pub scratch: Extent,
}

impl StepLaunch {
    /// The same on a device of so many compute units: of a program of several tiles each has one workgroup, or as many as there are tiles.
    #[must_use]
    pub fn on_units(mut self, units: Option<u32>) -> StepLaunch {
        if let Some(units) = units.filter(|_| self.program.has_several_tiles()) {
            self.groups = self.groups.min(i64::from(units.max(1)));
        }
        self
    }
}

/// What a dispatch of a step is bound to, where that may have scratch memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// An operand of the step.
    Operand(Arg),
    /// The scratch memory, from its first element on.
    Scratch,
}

/// A dispatch of a step that has several; see [`rlx_kernel::Launch`].
#[derive(Debug, Clone)]
pub struct PartLaunch<P> {
    /// The program or kernel.
    pub code: Arc<P>,
    /// What each of its buffers is.
    pub bindings: Vec<Bound>,
    /// The value of each of its uniforms.
    pub uniforms: Vec<UniformArg>,
    /// How many workgroups.
    pub groups: Extent,
}

/// The dispatches of a divided step.
#[derive(Debug, Clone)]
pub struct PartsLaunch {
    /// What sums over a part.
    pub parts: PartLaunch<Program>,
    /// What joins the parts.
    pub join: PartLaunch<Kernel>,
    /// How many parts there are. With one, the undivided step does the same with less.
    pub count: Extent,
    /// Elements of the scratch memory, each an f32.
    pub scratch: Extent,
    /// Rows of the result.
    pub rows: Extent,
    /// It is for no more rows than this, where there is a number: more are for larger tiles, or for the undivided step.
    pub most_rows: Option<u32>,
    /// How the program divides what is no sum.
    pub tiling: Tiling,
}
