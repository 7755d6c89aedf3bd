//! A [`RunRequest`]: all that can be said about one run. Every other form of `run` is a request of one line.

use std::time::Duration;

use rlx_backend::convert;
use rlx_ir::tensor::Element;
use rlx_ir::{ConstData, DType, Progress};

use super::tensor::TensorView;

/// What a caller passes for one input.
#[derive(Debug, Clone, Copy)]
pub(super) enum Data<'a> {
    F32(&'a [f32]),
    Bytes(&'a [u8], DType),
    /// A handle stored on the device: its number of bytes.
    Resident(usize, DType),
}

impl<'a> Data<'a> {
    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Data::F32(values) => bytemuck::cast_slice(values),
            Data::Bytes(bytes, _) => bytes,
            Data::Resident(..) => &[],
        }
    }

    /// The number of elements of `dtype`; `None` if the bytes end within one.
    pub(super) fn count(self, dtype: DType) -> Option<usize> {
        let (len, given) = match self {
            Data::F32(values) => {
                let per = convert::floats_per_element(dtype);
                return values.len().is_multiple_of(per).then_some(values.len() / per);
            }
            Data::Bytes(bytes, given) => (bytes.len(), given),
            Data::Resident(len, given) => (len, given),
        };
        // Packed elements: the declared shape decides within the last byte.
        if given.bits() < 8 {
            return Some(len * (8 / given.bits()));
        }
        let size = given.size_bytes();
        len.is_multiple_of(size).then_some(len / size)
    }
}

/// One of the caller's inputs: by name, or by position where there is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) data: Data<'a>,
    pub(super) dims: Option<&'a [usize]>,
}

/// The inputs of a run, as the caller has them. Nothing is copied into a list of our own, except what [`RunRequest::input`] adds.
#[derive(Debug, Clone)]
pub(super) enum Inputs<'a> {
    F32(&'a [(&'a str, &'a [f32])]),
    Typed(&'a [(&'a str, &'a [u8], DType)]),
    Slots(&'a [&'a [f32]]),
    Tensors(&'a [TensorView<'a>]),
    Own(Vec<Item<'a>>),
}

impl<'a> Inputs<'a> {
    pub(super) fn count(&self) -> usize {
        match self {
            Inputs::F32(list) => list.len(),
            Inputs::Typed(list) => list.len(),
            Inputs::Slots(list) => list.len(),
            Inputs::Tensors(list) => list.len(),
            Inputs::Own(list) => list.len(),
        }
    }

    #[inline]
    pub(super) fn item(&self, i: usize) -> Item<'a> {
        match self {
            Inputs::F32(list) => Item { name: Some(list[i].0), data: Data::F32(list[i].1), dims: None },
            Inputs::Typed(list) => {
                Item { name: Some(list[i].0), data: Data::Bytes(list[i].1, list[i].2), dims: None }
            }
            Inputs::Slots(list) => Item { name: None, data: Data::F32(list[i]), dims: None },
            Inputs::Tensors(list) => item_of(list[i].name, &list[i]),
            Inputs::Own(list) => list[i],
        }
    }

    fn push(&mut self, item: Item<'a>) {
        if let Inputs::Own(list) = self {
            return list.push(item);
        }
        let items = (0..self.count()).map(|i| self.item(i)).chain([item]);
        *self = Inputs::Own(items.collect());
    }
}

fn item_of<'a>(name: &'a str, view: &TensorView<'a>) -> Item<'a> {
    Item { name: Some(name), data: Data::Bytes(view.bytes, view.dtype), dims: Some(view.dims) }
}

/// The value of an input: slices of numbers, or tensors with dimensions ([`TensorView::of`], for every element type).
///
/// `f32` values are converted to the input's declared type, where that is exact. All others are of the declared type.
/// Without dimensions, the lengths of the inputs determine those that are open.
#[derive(Debug, Clone, Copy)]
pub struct RunInput<'a> {
    data: Data<'a>,
    dims: Option<&'a [usize]>,
}

impl<'a> RunInput<'a> {
    fn of<T: Element>(values: &'a [T]) -> Self {
        let data = match T::DTYPE {
            DType::F32 => Data::F32(bytemuck::cast_slice(values)),
            other => Data::Bytes(bytemuck::cast_slice(values), other),
        };
        RunInput { data, dims: None }
    }
}

