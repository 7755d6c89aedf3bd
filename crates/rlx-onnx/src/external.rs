//! Tensor data in external files next to the model.
//!
//! A model file is not trusted: the location it names must be a regular file inside the model's own folder,
//! after following symbolic links, and offset and length must be inside that file.

use crate::proto::tensor_proto::DataLocation;
use crate::proto::{StringStringEntryProto, TensorProto};
use bytes::Bytes;
use rlx_ir::files::{MappedFile, map_file};
use rlx_ir::{Error, ErrorKind};
use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The external files of one model: each is mapped once and shared by all tensors in it.
#[derive(Debug)]
pub(crate) struct ExternalFiles {
    /// The model's folder; `None` for a model that came as bytes without one, whose files are those that were given.
    folder: Option<PathBuf>,
    read: Mutex<ReadFiles>,
}

/// The files that were read.
#[derive(Debug, Default)]
struct ReadFiles {
    by_location: HashMap<String, SharedFile>,
    /// By real path, so that a file is mapped once however it is called.
    by_path: HashMap<PathBuf, SharedFile>,
}

/// What keeps a file mapped while there are slices of it.
struct Held(Arc<MappedFile>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// A file's bytes, of which tensors are slices, and the file itself.
#[derive(Debug, Clone)]
pub(crate) struct SharedFile {
    pub(crate) file: Arc<MappedFile>,
    pub(crate) bytes: Bytes,
}

impl SharedFile {
    pub(crate) fn map(path: &Path) -> Result<Self, Error> {
        Ok(Self::of(map_file(path)?))
    }

    fn of(file: MappedFile) -> Self {
        let file = Arc::new(file);
        SharedFile { bytes: Bytes::from_owner(Held(Arc::clone(&file))), file }
    }

    /// Whether these bytes are in it.
    pub(crate) fn holds(&self, bytes: &Bytes) -> bool {
        !bytes.is_empty() && self.bytes.as_ptr_range().contains(&bytes.as_ptr())
    }
}

/// The location of a tensor's data in an external file.
pub(crate) fn entries(tensor: &TensorProto) -> Option<&[StringStringEntryProto]> {
    (tensor.data_location == Some(DataLocation::External as i32)).then_some(&*tensor.external_data)
}

/// The file that these entries name.
pub(crate) fn location(entries: &[StringStringEntryProto]) -> Option<&str> {
    entries.iter().find(|e| e.key() == "location").map(|e| e.value())
}

/// The location of one tensor's bytes.
#[derive(Debug, PartialEq, Eq)]
struct DataRange<'a> {
    location: &'a str,
    offset: u64,
    length: Option<u64>,
}

impl ExternalFiles {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        ExternalFiles { folder, read: Mutex::default() }
    }

    /// Files by location that were read elsewhere; there are no others.
    pub(crate) fn given(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let mut read = ReadFiles::default();
        for (location, bytes) in files {
            let file = SharedFile::of(MappedFile::from(bytes));
            read.by_path.insert(PathBuf::from(&location), file.clone());
            read.by_location.insert(location, file);
        }
        ExternalFiles { folder: None, read: Mutex::new(read) }
    }

    /// The `size` bytes that the entries of a tensor's `external_data` point to.
    pub(crate) fn read(&self, entries: &[StringStringEntryProto], size: usize) -> Result<Bytes, Error> {
        let place = DataRange::parse(entries)?;
        if place.length.is_some_and(|length| length != size as u64) {
            let length = place.length.unwrap_or_default();
            return Err(malformed(format!("external data of {length} bytes for a tensor of {size}")));
        }
        let SharedFile { file: whole, bytes: file } = self.file(place.location)?;
        whole.check_whole()?;
        let end = place.offset.checked_add(size as u64).filter(|&end| end <= file.len() as u64);
        let Some(end) = end else {
            let (offset, location, len) = (place.offset, place.location, file.len());
            return Err(malformed(format!(
                "{size} bytes at {offset} are not all in {location} of {len} bytes"
            )));
        };
        Ok(file.slice(place.offset as usize..end as usize))
    }

    /// Why the file at a location cannot be read; it is not read here, nor counted as read.
    pub(crate) fn fault(&self, location: &str) -> Option<String> {
        if self.read.lock().unwrap_or_else(PoisonError::into_inner).by_location.contains_key(location) {
            return None;
        }
        self.resolve(location).err().map(|e| e.message().to_owned())
    }

    /// The file at a location: the one that was opened there first.
    fn file(&self, location: &str) -> Result<SharedFile, Error> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = read.by_location.get(location) {
            return Ok(file.clone());
        }
        let path = self.resolve(location)?;
        let file = match read.by_path.get(&path) {
            Some(file) => file.clone(),
            None => SharedFile::map(&path)?,
        };
        read.by_path.insert(path, file.clone());
        read.by_location.insert(location.to_owned(), file.clone());
        Ok(file)
    }

    /// The files at these locations, as tensors read them: those that were not read yet are mapped now.
    ///
    /// # Errors
    /// A location where no tensor could be read; [`ErrorKind::Internal`] when others were read.
    pub(crate) fn all(&self, locations: &[&str]) -> Result<Vec<SharedFile>, Error> {
        let files = locations.iter().map(|location| self.file(location)).collect::<Result<_, _>>()?;
        let named: HashSet<&str> = locations.iter().copied().collect();
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        match read.by_location.keys().find(|location| !named.contains(location.as_str())) {
            None => Ok(files),
            Some(location) => {
                let message = format!("\"{location}\" was read, and is not among the model's files");
                Err(Error::new(ErrorKind::Internal, message))
            }
        }
    }

    /// The file that contains these bytes of a tensor.
    pub(crate) fn holding(&self, bytes: &Bytes) -> Option<Arc<MappedFile>> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.by_path.values().find(|file| file.holds(bytes)).map(|file| Arc::clone(&file.file))
    }

    /// The real path of a location, which must be in the model's folder.
    fn resolve(&self, location: &str) -> Result<PathBuf, Error> {
        let Some(folder) = &self.folder else {
            let message = format!("external data \"{location}\" of a model that was not read from a folder");
            return Err(Error::new(ErrorKind::Io, message)
                .with_hint("open it by its path, or give the file's bytes with the model's"));
        };
        let outside = || {
            Error::new(
                ErrorKind::Malformed,
                format!("external data \"{location}\" is not inside the model's folder"),
            )
            .with_hint("put the file itself, not a link out of the folder, beside the model")
        };
        let relative = Path::new(location);
        let plain = relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        if location.is_empty() || !plain {
            return Err(outside());
        }
        let real = |path: &Path| {
            path.canonicalize()
                .map_err(|e| Error::new(ErrorKind::Io, format!("{}: {e}", path.display())).with_source(e))
        };
        let path = folder.join(relative);
        if matches!(path.try_exists(), Ok(false)) {
            let message =
                format!("its data is in the file \"{location}\", which is not in the model's folder");
            return Err(Error::new(ErrorKind::Io, message).with_hint(format!(
                "put \"{location}\" next to the model: exporters write large weights to separate files"
            )));
        }
        let (folder, path) = (real(folder)?, real(&path)?);
        if path.starts_with(&folder) { Ok(path) } else { Err(outside()) }
    }
}

