//! The weight store: a model's tensors by name, mapped from a file, owned, or generated.
//!
//! Entries are shared (`Arc`), so cloning a store copies no weight, and replacing an entry in one clone
//! never changes another. Bytes are row-major and little-endian, as in [`ConstData`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::files::MappedFile;
use crate::memory;
use crate::shape::Shape;
use crate::tensor::{ConstData, shared};

/// Where a weight's bytes are.
#[derive(Clone)]
enum Data {
    /// A part of something larger, such as a mapped file.
    Mapped(Arc<dyn AsRef<[u8]> + Send + Sync>, Range<usize>),
    /// A part of a file, not used before it passed a check.
    Checked(Arc<MappedFile>, Range<usize>, Arc<Check>),
    /// Bytes of its own.
    Owned(Arc<[u8]>),
    /// Computed when asked for.
    Generated(Arc<dyn Fn() -> Vec<u8> + Send + Sync>),
}

type CheckFn = dyn Fn(&[u8]) -> Result<()> + Send + Sync;

/// A check of bytes and what it found, once it ran.
struct Check {
    check: Box<CheckFn>,
    found: OnceLock<Result<()>>,
}

/// One tensor of a [`WeightStore`].
#[derive(Clone)]
pub struct Weight {
    dtype: DType,
    dims: Vec<usize>,
    data: Data,
}

impl Weight {
    fn checked(dtype: DType, dims: &[usize], found: Option<usize>, data: Data) -> Result<Self> {
        let shape = Shape::new(dims, dtype);
        match (shape.size_bytes(), found) {
            (Some(want), Some(found)) if want == found => {}
            (Some(_), None) => {}
            _ => {
                let found = found.unwrap_or(0);
                return Err(Error::new(ErrorKind::Shape, format!("{found} bytes do not make {shape}")));
            }
        }
        Ok(Weight { dtype, dims: dims.to_vec(), data })
    }

