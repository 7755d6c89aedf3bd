//! The executable's mixtures of experts: which steps share a router, and the account they keep.

use rlx_backend::moe::{MixtureOfExperts, MoeResidencyStats};
use rlx_ir::lir::StepKind;
use rlx_ir::{LirModule, Op, Result};

use super::exec::CpuExecutable;

/// The grouped products of a module by the value that chooses their experts, in forward order.
#[derive(Debug, Default)]
pub(crate) struct Routers {
    /// How many experts each chooses from.
    experts: Vec<usize>,
    /// The steps of each.
    steps: Vec<Vec<usize>>,
    /// What the last capture asked for.
    wanted: Vec<bool>,
}

impl Routers {
    pub(crate) fn of(lir: &LirModule) -> Routers {
        let mut routers = Routers::default();
        // What chooses is known by its place: buffer and view of the choices.
        let mut choices = Vec::new();
        for (i, step) in lir.steps.iter().enumerate() {
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
            routers.steps[router].push(i);
        }
        routers
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.experts.is_empty()
    }
}

impl MixtureOfExperts for CpuExecutable {
    fn routers(&self) -> &[usize] {
        &self.routers.experts
    }

    fn set_resident(&mut self, masks: Option<&[Vec<bool>]>) -> Result<()> {
        self.make_kernels();
        for (router, steps) in self.routers.steps.iter().enumerate() {
            let mask = masks.and_then(|masks| masks.get(router));
            for state in steps.iter().filter_map(|&i| self.kernels[i].experts()) {
                state.lock().set_resident(mask.cloned());
            }
        }
        Ok(())
    }

    fn capture(&mut self, wanted: &[bool]) {
        self.make_kernels();
        self.routers.wanted = wanted.to_vec();
        for (router, steps) in self.routers.steps.iter().enumerate() {
            // The first product of a router sees the choices that all of them see.
            if let Some(state) = steps.first().and_then(|&i| self.kernels[i].experts()) {
                let mut state = state.lock();
                state.capture = wanted.get(router) == Some(&true);
                state.captured = None;
            }
        }
    }

    fn take_captured(&mut self) -> Option<Vec<Vec<u32>>> {
        let mut all = Vec::new();
        for (router, steps) in self.routers.steps.iter().enumerate() {
            if self.routers.wanted.get(router) == Some(&true) {
                let state = steps.first().and_then(|&i| self.kernels.get(i)?.experts())?;
                all.push(state.lock().captured.take()?);
            }
        }
        (!all.is_empty()).then_some(all)
    }

    fn take_stats(&mut self) -> MoeResidencyStats {
        let mut sum = MoeResidencyStats::default();
        for state in self.kernels.iter().filter_map(|k| k.experts()) {
            let one = std::mem::take(&mut state.lock().stats);
            sum.gpu_expert_calls += one.gpu_expert_calls;
            sum.cpu_expert_calls += one.cpu_expert_calls;
            sum.gpu_tokens += one.gpu_tokens;
            sum.cpu_tokens += one.cpu_tokens;
        }
        sum
    }
}
