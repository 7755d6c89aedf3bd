//! CRC-32 as zip archives use it.

const TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 == 1 { (c >> 1) ^ 0xEDB8_8320 } else { c >> 1 };
            bit += 1;
        }
        table[i] = c;
        i += 1;
    }
    table
};

/// The checksum of the bytes of all parts, one after the other.
pub(crate) fn crc32(parts: &[&[u8]]) -> u32 {
    !parts.iter().copied().flatten().fold(!0, |c, &b| TABLE[((c ^ u32::from(b)) & 0xFF) as usize] ^ (c >> 8))
}

#[cfg(test)]
mod tests {
    #[test]
    fn check_value() {
        assert_eq!(super::crc32(&[b"1234", b"56789"]), 0xCBF4_3926);
    }
}
