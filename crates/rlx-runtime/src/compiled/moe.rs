//! Mixture of experts: which experts stay resident, and which were chosen.
//!
//! A *router* is a value of expert indices that grouped matmuls use ([`rlx_ir::Op::GroupedMatMul`]); a layer of a mixture
//! has one router and usually three grouped matmuls. Residency decides where an expert's matrices are stored and never affects
//! the result; [`MoeResidencyStats`] counts what ran where.
//!
//! ```
//! use rlx_runtime::{DType, Device, Session, Shape, trace};
//! let graph = trace("mixture", |t| {
//!     let x = t.input("x", Shape::new(&[3, 2], DType::F32));
//!     let router = t.param("router", Shape::new(&[2, 4], DType::F32));
//!     let experts = t.param("experts", Shape::new(&[4, 2, 2], DType::F32));
//!     let (weights, chosen) = x.matmul(&router).softmax(-1).top_k(1, -1);
//!     let rows = x.unsqueeze(1).grouped_matmul(&experts, &chosen);
//!     vec![(rows * weights.unsqueeze(-1)).sum([1], false)]
//! });
//! let mut mixture = Session::new(Device::Cpu).compile(graph);
//! mixture.set_param("router", &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
//! mixture.set_param("experts", &[0.5; 16]);
//! mixture.set_moe_resident_experts(&[true, false, false, false]);
//! assert!(mixture.enable_moe_topk_capture(4));
//! mixture.run(&[("x", &[9.0, 0.0, 0.0, 9.0, 9.0, 1.0])]);
//! assert_eq!(mixture.take_moe_topk_capture(), Some(vec![vec![0, 3, 0]]));
//! let stats = mixture.take_moe_residency_stats().unwrap();
//! assert_eq!((stats.gpu_tokens, stats.cpu_tokens), (2, 1));
//! ```

use rlx_backend::moe::{MixtureOfExperts, MoeResidencyStats};
use rlx_driver::DeviceId;
use rlx_ir::{Error, ErrorKind, Result};
use rlx_select::or_panic;

use super::CompiledGraph;
/// The masks that were set.
#[derive(Debug, Clone, Default)]
pub(super) struct Masks {
    merged: Option<Vec<bool>>,
    per_layer: Option<Vec<Vec<bool>>>,
}

fn no_router(device: DeviceId) -> Error {
    let message = "there are no experts to place: the graph has no router, or the device runs it without one";
    Error::new(ErrorKind::Unsupported, message).with_device(device.name())
}

fn wrong_mask(found: usize, experts: usize, layer: usize) -> Error {
    let message = format!("a mask of {found} experts; layer {layer} has {experts}");
    Error::new(ErrorKind::Binding, message)
}

impl CompiledGraph {
    fn routers(&mut self) -> Result<&mut dyn MixtureOfExperts> {
        self.exec.moe().ok_or_else(|| no_router(self.device))
    }

    /// Sets which experts are resident, for all layers: `mask[e]` = resident. An empty mask clears it. Masks per
    /// layer take precedence; without any mask, all experts are resident.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_set_moe_resident_experts`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// // This graph has no experts: only the empty mask fits.
    /// compiled.set_moe_resident_experts(&[]);
    /// assert!(compiled.try_set_moe_resident_experts(&[true]).is_err());
    /// ```
    #[track_caller]
    pub fn set_moe_resident_experts(&mut self, mask: &[bool]) {
        or_panic(self.try_set_moe_resident_experts(mask));
    }

    /// As [`CompiledGraph::set_moe_resident_experts`].
    ///
    /// # Errors
    /// A graph without a router (unless the mask is empty), or a mask of another number of experts.
    pub fn try_set_moe_resident_experts(&mut self, mask: &[bool]) -> Result<()> {
        if mask.is_empty() && self.exec.moe().is_none() {
            return Ok(());
        }
        let wrong = self.routers()?.routers().iter().position(|&n| n != mask.len());
        if let (Some(layer), false) = (wrong, mask.is_empty()) {
            return Err(wrong_mask(mask.len(), self.routers()?.routers()[layer], layer));
        }
        self.moe.merged = (!mask.is_empty()).then(|| mask.to_vec());
        self.apply_masks()
    }

    /// Sets which experts are resident, layer by layer in forward order. An empty list clears them.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_set_moe_resident_experts_per_layer`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// // This graph has no experts: only no masks fit.
    /// compiled.set_moe_resident_experts_per_layer(&[]);
    /// assert!(compiled.try_set_moe_resident_experts_per_layer(&[&[true]]).is_err());
    /// ```
    #[track_caller]
    pub fn set_moe_resident_experts_per_layer(&mut self, masks: &[&[bool]]) {
        or_panic(self.try_set_moe_resident_experts_per_layer(masks));
    }

    /// As [`CompiledGraph::set_moe_resident_experts_per_layer`].
    ///
    /// # Errors
    /// A graph without a router (unless there are no masks), another number of layers, or a mask of another
    /// number of experts.
    pub fn try_set_moe_resident_experts_per_layer(&mut self, masks: &[&[bool]]) -> Result<()> {
        if masks.is_empty() && self.exec.moe().is_none() {
            return Ok(());
        }
        let experts = self.routers()?.routers();
        if !masks.is_empty() {
            if masks.len() != experts.len() {
                let message =
                    format!("{} masks were given; the graph has {} routers", masks.len(), experts.len());
                return Err(Error::new(ErrorKind::Binding, message));
            }
            let wrong = masks.iter().zip(experts).position(|(mask, &n)| mask.len() != n);
            if let Some(layer) = wrong {
                return Err(wrong_mask(masks[layer].len(), experts[layer], layer));
            }
        }
        self.moe.per_layer = (!masks.is_empty()).then(|| masks.iter().map(|m| m.to_vec()).collect());
        self.apply_masks()
    }

    /// Passes the effective masks to the executable.
    fn apply_masks(&mut self) -> Result<()> {
        let Masks { merged, per_layer } = self.moe.clone();
        let Some(moe) = self.exec.moe() else { return Ok(()) };
        let layers = moe.routers().len();
        let masks = per_layer.or_else(|| merged.map(|mask| vec![mask; layers]));
        self.guard.call("placing experts", || moe.set_resident(masks.as_deref()))
    }

    /// Captures from now on which experts the routers over `num_experts` experts choose; `false` if the graph has
    /// no such router.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// assert!(!compiled.enable_moe_topk_capture(8), "the graph has no router");
    /// ```
    pub fn enable_moe_topk_capture(&mut self, num_experts: usize) -> bool {
        let Some(moe) = self.exec.moe() else { return false };
        let wanted: Vec<bool> = moe.routers().iter().map(|&n| n == num_experts).collect();
        if !wanted.contains(&true) {
            return false;
        }
        moe.capture(&wanted);
        true
    }

    /// The experts that the last run chose: for each captured router, in router order, the choices of all rows.
    /// `None` if there was no run since the last call, or nothing is captured.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(compiled.take_moe_topk_capture(), None, "the graph has no router");
    /// ```
    pub fn take_moe_topk_capture(&mut self) -> Option<Vec<Vec<u32>>> {
        self.exec.moe()?.take_captured()
    }

    /// How often experts ran on which device since the last call; `None` if the graph has no router.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// assert!(compiled.take_moe_residency_stats().is_none(), "the graph has no experts");
    /// ```
    pub fn take_moe_residency_stats(&mut self) -> Option<MoeResidencyStats> {
        Some(self.exec.moe()?.take_stats())
    }
}
