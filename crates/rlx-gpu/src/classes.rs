//! Classes of kernels: what a device is tried for before it is used ([`self_check`](crate::self_check)), and does without where it is wrong.
//!
//! | class | of what | where it is put aside |
//! |---|---|---|
//! | [`Class::Tiles`] | tile programs of a [`Family`] and an element type, by warps or of the group level | programs by warps for the group level, else kernels; attention decomposes |
//! | [`Class::Tiled`] | matmuls through workgroup memory | those without it |
//! | [`Class::FewRows`] | sums that a workgroup divides, under [`Numerics::Fast`](rlx_opt::Numerics::Fast) | the step's usual kernels |
//! | [`Class::Reduce`], [`Class::Scan`], [`Class::Rows`] | rows that a workgroup has | the device does not compute them: rows are decomposed, the rest is rejected or left to another device |

use std::fmt;

use rlx_ir::{DType, Graph, Node, Op};
use rlx_kernel::KernelTarget;
use rlx_kernel::schedule::StepDesc;
use rlx_tile::Arch;
use rlx_tile::schedule::multiplies;

use crate::few_rows::Fast;
use crate::tiles::MatrixUnits;

/// What tile programs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Matmuls.
    MatMul,
    /// Matmuls by weights in blocks.
    Blocks,
    /// Convolutions.
    Conv,
    /// Attention.
    Attention,
    /// Attention to pages of tables.
    Pages,
    /// Sums in parts.
    Parts,
    /// Attention to keys in parts: a decoder's.
    KeysInParts,
}

/// A class of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Tile programs.
    Tiles {
        /// What they do.
        family: Family,
        /// The type that they multiply.
        dtype: DType,
        /// Whether they are of the group level.
        groups: bool,
    },
    /// Matmuls through workgroup memory.
    Tiled,
    /// Matmuls of few rows, whose sums a workgroup divides.
    FewRows,
    /// Reductions by workgroups.
    Reduce,
    /// Running reductions by workgroups.
    Scan,
    /// Softmax and norms by workgroups.
    Rows,
}

impl Family {
    const ALL: [Family; 7] = [
        Family::MatMul,
        Family::Blocks,
        Family::Conv,
        Family::Attention,
        Family::Pages,
        Family::Parts,
        Family::KeysInParts,
    ];

    fn name(self) -> &'static str {
        match self {
            Family::MatMul => "matmuls",
            Family::Blocks => "matmuls by weights in blocks",
            Family::Conv => "convolutions",
            Family::Attention => "attention",
            Family::Pages => "attention to pages",
            Family::Parts => "sums in parts",
            Family::KeysInParts => "attention to keys in parts",
        }
    }

    /// The family of a step in parts.
    pub(crate) fn in_parts(self) -> Family {
        match self {
            Family::Attention | Family::Pages | Family::KeysInParts => Family::KeysInParts,
            Family::MatMul | Family::Blocks | Family::Conv | Family::Parts => Family::Parts,
        }
    }

    /// The family of a graph's programs, with the type that they multiply; none where there is nothing to multiply.
    pub(crate) fn of(graph: &Graph) -> Option<(Family, DType)> {
        graph.nodes().iter().find_map(|node| {
            let family = match &node.op {
                Op::MatMul => Family::MatMul,
                Op::MatMulBlocks => Family::Blocks,
                Op::Conv { .. } => Family::Conv,
                Op::Attention { .. } if graph.nodes().iter().any(|n| matches!(n.op, Op::Gather { .. })) => {
                    Family::Pages
                }
                Op::Attention { .. } => Family::Attention,
                _ => return None,
            };
            Some((family, node.shape.dtype()))
        })
    }

    /// The same of a node, which may be a region. An attention by itself has no pages.
    pub(crate) fn of_node(node: &Node) -> Option<(Family, DType)> {
        let family = match &node.op {
            Op::Region { body } => return Family::of(&body.graph),
            Op::MatMul => Family::MatMul,
            Op::MatMulBlocks => Family::Blocks,
            Op::Conv { .. } => Family::Conv,
            Op::Attention { .. } => Family::Attention,
            _ => return None,
        };
        Some((family, node.shape.dtype()))
    }
}

