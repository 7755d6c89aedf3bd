//! Where nodes came from: an ONNX node, a HIR block, a line of Rust; after fusion, several of these.
//!
//! Origins serve messages and reports only. They are no part of a graph's equality, hash, or artefact.

use crate::sort::sort;
use std::collections::HashMap;
use std::sync::Arc;

/// The id of an origin within its graph's [`Origins`]; `OriginId::NONE` when nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct OriginId(u32);

impl OriginId {
    /// Nothing is known.
    pub const NONE: OriginId = OriginId(0);
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Origin {
    Source(Arc<str>),
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

    /// The origin of something made from all of `parts`.
    pub fn merge(&mut self, parts: impl IntoIterator<Item = OriginId>) -> OriginId {
        let mut flat: Vec<OriginId> = Vec::new();
        for part in parts {
            match self.get(part) {
                Some(Origin::Set(set)) => flat.extend(set.iter().copied()),
                Some(Origin::Source(_)) => flat.push(part),
                None => {}
            }
        }
        sort(&mut flat);
        flat.dedup();
        match flat.as_slice() {
            [] => OriginId::NONE,
            [one] => *one,
            _ => self.intern(Origin::Set(flat.into())),
        }
    }

    fn get(&self, id: OriginId) -> Option<&Origin> {
        self.table.entries.get((id.0 as usize).checked_sub(1)?)
    }

    /// The names behind `id`, joined with `+`; `None` when nothing is known.
    pub fn describe(&self, id: OriginId) -> Option<String> {
        match self.get(id)? {
            Origin::Source(name) => Some(name.to_string()),
            Origin::Set(set) => {
                Some(set.iter().filter_map(|&id| self.describe(id)).collect::<Vec<_>>().join(" + "))
            }
        }
    }
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
        assert_eq!(o.describe(ab).as_deref(), Some("a + b"));
        assert_eq!(o.describe(OriginId::NONE), None);
    }
}
