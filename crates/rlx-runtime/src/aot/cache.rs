//! The [`AotCache`]: compiled modules on disk, keyed by name and by everything that their code depends on.

use std::path::{Path, PathBuf};

use rlx_driver::Device;
use rlx_ir::files::{cache_dir, check_own, make_own, parse_size};
use rlx_ir::sort::sort_by_key;
use rlx_ir::{ConstData, DimBinding, Error, ErrorKind, Graph, GraphModule, HirModule, LirModule, Progress};
use rlx_opt::{CompileOptions, CompileResult};

use super::artefact::{Artefact, Contents, found};
use super::entries::{self, CacheEntry};
use super::error::AotCacheError;
use super::key::{Key, bound};
use super::layout::{self, ArtefactTarget, Digest, Parts};
use super::module;
use super::origins::OriginsRecord;
use super::save::NewArtefact;
use super::tensors::{NewTensor, Role, table};
use crate::compiled::CompiledGraph;
use crate::session::Session;
use crate::stages::try_pipeline_for;

type Result<T, E = AotCacheError> = std::result::Result<T, E>;

/// Compiled modules on disk.
///
/// The key of an entry is the caller's name and a hash of everything that its code depends on: the graph with the shapes of its
/// weights, the binding, device, driver and instruction set, the options, the version of RLX and of the format. An entry
/// with another key is never used: a changed graph with an old name is compiled again. Entries are written to a
/// temporary file and renamed, so any number of processes may share a cache; one that is damaged is compiled again with
/// a warning. When the cache exceeds its limit, the least recently used entries are removed.
///
/// Its folder must belong to the user (or root) and must not be writable by others, because its contents are trusted: from
/// any other folder no entry is read, and writing one is an error.
///
/// ```
/// use rlx_ir::{DType, Graph, Shape, op::Activation};
/// use rlx_runtime::{AotCache, CompileOptions, Device};
/// let mut g = Graph::new("relu");
/// let x = g.input("x", Shape::new(&[2], DType::F32));
/// let y = g.activation(Activation::Relu, x, Shape::new(&[2], DType::F32));
/// g.set_outputs(vec![y]);
/// let root = std::env::temp_dir().join(format!("rlx-aot-{}", std::process::id()));
/// let cache = AotCache::new(&root);
/// let options = CompileOptions::default();
/// for _ in 0..2 {
///     let mut relu = cache.compile_graph_cached("relu", Device::Cpu, g.clone(), &options)?;
///     assert_eq!(relu.run(&[("x", &[-1.0, 2.0])]), [[0.0, 2.0]]);
/// }
/// assert!(cache.contains("relu"));
/// # std::fs::remove_dir_all(root).unwrap();
/// # Ok::<(), rlx_runtime::AotCacheError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AotCache {
    root: PathBuf,
    limit: u64,
}

fn io(e: Error) -> AotCacheError {
    AotCacheError::Io(e)
}

fn store(e: Error) -> AotCacheError {
    if e.kind() == ErrorKind::Io { AotCacheError::Io(e) } else { AotCacheError::Store(e) }
}

fn compile(e: Error) -> AotCacheError {
    AotCacheError::Compile(e.into())
}

impl AotCache {
    /// The default limit of a cache: 16 GiB.
    pub const DEFAULT_LIMIT: u64 = 16 << 30;

    /// A cache in the folder `root`, which is made when the first entry is written.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("rlx-doc-{}-new", std::process::id()));
    /// # use rlx_runtime::*;
    /// let cache = AotCache::new(&folder);
    /// assert!(!cache.contains("model"));
    /// ```
    pub fn new(root: impl Into<PathBuf>) -> Self {
        AotCache { root: root.into(), limit: Self::DEFAULT_LIMIT }
    }

    /// The user's cache: the folder `aot` in `RLX_CACHE_DIR`, or in the folder `rlx` of the user's cache folder; with
    /// at most `RLX_CACHE_LIMIT` bytes (`800M`, `8G`).
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an invalid limit, and if there is no cache folder.
    pub fn from_env() -> rlx_ir::Result<Self> {
        let cache = Self::new(cache_dir()?.join("aot"));
        match std::env::var("RLX_CACHE_LIMIT") {
            Ok(text) if !text.trim().is_empty() => {
                let limit = parse_size(text.trim()).ok_or_else(|| {
                    let message =
                        format!("RLX_CACHE_LIMIT: {text:?} is not a size; write bytes, or 800M, 8G");
                    Error::new(ErrorKind::Config, message)
                })?;
                Ok(cache.with_limit(limit))
            }
            _ => Ok(cache),
        }
    }

