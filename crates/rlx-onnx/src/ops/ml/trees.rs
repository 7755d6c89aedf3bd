//! Trees and forests, as one [`Op::TreeEnsemble`].
//!
//! The nodes of all trees are in one table of features, thresholds and children; a leaf is its own child. Each node says for which
//! outcomes of its comparison the answer is yes, so that `BRANCH_LEQ` and `BRANCH_GT`, with and without "missing values are true", are one kind
//! of node. A node of `BRANCH_MEMBER` becomes a search among its members, by nodes of its own.

use super::{Cx, Labels, Nodes, Slots, both_scores, numbers, post_transform, rows, table, winner};
use crate::import::NodeCx;
use crate::ops::{Entry, any_ml, ml};
use rlx_ir::op::{BinaryOp as B, ReduceOp};
use rlx_ir::ops::trees::MOST_LEVELS;
use rlx_ir::sort::sort_by;
use rlx_ir::{DType, Error, NodeId, Op, Value};
use std::collections::{HashMap, HashSet};

pub(in crate::ops) const OPS: &[Entry] = &[
    ml("TreeEnsemble", tree_ensemble),
    any_ml("TreeEnsembleClassifier", classifier),
    ml("TreeEnsembleRegressor", regressor),
];

/// How a node compares its feature with its threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Leaf,
    /// The answer is yes for these outcomes, as in [`Op::TreeEnsemble`].
    Compare(u32),
    /// Whether the feature is among the node's members.
    Member,
}

const LESS: u32 = 1;
const EQUAL: u32 = 2;
const GREATER: u32 = 4;
const NAN: u32 = 8;

const LE: Mode = Mode::Compare(LESS | EQUAL);
const LT: Mode = Mode::Compare(LESS);
const GE: Mode = Mode::Compare(GREATER | EQUAL);
const GT: Mode = Mode::Compare(GREATER);
const EQ: Mode = Mode::Compare(EQUAL);
const NE: Mode = Mode::Compare(LESS | GREATER | NAN);

/// One node of any tree.
#[derive(Debug, Clone)]
struct Branch {
    mode: Mode,
    feature: usize,
    threshold: f64,
    /// Whether NaN goes where yes goes.
    missing_is_true: bool,
    /// The children; itself for a leaf.
    yes: usize,
    no: usize,
    members: Vec<f64>,
}

impl Branch {
    /// The outcomes for which the answer is yes. (Those of a leaf do not matter.)
    fn outcomes(&self) -> Option<u32> {
        let Mode::Compare(set) = self.mode else { return None };
        Some(if self.missing_is_true { set | NAN } else { set })
    }
}

/// All trees in one table.
#[derive(Debug, Default)]
struct Forest {
    nodes: Vec<Branch>,
    roots: Vec<usize>,
}

impl Forest {
    /// The number of steps after which every path has ended; `None` where one does not within [`MOST_LEVELS`]. Every node is
    /// looked at once.
    fn depth(&self) -> Option<usize> {
        /// What is known of a node: nothing, that it is on the path being walked, or the steps from it to the end.
        #[derive(Clone, Copy)]
        enum Seen {
            No,
            OnPath,
            Steps(usize),
        }
        let mut seen: Vec<Seen> = self.nodes.iter().map(|_| Seen::No).collect();
        let mut path: Vec<usize> = self.roots.clone();
        while let Some(&i) = path.last() {
            let node = &self.nodes[i];
            let children = if node.mode == Mode::Leaf { [None; 2] } else { [Some(node.yes), Some(node.no)] };
            let (mut steps, mut open) = (0, Vec::new());
            for child in children.into_iter().flatten() {
                match seen[child] {
                    Seen::Steps(n) => steps = steps.max(n + 1),
                    // A child on the path leads back to it; children that are not walked yet come first.
                    Seen::OnPath => return None,
                    Seen::No => open.push(child),
                }
            }
            if steps > MOST_LEVELS || path.len() > self.roots.len() + 2 * MOST_LEVELS {
                return None;
            }
            if open.is_empty() {
                seen[i] = Seen::Steps(steps);
                path.pop();
            } else {
                seen[i] = Seen::OnPath;
                path.extend(open);
            }
        }
        let steps = self.roots.iter().map(|&r| if let Seen::Steps(n) = seen[r] { n } else { 0 });
        steps.max()
    }

