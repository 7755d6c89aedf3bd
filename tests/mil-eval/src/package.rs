//! A package on disk, and what must hold of it before anything is computed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::evaluate::Scope;
use crate::model::{self, Model, Type};
use crate::{Res, Tensor, Ty};

/// A package that was read.
pub struct Package {
    /// The program.
    pub(crate) model: Model,
    /// The file of weights.
    pub(crate) weights: Vec<u8>,
}

impl Package {
    /// Reads a package: the manifest, and the files that it names.
    ///
    /// # Errors
    /// What is not there or damaged.
    pub fn read(path: &Path) -> Res<Package> {
        let text =
            fs::read_to_string(path.join("Manifest.json")).map_err(|e| format!("the manifest: {e}"))?;
        let manifest: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        if manifest["fileFormatVersion"] != "1.0.0" {
            return Err("the manifest's format".to_string());
        }
        let root = manifest["rootModelIdentifier"].as_str().ok_or("no root model")?;
        let entries = manifest["itemInfoEntries"].as_object().ok_or("no entries")?;
        let place = |entry: &serde_json::Value| -> Res<std::path::PathBuf> {
            Ok(path.join("Data").join(entry["path"].as_str().ok_or("an entry without a path")?))
        };
        let main = place(entries.get(root).ok_or("the root model is no entry")?)?;
        let bytes = fs::read(&main).map_err(|e| format!("{}: {e}", main.display()))?;
        let mut weights = Vec::new();
        for entry in entries.values().filter(|entry| entry["name"] == "weights") {
            let file = place(entry)?.join("weight.bin");
            if file.is_file() {
                weights = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            }
        }
        Package::of(&bytes, weights)
    }

    /// A package from the bytes of its two files.
    ///
    /// # Errors
    /// What is damaged, or does not fit together.
    pub fn of(model: &[u8], weights: Vec<u8>) -> Res<Package> {
        let model = model::model(model)?;
        let versions = [("CoreML5", 6), ("CoreML6", 7), ("CoreML7", 8), ("CoreML8", 9)];
        if !versions.contains(&(model.opset.as_str(), model.version)) {
            return Err(format!("operations {:?} in format {}", model.opset, model.version));
        }
        crate::names::check(&model)?;
        let package = Package { model, weights };
        package.border()?;
        Ok(package)
    }

    /// Whether the description says of inputs and outputs what the program does.
    fn border(&self) -> Res<()> {
        let model = &self.model;
        let arrays = |ty: Ty| match ty {
            Ty::F32 => 65568,
            Ty::F16 => 65552,
            Ty::I32 => 131104,
            _ => 0,
        };
        if model.inputs.len() != model.arguments.len() {
            return Err("another number of inputs is described".to_string());
        }
        let mut names = BTreeSet::new();
        for (feature, argument) in model.inputs.iter().zip(&model.arguments) {
            let same = feature.name == argument.name && feature.dims == argument.of.dims;
            if !same || feature.array != arrays(argument.of.ty) {
                return Err(format!("input {:?} is described as {feature:?}", argument.name));
            }
        }
        if model.outputs.len() != model.block.outputs.len() {
            return Err("another number of outputs is described".to_string());
        }
        for (feature, name) in model.outputs.iter().zip(&model.block.outputs) {
            let made = model.block.operations.iter().flat_map(|op| &op.outputs).find(|o| o.name == *name);
            let of: &Type = &made.ok_or_else(|| format!("no operation gives the output {name:?}"))?.of;
            if feature.name != *name || feature.dims != of.dims || feature.array != arrays(of.ty) {
                return Err(format!("output {name:?} is described as {feature:?}"));
            }
        }
        for feature in model.inputs.iter().chain(&model.outputs) {
            let name = feature.name.as_bytes();
            let fits =
                |(i, c): (usize, &u8)| c.is_ascii_alphabetic() || *c == b'_' || (i > 0 && c.is_ascii_digit());
            if name.is_empty() || !name.iter().enumerate().all(fits) {
                return Err(format!("{:?} is no identifier", feature.name));
            }
            if !names.insert(&feature.name) {
                return Err(format!("{:?} is there twice", feature.name));
            }
            if feature.dims.is_empty() || feature.dims.len() > 5 || feature.dims.contains(&0) {
                return Err(format!("{:?} has the dimensions {:?}", feature.name, feature.dims));
            }
        }
        Ok(())
    }

    /// The names, types and dimensions of the inputs.
    pub fn inputs(&self) -> Vec<(String, Ty, Vec<usize>)> {
        self.model.arguments.iter().map(|a| (a.name.clone(), a.of.ty, a.of.dims.clone())).collect()
    }

    /// The names of the outputs.
    pub fn outputs(&self) -> &[String] {
        &self.model.block.outputs
    }

    /// Runs the program. Every operation is checked as it is computed: its operands by name and type, what it gives against what is
    /// declared.
    ///
    /// # Errors
    /// What is wrong, naming the operation.
    pub fn run(&self, inputs: &[(&str, Tensor)]) -> Res<Vec<Tensor>> {
        self.run_in(Scope::new(self), inputs)
    }

    fn run_in(&self, mut scope: Scope<'_>, inputs: &[(&str, Tensor)]) -> Res<Vec<Tensor>> {
        for argument in &self.model.arguments {
            let given = inputs.iter().find(|(name, _)| *name == argument.name);
            let (_, given) = given.ok_or_else(|| format!("input {:?} is missing", argument.name))?;
            if given.ty != argument.of.ty || given.dims != argument.of.dims {
                let given = (given.ty, &given.dims);
                return Err(format!("input {:?} is {:?}, not {given:?}", argument.name, argument.of));
            }
            scope.define(&argument.name, given.clone(), false)?;
        }
        scope.block(&self.model.block, &[])
    }

    /// Runs the program on zeros, with every block of control flow once, taken or not: all that can be checked without knowing what it
    /// computes.
    ///
    /// # Errors
    /// As [`Package::run`].
    pub fn check(&self) -> Res<()> {
        let inputs = self.inputs();
        let zeros: Vec<(&str, Tensor)> =
            inputs.iter().map(|(name, ty, dims)| (name.as_str(), Tensor::zeros(*ty, dims))).collect();
        let mut scope = Scope::new(self);
        scope.every_block = true;
        self.run_in(scope, &zeros).map(drop)
    }
}
