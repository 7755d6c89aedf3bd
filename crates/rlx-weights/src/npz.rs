//! NumPy's `.npz`: a zip archive of `.npy` arrays, stored or deflated.

use crate::npy::Array;
use crate::{malformed, npy};
use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_with_limit};
use rlx_ir::files::{io_error, map_file, write_whole};
use rlx_ir::{ConstData, Error, ErrorKind, memory};
use std::path::Path;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;

/// An array may be this many times larger than its deflated bytes: the format's own limit is near it.
const MOST_EXPANSION: u64 = 1032;

/// Reads a `.npz` file: names and arrays in the archive's order.
///
/// # Errors
/// A file that cannot be read, or that is not an archive of arrays.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<(String, ConstData)>, Error> {
    read_checked(path, |_, _| Ok(()))
}

/// As [`read`]; `check` sees each array's name and header before the array is unpacked, and its error is the call's.
///
/// # Errors
/// As [`read`]; what `check` reports.
pub fn read_checked(
    path: impl AsRef<Path>,
    check: impl FnMut(&str, &npy::Header) -> Result<(), Error>,
) -> Result<Vec<(String, ConstData)>, Error> {
    let path = path.as_ref();
    let numbers = |arrays| numbers(arrays).map_err(|e| e.with_origin(path.display().to_string()));
    read_any_checked(path, check).and_then(numbers)
}

/// As [`read_checked`], also of strings.
///
/// # Errors
/// As [`read_checked`]; strings that are no Unicode.
pub fn read_any_checked(
    path: impl AsRef<Path>,
    mut check: impl FnMut(&str, &npy::Header) -> Result<(), Error>,
) -> Result<Vec<(String, Array)>, Error> {
    let path = path.as_ref();
    // Stored arrays are as large as the file says, which is mapped: its claims are looked at before its bytes are read.
    let bytes = map_file(path)?;
    arrays(bytes.as_ref(), &mut check).map_err(|e| e.with_origin(path.display().to_string()))
}

/// Reads the contents of a `.npz` file.
///
/// # Errors
/// As [`read`].
pub fn from_bytes(bytes: &[u8]) -> Result<Vec<(String, ConstData)>, Error> {
    any_from_bytes(bytes).and_then(numbers)
}

/// As [`from_bytes`], also of strings.
///
/// # Errors
/// As [`read_any_checked`].
pub fn any_from_bytes(bytes: &[u8]) -> Result<Vec<(String, Array)>, Error> {
    arrays(bytes, &mut |_, _| Ok(()))
}

/// The arrays, if all are numbers.
fn numbers(arrays: Vec<(String, Array)>) -> Result<Vec<(String, ConstData)>, Error> {
    let number = |(name, array): (String, Array)| match array.numbers() {
        Ok(numbers) => Ok((name, numbers)),
        Err(e) => Err(e.with_node(format!("array \"{name}\""))),
    };
    arrays.into_iter().map(number).collect()
}

/// A check of a name and a header before the array is unpacked.
type Check<'a> = dyn FnMut(&str, &npy::Header) -> Result<(), Error> + 'a;

fn arrays(bytes: &[u8], check: &mut Check<'_>) -> Result<Vec<(String, Array)>, Error> {
    let (count, mut at) = directory(bytes)?;
    let mut arrays = Vec::new();
    for _ in 0..count {
        let (entry, next) = Entry::read(bytes, at)?;
        at = next;
        let name = entry.name.strip_suffix(".npy").unwrap_or(&entry.name).to_owned();
        let named = |e: Error| if e.node().is_some() { e } else { e.with_node(format!("array \"{name}\"")) };
        check(&name, &entry.header(bytes).map_err(named)?)?;
        let array = npy::any_from_bytes(&entry.contents(bytes)?).map_err(named)?;
        arrays.push((name, array));
    }
    Ok(arrays)
}

/// Writes a `.npz` file.
///
/// # Errors
/// A file that cannot be written, or an element type that NumPy does not have.
pub fn write(path: impl AsRef<Path>, arrays: &[(&str, &ConstData)]) -> Result<(), Error> {
    let path = path.as_ref();
    let bytes = to_bytes(arrays)?;
    write_whole(path, |file| std::io::Write::write_all(file, &bytes).map_err(|e| io_error(path, e)))
}