    /// Puts a search among the members in the place of each node of [`Mode::Member`]: nodes that halve what is left of the sorted
    /// members, and at last one that compares with a single member.
    fn expand_members(&mut self, cx: &mut NodeCx<'_, '_>) -> Result<(), Error> {
        for i in 0..self.nodes.len() {
            if self.nodes[i].mode != Mode::Member {
                continue;
            }
            let mut members = std::mem::take(&mut self.nodes[i].members);
            cx.importer.spend(members.len())?;
            members.retain(|m| !m.is_nan());
            sort_by(&mut members, f64::total_cmp);
            // Ranges of the members that are left to place, and the node that searches each.
            let mut open = vec![(i, 0..members.len())];
            while let Some((at, range)) = open.pop() {
                if range.len() < 2 {
                    let none = Mode::Compare(0);
                    let threshold = members.get(range.start).filter(|_| !range.is_empty());
                    self.nodes[at].mode = if threshold.is_some() { EQ } else { none };
                    self.nodes[at].threshold = threshold.copied().unwrap_or(0.0);
                    continue;
                }
                let middle = range.start + range.len() / 2;
                let (yes, no) = (self.nodes.len(), self.nodes.len() + 1);
                let child = self.nodes[at].clone();
                self.nodes.extend([child.clone(), child]);
                let node = &mut self.nodes[at];
                (node.mode, node.threshold, node.yes, node.no) = (LT, members[middle], yes, no);
                open.extend([(yes, range.start..middle), (no, middle..range.end)]);
            }
        }
        Ok(())
    }
}

/// The sums (or means, or extremes) over the trees of the leaves' weights `[nodes, results]`: `[N, results]`.
fn scores(
    cx: Cx,
    mut forest: Forest,
    x: NodeId,
    mut weights: Vec<f64>,
    results: usize,
    how: &str,
) -> Result<NodeId, Error> {
    let reduce = match how {
        "SUM" => ReduceOp::Sum,
        "AVERAGE" => ReduceOp::Mean,
        // A tree that has no weight for a result would have to be left out of its extreme.
        "MIN" | "MAX" if results > 1 => {
            return Err(cx.unsupported(format!("aggregate_function = {how} over {results} results")));
        }
        "MIN" => ReduceOp::Min,
        "MAX" => ReduceOp::Max,
        other => return Err(cx.bad_attr("aggregate_function", other)),
    };
    let width = cx.shape_of(x).dim(1).as_static();
    if let Some(wide) = forest.nodes.iter().map(|n| n.feature).find(|&f| width.is_some_and(|w| f >= w)) {
        return Err(cx.malformed(format!("a node asks for feature {wide} of {}", cx.shape_of(x))));
    }
    forest.expand_members(cx)?;
    let nodes = forest.nodes.len();
    weights.resize(nodes * results, 0.0);
    let depth = forest.depth().ok_or_else(|| {
        cx.malformed(format!("a tree of more than {MOST_LEVELS} levels, or one that leads back to itself"))
    })?;
    let mut sets = forest.nodes.iter().filter_map(Branch::outcomes);
    let first = sets.next().unwrap_or(LESS | EQUAL);
    let outcomes = sets.all(|set| set == first).then_some(first);
    let mut links = Vec::new();
    for node in &forest.nodes {
        links.extend([node.feature, node.yes, node.no].map(|n| n as i128));
        if outcomes.is_none() {
            links.push(node.outcomes().unwrap_or(0).into());
        }
    }
    let dtype = cx.shape_of(x).dtype();
    let columns = links.len() / nodes.max(1);
    let roots: Vec<i128> = forest.roots.iter().map(|&r| r as i128).collect();
    let thresholds = table(cx, dtype, &[nodes], forest.nodes.iter().map(|n| n.threshold).collect());
    let links = cx.constant(Value::int(DType::I32, &[nodes, columns], links));
    let roots = cx.constant(Value::int(DType::I32, &[roots.len()], roots));
    let weights = table(cx, dtype, &[nodes, results], weights);
    cx.add(Op::TreeEnsemble { depth, outcomes, reduce }, &[x, thresholds, links, roots, weights])
}

