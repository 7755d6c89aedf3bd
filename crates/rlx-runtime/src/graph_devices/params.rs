//! The parameters, which are stored with the graph and not with a device.

use std::sync::Arc;

use rlx_driver::DeviceId;
use rlx_ir::{DType, Error, ErrorKind, Op, Result, Weight, WeightStore};
use rlx_select::device_policy::DeviceFallbackError;
use rlx_select::or_panic;

use super::GraphDevices;
use crate::compiled::{TensorInfo, weight_of_bytes, weight_of_f32, wrong_parameter};
impl GraphDevices {
    /// Sets a parameter on every device, compiled already or later.
    ///
    /// # Panics
    /// If [`GraphDevices::try_set_param`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// devices.set_param("w", &[0.0, 1.0]);
    /// assert_eq!(devices.run(Device::Cpu, &[("x", &[1.0, 2.0])])?, [[1.0, 3.0]]);
    /// # Ok::<(), String>(())
    /// ```
    #[track_caller]
    pub fn set_param(&mut self, name: &str, values: &[f32]) {
        or_panic(self.try_set_param(name, values));
    }

    /// As [`GraphDevices::set_param`]. If setting it fails on a device, that is recorded and logged, and the device is compiled again at its
    /// next use; the value is stored.
    ///
    /// # Errors
    /// An unknown name, a wrong count, a value that is not exact in the declared type.
    pub fn try_set_param(&mut self, name: &str, values: &[f32]) -> Result<()> {
        let weight = weight_of_f32(&self.param_info(name)?, values)?;
        self.keep(name, Arc::new(weight));
        Ok(())
    }

    /// Sets a parameter from the bytes of `dtype` elements.
    ///
    /// # Panics
    /// If [`GraphDevices::try_set_param_typed`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// let w: Vec<u8> = [0.0f32, 1.0].iter().flat_map(|v| v.to_ne_bytes()).collect();
    /// devices.set_param_typed("w", &w, DType::F32);
    /// assert_eq!(devices.run(Device::Cpu, &[("x", &[1.0, 2.0])])?, [[1.0, 3.0]]);
    /// # Ok::<(), String>(())
    /// ```
    #[track_caller]
    pub fn set_param_typed(&mut self, name: &str, bytes: &[u8], dtype: DType) {
        or_panic(self.try_set_param_typed(name, bytes, dtype));
    }

    /// As [`GraphDevices::set_param_typed`].
    ///
    /// # Errors
    /// An unknown name, a type that the declared one does not hold exactly, a wrong count.
    pub fn try_set_param_typed(&mut self, name: &str, bytes: &[u8], dtype: DType) -> Result<()> {
        let weight = weight_of_bytes(&self.param_info(name)?, bytes, dtype)?;
        self.keep(name, Arc::new(weight));
        Ok(())
    }

    /// Sets every parameter that `weights` has by name, without copying those of the declared type; returns the names
    /// of parameters it does not have.
    ///
    /// # Errors
    /// Other dimensions, or a type that the declared one does not hold exactly.
    pub fn try_set_weights(&mut self, weights: &WeightStore) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        for name in super::graph_param_names(&self.graph) {
            let Some(weight) = weights.get(&name) else {
                missing.push(name);
                continue;
            };
            let info = self.param_info(&name)?;
            if info.shape.static_dims().as_deref() != Some(weight.dims()) {
                let message =
                    format!("parameter {name:?} is {}, but was given {}", info.shape, weight.shape());
                return Err(Error::new(ErrorKind::Binding, message));
            }
            let weight = match weight.dtype() == info.dtype {
                true => Arc::clone(weight),
                false => Arc::new(weight_of_bytes(&info, &weight.bytes()?, weight.dtype())?),
            };
            self.keep(&name, weight);
        }
        Ok(missing)
    }

    /// Sets every parameter on every executable again (they have them already, unless the caller set others through
    /// [`GraphDevices::compile`]).
    ///
    /// # Panics
    /// If [`GraphDevices::try_sync_params_to_all`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// devices.compile(Device::Cpu)?;
    /// devices.sync_params_to_all();
    /// assert_eq!(devices.run(Device::Cpu, &[("x", &[1.0, 2.0])])?, [[11.0, 22.0]]);
    /// # Ok::<(), String>(())
    /// ```
    #[track_caller]
    pub fn sync_params_to_all(&mut self) {
        or_panic(self.try_sync_params_to_all());
    }

    /// As [`GraphDevices::sync_params_to_all`].
    ///
    /// # Errors
    /// The devices that failed to take a parameter, which are compiled again at their next use.
    pub fn try_sync_params_to_all(&mut self) -> Result<(), DeviceFallbackError> {
        self.begin();
        let all: Vec<(String, Arc<Weight>)> =
            self.params.iter().map(|(n, w)| (n.clone(), w.clone())).collect();
        for (name, weight) in all {
            self.send(&name, &weight);
        }
        if self.attempts.is_empty() {
            return Ok(());
        }
        Err(DeviceFallbackError { attempts: self.attempts.clone() })
    }

    fn param_info(&self, name: &str) -> Result<TensorInfo> {
        let of_name = |node: &&rlx_ir::Node| matches!(&node.op, Op::Param { name: n } if **n == *name);
        match self.graph.params().find(of_name) {
            Some(node) => Ok(TensorInfo {
                name: name.to_string(),
                dtype: node.shape.dtype(),
                shape: node.shape.clone(),
            }),
            None => Err(wrong_parameter(name, &super::graph_param_names(&self.graph))),
        }
    }

    /// Stores a parameter and sets it on all executables.
    fn keep(&mut self, name: &str, weight: Arc<Weight>) {
        self.begin();
        self.send(name, &weight);
        self.params.insert(name.to_string(), weight);
    }

    fn send(&mut self, name: &str, weight: &Arc<Weight>) {
        let mut faults: Vec<(DeviceId, Error)> = Vec::new();
        for (&device, compiled) in &mut self.compiled {
            // The compiler may have removed it because nothing depends on it.
            let known = compiled.graph.params().iter().any(|p| p.name == name);
            if known && let Err(e) = compiled.graph.try_set_weight(name, weight) {
                faults.push((device, e));
            }
        }
        for (device, error) in faults {
            self.drop_executable(device);
            self.record(device, &error);
        }
    }
}
