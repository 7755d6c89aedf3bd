//! What the fake libraries for matmuls reject, for both vendors: so that a matmul that passes on them says something.

use std::ffi::{c_int, c_void};
use std::ptr::{from_ref, null, null_mut};

use crate::common::{Fake, second_gpu};
use crate::rejections::{Driver, Handle, LAST, call};

/// The element type f32, and one that there is no matmul of.
const F32: c_int = 0;
const I8: c_int = 3;

/// The numbers of a vendor.
struct Numbers {
    compute: c_int,
    operations: [i32; 2],
    taken: [c_int; 2],
    /// Attributes of a matmul: the epilogue, where its bias is, the type of that.
    epilogue: [c_int; 3],
    batch: [c_int; 2],
    not_initialised: c_int,
    invalid: c_int,
    failed: c_int,
    not_supported: c_int,
}

const CUDA: Numbers = Numbers {
    compute: 68,
    operations: [0, 1],
    taken: [3, 4],
    epilogue: [7, 8, 26],
    batch: [5, 6],
    not_initialised: 1,
    invalid: 7,
    failed: 13,
    not_supported: 15,
};

const HIP: Numbers = Numbers {
    compute: 2,
    operations: [111, 112],
    taken: [0, 1],
    epilogue: [2, 3, 4],
    batch: [0, 1],
    not_initialised: 1,
    invalid: 3,
    failed: 5,
    not_supported: 7,
};

/// A 6×8 matrix by an 8×4 one, by columns; each test changes one thing.
struct MatMul<'d> {
    driver: &'d Driver,
    numbers: &'static Numbers,
    handle: Handle,
    matmul: Handle,
    layouts: [Handle; 4],
    preference: Handle,
    stream: Handle,
    /// The operands, what is added, the result.
    at: [u64; 4],
    alpha: f32,
    beta: f32,
    workspace: (u64, usize),
    found: [u64; 16],
}

