//! Tensors from and to JavaScript's objects: `{ name, dtype, dims, data }`, where `data` is a `Uint8Array` of the elements' bytes in
//! row-major order, little-endian as WebAssembly is.

use js_sys::{Array, Object, Reflect, Uint8Array, Uint32Array};
use rlx_ir::{ConstData, DType, Dim, Error, ErrorKind, Result, sym};
use rlx_runtime::TensorInfo;
use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::*;

fn binding(message: String) -> Error {
    Error::new(ErrorKind::Binding, message)
}

fn property(object: &JsValue, key: &str) -> Result<JsValue> {
    Reflect::get(object, &key.into()).map_err(|_| binding(format!("an input without \"{key}\"")))
}

/// The named tensors of an array of objects.
///
/// # Errors
/// [`ErrorKind::Binding`] for objects of another form; a length that does not fit the dimensions.
pub(crate) fn from_js(inputs: &Array) -> Result<Vec<(String, ConstData)>> {
    let one = |object: JsValue| {
        let text = |key: &str| {
            property(&object, key)?
                .as_string()
                .ok_or_else(|| binding(format!("\"{key}\" of an input is no text")))
        };
        let (name, dtype) = (text("name")?, text("dtype")?);
        let of = |what: &str| binding(format!("input \"{name}\": {what}"));
        let dtype: DType = dtype.parse().map_err(|_| of(&format!("there is no element type \"{dtype}\"")))?;
        let dims = property(&object, "dims")?.dyn_into::<Uint32Array>();
        let dims: Vec<usize> = dims
            .map_err(|_| of("\"dims\" is no Uint32Array"))?
            .to_vec()
            .into_iter()
            .map(|d| d as usize)
            .collect();
        let data = property(&object, "data")?.dyn_into::<Uint8Array>();
        let data = data.map_err(|_| of("\"data\" is no Uint8Array"))?.to_vec();
        let tensor = ConstData::new(dtype, &dims, data).map_err(|e| of(e.message()))?;
        Ok((name, tensor))
    };
    inputs.iter().map(one).collect()
}

/// Named tensors as an array of objects.
pub(crate) fn to_js(outputs: &[(String, ConstData)]) -> std::result::Result<Array, JsValue> {
    let list = Array::new();
    for (name, tensor) in outputs {
        let object = Object::new();
        let dims: Vec<u32> = tensor.dims().iter().map(|&d| d as u32).collect();
        Reflect::set(&object, &"name".into(), &name.as_str().into())?;
        Reflect::set(&object, &"dtype".into(), &tensor.dtype().to_string().into())?;
        Reflect::set(&object, &"dims".into(), &Uint32Array::from(&dims[..]))?;
        Reflect::set(&object, &"data".into(), &Uint8Array::from(&tensor.bytes()[..]))?;
        list.push(&object);
    }
    Ok(list)
}

/// What a model declares: `{ name, dtype, dims }`, where a dynamic dimension is its name.
pub(crate) fn infos_to_js(infos: &[TensorInfo]) -> std::result::Result<Array, JsValue> {
    let list = Array::new();
    for info in infos {
        let (object, dims) = (Object::new(), Array::new());
        for dim in info.shape.dims() {
            dims.push(&match *dim {
                Dim::Static(size) => JsValue::from_f64(size as f64),
                Dim::Dynamic(symbol) => sym::name(symbol).into(),
                other => other.to_string().into(),
            });
        }
        Reflect::set(&object, &"name".into(), &info.name.as_str().into())?;
        Reflect::set(&object, &"dtype".into(), &info.dtype.to_string().into())?;
        Reflect::set(&object, &"dims".into(), &dims)?;
        list.push(&object);
    }
    Ok(list)
}
