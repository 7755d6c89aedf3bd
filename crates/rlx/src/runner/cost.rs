//! How much arithmetic a run is.

use rlx_ir::cost::graph_cost;
use rlx_ir::{ConstData, Dim, DimBinding, Error, ErrorKind, Op, Result};

use super::Runner;

impl Runner {
    /// Arithmetic operations of one run on these inputs, before any optimisation; a multiply-add counts as two. `None` for a slim
    /// artefact, which does not say what it was compiled from.
    ///
    /// # Errors
    /// As [`Runner::import`]; [`ErrorKind::Binding`] for an input that is missing, [`ErrorKind::Dimension`] where its dimensions make another
    /// one negative.
    pub fn flops(&mut self, inputs: &[(&str, &ConstData)]) -> Result<Option<f64>> {
        let imported = match self.import(inputs) {
            Ok(imported) => imported,
            Err(e) if self.artefact().is_some() && e.kind() == ErrorKind::Unsupported => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut binding = DimBinding::new();
        for node in imported.graph.inputs() {
            let Op::Input { name } = &node.op else { continue };
            let given = inputs.iter().find(|(n, _)| n == name);
            let (_, data) = given
                .ok_or_else(|| Error::new(ErrorKind::Binding, format!("input \"{name}\" is missing")))?;
            for (dim, &n) in node.shape.dims().iter().zip(data.dims()) {
                if let Dim::Dynamic(symbol) = *dim {
                    binding.set(symbol, n);
                }
            }
        }
        Ok(Some(graph_cost(&imported.graph.try_bind(&binding)?).flops))
    }
}
