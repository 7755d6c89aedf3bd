//! Tensors from JSON: nested lists of numbers or booleans, stored while they are read.
//!
//! No tree of the document is built, which would take thirty times its size. A list that is too long is rejected
//! at the first element beyond the limit.

use std::fmt;

use rlx_ir::{ConstData, Error, ErrorKind, Result};
use rlx_runtime::TensorInfo;
use serde::de::{DeserializeSeed, Deserializer as _, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Deserializer, Value as Json};

use super::elements::{InputLimit, Packed};
use super::{Inputs, find};

/// The tensor that a whole document is.
///
/// # Errors
/// Text that is no JSON, lists that make no tensor, numbers that are not of the input's type, more than the limit.
pub fn tensor(text: &[u8], info: &TensorInfo, limit: InputLimit) -> Result<ConstData> {
    let mut reading = Reading::of(info, limit);
    let mut json = Deserializer::from_slice(text);
    let read = Nested { reading: &mut reading, depth: 0 }.deserialize(&mut json).and_then(|()| json.end());
    reading.tensor(read)
}

/// The inputs of a JSON object by name: each once, and only those not given otherwise.
///
/// # Errors
/// As [`tensor`]; a name that is not free, or comes twice.
pub fn object(text: &[u8], free: &[&TensorInfo], limit: InputLimit) -> Result<Inputs> {
    let mut fields = Fields { free, limit, given: Inputs::new(), fault: None };
    let mut json = Deserializer::from_slice(text);
    let read = json.deserialize_map(&mut fields).and_then(|()| json.end());
    match (read, fields.fault) {
        (_, Some(fault)) => Err(fault),
        (Err(e), None) => Err(not_json(&e)),
        (Ok(()), None) => Ok(fields.given),
    }
}

/// Whether the text is JSON at all.
///
/// # Errors
/// [`ErrorKind::Parse`] where it is none.
pub fn check(text: &[u8]) -> Result<()> {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).map(drop).map_err(|e| not_json(&e))
}

fn not_json(e: &serde_json::Error) -> Error {
    Error::new(ErrorKind::Parse, e.to_string())
}

/// A tensor of which a part was read.
struct Reading<'a> {
    info: &'a TensorInfo,
    limit: InputLimit,
    packed: Packed,
    /// How long the lists of each depth are, as soon as one has ended.
    dims: Vec<Option<usize>>,
    /// Why it is none.
    fault: Option<Error>,
}

impl<'a> Reading<'a> {
    fn of(info: &'a TensorInfo, limit: InputLimit) -> Self {
        Reading { info, limit, packed: Packed::of(info, limit), dims: Vec::new(), fault: None }
    }

    fn tensor(self, read: serde_json::Result<()>) -> Result<ConstData> {
        match (read, self.fault) {
            (_, Some(fault)) => Err(fault),
            (Err(e), None) => Err(not_json(&e)),
            (Ok(()), None) => {
                let dims: Vec<usize> = self.dims.iter().map(|d| d.unwrap_or(0)).collect();
                self.packed.finish(&dims)
            }
        }
    }

    /// Records an error, and returns the value that ends parsing.
    fn fail<E: serde::de::Error>(&mut self, fault: Error) -> E {
        self.fault.get_or_insert(fault);
        E::custom("no tensor")
    }

    fn bad<E: serde::de::Error>(&mut self, what: &str) -> E {
        let message = format!("input \"{}\": {what}", self.info.name);
        self.fail(Error::new(ErrorKind::Parse, message))
    }

    /// A number or truth value in so many lists.
    fn leaf<E: serde::de::Error>(&mut self, leaf: &Json, depth: usize) -> Result<(), E> {
        if self.dims.len() > depth {
            return Err(self.bad("the lists are not all of the same length"));
        }
        let fits = if self.info.dtype.is_float() {
            match leaf.as_f64() {
                Some(x) => self.packed.push_float(x),
                None => return Err(self.bad(&format!("{leaf} is not a number"))),
            }
        } else {
            match self.whole(leaf) {
                Ok(n) => self.packed.push_int(n),
                Err(e) => return Err(self.fail(e)),
            }
        };
        match fits {
            Err(e) => Err(self.fail(e)),
            Ok(true) => Ok(()),
            Ok(false) => {
                let what = format!("the list has more than {} elements", self.packed.count() - 1);
                let error = self.limit.exceeded(self.info, &what);
                Err(self.fail(error))
            }
        }
    }

