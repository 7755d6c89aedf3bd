//! The stages a model passes through: HIR (blocks), MIR (the graph), LIR (what a device executes).
//!
//! ```
//! use rlx_ir::{DType, GraphModule, GraphStage, HirModule, Shape};
//! let mut m = HirModule::new("m");
//! let x = m.input("x", Shape::new(&[1, 4], DType::F32));
//! let w = m.param("w", Shape::new(&[4, 2], DType::F32));
//! let y = m.linear(x, w, None, None, Shape::new(&[1, 2], DType::F32));
//! m.set_outputs(vec![y]);
//! let module = GraphModule::from_hir(m);
//! assert_eq!(module.stage(), GraphStage::Hir);
//! let module = module.lower().unwrap();
//! assert_eq!(module.stage(), GraphStage::Mir);
//! assert!(module.inspect().contains("MatMul"));
//! ```

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use crate::hir::{HirModule, LowerError};
use crate::lir::LirModule;

/// How far a module is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GraphStage {
    /// Blocks.
    Hir,
    /// The graph.
    Mir,
    /// Steps over buffers.
    Lir,
}

impl fmt::Display for GraphStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            GraphStage::Hir => "HIR",
            GraphStage::Mir => "MIR",
            GraphStage::Lir => "LIR",
        })
    }
}

/// A module in the middle stage: one verified [`Graph`].
#[derive(Debug, Clone, PartialEq)]
pub struct MirModule {
    graph: Graph,
}

impl MirModule {
    /// The module of `graph`.
    pub fn from_graph(graph: Graph) -> Self {
        MirModule { graph }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The graph, by value.
    pub fn into_graph(self) -> Graph {
        self.graph
    }
}

impl fmt::Display for MirModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.graph.fmt(f)
    }
}

/// A model at any stage.
#[derive(Debug, Clone)]
pub enum GraphModule {
    /// Blocks.
    Hir(HirModule),
    /// The graph.
    Mir(MirModule),
    /// Steps over buffers.
    Lir(Box<LirModule>),
}

impl GraphModule {
    /// A module that starts as a graph.
    pub fn from_graph(graph: Graph) -> Self {
        GraphModule::Mir(MirModule::from_graph(graph))
    }

    /// A module that starts as blocks.
    pub fn from_hir(hir: HirModule) -> Self {
        GraphModule::Hir(hir)
    }

    /// A module that is compiled already.
    pub fn from_lir(lir: LirModule) -> Self {
        GraphModule::Lir(Box::new(lir))
    }

    /// How far the module is.
    pub fn stage(&self) -> GraphStage {
        match self {
            GraphModule::Hir(_) => GraphStage::Hir,
            GraphModule::Mir(_) => GraphStage::Mir,
            GraphModule::Lir(_) => GraphStage::Lir,
        }
    }

    /// The module one stage on: blocks become a graph.
    ///
    /// # Errors
    /// What lowering reports; and for a graph or steps, which the compiler of `rlx-opt` lowers for a device.
    pub fn lower(self) -> Result<GraphModule, LowerError> {
        match self {
            GraphModule::Hir(hir) => hir.lower_to_mir().map(GraphModule::Mir),
            other => {
                let message = format!("a module in {} is not lowered here", other.stage());
                Err(LowerError::Lower(Error::new(ErrorKind::Unsupported, message).with_hint(
                    "a graph is compiled for a device by rlx_opt's CompilePipeline; LIR is the last stage",
                )))
            }
        }
    }

    /// The graph: of blocks, their lowering; of steps, the scheduled graph they were made from.
    ///
    /// # Errors
    /// What lowering reports.
    pub fn into_graph(self) -> Result<Graph, LowerError> {
        match self {
            GraphModule::Hir(hir) => hir.lower_to_mir().map(MirModule::into_graph),
            GraphModule::Mir(mir) => Ok(mir.into_graph()),
            GraphModule::Lir(lir) => Ok(lir.graph),
        }
    }

    /// The module as text, for people.
    pub fn inspect(&self) -> String {
        match self {
            GraphModule::Hir(hir) => hir.to_string(),
            GraphModule::Mir(mir) => mir.to_string(),
            GraphModule::Lir(lir) => lir.to_string(),
        }
    }
}

impl From<Graph> for GraphModule {
    fn from(graph: Graph) -> Self {
        GraphModule::from_graph(graph)
    }
}

impl From<HirModule> for GraphModule {
    fn from(hir: HirModule) -> Self {
        GraphModule::from_hir(hir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_is_not_lowered_here() {
        let e = GraphModule::from_graph(Graph::new("g")).lower().unwrap_err();
        assert!(e.to_string().contains("CompilePipeline"), "{e}");
        assert_eq!(e.error().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn steps_show_their_listing_and_their_graph() {
        let lir = LirModule {
            name: "l".to_string(),
            graph: Graph::new("scheduled"),
            rules: Graph::new("shape rules"),
            symbols: vec![],
            buffers: vec![],
            init: vec![],
            steps: vec![],
            live_ranges: vec![],
            inputs: vec![],
            params: vec![],
            outputs: vec![],
            plan: None,
        };
        let module = GraphModule::from_lir(lir);
        assert_eq!(module.stage(), GraphStage::Lir);
        assert!(module.inspect().starts_with("lir \"l\""));
        assert!(module.clone().lower().is_err());
        assert_eq!(module.into_graph().unwrap().name, "scheduled");
    }
}
