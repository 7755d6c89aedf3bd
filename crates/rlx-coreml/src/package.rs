//! Packages on disk: `NAME.mlpackage`, a folder.
//!
//! ```text
//! NAME.mlpackage/Manifest.json                              what is where
//!                Data/com.apple.CoreML/model.mlmodel        the program (protobuf)
//!                Data/com.apple.CoreML/weights/weight.bin   large constants
//! ```

use std::fs;
use std::path::Path;

use rlx_ir::{Error, ErrorKind, Result};

use crate::program::Package;

/// Names of entries within one package: they need be unique there only, so that the same graph makes the same bytes.
const MODEL_ID: &str = "00000000-0000-4000-8000-000000000001";
const WEIGHTS_ID: &str = "00000000-0000-4000-8000-000000000002";

impl Package {
    /// Writes the package as a folder, which must not be there or be a package that is replaced. It is written beside its place and
    /// renamed, so no half-written one is ever there.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let io = |at: &Path, e: std::io::Error| Error::new(ErrorKind::Io, format!("{}: {e}", at.display()));
        let old = path.join("Manifest.json").is_file();
        if path.exists() && !old {
            let message = format!("{} is there and is no Core ML package", path.display());
            return Err(Error::new(ErrorKind::Io, message).with_hint("choose another path, or remove it"));
        }
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let work = path.with_file_name(format!(".{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&work);
        let data = work.join("Data/com.apple.CoreML");
        let weights = self.weight_bytes();
        let written = fs::create_dir_all(data.join("weights"))
            .and_then(|()| fs::write(data.join("model.mlmodel"), self.model_bytes()))
            .and_then(|()| weights.as_ref().map_or(Ok(()), |w| fs::write(data.join("weights/weight.bin"), w)))
            .and_then(|()| fs::write(work.join("Manifest.json"), manifest()))
            .and_then(|()| if old { fs::remove_dir_all(path) } else { Ok(()) })
            .and_then(|()| fs::rename(&work, path));
        if written.is_err() {
            let _ = fs::remove_dir_all(&work);
        }
        written.map_err(|e| io(path, e))
    }
}

fn manifest() -> String {
    let entry = |id: &str, description: &str, name: &str| {
        format!(
            "    \"{id}\": {{\n      \"author\": \"com.apple.CoreML\",\n      \"description\": \"{description}\",\n      \
             \"name\": \"{name}\",\n      \"path\": \"com.apple.CoreML/{name}\"\n    }}"
        )
    };
    format!(
        "{{\n  \"fileFormatVersion\": \"1.0.0\",\n  \"itemInfoEntries\": {{\n{},\n{}\n  }},\n  \
         \"rootModelIdentifier\": \"{MODEL_ID}\"\n}}\n",
        entry(MODEL_ID, "CoreML Model Specification", "model.mlmodel"),
        entry(WEIGHTS_ID, "CoreML Model Weights", "weights"),
    )
}
