//! cuBLASLt and hipBLASLt by the vendors' names: descriptors that are checked as they are set, an algorithm for each problem that fits no
//! other one, and matmuls as work of a stream.
#![allow(missing_docs, clippy::missing_safety_doc, clippy::too_many_arguments)]

use std::collections::hash_map::DefaultHasher;
use std::ffi::{c_int, c_void};
use std::hash::{Hash, Hasher};

use crate::calls::{self, Vendor, current, driver};
use crate::exports::{Handle, give, handle, id};
use crate::world::blas::{Descriptor, Element, How, Layout, MatMul, Problem, Product};
use crate::world::{Outcome, Rejected, Thing, Work, World};

/// The libraries' numbers for errors.
#[derive(Clone, Copy)]
enum Status {
    NotInitialised,
    InvalidValue,
    ExecutionFailed,
    NotSupported,
}

/// The numbers of the vendors' enumerations.
struct Numbers {
    compute_f32: c_int,
    operations: [i32; 2],
    taken: [c_int; 2],
    /// Attributes of a matmul: the epilogue, where its bias is, the type of that.
    epilogue: [c_int; 3],
    batch: [c_int; 2],
    alignments: std::ops::RangeInclusive<c_int>,
    /// Words of an algorithm.
    words: usize,
}

fn numbers(vendor: Vendor) -> Numbers {
    match vendor {
        Vendor::Cuda => Numbers {
            compute_f32: 68,
            operations: [0, 1],
            taken: [3, 4],
            epilogue: [7, 8, 26],
            batch: [5, 6],
            alignments: 5..=8,
            words: 8,
        },
        #[allow(clippy::reversed_empty_ranges, reason = "HIP has none")]
        Vendor::Hip => Numbers {
            compute_f32: 2,
            operations: [111, 112],
            taken: [0, 1],
            epilogue: [2, 3, 4],
            batch: [0, 1],
            alignments: 1..=0,
            words: 3,
        },
    }
}

fn code(vendor: Vendor, status: Status) -> i32 {
    let [cuda, hip] = match status {
        Status::NotInitialised => [1, 1],
        Status::InvalidValue => [7, 3],
        Status::ExecutionFailed => [13, 5],
        Status::NotSupported => [15, 7],
    };
    if vendor == Vendor::Cuda { cuda } else { hip }
}

fn reject<T>(vendor: Vendor, status: Status, why: impl Into<String>) -> Outcome<T> {
    crate::world::reject(code(vendor, status), why)
}

/// A call of the library; what the driver rejects is a failed execution to it.
fn library(vendor: Vendor, call: impl FnOnce(&mut World) -> Outcome<()>) -> c_int {
    calls::count_blas();
    driver(vendor, call)
}

fn executed<T>(vendor: Vendor, done: Outcome<T>) -> Outcome<T> {
    done.map_err(|r| Rejected { code: code(vendor, Status::ExecutionFailed), ..r })
}

/// Whether `of` is a handle of the present context.
fn check_handle(vendor: Vendor, world: &mut World, of: Handle) -> Outcome<u64> {
    let current = current(vendor, world)?;
    let context = executed(vendor, world.context(current))?;
    match context.thing(id(of)) {
        Ok(Thing::Blas) => Ok(current),
        _ => reject(vendor, Status::NotInitialised, "no handle of this context"),
    }
}

fn descriptor(vendor: Vendor, world: &mut World, of: Handle) -> Outcome<&mut Descriptor> {
    let missing = || Rejected {
        code: code(vendor, Status::InvalidValue),
        why: "no descriptor has this handle, or it was destroyed".into(),
    };
    world.descriptors.get_mut(&id(of)).ok_or_else(missing)
}

fn layout(vendor: Vendor, world: &mut World, of: Handle) -> Outcome<Layout> {
    match descriptor(vendor, world, of)? {
        Descriptor::Layout(layout) => Ok(*layout),
        _ => reject(vendor, Status::InvalidValue, "the descriptor is of something else than a layout"),
    }
}

/// Makes a descriptor.
fn make(vendor: Vendor, to: *mut Handle, of: impl FnOnce() -> Outcome<Descriptor>) -> c_int {
    library(vendor, |world| {
        let of = of()?;
        let new = world.handle();
        world.descriptors.insert(new, of);
        give(to, handle(new))
    })
}

/// Destroys a descriptor.
fn drop_it(vendor: Vendor, of: Handle, is: fn(&Descriptor) -> bool) -> c_int {
    library(vendor, |world| {
        if !is(descriptor(vendor, world, of)?) {
            return reject(vendor, Status::InvalidValue, "the descriptor is of something else");
        }
        world.descriptors.remove(&id(of));
        Ok(())
    })
}