/// A list of ids or counts, each at least 0.
fn indices(cx: &NodeCx<'_, '_>, name: &str) -> Result<Vec<usize>, Error> {
    let list = cx.attrs.required(name, cx.attrs.ints(name)?)?;
    let index = |&i: &i64| usize::try_from(i).map_err(|_| cx.malformed(format!("{name} has {i}")));
    list.iter().map(index).collect()
}

fn mode_named(cx: &NodeCx<'_, '_>, name: &str) -> Result<Mode, Error> {
    Ok(match name {
        "LEAF" => Mode::Leaf,
        "BRANCH_LEQ" => LE,
        "BRANCH_LT" => LT,
        "BRANCH_GTE" => GE,
        "BRANCH_GT" => GT,
        "BRANCH_EQ" => EQ,
        "BRANCH_NEQ" => NE,
        other => return Err(cx.malformed(format!("a node of mode \"{other}\""))),
    })
}

/// The nodes by (tree, id), as `TreeEnsembleClassifier` and `…Regressor` list them.
type Places = HashMap<(usize, usize), usize>;

fn listed_forest(cx: &NodeCx<'_, '_>) -> Result<(Forest, Places), Error> {
    let (trees, ids) = (indices(cx, "nodes_treeids")?, indices(cx, "nodes_nodeids")?);
    let (features, modes) = (indices(cx, "nodes_featureids")?, cx.attrs.texts("nodes_modes")?);
    let modes = cx.attrs.required("nodes_modes", modes)?;
    let (yes, no) = (indices(cx, "nodes_truenodeids")?, indices(cx, "nodes_falsenodeids")?);
    let values = numbers(cx, "nodes_values")?;
    let values = cx.attrs.required("nodes_values", values)?;
    let missing = cx.attrs.ints("nodes_missing_value_tracks_true")?.unwrap_or_default();
    let count = trees.len();
    let lengths = [ids.len(), features.len(), modes.len(), yes.len(), no.len(), values.len()];
    if count == 0 || lengths.iter().any(|&n| n != count) || !(missing.is_empty() || missing.len() == count) {
        return Err(cx.malformed(format!("lists of {lengths:?} numbers for {count} nodes")));
    }
    let mut places = Places::new();
    for i in 0..count {
        if places.insert((trees[i], ids[i]), i).is_some() {
            return Err(cx.malformed(format!("node {} of tree {} is there twice", ids[i], trees[i])));
        }
    }
    let mut forest = Forest::default();
    for i in 0..count {
        let mode = mode_named(cx, modes[i])?;
        let child = |id: usize| {
            let place = places.get(&(trees[i], id)).copied();
            place.ok_or_else(|| cx.malformed(format!("tree {} has no node {id}", trees[i])))
        };
        let leaf = mode == Mode::Leaf;
        forest.nodes.push(Branch {
            mode,
            feature: if leaf { 0 } else { features[i] },
            threshold: values[i],
            missing_is_true: missing.get(i).is_some_and(|&m| m != 0),
            yes: if leaf { i } else { child(yes[i])? },
            no: if leaf { i } else { child(no[i])? },
            members: Vec::new(),
        });
    }
    // A tree's root is the first of its nodes that is listed.
    let mut begun = HashSet::new();
    forest.roots = (0..count).filter(|&i| begun.insert(trees[i])).collect();
    Ok((forest, places))
}

/// The weights that the lists `PREFIX_treeids`, `_nodeids`, `_ids`, `_weights` give to nodes, `[nodes, results]`.
fn listed_weights(
    cx: &NodeCx<'_, '_>,
    prefix: &str,
    places: &Places,
    results: usize,
) -> Result<Vec<f64>, Error> {
    let name = |what: &str| format!("{prefix}_{what}");
    let (trees, ids) = (indices(cx, &name("treeids"))?, indices(cx, &name("nodeids"))?);
    let (which, weights) = (indices(cx, &name("ids"))?, numbers(cx, &name("weights"))?);
    let weights = cx.attrs.required(&name("weights"), weights)?;
    if [ids.len(), which.len(), weights.len()].iter().any(|&n| n != trees.len()) {
        return Err(cx.malformed(format!("the lists {prefix}_* differ in length")));
    }
    let mut table = cx.importer.zeros(places.len(), results)?;
    for i in 0..trees.len() {
        let place = places.get(&(trees[i], ids[i]));
        let place = place.ok_or_else(|| cx.malformed(format!("tree {} has no node {}", trees[i], ids[i])))?;
        if which[i] >= results {
            return Err(cx.malformed(format!("a weight for result {} of {results}", which[i])));
        }
        table[place * results + which[i]] += weights[i];
    }
    Ok(table)
}

