//! The executable's mixtures of experts: which steps share a router, and the account they keep.

use rlx_backend::moe::{MixtureOfExperts, MoeResidencyStats};
use rlx_ir::lir::StepKind;
use rlx_ir::{LirModule, NodeId, Op, Result};

use crate::kernels::experts::Shared;

/// The grouped matmuls of a module by the value that chooses their experts, in forward order, with what each keeps between
/// runs. Every binding of the executable uses the same.
#[derive(Debug, Default, Clone)]
pub(crate) struct Routers {
    /// How many experts each chooses from.
    experts: Vec<usize>,
    /// The steps of each.
    steps: Vec<Vec<(NodeId, Shared)>>,
    /// What the last capture asked for.
    wanted: Vec<bool>,
}

impl Routers {
    pub(crate) fn of(lir: &LirModule) -> Routers {
        let mut routers = Routers::default();
        // What chooses is known by its place: buffer and view of the choices.
        let mut choices = Vec::new();
        for step in &lir.steps {
            if !matches!(step.kind, StepKind::Op(Op::GroupedMatMul)) {
                continue;
            }
            let weights = lir.graph.node(step.node).inputs[1];
            let experts = lir.graph.shape(weights).dim(0).as_static().unwrap_or(0);
            let chosen = (step.inputs[2].buffer, step.inputs[2].view.offset, experts);
            let router = choices.iter().position(|c| *c == chosen).unwrap_or_else(|| {
                choices.push(chosen);
                routers.experts.push(experts);
                routers.steps.push(Vec::new());
                choices.len() - 1
            });
            routers.steps[router].push((step.node, Shared::default()));
        }
        routers
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.experts.is_empty()
    }

    /// What the grouped matmul of this node keeps.
    pub(super) fn experts_of(&self, node: NodeId) -> Option<&Shared> {
        self.all().find(|(of, _)| *of == node).map(|(_, state)| state)
    }

    fn all(&self) -> impl Iterator<Item = &(NodeId, Shared)> {
        self.steps.iter().flatten()
    }

    /// Weights changed, so what grouped matmuls keep of them is old.
    pub(super) fn forget(&self) {
        self.all().for_each(|(_, state)| state.lock().forget());
    }

    /// Bytes of the resident experts' matrices.
    pub(super) fn bytes(&self) -> usize {
        self.all().map(|(_, state)| state.lock().bytes()).sum()
    }
}

impl MixtureOfExperts for Routers {
    fn routers(&self) -> &[usize] {
        &self.experts
    }

    fn set_resident(&mut self, masks: Option<&[Vec<bool>]>) -> Result<()> {
        for (router, steps) in self.steps.iter().enumerate() {
            let mask = masks.and_then(|masks| masks.get(router));
            for (_, state) in steps {
                state.lock().set_resident(mask.cloned());
            }
        }
        Ok(())
    }

    fn capture(&mut self, wanted: &[bool]) {
        self.wanted = wanted.to_vec();
        for (router, steps) in self.steps.iter().enumerate() {
            // The first matmul of a router sees the choices that all of them see.
            if let Some((_, state)) = steps.first() {
                let mut state = state.lock();
                state.capture = wanted.get(router) == Some(&true);
                state.captured = None;
            }
        }
    }

    fn take_captured(&mut self) -> Option<Vec<Vec<u32>>> {
        let mut all = Vec::new();
        for (router, steps) in self.steps.iter().enumerate() {
            if self.wanted.get(router) == Some(&true) {
                let (_, state) = steps.first()?;
                all.push(state.lock().captured.take()?);
            }
        }
        (!all.is_empty()).then_some(all)
    }

    fn take_stats(&mut self) -> MoeResidencyStats {
        let mut sum = MoeResidencyStats::default();
        for (_, state) in self.all() {
            let one = std::mem::take(&mut state.lock().stats);
            sum.gpu_expert_calls += one.gpu_expert_calls;
            sum.cpu_expert_calls += one.cpu_expert_calls;
            sum.gpu_tokens += one.gpu_tokens;
            sum.cpu_tokens += one.cpu_tokens;
        }
        sum
    }
}
