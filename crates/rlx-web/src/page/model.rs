//! A model on a device.

use js_sys::{Array, Uint8Array};
use rlx::Runner;
use rlx_ir::progress::Event;
use rlx_ir::{ConstData, Error, ErrorKind, Progress, Result};
use rlx_onnx::OnnxFile;
use rlx_runtime::{CompileOptions, Device, Session};
use std::cell::RefCell;
use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::*;

use super::errors::js_error;
use super::tensors::{from_js, infos_to_js, to_js};

/// A model on a device; the package's `Model` owns one, and makes one call of it at a time.
#[wasm_bindgen]
pub struct Model {
    /// `None` only while it changes its device.
    runner: Option<Runner>,
}

thread_local! {
    /// Who hears what a model is busy with. (A [`Progress`] may be heard on any thread, a function of JavaScript on its own alone.)
    static LISTENER: RefCell<Option<js_sys::Function>> = const { RefCell::new(None) };
}

/// Tells the listener; it returns whether to go on.
fn hear(event: &Event<'_>) {
    LISTENER.with(|listener| {
        if let Some(listener) = &*listener.borrow() {
            let this = JsValue::NULL;
            let (done, total) = (event.done as f64, event.total as f64);
            // What a listener throws is its own affair: the package hands exceptions on by itself.
            let args = Array::of(&[
                format!("{:?}", event.stage).into(),
                done.into(),
                total.into(),
                event.text.into(),
            ]);
            let _ = listener.apply(&this, &args);
        }
    });
}

/// What is reported to `listener`, and stopped once `cancel` is set.
fn progress(listener: Option<js_sys::Function>, cancel: &rlx_ir::Cancel) -> Progress {
    LISTENER.with(|current| *current.borrow_mut() = listener);
    Progress::from(cancel).reporting(|event| hear(&event))
}

fn missing() -> Error {
    Error::new(ErrorKind::Internal, "the model is changing its device")
}

fn device_of(name: &str) -> Result<Device> {
    name.parse().map_err(|e: rlx_runtime::ParseDeviceError| Error::new(ErrorKind::Config, e.to_string()))
}

fn views(inputs: &[(String, ConstData)]) -> Vec<(&str, &ConstData)> {
    inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect()
}

#[wasm_bindgen]
impl Model {
    /// Reads an ONNX model: its bytes, those of the files beside it by name (`[name, Uint8Array]` pairs), the device's name, sizes of
    /// dynamic dimensions (`[name, size]` pairs). It is compiled by the first run.
    ///
    /// # Errors
    /// Bytes that are no model; a device that is not open; a dimension that no input has.
    #[wasm_bindgen(constructor)]
    pub fn new(
        bytes: Vec<u8>,
        files: Array,
        device: &str,
        dims: Array,
    ) -> std::result::Result<Model, JsValue> {
        Self::read(bytes, &files, device, &dims).map_err(|e| js_error(&e))
    }

    fn read(bytes: Vec<u8>, files: &Array, device: &str, dims: &Array) -> Result<Model> {
        let pair = |entry: JsValue| {
            let entry = Array::from(&entry);
            (entry.get(0).as_string().unwrap_or_default(), entry.get(1))
        };
        let files = files.iter().map(pair).map(|(name, bytes)| match bytes.dyn_into::<Uint8Array>() {
            Ok(bytes) => Ok((name, bytes.to_vec())),
            Err(_) => Err(Error::new(ErrorKind::Config, format!("file \"{name}\" is no Uint8Array"))),
        });
        let file = OnnxFile::from_bytes_with(bytes, files.collect::<Result<Vec<_>>>()?)?;
        let dims = dims.iter().map(pair).map(|(name, size)| match size.as_f64() {
            Some(size) if size >= 0.0 && size.fract() == 0.0 && size <= f64::from(u32::MAX) => {
                Ok((name, size as usize))
            }
            _ => Err(Error::new(
                ErrorKind::Config,
                format!("the size of dimension \"{name}\" is no whole number"),
            )),
        });
        let model = rlx::Model::new("model", file).try_with_dims(dims.collect::<Result<Vec<_>>>()?)?;
        let session = Session::try_new(device_of(device)?)?;
        Ok(Model { runner: Some(Runner::new(model, session, CompileOptions::try_new()?)) })
    }

