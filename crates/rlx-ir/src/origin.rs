//! Where nodes came from: an ONNX node, a HIR block, a line of Rust; after fusion, several of these.
//!
//! Origins serve messages and reports only. They are no part of a graph's equality or hash.
//!
//! A node that was made from several has all their names, the main one first: [`Origins::label`] is what a message
//! has room for (`/layer.0/MatMul (+ Add, Softmax)`), [`Origins::names`] the full list.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The id of an origin within its graph's [`Origins`]; `OriginId::NONE` when nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct OriginId(u32);

impl OriginId {
    /// Nothing is known.
    pub const NONE: OriginId = OriginId(0);
}

/// A set has at most this many names: a chain of constants may fold into one node, and sets are merged again and again.
const MAX_NAMES: usize = Origins::MAX_NAMES;

/// How many names a label has besides the first.
const MAX_OTHERS: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Origin {
    Source(Arc<str>),
    /// Several sources, the main one first.
    Set(Arc<[OriginId]>),
}

/// The origins of a graph's nodes, each stored once. Copies share them until one of them adds another.
#[derive(Debug, Clone, Default)]
pub struct Origins {
    table: Arc<Table>,
}

#[derive(Debug, Clone, Default)]
struct Table {
    entries: Vec<Origin>,
    ids: HashMap<Origin, OriginId>,
}

impl Origins {
    /// The most names that an origin has.
    pub const MAX_NAMES: usize = 256;

    fn intern(&mut self, origin: Origin) -> OriginId {
        if let Some(&id) = self.table.ids.get(&origin) {
            return id;
        }
        let table = Arc::make_mut(&mut self.table);
        table.entries.push(origin.clone());
        let id = OriginId(table.entries.len() as u32);
        table.ids.insert(origin, id);
        id
    }

    /// The origin called `name`.
    pub fn source(&mut self, name: impl Into<String>) -> OriginId {
        self.intern(Origin::Source(name.into().into()))
    }

    /// The origin of something made from all of `parts`, of which the first is the main one. Beyond 256 names the others
    /// are left out.
    pub fn merge(&mut self, parts: impl IntoIterator<Item = OriginId>) -> OriginId {
        let (mut flat, mut known) = (Vec::new(), HashSet::new());
        for part in parts {
            let sources = match self.get(part) {
                Some(Origin::Set(set)) => set,
                Some(Origin::Source(_)) => std::slice::from_ref(&part),
                None => &[],
            };
            flat.extend(sources.iter().copied().filter(|&id| known.insert(id)));
            if flat.len() >= MAX_NAMES {
                flat.truncate(MAX_NAMES);
                break;
            }
        }
        match flat.as_slice() {
            [] => OriginId::NONE,
            [one] => *one,
            _ => self.intern(Origin::Set(flat.into())),
        }
    }

    fn get(&self, id: OriginId) -> Option<&Origin> {
        self.table.entries.get((id.0 as usize).checked_sub(1)?)
    }

    /// The names behind `id`, the main one first; empty when nothing is known.
    pub fn names(&self, id: OriginId) -> Vec<&str> {
        let source = |id: OriginId| match self.get(id) {
            Some(Origin::Source(name)) => Some(&**name),
            _ => None,
        };
        match self.get(id) {
            Some(Origin::Set(set)) => set.iter().filter_map(|&id| source(id)).collect(),
            _ => source(id).into_iter().collect(),
        }
    }

    /// The names behind `id`, joined with `+`; `None` when nothing is known.
    pub fn describe(&self, id: OriginId) -> Option<String> {
        let names = self.names(id);
        (!names.is_empty()).then(|| names.join(" + "))
    }

    /// The main name behind `id` and, in short, the others: `/layer.0/MatMul (+ Add, Softmax)`; `None` when nothing is
    /// known.
    pub fn label(&self, id: OriginId) -> Option<String> {
        let names = self.names(id);
        let (first, others) = names.split_first()?;
        if others.is_empty() {
            return Some((*first).to_string());
        }
        let shown: Vec<&str> = others.iter().take(MAX_OTHERS).map(|name| last_part(name)).collect();
        let more = match others.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("{first} (+ {}{more})", shown.join(", ")))
    }
}

/// `MatMul` of `/layer.0/attention/MatMul`.
fn last_part(name: &str) -> &str {
    name.rsplit('/').find(|part| !part.is_empty()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_flat_and_sources_are_stored_once() {
        let mut o = Origins::default();
        let (a, b) = (o.source("a"), o.source("b"));
        assert_eq!(o.source("a"), a);
        let ab = o.merge([b, a, OriginId::NONE]);
        assert_eq!(o.merge([ab, a]), ab);
        assert_eq!(o.describe(ab).as_deref(), Some("b + a"));
        assert_eq!((o.describe(OriginId::NONE), o.label(OriginId::NONE)), (None, None));
    }

    #[test]
    fn a_label_names_the_first_and_shortens_the_others() {
        let mut o = Origins::default();
        let ids: Vec<OriginId> = ["/l.0/MatMul", "/l.0/Add", "Softmax", "/l.0/Mul/", "/x"]
            .iter()
            .map(|name| o.source(*name))
            .collect();
        let mut label = |count: usize| {
            let set = o.merge(ids[..count].to_vec());
            o.label(set)
        };
        assert_eq!(label(1).as_deref(), Some("/l.0/MatMul"));
        assert_eq!(label(3).as_deref(), Some("/l.0/MatMul (+ Add, Softmax)"));
        assert_eq!(label(5).as_deref(), Some("/l.0/MatMul (+ Add, Softmax, Mul and 1 more)"));
    }

    #[test]
    fn sets_stay_small() {
        let mut o = Origins::default();
        let ids: Vec<OriginId> = (0..1000).map(|i| o.source(i.to_string())).collect();
        let set = o.merge(ids);
        assert_eq!(o.names(set).len(), MAX_NAMES);
    }
}
