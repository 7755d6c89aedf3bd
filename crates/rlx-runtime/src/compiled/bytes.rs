//! Byte buffers aligned for every element type.

use rlx_ir::{Result, memory};

/// Bytes that start at a multiple of 8.
#[derive(Debug, Clone, Default)]
pub(super) struct AlignedBytes {
    words: Vec<u64>,
    len: usize,
}

impl AlignedBytes {
    /// Makes it `len` bytes long; allocates only to grow. The contents are unspecified.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](rlx_ir::ErrorKind::OutOfMemory); `what` says what they are for.
    pub(super) fn resize(&mut self, len: usize, what: impl FnOnce() -> String) -> Result<&mut [u8]> {
        let words = len.div_ceil(8);
        if self.words.len() < words {
            self.words = memory::zeroed(words, what)?;
        }
        self.len = len;
        Ok(&mut bytemuck::cast_slice_mut(&mut self.words)[..len])
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }
}

/// Copies the leading block that two row-major tensors have in common; `size` is an element's bytes.
pub(super) fn copy_block(src: &[u8], src_dims: &[usize], dst: &mut [u8], dst_dims: &[usize], size: usize) {
    let (&[s, ref src_rest @ ..], &[d, ref dst_rest @ ..]) = (src_dims, dst_dims) else {
        dst[..size].copy_from_slice(&src[..size]);
        return;
    };
    let n = s.min(d);
    let stride = |dims: &[usize]| dims.iter().product::<usize>() * size;
    let (src_stride, dst_stride) = (stride(src_rest), stride(dst_rest));
    if src_rest == dst_rest {
        dst[..n * dst_stride].copy_from_slice(&src[..n * src_stride]);
        return;
    }
    for i in 0..n {
        copy_block(&src[i * src_stride..], src_rest, &mut dst[i * dst_stride..], dst_rest, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_cropped_and_put_back() {
        let src: Vec<u8> = (0..12).collect();
        let mut cropped = [0; 4];
        copy_block(&src, &[2, 3, 2], &mut cropped, &[2, 1, 2], 1);
        assert_eq!(cropped, [0, 1, 6, 7]);
        let mut back = [9; 12];
        copy_block(&cropped, &[2, 1, 2], &mut back, &[2, 3, 2], 1);
        assert_eq!(back, [0, 1, 9, 9, 9, 9, 6, 7, 9, 9, 9, 9]);
    }
}
