//! The [`AotCache`]: compiled modules on disk, keyed by name and by everything that their code depends on.

use std::path::Path;

use rlx_artifact::{
    Artefact, ArtefactTarget, CacheEntry, Digest, EncodedModule, EntryStore, Key, Lookup, NewFile,
};
use rlx_backend::CodePart;
use rlx_backend::tuning::Tuning;
use rlx_driver::Device;
use rlx_ir::{DimBinding, Error, ErrorKind, Graph, GraphModule, HirModule, LirModule, Progress};
use rlx_opt::{CompileOptions, CompileResult};

use super::error::AotCacheError;
use super::save::NewArtefact;
use crate::compiled::CompiledGraph;
use crate::session::Session;
use crate::stages::try_pipeline_for;

type Result<T, E = AotCacheError> = std::result::Result<T, E>;

/// Compiled modules on disk.
///
/// The key of an entry is the caller's name and a hash of everything that its code depends on: the graph with the shapes of its
/// weights, the binding, device, driver and instruction set, the options, which measured variants have other bits, the version of RLX and of the format. An entry
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
    store: EntryStore,
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
    pub const DEFAULT_LIMIT: u64 = EntryStore::DEFAULT_LIMIT;

    /// A cache in the folder `root`, which is made when the first entry is written.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("rlx-doc-{}-new", std::process::id()));
    /// # use rlx_runtime::*;
    /// let cache = AotCache::new(&folder);
    /// assert!(!cache.contains("model"));
    /// ```
    pub fn new(root: impl Into<std::path::PathBuf>) -> Self {
        AotCache { store: EntryStore::new(root) }
    }

    /// The user's cache: the folder `aot` in `RLX_CACHE_DIR`, or in the folder `rlx` of the user's cache folder; with
    /// at most `RLX_CACHE_LIMIT` bytes (`800M`, `8G`).
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an invalid limit, and if there is no cache folder.
    pub fn from_env() -> rlx_ir::Result<Self> {
        EntryStore::from_env().map(|store| AotCache { store })
    }

    /// The same cache with at most this many bytes, of which the entry written last may take more.
    pub fn with_limit(self, bytes: u64) -> Self {
        AotCache { store: self.store.with_limit(bytes) }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        self.store.root()
    }

    /// Its limit in bytes.
    pub fn limit(&self) -> u64 {
        self.store.limit()
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
        self.write_lir(key, &Self::own_digest(key), Self::any_target(), lir, &Tuning::default(), Vec::new())
    }

    /// The module stored under `key` by [`AotCache::put_lir`], or else the only compiled one of that name. It was
    /// made for some device: compiling it for another is an error there.
    ///
    /// # Errors
    /// [`AotCacheError::Missing`] when there is none (or several compiled ones), [`AotCacheError::Damaged`].
    pub fn get_lir(&self, key: &str) -> Result<LirModule> {
        match self.store.find(key, &Self::own_digest(key)).map_err(io)? {
            Lookup::Found(artefact) => artefact.lir().map_err(AotCacheError::Damaged),
            Lookup::Damaged(e) => Err(AotCacheError::Damaged(e)),
            Lookup::Missing(why) => {
                let message = format!("the cache in {} has {why} {key:?}", self.root().display());
                Err(AotCacheError::Missing(Error::new(ErrorKind::Io, message)))
            }
        }
    }

    /// Whether there is an entry of this name that opens: put by itself, or compiled for any device and options.
    pub fn contains(&self, key: &str) -> bool {
        self.store.contains(key)
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
        let compiler = session.on().target(options).map_err(compile)?;
        let digest = || of_machine("graph", &session, &target, options).graph(&graph, &*compiler).digest();
        self.lir_or(key, &digest, (&session, &target), options, || {
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
        let compiler = session.on().target(options).map_err(compile)?;
        let digest = || {
            let key = of_machine("variant", &session, &target, options).graph(graph, &*compiler);
            parts.iter().fold(key, |key, part| key.part(part)).digest()
        };
        self.lir_or(base, &digest, (&session, &target), options, make)
    }

    /// The entry's module as an executable, or that of what `make` makes, which is stored. Measurements may change `digest` meanwhile.
    fn lir_or(
        &self,
        name: &str,
        digest: &dyn Fn() -> Digest,
        (session, target): (&Session, &ArtefactTarget),
        options: &CompileOptions,
        make: impl FnOnce() -> Result<CompileResult>,
    ) -> Result<CompiledGraph> {
        let stored = self.store.get(name, &digest(), target).and_then(|artefact| {
            let compiled = session.compile_stored(&artefact, options, &Progress::none());
            compiled.map_err(|e| EntryStore::not_used(artefact.path(), &e)).ok()
        });
        match stored {
            Some(compiled) => Ok(compiled),
            None => {
                let compiled = session.compile_result(make()?, options).map_err(compile)?;
                let code = compiled.code().map_err(compile)?;
                self.write_lir(name, &digest(), target.clone(), compiled.lir(), compiled.tuning(), code)?;
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
        self.store.get(name, &model_digest(parts, session, &target, options), &target)
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
        let digest = model_digest(parts, session, &target, &new.options);
        let save = |path: &Path| session.save_keyed(path, compiled, &new, digest, progress, confirm);
        self.store.put(&new.name, &digest, save).map_err(store)
    }

    /// All entries, the most recently used first.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn entries(&self) -> Result<Vec<CacheEntry>> {
        self.store.entries().map_err(io)
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
        self.store.remove(entry).map_err(io)
    }

    /// Removes all entries; says how many.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn clear(&self) -> Result<usize> {
        self.store.clear().map_err(io)
    }

    fn write_lir(
        &self,
        name: &str,
        key: &Digest,
        target: ArtefactTarget,
        lir: &LirModule,
        tuning: &Tuning,
        code: Vec<CodePart>,
    ) -> Result<()> {
        let module = EncodedModule::of(lir).map_err(store)?;
        let file = NewFile { code, ..NewFile::of_module(target, name, *key, module, tuning) };
        self.store.put(name, key, |path| file.write(path, &Progress::none(), &|| Ok(()))).map_err(store)
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

fn model_digest(
    parts: &[&str],
    session: &Session,
    target: &ArtefactTarget,
    options: &CompileOptions,
) -> Digest {
    let key = of_machine("model", session, target, options);
    parts.iter().fold(key, |key, part| key.part(part.as_bytes())).digest()
}

/// A key of an entry of this `kind` with all that its bits follow from besides what is computed: the target, and measurements that
/// changed how a step sums.
fn of_machine(kind: &str, session: &Session, target: &ArtefactTarget, options: &CompileOptions) -> Key {
    Key::new(kind, target).part(rlx_select::tuning::classes(session.on(), options).as_bytes())
}

/// The target's options with this binding.
fn bound(options: &CompileOptions, binding: &DimBinding) -> CompileOptions {
    CompileOptions { dim_binding: binding.clone(), ..options.clone() }
}
