//! A model file: decoded structure over mapped bytes.

use crate::decoded::Decoded;
use crate::external::{self, ExternalFiles, SharedFile};
use crate::formats;
use crate::proto::{GraphProto, ModelProto, TensorProto, tensors::each_tensor};
use crate::shrink;
use crate::tensor::RawTensor;
use bytes::Bytes;
use prost::Message;
use rlx_ir::files::MappedFile;
use rlx_ir::{Error, ErrorKind, memory};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// An ONNX model, decoded; its tensors still are in the file's map.
///
/// Files are not trusted: nesting is bounded (the decoder stops at 100 levels), so is the memory that the structure takes,
/// every size is checked against the bytes that are there, and tensor data outside the file must be in the model's folder.
///
/// ```
/// use rlx_onnx::OnnxFile;
/// let error = OnnxFile::from_bytes(&b"not a model"[..]).unwrap_err();
/// assert_eq!(error.kind(), rlx_ir::ErrorKind::Malformed);
/// ```
#[derive(Debug)]
pub struct OnnxFile {
    model: ModelProto,
    /// Its own file; `None` for a model that came as bytes.
    own: Option<SharedFile>,
    /// Those beside it.
    files: ExternalFiles,
    /// Its bytes, those of files beside it not counted.
    size: usize,
}

/// What the decoded structure of a file may take, besides its tensors: so much, and so much for each of its bytes. What
/// exporters write takes up to five times its size.
const DECODED: usize = 24 << 20;
const DECODED_FOR_EACH: usize = 12;

impl OnnxFile {
    /// Maps and decodes a model file.
    ///
    /// # Errors
    /// A file that cannot be read, or that is not an ONNX model.
    pub fn open(path: impl AsRef<Path>) -> Result<OnnxFile, Error> {
        let path = path.as_ref();
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let named = |e: Error| e.with_origin(path.display().to_string());
        if path.is_dir() {
            return Err(named(formats::folder(path)));
        }
        let own = SharedFile::map(path)?;
        let decoded = Self::decode(own.bytes.clone(), ExternalFiles::new(Some(folder.to_path_buf())));
        let file = decoded.map_err(|e| named(formats::explain(e, Some(path), &own.bytes)))?;
        Ok(OnnxFile { own: Some(own), ..file })
    }