/// Slices, arrays and vectors of these types are inputs. `f64` is none of them, so that `&[1.0, 2.0]` is of `f32`.
macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl<'a> From<&'a [$number]> for RunInput<'a> {
            fn from(values: &'a [$number]) -> Self {
                RunInput::of(values)
            }
        }

        impl<'a, const N: usize> From<&'a [$number; N]> for RunInput<'a> {
            fn from(values: &'a [$number; N]) -> Self {
                RunInput::of(values.as_slice())
            }
        }

        impl<'a> From<&'a Vec<$number>> for RunInput<'a> {
            fn from(values: &'a Vec<$number>) -> Self {
                RunInput::of(values.as_slice())
            }
        }
    )*};
}

numbers!(f32 i8 i16 i32 i64 u8 u16 u32 u64);

impl<'a> From<TensorView<'a>> for RunInput<'a> {
    /// The view's name does not matter.
    fn from(view: TensorView<'a>) -> Self {
        RunInput { data: Data::Bytes(view.bytes, view.dtype), dims: Some(view.dims) }
    }
}

impl<'a> From<&'a ConstData> for RunInput<'a> {
    fn from(data: &'a ConstData) -> Self {
        TensorView::from(("", data)).into()
    }
}

/// An output: by name or by position in the graph's outputs.
///
/// ```
/// use rlx_runtime::OutputRef;
/// assert_eq!(OutputRef::from("logits"), OutputRef::Name("logits"));
/// assert_eq!(OutputRef::from(0), OutputRef::Index(0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputRef<'a> {
    /// The output of this name, the first one where several have it.
    Name(&'a str),
    /// The output at this position.
    Index(usize),
}

impl<'a> From<&'a str> for OutputRef<'a> {
    fn from(name: &'a str) -> Self {
        OutputRef::Name(name)
    }
}

impl<'a> From<&'a String> for OutputRef<'a> {
    fn from(name: &'a String) -> Self {
        OutputRef::Name(name)
    }
}

impl From<usize> for OutputRef<'_> {
    fn from(index: usize) -> Self {
        OutputRef::Index(index)
    }
}

/// The outputs that a caller wants.
#[derive(Debug, Clone)]
pub(super) enum Wanted<'a> {
    All,
    Indices(&'a [usize]),
    Own(Vec<OutputRef<'a>>),
}

/// One run of a [`CompiledGraph`](crate::CompiledGraph): its inputs, the outputs that are wanted, and how it is done.
///
/// Everything is optional. Without inputs, handles supply them; without a word about outputs, all are wanted.
///
/// ```
/// use std::time::Duration;
/// use rlx_runtime::*;
///
/// let mut g = Graph::new("two outputs");
/// let x = g.input("x", Shape::new(&[2], DType::F32));
/// let (relu, exp) = (g.relu(x), g.exp(x));
/// g.set_outputs(vec![relu, exp]);
/// let mut compiled = Session::new(Device::Cpu).compile(g);
///
/// let outputs = compiled.execute(
///     RunRequest::new().input("x", &[-1.0, 2.0]).output(0).deadline(Duration::from_secs(10)),
/// )?;
/// assert_eq!(outputs.get(0)?.as_f32()?, [0.0, 2.0]);
///
/// // A request can be used again: nothing of it is copied.
/// let x = [0.0, 1.0];
/// let request = RunRequest::new().input("x", &x);
/// for _ in 0..2 {
///     assert_eq!(compiled.execute(&request)?.to_f32()?[0], [0.0, 1.0]);
/// }
/// # Ok::<(), Error>(())
/// ```
///
/// Slices of inputs become requests by [`From`]: named `f32` values, named bytes with their types, `f32` values in
/// the order of the inputs, and [`TensorView`]s. Such a request allocates nothing.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("exp");
/// # let x = g.input("x", Shape::new(&[1], DType::F32));
/// # let y = g.exp(x);
/// # g.set_outputs(vec![y]);
/// # let mut compiled = Session::new(Device::Cpu).compile(g);
/// let inputs: &[TensorView<'_>] = &[TensorView::of("x", &[1], &[0.0f32])?];
/// assert_eq!(compiled.execute(RunRequest::from(inputs))?.to_f32()?, [[1.0]]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RunRequest<'a> {
    pub(super) inputs: Inputs<'a>,
    pub(super) wanted: Wanted<'a>,
    pub(super) feeds: Vec<(&'a str, OutputRef<'a>)>,
    pub(super) progress: Option<&'a Progress>,
    pub(super) deadline: Option<Duration>,
    pub(super) wait: bool,
}

impl Default for RunRequest<'_> {
    fn default() -> Self {
        Self::of(Inputs::Own(Vec::new()))
    }
}