    /// The same cache with at most this many bytes, of which the entry written last may take more.
    pub fn with_limit(self, bytes: u64) -> Self {
        AotCache { limit: bytes, ..self }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Stores a module under `key` alone, replacing an existing one.
    ///
    /// # Errors
    /// A module that cannot be stored, or a folder that cannot be written.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("rlx-doc-{}-lir", std::process::id()));
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// let cache = AotCache::new(&folder);
    /// cache.put_lir("sum", compiled.lir())?;
    /// assert_eq!(cache.get_lir("sum")?.name, compiled.lir().name);
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok::<(), AotCacheError>(())
    /// ```
    pub fn put_lir(&self, key: &str, lir: &LirModule) -> Result<()> {
        self.write_lir(key, &Self::own_digest(key), Self::any_target(), lir, Vec::new())
    }

    /// The module stored under `key` by [`AotCache::put_lir`], or else the only compiled one of that name. It was
    /// made for some device: compiling it for another is an error there.
    ///
    /// # Errors
    /// [`AotCacheError::Missing`] when there is none (or several compiled ones), [`AotCacheError::Damaged`].
    pub fn get_lir(&self, key: &str) -> Result<LirModule> {
        let missing = |why: String| {
            let message = format!("the cache in {} has {why} {key:?}", self.root.display());
            AotCacheError::Missing(Error::new(ErrorKind::Io, message))
        };
        let own = entries::path_of(&self.root, key, &Self::own_digest(key));
        check_own(&self.root).map_err(io)?;
        let path = match (own.is_file(), entries::of_name(&self.root, key).map_err(io)?.as_slice()) {
            (true, _) => own,
            (false, [one]) => one.clone(),
            (false, []) => return Err(missing("no entry".to_owned())),
            (false, several) => {
                return Err(missing(format!("{} entries, none put by itself, called", several.len())));
            }
        };
        let artefact = Artefact::open(&path).map_err(|e| match e.kind() {
            ErrorKind::Io => missing("no entry".to_owned()),
            _ => AotCacheError::Damaged(e),
        })?;
        if artefact.name() != key {
            return Err(missing("an entry of another name where it keeps".to_owned()));
        }
        entries::touch(&path);
        artefact.lir().map_err(AotCacheError::Damaged)
    }

    /// Whether there is an entry of this name that opens: put by itself, or compiled for any device and options.
    pub fn contains(&self, key: &str) -> bool {
        let of_name = entries::of_name(&self.root, key).unwrap_or_default();
        of_name.iter().any(|path| Artefact::open(path).is_ok_and(|a| a.name() == key))
    }

    /// Compiles a graph, or takes what an earlier call with the same graph, device and options compiled. Parameters
    /// are to be set, as after [`Session::compile`].
    ///
    /// # Errors
    /// What compiling reports, or an entry that cannot be written.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("rlx-doc-{}-graph", std::process::id()));
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// let (cache, options) = (AotCache::new(&folder), CompileOptions::new());
    /// let mut compiled = cache.compile_graph_cached("sum", Device::Cpu, g, &options)?;
    /// compiled.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(compiled.run(&[("x", &[1.0, 2.0])]), [[11.0, 22.0]]);
    /// assert!(cache.contains("sum"));
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok::<(), AotCacheError>(())
    /// ```
    pub fn compile_graph_cached(
        &self,
        key: &str,
        device: Device,
        graph: Graph,
        options: &CompileOptions,
    ) -> Result<CompiledGraph> {
        let session = Session::try_new(device).map_err(compile)?;
        let target = session.artefact_target(options).map_err(compile)?;
        let compiler = session.target(options).map_err(compile)?;
        let digest = Key::new("graph", &target).graph(&graph, &*compiler).digest();
        self.lir_or(key, &digest, &session, target, options, || {
            try_pipeline_for(device, options).and_then(|p| p.compile(&graph)).map_err(compile)
        })
    }

    /// As [`AotCache::compile_graph_cached`], for a model of blocks.
    ///
    /// # Errors
    /// A block that does not fit, or as [`AotCache::compile_graph_cached`].
    pub fn compile_hir_cached(
        &self,
        key: &str,
        device: Device,
        hir: HirModule,
        options: &CompileOptions,
    ) -> Result<CompiledGraph> {
        let graph = GraphModule::from_hir(hir).into_graph()?;
        self.compile_graph_cached(key, device, graph, options)
    }

    /// Specialises a template for fixed dimensions, or takes what an earlier call with the same template, binding,
    /// device and options made. The binding wins over that of `options`.
    ///
    /// # Errors
    /// As [`AotCache::compile_graph_cached`].
    pub fn specialize_cached(
        &self,
        base: &str,
        binding: &DimBinding,
        device: Device,
        template: &CompileResult,
        options: &CompileOptions,
    ) -> Result<CompiledGraph> {
        template.check_options(options).map_err(compile)?;
        // Dimensions that the template was compiled for are fixed already.
        let sizes = template.sizes(binding);
        self.specialized(base, &[], &sizes, device, &template.source, options, || {
            let pipeline = try_pipeline_for(device, options).map_err(compile)?;
            pipeline.try_specialize(template, binding).map_err(compile)
        })
    }

    /// The module of `graph` under `binding` as an executable, no parameter set; `make` makes it where the cache does
    /// not have it.
    #[allow(clippy::too_many_arguments, reason = "all of them decide which entry it is")]
    pub(crate) fn specialized(
        &self,
        base: &str,
        parts: &[&[u8]],
        binding: &DimBinding,
        device: Device,
        graph: &Graph,
        options: &CompileOptions,
        make: impl FnOnce() -> Result<CompileResult>,
    ) -> Result<CompiledGraph> {
        let session = Session::try_new(device).map_err(compile)?;
        let target = session.artefact_target(&bound(options, binding)).map_err(compile)?;
        let compiler = session.target(options).map_err(compile)?;
        let key = Key::new("variant", &target).graph(graph, &*compiler);
        let digest = parts.iter().fold(key, |key, part| key.part(part)).digest();
        self.lir_or(base, &digest, &session, target, options, make)
    }

    /// The entry's module as an executable, or that of what `make` makes, which is stored.
    fn lir_or(
        &self,
        name: &str,
        digest: &Digest,
        session: &Session,
        target: ArtefactTarget,
        options: &CompileOptions,
        make: impl FnOnce() -> Result<CompileResult>,
    ) -> Result<CompiledGraph> {
        let stored = self.open(name, digest, &target).and_then(|artefact| {
            let compiled = session.compile_stored(&artefact, options, &Progress::none());
            compiled.map_err(|e| warn(artefact.path(), &e)).ok()
        });
        match stored {
            Some(compiled) => Ok(compiled),
            None => {
                let compiled = session.compile_result(make()?, options).map_err(compile)?;
                let code = compiled.code().map_err(compile)?;
                let found = found(compiled.tuning(), code).map_err(store)?;
                self.write_lir(name, digest, target, compiled.lir(), found)?;
                Ok(compiled)
            }
        }
    }

    /// A whole artefact (see [`Session::load`]) that was stored under `name` and the same `parts`, on this machine and
    /// with these options. `parts` say what it was made from: the identity of a model's files, say.
    pub fn get_artefact(
        &self,
        name: &str,
        parts: &[&str],
        session: &Session,
        options: &CompileOptions,
    ) -> Option<Artefact> {
        let target = session.artefact_target(options).ok()?;
        self.open(name, &model_digest(parts, &target), &target)
    }

    /// Stores a whole artefact.
    ///
    /// # Errors
    /// As [`Session::save`].
    pub fn put_artefact(
        &self,
        name: &str,
        parts: &[&str],
        session: &Session,
        compiled: &mut CompiledGraph,
        new: NewArtefact<'_>,
    ) -> Result<()> {
        self.put_artefact_with_progress(name, parts, session, compiled, new, &Progress::none())
    }

    /// As [`AotCache::put_artefact`], watched: stopped before the entry is there, it leaves none.
    ///
    /// # Errors
    /// As [`Session::save`]; [`ErrorKind::Cancelled`].
    pub fn put_artefact_with_progress(
        &self,
        name: &str,
        parts: &[&str],
        session: &Session,
        compiled: &mut CompiledGraph,
        new: NewArtefact<'_>,
        progress: &Progress,
    ) -> Result<()> {
        self.put_artefact_confirmed(
            parts,
            session,
            compiled,
            NewArtefact { name: name.to_owned(), ..new },
            progress,
            &|| Ok(()),
        )
    }

    /// As [`AotCache::put_artefact_with_progress`], under the artefact's own name. When all is written, `confirm` is asked
    /// whether the entry is still what `parts` say: files that were read meanwhile may have changed. Where it reports an
    /// error, there is no entry.
    ///
    /// # Errors
    /// As [`AotCache::put_artefact_with_progress`]; what `confirm` reports.
    pub fn put_artefact_confirmed(
        &self,
        parts: &[&str],
        session: &Session,
        compiled: &mut CompiledGraph,
        new: NewArtefact<'_>,
        progress: &Progress,
        confirm: &dyn Fn() -> rlx_ir::Result<()>,
    ) -> Result<()> {
        let target = session.artefact_target(&new.options).map_err(compile)?;
        let digest = model_digest(parts, &target);
        self.write(&new.name, &digest, |path| {
            session.save_keyed(path, compiled, &new, digest, progress, confirm)
        })
    }

    /// All entries, the most recently used first.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn entries(&self) -> Result<Vec<CacheEntry>> {
        entries::list(&self.root).map_err(io)
    }

