//! Core ML itself, on Apple systems: packages compiled, loaded and run.
//!
//! **Not yet run on hardware.** What is here compiles for macOS; the packages are checked elsewhere (see `tests/`).

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use objc2::AnyThread;
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, ProtocolObject};
use objc2_core_ml::{
    MLComputeUnits, MLDictionaryFeatureProvider, MLFeatureProvider, MLFeatureValue, MLModel,
    MLModelConfiguration, MLMultiArray, MLMultiArrayDataType,
};
use objc2_foundation::{NSArray, NSDictionary, NSError, NSNumber, NSProcessInfo, NSString, NSURL};
use rlx_ir::{DType, Error, ErrorKind, Result, files};

use crate::backend::ComputeUnits;
use crate::program::{Feature, Package};
use crate::runtime::{LoadedPackage, PackageRuntime};
use crate::target::NAME;

/// Core ML, on these processors.
#[derive(Debug)]
pub struct System(pub ComputeUnits);

impl PackageRuntime for System {
    fn machine(&self) -> String {
        let version = NSProcessInfo::processInfo().operatingSystemVersionString();
        format!("Core ML ({:?}) on {} {version}, {}", self.0, std::env::consts::OS, std::env::consts::ARCH)
    }

    fn load(&self, package: &Package) -> Result<Box<dyn LoadedPackage>> {
        Ok(Box::new(Loaded::open(package, self.0)?))
    }
}

/// A model in memory.
struct Loaded {
    /// One prediction at a time: an instance of `MLModel` is not used by several threads at once.
    model: Mutex<Model>,
    /// Where Core ML has the compiled model.
    folder: PathBuf,
}

/// The object, which any one thread may use.
struct Model(Retained<MLModel>);

// SAFETY: Core ML allows a model to be used from any thread, by one at a time, which the lock around it makes sure of.
#[allow(clippy::non_send_fields_in_send_ty)]
unsafe impl Send for Model {}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn fault(what: &str, error: &NSError) -> Error {
    let message = format!("Core ML {what}: {}", error.localizedDescription());
    Error::new(ErrorKind::Device, message).with_device(NAME)
}

fn internal(what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("Core ML: {what}")).with_device(NAME)
}

impl Loaded {
    /// Has a package compiled for this machine, and loads it.
    ///
    /// # Errors
    /// What Core ML says of the package; files that cannot be written.
    fn open(package: &Package, units: ComputeUnits) -> Result<Loaded> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Not the temporary folder, which others may write to: what is loaded is believed.
        let own = files::cache_dir()?.join("coreml");
        files::make_own(&own)?;
        let path = own.join(format!("{}-{number}.mlpackage", std::process::id()));
        // One that an earlier process of this number left when it was ended.
        let _ = std::fs::remove_dir_all(&path);
        package.write(&path)?;
        let url = NSURL::fileURLWithPath(&NSString::from_str(&path.to_string_lossy()));
        // SAFETY: the URL is that of a folder which was just written. The other form of the call, which does not wait, is of no use here.
        #[allow(deprecated)]
        let compiled = unsafe { MLModel::compileModelAtURL_error(&url) };
        let _ = std::fs::remove_dir_all(&path);
        let compiled = compiled.map_err(|e| fault("does not compile the package", &e))?;
        let folder = compiled.path().ok_or_else(|| internal("no path of the compiled model"))?;
        let folder = PathBuf::from(folder.to_string());
        // SAFETY: a new object, whose property is set to one of its values.
        let configuration = unsafe {
            let configuration = MLModelConfiguration::new();
            configuration.setComputeUnits(match units {
                ComputeUnits::All => MLComputeUnits::All,
                ComputeUnits::Cpu => MLComputeUnits::CPUOnly,
                ComputeUnits::CpuAndGpu => MLComputeUnits::CPUAndGPU,
                ComputeUnits::CpuAndNeuralEngine => MLComputeUnits::CPUAndNeuralEngine,
            });
            configuration
        };
        // SAFETY: the URL is Core ML's own, of the model that it just compiled.
        let model = unsafe { MLModel::modelWithContentsOfURL_configuration_error(&compiled, &configuration) };
        match model {
            Ok(model) => Ok(Loaded { model: Mutex::new(Model(model)), folder }),
            Err(e) => {
                let _ = std::fs::remove_dir_all(&folder);
                Err(fault("does not load the model", &e))
            }
        }
    }
}