impl<'d> MatMul<'d> {
    fn new(driver: &'d Driver) -> MatMul<'d> {
        let numbers = if driver.hip { &HIP } else { &CUDA };
        let [a, b, d, workspace] =
            [6 * 8 * 4, 8 * 4 * 4, 6 * 4 * 4, 1024].map(|bytes| driver.allocate(bytes));
        let mut it = MatMul {
            driver,
            numbers,
            handle: null_mut(),
            matmul: null_mut(),
            layouts: [null_mut(); 4],
            preference: null_mut(),
            stream: driver.stream(),
            at: [a, b, d, d],
            alpha: 1.0,
            beta: 0.0,
            workspace: (workspace, 1024),
            found: [0; 16],
        };
        assert_eq!(call!(driver, b"cublasLtCreate", b"hipblasLtCreate", (*mut Handle) &mut it.handle), 0);
        assert_eq!(it.describe(numbers.compute, F32), 0);
        for (i, (rows, columns)) in [(6, 8), (8, 4), (6, 4), (6, 4)].into_iter().enumerate() {
            it.layouts[i] = it.layout(F32, rows, columns, rows as i64).unwrap();
        }
        let made = call!(driver, b"cublasLtMatmulPreferenceCreate", b"hipblasLtMatmulPreferenceCreate", (*mut Handle) &mut it.preference);
        assert_eq!(made, 0);
        assert_eq!(it.prefer(1, &1024u64), 0);
        it
    }

    fn describe(&mut self, compute: c_int, scale: c_int) -> c_int {
        call!(self.driver, b"cublasLtMatmulDescCreate", b"hipblasLtMatmulDescCreate", (*mut Handle, c_int, c_int) &mut self.matmul, compute, scale)
    }

    fn layout(&self, element: c_int, rows: u64, columns: u64, leading: i64) -> Result<Handle, c_int> {
        let mut layout = null_mut();
        let made = call!(self.driver, b"cublasLtMatrixLayoutCreate", b"hipblasLtMatrixLayoutCreate",
            (*mut Handle, c_int, u64, u64, i64) &mut layout, element, rows, columns, leading);
        if made == 0 { Ok(layout) } else { Err(made) }
    }

    fn prefer<T>(&self, attribute: c_int, value: &T) -> c_int {
        call!(self.driver, b"cublasLtMatmulPreferenceSetAttribute", b"hipblasLtMatmulPreferenceSetAttribute",
            (Handle, c_int, *const c_void, usize) self.preference, attribute, from_ref(value).cast(), size_of::<T>())
    }

    fn take<T>(&self, attribute: c_int, value: &T) -> c_int {
        call!(self.driver, b"cublasLtMatmulDescSetAttribute", b"hipblasLtMatmulDescSetAttribute",
            (Handle, c_int, *const c_void, usize) self.matmul, attribute, from_ref(value).cast(), size_of::<T>())
    }

    fn lay<T>(&self, layout: Handle, attribute: c_int, value: &T) -> c_int {
        call!(self.driver, b"cublasLtMatrixLayoutSetAttribute", b"hipblasLtMatrixLayoutSetAttribute",
            (Handle, c_int, *const c_void, usize) layout, attribute, from_ref(value).cast(), size_of::<T>())
    }

    fn drop_layout(&self, layout: Handle) -> c_int {
        call!(self.driver, b"cublasLtMatrixLayoutDestroy", b"hipblasLtMatrixLayoutDestroy", (Handle) layout)
    }

    fn find(&mut self) -> c_int {
        let ([a, b, c, d], mut count) = (self.layouts, 0);
        let found = self.found.as_mut_ptr().cast::<c_void>();
        let asked = call!(self.driver, b"cublasLtMatmulAlgoGetHeuristic", b"hipblasLtMatmulAlgoGetHeuristic",
            (Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut c_void, *mut c_int)
            self.handle, self.matmul, a, b, c, d, self.preference, 1, found, &mut count);
        assert_eq!(count == 1, asked == 0);
        asked
    }

    fn multiply(&self) -> c_int {
        let ([a, b, c, d], [at, bt, ct, dt]) = (self.layouts, self.at);
        let (alpha, beta): (*const c_void, *const c_void) =
            (from_ref(&self.alpha).cast(), from_ref(&self.beta).cast());
        call!(self.driver, b"cublasLtMatmul", b"hipblasLtMatmul",
            (Handle, Handle, *const c_void, u64, Handle, u64, Handle, *const c_void, u64, Handle, u64, Handle, *const c_void, u64, usize, Handle)
            self.handle, self.matmul, alpha, at, a, bt, b, beta, ct, c, dt, d, self.found.as_ptr().cast(), self.workspace.0, self.workspace.1, self.stream)
    }
}

/// Runs `test` for both vendors on a GPU of its own.
fn each(test: impl Fn(MatMul<'_>, &Numbers)) {
    let _alone = second_gpu();
    for driver in Driver::both() {
        driver.enter(LAST);
        driver.reset(LAST);
        let matmul = MatMul::new(&driver);
        let numbers = matmul.numbers;
        test(matmul, numbers);
        driver.reset(LAST);
    }
}

#[test]
fn what_is_right_is_done() {
    each(|mut it, _| {
        let (driver, [a, b, _, d]) = (it.driver, it.at);
        let write = |at: u64, values: &[f32]| {
            assert_eq!(driver.to_device(at, values.as_ptr().cast(), 4 * values.len(), it.stream), 0);
        };
        write(a, &[2.0; 48]);
        write(b, &(0..32).map(|i| i as f32).collect::<Vec<_>>());
        assert_eq!([it.find(), it.multiply()], [0, 0]);
        let host = driver.pin(96);
        assert_eq!([driver.to_host(host, d, 96, it.stream), driver.wait(it.stream)], [0, 0]);
        // SAFETY: pinned memory of this size, which nothing writes any more.
        let found = unsafe { std::slice::from_raw_parts(host.cast::<f32>(), 24) };
        // Each column of the result: twice the sum of a column of the right matrix.
        let want: Vec<f32> = (0..24).map(|i| 2.0 * (28 + 64 * (i / 6)) as f32).collect();
        assert_eq!(found, want);
    });
}

#[test]
fn attributes_are_checked_as_they_are_set() {
    each(|mut it, n| {
        let [a, ..] = it.layouts;
        // Sums in another type, elements without matmuls, matrices that are none.
        assert_eq!([it.describe(n.compute + 4, F32), it.describe(n.compute, I8)], [n.not_supported; 2]);
        assert_eq!(it.layout(I8, 6, 8, 6), Err(n.not_supported));
        for (rows, columns, leading) in [(0, 8, 6), (6, 0, 6), (6, 8, 5), (6, 8, -6)] {
            assert_eq!(it.layout(F32, rows, columns, leading), Err(n.invalid));
        }
        // Unknown attributes, values of another size, values that are none.
        let transpose = n.operations[1];
        assert_eq!(
            [it.take(99, &transpose), it.take(n.taken[0], &1i64), it.take(n.taken[0], &7i32)],
            [n.invalid; 3]
        );
        assert_eq!(
            [it.lay(a, 99, &1i32), it.lay(a, n.batch[0], &1i64), it.lay(a, n.batch[0], &0i32)],
            [n.invalid; 3]
        );
        assert_eq!([it.lay(a, n.batch[1], &-1i64), it.lay(a, n.batch[1], &1i32)], [n.invalid; 2]);
        assert_eq!([it.prefer(99, &1u64), it.prefer(1, &1u32)], [n.invalid; 2]);
        let nothing = call!(it.driver, b"cublasLtMatmulDescSetAttribute", b"hipblasLtMatmulDescSetAttribute",
            (Handle, c_int, *const c_void, usize) it.matmul, n.taken[0], null(), 4);
        assert_eq!(nothing, n.invalid);
        let [epilogue, bias, bias_element] = n.epilogue;
        // No epilogue, an unknown one, a bias of a type that there is no matmul of.
        assert_eq!(
            [it.take(epilogue, &0u32), it.take(epilogue, &5u32), it.take(epilogue, &4u64)],
            [n.invalid; 3]
        );
        assert_eq!([it.take(epilogue, &512u32), it.take(epilogue, &8u32)], [n.not_supported; 2]);
        assert_eq!([it.take(bias, &1u32), it.take(bias_element, &I8)], [n.invalid; 2]);
        // A descriptor of something else.
        assert_eq!([it.lay(it.matmul, n.batch[0], &1i32), it.drop_layout(it.matmul)], [n.invalid; 2]);
    });
}

#[test]
fn epilogues_are_computed_and_checked() {
    each(|mut it, n| {
        let (driver, [a, b, _, d]) = (it.driver, it.at);
        let [c, bias] = [96, 24].map(|bytes| driver.allocate(bytes));
        let write = |at: u64, values: &[f32]| {
            assert_eq!(driver.to_device(at, values.as_ptr().cast(), 4 * values.len(), it.stream), 0);
        };
        write(a, &[1.0; 48]);
        write(b, &[1.0; 32]);
        write(c, &(0..24).map(|i| i as f32).collect::<Vec<_>>());
        write(bias, &(0..6).map(|i| -100.0 * i as f32).collect::<Vec<_>>());
        let [epilogue, pointer, element] = n.epilogue;
        // A bias that is nowhere, of another type, then as it should be.
        assert_eq!([it.take(epilogue, &4u32), it.find()], [0, n.invalid]);
        assert_eq!([it.take(pointer, &bias), it.take(element, &2i32), it.find()], [0, 0, n.invalid]);
        assert_eq!([it.take(element, &F32), it.find()], [0, 0]);
        (it.at[2], it.beta) = (c, 1.0);
        assert_eq!(it.multiply(), 0);
        let host = driver.pin(96);
        assert_eq!([driver.to_host(host, d, 96, it.stream), driver.wait(it.stream)], [0, 0]);
        // SAFETY: pinned memory of this size, which nothing writes any more.
        let found = unsafe { std::slice::from_raw_parts(host.cast::<f32>(), 24) };
        // The bias goes along the rows of the result by columns.
        let want: Vec<f32> = (0..24).map(|i| 8.0 + i as f32 - 100.0 * (i % 6) as f32).collect();
        assert_eq!(found, want);
        // An algorithm is for its epilogue; a bias has its memory to the last element, and begins at a multiple of 16 bytes.
        assert_eq!([it.take(epilogue, &36u32), it.multiply()], [0, n.invalid]);
        assert_eq!([it.take(pointer, &(bias + 4)), it.find()], [0, n.not_supported]);
        assert_eq!([it.take(pointer, &(bias + 16)), it.find(), it.multiply()], [0, 0, n.failed]);
        assert_eq!([it.take(pointer, &bias), it.find()], [0, 0]);
        // Over what is added by the same layout alone.
        (it.at[2], it.layouts[2]) = (d, it.layout(F32, 6, 4, 8).unwrap());
        assert_eq!([it.find(), it.multiply()], [0, n.invalid]);
        it.layouts[2] = it.layouts[3];
        assert_eq!([it.find(), it.multiply(), driver.wait(it.stream)], [0; 3]);
    });
}

#[test]
fn layouts_that_are_no_matmul_have_no_algorithm() {
    each(|mut it, n| {
        let own = it.layouts;
        for (at, rows, columns) in [(0, 6, 7), (1, 7, 4), (3, 4, 6), (2, 6, 5)] {
            it.layouts[at] = it.layout(F32, rows, columns, rows as i64).unwrap();
            assert_eq!(it.find(), n.invalid, "{at}");
            it.layouts = own;
        }
        it.layouts[1] = it.layout(2, 8, 4, 8).unwrap();
        assert_eq!(it.find(), n.invalid, "halves by floats");
        it.layouts = own;
        // A batch in one of them, then in all, but without strides.
        assert_eq!([it.lay(own[0], n.batch[0], &2i32), it.find()], [0, n.invalid]);
        own[1..].iter().for_each(|&layout| assert_eq!(it.lay(layout, n.batch[0], &2i32), 0));
        assert_eq!(it.find(), n.invalid);
        own.iter().for_each(|&layout| assert_eq!(it.lay(layout, n.batch[1], &0i64), 0));
        assert_eq!(it.find(), n.invalid, "results over each other");
        own[2..].iter().for_each(|&layout| assert_eq!(it.lay(layout, n.batch[1], &24i64), 0));
        assert_eq!(it.find(), 0);
    });
}

#[test]
fn what_was_destroyed_is_not_there() {
    each(|mut it, n| {
        assert_eq!(it.find(), 0);
        assert_eq!([it.drop_layout(it.layouts[1]), it.drop_layout(it.layouts[1])], [0, n.invalid]);
        assert_eq!([it.find(), it.multiply()], [n.invalid; 2]);
        it.layouts[1] = it.layout(F32, 8, 4, 8).unwrap();
        assert_eq!(it.multiply(), 0);
        it.driver.wait(it.stream);
        let destroy = || call!(it.driver, b"cublasLtDestroy", b"hipblasLtDestroy", (Handle) it.handle);
        assert_eq!([destroy(), destroy()], [0, n.not_initialised]);
        assert_eq!(it.multiply(), n.not_initialised);
        assert_eq!(it.find(), n.not_initialised);
    });
}

#[test]
fn an_algorithm_is_for_one_matmul_and_its_workspace() {
    each(|mut it, n| {
        assert_eq!(it.multiply(), n.invalid, "none was asked for");
        assert_eq!(it.find(), 0);
        it.workspace.1 = 100;
        assert_eq!(it.multiply(), n.invalid);
        it.workspace.1 = 1024;
        // The left matrix as a transposed one of other extents.
        let own = it.layouts;
        it.layouts[0] = it.layout(F32, 8, 6, 8).unwrap();
        assert_eq!(it.take(n.taken[0], &n.operations[1]), 0);
        assert_eq!(it.multiply(), n.invalid, "found for another matmul");
        assert_eq!([it.find(), it.multiply()], [0, 0]);
        assert_eq!(
            [it.take(n.taken[0], &n.operations[0]), {
                it.layouts = own;
                it.find()
            }],
            [0, 0]
        );
        for (alpha, beta) in [(2.0, 0.0), (1.0, 2.0)] {
            (it.alpha, it.beta) = (alpha, beta);
            assert_eq!(it.multiply(), n.not_supported);
        }
        it.driver.wait(it.stream);
    });
}

#[test]
fn memory_is_checked_to_its_last_element() {
    each(|mut it, n| {
        assert_eq!(it.find(), 0);
        let own = it.at;
        for i in [0, 1, 3] {
            // Behind its first element there is one too few; in the middle of an element; nothing at all.
            for (at, code) in [(own[i] + 4, n.failed), (own[i] + 2, n.invalid), (16, n.failed)] {
                it.at[i] = at;
                it.at[2] = it.at[3];
                assert_eq!(it.multiply(), code, "{i} at {at:#x}");
                it.at = own;
            }
        }
        it.workspace.0 += 1024 - 256;
        assert_eq!(it.multiply(), n.failed);
        it.workspace.0 -= 1024 - 256;
        assert_eq!(it.driver.free(own[1]), 0);
        assert_eq!(it.multiply(), n.failed, "memory that was freed");
    });
}

#[test]
fn streams_wait_for_each_other() {
    each(|mut it, n| {
        assert_eq!([it.find(), it.multiply()], [0, 0]);
        let own = it.stream;
        it.stream = it.driver.stream();
        assert_eq!(it.multiply(), n.failed, "pending work of another stream");
        assert_eq!([it.driver.free(it.at[0]), it.driver.wait(own)], [401, 0]);
        assert_eq!(it.multiply(), 0);
        assert_eq!(it.driver.wait(it.stream), 0);
        it.stream = null_mut();
        assert_eq!(it.multiply(), n.failed);
        // Another GPU's handle.
        it.driver.enter(2);
        assert_eq!(it.find(), n.not_initialised);
        it.driver.enter(LAST);
    });
}