    /// Checks every byte of an entry.
    ///
    /// # Errors
    /// [`AotCacheError::Damaged`] naming the part.
    pub fn verify_entry(&self, entry: &CacheEntry) -> Result<()> {
        Artefact::open(&entry.path).and_then(|a| a.verify()).map_err(AotCacheError::Damaged)
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn remove_entry(&self, entry: &CacheEntry) -> Result<()> {
        entries::remove(&entry.path).map_err(io)
    }

    /// Removes all entries; says how many.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn clear(&self) -> Result<usize> {
        entries::clear(&self.root).map_err(io)
    }

    /// The entry, if it is there, whole, and what its name says.
    fn open(&self, name: &str, digest: &Digest, target: &ArtefactTarget) -> Option<Artefact> {
        let path = entries::path_of(&self.root, name, digest);
        if !path.exists() {
            return None;
        }
        if let Err(e) = check_own(&self.root) {
            warn(&path, &e);
            return None;
        }
        let foreign = || Error::new(ErrorKind::Unsupported, "it is an entry with another key");
        let found = Artefact::open(&path).and_then(|artefact| {
            let own = artefact.key() == digest && artefact.name() == name && artefact.target() == target;
            if own { Ok(artefact) } else { Err(foreign()) }
        });
        match found {
            Ok(artefact) => {
                entries::touch(&path);
                Some(artefact)
            }
            // It went between the two looks.
            Err(e) if e.kind() == ErrorKind::Io => None,
            Err(e) => {
                warn(&path, &e);
                None
            }
        }
    }

