//! What a pass changed: the text forms of two graphs, compared node by node.
//!
//! A pass renumbers the nodes, so lines are compared without their numbers: nodes match if they are the same op with the
//! same name and shape, in order (first lines that occur once, then the longest common subsequence). A node that
//! matches but has other operands has *changed*. Lines show the numbers of the graph after the pass; `%7'` is node 7 of the
//! graph before, which was removed. A comment names the model's nodes that a node comes
//! from.

use std::collections::HashMap;

use rlx_ir::sort::sort;
use rlx_ir::text::attrs_key;
use rlx_ir::{Graph, Node, Op};

/// Lines around a change that are shown with it.
const CONTEXT: usize = 2;
/// The most pairs of lines that are compared with each other where no line occurs only once.
const MOST_PAIRS: usize = 1 << 22;

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It is as before.
    Same,
    /// It was removed.
    Removed,
    /// It is new.
    Added,
    /// It computes the same of something else.
    Changed,
}

impl Mark {
    fn sign(self) -> char {
        match self {
            Mark::Same => ' ',
            Mark::Removed => '-',
            Mark::Added => '+',
            Mark::Changed => '~',
        }
    }

    /// How a terminal is told to show it.
    fn colour(self) -> Option<&'static str> {
        match self {
            Mark::Same => None,
            Mark::Removed => Some("\x1b[31m"),
            Mark::Added => Some("\x1b[32m"),
            Mark::Changed => Some("\x1b[33m"),
        }
    }
}

/// The difference of two graphs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// A node each (of several lines when it is a region), and the outputs as the last.
    pub lines: Vec<(Mark, String)>,
}

impl Difference {
    /// What `after` is that `before` was not.
    pub fn of(before: &Graph, after: &Graph) -> Self {
        let pairs = matches(&keys(before, after));
        let mut new_of = vec![None; before.len()];
        pairs.iter().for_each(|&(old, new)| new_of[old] = Some(new));
        let old_name = |i: usize| new_of[i].map_or_else(|| format!("%{i}'"), |n: usize| format!("%{n}"));
        let new_name = |i: usize| format!("%{i}");
        let list = |nodes: &[rlx_ir::NodeId], name: &dyn Fn(usize) -> String| {
            nodes.iter().map(|id| name(id.index())).collect::<Vec<_>>().join(", ")
        };
        let mut lines = Vec::new();
        let (mut old, mut new) = (0, 0);
        for (to_old, to_new) in pairs.into_iter().chain([(before.len(), after.len())]) {
            for node in &before.nodes()[old..to_old] {
                lines.push((Mark::Removed, line(before, node, &old_name, "")));
            }
            for node in &after.nodes()[new..to_new] {
                lines.push((Mark::Added, line(after, node, &new_name, "")));
            }
            if let (Some(was), Some(is)) = (before.nodes().get(to_old), after.nodes().get(to_new)) {
                let (was, reads) = (list(&was.inputs, &old_name), list(&is.inputs, &new_name));
                lines.push(match was == reads {
                    true => (Mark::Same, line(after, is, &new_name, "")),
                    false => (Mark::Changed, line(after, is, &new_name, &format!("was ({was})"))),
                });
            }
            (old, new) = (to_old + 1, to_new + 1);
        }
        let (was, gives) = (list(&before.outputs, &old_name), list(&after.outputs, &new_name));
        lines.push(match was == gives {
            true => (Mark::Same, format!("return {gives}")),
            false => (Mark::Changed, format!("return {gives}  // was {was}")),
        });
        Difference { lines }
    }

    /// How many nodes (and the outputs) have this mark.
    pub fn count(&self, mark: Mark) -> usize {
        self.lines.iter().filter(|(m, _)| *m == mark).count()
    }

    /// The changed lines with their context, in colour for a terminal or plain for a file.
    pub fn hunks(&self, colours: bool) -> String {
        let mut out = String::new();
        let mut shown_to = 0;
        for (i, (mark, _)) in self.lines.iter().enumerate() {
            if *mark == Mark::Same || i < shown_to {
                continue;
            }
            // As long as the next change is near, it belongs to the same piece.
            let mut end = i + 1;
            while let Some(next) = self.lines[end..].iter().position(|(m, _)| *m != Mark::Same) {
                if next > 2 * CONTEXT {
                    break;
                }
                end += next + 1;
            }
            let (from, to) = (i.saturating_sub(CONTEXT), (end + CONTEXT).min(self.lines.len()));
            if from > shown_to {
                let skipped = from - shown_to;
                out += &format!("  … {skipped} unchanged {}\n", if skipped == 1 { "line" } else { "lines" });
            }
            for (mark, text) in &self.lines[from.max(shown_to)..to] {
                write_marked(&mut out, *mark, text, colours);
            }
            shown_to = to;
        }
        out
    }
}