/// `base_values` added to the scores, where there are any.
fn with_base(cx: Cx, scores: NodeId, results: usize) -> Result<NodeId, Error> {
    let Some(base) = numbers(cx, "base_values")?.filter(|b| !b.is_empty()) else { return Ok(scores) };
    if base.len() != results && base.len() != 1 {
        return Err(cx.malformed(format!("{} base values for {results} results", base.len())));
    }
    let dtype = cx.shape_of(scores).dtype();
    let base = table(cx, dtype, &[base.len()], base);
    cx.binary(B::Add, scores, base)
}

fn regressor(cx: Cx) -> Nodes {
    let targets = cx.attrs.int("n_targets", 1)?;
    let targets = usize::try_from(targets).ok().filter(|&n| n > 0);
    let targets = targets.ok_or_else(|| cx.malformed("n_targets must be at least 1"))?;
    let (forest, places) = listed_forest(cx)?;
    let weights = listed_weights(cx, "target", &places, targets)?;
    let x = rows(cx)?;
    let how = cx.attrs.text("aggregate_function", "SUM")?;
    let scores = scores(cx, forest, x, weights, targets, how)?;
    let scores = with_base(cx, scores, targets)?;
    let scores = cx.cast(scores, DType::F32)?;
    let transform = cx.attrs.text("post_transform", "NONE")?;
    Ok(vec![post_transform(cx, scores, transform)?])
}

/// With two classes whose weights are all for one of them, that score determines both: `1 − s` and `s` where weights
/// are shares (none negative), `−s` and `s` else.
fn classifier(cx: Cx) -> Slots {
    let labels = Labels::read(cx, "classlabels_int64s", "classlabels_strings")?;
    let (forest, places) = listed_forest(cx)?;
    let which = indices(cx, "class_ids")?;
    let binary = labels.len() == 2 && which.iter().all(|&c| Some(&c) == which.first());
    let classes = if binary { 1 } else { labels.len().max(1) };
    let weights = match binary {
        true => listed_weights(cx, "class", &places, 2)?.chunks(2).map(|w| w[0] + w[1]).collect(),
        false => listed_weights(cx, "class", &places, classes)?,
    };
    let shares = weights.iter().all(|&w| w >= 0.0);
    let x = rows(cx)?;
    let mut scores = scores(cx, forest, x, weights, classes, "SUM")?;
    scores = with_base(cx, scores, classes)?;
    let transform = cx.attrs.text("post_transform", "NONE")?;
    if binary {
        scores = both_scores(cx, scores, shares && transform == "NONE")?;
    }
    let label = winner(cx, scores)?;
    let label = labels.at(cx, label)?;
    let scores = cx.cast(scores, DType::F32)?;
    let scores = post_transform(cx, scores, transform)?;
    Ok(vec![label, cx.importer.node_slot(scores)])
}

const MODES: [Mode; 7] = [LE, LT, GE, GT, EQ, NE, Mode::Member];

fn tensor(cx: &NodeCx<'_, '_>, name: &str) -> Result<Option<Vec<f64>>, Error> {
    let Some(tensor) = cx.attrs.tensor(name)? else { return Ok(None) };
    Ok(Some(cx.importer.file.tensor(tensor)?.to_const()?.try_value()?.to_f64()))
}