/// The contents of a `.npz` file, its arrays stored.
///
/// # Errors
/// An element type that NumPy does not have, or more than 4 GiB; [`ErrorKind::OutOfMemory`].
pub fn to_bytes(arrays: &[(&str, &ConstData)]) -> Result<Vec<u8>, Error> {
    let whole = |(name, array): &(&str, &ConstData)| {
        Ok((name.to_string(), npy::header_of(array)?, array.bytes().clone()))
    };
    archive(&arrays.iter().map(whole).collect::<Result<Vec<_>, Error>>()?)
}

/// As [`to_bytes`], also of strings.
///
/// # Errors
/// As [`to_bytes`]; strings that end with NUL, which NumPy's fixed width cannot hold.
pub fn any_to_bytes(arrays: &[(&str, &Array)]) -> Result<Vec<u8>, Error> {
    let whole = |(name, array): &(&str, &Array)| match array {
        Array::Numbers(numbers) => Ok((name.to_string(), npy::header_of(numbers)?, numbers.bytes().clone())),
        Array::Strings(strings) => {
            let (header, elements) = strings.written()?;
            Ok((name.to_string(), header, elements.into()))
        }
    };
    archive(&arrays.iter().map(whole).collect::<Result<Vec<_>, Error>>()?)
}

/// An archive of arrays: their names, headers and elements.
fn archive<B: AsRef<[u8]>>(arrays: &[(String, Vec<u8>, B)]) -> Result<Vec<u8>, Error> {
    // Names are in the file twice; headers of arrays and of the archive are shorter than this.
    let most = |(name, _, elements): &(String, Vec<u8>, B)| (elements.as_ref().len(), 2 * name.len() + 1024);
    let sum = |(a, b): (usize, usize), (c, d)| (a.saturating_add(c), b.saturating_add(d));
    let (elements, rest) = arrays.iter().map(most).fold((0, 1024), sum);
    let room = elements.saturating_add(rest);
    memory::ensure(room, || format!("an archive of {} arrays", arrays.len()))?;
    let (mut file, mut directory) = (Vec::with_capacity(room), Vec::new());
    let small =
        |n: usize| u32::try_from(n).map_err(|_| Error::new(ErrorKind::Unsupported, "an npz above 4 GiB"));
    for (name, header, elements) in arrays {
        let name = format!("{name}.npy");
        let parts = [header.as_slice(), elements.as_ref()];
        let (offset, size) = (small(file.len())?, small(parts.iter().map(|p| p.len()).sum())?);
        let length = u16::try_from(name.len()).map_err(|_| malformed("an array name above 64 KiB"))?;
        // Version 2.0, names in UTF-8, stored, no date.
        let mut common = Vec::new();
        for half in [20u16, 0x0800, 0, 0, 0x21] {
            common.extend(half.to_le_bytes());
        }
        for word in [checksum(&parts), size, size] {
            common.extend(word.to_le_bytes());
        }
        common.extend(length.to_le_bytes());
        common.extend(0u16.to_le_bytes());
        file.extend(LOCAL.to_le_bytes());
        file.extend(&common);
        file.extend(name.as_bytes());
        parts.iter().for_each(|part| file.extend_from_slice(part));
        directory.extend(CENTRAL.to_le_bytes());
        directory.extend(20u16.to_le_bytes());
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (start, size) = (small(file.len())?, small(directory.len())?);
    let count = u16::try_from(arrays.len()).map_err(|_| malformed("more than 65,535 arrays"))?;
    file.extend(directory);
    file.extend(END.to_le_bytes());
    file.extend([0; 4]);
    file.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    file.extend([size.to_le_bytes(), start.to_le_bytes()].concat());
    file.extend([0; 2]);
    Ok(file)
}

/// The CRC-32 of the bytes of all parts, one after the other.
fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

fn half(bytes: &[u8], at: usize) -> Result<u64, Error> {
    number::<2>(bytes, at)
}

fn word(bytes: &[u8], at: usize) -> Result<u64, Error> {
    number::<4>(bytes, at)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u64, Error> {
    let end = at.checked_add(N).ok_or_else(truncated)?;
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes.get(at..end).ok_or_else(truncated)?);
    Ok(u64::from_le_bytes(wide))
}

fn truncated() -> Error {
    malformed("not a whole zip archive")
}

fn place(at: u64) -> Result<usize, Error> {
    usize::try_from(at).map_err(|_| truncated())
}

/// How many entries there are and where their directory starts.
fn directory(bytes: &[u8]) -> Result<(u64, usize), Error> {
    // The end record is 22 bytes and a comment of at most 64 KiB.
    let last = bytes.len().checked_sub(22).ok_or_else(truncated)?;
    let first = last.saturating_sub(0xFFFF);
    let found = (first..=last).rev().find(|&at| word(bytes, at).is_ok_and(|w| w == u64::from(END)));
    let end = found.ok_or_else(truncated)?;
    let (count, start) = (half(bytes, end + 10)?, word(bytes, end + 16)?);
    let wide = count == 0xFFFF || start == 0xFFFF_FFFF;
    let locator = end.checked_sub(20).filter(|&at| word(bytes, at).is_ok_and(|w| w == u64::from(LOCATOR_64)));
    match locator {
        Some(locator) if wide => {
            let end = place(number::<8>(bytes, locator + 8)?)?;
            if word(bytes, end)? != u64::from(END_64) {
                return Err(truncated());
            }
            let field = |offset: usize| number::<8>(bytes, end.checked_add(offset).ok_or_else(truncated)?);
            Ok((field(32)?, place(field(48)?)?))
        }
        _ => Ok((count, place(start)?)),
    }
}

/// One entry of the directory.
struct Entry {
    name: String,
    method: u64,
    crc: u64,
    packed: u64,
    size: u64,
    offset: u64,
}

impl Entry {
    /// The entry at `at`, and where the next one starts.
    fn read(bytes: &[u8], at: usize) -> Result<(Entry, usize), Error> {
        let field = |offset: usize| at.checked_add(offset).ok_or_else(truncated);
        if word(bytes, at)? != u64::from(CENTRAL) {
            return Err(truncated());
        }
        let [name, extra, comment] = [28, 30, 32].map(|o| half(bytes, at.saturating_add(o)));
        let (name, extra, comment) = (name? as usize, extra? as usize, comment? as usize);
        let text = bytes.get(field(46)?..field(46 + name)?).ok_or_else(truncated)?;
        let mut entry = Entry {
            name: String::from_utf8(text.to_vec()).map_err(|_| malformed("a name that is not UTF-8"))?,
            method: half(bytes, field(10)?)?,
            crc: word(bytes, field(16)?)?,
            packed: word(bytes, field(20)?)?,
            size: word(bytes, field(24)?)?,
            offset: word(bytes, field(42)?)?,
        };
        entry.widen(bytes.get(field(46 + name)?..field(46 + name + extra)?).ok_or_else(truncated)?)?;
        Ok((entry, field(46 + name + extra + comment)?))
    }

    /// Takes what does not fit 32 bits from the extra field.
    fn widen(&mut self, mut extra: &[u8]) -> Result<(), Error> {
        while extra.len() >= 4 {
            let (id, length) = (half(extra, 0)?, half(extra, 2)? as usize);
            let body = extra.get(4..4 + length).ok_or_else(truncated)?;
            if id == 1 {
                let wide = [&mut self.size, &mut self.packed, &mut self.offset];
                let open = wide.into_iter().filter(|v| **v == 0xFFFF_FFFF);
                for (i, slot) in open.enumerate() {
                    *slot = number::<8>(body, 8 * i)?;
                }
            }
            extra = &extra[4 + length..];
        }
        Ok(())
    }

    /// The array's header; only its own bytes are unpacked.
    fn header(&self, bytes: &[u8]) -> Result<npy::Header, Error> {
        let start = self.unpack(self.packed(bytes)?, npy::MOST_HEADER)?;
        let (header, data) = npy::Header::split(&start)?;
        let claimed = header.data_bytes().and_then(|n| n.checked_add(start.len() - data.len()));
        if claimed.map(|n| n as u64) != Some(self.size) {
            return Err(malformed(format!(
                "{} bytes do not make {:?} {}",
                self.size, header.dims, header.elements
            )));
        }
        Ok(header)
    }

    /// The entry's bytes as they are in the archive.
    fn packed<'b>(&self, bytes: &'b [u8]) -> Result<&'b [u8], Error> {
        let at = place(self.offset)?;
        if word(bytes, at)? != u64::from(LOCAL) {
            return Err(truncated());
        }
        let [name, extra] = [26, 28].map(|o| half(bytes, at.saturating_add(o)));
        let start = at.checked_add(30 + name? as usize + extra? as usize).ok_or_else(truncated)?;
        let end = start.checked_add(place(self.packed)?).ok_or_else(truncated)?;
        bytes.get(start..end).ok_or_else(truncated)
    }

    /// The entry's bytes, unpacked and checked.
    fn contents(&self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let packed = self.packed(bytes)?;
        if self.size > (self.packed + 1).saturating_mul(MOST_EXPANSION) {
            return Err(malformed(format!(
                "{}: {} bytes cannot come from {}",
                self.name, self.size, self.packed
            )));
        }
        // What is unpacked grows as it comes, so for a moment it is there twice.
        let room = place(self.size)?.saturating_mul(if self.method == 0 { 1 } else { 2 });
        memory::ensure(room, || format!("the array \"{}\"", self.name))?;
        let contents = self.unpack(packed, place(self.size)?)?;
        if contents.len() as u64 != self.size || u64::from(checksum(&[&contents])) != self.crc {
            return Err(malformed(format!("{}: its checksum is wrong", self.name)));
        }
        Ok(contents)
    }

    /// At most so many of the entry's bytes, from the first on.
    fn unpack(&self, packed: &[u8], most: usize) -> Result<Vec<u8>, Error> {
        match self.method {
            0 => Ok(packed[..packed.len().min(most)].to_vec()),
            8 => match decompress_to_vec_with_limit(packed, most) {
                Ok(contents) => Ok(contents),
                Err(e) if e.status == TINFLStatus::HasMoreOutput => Ok(e.output),
                Err(e) => Err(malformed(format!("{}: {e}", self.name))),
            },
            other => {
                let message = format!("{}: compression method {other}", self.name);
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive() -> Vec<u8> {
        let (a, b) = (ConstData::from_f32(&[3], &[1.0, 2.0, 3.0]), ConstData::from_i64(&[], &[7]));
        to_bytes(&[("a", &a.unwrap()), ("größe", &b.unwrap())]).unwrap()
    }

    #[test]
    fn arrays_survive_the_round_trip() {
        let arrays = from_bytes(&archive()).unwrap();
        assert_eq!(arrays[0].1, ConstData::from_f32(&[3], &[1.0, 2.0, 3.0]).unwrap());
        assert_eq!((arrays[1].0.as_str(), arrays.len()), ("größe", 2));
        assert_eq!(from_bytes(&to_bytes(&[]).unwrap()).unwrap(), []);
    }

    #[test]
    fn deflated_entries_are_unpacked() {
        let stored = archive();
        let (entry, _) = Entry::read(&stored, directory(&stored).unwrap().1).unwrap();
        let plain = entry.contents(&stored).unwrap();
        let packed = miniz_oxide::deflate::compress_to_vec(&plain, 6);
        let mut file = stored[..30].to_vec();
        file.extend(&stored[30..35]);
        file.extend(&packed);
        let entry = Entry { method: 8, packed: packed.len() as u64, offset: 0, ..entry };
        assert_eq!(entry.contents(&file).unwrap(), plain);
    }

    /// A small archive of a large array: reading the header does not unpack it.
    #[test]
    fn claims_are_checked_before_anything_is_unpacked() {
        let zeros = ConstData::new(rlx_ir::DType::U8, &[64 << 20], vec![0; 64 << 20]).unwrap();
        let plain = npy::to_bytes(&zeros).unwrap();
        let packed = miniz_oxide::deflate::compress_to_vec(&plain, 6);
        assert!(packed.len() < 1 << 20);
        let entry = Entry {
            name: "zeros.npy".to_owned(),
            method: 8,
            crc: u64::from(checksum(&[&plain])),
            packed: packed.len() as u64,
            size: plain.len() as u64,
            offset: 0,
        };
        let mut file = to_bytes(&[]).unwrap();
        file.splice(0..0, packed.iter().copied());
        file.splice(0..0, [LOCAL.to_le_bytes().as_slice(), &[0; 26]].concat());
        assert_eq!(entry.header(&file).unwrap().dims, [64 << 20]);
        // A header that claims more than the archive holds, or less, is an error itself.
        assert!(Entry { size: entry.size + 1, ..entry }.header(&file).is_err());
    }

    #[test]
    fn damaged_archives_are_errors_or_read_the_same() {
        let file = archive();
        for cut in 0..file.len() {
            assert!(from_bytes(&file[..cut]).is_err(), "{cut}");
        }
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 0xFF;
            // Dates and names may change unseen; contents may not.
            if let Ok(arrays) = from_bytes(&damaged) {
                assert!(arrays.iter().all(|(_, a)| a.num_elements() == 3 || a.num_elements() == 1), "{at}");
            }
        }
    }
}