/// The value of an attribute, of which there must be as many bytes.
fn value<T: Copy>(vendor: Vendor, at: *const c_void, bytes: usize) -> Outcome<T> {
    if at.is_null() || bytes != size_of::<T>() {
        return reject(
            vendor,
            Status::InvalidValue,
            format!("{bytes} bytes, the attribute has {}", size_of::<T>()),
        );
    }
    // SAFETY: as many bytes of the caller's.
    Ok(unsafe { at.cast::<T>().read_unaligned() })
}

fn set(
    vendor: Vendor,
    world: &mut World,
    of: Handle,
    attribute: c_int,
    at: *const c_void,
    bytes: usize,
) -> Outcome<()> {
    let numbers = numbers(vendor);
    let unknown = || reject(vendor, Status::InvalidValue, format!("attribute {attribute}"));
    match descriptor(vendor, world, of)? {
        Descriptor::MatMul(of) => return set_matmul(vendor, of, attribute, at, bytes),
        Descriptor::Layout(layout) if attribute == numbers.batch[0] => {
            let count = value::<i32>(vendor, at, bytes)?;
            if count < 1 {
                return reject(vendor, Status::InvalidValue, format!("a batch of {count}"));
            }
            layout.batch = count as u64;
        }
        Descriptor::Layout(layout) if attribute == numbers.batch[1] => {
            let stride = value::<i64>(vendor, at, bytes)?;
            let negative = || reject(vendor, Status::InvalidValue, format!("a stride of {stride}"));
            layout.stride = Some(u64::try_from(stride).or_else(|_| negative())?);
        }
        Descriptor::Preference(most) if attribute == 1 => *most = value::<u64>(vendor, at, bytes)?,
        Descriptor::Preference(_) if numbers.alignments.contains(&attribute) => {
            let aligned = value::<u32>(vendor, at, bytes)?;
            if !aligned.is_power_of_two() {
                return reject(vendor, Status::InvalidValue, format!("an alignment of {aligned}"));
            }
        }
        _ => return unknown(),
    }
    Ok(())
}

fn set_matmul(
    vendor: Vendor,
    of: &mut MatMul,
    attribute: c_int,
    at: *const c_void,
    bytes: usize,
) -> Outcome<()> {
    let numbers = numbers(vendor);
    let invalid = |why: String| reject(vendor, Status::InvalidValue, why);
    let [epilogue, bias, bias_element] = numbers.epilogue;
    if attribute == epilogue {
        let said = value::<u32>(vendor, at, bytes)?;
        // Both vendors' numbers are bits: 32 for a GELU, and 4 for a bias.
        of.how.gelu = match said & !4 {
            0 | 1 => false,
            32 => true,
            _ => return reject(vendor, Status::NotSupported, format!("epilogue {said}")),
        };
        of.how.biased = said & 4 != 0;
        if said == 0 || said == 5 {
            return invalid(format!("epilogue {said}"));
        }
    } else if attribute == bias {
        of.bias = value::<u64>(vendor, at, bytes)?;
    } else if attribute == bias_element {
        let number = value::<i32>(vendor, at, bytes)?;
        of.bias_element = Element::numbered(number);
        if of.bias_element.is_none() {
            return invalid(format!("a bias of type {number}"));
        }
    } else {
        let Some(which) = numbers.taken.iter().position(|&a| a == attribute) else {
            return invalid(format!("attribute {attribute}"));
        };
        let operation = value::<i32>(vendor, at, bytes)?;
        let Some(found) = numbers.operations.iter().position(|&o| o == operation) else {
            return invalid(format!("operation {operation}"));
        };
        of.how.transposed[which] = found == 1;
    }
    Ok(())
}

/// The problem, and where its bias is.
fn problem(
    vendor: Vendor,
    world: &mut World,
    matmul: Handle,
    [a, b, c, d]: [Handle; 4],
) -> Outcome<(Problem, Option<u64>)> {
    let of = match descriptor(vendor, world, matmul)? {
        Descriptor::MatMul(of) => *of,
        _ => {
            return reject(vendor, Status::InvalidValue, "the descriptor is of something else than a matmul");
        }
    };
    let [a, b, c, d] = [
        layout(vendor, world, a)?,
        layout(vendor, world, b)?,
        layout(vendor, world, c)?,
        layout(vendor, world, d)?,
    ];
    let invalid = |why: String| reject(vendor, Status::InvalidValue, why);
    if of.how.biased && of.bias == 0 {
        return invalid("an epilogue with a bias that is nowhere".to_owned());
    }
    if of.how.biased && of.bias_element.is_some_and(|element| element != d.element) {
        return invalid("a bias of another type than the result".to_owned());
    }
    let bias = of.how.biased.then_some(of.bias);
    let bias_aligned = of.bias % 16 == 0;
    let problem = Problem { how: of.how, layouts: [a, b, c, d], bias_aligned };
    match problem.sizes() {
        Ok(_) => Ok((problem, bias)),
        Err(why) => invalid(why),
    }
}