fn write_marked(out: &mut String, mark: Mark, text: &str, colours: bool) {
    let colour = mark.colour().filter(|_| colours);
    for line in text.lines() {
        out.push_str(colour.unwrap_or_default());
        out.push(mark.sign());
        out.push(' ');
        out.push_str(line);
        out.push_str(if colour.is_some() { "\x1b[0m\n" } else { "\n" });
    }
}

/// A node in the text form, with these names for nodes and this comment.
fn line(graph: &Graph, node: &Node, name: &dyn Fn(usize) -> String, comment: &str) -> String {
    let attrs = attrs_key(&node.op);
    let (leading, attrs) = if attrs.starts_with('.') { (attrs.as_str(), "") } else { ("", attrs.as_str()) };
    let mut text = format!("{} = {}{leading}", name(node.id.index()), node.op.kind());
    if !node.inputs.is_empty() {
        let inputs: Vec<String> = node.inputs.iter().map(|id| name(id.index())).collect();
        text += &format!("({})", inputs.join(", "));
    }
    text += attrs;
    if let Some(name) = &node.name {
        text += &format!(" {name:?}");
    }
    let computed = !matches!(node.op, Op::Input { .. } | Op::Param { .. } | Op::Constant { .. });
    let origin = if computed { graph.origins().label(node.origin) } else { None };
    let comments: Vec<&str> =
        [origin.as_deref().unwrap_or_default(), comment].into_iter().filter(|c| !c.is_empty()).collect();
    let comments = if comments.is_empty() { String::new() } else { format!("  // {}", comments.join("; ")) };
    format!("{text} : {}{comments}", results(node))
}

fn results(node: &Node) -> String {
    let shapes: Vec<String> = node.results().iter().map(|s| s.to_string()).collect();
    if shapes.len() == 1 { shapes.concat() } else { format!("({})", shapes.join(", ")) }
}

/// A number for each node of both graphs; equal for those that compute the same, whatever they read.
fn keys(before: &Graph, after: &Graph) -> [Vec<u32>; 2] {
    let mut known: HashMap<String, u32> = HashMap::new();
    [before, after].map(|graph| {
        let key = |node: &Node| {
            let text = format!("{}{} {:?} {}", node.op.kind(), attrs_key(&node.op), node.name, results(node));
            let next = known.len() as u32;
            *known.entry(text).or_insert(next)
        };
        graph.nodes().iter().map(key).collect()
    })
}

/// Pairs of equal positions, ascending in both.
fn matches([a, b]: &[Vec<u32>; 2]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let mut open = vec![(0, a.len(), 0, b.len())];
    while let Some((mut a0, mut a1, mut b0, mut b1)) = open.pop() {
        while a0 < a1 && b0 < b1 && a[a0] == b[b0] {
            pairs.push((a0, b0));
            (a0, b0) = (a0 + 1, b0 + 1);
        }
        while a0 < a1 && b0 < b1 && a[a1 - 1] == b[b1 - 1] {
            (a1, b1) = (a1 - 1, b1 - 1);
            pairs.push((a1, b1));
        }
        let anchors = ascending(&once_in_both(&a[a0..a1], &b[b0..b1]));
        if anchors.is_empty() {
            if (a1 - a0).saturating_mul(b1 - b0) <= MOST_PAIRS {
                let common = longest_common(&a[a0..a1], &b[b0..b1]);
                pairs.extend(common.into_iter().map(|(i, j)| (a0 + i, b0 + j)));
            }
            continue;
        }
        let (from_a, from_b) = (a0, b0);
        for (i, j) in anchors {
            let (i, j) = (from_a + i, from_b + j);
            // What is between the anchor before and this one.
            open.push((a0, i, b0, j));
            pairs.push((i, j));
            (a0, b0) = (i + 1, j + 1);
        }
        open.push((a0, a1, b0, b1));
    }
    sort(&mut pairs);
    pairs
}

/// The positions of keys that occur once in each, in the order of the first.
fn once_in_both(a: &[u32], b: &[u32]) -> Vec<(usize, usize)> {
    let places = |list: &[u32]| {
        let mut places: HashMap<u32, Option<usize>> = HashMap::new();
        for (i, &key) in list.iter().enumerate() {
            places.entry(key).and_modify(|p| *p = None).or_insert(Some(i));
        }
        places
    };
    let (in_a, in_b) = (places(a), places(b));
    let mut found: Vec<(usize, usize)> =
        in_a.iter().filter_map(|(key, &i)| Some((i?, (*in_b.get(key)?)?))).collect();
    sort(&mut found);
    found
}