impl Class {
    /// The classes of kernels, those under [`Numerics::Fast`](rlx_opt::Numerics::Fast) among them.
    const KERNELS: [Class; 5] = [Class::Tiled, Class::FewRows, Class::Reduce, Class::Scan, Class::Rows];

    /// All that a device with these matrix units may have.
    pub fn all(units: Option<MatrixUnits>) -> Vec<Class> {
        let types = units.into_iter().flat_map(|units| {
            let multiplied = rlx_tile::schedule::multiplied(units.arch).iter();
            multiplied.map(move |&dtype| (units, dtype))
        });
        let tiles = types.flat_map(|(units, dtype)| {
            Family::ALL.into_iter().flat_map(move |family| Class::levels(family, dtype, units))
        });
        tiles.chain(Class::KERNELS).collect()
    }

    /// The classes of a family's programs: by warps, and of the group level.
    pub(crate) fn levels(family: Family, dtype: DType, units: MatrixUnits) -> Vec<Class> {
        let of = |groups| Class::Tiles { family, dtype, groups };
        let groups = match family {
            Family::MatMul | Family::Conv => units.arch.has_groups(),
            Family::Attention => units.arch == Arch::Sm90a,
            Family::Blocks | Family::Pages | Family::Parts | Family::KeysInParts => false,
        };
        if groups { vec![of(false), of(true)] } else { vec![of(false)] }
    }

    /// A number of its own below 64.
    fn number(self) -> u32 {
        match self {
            Class::Tiles { family, dtype, groups } => {
                let of = (family as u32) * 4 + u32::from(dtype == DType::BF16) * 2 + u32::from(groups);
                Class::KERNELS.len() as u32 + of
            }
            Class::Tiled => 0,
            Class::FewRows => 1,
            Class::Reduce => 2,
            Class::Scan => 3,
            Class::Rows => 4,
        }
    }

    /// Its name in a file.
    pub(crate) fn key(self) -> String {
        format!("class{}", self.number())
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Class::Tiles { family, dtype, groups } => {
                let level = if groups { "tile programs of the group level" } else { "tile programs" };
                return write!(f, "{level}, {} of {dtype}", family.name());
            }
            Class::Tiled => "matmuls through workgroup memory",
            Class::FewRows => "matmuls of few rows",
            Class::Reduce => "reductions by workgroups",
            Class::Scan => "running reductions by workgroups",
            Class::Rows => "softmax and norms by workgroups",
        })
    }
}

/// A set of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Classes(u64);

impl Classes {
    /// Whether a class is in it.
    pub fn has(self, class: Class) -> bool {
        self.0 & (1 << class.number()) != 0
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self == Classes::default()
    }

    pub(crate) fn insert(&mut self, class: Class) {
        self.0 |= 1 << class.number();
    }
}

impl MatrixUnits {
    /// The units for programs of a family: without the group level where that is put aside; none where programs by warps are, of which those of the group level are
    /// never without.
    pub(crate) fn for_family(self, family: Family, dtype: DType) -> Option<MatrixUnits> {
        let is_aside = |groups| self.aside.has(Class::Tiles { family, dtype, groups });
        let arch = if is_aside(true) { self.arch.of_warps() } else { self.arch };
        (!is_aside(false)).then_some(MatrixUnits { arch, ..self })
    }

    /// The units for the programs of a step; none where these are put aside.
    pub(crate) fn for_step(self, step: &StepDesc) -> Option<MatrixUnits> {
        match Family::of(&step.graph) {
            Some((family, dtype)) if !self.aside.is_empty() => self.for_family(family, dtype),
            _ => Some(self),
        }
    }

    /// Whether they multiply what a node does, by programs that are not put aside.
    pub(crate) fn multiplies(self, node: &Node) -> bool {
        let right = |(family, dtype)| self.for_family(family, dtype).is_some();
        multiplies(self.arch, node.shape.dtype()) && Family::of_node(node).is_none_or(right)
    }
}

