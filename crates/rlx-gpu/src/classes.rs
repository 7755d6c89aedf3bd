//! Classes of kernels: what a device is tried for before it is used (`self_check.rs`), and does without where it is wrong.
//!
//! | class | of what | where it is put aside |
//! |---|---|---|
//! | [`Class::Tiles`] | tile programs of a [`Family`] and an element type, by warps or of the group level | programs by warps for the group level, else kernels; attention decomposes |
//! | [`Class::Tiled`] | matmuls through workgroup memory | those without it |
//! | [`Class::Attention`] | attention by kernels, which have it through workgroup memory | it decomposes |
//! | [`Class::FewRows`] | sums that a workgroup divides, under [`Numerics::Fast`](rlx_opt::Numerics::Fast) | the step's usual kernels |
//! | [`Class::Exchanges`] | exchanges within subgroups, as reductions, softmax and norms have them | the same kernels through workgroup memory |
//! | [`Class::Reduce`], [`Class::ArgReduce`], [`Class::TopK`], [`Class::Scan`], [`Class::Rows`] | rows that a workgroup has | the device does not compute them: rows are decomposed, the rest is rejected or left to another device |

use std::fmt;

use rlx_ir::{DType, Graph, Node, Op};
use rlx_kernel::schedule::StepDesc;
use rlx_kernel::{DeviceLimits, KernelTarget};
use rlx_tile::Arch;
use rlx_tile::schedule::multiplied;

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
    /// Matmuls of grouped rows, each by the matrix that a list names.
    Grouped,
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
    /// Arg-reductions by workgroups.
    ArgReduce,
    /// Top-k by workgroups.
    TopK,
    /// Running reductions by workgroups.
    Scan,
    /// Softmax and norms by workgroups.
    Rows,
    /// Attention by kernels.
    Attention,
    /// Exchanges of values within subgroups. They are tried with the kernels that have them, and put aside where these are right without.
    Exchanges,
}

impl Family {
    const ALL: [Family; 8] = [
        Family::MatMul,
        Family::Blocks,
        Family::Conv,
        Family::Attention,
        Family::Pages,
        Family::Parts,
        Family::KeysInParts,
        Family::Grouped,
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
            Family::Grouped => "matmuls of grouped rows",
        }
    }

    /// The family of a step in parts; none of one that is never divided.
    pub(crate) fn in_parts(self) -> Option<Family> {
        match self {
            Family::Attention | Family::Pages | Family::KeysInParts => Some(Family::KeysInParts),
            Family::MatMul | Family::Blocks | Family::Conv | Family::Parts => Some(Family::Parts),
            Family::Grouped => None,
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
                Op::GroupedMatMul => Family::Grouped,
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
            Op::GroupedMatMul => Family::Grouped,
            _ => return None,
        };
        Some((family, node.shape.dtype()))
    }
}

impl Class {
    /// The classes of kernels, those under [`Numerics::Fast`](rlx_opt::Numerics::Fast) among them.
    const KERNELS: [Class; 8] = [
        Class::Tiled,
        Class::FewRows,
        Class::Reduce,
        Class::ArgReduce,
        Class::TopK,
        Class::Scan,
        Class::Rows,
        Class::Attention,
    ];

    /// All that a device may have whose matrix units are of this architecture.
    pub fn all(units: Option<Arch>) -> Vec<Class> {
        let types =
            units.into_iter().flat_map(|arch| multiplied(arch).iter().map(move |&dtype| (arch, dtype)));
        let tiles = types.flat_map(|(arch, dtype)| {
            Family::ALL.into_iter().flat_map(move |family| Class::levels(family, dtype, arch))
        });
        tiles.chain(Class::KERNELS).collect()
    }

