//! What launches give kernels: uniforms by value or where they are, tensor maps by value, and addresses of buffers.

use std::ffi::c_void;

use crate::calls::Vendor;
use crate::loaded::Code;
use crate::tensor_maps;
use crate::world::{Outcome, code, reject};

/// Uniforms.
#[derive(Debug, Clone)]
pub enum Uniforms {
    Values(Vec<i32>),
    At(u64),
}

/// What a launch gives.
#[derive(Debug, Clone)]
pub struct Arguments {
    pub uniforms: Uniforms,
    pub maps: Vec<tensor_maps::Words>,
    /// Where buffers are, and behind them the fault record, if the code can fail.
    pub buffers: Vec<u64>,
}

impl Arguments {
    /// The arguments of a launch, which are a buffer of all, or a pointer to each where there are maps.
    pub fn of(vendor: Vendor, code: &Code, [pointers, extra]: [*mut *mut c_void; 2]) -> Outcome<Arguments> {
        let buffers = code.buffers().len() + usize::from(code.can_fail());
        if code.maps().is_empty() {
            return Arguments::packed(code, buffers, packed(vendor, extra)?);
        }
        if !extra.is_null() {
            return reject(code::INVALID_VALUE, "maps in a buffer, where the compiler chose their places");
        }
        Arguments::pointed(code, buffers, pointers)
    }

    /// Those of a buffer, which has the size of the parameters.
    fn packed(code: &Code, buffers: usize, bytes: &[u8]) -> Outcome<Arguments> {
        let first = code.by_value.map_or(8, |count| (4 * count).next_multiple_of(8));
        let wants = first + 8 * buffers;
        if bytes.len() != wants {
            let why = format!("{} bytes of arguments, the kernel takes {wants}", bytes.len());
            return reject(code::INVALID_VALUE, why);
        }
        let (first, rest) = bytes.split_at(first);
        let addresses = |bytes: &[u8]| -> Vec<u64> {
            bytes.as_chunks().0.iter().map(|&word| u64::from_ne_bytes(word)).collect()
        };
        let uniforms = match code.by_value {
            None => Uniforms::At(addresses(first)[0]),
            Some(count) => {
                let words = first.as_chunks().0.iter().take(count);
                Uniforms::Values(words.map(|&word| i32::from_ne_bytes(word)).collect())
            }
        };
        Ok(Arguments { uniforms, maps: Vec::new(), buffers: addresses(rest) })
    }

    /// Those that pointers are to: to the address of the uniforms, so many maps, and the addresses of so many buffers.
    fn pointed(code: &Code, buffers: usize, pointers: *mut *mut c_void) -> Outcome<Arguments> {
        if pointers.is_null() {
            return reject(code::INVALID_VALUE, "a launch without arguments");
        }
        let maps = code.maps().len();
        // SAFETY: a pointer to each parameter, as the function's documentation asks for.
        let all = unsafe { std::slice::from_raw_parts(pointers, 1 + maps + buffers) };
        let address = |p: &*mut c_void| {
            // SAFETY: as above; an address is 8 bytes.
            unsafe { p.cast::<u64>().read() }
        };
        let map = |p: &*mut c_void| {
            // SAFETY: as above; a map is 128 bytes.
            unsafe { p.cast::<tensor_maps::Words>().read() }
        };
        Ok(Arguments {
            uniforms: Uniforms::At(address(&all[0])),
            maps: all[1..=maps].iter().map(map).collect(),
            buffers: all[1 + maps..].iter().map(address).collect(),
        })
    }
}

/// The bytes of the arguments of a launch that gives them as one buffer.
fn packed<'b>(vendor: Vendor, extra: *mut *mut c_void) -> Outcome<&'b [u8]> {
    let end = if vendor == Vendor::Cuda { 0 } else { 3 };
    let (mut buffer, mut size) = (std::ptr::null::<u8>(), 0usize);
    for pair in 0..3 {
        // SAFETY: a list of pairs that ends with `end`.
        let (key, value) = unsafe {
            let key = extra.add(2 * pair).read().addr();
            if key == end {
                break;
            }
            (key, extra.add(2 * pair + 1).read())
        };
        match key {
            1 => buffer = value.cast_const().cast(),
            // SAFETY: the size is behind the pointer.
            2 => size = unsafe { value.cast::<usize>().read() },
            _ => return reject(code::INVALID_VALUE, format!("a launch parameter {key}")),
        }
    }
    if buffer.is_null() {
        return reject(code::INVALID_VALUE, "a launch without arguments");
    }
    // SAFETY: as many bytes as the caller says.
    Ok(unsafe { std::slice::from_raw_parts(buffer, size) })
}
