//! [`BucketedCompileCache`]: one compiled graph for each range of sizes.

use std::ops::Range;

use rlx_driver::Device;
use rlx_ir::{Error, ErrorKind, Graph, Result, WeightStore, sym};
use rlx_opt::CompileOptions;
use rlx_select::or_panic;

use super::rows::{try_pad_rows, try_slice_rows};
use crate::compiled::{CompiledGraph, ParamBook};
use crate::error::CompileError;
use crate::session::Session;
/// The result of a padded run: the bucket's upper size, and the outputs sliced to the actual rows.
pub type PaddedRun = (u64, Vec<Vec<f32>>);

/// One compiled graph for each range of sizes, compiled when a size of the range is first used. A bucket's graph is
/// built for its upper size, the range's end − 1; smaller inputs are padded with rows of zeros.
///
/// A graph with a dynamic number of rows ([`sym::ROWS`], else [`sym::SEQ`]) computes the actual rows only, exactly. One
/// with a fixed number of rows computes the padding rows too, so no row may depend on another.
/// Parameters that are set on one bucket's graph carry over to buckets made later.
///
/// ```
/// use rlx_ir::{DType, Dim, Graph, Shape, op::Activation, sym};
/// use rlx_runtime::{BucketedCompileCache, Device};
/// let negate = |_upper: u64| {
///     let rows = Shape::from_dims(&[Dim::Dynamic(sym::ROWS), Dim::Static(2)], DType::F32);
///     let mut g = Graph::new("negate");
///     let x = g.input("x", rows.clone());
///     let y = g.activation(Activation::Neg, x, rows);
///     g.set_outputs(vec![y]);
///     g
/// };
/// let mut cache = BucketedCompileCache::power_of_two_ladder(Device::Cpu, 1, 8);
/// let (upper, outputs) = cache.run_padded(3, 3, negate, &[("x", &[1.0; 6], 2)], &[2]).unwrap();
/// assert_eq!((upper, &outputs[0][..]), (4, &[-1.0; 6][..]));
/// assert!(cache.run_padded(9, 9, negate, &[("x", &[1.0; 18], 2)], &[2]).is_none());
/// ```
#[derive(Debug)]
pub struct BucketedCompileCache {
    device: Device,
    buckets: Vec<Bucket>,
    options: Option<CompileOptions>,
    book: ParamBook,
}

#[derive(Debug)]
struct Bucket {
    sizes: Range<u64>,
    graph: Option<CompiledGraph>,
}

impl BucketedCompileCache {
    /// A cache with these ranges. If ranges overlap, the first one is used; an empty range contains no size.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let rows = |n: u64| {
    /// #     let mut g = Graph::new("rows");
    /// #     let x = g.input("x", Shape::new(&[n as usize, 1], DType::F32));
    /// #     let y = g.relu(x);
    /// #     g.set_outputs(vec![y]);
    /// #     g
    /// # };
    /// let mut cache = BucketedCompileCache::new(Device::Cpu, vec![1..9, 9..17]);
    /// assert_eq!(cache.get_or_compile(3, rows).map(|(upper, _)| upper), Some(8));
    /// assert!(cache.get_or_compile(17, rows).is_none());
    /// ```
    pub fn new(device: Device, buckets: Vec<Range<u64>>) -> Self {
        let buckets = buckets.into_iter().map(|sizes| Bucket { sizes, graph: None }).collect();
        BucketedCompileCache { device, buckets, options: None, book: ParamBook::default() }
    }

    /// A cache whose upper sizes are the powers of two from `min`'s on, the last one `max`: sizes of 3 to 20
    /// go to buckets of 4, 8, 16 and 20. No sizes when `max` is less than `min`.
    ///
    /// ```
    /// use rlx_runtime::{BucketedCompileCache, Device};
    /// let cache = BucketedCompileCache::power_of_two_ladder(Device::Cpu, 3, 20);
    /// assert_eq!([3, 4, 5, 16, 20].map(|n| cache.upper(n)), [4, 4, 8, 16, 20].map(Some));
    /// assert_eq!([2, 21].map(|n| cache.upper(n)), [None, None]);
    /// ```
    pub fn power_of_two_ladder(device: Device, min: u64, max: u64) -> Self {
        // A range's end is one more than its last size.
        let max = max.min(u64::MAX - 1);
        let (mut start, mut buckets) = (min, Vec::new());
        while start <= max {
            let upper = start.checked_next_power_of_two().map_or(max, |upper| upper.min(max));
            buckets.push(start..upper + 1);
            start = upper + 1;
        }
        Self::new(device, buckets)
    }