/// Bytes of workspace that every algorithm needs, where there is as much.
const NEEDED: u64 = 512;

/// What an algorithm is known by: it is for one problem.
fn fingerprint(problem: &Problem) -> u64 {
    let mut hasher = DefaultHasher::new();
    problem.hash(&mut hasher);
    hasher.finish()
}

fn find(
    vendor: Vendor,
    world: &mut World,
    of: Handle,
    matmul: Handle,
    layouts: [Handle; 4],
    preference: Handle,
    most: c_int,
    found: *mut c_void,
    count: *mut c_int,
) -> Outcome<()> {
    check_handle(vendor, world, of)?;
    let (problem, _) = problem(vendor, world, matmul, layouts)?;
    let Descriptor::Preference(room) = *descriptor(vendor, world, preference)? else {
        return reject(vendor, Status::InvalidValue, "the descriptor is of something else than a preference");
    };
    if most < 1 || found.is_null() {
        return reject(vendor, Status::InvalidValue, "no room for a result");
    }
    give(count, 0)?;
    if !problem.is_supported() {
        return reject(vendor, Status::NotSupported, "no algorithm");
    }
    let (words, needed) = (numbers(vendor).words, if room < NEEDED { 0 } else { NEEDED });
    let found = found.cast::<u64>();
    // SAFETY: the caller has room for the algorithm, the size of the workspace, the state and five words more.
    unsafe {
        found.write(fingerprint(&problem));
        found.add(words - 1).write(needed);
        found.add(words).write(needed);
        found.add(words + 1).write(0);
    }
    give(count, 1)
}

/// What a matmul is given.
struct Given {
    matmul: Handle,
    layouts: [Handle; 4],
    /// The operands, what is added, the result.
    at: [u64; 4],
    scales: [*const c_void; 2],
    algorithm: *const c_void,
    workspace: (u64, u64),
    stream: Handle,
}

fn multiply(vendor: Vendor, world: &mut World, of: Handle, given: Given) -> Outcome<()> {
    let current = check_handle(vendor, world, of)?;
    let (problem, bias) = problem(vendor, world, given.matmul, given.layouts)?;
    let invalid = |why: &str| reject(vendor, Status::InvalidValue, why);
    let [alpha, beta] = given.scales;
    if alpha.is_null() || beta.is_null() || given.algorithm.is_null() {
        return invalid("a null pointer");
    }
    let [a, b, c, d] = given.at;
    // SAFETY: numbers of the caller's; an algorithm that was found has as many words.
    let (alpha, beta, known, needed) = unsafe {
        let algorithm = given.algorithm.cast::<u64>();
        let needed = algorithm.add(numbers(vendor).words - 1).read();
        (alpha.cast::<f32>().read(), beta.cast::<f32>().read(), algorithm.read(), needed)
    };
    if alpha != 1.0 || ![0.0, 1.0].contains(&beta) {
        return reject(vendor, Status::NotSupported, "this library scales nothing");
    }
    let [.., of_c, of_d] = problem.layouts;
    if c == d && of_c != of_d {
        return invalid("a result in the memory of what is added, by another layout");
    }
    if known != fingerprint(&problem) {
        return invalid("an algorithm that was found for another matmul");
    }
    if given.workspace.1 < needed {
        return invalid("less workspace than the algorithm needs");
    }
    let places = [a, b, c, d].into_iter().zip(&problem.layouts).chain(bias.map(|at| (at, &of_d)));
    if { places }.any(|(at, layout)| at % layout.element.bytes() != 0) {
        return invalid("an address in the middle of an element");
    }
    let workspace = (given.workspace.0, needed);
    let work = Work::Multiply(Box::new(Product { problem, at: [a, b, c, d], beta, bias, workspace }));
    let context = executed(vendor, world.context(current))?;
    executed(vendor, context.give(id(given.stream), work))
}