/// The layout of version 5: inner nodes and leaves in separate tables; here leaves follow the inner nodes.
fn split_forest(cx: &NodeCx<'_, '_>) -> Result<(Forest, usize), Error> {
    let features = indices(cx, "nodes_featureids")?;
    let splits = cx.attrs.required("nodes_splits", tensor(cx, "nodes_splits")?)?;
    let modes = cx.attrs.required("nodes_modes", tensor(cx, "nodes_modes")?)?;
    let (yes, no) = (indices(cx, "nodes_truenodeids")?, indices(cx, "nodes_falsenodeids")?);
    let (yes_leaf, no_leaf) = (indices(cx, "nodes_trueleafs")?, indices(cx, "nodes_falseleafs")?);
    let missing = cx.attrs.ints("nodes_missing_value_tracks_true")?.unwrap_or_default();
    let (count, leaves) = (features.len(), indices(cx, "leaf_targetids")?.len());
    let lengths = [splits.len(), modes.len(), yes.len(), no.len(), yes_leaf.len(), no_leaf.len()];
    if lengths.iter().any(|&n| n != count) || !(missing.is_empty() || missing.len() == count) {
        return Err(cx.malformed(format!("lists of {lengths:?} numbers for {count} nodes")));
    }
    let child = |id: usize, leaf: usize| {
        let (place, most) = if leaf != 0 { (count.saturating_add(id), count + leaves) } else { (id, count) };
        if place < most { Ok(place) } else { Err(cx.malformed(format!("there is no node or leaf {id}"))) }
    };
    // One list of members for each such node, in order, each ended by NaN.
    let members = tensor(cx, "membership_values")?.unwrap_or_default();
    let mut sets = members.split(|m| m.is_nan()).map(<[f64]>::to_vec);
    let mut forest = Forest { roots: indices(cx, "tree_roots")?, ..Forest::default() };
    for i in 0..count {
        let mode = MODES.get(modes[i] as usize).copied();
        let mode = mode.ok_or_else(|| cx.malformed(format!("a node of mode {}", modes[i])))?;
        forest.nodes.push(Branch {
            mode,
            feature: features[i],
            threshold: splits[i],
            missing_is_true: missing.get(i).is_some_and(|&m| m != 0),
            yes: child(yes[i], yes_leaf[i])?,
            no: child(no[i], no_leaf[i])?,
            members: if mode == Mode::Member { sets.next().unwrap_or_default() } else { Vec::new() },
        });
    }
    for leaf in count..count + leaves {
        let (feature, threshold) = (0, 0.0);
        let (mode, members) = (Mode::Leaf, Vec::new());
        forest.nodes.push(Branch {
            mode,
            feature,
            threshold,
            missing_is_true: false,
            yes: leaf,
            no: leaf,
            members,
        });
    }
    if forest.roots.is_empty() || forest.roots.iter().any(|&r| r >= count) {
        return Err(cx.malformed("tree_roots names no node"));
    }
    Ok((forest, count))
}

fn tree_ensemble(cx: Cx) -> Nodes {
    let targets = cx.attrs.required("n_targets", cx.attrs.int_opt("n_targets")?)?;
    let targets = usize::try_from(targets).ok().filter(|&n| n > 0);
    let targets = targets.ok_or_else(|| cx.malformed("n_targets must be at least 1"))?;
    let (forest, inner) = split_forest(cx)?;
    let which = indices(cx, "leaf_targetids")?;
    let given = cx.attrs.required("leaf_weights", tensor(cx, "leaf_weights")?)?;
    let mut weights = cx.importer.zeros(forest.nodes.len(), targets)?;
    if given.len() != which.len() || which.iter().any(|&t| t >= targets) {
        return Err(cx.malformed(format!("{} leaf weights for {} leaves", given.len(), which.len())));
    }
    for (leaf, (&target, &weight)) in which.iter().zip(&given).enumerate() {
        weights[(inner + leaf) * targets + target] = weight;
    }
    let x = rows(cx)?;
    let names = ["AVERAGE", "SUM", "MIN", "MAX"];
    let how = usize::try_from(cx.attrs.int("aggregate_function", 1)?).ok().and_then(|i| names.get(i));
    let how = how.ok_or_else(|| cx.malformed("aggregate_function is 0 to 3"))?;
    let scores = scores(cx, forest, x, weights, targets, how)?;
    let transforms = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"];
    let transform = usize::try_from(cx.attrs.int("post_transform", 0)?).ok().and_then(|i| transforms.get(i));
    let transform = transform.ok_or_else(|| cx.malformed("post_transform is 0 to 4"))?;
    Ok(vec![post_transform(cx, scores, transform)?])
}
