//! What a model file says about itself.

use rlx_onnx::OnnxFile;

/// What the author or exporter of an ONNX model wrote into it besides the graph. Fields that the file leaves out are
/// empty.
///
/// ```
/// let model = rlx::Model::open("../../models/digits/digits.onnx")?;
/// assert_eq!(model.metadata().producer_name, "pytorch");
/// assert!(model.metadata().opsets.iter().any(|(domain, version)| domain.is_empty() && *version >= 11));
/// # Ok::<(), rlx_ir::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Metadata {
    /// The tool that wrote the file.
    pub producer_name: String,
    /// Its version.
    pub producer_version: String,
    /// The model's namespace, as in `org.example`.
    pub domain: String,
    /// The model's version.
    pub model_version: i64,
    /// The model's description.
    pub description: String,
    /// The graph's name.
    pub graph_name: String,
    /// The graph's description.
    pub graph_description: String,
    /// The version of the file format.
    pub ir_version: i64,
    /// The operator sets: domain (empty for ONNX's own) and version.
    pub opsets: Vec<(String, i64)>,
    /// Any further properties by name, such as an exporter's class names.
    pub properties: Vec<(String, String)>,
}

impl Metadata {
    pub(crate) fn of(file: &OnnxFile) -> Self {
        let (model, graph) = (file.model(), file.graph());
        let opsets = model.opset_import.iter().map(|o| (o.domain().to_owned(), o.version()));
        let properties = model.metadata_props.iter().map(|p| (p.key().to_owned(), p.value().to_owned()));
        Metadata {
            producer_name: model.producer_name().to_owned(),
            producer_version: model.producer_version().to_owned(),
            domain: model.domain().to_owned(),
            model_version: model.model_version(),
            description: model.doc_string().to_owned(),
            graph_name: graph.name().to_owned(),
            graph_description: graph.doc_string().to_owned(),
            ir_version: model.ir_version(),
            opsets: opsets.collect(),
            properties: properties.collect(),
        }
    }
}
