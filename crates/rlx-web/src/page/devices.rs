//! What there is to run on.

use js_sys::{Object, Reflect};
use rlx_runtime::Device;
use rlx_wgpu::WgpuBackend;
use wasm_bindgen::prelude::*;

use super::errors::js_error;

/// Opens the engine's WebGPU device, or gives the one that is open; `{ software }` says whether the processor computes what it does.
///
/// # Errors
/// There is none, it does not open, or it computes wrongly.
#[wasm_bindgen(js_name = openWebGpu)]
pub async fn open_web_gpu() -> Result<Object, JsValue> {
    let backend = WgpuBackend::new(Device::WebGpu);
    backend.open().await.map_err(|e| js_error(&e))?;
    let software = backend.is_software().map_err(|e| js_error(&e))?;
    let about = Object::new();
    Reflect::set(&about, &"software".into(), &software.into())?;
    Ok(about)
}

/// Gives the WebGPU device back to the engine. Models on it report that it is lost; their next run opens it again.
///
/// # Errors
/// No device is open.
#[wasm_bindgen(js_name = closeWebGpu)]
pub fn close_web_gpu() -> Result<(), JsValue> {
    WgpuBackend::new(Device::WebGpu).close().map_err(|e| js_error(&e))
}

/// The instruction set of the CPU's kernels.
#[wasm_bindgen(js_name = cpuInstructions)]
pub fn cpu_instructions() -> String {
    if cfg!(target_feature = "simd128") { "simd128" } else { "portable" }.to_owned()
}
