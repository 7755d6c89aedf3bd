//! A library that was found: `cblas_sgemm` behind a safe choice of operands.

use std::ffi::c_int;
use std::fmt;
use std::sync::OnceLock;

use libloading::Library;

use super::Provider;

/// Why the chosen library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlasError {
    provider: Provider,
    why: String,
}

impl fmt::Display for BlasError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, hint) = (self.provider.name(), self.provider.hint());
        write!(f, "this build multiplies by {name}, which cannot be loaded: {}; {hint}", self.why)
    }
}

impl std::error::Error for BlasError {}

type Sgemm = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    f32,
    *const f32,
    c_int,
    *const f32,
    c_int,
    f32,
    *mut f32,
    c_int,
);

/// `CblasRowMajor`, `CblasNoTrans`, `CblasTrans`.
const ROW_MAJOR: c_int = 101;
const NO_TRANS: c_int = 111;
const TRANS: c_int = 112;

/// A loaded library.
#[derive(Debug)]
pub struct Blas {
    provider: Provider,
    sgemm: Sgemm,
    /// Keeps `sgemm` where it is.
    _library: Library,
}

/// One operand: where it is, and the strides of its rows and columns, one of which is 1.
#[derive(Debug, Clone, Copy)]
pub struct Matrix {
    /// The first element.
    pub ptr: *const f32,
    /// Elements from one row to the next, and from one column to the next.
    pub strides: [isize; 2],
}

impl Matrix {
    /// Whether a BLAS reads it in place: how, and by which leading dimension. `extent` is rows and columns.
    fn layout(self, extent: [usize; 2]) -> Option<(c_int, c_int)> {
        let leading = |stride: isize, least: usize| {
            let stride = if stride == 0 { return None } else { c_int::try_from(stride).ok()? };
            (stride >= c_int::try_from(least.max(1)).ok()?).then_some(stride)
        };
        match self.strides {
            [rows, 1] => Some((NO_TRANS, leading(rows, extent[1])?)),
            [1, columns] => Some((TRANS, leading(columns, extent[0])?)),
            _ => None,
        }
    }
}

impl Blas {
    /// The library that this build's features choose, loaded on first use; none when they choose none.
    ///
    /// # Errors
    /// [`BlasError`] when it cannot be loaded.
    pub fn chosen() -> Result<Option<&'static Blas>, BlasError> {
        static LOADED: OnceLock<Result<Blas, BlasError>> = OnceLock::new();
        match Provider::chosen() {
            None => Ok(None),
            Some(provider) => {
                let loaded = LOADED.get_or_init(|| Blas::load(provider));
                loaded.as_ref().map(Some).map_err(BlasError::clone)
            }
        }
    }

    /// Loads a library and sets it to one thread for each call.
    ///
    /// # Errors
    /// [`BlasError`] when no file of it is found, or it lacks `cblas_sgemm`.
    pub fn load(provider: Provider) -> Result<Blas, BlasError> {
        let mut why = String::new();
        for file in provider.files() {
            match Self::open(provider, file) {
                Ok(blas) => return Ok(blas),
                // The first is the likeliest name, and its message the one that helps.
                Err(e) if why.is_empty() => why = e,
                Err(_) => {}
            }
        }
        Err(BlasError { provider, why })
    }

    fn open(provider: Provider, file: &str) -> Result<Blas, String> {
        // SAFETY: the libraries named here run no code at loading but their own set-up, which is safe at any time.
        let library = unsafe { Library::new(file) }.map_err(|e| e.to_string())?;
        // SAFETY: the C interface of BLAS gives this name this signature (with 32-bit integers, as these files do).
        let sgemm = *unsafe { library.get::<Sgemm>(b"cblas_sgemm\0") }.map_err(|e| e.to_string())?;
        if let Some(name) = provider.set_threads() {
            // SAFETY: both libraries declare it as taking one int.
            let set =
                unsafe { library.get::<unsafe extern "C" fn(c_int)>(name) }.map_err(|e| e.to_string())?;
            // SAFETY: as above; one thread is always there.
            unsafe { set(1) };
        }
        Ok(Blas { provider, sgemm, _library: library })
    }

    /// Which library it is.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// Whether [`Blas::multiply`] takes these operands of `m`×`k` · `k`×`n` into rows of `c_stride`.
    pub fn takes(a: Matrix, b: Matrix, [m, k, n]: [usize; 3], c_stride: usize) -> bool {
        let small = [m, k, n, c_stride].iter().all(|&x| c_int::try_from(x).is_ok());
        // With no depth there is nothing to read, and BLAS libraries differ in what they write.
        small && k > 0 && c_stride >= n && a.layout([m, k]).is_some() && b.layout([k, n]).is_some()
    }

    /// `C = A·B` for operands that [`Blas::takes`].
    ///
    /// # Safety
    /// The operands are readable and `c` writable in these extents, and `c` overlaps neither.
    pub unsafe fn multiply(&self, a: Matrix, b: Matrix, [m, k, n]: [usize; 3], c: *mut f32, c_stride: usize) {
        let (Some((ta, lda)), Some((tb, ldb))) = (a.layout([m, k]), b.layout([k, n])) else {
            debug_assert!(false, "operands that `takes` rejects");
            return;
        };
        let int = |x: usize| x as c_int;
        // SAFETY: the caller's promise; `takes` has checked the sizes.
        unsafe {
            (self.sgemm)(
                ROW_MAJOR,
                ta,
                tb,
                int(m),
                int(n),
                int(k),
                1.0,
                a.ptr,
                lda,
                b.ptr,
                ldb,
                0.0,
                c,
                int(c_stride),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_strides_are_rejected() {
        let m = |rows, columns| Matrix { ptr: std::ptr::null(), strides: [rows, columns] };
        assert!(Blas::takes(m(3, 1), m(4, 1), [2, 3, 4], 4));
        assert!(Blas::takes(m(1, 2), m(1, 3), [2, 3, 4], 9));
        for (a, b) in [(m(2, 1), m(4, 1)), (m(3, 2), m(4, 1)), (m(-3, 1), m(4, 1)), (m(3, 1), m(0, 0))] {
            assert!(!Blas::takes(a, b, [2, 3, 4], 4), "{a:?} {b:?}");
        }
        assert!(!Blas::takes(m(3, 1), m(4, 1), [2, 0, 4], 4));
        assert!(!Blas::takes(m(3, 1), m(4, 1), [usize::MAX, 3, 4], 4));
    }
}
