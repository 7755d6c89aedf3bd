//! The numbers of cuBLASLt's and hipBLASLt's enumerations that this crate uses: one table, each row with the names that CUDA and HIP have for a number, and its
//! value. [`CUDA`] and [`HIP`], and the list that tests hold against the vendors' headers, are made of the rows.
//!
//! ```text
//! epilogue = "CUBLASLT_MATMUL_DESC_EPILOGUE" 7, "HIPBLASLT_MATMUL_DESC_EPILOGUE" 2;
//! ```

use std::ffi::c_int;

use crate::table::Vendor;

/// What stands where a vendor has no such number.
pub(crate) const ABSENT: c_int = -1;

/// A number as tests see it.
#[derive(Debug, Clone, Copy)]
pub struct Number {
    cuda: (&'static str, c_int),
    hip: (&'static str, c_int),
}

impl Number {
    /// The vendor's name for the number, and its value, where it has it.
    pub fn of(&self, vendor: Vendor) -> Option<(&'static str, c_int)> {
        let (name, value) = if vendor == Vendor::Cuda { self.cuda } else { self.hip };
        (name != "-").then_some((name, value))
    }
}

macro_rules! numbers {
    ($( $(#[$doc:meta])* $name:ident = $cuda:literal $cuda_value:expr, $hip:literal $hip_value:expr; )*) => {
        /// A vendor's numbers.
        pub(crate) struct Numbers {
            $( $(#[$doc])* pub(crate) $name: c_int, )*
        }

        pub(crate) const CUDA: Numbers = Numbers { $( $name: $cuda_value, )* };

        pub(crate) const HIP: Numbers = Numbers { $( $name: $hip_value, )* };

        /// The numbers.
        pub const NUMBERS: &[Number] =
            &[$( Number { cuda: ($cuda, $cuda_value), hip: ($hip, $hip_value) } ),*];
    };
}

numbers! {
    /// Products and sums in f32.
    compute_f32 = "CUBLAS_COMPUTE_32F" 68, "HIPBLAS_COMPUTE_32F" 2;
    /// Element types.
    f32 = "CUDA_R_32F" 0, "HIP_R_32F" 0;
    f16 = "CUDA_R_16F" 2, "HIP_R_16F" 2;
    bf16 = "CUDA_R_16BF" 14, "HIP_R_16BF" 14;
    /// How an operand is taken.
    keep = "CUBLAS_OP_N" 0, "HIPBLAS_OP_N" 111;
    transpose = "CUBLAS_OP_T" 1, "HIPBLAS_OP_T" 112;
    /// Attributes of a matmul: how its operands are taken, its epilogue, and the bias of that.
    taken_a = "CUBLASLT_MATMUL_DESC_TRANSA" 3, "HIPBLASLT_MATMUL_DESC_TRANSA" 0;
    taken_b = "CUBLASLT_MATMUL_DESC_TRANSB" 4, "HIPBLASLT_MATMUL_DESC_TRANSB" 1;
    epilogue = "CUBLASLT_MATMUL_DESC_EPILOGUE" 7, "HIPBLASLT_MATMUL_DESC_EPILOGUE" 2;
    bias = "CUBLASLT_MATMUL_DESC_BIAS_POINTER" 8, "HIPBLASLT_MATMUL_DESC_BIAS_POINTER" 3;
    bias_dtype = "CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE" 26, "HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE" 4;
    /// Epilogues. GELU is the form with a hyperbolic tangent.
    plain = "CUBLASLT_EPILOGUE_DEFAULT" 1, "HIPBLASLT_EPILOGUE_DEFAULT" 1;
    add_bias = "CUBLASLT_EPILOGUE_BIAS" 4, "HIPBLASLT_EPILOGUE_BIAS" 4;
    gelu = "CUBLASLT_EPILOGUE_GELU" 32, "HIPBLASLT_EPILOGUE_GELU" 32;
    gelu_bias = "CUBLASLT_EPILOGUE_GELU_BIAS" 36, "HIPBLASLT_EPILOGUE_GELU_BIAS" 36;
    /// Attributes of a layout.
    batch_count = "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT" 5, "HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT" 0;
    batch_stride = "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET" 6, "HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET" 1;
    /// Attributes of a preference: the workspace, and the alignments of the matrices.
    most_workspace = "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES" 1, "HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES" 1;
    alignment_a = "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES" 5, "-" ABSENT;
    alignment_b = "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES" 6, "-" ABSENT;
    alignment_c = "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES" 7, "-" ABSENT;
    alignment_d = "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES" 8, "-" ABSENT;
    /// Status codes.
    allocation_failed = "CUBLAS_STATUS_ALLOC_FAILED" 3, "HIPBLAS_STATUS_ALLOC_FAILED" 2;
    not_supported = "CUBLAS_STATUS_NOT_SUPPORTED" 15, "HIPBLAS_STATUS_NOT_SUPPORTED" 7;
}

impl Numbers {
    pub(crate) fn of(vendor: Vendor) -> &'static Numbers {
        match vendor {
            Vendor::Cuda => &CUDA,
            Vendor::Hip => &HIP,
        }
    }
}
