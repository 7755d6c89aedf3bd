//! A graph as a package, its bytes evaluated.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rlx_coreml::{CoreMlBackend, Feature, LoadedPackage, Package, PackageRuntime, target};
use rlx_ir::oracle::Bindings;
use rlx_ir::{DType, DimBinding, Error, ErrorKind, Graph, Result, Value, Weight};
use rlx_mil_eval::{Data, Tensor, Ty};
use rlx_opt::{CompileOptions, CompilePipeline};

/// The graph as the compiler leaves it for Core ML, with these dimensions.
pub fn compiled(graph: &Graph, dims: &DimBinding) -> Result<Graph> {
    let options = CompileOptions::default().dim_binding(dims.clone());
    Ok(CompilePipeline::new(Arc::new(target()), options).compile(graph)?.lir.graph)
}

/// The package as the evaluator reads it from its bytes.
pub fn reread(package: &Package) -> rlx_mil_eval::Package {
    let read = rlx_mil_eval::Package::of(&package.model_bytes(), package.weight_bytes().unwrap_or_default());
    read.unwrap_or_else(|e| panic!("{e}"))
}

/// A value as the package takes it.
pub fn given(feature: &Feature, value: &Value) -> Tensor {
    match feature.dtype {
        DType::F32 | DType::F16 => {
            let ty = if feature.dtype == DType::F16 { Ty::F16 } else { Ty::F32 };
            Tensor::of_floats(ty, &feature.dims, value.to_f64().iter().map(|&v| v as f32).collect())
        }
        _ => Tensor::ints(&feature.dims, value.to_f64().iter().map(|&v| v as i32).collect()),
    }
}

/// What the package gives, as a value of the graph.
pub fn got(feature: &Feature, tensor: &Tensor) -> Value {
    let dims: Vec<usize> = feature.shape.dims().iter().map(|d| d.as_static().expect("a number")).collect();
    assert_eq!(tensor.dims, feature.dims);
    match &tensor.data {
        Data::Floats(v) => Value::float(feature.shape.dtype(), &dims, v.iter().map(|&v| v.into()).collect()),
        Data::Ints(v) => Value::int(feature.shape.dtype(), &dims, v.iter().map(|&v| v.into()).collect()),
        other => panic!("{other:?}"),
    }
}

/// The package of a compiled graph, its parameters from the bindings.
pub fn package(graph: &Graph, bindings: &Bindings) -> Result<Package> {
    let weight = |name: &str| {
        let value = bindings.param(name)?;
        Weight::owned(value.dtype, &value.dims, value.encode()).ok().map(Arc::new)
    };
    Package::of(graph, &[], &weight)
}

/// What the evaluator gives for a graph.
pub fn evaluated(graph: &Graph, bindings: &Bindings) -> Result<std::result::Result<Vec<Value>, String>> {
    let graph = compiled(graph, &DimBinding::new())?;
    let package = package(&graph, bindings)?;
    let inputs: Vec<(&str, Tensor)> = package
        .inputs()
        .iter()
        .map(|f| (f.name.as_str(), given(f, bindings.input(&f.graph_name).expect("an input"))))
        .collect();
    Ok(reread(&package).run(&inputs).map(|outputs| {
        package.outputs().iter().zip(&outputs).map(|(feature, tensor)| got(feature, tensor)).collect()
    }))
}

/// The device with its packages run here.
pub fn on_evaluator() -> CoreMlBackend {
    CoreMlBackend::new().with_runtime(Arc::new(Evaluator))
}

/// What runs a device's packages here: each is read from its bytes.
#[derive(Debug)]
pub struct Evaluator;

impl PackageRuntime for Evaluator {
    fn machine(&self) -> String {
        "the evaluator of packages".to_string()
    }

    fn load(&self, package: &Package) -> Result<Box<dyn LoadedPackage>> {
        Ok(Box::new(Read(reread(package))))
    }
}

/// A package that was read.
struct Read(rlx_mil_eval::Package);

impl LoadedPackage for Read {
    fn predict(&self, inputs: &[Feature], bytes: &[Vec<u8>], outputs: &[Feature]) -> Result<Vec<Vec<u8>>> {
        let mut arguments = Vec::new();
        for (feature, bytes) in inputs.iter().zip(bytes) {
            let value = Value::try_decode(feature.dtype, &feature.dims, bytes)?;
            arguments.push((feature.name.as_str(), given(feature, &value)));
        }
        let results = self.0.run(&arguments).map_err(|why| Error::new(ErrorKind::Device, why))?;
        Ok(outputs.iter().zip(&results).map(|(feature, tensor)| held(feature, tensor).encode()).collect())
    }
}

/// What the package gives, as a value at its border.
fn held(feature: &Feature, tensor: &Tensor) -> Value {
    assert_eq!(tensor.dims, feature.dims);
    match &tensor.data {
        Data::Floats(v) => Value::float(feature.dtype, &feature.dims, v.iter().map(|&v| v.into()).collect()),
        Data::Ints(v) => Value::int(feature.dtype, &feature.dims, v.iter().map(|&v| v.into()).collect()),
        other => panic!("{other:?}"),
    }
}

/// Whether everything runs (`RLX_TEST_ALL=1`, set by `cargo xtask test --all`), or what fits the test command.
pub fn everything() -> bool {
    std::env::var("RLX_TEST_ALL").is_ok_and(|v| v == "1")
}

/// Writes a package into the folder of `RLX_COREML_OUT`, if there is one, for `coremltools`.
pub fn keep(package: &Package, name: &str) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let Some(folder) = std::env::var_os("RLX_COREML_OUT") else { return };
    let mut path = Path::new(&folder).join(format!("{name}.mlpackage"));
    if path.exists() {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        path = Path::new(&folder).join(format!("{name}_{number}.mlpackage"));
    }
    package.write(&path).unwrap_or_else(|e| panic!("{e}"));
}