impl<'a> DataRange<'a> {
    fn parse(entries: &'a [StringStringEntryProto]) -> Result<Self, Error> {
        let find = |key: &str| entries.iter().find(|e| e.key() == key).map(|e| e.value());
        let number = |key: &str| {
            let parse = |text: &str| {
                text.trim()
                    .parse::<u64>()
                    .map_err(|_| malformed(format!("external data's {key} is \"{text}\"")))
            };
            find(key).map(parse).transpose()
        };
        let location = location(entries).ok_or_else(|| malformed("external data without a location"))?;
        Ok(DataRange { location, offset: number("offset")?.unwrap_or(0), length: number("length")? })
    }
}

fn malformed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Malformed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(pairs: &[(&str, &str)]) -> Vec<StringStringEntryProto> {
        let entry = |&(k, v): &(&str, &str)| StringStringEntryProto {
            key: Some(k.to_owned()),
            value: Some(v.to_owned()),
        };
        pairs.iter().map(entry).collect()
    }

    /// A fresh folder with `model/data.bin` of ten bytes and `secret` outside `model`.
    fn folder(name: &str) -> PathBuf {
        let base = std::env::temp_dir().join(format!("rlx-onnx-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        std::fs::create_dir_all(base.join("model/sub")).unwrap();
        std::fs::write(base.join("model/data.bin"), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
        std::fs::write(base.join("model/sub/more.bin"), [7]).unwrap();
        std::fs::write(base.join("secret"), [1, 2, 3, 4]).unwrap();
        base
    }

    #[test]
    fn reads_slices_of_one_shared_map() {
        let base = folder("slices");
        let files = ExternalFiles::new(Some(base.join("model")));
        let at = |offset: &str| {
            files.read(&entries(&[("location", "data.bin"), ("offset", offset), ("length", "4")]), 4).unwrap()
        };
        assert_eq!((&at("0")[..], &at("6")[..]), (&[0u8, 1, 2, 3][..], &[6u8, 7, 8, 9][..]));
        assert_eq!(at("4").as_ptr() as usize - at("0").as_ptr() as usize, 4);
        assert_eq!(&files.read(&entries(&[("location", "./sub/more.bin")]), 1).unwrap()[..], [7]);
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn rejects_what_lies_outside_the_folder_or_the_file() {
        let base = folder("outside");
        let files = ExternalFiles::new(Some(base.join("model")));
        let secret = base.join("secret").display().to_string();
        let mut wrong = vec!["../secret", "sub/../../secret", "", ".", "sub", "absent.bin", &secret];
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(base.join("secret"), base.join("model/link")).unwrap();
            std::os::unix::fs::symlink(&base, base.join("model/up")).unwrap();
            wrong.extend(["link", "up/secret"]);
        }
        for location in wrong {
            assert!(files.read(&entries(&[("location", location)]), 4).is_err(), "{location}");
        }
        let max = u64::MAX.to_string();
        for (offset, length) in
            [("7", "4"), (max.as_str(), "4"), ("-1", "4"), ("0", "5"), ("x", "4"), ("0", "")]
        {
            let place = entries(&[("location", "data.bin"), ("offset", offset), ("length", length)]);
            assert!(files.read(&place, 4).is_err(), "{offset} {length}");
        }
        assert!(files.read(&entries(&[("offset", "0")]), 4).is_err());
        assert!(ExternalFiles::new(None).read(&entries(&[("location", "data.bin")]), 4).is_err());
        std::fs::remove_dir_all(base).unwrap();
    }
}
