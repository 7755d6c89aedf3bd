//! The tables against the vendors' own headers, where a package has them: each function is there under its name, with as many
//! arguments as its row says, each passed as the row's type is; and each number of an enumeration has its value.
//!
//! `RLX_CUDA_INCLUDE` and `RLX_HIP_INCLUDE` are lists of the folders, as `PATH` is (with `cuda.h`, `nvrtc.h`, `cublasLt.h`, `cublas_api.h` and `library_types.h`, with
//! `hip/hip_runtime_api.h`, `hip/hiprtc.h`, `hip/library_types.h`, `hipblaslt/hipblaslt.h` and `hipblas-common/hipblas-common.h`). The suite `headers` fetches pip's `nvidia-cuda-runtime`, `nvidia-cuda-nvrtc`
//! and `nvidia-cublas`, and Debian's `libamdhip64-dev`; ROCm's `hipblaslt-dev` has the last.

use std::path::PathBuf;

use rlx_simt::{BLAS, COMPILER, DRIVER, NUMBERS, Row, TENSORS, Vendor};

/// How an argument is passed: in a register of which width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    Pointer,
    Word(u32),
}

/// A type of a row.
fn of_row(ty: &str) -> Passed {
    match ty {
        "c_int" | "c_uint" | "Status" => Passed::Word(32),
        "usize" | "u64" | "i64" => Passed::Word(64),
        // An address on the device: HIP has a pointer, CUDA a number, and both are passed alike.
        "DevicePtr" => Passed::Word(64),
        "u8" => Passed::Word(8),
        _ => Passed::Pointer,
    }
}

/// A parameter of a prototype.
fn of_c(parameter: &str) -> Passed {
    let words: Vec<&str> = parameter.split_whitespace().filter(|w| *w != "const").collect();
    let handles = [
        "CUcontext",
        "CUstream",
        "CUevent",
        "CUmodule",
        "CUfunction",
        "CUgraph",
        "CUgraphExec",
        "nvrtcProgram",
        "cudaStream_t",
        "cublasLtHandle_t",
        "cublasLtMatmulDesc_t",
        "cublasLtMatrixLayout_t",
        "cublasLtMatmulPreference_t",
    ];
    let hip = [
        "hipStream_t",
        "hipEvent_t",
        "hipModule_t",
        "hipFunction_t",
        "hipGraph_t",
        "hipGraphExec_t",
        "hiprtcProgram",
        "hipblasLtHandle_t",
        "hipblasLtMatmulDesc_t",
        "hipblasLtMatrixLayout_t",
        "hipblasLtMatmulPreference_t",
    ];
    match words.first().copied().unwrap_or("") {
        _ if parameter.contains('*') || parameter.contains('[') => Passed::Pointer,
        "hipDeviceptr_t" => Passed::Word(64),
        word if handles.contains(&word) || hip.contains(&word) => Passed::Pointer,
        "CUdeviceptr" | "size_t" | "uint64_t" | "int64_t" => Passed::Word(64),
        "unsigned" if words.get(1) == Some(&"long") => Passed::Word(64),
        "unsigned" if words.get(1) == Some(&"char") => Passed::Word(8),
        // Whole numbers and enumerations.
        _ => Passed::Word(32),
    }
}

/// A header without its comments.
fn code(header: &str) -> String {
    let mut left = String::with_capacity(header.len());
    let mut rest = header;
    while let Some(at) = rest.find("/*").into_iter().chain(rest.find("//")).min() {
        left.push_str(&rest[..at]);
        let end = if rest[at..].starts_with("/*") { "*/" } else { "\n" };
        rest = rest[at + 2..].find(end).map_or("", |behind| &rest[at + 2 + behind + end.len()..]);
        left.push('\n');
    }
    left + rest
}