impl<'a> RunRequest<'a> {
    /// A run without inputs of its own, for all outputs.
    pub fn new() -> Self {
        Self::default()
    }

    const fn of(inputs: Inputs<'a>) -> Self {
        let feeds = Vec::new();
        RunRequest { inputs, wanted: Wanted::All, feeds, progress: None, deadline: None, wait: true }
    }

    /// Gives input `name` a value: a slice, an array or a `Vec` of numbers, a [`TensorView`] or a [`ConstData`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("twice");
    /// # let x = g.input("ids", Shape::new(&[2], DType::I64));
    /// # let y = g.add(x, x);
    /// # g.set_outputs(vec![y]);
    /// # let mut twice = Session::new(Device::Cpu).compile(g);
    /// let outputs = twice.execute(RunRequest::new().input("ids", &[3i64, 4]))?;
    /// assert_eq!(outputs.get(0)?.as_slice::<i64>()?, [6, 8]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn input(mut self, name: &'a str, value: impl Into<RunInput<'a>>) -> Self {
        let RunInput { data, dims } = value.into();
        self.inputs.push(Item { name: Some(name), data, dims });
        self
    }

    /// Wants this output, by name or by index, and otherwise only those that are asked for in the same way. What nobody wants does
    /// not come to the host with the run; it can be read until the next run all the same, which then copies it.
    #[must_use]
    pub fn output(mut self, output: impl Into<OutputRef<'a>>) -> Self {
        let mut list = match self.wanted {
            Wanted::All => Vec::new(),
            Wanted::Indices(indices) => indices.iter().map(|&i| OutputRef::Index(i)).collect(),
            Wanted::Own(list) => list,
        };
        list.push(output.into());
        self.wanted = Wanted::Own(list);
        self
    }

    /// Wants these outputs, in this order; none of them if the list is empty.
    #[must_use]
    pub fn outputs(mut self, indices: &'a [usize]) -> Self {
        self.wanted = Wanted::Indices(indices);
        self
    }

    /// After the run, and only after this one, the handle of input `name` takes the value of an output.
    /// [`CompiledGraph::set_gpu_handle_feed`](crate::CompiledGraph::set_gpu_handle_feed) does so after every run.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("double");
    /// # let x = g.input("x", Shape::new(&[1], DType::F32));
    /// # let y = g.add(x, x);
    /// # g.set_outputs(vec![y]);
    /// # let mut double = Session::new(Device::Cpu).compile(g);
    /// double.bind_handle("x", &[1.0]);
    /// for _ in 0..3 {
    ///     double.execute(RunRequest::new().feed("x", 0).outputs(&[]))?;
    /// }
    /// assert_eq!(double.read_handle("x"), Some(vec![8.0]));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn feed(mut self, name: &'a str, output: impl Into<OutputRef<'a>>) -> Self {
        self.feeds.push((name, output.into()));
        self
    }

    /// Reports progress to `progress`, which may also cancel the run.
    #[must_use]
    pub fn progress(mut self, progress: &'a Progress) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Stops the run when this time has passed since it began, with [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled). A step that
    /// has begun is finished, and on a device that is given the whole run at once, the run.
    #[must_use]
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Does not wait for the run, where the device computes by itself: as
    /// [`CompiledGraph::commit_no_wait`](crate::CompiledGraph::commit_no_wait). Reading an output waits.
    #[must_use]
    pub fn no_wait(mut self) -> Self {
        self.wait = false;
        self
    }
}

impl<'a> From<&'a [(&'a str, &'a [f32])]> for RunRequest<'a> {
    fn from(inputs: &'a [(&'a str, &'a [f32])]) -> Self {
        Self::of(Inputs::F32(inputs))
    }
}

impl<'a> From<&'a [(&'a str, &'a [u8], DType)]> for RunRequest<'a> {
    fn from(inputs: &'a [(&'a str, &'a [u8], DType)]) -> Self {
        Self::of(Inputs::Typed(inputs))
    }
}

impl<'a> From<&'a [&'a [f32]]> for RunRequest<'a> {
    /// The inputs in the order in which the graph declares them.
    fn from(inputs: &'a [&'a [f32]]) -> Self {
        Self::of(Inputs::Slots(inputs))
    }
}

impl<'a> From<&'a [TensorView<'a>]> for RunRequest<'a> {
    fn from(inputs: &'a [TensorView<'a>]) -> Self {
        Self::of(Inputs::Tensors(inputs))
    }
}