    fn whole(&self, leaf: &Json) -> Result<i128> {
        let (name, dtype) = (&self.info.name, self.info.dtype);
        let Some((min, max)) = dtype.int_range() else {
            return Err(Error::new(ErrorKind::Parse, format!("input \"{name}\": no JSON for {dtype}")));
        };
        let n = match leaf {
            Json::Bool(b) => Some(i128::from(*b)),
            _ => leaf.as_i64().map(i128::from).or_else(|| leaf.as_u64().map(i128::from)),
        };
        n.filter(|n| (min..=max).contains(n)).ok_or_else(|| {
            let message = format!("input \"{name}\" takes {dtype}, but was given {leaf}");
            Error::new(ErrorKind::DType, message).with_hint(match dtype.bits() {
                64 => "give whole numbers".to_owned(),
                _ => format!("give whole numbers from {min} to {max}"),
            })
        })
    }
}

/// A value within so many lists.
struct Nested<'r, 'a> {
    reading: &'r mut Reading<'a>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Nested<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Nested<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or a list of them")
    }

    fn visit_bool<E: serde::de::Error>(self, v: bool) -> Result<(), E> {
        self.reading.leaf(&v.into(), self.depth)
    }

    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<(), E> {
        self.reading.leaf(&v.into(), self.depth)
    }

    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<(), E> {
        self.reading.leaf(&v.into(), self.depth)
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<(), E> {
        self.reading.leaf(&v.into(), self.depth)
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<(), E> {
        let short: String = v.chars().take(32).collect();
        self.reading.leaf(&short.into(), self.depth)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.reading.leaf(&Json::Null, self.depth)
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(self.reading.bad("an object is not a number"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Nested { reading, depth } = self;
        if reading.dims.len() <= depth {
            if reading.packed.count() > 0 {
                return Err(reading.bad("the lists are not all of the same length"));
            }
            reading.dims.push(None);
        }
        let mut count = 0;
        while list.next_element_seed(Nested { reading: &mut *reading, depth: depth + 1 })?.is_some() {
            count += 1;
        }
        if *reading.dims[depth].get_or_insert(count) != count {
            return Err(reading.bad("the lists are not all of the same length"));
        }
        Ok(())
    }
}

/// The fields of an object.
struct Fields<'a> {
    free: &'a [&'a TensorInfo],
    limit: InputLimit,
    given: Inputs,
    fault: Option<Error>,
}

impl Fields<'_> {
    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        let fail = |slot: &mut Option<Error>, fault| {
            slot.get_or_insert(fault);
            A::Error::custom("no input")
        };
        if self.given.iter().any(|(given, _)| given == name) {
            let message = format!("input \"{name}\" is given twice");
            return Err(fail(&mut self.fault, Error::new(ErrorKind::Binding, message)));
        }
        let info = find(self.free, name).map_err(|e| fail(&mut self.fault, e))?;
        let mut reading = Reading::of(info, self.limit);
        let read = map.next_value_seed(Nested { reading: &mut reading, depth: 0 });
        match (read, reading.fault.take()) {
            (_, Some(fault)) => Err(fail(&mut self.fault, fault)),
            (Err(e), None) => Err(e),
            (Ok(()), None) => {
                let tensor = reading.tensor(Ok(())).map_err(|e| fail(&mut self.fault, e))?;
                self.given.push((name.to_owned(), tensor));
                Ok(())
            }
        }
    }
}

