//! Elements of an input read from a file, and the limit on their number.
//!
//! Files that state a huge size are rejected before they are decoded: an image of a megabyte can unpack to gigabytes, and so can an
//! array in an archive. The model decides the size of an input; with dynamic dimensions it is at most the
//! [`InputLimit`].

use rlx_ir::{ConstData, DType, Error, ErrorKind, Result, Value, memory};
use rlx_runtime::TensorInfo;

use crate::units;

/// Elements that wait to be stored.
const CHUNK: usize = 1 << 14;

/// The hint for exceeding the limit.
const RAISES: &str = "--input-limit raises the limit, as in --input-limit 8G; in Rust, a larger InputLimit";

/// The maximum size of an input with dynamic dimensions: 1 GiB by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputLimit(pub u64);

impl Default for InputLimit {
    fn default() -> Self {
        InputLimit(1 << 30)
    }
}

impl InputLimit {
    /// The most bytes of this input.
    pub fn of(self, info: &TensorInfo) -> u64 {
        info.shape.size_bytes().map_or(self.0, |fixed| fixed as u64)
    }

    /// Checks whether an input may have the dimensions stated by `what`.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] naming the limit and how to raise it.
    pub fn allows(self, info: &TensorInfo, dims: &[usize], what: &str) -> Result<()> {
        let elements = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let bytes = match dims.contains(&0) {
            true => Some(0),
            false => elements.and_then(|n| info.dtype.storage_bytes(n)),
        };
        if bytes.is_some_and(|n| n as u64 <= self.of(info)) {
            return Ok(());
        }
        Err(self
            .exceeded(info, &format!("{what} has the dimensions {dims:?}, {}", claimed(bytes, info.dtype))))
    }

    /// The error for data that is too large.
    pub fn exceeded(self, info: &TensorInfo, what: &str) -> Error {
        let name = &info.name;
        if let Some(fixed) = info.shape.size_bytes() {
            let message = format!("{what}; input \"{name}\" is {}: {}", info.shape, units::bytes(fixed));
            return Error::new(ErrorKind::Malformed, message);
        }
        let limit = self.bytes();
        let message = format!("{what}; input \"{name}\" may have at most {limit}");
        Error::new(ErrorKind::Malformed, message).with_hint(RAISES)
    }

    /// The error of text that is longer than the limit.
    pub fn too_long(self, what: &str) -> Error {
        let message = format!("{what} is longer than {}", self.bytes());
        Error::new(ErrorKind::Malformed, message).with_hint(RAISES)
    }

    /// The error of an image that takes more memory than the limit, before it has the input's size.
    pub(crate) fn too_large(self, what: &str) -> Error {
        let message = format!("{what}, more than {} of pixels", self.bytes());
        Error::new(ErrorKind::Malformed, message).with_hint(RAISES)
    }

    fn bytes(self) -> String {
        units::bytes(usize::try_from(self.0).unwrap_or(usize::MAX))
    }
}

fn claimed(bytes: Option<usize>, dtype: DType) -> String {
    bytes
        .map_or_else(|| "more than memory can hold".to_owned(), |n| format!("{} of {dtype}", units::bytes(n)))
}

/// A tensor that grows element by element, stored in its own type, never as `f64` as a whole.
#[derive(Debug)]
pub struct Packed {
    dtype: DType,
    floats: Vec<f64>,
    ints: Vec<i128>,
    bytes: Vec<u8>,
    count: usize,
    /// Elements there may be.
    most: usize,
}

impl Packed {
    /// Nothing yet of an input.
    pub fn of(info: &TensorInfo, limit: InputLimit) -> Self {
        let bits = (limit.of(info) as u128).saturating_mul(8);
        let most = usize::try_from(bits / info.dtype.bits().max(1) as u128).unwrap_or(usize::MAX);
        Packed { dtype: info.dtype, floats: Vec::new(), ints: Vec::new(), bytes: Vec::new(), count: 0, most }
    }

