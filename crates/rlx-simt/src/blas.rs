//! cuBLASLt and hipBLASLt: a handle and a workspace for each device, and matmuls made ready for the memory that they are bound to.
//!
//! Both libraries think in columns. A matrix by rows is to them its transpose, so they are asked for `Cᵀ = Bᵀ·Aᵀ`: the operands change
//! places, and nothing is transposed that was not before. Products of f32 are summed in f32 as they are (no TF32), those of f16 and bf16 in
//! f32.
//!
//! A device has one workspace: its matmuls are done one after the other, in its stream. Calls of the library are made by one thread at a
//! time.

use std::ffi::{c_int, c_void};
use std::ptr::{from_ref, null_mut};
use std::sync::{Arc, Mutex};

use rlx_gpu::blas::{MatMul, Matrix};
use rlx_gpu::locked;
use rlx_ir::DType;

use crate::driver::{Context, LibraryCall, Outcome, Part};
use crate::load::BlasLibrary;
use crate::table::{Blas, Class, DevicePtr, Fault, Handle, Vendor};

/// Bytes of the workspace: what NVIDIA advises for its largest GPUs.
pub(crate) const WORKSPACE: usize = 32 << 20;
/// The most that the libraries look at of an address's alignment.
const MOST_ALIGNED: u64 = 256;

/// The numbers of the vendors' enumerations that are used here.
struct Numbers {
    /// Products and sums in f32.
    compute_f32: c_int,
    keep: i32,
    transpose: i32,
    /// Attributes of a matmul: how its operands are taken.
    taken: [c_int; 2],
    /// Attributes of a layout.
    batch_count: c_int,
    batch_stride: c_int,
    /// Attributes of a preference; the alignments of the operands and results, where there are such.
    most_workspace: c_int,
    alignments: Option<[c_int; 4]>,
    /// Status codes.
    allocation_failed: c_int,
    not_supported: c_int,
}

const CUDA: Numbers = Numbers {
    compute_f32: 68,
    keep: 0,
    transpose: 1,
    taken: [3, 4],
    batch_count: 5,
    batch_stride: 6,
    most_workspace: 1,
    alignments: Some([5, 6, 7, 8]),
    allocation_failed: 3,
    not_supported: 15,
};

const HIP: Numbers = Numbers {
    compute_f32: 2,
    keep: 111,
    transpose: 112,
    taken: [0, 1],
    batch_count: 0,
    batch_stride: 1,
    most_workspace: 1,
    alignments: None,
    allocation_failed: 2,
    not_supported: 7,
};

/// `CUDA_R_32F`, which HIP calls `HIP_R_32F`; and the other element types, that both vendors number alike.
const F32: c_int = 0;

fn element(dtype: DType) -> Option<c_int> {
    match dtype {
        DType::F32 => Some(F32),
        DType::F16 => Some(2),
        DType::BF16 => Some(14),
        _ => None,
    }
}

/// What the vendors call a status.
fn meaning(vendor: Vendor, code: c_int) -> &'static str {
    let known: &[(c_int, &str)] = match vendor {
        Vendor::Cuda => &[
            (1, "not initialised"),
            (3, "allocation failed"),
            (7, "invalid value"),
            (8, "architecture mismatch"),
            (11, "mapping error"),
            (13, "execution failed"),
            (14, "internal error"),
            (15, "not supported"),
            (16, "licence error"),
        ],
        Vendor::Hip => &[
            (1, "not initialised"),
            (2, "allocation failed"),
            (3, "invalid value"),
            (4, "mapping error"),
            (5, "execution failed"),
            (6, "internal error"),
            (7, "not supported"),
            (8, "architecture mismatch"),
            (9, "no handle"),
            (10, "invalid enumeration"),
        ],
    };
    known.iter().find(|(known, _)| *known == code).map_or("an unknown status", |(_, name)| name)
}

/// What the library finds for a matmul: an algorithm, what it needs, whether there is one. CUDA's takes 96 bytes, HIP's 56.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
struct Found([u64; 16]);

impl Found {
    /// The words in front of the size of the workspace: the algorithm.
    fn algorithm_words(vendor: Vendor) -> usize {
        if vendor == Vendor::Cuda { 8 } else { 3 }
    }

    fn workspace(&self, vendor: Vendor) -> u64 {
        self.0[Self::algorithm_words(vendor)]
    }

