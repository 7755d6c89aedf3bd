//! [`CompileCache`]: compiled graphs by key.

use std::collections::VecDeque;

use rlx_driver::Device;
use rlx_ir::{Error, ErrorKind, Graph, Result};
use rlx_opt::CompileOptions;
use rlx_select::or_panic;

use crate::compiled::CompiledGraph;
use crate::error::CompileError;
use crate::session::Session;
/// How many graphs [`CompileCache::new`] keeps.
const CAPACITY: usize = 8;

/// One compiled graph for each key (and options): first in, first out. The graphs are
/// independent of each other.
///
/// ```
/// use rlx_ir::{DType, Graph, Shape, op::Activation};
/// use rlx_runtime::{CompileCache, Device};
/// let relu = || {
///     let mut g = Graph::new("relu");
///     let x = g.input("x", Shape::new(&[2], DType::F32));
///     let y = g.activation(Activation::Relu, x, Shape::new(&[2], DType::F32));
///     g.set_outputs(vec![y]);
///     g
/// };
/// let mut cache = CompileCache::new(Device::Cpu);
/// assert_eq!(cache.get_or_compile(7, relu).run(&[("x", &[-1.0, 2.0])]), [[0.0, 2.0]]);
/// cache.get_or_compile(7, || unreachable!("it is there"));
/// assert!(cache.contains(7) && cache.len() == 1);
/// ```
#[derive(Debug)]
pub struct CompileCache {
    device: Device,
    capacity: usize,
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    key: u64,
    options: CompileOptions,
    graph: CompiledGraph,
}

impl Entry {
    fn is(&self, key: u64, options: &CompileOptions) -> bool {
        self.key == key && self.options.compiles_same_module(options)
    }
}

impl CompileCache {
    /// A cache of 8 graphs.
    pub fn new(device: Device) -> Self {
        Self::with_capacity(device, CAPACITY)
    }

    /// A cache of `capacity` graphs.
    ///
    /// # Panics
    /// For a capacity of 0; [`CompileCache::try_with_capacity`] reports it.
    #[track_caller]
    pub fn with_capacity(device: Device, capacity: usize) -> Self {
        or_panic(Self::try_with_capacity(device, capacity))
    }

    /// As [`CompileCache::with_capacity`].
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a capacity of 0.
    pub fn try_with_capacity(device: Device, capacity: usize) -> Result<Self> {
        if capacity == 0 {
            let message = "a cache of compiled graphs needs a capacity of at least 1";
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(CompileCache { device, capacity, entries: VecDeque::new() })
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// How many graphs there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there is a graph under `key`, whatever its options.
    pub fn contains(&self, key: u64) -> bool {
        self.entries.iter().any(|e| e.key == key)
    }

    /// The graph of `key`; `build` makes it if it does not exist.
    ///
    /// # Panics
    /// If [`CompileCache::try_get_or_compile`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// let mut cache = CompileCache::new(Device::Cpu);
    /// cache.get_or_compile(7, || g).set_param("w", &[10.0, 20.0]);
    /// let again = cache.get_or_compile(7, || unreachable!("it is there"));
    /// assert_eq!(again.run(&[("x", &[1.0, 2.0])]), [[11.0, 22.0]]);
    /// ```
    #[track_caller]
    pub fn get_or_compile<F>(&mut self, key: u64, build: F) -> &mut CompiledGraph
    where
        F: FnOnce() -> Graph,
    {
        or_panic(self.try_get_or_compile(key, build))
    }

    /// As [`CompileCache::get_or_compile`].
    ///
    /// # Errors
    /// As [`Session::try_compile`].
    pub fn try_get_or_compile<F>(&mut self, key: u64, build: F) -> Result<&mut CompiledGraph, CompileError>
    where
        F: FnOnce() -> Graph,
    {
        let options = CompileOptions::try_new()?;
        self.try_get_or_compile_with(key, build, &options)
    }

    /// The graph of `key` under `options`.
    ///
    /// # Errors
    /// As [`Session::try_compile`].
    pub fn try_get_or_compile_with<F>(
        &mut self,
        key: u64,
        build: F,
        options: &CompileOptions,
    ) -> Result<&mut CompiledGraph, CompileError>
    where
        F: FnOnce() -> Graph,
    {
        let at = match self.entries.iter().position(|e| e.is(key, options)) {
            Some(at) => at,
            None => {
                let graph = Session::try_new(self.device)?.try_compile_with(build(), options)?;
                if self.entries.len() >= self.capacity {
                    self.entries.pop_front();
                }
                self.entries.push_back(Entry { key, options: options.clone(), graph });
                self.entries.len() - 1
            }
        };
        Ok(&mut self.entries[at].graph)
    }
}
