//! cuBLASLt and hipBLASLt: a handle and a workspace for each device, and matmuls made ready for the memory that they are bound to.
//!
//! Both libraries think in columns. A matrix by rows is to them its transpose, so they are asked for `Cᵀ = Bᵀ·Aᵀ`: the operands change
//! places, and nothing is transposed that was not before. A bias along our columns is one along their rows, which is the only one that they add. Products of f32 are summed in f32
//! as they are (no TF32), those of f16 and bf16 in f32.
//!
//! A device has one workspace: its matmuls are done one after the other, in its stream. Calls of the library are made by one thread at a
//! time.

use std::ffi::{c_int, c_void};
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rlx_gpu::blas::{MatMul, Matrix};
use rlx_gpu::{BoundMatMul, locked};
use rlx_ir::DType;

use crate::driver::{Context, LibraryCall, Outcome, Part};
use crate::gpu::Gpu;
use crate::load::BlasLibrary;
use crate::numbers::{ABSENT, Numbers};
use crate::table::{Blas, Class, DevicePtr, Fault, Handle, Vendor};

/// Bytes of the workspace: what NVIDIA advises for its largest GPUs.
pub(crate) const WORKSPACE: usize = 32 << 20;
/// The most that the libraries look at of an address's alignment.
const MOST_ALIGNED: u64 = 256;

fn element(dtype: DType, numbers: &Numbers) -> Option<c_int> {
    match dtype {
        DType::F32 => Some(numbers.f32),
        DType::F16 => Some(numbers.f16),
        DType::BF16 => Some(numbers.bf16),
        _ => None,
    }
}