    /// A status, in the lower half of a word.
    fn state(&self, vendor: Vendor) -> u32 {
        self.0[Self::algorithm_words(vendor) + 1] as u32
    }
}

/// A device's use of the library.
pub(crate) struct Handles {
    context: Arc<Context>,
    library: Arc<BlasLibrary>,
    raw: Handle,
    /// Memory of the device that outlives every run.
    workspace: Part,
    /// Held while the library is called.
    turn: Mutex<()>,
}

// SAFETY: calls are made by one thread at a time, with the context current; see `turn`.
unsafe impl Send for Handles {}
// SAFETY: as above.
unsafe impl Sync for Handles {}

impl Handles {
    /// Opens the library for the context, with a workspace that is the device's for as long as anything runs on it.
    pub(crate) fn open(
        context: &Arc<Context>,
        library: &Arc<BlasLibrary>,
        workspace: Part,
    ) -> Outcome<Handles> {
        let vendor = library.vendor;
        let mut raw = null_mut();
        context.with(|_| {
            // SAFETY: `raw` is written; the context is current.
            unsafe { library.functions.create(&mut raw) }.map_err(|fault| explained(vendor, fault))
        })?;
        let (context, library) = (Arc::clone(context), Arc::clone(library));
        Ok(Handles { context, library, raw, workspace, turn: Mutex::new(()) })
    }

    fn numbers(&self) -> &'static Numbers {
        if self.library.vendor == Vendor::Cuda { &CUDA } else { &HIP }
    }

    /// Calls `f` with the context current.
    fn call<T>(&self, f: impl FnOnce(&Blas) -> Outcome<T>) -> Outcome<T> {
        let _turn = locked(&self.turn);
        self.context
            .with(|_| f(&self.library.functions).map_err(|fault| explained(self.library.vendor, fault)))
    }

    /// A matmul made ready for memory; `None` where the library has no algorithm for it.
    pub(crate) fn ready(self: &Arc<Self>, matmul: &MatMul, memory: [Part; 3]) -> Outcome<Option<Ready>> {
        let Some(element) = element(matmul.dtype) else { return Ok(None) };
        let bytes = matmul.dtype.bits() as u64 / 8;
        let starts = matmul.calls.iter().map(|call| {
            [0, 1, 2].map(|i| memory[i].at + bytes * (matmul.matrices[i].offset + call[i]) as u64)
        });
        let mut ready = Ready {
            handles: Arc::clone(self),
            matmul: null_mut(),
            layouts: [null_mut(); 3],
            calls: starts.collect(),
            found: Found([0; 16]),
        };
        let found = self.call(|blas| {
            self.describe(blas, matmul, element, &mut ready)?;
            self.find(blas, &mut ready)
        })?;
        Ok(found.then_some(ready))
    }

    /// Makes the descriptors.
    fn describe(&self, blas: &Blas, of: &MatMul, element: c_int, ready: &mut Ready) -> Outcome<()> {
        let numbers = self.numbers();
        let [a, b, _] = of.matrices;
        // SAFETY: pointers are to variables of the types and sizes that the attributes have; the descriptors are those that were made.
        unsafe {
            blas.matmul_create(&mut ready.matmul, numbers.compute_f32, F32)?;
            for (attribute, matrix) in numbers.taken.into_iter().zip([b, a]) {
                let taken = if matrix.transposed { numbers.transpose } else { numbers.keep };
                blas.matmul_set(ready.matmul, attribute, from_ref(&taken).cast(), size_of::<i32>())?;
            }
            for (at, (matrix, [rows, columns])) in of.matrices.iter().zip(of.extents()).enumerate() {
                // By columns: what is contiguous comes first.
                let Matrix { leading, transposed, next, .. } = *matrix;
                let [along, across] = if transposed { [rows, columns] } else { [columns, rows] };
                let layout = &mut ready.layouts[at];
                blas.layout_create(layout, element, along as u64, across as u64, leading)?;
                if of.batch > 1 {
                    let count = of.batch as i32;
                    blas.layout_set(*layout, numbers.batch_count, from_ref(&count).cast(), size_of::<i32>())?;
                    blas.layout_set(*layout, numbers.batch_stride, from_ref(&next).cast(), size_of::<i64>())?;
                }
            }
        }
        Ok(())
    }

    /// Asks for an algorithm; says whether there is one.
    fn find(&self, blas: &Blas, ready: &mut Ready) -> Outcome<bool> {
        let (numbers, vendor) = (self.numbers(), self.library.vendor);
        let [a, b, c] = ready.layouts;
        let (mut preference, mut count) = (null_mut(), 0);
        let most = self.workspace.bytes as u64;
        // The lowest bit that is set in any address of each.
        let aligned = |i: usize| {
            let all = ready.calls.iter().fold(MOST_ALIGNED, |all, call| all | call[i]);
            (1 << all.trailing_zeros()) as u32
        };
        let aligned = [aligned(1), aligned(0), aligned(2), aligned(2)];
        // SAFETY: as in `describe`; there is room for one result.
        let asked = unsafe {
            blas.preference_create(&mut preference)?;
            let mut set = blas.preference_set(
                preference,
                numbers.most_workspace,
                from_ref(&most).cast(),
                size_of::<u64>(),
            );
            for (attribute, bytes) in numbers.alignments.into_iter().flatten().zip(&aligned) {
                let size = size_of::<u32>();
                set = set
                    .and_then(|()| blas.preference_set(preference, attribute, from_ref(bytes).cast(), size));
            }
            let asked = set.and_then(|()| {
                let found = (&raw mut ready.found).cast::<c_void>();
                blas.heuristic(self.raw, ready.matmul, b, a, c, c, preference, 1, found, &mut count)
            });
            let freed = blas.preference_destroy(preference);
            asked.and(freed)
        };
        match asked {
            Err(fault) if fault.code == numbers.not_supported => Ok(false),
            Err(fault) => Err(fault),
            Ok(()) => {
                let fits = ready.found.workspace(vendor) <= most;
                Ok(count > 0 && ready.found.state(vendor) == 0 && fits)
            }
        }
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        let (library, raw) = (&self.library, self.raw);
        self.context.free(|_| {
            // SAFETY: this value's handle; the work that uses it is done.
            unsafe { library.functions.destroy(raw) }.map_err(|fault| explained(library.vendor, fault))
        });
    }
}

