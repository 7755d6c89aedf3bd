//! Results: a status for the program, and a message for people, kept for each thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::ptr;

use rlx_ir::panics::catch;
use rlx_ir::{Error, ErrorKind};

/// What a call gave; everything but `Ok` left a message in `rlx_last_error`.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RlxStatus {
    /// All went well.
    Ok = 0,
    /// An argument that makes no sense: a null pointer, text that is not UTF-8, an index out of range, an unknown option.
    InvalidArgument = 1,
    /// A file that could not be read or written.
    File = 2,
    /// A file that is not a model, or breaks its format.
    Malformed = 3,
    /// An op, attribute or element type that is valid but not implemented.
    Unsupported = 4,
    /// An input that is missing, unknown, or of the wrong type or shape, or a value that an op forbids.
    InvalidInput = 5,
    /// A device that is absent, or a build without its backend.
    DeviceUnavailable = 6,
    /// Memory that cannot be had.
    OutOfMemory = 7,
    /// A fault the device's driver reported.
    Device = 8,
    /// A bug in RLX.
    Internal = 9,
}

fn status_of(kind: ErrorKind) -> RlxStatus {
    match kind {
        ErrorKind::Config => RlxStatus::InvalidArgument,
        ErrorKind::Io => RlxStatus::File,
        ErrorKind::Malformed | ErrorKind::Parse | ErrorKind::InvalidGraph => RlxStatus::Malformed,
        ErrorKind::Unsupported => RlxStatus::Unsupported,
        ErrorKind::Shape
        | ErrorKind::DType
        | ErrorKind::NeedsInputValue
        | ErrorKind::Binding
        | ErrorKind::Value
        | ErrorKind::Dimension => RlxStatus::InvalidInput,
        ErrorKind::DeviceUnavailable => RlxStatus::DeviceUnavailable,
        ErrorKind::OutOfMemory => RlxStatus::OutOfMemory,
        ErrorKind::Device | ErrorKind::Panic => RlxStatus::Device,
        _ => RlxStatus::Internal,
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Text for C: what is after a zero byte would be lost, so zero bytes are left out.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// An argument that makes no sense.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}

/// Calls `f`; its error and its panic become a status and a message.
pub(crate) fn guarded(f: impl FnOnce() -> rlx_ir::Result<()>) -> RlxStatus {
    let panicked = |text: String| Err(Error::new(ErrorKind::Internal, format!("RLX panicked: {text}")));
    match catch(f).unwrap_or_else(panicked) {
        Ok(()) => RlxStatus::Ok,
        Err(e) => {
            LAST.with(|last| *last.borrow_mut() = c_text(&e.to_string()));
            status_of(e.kind())
        }
    }
}

/// Frees what `p` owns, if it is not null.
///
/// # Safety
/// `p` came from `Box::into_raw` and is not used again.
pub(crate) unsafe fn free<T>(p: *mut T) {
    if !p.is_null() {
        // SAFETY: promised by the caller.
        let owned = unsafe { Box::from_raw(p) };
        guarded(|| {
            drop(owned);
            Ok(())
        });
    }
}

/// Where a result is to be put.
///
/// # Errors
/// A null pointer.
///
/// # Safety
/// `p` is null or may be written to.
pub(crate) unsafe fn put<T>(p: *mut T, value: T, what: &str) -> rlx_ir::Result<()> {
    if p.is_null() {
        return Err(invalid(format!("`{what}` is null")));
    }
    // SAFETY: it is not null; the rest is promised by the caller.
    unsafe { ptr::write(p, value) };
    Ok(())
}

/// What `p` points to.
///
/// # Errors
/// A null pointer.
///
/// # Safety
/// `p` is null or points to a `T` that stays as it is for `'a`.
pub(crate) unsafe fn get<'a, T>(p: *const T, what: &str) -> rlx_ir::Result<&'a T> {
    // SAFETY: promised by the caller.
    unsafe { p.as_ref() }.ok_or_else(|| invalid(format!("`{what}` is null")))
}

/// The text at `p`.
///
/// # Errors
/// A null pointer, or text that is not UTF-8.
///
/// # Safety
/// `p` is null or points to bytes that end with a zero and stay as they are for `'a`.
pub(crate) unsafe fn text<'a>(p: *const c_char, what: &str) -> rlx_ir::Result<&'a str> {
    if p.is_null() {
        return Err(invalid(format!("`{what}` is null")));
    }
    // SAFETY: it is not null; the rest is promised by the caller.
    let text = unsafe { CStr::from_ptr(p) };
    text.to_str().map_err(|_| invalid(format!("`{what}` is not UTF-8")))
}

/// The message of the last call of this thread that failed; empty if none did. It is valid until the thread's next call that fails.
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub extern "C" fn rlx_last_error() -> *const c_char {
    // The text is on the heap, where the cell's next value does not move it.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The version of RLX, as in "0.1.0".
// SAFETY: names that begin with `rlx_` are this library's alone.
#[unsafe(no_mangle)]
pub extern "C" fn rlx_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