    /// How many elements there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds an element; `false` if the limit is reached. The type must be a float type.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub fn push_float(&mut self, x: f64) -> Result<bool> {
        self.floats.push(x);
        self.counted()
    }

    /// Adds an element; `false` if the limit is reached. The type must be an integer type or bool.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub fn push_int(&mut self, x: i128) -> Result<bool> {
        self.ints.push(x);
        self.counted()
    }

    fn counted(&mut self) -> Result<bool> {
        self.count += 1;
        if self.floats.len().max(self.ints.len()) == CHUNK {
            self.store()?;
        }
        Ok(self.count <= self.most)
    }

    /// A chunk is a multiple of what shares a byte.
    fn store(&mut self) -> Result<()> {
        let (floats, ints) = (std::mem::take(&mut self.floats), std::mem::take(&mut self.ints));
        let value = match self.dtype.is_float() {
            true => Value::float(self.dtype, &[floats.len()], floats),
            false => Value::int(self.dtype, &[ints.len()], ints),
        };
        let chunk = value.rounded().encode();
        let (have, room) = (self.bytes.len(), self.bytes.capacity());
        if have + chunk.len() > room {
            // Doubled, as a vector grows, while the old bytes are still there.
            memory::ensure(have.max(chunk.len()).saturating_mul(2), || format!("{} elements", self.count))?;
        }
        self.bytes.extend(chunk);
        Ok(())
    }

    /// The tensor.
    ///
    /// # Errors
    /// Dimensions that are not of so many elements; [`ErrorKind::OutOfMemory`].
    pub fn finish(mut self, dims: &[usize]) -> Result<ConstData> {
        self.store()?;
        ConstData::new(self.dtype, dims, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::{Dim, Shape, sym};

    fn info(dims: &[Dim], dtype: DType) -> TensorInfo {
        TensorInfo { name: "x".to_owned(), dtype, shape: Shape::from_dims(dims, dtype) }
    }

    #[test]
    fn elements_are_stored_as_one_tensor_of_all_would_be() {
        for dtype in [DType::F32, DType::F16, DType::I64, DType::U8, DType::I4, DType::Bool] {
            let n = 2 * CHUNK + 3;
            let shape = info(&[Dim::Static(n)], dtype);
            let mut packed = Packed::of(&shape, InputLimit::default());
            let whole = match dtype.is_float() {
                true => Value::float(dtype, &[n], (0..n).map(|i| i as f64 * 0.37).collect()),
                false => Value::int(dtype, &[n], (0..n as i128).map(|i| i % 7).collect()),
            };
            for i in 0..n {
                let fits = match dtype.is_float() {
                    true => packed.push_float(i as f64 * 0.37),
                    false => packed.push_int(i as i128 % 7),
                };
                assert!(fits.unwrap(), "{dtype} {i}");
            }
            assert_eq!(packed.finish(&[n]).unwrap(), whole.rounded().to_const(), "{dtype}");
        }
    }

    #[test]
    fn the_limit_is_the_model_s_size_or_the_option_s() {
        let fixed = info(&[Dim::Static(2), Dim::Static(3)], DType::F32);
        let open = info(&[Dim::Dynamic(sym::named("limit.n"))], DType::F32);
        let limit = InputLimit(400);
        assert!(limit.allows(&fixed, &[2, 3], "it").is_ok());
        assert!(
            limit.allows(&fixed, &[2, 4], "it").unwrap_err().message().contains("input \"x\" is [2, 3] f32")
        );
        assert!(limit.allows(&open, &[100], "it").is_ok());
        let error = limit.allows(&open, &[101], "it").unwrap_err();
        assert!(error.message().contains("at most 400 B"), "{error}");
        assert!(error.hint().is_some_and(|h| h.contains("--input-limit")), "{error}");
        // No sizes make it overflow, and nothing is nothing.
        for dims in [&[usize::MAX][..], &[usize::MAX, 2], &[1 << 40, 1 << 40]] {
            assert!(limit.allows(&open, dims, "it").is_err(), "{dims:?}");
        }
        assert!(limit.allows(&open, &[usize::MAX, 0, usize::MAX], "it").is_ok());
    }
}