    /// Decodes a model from memory. Tensor data in other files cannot be reached; see [`OnnxFile::from_bytes_in`].
    ///
    /// # Errors
    /// Bytes that are not an ONNX model.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<OnnxFile, Error> {
        Self::explained(bytes.into(), ExternalFiles::new(None))
    }

    /// The same for a model whose external data is in `folder`.
    ///
    /// # Errors
    /// Bytes that are not an ONNX model.
    pub fn from_bytes_in(bytes: impl Into<Bytes>, folder: impl AsRef<Path>) -> Result<OnnxFile, Error> {
        Self::explained(bytes.into(), ExternalFiles::new(Some(folder.as_ref().to_path_buf())))
    }

    /// The same for a model whose external data was read elsewhere: the bytes of each file by its location, as the model names it.
    ///
    /// ```
    /// # use rlx_onnx::OnnxFile;
    /// # fn example(model: Vec<u8>, weights: Vec<u8>) -> rlx_ir::Result<OnnxFile> {
    /// OnnxFile::from_bytes_with(model, [("weights.bin".to_owned(), weights)])
    /// # }
    /// ```
    ///
    /// # Errors
    /// Bytes that are not an ONNX model.
    pub fn from_bytes_with(
        bytes: impl Into<Bytes>,
        files: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) -> Result<OnnxFile, Error> {
        Self::explained(bytes.into(), ExternalFiles::given(files))
    }

    fn explained(bytes: Bytes, files: ExternalFiles) -> Result<OnnxFile, Error> {
        Self::decode(bytes.clone(), files).map_err(|e| formats::explain(e, None, &bytes))
    }

    fn decode(bytes: Bytes, files: ExternalFiles) -> Result<OnnxFile, Error> {
        let room = Decoded::of(&bytes);
        let decoded = room.structure;
        let most = DECODED + bytes.len().saturating_mul(DECODED_FOR_EACH);
        if decoded > most {
            let message = format!(
                "the structure of this file of {} bytes takes {decoded} bytes of memory, more than {most}",
                bytes.len()
            );
            return Err(Error::new(ErrorKind::Malformed, message));
        }
        memory::ensure(room.bytes(), || format!("decoding a model of {} bytes", bytes.len()))?;
        let mut model = ModelProto::decode(bytes.clone()).map_err(|e| not_a_model(&bytes, e))?;
        shrink::model(&mut model);
        if bytes.is_empty() {
            return Err(Error::new(ErrorKind::Malformed, "not an ONNX model: the file is empty"));
        }
        if model.graph.is_none() {
            return Err(Error::new(ErrorKind::Malformed, "not an ONNX model: it has no graph"));
        }
        if model.opset_import.is_empty() {
            return Err(Error::new(ErrorKind::Malformed, "an ONNX model that names no opset"));
        }
        Ok(OnnxFile { model, own: None, files, size: bytes.len() })
    }

    /// The decoded model.
    pub fn model(&self) -> &ModelProto {
        &self.model
    }

    /// Its graph.
    pub fn graph(&self) -> &GraphProto {
        self.model.graph.as_ref().expect("checked when the file was decoded")
    }

    /// How many bytes it has, those of files beside it not counted.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The version of an operator set that the model asks for (`""` and `ai.onnx` are the same).
    pub fn opset(&self, domain: &str) -> Option<i64> {
        let normal = |d: &str| if d == "ai.onnx" { String::new() } else { d.to_owned() };
        self.model.opset_import.iter().find(|o| normal(o.domain()) == normal(domain)).map(|o| o.version())
    }

    /// The names of the files beside the model that hold data of its tensors, wherever those are (initialisers,
    /// constants, bodies, functions), as the model gives them.
    pub fn external_files(&self) -> Vec<String> {
        self.locations().into_iter().map(str::to_owned).collect()
    }

    /// Why the file beside the model cannot be read; `None` where it can.
    pub(crate) fn external_fault(&self, location: &str) -> Option<String> {
        self.files.fault(location)
    }

    fn locations(&self) -> Vec<&str> {
        let mut names = BTreeSet::new();
        each_tensor(&self.model, &mut |tensor| {
            names.extend(external::entries(tensor).and_then(external::location))
        });
        names.into_iter().collect()
    }

    /// What tells all that an import of this model reads from what its files held before or will hold: of its own file
    /// and of each beside it, by the bytes that are mapped here, whatever their paths name by now. `None` for a model
    /// that came as bytes, and where a file was written so lately that the system's times do not tell. It holds for
    /// what was made of the model as long as [`OnnxFile::is_unchanged`] says so afterwards.
    ///
    /// # Errors
    /// A file beside the model that cannot be read.
    pub fn identity(&self) -> Result<Option<Vec<String>>, Error> {
        let Some(own) = &self.own else { return Ok(None) };
        let locations = self.locations();
        let beside = self.files.all(&locations)?;
        let named = locations
            .iter()
            .zip(&beside)
            .map(|(location, file)| file.file.identity().map(|identity| format!("{location:?} {identity}")));
        Ok(std::iter::once(own.file.identity()).chain(named).collect())
    }

    /// Whether nothing happened to its files since they were mapped here: no file was written. (One that was replaced by
    /// another is as it was, but may count as changed.)
    pub fn is_unchanged(&self) -> bool {
        let beside = self.files.all(&self.locations());
        beside.is_ok_and(|files| self.own.iter().chain(&files).all(|file| file.file.is_unchanged()))
    }

    /// The file that contains a tensor's bytes; `None` if they were copied.
    pub(crate) fn holding(&self, bytes: &Bytes) -> Option<Arc<MappedFile>> {
        let own = self.own.iter().find(|own| own.holds(bytes)).map(|own| Arc::clone(&own.file));
        own.or_else(|| self.files.holding(bytes))
    }

    /// Reads one of its tensors; data in the file or beside it is shared, not copied.
    ///
    /// # Errors
    /// Extents, type and data that do not agree, data outside the model's folder, an unsupported element type; a file
    /// that was truncated after it was mapped.
    pub fn tensor(&self, proto: &TensorProto) -> Result<RawTensor, Error> {
        self.own.iter().try_for_each(|own| own.file.check_whole())?;
        RawTensor::read(proto, &self.files)
    }
}

