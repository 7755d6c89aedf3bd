//! BLAS libraries as providers of f32 matmuls, loaded at run time.
//!
//! The Cargo features `blas-accelerate`, `blas-mkl` and `blas-openblas` choose one, in that precedence; nothing is
//! linked, the library is looked for when the backend is first used. With such a feature a library that is absent is
//! an error, never the packed kernel in its place: anyone who asked for a BLAS wants to know.
//!
//! A BLAS gets plain matmuls whose rows or columns are contiguous. Matmuls are split into blocks by shape
//! alone and each block is one call on one thread, so results do not depend on the number of threads here either.
//! Everything else (convolutions, matmuls of odd views, other types) stays with the kernels of this crate, and
//! the compiler neither packs weights for a BLAS nor fuses into its matmuls.

#[cfg(feature = "blas")]
mod library;
#[cfg(feature = "blas")]
pub use library::{Blas, BlasError, Matrix};

/// A library that multiplies matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Apple's.
    Accelerate,
    /// Intel's.
    Mkl,
    /// OpenBLAS.
    OpenBlas,
}

impl Provider {
    /// The one that this build's features choose.
    pub const fn chosen() -> Option<Provider> {
        if cfg!(feature = "blas-accelerate") {
            Some(Provider::Accelerate)
        } else if cfg!(feature = "blas-mkl") {
            Some(Provider::Mkl)
        } else if cfg!(feature = "blas-openblas") {
            Some(Provider::OpenBlas)
        } else {
            None
        }
    }

    /// Its name, as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Provider::Accelerate => "Accelerate",
            Provider::Mkl => "MKL",
            Provider::OpenBlas => "OpenBLAS",
        }
    }

    /// The CPU with it, as device lists call it.
    pub const fn of_cpu(self) -> &'static str {
        match self {
            Provider::Accelerate => "CPU (Accelerate)",
            Provider::Mkl => "CPU (MKL)",
            Provider::OpenBlas => "CPU (OpenBLAS)",
        }
    }

    /// The files it may be, the likeliest first.
    #[cfg(feature = "blas")]
    const fn files(self) -> &'static [&'static str] {
        match self {
            Provider::Accelerate => &["/System/Library/Frameworks/Accelerate.framework/Accelerate"],
            Provider::Mkl => &["libmkl_rt.so.2", "libmkl_rt.so", "mkl_rt.2.dll", "libmkl_rt.dylib"],
            Provider::OpenBlas => {
                &["libopenblas.so.0", "libopenblas.so", "libopenblas.dll", "libopenblas.dylib"]
            }
        }
    }

    /// How one gets it.
    #[cfg(feature = "blas")]
    const fn hint(self) -> &'static str {
        match self {
            Provider::Accelerate => "Accelerate is part of macOS and iOS only",
            Provider::Mkl => "install Intel's oneMKL and let the loader find it",
            Provider::OpenBlas => {
                "install OpenBLAS (Debian: libopenblas0-pthread) and let the loader find it"
            }
        }
    }

    /// The call that sets how many threads one matmul uses, where there is one.
    #[cfg(feature = "blas")]
    const fn set_threads(self) -> Option<&'static [u8]> {
        match self {
            Provider::Accelerate => None,
            Provider::Mkl => Some(b"MKL_Set_Num_Threads\0"),
            Provider::OpenBlas => Some(b"openblas_set_num_threads\0"),
        }
    }
}
