//! Typed reading of a node's attributes.
//!
//! For a missing attribute the caller's default is used; an attribute of the wrong type is an error.

use crate::proto::attribute_proto::AttributeType;
use crate::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use rlx_ir::op::{CustomAttr, CustomAttrs};
use rlx_ir::{Error, ErrorKind};
use std::collections::{BTreeMap, HashMap};

/// The attributes of one node.
#[derive(Clone, Copy)]
pub(crate) struct Attrs<'a>(pub &'a [AttributeProto]);

impl<'a> Attrs<'a> {
    fn find(&self, name: &str) -> Option<&'a AttributeProto> {
        self.0.iter().find(|a| a.name() == name)
    }

    /// The attribute when it is there and of the type; files of the first format version leave the type out.
    fn typed(&self, name: &str, ty: AttributeType) -> Result<Option<&'a AttributeProto>, Error> {
        let Some(attr) = self.find(name) else { return Ok(None) };
        let stated = attr.r#type();
        if stated == ty || stated == AttributeType::Undefined {
            return Ok(Some(attr));
        }
        let (found, wanted) = (stated.as_str_name(), ty.as_str_name());
        Err(Error::new(ErrorKind::Malformed, format!("attribute {name} is {found}, not {wanted}")))
    }

    pub fn int_opt(&self, name: &str) -> Result<Option<i64>, Error> {
        Ok(self.typed(name, AttributeType::Int)?.map(|a| a.i()))
    }

    pub fn int(&self, name: &str, default: i64) -> Result<i64, Error> {
        Ok(self.int_opt(name)?.unwrap_or(default))
    }

    pub fn flag(&self, name: &str, default: bool) -> Result<bool, Error> {
        Ok(self.int(name, i64::from(default))? != 0)
    }

    pub fn float_opt(&self, name: &str) -> Result<Option<f32>, Error> {
        Ok(self.typed(name, AttributeType::Float)?.map(|a| a.f()))
    }

    pub fn float(&self, name: &str, default: f32) -> Result<f32, Error> {
        Ok(self.float_opt(name)?.unwrap_or(default))
    }

    pub fn ints(&self, name: &str) -> Result<Option<&'a [i64]>, Error> {
        Ok(self.typed(name, AttributeType::Ints)?.map(|a| &a.ints[..]))
    }

    pub fn floats(&self, name: &str) -> Result<Option<&'a [f32]>, Error> {
        Ok(self.typed(name, AttributeType::Floats)?.map(|a| &a.floats[..]))
    }

    /// Whether the attribute is given, of whatever type.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub fn text(&self, name: &str, default: &'a str) -> Result<&'a str, Error> {
        let Some(attr) = self.typed(name, AttributeType::String)? else { return Ok(default) };
        std::str::from_utf8(attr.s.as_deref().unwrap_or_default())
            .map_err(|_| Error::new(ErrorKind::Malformed, format!("attribute {name} is not UTF-8")))
    }

    pub fn texts(&self, name: &str) -> Result<Option<Vec<&'a str>>, Error> {
        let Some(attr) = self.typed(name, AttributeType::Strings)? else { return Ok(None) };
        let all: Result<Vec<_>, _> = attr.strings.iter().map(|s| std::str::from_utf8(s)).collect();
        all.map(Some).map_err(|_| Error::new(ErrorKind::Malformed, format!("attribute {name} is not UTF-8")))
    }

    pub fn tensor(&self, name: &str) -> Result<Option<&'a TensorProto>, Error> {
        Ok(self.typed(name, AttributeType::Tensor)?.and_then(|a| a.t.as_deref()))
    }

    pub fn graph(&self, name: &str) -> Result<&'a GraphProto, Error> {
        self.typed(name, AttributeType::Graph)?
            .and_then(|a| a.g.as_deref())
            .ok_or_else(|| Error::new(ErrorKind::Malformed, format!("attribute {name} is missing")))
    }

    /// All attributes, as an op from outside has them: numbers, texts, and lists of numbers.
    pub fn custom(&self) -> Result<CustomAttrs, Error> {
        let mut all = BTreeMap::new();
        for attr in self.0 {
            let value = match attr.r#type() {
                AttributeType::Int => CustomAttr::Int(attr.i()),
                AttributeType::Float => CustomAttr::Float(attr.f().into()),
                AttributeType::String => CustomAttr::Text(self.text(attr.name(), "")?.to_owned()),
                AttributeType::Ints => CustomAttr::Ints(attr.ints.clone()),
                AttributeType::Floats => CustomAttr::Floats(attr.floats.iter().map(|&x| x.into()).collect()),
                other => {
                    let message =
                        format!("attribute {} of a custom op is {}", attr.name(), other.as_str_name());
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
            };
            all.insert(attr.name().to_owned(), value);
        }
        Ok(CustomAttrs(all))
    }

    /// An attribute that the op requires.
    pub fn required<T>(&self, name: &str, value: Option<T>) -> Result<T, Error> {
        value.ok_or_else(|| Error::new(ErrorKind::Malformed, format!("attribute {name} is missing")))
    }
}

/// Whether an attribute of the node, or of a node in its bodies, is one of the function around it.
pub(crate) fn refers(node: &NodeProto) -> bool {
    let in_graph = |g: &GraphProto| g.node.iter().any(refers);
    node.attribute.iter().any(|attr| {
        !attr.ref_attr_name().is_empty()
            || attr.g.as_deref().is_some_and(in_graph)
            || attr.graphs.iter().any(in_graph)
    })
}

/// A function body's node with the caller's attributes in place of references to them, in nested graphs too.
/// A reference to what the caller does not give is left out: the op's own default holds.
pub(crate) fn with_attributes(node: &NodeProto, given: &HashMap<String, AttributeProto>) -> NodeProto {
    let resolve = |attr: &AttributeProto| {
        let wanted = attr.ref_attr_name();
        if wanted.is_empty() {
            let mut attr = attr.clone();
            attr.g.iter_mut().for_each(|g| resolve_graph(g, given));
            attr.graphs.iter_mut().for_each(|g| resolve_graph(g, given));
            return Some(attr);
        }
        given.get(wanted).map(|value| AttributeProto { name: attr.name.clone(), ..value.clone() })
    };
    NodeProto { attribute: node.attribute.iter().filter_map(resolve).collect(), ..node.clone() }
}

fn resolve_graph(graph: &mut GraphProto, given: &HashMap<String, AttributeProto>) {
    for node in &mut graph.node {
        *node = with_attributes(node, given);
    }
}
