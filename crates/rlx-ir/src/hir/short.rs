//! The short forms of [`GraphExt`] inside a HIR module.

use super::{Block, HirModule, HirNodeId};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{GraphExt, fault};
use crate::ops::{self, Op};
use crate::shape::Shape;

/// A HIR module under construction, with the shape-inferring short forms of [`GraphExt`].
///
/// ```
/// use rlx_ir::{DType, GraphExt, HirModule, HirMut, Shape};
/// let mut module = HirModule::new("norm");
/// let mut m = HirMut::new(&mut module);
/// let x = m.input("x", Shape::new(&[2, 4], DType::F32));
/// let gamma = m.param("gamma", Shape::new(&[4], DType::F32));
/// let y = m.rms_norm(x, gamma, 1e-5);
/// module.set_outputs(vec![y]);
/// assert!(module.lower_to_mir().is_ok());
/// ```
#[derive(Debug)]
pub struct HirMut<'m> {
    module: &'m mut HirModule,
}

impl<'m> HirMut<'m> {
    /// Adds to `module`.
    pub fn new(module: &'m mut HirModule) -> Self {
        HirMut { module }
    }

    /// A tensor the caller gives at every run.
    pub fn input(&mut self, name: impl Into<String>, shape: Shape) -> HirNodeId {
        self.module.input(name, shape)
    }

    /// A tensor the caller sets once.
    pub fn param(&mut self, name: impl Into<String>, shape: Shape) -> HirNodeId {
        self.module.param(name, shape)
    }

    /// The module, for its blocks.
    pub fn module(&mut self) -> &mut HirModule {
        self.module
    }
}

impl GraphExt for HirMut<'_> {
    type Id = HirNodeId;

    fn try_emit(&mut self, op: Op, inputs: &[HirNodeId]) -> Result<HirNodeId> {
        let results = match (&op, inputs) {
            // `Result` looks at all results of its input, which other ops do not see.
            (Op::Result { index }, &[of]) => {
                self.module.value_shape(of)?;
                let node = self.module.try_node(of)?;
                let shape = node.results.get(*index).cloned().ok_or_else(|| {
                    Error::new(ErrorKind::InvalidGraph, format!("{} has no result {index}", node.describe()))
                })?;
                vec![shape]
            }
            _ => {
                let shapes: Vec<&Shape> =
                    inputs.iter().map(|&id| self.module.value_shape(id)).collect::<Result<_>>()?;
                ops::def::infer(&op, &shapes, &[])?.into_vec()
            }
        };
        Ok(self.module.push(Block::Mir(op), inputs.to_vec(), results))
    }

    fn try_shape(&self, id: HirNodeId) -> Result<&Shape> {
        self.module.value_shape(id)
    }

    fn keep_fault(&mut self, error: Error) -> HirNodeId {
        let (op, shape) = fault::node(&error);
        let block = Block::Mir(op);
        match self.module.nodes().iter().find(|n| n.block == block) {
            Some(same) => same.id,
            None => self.module.push(block, vec![], vec![shape]),
        }
    }
}
