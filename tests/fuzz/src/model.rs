//! Model files.

pub mod mutate;

use rlx_ir::testing::Gen;
use rlx_ir::{ConstData, DType, ErrorKind, Value};
use rlx_onnx::proto::tensor_shape_proto::dimension::Value as DimValue;
use rlx_onnx::proto::type_proto;
use rlx_onnx::{ImportOptions, Imported, OnnxFile, dtype, import, needed_input};

use crate::accepted;
use crate::run::{Compare, agree, is_tame, options, plain, session, small_sample};

/// Graphs with more elements in all are compiled, but not run.
const MAX_ELEMENTS: usize = 1 << 14;

/// How many inputs are given a value because a shape hangs on it.
const MAX_NEEDED: usize = 3;

/// A file is opened and imported; what comes of it verifies, compiles, and runs on the CPU as on the oracle.
///
/// # Panics
/// Where a promise is broken.
pub fn importer(data: &[u8]) {
    let Some(file) = accepted(OnnxFile::from_bytes(data.to_vec())) else { return };
    let mut g = Gen::new(data.len() as u64);
    let Some(Imported { graph, .. }) = imported(&file, &mut g) else { return };
    if let Some(fault) = rlx_ir::verify(&graph).first() {
        panic!("an import that does not verify: {fault}\n{graph}");
    }
    let session = session(&mut g);
    match small_sample(&graph, &mut g, MAX_ELEMENTS) {
        Some(sample) => {
            let compare = if is_tame(&graph, &sample.bindings) { Compare::Values } else { Compare::Shapes };
            agree(&graph, &sample, session, &options(&mut g, None), compare);
        }
        None => _ = accepted(session.try_compile_with(graph, &plain()).map_err(Into::into)),
    }
}

/// The import, with made-up values for inputs that decide a shape.
fn imported(file: &OnnxFile, g: &mut Gen) -> Option<Imported> {
    let mut options = ImportOptions::default();
    for _ in 0..=MAX_NEEDED {
        let e = match import(file, &options) {
            Ok(imported) => return Some(imported),
            Err(e) => e,
        };
        if e.kind() != ErrorKind::NeedsInputValue {
            return accepted(Err(e));
        }
        let name = needed_input(&e).expect("such an error names the input").to_owned();
        let value = made_up(file, &name, g)?;
        options.input_values.insert(name, value);
    }
    None
}

/// A small value for an input that the file declares.
fn made_up(file: &OnnxFile, name: &str, g: &mut Gen) -> Option<ConstData> {
    let input = file.graph().input.iter().find(|input| input.name() == name)?;
    let Some(type_proto::Value::TensorType(tensor)) = &input.r#type.as_ref()?.value else { return None };
    let dims: Vec<usize> = tensor
        .shape
        .as_ref()?
        .dim
        .iter()
        .map(|dim| match dim.value {
            Some(DimValue::DimValue(n)) => usize::try_from(n).unwrap_or(1).min(64),
            _ => 2,
        })
        .collect();
    if dims.iter().product::<usize>() > 256 {
        return None;
    }
    let dtype: DType = accepted(dtype(tensor.elem_type()))?;
    let value: Value = g.value(dtype, &dims, 1.0..4.0);
    Some(value.to_const())
}
