//! What CUDA C and HIP C on one side and the Metal Shading Language on the other write differently: address spaces, the names of what a lane is, vectors,
//! barriers.
//!
//! In Metal's language every pointer says which memory it points into, and `thread` is such a word. Words of memory are read and written as vectors, never as
//! integers: what is a vector may be anything for the compiler, while an integer would not be the 16-bit elements of the same buffer.

use rlx_ir::{DType, Error, ErrorKind, Result};
use rlx_kernel::Kernel;
use rlx_kernel::render::{
    cuda_body, cuda_element, cuda_prelude, hip_prelude, msl_body, msl_element, msl_prelude,
};

use crate::atom::Vendor;
use crate::ir::{Program, Size};

/// The language of a vendor's programs.
#[derive(Clone, Copy)]
pub struct Language(pub Vendor);

impl Language {
    pub fn metal(self) -> bool {
        self.0 == Vendor::Apple
    }

    pub fn name(self) -> &'static str {
        if self.metal() { "the Metal Shading Language" } else { "CUDA C" }
    }

    /// What stands before kernels.
    pub fn prelude(self) -> String {
        match self.0 {
            Vendor::Nvidia => cuda_prelude(),
            Vendor::Amd => hip_prelude(),
            Vendor::Apple => msl_prelude(),
            // Its programs are no C.
            Vendor::Khronos => String::new(),
        }
    }

    /// The type of a buffer's elements.
    pub fn element(self, dtype: DType) -> Option<&'static str> {
        // Of several elements in a byte, copies read the bytes.
        let dtype = if dtype.is_packed() { DType::U8 } else { dtype };
        if self.metal() { msl_element(dtype) } else { cuda_element(dtype) }
    }

    /// The statements of a scalar body.
    pub fn body(self, kernel: &Kernel, given: usize) -> Result<String> {
        if self.metal() { msl_body(kernel, given) } else { cuda_body(kernel, given) }
    }

    /// The number of a lane in its workgroup.
    pub fn lane(self) -> &'static str {
        if self.metal() { "local" } else { "thread" }
    }

    pub fn barrier(self) -> &'static str {
        if self.metal() { "threadgroup_barrier(mem_flags::mem_threadgroup);" } else { "__syncthreads();" }
    }

    /// A vector such as `uint4` of these elements.
    pub fn vector(self, ty: &str, elements: &[String]) -> String {
        let elements = elements.join(", ");
        if self.metal() { format!("{ty}({elements})") } else { format!("{ty}{{{elements}}}") }
    }

    /// The vector at an address of a buffer that is read.
    pub fn read(self, ty: &str, address: &str) -> String {
        format!("*({}const {ty}*)({address})", self.device())
    }

    /// The word of 32 bits there.
    pub fn read_word(self, address: &str) -> String {
        match self.metal() {
            true => format!("as_type<u32>({})", self.read("ushort2", address)),
            false => self.read("u32", address),
        }
    }

    /// Writes a vector to an address of a buffer.
    pub fn write(self, ty: &str, address: &str, value: &str) -> String {
        format!("*({}{ty}*)({address}) = {value};", self.device())
    }

    /// Writes a word of 32 bits.
    pub fn write_word(self, address: &str, word: &str) -> String {
        match self.metal() {
            true => self.write("ushort2", address, &format!("as_type<ushort2>({word})")),
            false => self.write("u32", address, word),
        }
    }

    /// The bits of a word as a float.
    pub fn float_of_bits(self, word: &str) -> String {
        if self.metal() { format!("as_type<float>({word})") } else { format!("__uint_as_float({word})") }
    }

    /// The bits of a float as a word.
    pub fn bits_of_float(self, x: &str) -> String {
        if self.metal() { format!("as_type<u32>({x})") } else { format!("__float_as_uint({x})") }
    }

    /// What stands before pointers into buffers.
    pub fn device(self) -> &'static str {
        if self.metal() { "device " } else { "" }
    }
}

/// What no verified program leads to.
pub fn internal(what: String) -> Error {
    Error::new(ErrorKind::Internal, what)
}

/// A size in the text.
pub fn size(s: Size) -> String {
    match s {
        Size::Const(n) => n.to_string(),
        Size::Uniform(i) => format!("d{i}"),
        Size::Part { whole, each } => format!("d{whole}_{each}"),
    }
}

/// The type of the elements of a program's buffer.
pub fn element(p: &Program, buffer: usize) -> Result<&'static str> {
    let (dtype, language) = (p.buffers[buffer].dtype, Language(p.arch.vendor()));
    let lacks = || internal(format!("program {:?}: {} has no buffer of {dtype}", p.name, language.name()));
    language.element(dtype).ok_or_else(lacks)
}