    /// The classes of a family's programs: by warps, and of the group level.
    pub(crate) fn levels(family: Family, dtype: DType, arch: Arch) -> Vec<Class> {
        let of = |groups| Class::Tiles { family, dtype, groups };
        let groups = match family {
            Family::MatMul | Family::Conv => arch.has_groups(),
            Family::Attention => arch == Arch::Sm90a,
            Family::Blocks | Family::Pages | Family::Parts | Family::KeysInParts | Family::Grouped => false,
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
            Class::ArgReduce => 3,
            Class::TopK => 4,
            Class::Scan => 5,
            Class::Rows => 6,
            Class::Attention => 7,
            Class::Exchanges => 63,
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
            Class::ArgReduce => "arg-reductions by workgroups",
            Class::TopK => "top-k by workgroups",
            Class::Scan => "running reductions by workgroups",
            Class::Rows => "softmax and norms by workgroups",
            Class::Attention => "attention by kernels",
            Class::Exchanges => "exchanges within subgroups",
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

    /// Without these.
    pub(crate) fn except(self, classes: &[Class]) -> Classes {
        Classes(classes.iter().fold(self.0, |all, class| all & !(1 << class.number())))
    }
}

/// Who tries a device for classes.
pub(crate) trait SelfCheck: fmt::Debug + Send + Sync {
    /// Tries it for these, as far as it was not yet; all that is put aside by now.
    fn tried(&self, classes: &[Class]) -> Classes;

    /// Whether it was tried for this.
    fn is_known(&self, class: Class) -> bool;
}

/// What a device was tried for.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    pub(crate) done: Classes,
    pub(crate) aside: Classes,
    /// How many cases ran.
    pub(crate) ran: usize,
}

/// The class of the kernels that do a node; none where each invocation computes results by itself. A processor takes matmuls through workgroup memory where that was
/// measured alone.
pub(crate) fn of_kernels(node: &Node, kernels: &KernelTarget) -> Option<Class> {
    let of = |op: &Op| match op {
        Op::MatMul | Op::MatMulBlocks | Op::Conv { .. } | Op::ConvTranspose { .. } => {
            (!kernels.is_processor).then_some(Class::Tiled)
        }
        Op::Reduce { .. } => Some(Class::Reduce),
        Op::ArgReduce { .. } => Some(Class::ArgReduce),
        Op::TopK { .. } => Some(Class::TopK),
        Op::Cumulative { .. } => Some(Class::Scan),
        Op::Softmax { .. } | Op::LogSoftmax { .. } | Op::LayerNorm { .. } | Op::RmsNorm { .. } => {
            Some(Class::Rows)
        }
        Op::Attention { .. } => Some(Class::Attention),
        _ => None,
    };
    match &node.op {
        Op::Region { body } => body.graph.nodes().iter().find_map(|n| of(&n.op)),
        op => of(op),
    }
}

/// A device without the kernels that it computes wrongly, where there are others.
pub(crate) fn without(kernels: &KernelTarget, aside: Classes) -> KernelTarget {
    let subgroup = kernels.limits.subgroup.filter(|_| !aside.has(Class::Exchanges));
    let limits = DeviceLimits { subgroup, ..kernels.limits };
    KernelTarget { tiles: kernels.tiles && !aside.has(Class::Tiled), limits, ..kernels.clone() }
}

/// Whether the invocations of the kernels of a node work together.
pub(crate) fn share(node: &Node, graph: &Graph, kernels: &KernelTarget) -> bool {
    let launches = StepDesc::of_node(node, graph).and_then(|desc| kernels.launches(&desc, 0));
    launches.is_ok_and(|all| all.iter().any(|launch| launch.kernel.works_together()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_number_of_its_own() {
        let mut all: Vec<Class> = Class::all(Some(Arch::Sm90a));
        assert_eq!(all.len(), 2 * (8 + 3) + 8);
        let names: std::collections::BTreeSet<String> = all.iter().map(Class::to_string).collect();
        assert_eq!(names.len(), all.len());
        all.sort_by_key(|class| class.number());
        all.dedup_by_key(|class| class.number());
        assert_eq!(all.len(), names.len());
        assert!(all.iter().all(|class| class.number() < 64));
        // Turing does not multiply bf16.
        assert_eq!(Class::all(Some(Arch::Sm75)).len(), 8 + 8);
        assert_eq!(Class::all(None).len(), 8);
        assert!(Class::all(Some(Arch::Sm90a)).iter().all(|c| c.number() != Class::Exchanges.number()));
        let mut set = Classes::default();
        [Class::Rows, Class::Exchanges].iter().for_each(|&class| set.insert(class));
        let rest = set.except(&[Class::Rows, Class::Reduce]);
        assert!(rest.has(Class::Exchanges) && !rest.has(Class::Rows));
    }
}