impl<'de> Visitor<'de> for &mut Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of inputs by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            self.field(&name, &mut map)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::testing::Gen;
    use rlx_ir::{DType, Dim, Shape, sym};
    use serde_json::json;

    fn open(dtype: DType) -> TensorInfo {
        let dims = ["json.a", "json.b"].map(|name| Dim::Dynamic(sym::named(name)));
        TensorInfo { name: "x".to_owned(), dtype, shape: Shape::from_dims(&dims, dtype) }
    }

    fn read(text: &str, dtype: DType) -> Result<ConstData> {
        tensor(text.as_bytes(), &open(dtype), InputLimit(1 << 10))
    }

    #[test]
    fn lists_become_tensors() {
        assert_eq!(read("[[1, 2], [3, 4.5]]", DType::F32).unwrap().value().to_f64(), [1.0, 2.0, 3.0, 4.5]);
        assert_eq!(read(" 7 ", DType::I64).unwrap().dims(), &[] as &[usize]);
        assert_eq!(read("[[], []]", DType::F32).unwrap().dims(), [2, 0]);
        assert_eq!(read("[true, false]", DType::Bool).unwrap().value().to_f64(), [1.0, 0.0]);
    }

    #[test]
    fn invalid_tensors_are_typed_errors() {
        let deep = "[".repeat(100_000);
        for (text, dtype, message) in [
            ("[[1], [2, 3]]", DType::F32, "not all of the same length"),
            ("[[1], 2]", DType::F32, "not all of the same length"),
            ("[1, [2]]", DType::F32, "not all of the same length"),
            ("[[], 1]", DType::F32, "not all of the same length"),
            ("[[], [[]]]", DType::F32, "not all of the same length"),
            ("[null]", DType::F32, "null is not a number"),
            ("[\"a\"]", DType::F32, "\"a\" is not a number"),
            ("[{\"a\": 1}]", DType::F32, "an object is not a number"),
            ("[1.5]", DType::I64, "takes i64, but was given 1.5"),
            ("[300]", DType::U8, "takes u8, but was given 300"),
            ("[1] 2", DType::F32, "trailing characters"),
            ("", DType::F32, "EOF"),
            (&deep, DType::F32, "recursion limit"),
            (&format!("[0{}]", ",0".repeat(300)), DType::F32, "at most 1.024 kB"),
        ] {
            let error = read(text, dtype).unwrap_err();
            assert!(error.message().contains(message), "{}: {error}", &text[..text.len().min(30)]);
        }
    }

    /// A document of lists and numbers, most often a tensor.
    fn document(random: &mut Gen, depth: usize, dims: &[usize]) -> Json {
        let Some((&n, rest)) = dims.split_first() else { return json!(random.int(-9..=9)) };
        let n = if random.chance(0.03) { random.size(0..=3) } else { n };
        let rest = if depth > 0 && random.chance(0.03) {
            &dims[dims.len() - random.size(0..=rest.len())..]
        } else {
            rest
        };
        (0..n).map(|_| document(random, depth + 1, rest)).collect()
    }

    /// What the document is by its definition: dimensions and elements, or no tensor.
    fn by_definition(json: &Json) -> Option<(Vec<usize>, Vec<f64>)> {
        let Json::Array(items) = json else { return Some((Vec::new(), vec![json.as_f64()?])) };
        let parts = items.iter().map(by_definition).collect::<Option<Vec<_>>>()?;
        let inner = parts.first().map_or_else(Vec::new, |(dims, _)| dims.clone());
        let same = parts.iter().all(|(dims, _)| *dims == inner);
        let elements = parts.iter().flat_map(|(_, elements)| elements.iter().copied()).collect();
        same.then(|| (std::iter::once(items.len()).chain(inner).collect(), elements))
    }

    #[test]
    fn documents_are_the_tensors_of_their_definition() {
        let mut random = Gen::new(11);
        let mut tensors = 0;
        for case in 0..5000 {
            let dims = random.dims(0..=4, 0..=3);
            let json = document(&mut random, 0, &dims);
            let read = read(&json.to_string(), DType::F32).ok();
            let found = read.map(|data| (data.dims().to_vec(), data.value().to_f64()));
            assert_eq!(found, by_definition(&json), "case {case}: {json}");
            tensors += usize::from(found.is_some());
        }
        assert!((500..4900).contains(&tensors), "{tensors}");
    }

    #[test]
    fn objects_name_each_input_once() {
        let info = open(DType::F32);
        let read = |text: &str| object(text.as_bytes(), &[&info], InputLimit::default());
        assert_eq!(read("{\"x\": [1, 2]}").unwrap()[0].1.dims(), [2]);
        for (text, message) in [
            ("{\"x\": 1, \"x\": 2}", "given twice"),
            ("{\"y\": 1}", "no input \"y\""),
            ("{\"x\": [1, [2]]}", "not all of the same length"),
            ("{\"x\": 1", "EOF"),
            ("[1]", "an object of inputs"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message().contains(message), "{text}: {error}");
        }
    }
}