    fn write_lir(
        &self,
        name: &str,
        digest: &Digest,
        target: ArtefactTarget,
        lir: &LirModule,
        tuning: Vec<u8>,
    ) -> Result<()> {
        let (module, blobs) = module::encode(lir).map_err(store)?;
        let mut blobs: Vec<(&String, &ConstData)> = blobs.iter().collect();
        sort_by_key(&mut blobs, |(hash, _)| *hash);
        let tensor = |(hash, data)| NewTensor::constant(Role::Blob(String::clone(hash)), data);
        let tensors: Vec<NewTensor<'_>> = blobs.into_iter().map(tensor).collect();
        let source_origins = OriginsRecord::default();
        let contents = Contents { module, outputs: Vec::new(), source: None, source_origins };
        let parts = Parts {
            target,
            name: name.to_owned(),
            key: *digest,
            module: super::write_record(&contents).map_err(store)?,
            table: table(&tensors, &Progress::none()).map_err(store)?,
            tensors: tensors.iter().map(|t| t.bytes).collect(),
            tuning,
        };
        self.write(name, digest, |path| layout::write(path, &parts, &Progress::none(), &|| Ok(())))
    }

    fn write(
        &self,
        name: &str,
        digest: &Digest,
        write: impl FnOnce(&Path) -> rlx_ir::Result<()>,
    ) -> Result<()> {
        make_own(&self.root).map_err(io)?;
        let path = entries::path_of(&self.root, name, digest);
        write(&path).map_err(store)?;
        entries::evict(&self.root, self.limit, &path).map_err(io)
    }

    /// The digest of what [`AotCache::put_lir`] stores: the caller's key is all there is.
    fn own_digest(key: &str) -> Digest {
        Key::new("put", &Self::any_target()).part(key.as_bytes()).digest()
    }

    fn any_target() -> ArtefactTarget {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let [device, machine, precision, options] = Default::default();
        ArtefactTarget { device, machine, version, precision, options }
    }
}

fn model_digest(parts: &[&str], target: &ArtefactTarget) -> Digest {
    parts.iter().fold(Key::new("model", target), |key, part| key.part(part.as_bytes())).digest()
}

/// Says that an entry is not used.
fn warn(path: &Path, e: &Error) {
    tracing::warn!(path = %path.display(), error = %e, "a cache entry is not used; compiling again");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_people_write_them() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("800M", 800 << 20), ("8g", 8 << 30), ("2 T", 2 << 40)]
        {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "G", "-1", "8GB", "1.5G", "99999999999T", "é"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }
}