impl LoadedPackage for Loaded {
    fn predict(&self, inputs: &[Feature], given: &[Vec<u8>], outputs: &[Feature]) -> Result<Vec<Vec<u8>>> {
        let names: Vec<Retained<NSString>> = inputs.iter().map(|f| NSString::from_str(&f.name)).collect();
        let mut values: Vec<Retained<AnyObject>> = Vec::with_capacity(inputs.len());
        for (feature, bytes) in inputs.iter().zip(given) {
            let array = array(feature, bytes)?;
            // SAFETY: the array is a whole one.
            let value = unsafe { MLFeatureValue::featureValueWithMultiArray(&array) };
            values.push(Retained::into_super(Retained::into_super(value)));
        }
        let keys: Vec<&NSString> = names.iter().map(|name| &**name).collect();
        let dictionary = NSDictionary::from_retained_objects(&keys, &values);
        // SAFETY: the values are `MLFeatureValue`s, as the call asks.
        let provider = unsafe {
            MLDictionaryFeatureProvider::initWithDictionary_error(
                MLDictionaryFeatureProvider::alloc(),
                &dictionary,
            )
        };
        let provider = provider.map_err(|e| fault("does not take the inputs", &e))?;
        let provider: &ProtocolObject<dyn MLFeatureProvider> = ProtocolObject::from_ref(&*provider);
        let model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the model is loaded, and no other thread uses it.
        let result = unsafe { model.0.predictionFromFeatures_error(provider) };
        let result = result.map_err(|e| fault("does not run the model", &e))?;
        outputs.iter().map(|feature| output(&result, feature)).collect()
    }
}

fn array(feature: &Feature, bytes: &[u8]) -> Result<Retained<MLMultiArray>> {
    let shape: Vec<Retained<NSNumber>> = feature.dims.iter().map(|&d| NSNumber::new_usize(d)).collect();
    let shape = NSArray::from_retained_slice(&shape);
    // SAFETY: a shape of numbers, and a type that Core ML has.
    let made = unsafe {
        MLMultiArray::initWithShape_dataType_error(MLMultiArray::alloc(), &shape, data_type(feature.dtype))
    };
    let made = made.map_err(|e| fault("does not make an array", &e))?;
    // SAFETY: properties of a whole array.
    let (count, strides) = unsafe { (made.count(), made.strides()) };
    if usize::try_from(count).ok().and_then(|n| n.checked_mul(feature.dtype.size_bytes()))
        != Some(bytes.len())
    {
        return Err(internal("an input of another size"));
    }
    let mut dense = 1;
    for (&d, stride) in feature.dims.iter().zip(strides.iter().collect::<Vec<_>>()).rev() {
        if d != 1 && stride.as_usize() != dense {
            return Err(internal("an array that is not contiguous"));
        }
        dense *= d;
    }
    // SAFETY: the array has as many bytes, one after the other, as was checked above; nobody else has it yet.
    #[allow(deprecated)]
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), made.dataPointer().as_ptr().cast::<u8>(), bytes.len());
    }
    Ok(made)
}

fn data_type(dtype: DType) -> MLMultiArrayDataType {
    match dtype {
        DType::F16 => MLMultiArrayDataType::Float16,
        DType::I32 => MLMultiArrayDataType::Int32,
        _ => MLMultiArrayDataType::Float32,
    }
}

/// The row-major bytes of an output, whose elements may be anywhere in its memory.
fn output(result: &ProtocolObject<dyn MLFeatureProvider>, feature: &Feature) -> Result<Vec<u8>> {
    // SAFETY: a name asks for a value, or nothing.
    let value = unsafe { result.featureValueForName(&NSString::from_str(&feature.name)) };
    // SAFETY: of a value that is no array it gives nothing.
    let array = value.and_then(|value| unsafe { value.multiArrayValue() });
    let array = array.ok_or_else(|| internal("an output is missing"))?;
    let numbers = |list: Retained<NSArray<NSNumber>>| list.iter().map(|n| n.as_isize()).collect::<Vec<_>>();
    // SAFETY: properties of a whole array.
    let (shape, strides, dtype) =
        unsafe { (numbers(array.shape()), numbers(array.strides()), array.dataType()) };
    let expected: Vec<isize> = feature.dims.iter().map(|&d| d as isize).collect();
    if shape != expected || strides.len() != shape.len() || dtype != data_type(feature.dtype) {
        return Err(internal("an output of another type"));
    }
    if strides.iter().any(|&stride| stride < 0) {
        return Err(internal("an output that runs backwards"));
    }
    let size = feature.dtype.size_bytes();
    let mut places = vec![0usize];
    for (&count, &stride) in shape.iter().zip(&strides) {
        places = places
            .iter()
            .flat_map(|&base| (0..count as usize).map(move |i| base + i * stride as usize))
            .collect();
    }
    let mut bytes = Vec::with_capacity(places.len() * size);
    // SAFETY: Core ML promises that the element of each index is at the sum of index times stride, which these places are; the array lives
    // until the end of this function and nobody writes to it.
    #[allow(deprecated)]
    unsafe {
        let start = array.dataPointer().as_ptr().cast::<u8>();
        for place in places {
            bytes.extend_from_slice(std::slice::from_raw_parts(start.add(place * size), size));
        }
    }
    Ok(bytes)
}