/// What the library computes behind the product.
fn epilogue(of: &MatMul, numbers: &Numbers) -> c_int {
    match (of.gelu, of.bias.is_some()) {
        (false, false) => numbers.plain,
        (false, true) => numbers.add_bias,
        (true, false) => numbers.gelu,
        (true, true) => numbers.gelu_bias,
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
    /// Whether it was told that there is no algorithm for an epilogue.
    told: AtomicBool,
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
        Ok(Handles { context, library, raw, workspace, turn: Mutex::new(()), told: AtomicBool::new(false) })
    }

    fn numbers(&self) -> &'static Numbers {
        Numbers::of(self.library.vendor)
    }

    /// Calls `f` with the context current.
    fn call<T>(&self, f: impl FnOnce(&Blas) -> Outcome<T>) -> Outcome<T> {
        let _turn = locked(&self.turn);
        self.context
            .with(|_| f(&self.library.functions).map_err(|fault| explained(self.library.vendor, fault)))
    }

    /// A matmul made ready for memory; `None` where the library has no algorithm for it.
    pub(crate) fn ready(self: &Arc<Self>, matmul: &BoundMatMul<'_, Gpu>) -> Outcome<Option<Ready>> {
        let of = matmul.of;
        let Some(element) = element(of.dtype, self.numbers()) else { return Ok(None) };
        let bytes = of.dtype.bits() as u64 / 8;
        let starts = of.calls.iter().map(|call| {
            [0, 1, 2, 3].map(|i| matmul.matrices[i].at + bytes * (of.matrices[i].offset + call[i]) as u64)
        });
        let bias = of.bias.zip(matmul.bias);
        let mut ready = Ready {
            handles: Arc::clone(self),
            matmul: null_mut(),
            layouts: [null_mut(); 4],
            calls: starts.collect(),
            beta: if of.adds { 1.0 } else { 0.0 },
            bias: bias.map(|((_, offset), part)| part.at + bytes * offset as u64),
            found: Found([0; 16]),
        };
        let found = self.call(|blas| {
            self.describe(blas, of, element, &mut ready)?;
            self.find(blas, &mut ready)
        })?;
        Ok(found.then_some(ready))
    }

    /// Says that the library has no algorithm for an epilogue: once as a warning, since nothing is wrong but the time that it takes.
    pub(crate) fn tell_rejected(&self, of: &MatMul) {
        let &MatMul { m, k, n, dtype, adds: residual, gelu, .. } = of;
        let (library, bias) = (self.library.name(), of.bias.is_some());
        if self.told.swap(true, Ordering::Relaxed) {
            tracing::debug!(library, %dtype, m, k, n, bias, residual, gelu, "no algorithm with this epilogue: own kernels do the step");
        } else {
            tracing::warn!(library, %dtype, m, k, n, bias, residual, gelu, "no algorithm with this epilogue: own kernels do the step, and what else has none");
        }
    }

    /// Makes the descriptors.
    fn describe(&self, blas: &Blas, of: &MatMul, element: c_int, ready: &mut Ready) -> Outcome<()> {
        let numbers = self.numbers();
        let [a, b, added, stored] = of.matrices;
        // SAFETY: the descriptor is the one that is made here, and the value is of the size that goes with the attribute.
        unsafe {
            blas.matmul_create(&mut ready.matmul, numbers.compute_f32, numbers.f32)?;
            for (attribute, matrix) in [(numbers.taken_a, b), (numbers.taken_b, a)] {
                let taken = if matrix.transposed { numbers.transpose } else { numbers.keep };
                blas.matmul_set(ready.matmul, attribute, from_ref(&taken).cast(), size_of::<i32>())?;
            }
        }
        self.describe_epilogue(blas, of, element, ready)?;
        let [of_a, of_b, of_c, of_d] = of.extents();
        ready.layouts[0] = self.layout(blas, (element, of.batch), a, of_a)?;
        ready.layouts[1] = self.layout(blas, (element, of.batch), b, of_b)?;
        ready.layouts[3] = self.layout(blas, (element, of.batch), stored, of_d)?;
        // What is added to a result in its own memory is described by the same layout; so is nothing.
        let is_same = (added.leading, added.next) == (stored.leading, stored.next);
        ready.layouts[2] =
            if is_same { ready.layouts[3] } else { self.layout(blas, (element, of.batch), added, of_c)? };
        Ok(())
    }

    /// Says what is computed behind the product, where anything is.
    fn describe_epilogue(&self, blas: &Blas, of: &MatMul, element: c_int, ready: &Ready) -> Outcome<()> {
        let numbers = self.numbers();
        let epilogue = epilogue(of, numbers);
        // SAFETY: as in `describe`; a bias is as long as a row of the result, and stays where it is as long as the matmul is used.
        unsafe {
            if epilogue != numbers.plain {
                blas.matmul_set(
                    ready.matmul,
                    numbers.epilogue,
                    from_ref(&epilogue).cast(),
                    size_of::<u32>(),
                )?;
            }
            if let Some(bias) = ready.bias {
                let pointer = from_ref::<DevicePtr>(&bias).cast();
                blas.matmul_set(ready.matmul, numbers.bias, pointer, size_of::<DevicePtr>())?;
                blas.matmul_set(
                    ready.matmul,
                    numbers.bias_dtype,
                    from_ref(&element).cast(),
                    size_of::<i32>(),
                )?;
            }
        }
        Ok(())
    }

    /// The layout of a matrix, of which a call has a `batch`.
    fn layout(
        &self,
        blas: &Blas,
        (element, batch): (c_int, i64),
        matrix: Matrix,
        [rows, columns]: [i64; 2],
    ) -> Outcome<Handle> {
        let numbers = self.numbers();
        // By columns: what is contiguous comes first.
        let Matrix { leading, transposed, next, .. } = matrix;
        let [along, across] = if transposed { [rows, columns] } else { [columns, rows] };
        let mut layout = null_mut();
        // SAFETY: as in `describe`.
        unsafe {
            blas.layout_create(&mut layout, element, along as u64, across as u64, leading)?;
            if batch > 1 {
                let count = batch as i32;
                let set = blas
                    .layout_set(layout, numbers.batch_count, from_ref(&count).cast(), size_of::<i32>())
                    .and_then(|()| {
                        blas.layout_set(
                            layout,
                            numbers.batch_stride,
                            from_ref(&next).cast(),
                            size_of::<i64>(),
                        )
                    });
                if let Err(fault) = set {
                    return blas.layout_destroy(layout).and(Err(fault));
                }
            }
        }
        Ok(layout)
    }

    /// Asks for an algorithm; says whether there is one.
    fn find(&self, blas: &Blas, ready: &mut Ready) -> Outcome<bool> {
        let (numbers, vendor) = (self.numbers(), self.library.vendor);
        let [a, b, c, d] = ready.layouts;
        let (mut preference, mut count) = (null_mut(), 0);
        let most = self.workspace.bytes as u64;
        // The lowest bit that is set in any address of each.
        let aligned = |i: usize| {
            let all = ready.calls.iter().fold(MOST_ALIGNED, |all, call| all | call[i]);
            (1 << all.trailing_zeros()) as u32
        };
        let aligned = [
            (numbers.alignment_a, aligned(1)),
            (numbers.alignment_b, aligned(0)),
            (numbers.alignment_c, aligned(2)),
            (numbers.alignment_d, aligned(3)),
        ];
        // SAFETY: as in `describe`; there is room for one result.
        let asked = unsafe {
            blas.preference_create(&mut preference)?;
            let mut set = blas.preference_set(
                preference,
                numbers.most_workspace,
                from_ref(&most).cast(),
                size_of::<u64>(),
            );
            for (attribute, bytes) in aligned.iter().filter(|(attribute, _)| *attribute != ABSENT) {
                let size = size_of::<u32>();
                set = set
                    .and_then(|()| blas.preference_set(preference, *attribute, from_ref(bytes).cast(), size));
            }
            let asked = set.and_then(|()| {
                let found = (&raw mut ready.found).cast::<c_void>();
                blas.heuristic(self.raw, ready.matmul, b, a, c, d, preference, 1, found, &mut count)
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
    let numbers = Numbers::of(vendor);
    let class = if fault.code == numbers.allocation_failed { Class::OutOfMemory } else { Class::Plain };
    Fault { meaning: meaning(vendor, fault.code).to_owned(), class, ..fault }
}

/// A matmul with its descriptors, its algorithm and its memory.
pub(crate) struct Ready {
    handles: Arc<Handles>,
    matmul: Handle,
    /// Of the operands, of what is added and of the result; the last two may be one.
    layouts: [Handle; 4],
    /// The addresses of the operands, of what is added and of the result, for each call.
    calls: Vec<[DevicePtr; 4]>,
    /// By what the matrix that is added is multiplied: 0 where there is none.
    beta: f32,
    bias: Option<DevicePtr>,
    found: Found,
}

// SAFETY: descriptors are memory of the host that nobody else has.
unsafe impl Send for Ready {}

impl LibraryCall for Ready {
    unsafe fn issue(&self, stream: Handle) -> Outcome<()> {
        let Handles { raw, library, workspace, turn, .. } = &*self.handles;
        let _turn = locked(turn);
        let [a, b, c, d] = self.layouts;
        let one = 1f32;
        let scale = |number: &f32| from_ref(number).cast::<c_void>();
        let Part { at: room, bytes } = *workspace;
        for &[left, right, added, result] in &self.calls {
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
                    scale(&self.beta),
                    added,
                    c,
                    result,
                    d,
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
                let [a, b, c, d] = self.layouts;
                let own = if c == d { null_mut() } else { c };
                let layouts = [a, b, own, d].into_iter().filter(made).map(|l| blas.layout_destroy(l));
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