/// The longest part of `pairs` that ascends in the second number, too.
fn ascending(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // By length: the pair that such a part ends with, the smallest possible; and for each pair the one before it.
    let mut ends: Vec<usize> = Vec::new();
    let mut before = vec![None; pairs.len()];
    for (p, &(_, j)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|&e| pairs[e].1 < j);
        before[p] = length.checked_sub(1).map(|l| ends[l]);
        match ends.get_mut(length) {
            Some(end) => *end = p,
            None => ends.push(p),
        }
    }
    let mut chain = Vec::new();
    let mut at = ends.last().copied();
    while let Some(p) = at {
        chain.push(pairs[p]);
        at = before[p];
    }
    chain.reverse();
    chain
}

/// The longest common subsequence, by the table of its lengths.
fn longest_common(a: &[u32], b: &[u32]) -> Vec<(usize, usize)> {
    let width = b.len() + 1;
    let mut table = vec![0u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            table[i * width + j] = match a[i] == b[j] {
                true => table[(i + 1) * width + j + 1] + 1,
                false => table[(i + 1) * width + j].max(table[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if table[(i + 1) * width + j] >= table[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(text: &str) -> Graph {
        rlx_ir::text::parse(text).unwrap_or_else(|e| panic!("{e}"))
    }

    const BEFORE: &str = r#"graph "g" {
  %0 = Input {name="x"} : [4] f32
  %1 = Param {name="w"} : [4] f32
  %2 = Activation.Neg(%0) : [4] f32
  %3 = Activation.Neg(%2) : [4] f32
  %4 = Binary.Mul(%3, %1) : [4] f32
  %5 = Activation.Relu(%4) : [4] f32
  return %5
}
"#;

    #[test]
    fn removed_added_and_changed_lines_are_marked() {
        let after = r#"graph "g" {
  %0 = Input {name="x"} : [4] f32
  %1 = Param {name="w"} : [4] f32
  %2 = Binary.Mul(%0, %1) : [4] f32
  %3 = Activation.Exp(%2) : [4] f32
  return %3
}
"#;
        let found = Difference::of(&graph(BEFORE), &graph(after));
        let expected = "  %0 = Input {name=\"x\"} : [4] f32
  %1 = Param {name=\"w\"} : [4] f32
- %2' = Activation.Neg(%0) : [4] f32
- %3' = Activation.Neg(%2') : [4] f32
~ %2 = Binary.Mul(%0, %1) : [4] f32  // was (%3', %1)
- %5' = Activation.Relu(%2) : [4] f32
+ %3 = Activation.Exp(%2) : [4] f32
~ return %3  // was %5'
";
        assert_eq!(found.hunks(false), expected);
        assert_eq!([Mark::Removed, Mark::Added, Mark::Changed].map(|m| found.count(m)), [3, 1, 2]);
        let coloured = found.hunks(true);
        assert!(
            coloured.contains("\x1b[31m- %2'")
                && coloured.contains("\x1b[32m+ %3")
                && coloured.contains("\x1b[33m~")
        );
    }

    #[test]
    fn equal_graphs_have_no_differences_and_far_lines_are_left_out() {
        let same = Difference::of(&graph(BEFORE), &graph(BEFORE));
        assert_eq!((same.hunks(true).as_str(), same.count(Mark::Same)), ("", 7));
        let long = |last: &str| {
            let mut text = String::from("graph \"long\" {\n  %0 = Input {name=\"x\"} : [4] f32\n");
            for i in 1..30 {
                text += &format!("  %{i} = Activation.Neg(%{}) : [4] f32\n", i - 1);
            }
            graph(&format!("{text}  %30 = Activation.{last}(%29) : [4] f32\n  return %30\n}}\n"))
        };
        let told = Difference::of(&long("Exp"), &long("Relu")).hunks(false);
        assert!(told.starts_with("  … 28 unchanged lines\n"), "{told}");
        assert_eq!(told.lines().count(), 6, "{told}");
    }

    #[test]
    fn matches_are_ascending_and_as_many_as_can_be() {
        // Without keys that occur once, and with some that moved.
        let cases: [(&[u32], &[u32], usize); 5] = [
            (&[1, 2, 1, 2, 1], &[2, 1, 2, 1, 2], 4),
            (&[1, 2, 3, 4, 5, 6], &[4, 5, 6, 1, 2, 3], 3),
            (&[], &[1], 0),
            (&[7, 1, 1, 8], &[7, 1, 8], 3),
            (&[1, 1, 1], &[1, 1], 2),
        ];
        for (a, b, most) in cases {
            let pairs = matches(&[a.to_vec(), b.to_vec()]);
            assert_eq!(pairs.len(), most, "{a:?} {b:?}: {pairs:?}");
            assert!(pairs.iter().all(|&(i, j)| a[i] == b[j]));
            assert!(pairs.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1));
        }
    }
}