    /// The same cache with these options instead of the environment's. Graphs that were compiled with others are dropped;
    /// the values of their parameters carry over.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let rows = |n: u64| {
    /// #     let mut g = Graph::new("rows");
    /// #     let x = g.input("x", Shape::new(&[n as usize, 1], DType::F32));
    /// #     let y = g.relu(x);
    /// #     g.set_outputs(vec![y]);
    /// #     g
    /// # };
    /// let mut cache = BucketedCompileCache::power_of_two_ladder(Device::Cpu, 1, 64);
    /// cache.get_or_compile(3, rows);
    /// assert_eq!(cache.len(), 1);
    /// assert!(cache.with_options(CompileOptions::new().numerics(Numerics::Strict)).is_empty());
    /// ```
    pub fn with_options(mut self, options: CompileOptions) -> Self {
        let same = self.options.as_ref().is_some_and(|known| known.compiles_same_module(&options));
        if !same {
            self.buckets.iter_mut().for_each(|bucket| bucket.graph = None);
        }
        BucketedCompileCache { options: Some(options), ..self }
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The ranges.
    pub fn buckets(&self) -> impl Iterator<Item = &Range<u64>> {
        self.buckets.iter().map(|b| &b.sizes)
    }

    /// The upper size of the bucket that takes `key`.
    pub fn upper(&self, key: u64) -> Option<u64> {
        self.bucket(key).map(|at| self.buckets[at].sizes.end - 1)
    }

    /// How many graphs are compiled.
    pub fn len(&self) -> usize {
        self.buckets.iter().filter(|b| b.graph.is_some()).count()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn bucket(&self, key: u64) -> Option<usize> {
        self.buckets.iter().position(|b| b.sizes.contains(&key))
    }

    /// The upper size of the bucket that takes `key`, and its graph, which `build` makes for that size if it does
    /// not exist. `None` outside every bucket.
    ///
    /// # Panics
    /// If [`BucketedCompileCache::try_get_or_compile`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let rows = |n: u64| {
    /// #     let mut g = Graph::new("rows");
    /// #     let x = g.input("x", Shape::new(&[n as usize, 1], DType::F32));
    /// #     let y = g.relu(x);
    /// #     g.set_outputs(vec![y]);
    /// #     g
    /// # };
    /// let mut cache = BucketedCompileCache::power_of_two_ladder(Device::Cpu, 1, 64);
    /// let (upper, compiled) = cache.get_or_compile(3, rows).unwrap();
    /// assert_eq!((upper, compiled.inputs().len()), (4, 1));
    /// ```
    #[track_caller]
    pub fn get_or_compile<F>(&mut self, key: u64, build: F) -> Option<(u64, &mut CompiledGraph)>
    where
        F: FnOnce(u64) -> Graph,
    {
        or_panic(self.try_get_or_compile(key, build))
    }

    /// As [`BucketedCompileCache::get_or_compile`].
    ///
    /// # Errors
    /// As [`Session::try_compile`].
    pub fn try_get_or_compile<F>(
        &mut self,
        key: u64,
        build: F,
    ) -> Result<Option<(u64, &mut CompiledGraph)>, CompileError>
    where
        F: FnOnce(u64) -> Graph,
    {
        let Some(at) = self.bucket(key) else { return Ok(None) };
        let upper = self.buckets[at].sizes.end - 1;
        if self.buckets[at].graph.is_none() {
            let options = match &self.options {
                Some(options) => options.clone(),
                None => CompileOptions::try_new()?,
            };
            // All buckets use the same options, even if the environment changes.
            let options = self.options.insert(options).clone().with_shared_arena(true);
            let mut graph = Session::try_new(self.device)?.try_compile_with(build(upper), &options)?;
            graph.share_params(&self.book)?;
            self.buckets[at].graph = Some(graph);
        }
        Ok(self.buckets[at].graph.as_mut().map(|graph| (upper, graph)))
    }

    /// Runs the bucket that takes `key` on `actual_rows` rows; returns its upper size and the outputs' actual rows.
    /// Each input is its name, its data, and how many elements a row has; each output likewise has an entry in
    /// `output_inners`. With 0, a tensor is passed unchanged, without padding. `None` outside every bucket.
    ///
    /// # Panics
    /// If [`BucketedCompileCache::try_run_padded`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let rows = |n: u64| {
    /// #     let mut g = Graph::new("rows");
    /// #     let x = g.input("x", Shape::new(&[n as usize, 1], DType::F32));
    /// #     let y = g.relu(x);
    /// #     g.set_outputs(vec![y]);
    /// #     g
    /// # };
    /// let mut cache = BucketedCompileCache::power_of_two_ladder(Device::Cpu, 1, 64);
    /// let outputs = cache.run_padded(3, 3, rows, &[("x", &[1.0, -2.0, 3.0], 1)], &[1]);
    /// assert_eq!(outputs, Some((4, vec![vec![1.0, 0.0, 3.0]])));
    /// ```
    #[track_caller]
    pub fn run_padded<F>(
        &mut self,
        key: u64,
        actual_rows: usize,
        build: F,
        inputs: &[(&str, &[f32], usize)],
        output_inners: &[usize],
    ) -> Option<(u64, Vec<Vec<f32>>)>
    where
        F: FnOnce(u64) -> Graph,
    {
        or_panic(self.try_run_padded(key, actual_rows, build, inputs, output_inners))
    }

    /// As [`BucketedCompileCache::run_padded`].
    ///
    /// # Errors
    /// As [`BucketedCompileCache::try_get_or_compile`] and [`CompiledGraph::try_run`]; data that is not that many
    /// rows, more rows than the bucket has, an output without an entry in `output_inners`.
    pub fn try_run_padded<F>(
        &mut self,
        key: u64,
        actual_rows: usize,
        build: F,
        inputs: &[(&str, &[f32], usize)],
        output_inners: &[usize],
    ) -> Result<Option<PaddedRun>, CompileError>
    where
        F: FnOnce(u64) -> Graph,
    {
        let Some((upper, graph)) = self.try_get_or_compile(key, build)? else { return Ok(None) };
        let rows = usize::try_from(upper).unwrap_or(usize::MAX);
        let mut padded = Vec::with_capacity(inputs.len());
        for &(name, data, inner) in inputs {
            let whole =
                if inner == 0 { Ok(data.to_vec()) } else { try_pad_rows(data, actual_rows, rows, inner) };
            padded.push((name, whole.map_err(|e| named("input", name, &e))?));
        }
        if output_inners.len() != graph.outputs().len() {
            let (given, has) = (output_inners.len(), graph.outputs().len());
            let message = format!("row sizes were given for {given} outputs, the graph has {has}");
            return Err(Error::new(ErrorKind::Binding, message).into());
        }
        let open_rows = [sym::ROWS, sym::SEQ].iter().any(|s| graph.lir().symbols.contains(s));
        graph.try_set_active_extent(open_rows.then_some((actual_rows, rows)))?;
        let views: Vec<(&str, &[f32])> = padded.iter().map(|(name, data)| (*name, &data[..])).collect();
        let ran = graph.try_run(&views);
        // The caller's own runs of the bucket's graph are on all rows.
        graph.try_set_active_extent(None)?;
        let outputs = ran?.into_iter().zip(output_inners).enumerate().map(|(i, (whole, &inner))| {
            if inner == 0 {
                return Ok(whole);
            }
            try_slice_rows(&whole, actual_rows, inner)
                .map_err(|e| named("output", &graph.outputs()[i].name, &e))
        });
        Ok(Some((upper, outputs.collect::<Result<_>>()?)))
    }

    /// Sets the parameters that `weights` has by name, in all existing and later buckets.
    ///
    /// # Errors
    /// As [`CompiledGraph::try_set_weight`].
    pub fn try_set_weights(&mut self, weights: &WeightStore) -> Result<()> {
        self.book.note_all(weights);
        let graphs = self.buckets.iter_mut().filter_map(|b| b.graph.as_mut());
        graphs.into_iter().try_for_each(|graph| graph.try_set_weights(weights).map(|_| ()))
    }
}

fn named(what: &str, name: &str, e: &Error) -> Error {
    Error::new(e.kind(), format!("{what} {name:?}: {}", e.message())).with_source(e.clone())
}