/// A fault of the library with what its code means.
fn explained(vendor: Vendor, fault: Fault) -> Fault {
    let numbers = if vendor == Vendor::Cuda { &CUDA } else { &HIP };
    let class = if fault.code == numbers.allocation_failed { Class::OutOfMemory } else { Class::Plain };
    Fault { meaning: meaning(vendor, fault.code).to_owned(), class, ..fault }
}

/// A matmul with its descriptors, its algorithm and its memory.
pub(crate) struct Ready {
    handles: Arc<Handles>,
    matmul: Handle,
    layouts: [Handle; 3],
    /// The addresses of the operands and the result, for each call.
    calls: Vec<[DevicePtr; 3]>,
    found: Found,
}

// SAFETY: descriptors are memory of the host that nobody else has.
unsafe impl Send for Ready {}

impl LibraryCall for Ready {
    unsafe fn issue(&self, stream: Handle) -> Outcome<()> {
        let Handles { raw, library, workspace, turn, .. } = &*self.handles;
        let _turn = locked(turn);
        let [a, b, c] = self.layouts;
        let (one, zero) = (1f32, 0f32);
        let scale = |number: &f32| from_ref(number).cast::<c_void>();
        let Part { at: room, bytes } = *workspace;
        for &[left, right, result] in &self.calls {
            // SAFETY: the addresses begin ranges that the layouts stay in (views are checked when they are bound), the algorithm is the one
            // that was found for these layouts, and the caller answers for the stream.
            unsafe {
                library.functions.matmul(
                    *raw,
                    self.matmul,
                    scale(&one),
                    right,
                    b,
                    left,
                    a,
                    scale(&zero),
                    result,
                    c,
                    result,
                    c,
                    (&raw const self.found).cast(),
                    room,
                    bytes,
                    stream,
                )
            }
            .map_err(|fault| explained(library.vendor, fault))?;
        }
        Ok(())
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        let made = |handle: &Handle| !handle.is_null();
        let freed = self.handles.call(|blas| {
            // SAFETY: this value's descriptors; the library reads them during calls alone.
            unsafe {
                let layouts = self.layouts.into_iter().filter(made).map(|l| blas.layout_destroy(l));
                let all = layouts.fold(Ok(()), Result::and);
                let own = if made(&self.matmul) { blas.matmul_destroy(self.matmul) } else { Ok(()) };
                all.and(own)
            }
        });
        if let Err(fault) = freed
            && self.handles.context.health.lost().is_none()
        {
            tracing::warn!(%fault, "freeing a matmul");
        }
    }
}