    /// A weight that is bytes `range` of `source`, such as a mapped file; nothing is copied.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when the range does not fit dimensions and type, or is outside `source`.
    pub fn mapped(
        dtype: DType,
        dims: &[usize],
        source: Arc<dyn AsRef<[u8]> + Send + Sync>,
        range: Range<usize>,
    ) -> Result<Self> {
        if range.start > range.end || range.end > (*source).as_ref().len() {
            let message =
                format!("bytes {range:?} are outside the {} that are there", (*source).as_ref().len());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        Self::checked(dtype, dims, Some(range.len()), Data::Mapped(source, range))
    }

    /// As [`Weight::mapped`], for bytes of a file that may be damaged: `check` sees them before their first use, once, and
    /// what it reports [`Weight::bytes`] reports.
    ///
    /// # Errors
    /// As [`Weight::mapped`].
    pub fn mapped_checked(
        dtype: DType,
        dims: &[usize],
        source: Arc<MappedFile>,
        range: Range<usize>,
        check: impl Fn(&[u8]) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Self> {
        let mapped = Self::mapped(dtype, dims, Arc::clone(&source) as _, range.clone())?;
        let check = Arc::new(Check { check: Box::new(check), found: OnceLock::new() });
        Ok(Weight { data: Data::Checked(source, range, check), ..mapped })
    }

    /// A weight of these bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when the byte count does not fit, [`ErrorKind::OutOfMemory`].
    pub fn owned(dtype: DType, dims: &[usize], bytes: impl Into<Arc<[u8]>> + AsRef<[u8]>) -> Result<Self> {
        let bytes = shared(bytes, || format!("a weight, {}", Shape::new(dims, dtype)))?;
        Self::checked(dtype, dims, Some(bytes.len()), Data::Owned(bytes))
    }

    /// A weight computed when asked for.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when the dimensions overflow.
    pub fn generated(
        dtype: DType,
        dims: &[usize],
        make: impl Fn() -> Vec<u8> + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::checked(dtype, dims, None, Data::Generated(Arc::new(make)))
    }

    /// Dimensions and element type.
    pub fn shape(&self) -> Shape {
        Shape::new(&self.dims, self.dtype)
    }

    /// Bytes of the elements; `None` where they exceed all memory.
    pub fn size_bytes(&self) -> Option<usize> {
        let elements = self.dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        self.dtype.storage_bytes(elements)
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The bytes; borrowed unless they are generated.
    ///
    /// # Errors
    /// [`ErrorKind::Value`] when a generator makes another number of bytes than it should; what a check reports.
    pub fn bytes(&self) -> Result<Cow<'_, [u8]>> {
        match &self.data {
            Data::Mapped(source, range) => Ok(Cow::Borrowed(&(**source).as_ref()[range.clone()])),
            Data::Checked(source, range, check) => {
                let bytes = &(**source).as_ref()[range.clone()];
                check.found.get_or_init(|| (check.check)(bytes)).clone()?;
                Ok(Cow::Borrowed(bytes))
            }
            Data::Owned(bytes) => Ok(Cow::Borrowed(bytes)),
            Data::Generated(make) => {
                let size = self.shape().size_bytes().unwrap_or(usize::MAX);
                memory::ensure(size, || format!("a weight that is made, {}", self.shape()))?;
                let bytes = make();
                if Some(bytes.len()) == self.shape().size_bytes() {
                    return Ok(Cow::Owned(bytes));
                }
                let message = format!("the generator made {} bytes for {}", bytes.len(), self.shape());
                Err(Error::new(ErrorKind::Value, message))
            }
        }
    }

    /// Says that nobody will read the bytes for a while: what the system holds of them in memory, and can read from their file
    /// again, no longer counts as this process's. They stay readable.
    pub fn release(&self) {
        if let Data::Checked(file, range, _) = &self.data {
            file.release(range.clone());
        }
    }

    /// The weight as a constant (copied).
    ///
    /// # Errors
    /// As [`Weight::bytes`].
    pub fn to_const(&self) -> Result<ConstData> {
        ConstData::new(self.dtype, &self.dims, self.bytes()?)
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.data {
            Data::Mapped(..) | Data::Checked(..) => "mapped",
            Data::Owned(_) => "owned",
            Data::Generated(_) => "generated",
        };
        write!(f, "Weight({}, {how})", self.shape())
    }
}

/// Tensors by name.
#[derive(Debug, Clone, Default)]
pub struct WeightStore {
    weights: BTreeMap<String, Arc<Weight>>,
}

impl WeightStore {
    /// A store without weights.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a weight.
    pub fn insert(&mut self, name: impl Into<String>, weight: Weight) {
        self.weights.insert(name.into(), Arc::new(weight));
    }

    /// The weight called `name`.
    pub fn get(&self, name: &str) -> Option<&Arc<Weight>> {
        self.weights.get(name)
    }

    /// All weights, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Weight>)> {
        self.weights.iter().map(|(name, w)| (name.as_str(), w))
    }

    /// How many weights there are.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// Bytes all weights take.
    pub fn total_bytes(&self) -> usize {
        self.weights.values().filter_map(|w| w.shape().size_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_kinds_give_their_bytes() {
        let file: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(vec![0u8, 1, 2, 3, 4, 5]);
        let mapped = Weight::mapped(DType::U8, &[2], file.clone(), 2..4).unwrap();
        assert_eq!(mapped.bytes().unwrap().as_ref(), [2, 3]);
        assert!(Weight::mapped(DType::U8, &[2], file, 5..7).is_err());
        let generated = Weight::generated(DType::U8, &[3], || vec![7, 8]).unwrap();
        assert!(generated.bytes().is_err());
        assert!(Weight::owned(DType::F32, &[1], vec![0u8; 3]).is_err());
    }

    #[test]
    fn a_check_runs_once_before_the_first_use_and_is_obeyed() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let file = Arc::new(MappedFile::from(vec![1u8, 2, 3]));
        let runs = Arc::new(AtomicUsize::new(0));
        let weight = |range: Range<usize>| {
            let runs = Arc::clone(&runs);
            let check = move |bytes: &[u8]| {
                runs.fetch_add(1, Ordering::Relaxed);
                let damaged = || Error::new(ErrorKind::Malformed, "damaged");
                if bytes.contains(&3) { Err(damaged()) } else { Ok(()) }
            };
            Weight::mapped_checked(DType::U8, &[2], file.clone(), range, check).unwrap()
        };
        let (good, bad) = (weight(0..2), weight(1..3));
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        for _ in 0..2 {
            assert_eq!(good.bytes().unwrap().as_ref(), [1, 2]);
            assert_eq!(bad.clone().bytes().unwrap_err().kind(), ErrorKind::Malformed);
        }
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn replacing_in_a_clone_leaves_the_other_alone() {
        let mut a = WeightStore::new();
        a.insert("w", Weight::owned(DType::U8, &[1], vec![1]).unwrap());
        let mut b = a.clone();
        b.insert("w", Weight::owned(DType::U8, &[1], vec![2]).unwrap());
        assert_eq!(a.get("w").unwrap().bytes().unwrap().as_ref(), [1]);
    }
}