crate::exports::exports! {
    [Cuda cublasLtCreate, Hip hipblasLtCreate] (to: *mut Handle) |vendor| library(vendor, |world| {
        let current = current(vendor, world)?;
        let new = world.handle();
        executed(vendor, world.context(current))?.add(new, Thing::Blas);
        give(to, handle(new))
    });
    [Cuda cublasLtDestroy, Hip hipblasLtDestroy] (of: Handle) |vendor| library(vendor, |world| {
        let current = check_handle(vendor, world, of)?;
        executed(vendor, world.context(current)?.remove(id(of), |thing| matches!(thing, Thing::Blas)))
    });
    [Cuda cublasLtMatmulDescCreate, Hip hipblasLtMatmulDescCreate] (to: *mut Handle, compute: c_int, scale: c_int) |vendor|
        make(vendor, to, || match (compute == numbers(vendor).compute_f32, scale) {
            (true, 0) => {
                let how = How { transposed: [false; 2], gelu: false, biased: false };
                Ok(Descriptor::MatMul(MatMul { how, bias: 0, bias_element: None }))
            }
            _ => reject(vendor, Status::NotSupported, format!("sums of type {compute}, scales of type {scale}")),
        });
    [Cuda cublasLtMatmulDescSetAttribute, Hip hipblasLtMatmulDescSetAttribute] (
        of: Handle, attribute: c_int, at: *const c_void, bytes: usize
    ) |vendor| library(vendor, |world| set(vendor, world, of, attribute, at, bytes));
    [Cuda cublasLtMatmulDescDestroy, Hip hipblasLtMatmulDescDestroy] (of: Handle) |vendor|
        drop_it(vendor, of, |d| matches!(d, Descriptor::MatMul(_)));
    [Cuda cublasLtMatrixLayoutCreate, Hip hipblasLtMatrixLayoutCreate] (
        to: *mut Handle, element: c_int, rows: u64, columns: u64, leading: i64
    ) |vendor| make(vendor, to, || {
        let Some(element) = Element::numbered(element) else {
            return reject(vendor, Status::NotSupported, format!("elements of type {element}"));
        };
        let layout = Layout { element, rows, columns, leading: u64::try_from(leading).unwrap_or(0), batch: 1, stride: None };
        match layout.fault() {
            None if rows > 0 && columns > 0 => Ok(Descriptor::Layout(layout)),
            fault => reject(vendor, Status::InvalidValue, fault.unwrap_or_else(|| "a matrix of nothing".into())),
        }
    });
    [Cuda cublasLtMatrixLayoutSetAttribute, Hip hipblasLtMatrixLayoutSetAttribute] (
        of: Handle, attribute: c_int, at: *const c_void, bytes: usize
    ) |vendor| library(vendor, |world| set(vendor, world, of, attribute, at, bytes));
    [Cuda cublasLtMatrixLayoutDestroy, Hip hipblasLtMatrixLayoutDestroy] (of: Handle) |vendor|
        drop_it(vendor, of, |d| matches!(d, Descriptor::Layout(_)));
    [Cuda cublasLtMatmulPreferenceCreate, Hip hipblasLtMatmulPreferenceCreate] (to: *mut Handle) |vendor|
        make(vendor, to, || Ok(Descriptor::Preference(0)));
    [Cuda cublasLtMatmulPreferenceSetAttribute, Hip hipblasLtMatmulPreferenceSetAttribute] (
        of: Handle, attribute: c_int, at: *const c_void, bytes: usize
    ) |vendor| library(vendor, |world| set(vendor, world, of, attribute, at, bytes));
    [Cuda cublasLtMatmulPreferenceDestroy, Hip hipblasLtMatmulPreferenceDestroy] (of: Handle) |vendor|
        drop_it(vendor, of, |d| matches!(d, Descriptor::Preference(_)));
    [Cuda cublasLtMatmulAlgoGetHeuristic, Hip hipblasLtMatmulAlgoGetHeuristic] (
        of: Handle, matmul: Handle, a: Handle, b: Handle, c: Handle, d: Handle, preference: Handle, most: c_int,
        found: *mut c_void, count: *mut c_int
    ) |vendor| library(vendor, |world| find(vendor, world, of, matmul, [a, b, c, d], preference, most, found, count));
    [Cuda cublasLtMatmul, Hip hipblasLtMatmul] (
        of: Handle, matmul: Handle, alpha: *const c_void, a: u64, a_layout: Handle, b: u64, b_layout: Handle,
        beta: *const c_void, c: u64, c_layout: Handle, d: u64, d_layout: Handle, algorithm: *const c_void,
        workspace: u64, bytes: usize, stream: Handle
    ) |vendor| library(vendor, |world| multiply(vendor, world, of, Given {
        matmul,
        layouts: [a_layout, b_layout, c_layout, d_layout],
        at: [a, b, c, d],
        scales: [alpha, beta],
        algorithm,
        workspace: (workspace, bytes as u64),
        stream,
    }));
}

/// How many calls of these libraries this thread made.
#[unsafe(no_mangle)]
pub extern "C" fn rlx_fake_blas_calls() -> u64 {
    calls::blas_count()
}