/// Why these bytes are no model, and what to do about it.
fn not_a_model(bytes: &Bytes, e: prost::DecodeError) -> Error {
    let malformed = |message: String| Error::new(ErrorKind::Malformed, message);
    let n = bytes.len();
    let error = if e.to_string().contains("underflow") && starts_like_a_model(bytes) {
        malformed(format!("not an ONNX model: it is truncated or damaged; the file has {n} bytes"))
            .with_hint("compare its size with the original's, and copy or download it again")
    } else {
        malformed(format!("not an ONNX model: {e}"))
            .with_hint("is it an .onnx file, and not another format's?")
    };
    error.with_source(e)
}

/// Whether they begin with the version of the format, as every exporter writes it.
fn starts_like_a_model(bytes: &[u8]) -> bool {
    matches!(bytes, [0x08, 1..=64, ..])
}

/// Decodes one `TensorProto` in a separate file (the `.pb` files of the ONNX test cases).
///
/// # Errors
/// As [`OnnxFile::tensor`]; external data is not followed.
pub fn read_tensor_file(bytes: impl Into<Bytes>) -> Result<RawTensor, Error> {
    let proto = TensorProto::decode(bytes.into())
        .map_err(|e| Error::new(ErrorKind::Malformed, format!("not an ONNX tensor: {e}")).with_source(e))?;
    RawTensor::read(&proto, &ExternalFiles::new(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AttributeProto, NodeProto, OperatorSetIdProto};

    fn model(graph: GraphProto) -> ModelProto {
        let opset = OperatorSetIdProto { domain: Some("ai.onnx".to_owned()), version: Some(17) };
        ModelProto { graph: Some(graph), opset_import: vec![opset], ..Default::default() }
    }

    fn nested(levels: usize) -> GraphProto {
        let mut graph = GraphProto::default();
        for _ in 0..levels {
            let body = AttributeProto { g: Some(Box::new(graph)), ..Default::default() };
            let node = NodeProto { attribute: vec![body], ..Default::default() };
            graph = GraphProto { node: vec![node], ..Default::default() };
        }
        graph
    }

    #[test]
    fn initialisers_share_the_bytes_they_were_read_from() {
        let tensor = TensorProto {
            dims: vec![64],
            data_type: Some(1),
            raw_data: Some(vec![7; 256].into()),
            ..Default::default()
        };
        let graph = GraphProto { initializer: vec![tensor], ..Default::default() };
        let bytes = Bytes::from(model(graph).encode_to_vec());
        let range = bytes.as_ptr() as usize..bytes.as_ptr() as usize + bytes.len();
        let file = OnnxFile::from_bytes(bytes).unwrap();
        let read = file.tensor(&file.graph().initializer[0]).unwrap();
        assert!(range.contains(&(read.bytes.as_ptr() as usize)));
        assert_eq!(file.opset(""), Some(17));
        assert_eq!(file.opset("com.example"), None);
    }

    #[test]
    fn nesting_is_bounded() {
        assert!(OnnxFile::from_bytes(model(nested(10)).encode_to_vec()).is_ok());
        let error = OnnxFile::from_bytes(model(nested(60)).encode_to_vec()).unwrap_err();
        assert!(error.to_string().contains("recursion"), "{error}");
    }

    #[test]
    fn files_that_are_not_models_are_errors() {
        for bytes in [&b""[..], b"\x08\x07", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\x3a\x05abc"]
        {
            assert_eq!(OnnxFile::from_bytes(bytes).unwrap_err().kind(), ErrorKind::Malformed);
        }
        let missing = OnnxFile::open("no/such/file.onnx").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Io);
    }

    /// A folder with a model whose constant's data is beside it, in a file that is large enough to be mapped.
    fn folder_with_data(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("rlx-onnx-file-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("w.bin"), 2.5f32.to_le_bytes().repeat(400_000)).unwrap();
        let entry = |k: &str, v: &str| crate::proto::StringStringEntryProto {
            key: Some(k.to_owned()),
            value: Some(v.to_owned()),
        };
        let tensor = TensorProto {
            dims: vec![400_000],
            data_type: Some(1),
            data_location: Some(1),
            external_data: vec![entry("location", "w.bin")],
            ..Default::default()
        };
        let value = AttributeProto { t: Some(Box::new(tensor.clone())), ..Default::default() };
        let constant = NodeProto { attribute: vec![value], ..Default::default() };
        let graph = GraphProto { initializer: vec![tensor], node: vec![constant], ..Default::default() };
        std::fs::write(folder.join("m.onnx"), model(graph).encode_to_vec()).unwrap();
        folder
    }

    #[test]
    fn opening_a_path_maps_external_data_beside_it() {
        let folder = folder_with_data("data");
        let file = OnnxFile::open(folder.join("m.onnx")).unwrap();
        assert_eq!(file.external_files(), ["w.bin"]);
        let tensor = file.tensor(&file.graph().initializer[0]).unwrap();
        assert_eq!(&tensor.bytes[..4], 2.5f32.to_le_bytes());
        assert!(file.holding(&tensor.bytes).is_some());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn external_data_is_found_among_the_files_that_were_given() {
        let folder = folder_with_data("given");
        let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
        let file = OnnxFile::from_bytes_with(read("m.onnx"), [("w.bin".to_owned(), read("w.bin"))]).unwrap();
        let tensor = file.tensor(&file.graph().initializer[0]).unwrap();
        assert_eq!(&tensor.bytes[..4], 2.5f32.to_le_bytes());
        assert!(file.external_fault("w.bin").is_none() && file.holding(&tensor.bytes).is_some());
        let file = OnnxFile::from_bytes_with(read("m.onnx"), [("v.bin".to_owned(), read("w.bin"))]).unwrap();
        let error = file.tensor(&file.graph().initializer[0]).unwrap_err();
        assert!(error.to_string().contains("w.bin"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_truncated_data_file_is_an_error_before_a_tensor_is_used() {
        let folder = folder_with_data("cut");
        let file = OnnxFile::open(folder.join("m.onnx")).unwrap();
        let tensor = || file.tensor(&file.graph().initializer[0]);
        tensor().unwrap();
        std::fs::OpenOptions::new().write(true).open(folder.join("w.bin")).unwrap().set_len(10).unwrap();
        let e = tensor().unwrap_err();
        assert!(e.kind() == ErrorKind::Io && e.to_string().contains("was truncated"), "{e}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_identity_covers_all_that_is_read_and_notices_what_is_written() {
        let folder = folder_with_data("identity");
        let settled = std::time::Duration::from_millis(100);
        std::thread::sleep(settled);
        let open = || OnnxFile::open(folder.join("m.onnx")).unwrap();
        let (file, same) = (open(), open());
        let known = file.identity().unwrap().expect("they were written a while ago");
        assert_eq!((known.len(), Some(&known)), (2, same.identity().unwrap().as_ref()));
        // Renaming another file over it leaves the map unchanged; writing in place does not.
        std::fs::write(folder.join("new"), 1.5f32.to_le_bytes().repeat(400_000)).unwrap();
        std::fs::rename(folder.join("new"), folder.join("w.bin")).unwrap();
        assert_eq!(file.identity().unwrap(), Some(known.clone()));
        std::thread::sleep(settled);
        let replaced = open();
        assert!(replaced.identity().unwrap().is_some_and(|now| now != known) && replaced.is_unchanged());
        std::fs::write(folder.join("w.bin"), 3.5f32.to_le_bytes().repeat(400_000)).unwrap();
        assert!(!replaced.is_unchanged());
        std::fs::remove_file(folder.join("w.bin")).unwrap();
        assert!(open().identity().is_err());
        assert_eq!(
            OnnxFile::from_bytes(std::fs::read(folder.join("m.onnx")).unwrap()).unwrap().identity().unwrap(),
            None
        );
        // A file that was read beside those that the model names would be an identity of too little.
        let mut other = file.graph().initializer[0].clone();
        other.external_data[0].value = Some("m.onnx".to_owned());
        other.dims = vec![1];
        file.tensor(&other).unwrap();
        assert_eq!(file.identity().unwrap_err().kind(), ErrorKind::Internal);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