/// The classes of which a node's programs and divided sums may be.
pub(crate) fn of_programs(
    node: &Node,
    units: Option<MatrixUnits>,
    fast: &Fast,
    kernels: &KernelTarget,
) -> Vec<Class> {
    let Some((family, dtype)) = Family::of_node(node) else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(units) = units.filter(|units| multiplies(units.arch, dtype)) {
        found.extend(Class::levels(family, dtype, units));
        if fast.division.is_some() {
            found.extend(Class::levels(family.in_parts(), dtype, units));
        }
    }
    if fast.takes_few_rows(kernels) && !matches!(family, Family::Attention | Family::Pages) {
        found.push(Class::FewRows);
    }
    found
}

/// The class of the kernels that do a node; none where each invocation computes results by itself. A processor takes matmuls through workgroup memory where that was
/// measured alone.
pub(crate) fn of_kernels(node: &Node, kernels: &KernelTarget) -> Option<Class> {
    let of = |op: &Op| match op {
        Op::MatMul | Op::MatMulBlocks | Op::Conv { .. } | Op::ConvTranspose { .. } => {
            (!kernels.is_processor).then_some(Class::Tiled)
        }
        Op::Reduce { .. } => Some(Class::Reduce),
        Op::Cumulative { .. } => Some(Class::Scan),
        Op::Softmax { .. } | Op::LogSoftmax { .. } | Op::LayerNorm { .. } | Op::RmsNorm { .. } => {
            Some(Class::Rows)
        }
        _ => None,
    };
    match &node.op {
        Op::Region { body } => body.graph.nodes().iter().find_map(|n| of(&n.op)),
        op => of(op),
    }
}

/// A device without the kernels that it computes wrongly, where there are others.
pub(crate) fn without(kernels: &KernelTarget, aside: Classes) -> KernelTarget {
    KernelTarget { tiles: kernels.tiles && !aside.has(Class::Tiled), ..kernels.clone() }
}

/// Whether the kernels of a node have workgroup memory.
pub(crate) fn share(node: &Node, graph: &Graph, kernels: &KernelTarget) -> bool {
    let launches = StepDesc::of_node(node, graph).and_then(|desc| kernels.launches(&desc, 0));
    launches.is_ok_and(|all| all.iter().any(|launch| launch.kernel.shared_bytes() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_number_of_its_own() {
        let aside = Classes::default();
        let units = |arch| Some(MatrixUnits { arch, dynamic_bytes: 0, compute_units: None, aside });
        let mut all: Vec<Class> = Class::all(units(Arch::Sm90a));
        assert_eq!(all.len(), 2 * (7 + 3) + 5);
        let names: std::collections::BTreeSet<String> = all.iter().map(Class::to_string).collect();
        assert_eq!(names.len(), all.len());
        all.sort_by_key(|class| class.number());
        all.dedup_by_key(|class| class.number());
        assert_eq!(all.len(), names.len());
        assert!(all.iter().all(|class| class.number() < 64));
        // Turing does not multiply bf16.
        assert_eq!(Class::all(units(Arch::Sm75)).len(), 7 + 5);
        assert_eq!(Class::all(None).len(), 5);
    }

    #[test]
    fn without_the_group_level_units_are_those_of_warps_and_without_these_there_are_none() {
        let (family, dtype) = (Family::MatMul, DType::F16);
        let mut units = MatrixUnits {
            arch: Arch::Sm90a,
            dynamic_bytes: 0,
            compute_units: None,
            aside: Classes::default(),
        };
        assert_eq!(units.for_family(family, dtype), Some(units));
        units.aside.insert(Class::Tiles { family, dtype, groups: true });
        assert_eq!(units.for_family(family, dtype).map(|of| of.arch), Some(Arch::Sm80));
        assert_eq!(units.for_family(Family::Conv, dtype), Some(units));
        assert_eq!(units.for_family(family, DType::BF16), Some(units));
        units.aside.insert(Class::Tiles { family, dtype, groups: false });
        assert_eq!(units.for_family(family, dtype), None);
    }
}
