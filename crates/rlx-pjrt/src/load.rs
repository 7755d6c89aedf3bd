//! Where a plugin is, and what to say where there is none.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use libloading::Library;
use rlx_driver::Device;
use rlx_ir::{Error, ErrorKind, Result};

use crate::api::{Function, Head, MAJOR, Nothing, Table};

/// The variable that names the plugin's file.
pub const PLUGIN: &str = "RLX_PJRT_PLUGIN";

const HINT: &str =
    "on a TPU's machine install libtpu (pip install libtpu), or name a PJRT plugin's file in RLX_PJRT_PLUGIN";

/// What is called of every plugin.
const NEEDED: &[Function] = &[
    Function::ErrorDestroy,
    Function::ErrorMessage,
    Function::ErrorGetCode,
    Function::PluginInitialize,
    Function::EventAwait,
    Function::EventDestroy,
    Function::ClientCreate,
    Function::ClientDestroy,
    Function::ClientAddressableDevices,
    Function::ClientCompile,
    Function::ClientBufferFromHostBuffer,
    Function::LoadedExecutableExecute,
    Function::LoadedExecutableDestroy,
    Function::BufferToHostBuffer,
    Function::BufferDestroy,
];

/// A plugin that was loaded and set up. It stays for the process, as threads of its own may run to the end.
pub(crate) struct Plugin {
    pub(crate) table: Table,
    pub(crate) path: PathBuf,
    _file: Library,
}

static LOADED: LazyLock<Mutex<Vec<Arc<Plugin>>>> = LazyLock::new(Mutex::default);

/// The plugin that the environment names, else those that are installed in usual places.
pub(crate) fn candidates() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os(PLUGIN).filter(|value| !value.is_empty()) {
        return vec![named.into()];
    }
    let mut found: Vec<PathBuf> =
        std::env::var_os("TPU_LIBRARY_PATH").map(PathBuf::from).into_iter().collect();
    let packages = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".local"));
    for root in packages.chain(home).chain([PathBuf::from("/usr/local"), PathBuf::from("/usr")]) {
        let versions = std::fs::read_dir(root.join("lib")).into_iter().flatten().flatten();
        for version in versions.filter(|entry| entry.file_name().to_string_lossy().starts_with("python3")) {
            let folders = ["site-packages", "dist-packages"].map(|folder| version.path().join(folder));
            found.extend(folders.map(|folder| folder.join("libtpu/libtpu.so")));
        }
    }
    found.retain(|path| path.exists());
    found.push("libtpu.so".into());
    found
}

/// An error of the device before it is there.
pub(crate) fn unavailable(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::DeviceUnavailable, message).with_device(Device::Tpu.name()).with_hint(HINT)
}

impl Plugin {
    /// The first of these files that loads, set up.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] naming what is missing and how to get it.
    pub(crate) fn load(files: &[PathBuf]) -> Result<Arc<Plugin>> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = files.iter().find_map(|file| loaded.iter().find(|plugin| plugin.path == *file)) {
            return Ok(Arc::clone(known));
        }
        let mut why = None;
        for path in files {
            // SAFETY: a plugin by the name that the user or its package gave it; what it runs at loading is its own set-up.
            match unsafe { Library::new(path) } {
                Ok(file) => {
                    let plugin = Arc::new(Plugin::of(file, path)?);
                    loaded.push(Arc::clone(&plugin));
                    return Ok(plugin);
                }
                Err(e) => why = Some((path, e.to_string())),
            }
        }
        Err(match why {
            Some((path, e)) if path.exists() => unavailable(format!("{} does not load: {e}", path.display())),
            Some((path, _)) => unavailable(format!("a PJRT plugin ({}) is missing", path.display())),
            None => unavailable("a PJRT plugin is missing"),
        })
    }

    fn of(file: Library, path: &Path) -> Result<Plugin> {
        let name = path.display();
        // SAFETY: the signature that the header declares.
        let get = unsafe { file.get::<unsafe extern "C" fn() -> *const Head>(b"GetPjrtApi") };
        let get = get.map_err(|_| unavailable(format!("{name} is no PJRT plugin: it has no GetPjrtApi")))?;
        // SAFETY: it takes nothing, and the library stays loaded as long as the table is used.
        let table = unsafe { Table::new(get()) };
        let table = table.ok_or_else(|| unavailable(format!("{name} gives no table of functions")))?;
        let (major, minor) = table.version();
        if major != MAJOR {
            return Err(unavailable(format!("{name} speaks PJRT {major}.{minor}, RLX speaks {MAJOR}.x")));
        }
        if let Some(function) = table.lacks(NEEDED) {
            return Err(unavailable(format!("{name} speaks PJRT {major}.{minor}, which has no {function}")));
        }
        // SAFETY: the arguments are those of the function, and nothing was called before.
        let ready = unsafe { table.call(Function::PluginInitialize, &mut Nothing::default()) };
        ready.map_err(|fault| unavailable(format!("{name} does not start: {}", fault.message)))?;
        tracing::debug!(plugin = %name, version = format!("{major}.{minor}"), "loaded a PJRT plugin");
        Ok(Plugin { table, path: path.to_owned(), _file: file })
    }
}