/// The parameters of a function in a header. The version that an application is built with is the last `#define` of its name.
fn prototype<'h>(header: &'h str, name: &str) -> Option<Vec<&'h str>> {
    let plain = name.strip_suffix("_v2").unwrap_or(name);
    for candidate in [name, plain] {
        let mut from = 0;
        while let Some(found) = header[from..].find(&format!(" {candidate}(")).map(|at| at + from) {
            let begin = header[..found].rfind([';', '{', '}']).map_or(0, |at| at + 1);
            let before = &header[begin..found];
            let open = found + candidate.len() + 2;
            from = open;
            let statuses = [
                "CUresult",
                "hipError_t",
                "nvrtcResult",
                "hiprtcResult",
                "cublasStatus_t",
                "hipblasStatus_t",
            ];
            let returns = statuses.iter().any(|r| before.contains(r));
            if !returns || before.contains("typedef") {
                continue;
            }
            let close = open + header[open..].find(");").or_else(|| header[open..].find(")\n"))?;
            let inside = header[open..close].trim().trim_end_matches(')');
            let none = inside.is_empty() || inside == "void";
            return Some(if none { Vec::new() } else { inside.split(',').map(str::trim).collect() });
        }
    }
    None
}

/// Compares a table with a header; says how many functions.
fn compare<'r>(
    rows: impl IntoIterator<Item = &'r Row>,
    vendor: Vendor,
    header: &str,
    renamed: &dyn Fn(&str) -> Option<&'static str>,
) -> usize {
    let (mut compared, header) = (0, code(header));
    for row in rows {
        let Some(name) = row.name(vendor) else { continue };
        let parameters = prototype(&header, renamed(name).unwrap_or(name));
        let parameters = parameters.unwrap_or_else(|| panic!("{name} is not in the header"));
        let (found, said): (Vec<Passed>, Vec<Passed>) = (
            parameters.iter().map(|p| of_c(p)).collect(),
            row.arguments.iter().map(|ty| of_row(ty)).collect(),
        );
        // HIP passes addresses on the device as pointers.
        let alike = |a: &Passed, b: &Passed| a == b || [*a, *b] == [Passed::Pointer, Passed::Word(64)];
        let same = found.len() == said.len() && found.iter().zip(&said).all(|(a, b)| alike(a, b));
        assert!(same, "{name}: the header has {parameters:?}, the table {:?}", row.arguments);
        compared += 1;
    }
    compared
}

/// The value of a constant of an enumeration, which its header gives as a number, or as others that are joined by `|`.
fn constant(headers: &str, name: &str) -> Option<i32> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut places = headers.match_indices(name).map(|(at, _)| at);
    let value = places.find_map(|at| {
        let whole = !headers[..at].ends_with(is_word);
        let behind = headers[at + name.len()..].trim_start().strip_prefix('=')?;
        whole.then(|| behind.split([',', '}', ';']).next().unwrap_or("").trim())
    })?;
    let parts = value.trim_start_matches('(').trim_end_matches(')').split('|').map(str::trim);
    parts
        .map(|part| part.parse().ok().or_else(|| constant(headers, part)))
        .try_fold(0, |all, part| Some(all | part?))
}

/// Compares the numbers with those of headers; says how many.
fn compare_numbers(vendor: Vendor, headers: &[String]) -> usize {
    let headers: String = headers.iter().map(|header| code(header)).collect();
    let named = NUMBERS.iter().filter_map(|number| number.of(vendor));
    let compare = |(name, value): (&str, i32)| {
        let found = constant(&headers, name);
        assert_eq!(found, Some(value), "{name}");
    };
    named.map(compare).count()
}

#[test]
fn constants_are_read_from_headers() {
    let text = "enum { A_X = 2, A = 4, // of A = 9\n B = (A | A_X), C=A } e;";
    let found = ["A", "A_X", "B", "C", "D"].map(|name| constant(&code(text), name));
    assert_eq!(found, [Some(4), Some(2), Some(6), Some(4), None]);
}

/// The paths that a variable names.
fn paths(variable: &str) -> Option<Vec<PathBuf>> {
    let found = std::env::var_os(variable).map(|list| std::env::split_paths(&list).collect());
    if found.is_none() {
        println!("@skip 1 {variable} names no folder of the vendor's");
    }
    found
}

/// The text of a header, which is in one of these folders.
fn header(folders: &[PathBuf], name: &str) -> Option<String> {
    let text = folders.iter().find_map(|folder| std::fs::read_to_string(folder.join(name)).ok());
    if text.is_none() {
        println!("@skip 1 {name} is in none of {folders:?}");
    }
    text
}

