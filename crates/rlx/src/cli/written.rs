//! Files that commands write: in the format given by their extension, and never over a file that the command reads.

use std::path::{Path, PathBuf};

use super::failure::Failure;

/// How `--outputs` writes tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// A NumPy archive of all outputs.
    Npz,
    /// A NumPy array: a single output.
    Npy,
    /// An object of nested lists by name. JSON has no NaN and no infinities, those are null.
    Json,
}

impl OutputFormat {
    /// What the name says.
    ///
    /// # Errors
    /// A name that says nothing.
    pub fn of(path: &Path) -> Result<Self, Failure> {
        let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
        match ending.as_str() {
            "npz" => Ok(OutputFormat::Npz),
            "npy" => Ok(OutputFormat::Npy),
            "json" => Ok(OutputFormat::Json),
            _ => {
                let message =
                    format!("--outputs {}: outputs are written as .npz, .npy or .json", path.display());
                Err(Failure::Usage(message))
            }
        }
    }

    /// Whether a file of this format holds so many outputs.
    ///
    /// # Errors
    /// An array for more outputs than one.
    pub fn check_count(self, path: &Path, outputs: usize) -> Result<(), Failure> {
        if self != OutputFormat::Npy || outputs == 1 {
            return Ok(());
        }
        let path = path.display();
        let message = format!(
            "--outputs {path}: a .npy file holds one array, and the model has {outputs} outputs: use .npz"
        );
        Err(Failure::Usage(message))
    }
}

/// Whether files that are written (each with the option that names it) are others than those that are read, and than each
/// other, under whatever name: links are followed.
///
/// # Errors
/// Two that are the same.
pub fn keep_apart(written: &[(&str, &Path)], read: &[PathBuf]) -> Result<(), Failure> {
    for (i, (option, path)) in written.iter().enumerate() {
        let identity = Identity::of(path);
        if let Some(input) = read.iter().find(|input| Identity::of(input) == identity) {
            let (path, input) = (path.display(), input.display());
            let same = if path.to_string() == input.to_string() {
                String::new()
            } else {
                format!(", which is {input}")
            };
            return Err(Failure::Usage(format!(
                "{option} {path}: this would overwrite a file that is read here{same}"
            )));
        }
        if let Some((other, _)) = written[..i].iter().find(|(_, other)| Identity::of(other) == identity) {
            return Err(Failure::Usage(format!(
                "{other} and {option} are the same file, {}",
                path.display()
            )));
        }
    }
    Ok(())
}

/// What two names of one file have in common.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// Device and number, which hard links share.
    #[cfg(unix)]
    Node(u64, u64),
    /// Where it is, or would be.
    Path(PathBuf),
}

impl Identity {
    fn of(path: &Path) -> Self {
        #[cfg(unix)]
        if let Ok(metadata) = std::fs::metadata(path) {
            use std::os::unix::fs::MetadataExt;
            return Identity::Node(metadata.dev(), metadata.ino());
        }
        if let Ok(place) = path.canonicalize() {
            return Identity::Path(place);
        }
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        Identity::Path(path.file_name().map_or(folder.clone(), |name| folder.join(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_file_is_the_same_under_every_name() {
        let folder = std::env::temp_dir().join(format!("rlx-written-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("in")).unwrap();
        let [model, soft, hard, other] =
            ["model.onnx", "soft.npz", "hard.npz", "other.npz"].map(|n| folder.join(n));
        std::fs::write(&model, "model").unwrap();
        std::os::unix::fs::symlink(&model, &soft).unwrap();
        std::fs::hard_link(&model, &hard).unwrap();
        let roundabout = folder.join("in/../model.onnx");
        for path in [&model, &soft, &hard, &roundabout] {
            assert!(keep_apart(&[("--outputs", path)], std::slice::from_ref(&model)).is_err(), "{path:?}");
        }
        keep_apart(&[("--outputs", &other)], std::slice::from_ref(&model)).unwrap();
        let twice = folder.join("in/../other.npz");
        assert!(keep_apart(&[("--trace", &other), ("--roofline", &twice)], &[]).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
