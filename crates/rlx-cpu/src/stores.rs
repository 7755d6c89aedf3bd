//! Stores that go past the caches, for results that no cache would keep until they are read.
//!
//! An ordinary store reads its cache line from memory, and the line is written back later. A *non-temporal* store of a whole line does not read it, and
//! leaves the caches to what is read. But whoever reads the result has to wait for memory. So it depends on the last-level cache, and on how
//! a result is written ([`Stores::of_rows`], [`Stores::of_transposed`]).
//!
//! Such stores are not ordered with others, not even with those that tell another thread that a task is done. [`fence`] waits for them;
//! [`RunCx::parallel_stores`](crate::kernels::RunCx::parallel_stores) calls it behind each task.
//!
//! Sources: Intel 64 and IA-32 Architectures Optimization Reference Manual, "Non-temporal stores"; AMD64 Architecture Programmer's Manual, volume 2,
//! "Write-Combining Buffers".

use std::sync::OnceLock;

use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// How results are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Stores {
    /// By way of the caches.
    #[default]
    Cached,
    /// Past them, where whole cache lines are stored.
    NonTemporal,
}

impl Stores {
    /// How rows of a result of so many bytes are stored, one after the other. Half of the last-level cache is still read from there by who comes next; what
    /// fills it is not.
    pub(crate) fn of_rows(bytes: usize) -> Stores {
        Stores::of(bytes, 1)
    }

    /// How the lines of so many bytes that are transposed are stored. Nothing foresees which ones are next, so that ordinary stores wait for memory: others pay
    /// as soon as the source and the result together fill the last-level cache.
    pub(crate) fn of_transposed(bytes: usize) -> Stores {
        Stores::of(bytes, 2)
    }

    /// Past the caches from that share of the last-level cache on.
    fn of(bytes: usize, share: usize) -> Stores {
        match last_level_cache() {
            Some(cache) if bytes >= cache / share => Stores::NonTemporal,
            _ => Stores::Cached,
        }
    }
}

/// Bytes of a cache line, which is what a non-temporal store writes as a whole.
pub(crate) const LINE: usize = 64;

/// Bytes of the cache that all threads of a core complex share, where non-temporal stores are known.
fn last_level_cache() -> Option<usize> {
    static BYTES: OnceLock<Option<usize>> = OnceLock::new();
    *BYTES.get_or_init(detect)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn detect() -> Option<usize> {
    use raw_cpuid::CacheType;
    let caches = raw_cpuid::CpuId::new().get_cache_parameters()?;
    caches
        .filter(|cache| matches!(cache.cache_type(), CacheType::Data | CacheType::Unified))
        .map(|cache| {
            cache.associativity()
                * cache.physical_line_partitions()
                * cache.coherency_line_size()
                * cache.sets()
        })
        .max()
}

/// Elsewhere, results are stored by way of the caches.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn detect() -> Option<usize> {
    None
}

/// Waits until all non-temporal stores of this thread are seen by all others.
#[inline]
pub(crate) fn fence() {
    // SAFETY: every processor of the architecture has the instruction.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Copies bytes, the whole lines among those that are written past the caches.
///
/// # Safety
/// `bytes` bytes must be readable at `from` and writable at `to`, which must not overlap. Nothing may read them before [`fence`].
pub(crate) unsafe fn copy(isa: Isa, from: *const u8, to: *mut u8, bytes: usize) {
    isa.run(Copy { from, to, bytes });
}

struct Copy {
    from: *const u8,
    to: *mut u8,
    bytes: usize,
}

impl Kernel for Copy {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Copy { from, to, bytes } = self;
        let start = to.align_offset(LINE).min(bytes);
        let lines = (bytes - start) / LINE;
        let end = start + lines * LINE;
        // SAFETY: `copy` was promised the memory; lines begin at a multiple of their size.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, start);
            for at in (start..end).step_by(LINE) {
                s.store_non_temporal(to.add(at).cast(), s.load(from.add(at).cast()));
            }
            std::ptr::copy_nonoverlapping(from.add(end), to.add(end), bytes - end);
        }
    }
}

const _: () = assert!(LINE == LANES * size_of::<f32>(), "a vector is a line");

#[cfg(test)]
mod tests {
    use super::*;

    /// From and to any place in a line, of lengths around those of lines; what lies around is left alone.
    #[test]
    fn bytes_are_copied_past_the_caches() {
        let source: Vec<u8> = (0..1000u32).map(|i| (i * 167 % 251) as u8).collect();
        for isa in Isa::available() {
            for (from, to, bytes) in
                [(0, 0, 0), (0, 0, 64), (1, 3, 63), (5, 60, 70), (7, 1, 200), (0, 64, 640), (63, 62, 129)]
            {
                let mut result = vec![0xa5u8; 1000];
                // SAFETY: both vectors have more bytes than that.
                unsafe { copy(isa, source.as_ptr().add(from), result.as_mut_ptr().add(to), bytes) };
                fence();
                for (i, &got) in result.iter().enumerate() {
                    let inside = (to..to + bytes).contains(&i);
                    let want = if inside { source[from + i - to] } else { 0xa5 };
                    assert_eq!(got, want, "{isa}: byte {i} of {bytes} from {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn small_results_stay_in_the_caches() {
        assert_eq!(Stores::of_rows(1 << 10), Stores::Cached);
        assert_eq!(Stores::of_transposed(1 << 10), Stores::Cached);
    }
}