#[test]
fn cudas_headers_declare_what_is_called() {
    let Some(folders) = paths("RLX_CUDA_INCLUDE") else { return };
    // What a program calls `cuGraphInstantiate` is the function below.
    let renamed = |name: &str| (name == "cuGraphInstantiateWithFlags").then_some("cuGraphInstantiate");
    let driver = header(&folders, "cuda.h").expect("it is there where CUDA's headers are");
    assert_eq!(compare(DRIVER, Vendor::Cuda, &driver, &renamed), 39);
    assert_eq!(compare(TENSORS, Vendor::Cuda, &driver, &|_| None), 2);
    if let Some(compiler) = header(&folders, "nvrtc.h") {
        assert_eq!(compare(COMPILER, Vendor::Cuda, &compiler, &|_| None), 8);
    }
    if let Some(blas) = header(&folders, "cublasLt.h") {
        assert_eq!(compare(BLAS, Vendor::Cuda, &blas, &|_| None), 13);
        let others = ["cublas_api.h", "library_types.h"].map(|name| header(&folders, name));
        if let [Some(api), Some(types)] = others {
            assert_eq!(compare_numbers(Vendor::Cuda, &[blas, api, types]), NUMBERS.len());
        }
    }
}

/// The library itself, of which no call is made: it loads where there is no GPU. `RLX_CUBLAS` names the folder of its Python package.
#[test]
fn cublaslt_has_what_is_called() {
    let Some(packages) = paths("RLX_CUBLAS") else { return };
    let parts =
        packages.iter().flat_map(|package| std::fs::read_dir(package.join("nvidia")).unwrap().flatten());
    let versions = parts.map(|version| version.path().join("lib"));
    let files = versions.flat_map(|lib| std::fs::read_dir(lib).into_iter().flatten().flatten());
    let is_it = |name: &str| name.starts_with("libcublasLt.so.");
    let file = files
        .map(|file| file.path())
        .find(|path| path.file_name().is_some_and(|name| is_it(&name.to_string_lossy())));
    let file = file.expect("the package has the library");
    // SAFETY: the vendor's library, which sets itself up alone.
    let library = unsafe { libloading::Library::new(&file) }.unwrap();
    for row in BLAS {
        let name = row.name(Vendor::Cuda).unwrap();
        // SAFETY: nothing is called.
        let symbol = unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) };
        assert!(symbol.is_ok(), "{} has no {name}", file.display());
    }
}

#[test]
fn hips_headers_declare_what_is_called() {
    let Some(folders) = paths("RLX_HIP_INCLUDE") else { return };
    let read = |name: &str| header(&folders, name).expect("it is there where HIP's headers are");
    assert_eq!(compare(COMPILER, Vendor::Hip, &read("hip/hiprtc.h"), &|_| None), 8);
    let driver = read("hip/hip_runtime_api.h");
    // Debian 12 has HIP 5.2, which has all but the names of errors.
    let newest = ["hipDrvGetErrorName", "hipDrvGetErrorString"];
    let old = prototype(&code(&driver), newest[0]).is_none();
    if old {
        println!("@skip 1 HIP's header is older than {newest:?}");
    }
    let left_out = |row: &&Row| old && row.name(Vendor::Hip).is_some_and(|name| newest.contains(&name));
    let rows = DRIVER.iter().filter(|row| !left_out(row));
    assert_eq!(compare(rows, Vendor::Hip, &driver, &|_| None), if old { 34 } else { 36 });
}

#[test]
fn hipblaslts_header_declares_what_is_called() {
    let Some(folders) = paths("RLX_HIP_INCLUDE") else { return };
    if let Some(blas) = header(&folders, "hipblaslt/hipblaslt.h") {
        assert_eq!(compare(BLAS, Vendor::Hip, &blas, &|_| None), 13);
        let others = ["hipblas-common/hipblas-common.h", "hip/library_types.h"];
        if let [Some(common), Some(types)] = others.map(|name| header(&folders, name)) {
            // HIP has no alignments of matrices.
            assert_eq!(compare_numbers(Vendor::Hip, &[blas, common, types]), NUMBERS.len() - 4);
        }
    }
}