    /// The inputs that the model declares.
    ///
    /// # Errors
    /// Inputs that are no tensors.
    #[wasm_bindgen(getter)]
    pub fn inputs(&self) -> std::result::Result<Array, JsValue> {
        let infos = self.runner.as_ref().ok_or_else(missing).and_then(Runner::inputs);
        infos_to_js(&infos.map_err(|e| js_error(&e))?)
    }

    /// The outputs that the model declares.
    ///
    /// # Errors
    /// Outputs that are no tensors.
    #[wasm_bindgen(getter)]
    pub fn outputs(&self) -> std::result::Result<Array, JsValue> {
        let infos = self.runner.as_ref().ok_or_else(missing).and_then(Runner::outputs);
        infos_to_js(&infos.map_err(|e| js_error(&e))?)
    }

    /// Goes on with a device: another one, or the same one after it was lost. What was compiled is dropped.
    ///
    /// # Errors
    /// A device that is not open; the model stays where it is then.
    #[wasm_bindgen(js_name = moveTo)]
    pub fn move_to(&mut self, device: &str) -> std::result::Result<(), JsValue> {
        let session = device_of(device).and_then(Session::try_new).map_err(|e| js_error(&e))?;
        let runner = self.runner.take().ok_or_else(|| js_error(&missing()))?;
        self.runner = Some(runner.on(session).map_err(|e| js_error(&e))?);
        Ok(())
    }

    /// Imports and compiles the model for these inputs, where that was not done yet. `listener(stage, done, total, text)` hears of each part.
    ///
    /// # Errors
    /// What importing or compiling reports; nothing ran then.
    pub fn prepare(
        &mut self,
        inputs: &Array,
        listener: Option<js_sys::Function>,
    ) -> std::result::Result<(), JsValue> {
        let progress = progress(listener, &rlx_ir::Cancel::new());
        let runner = self.runner.as_mut().ok_or_else(|| js_error(&missing()))?;
        let prepared = from_js(inputs)
            .and_then(|inputs| runner.prepare_with_progress(&views(&inputs), &progress).map(drop));
        LISTENER.with(|listener| listener.borrow_mut().take());
        prepared.map_err(|e| js_error(&e))
    }

    /// Runs on named tensors in this turn, which only the CPU can; gives the outputs.
    ///
    /// # Errors
    /// What the run reports.
    #[wasm_bindgen(js_name = runNow)]
    pub fn run_now(&mut self, inputs: &Array) -> std::result::Result<Array, JsValue> {
        let runner = self.runner.as_mut().ok_or_else(|| js_error(&missing()))?;
        let outputs = from_js(inputs).and_then(|inputs| runner.run(&views(&inputs)));
        to_js(&outputs.map_err(|e| js_error(&e))?)
    }

    /// Runs on named tensors, awaited; gives the outputs.
    ///
    /// # Errors
    /// What the run reports.
    pub async fn run(&mut self, inputs: Array) -> std::result::Result<Array, JsValue> {
        let runner = self.runner.as_mut().ok_or_else(|| js_error(&missing()))?;
        let inputs = from_js(&inputs).map_err(|e| js_error(&e))?;
        let outputs = runner.run_async(&views(&inputs)).await.map_err(|e| js_error(&e))?;
        to_js(&outputs)
    }
}

/// The names of the files beside a model that hold data of its tensors.
///
/// # Errors
/// Bytes that are no model.
#[wasm_bindgen(js_name = externalFiles)]
pub fn external_files(bytes: Vec<u8>) -> std::result::Result<Vec<String>, JsValue> {
    let file = OnnxFile::from_bytes(bytes).map_err(|e| js_error(&e))?;
    Ok(file.external_files())
}
