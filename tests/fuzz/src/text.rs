//! Graphs in the text form.

use rlx_ir::testing::Gen;
use rlx_ir::text;

use crate::accepted;
use crate::run::{Compare, agree, is_tame, options, session, small_sample};

/// Graphs with more elements in all are not run.
const MAX_ELEMENTS: usize = 1 << 14;

/// Text is parsed, printed and parsed again to an equal graph; a graph that verifies runs on the CPU as on the oracle.
///
/// # Panics
/// Where a promise is broken.
pub fn text(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else { return };
    let Some(graph) = accepted(text::parse(source)) else { return };
    let printed = graph.to_string();
    match text::parse_with_blobs(&printed, &text::blobs(&graph)) {
        Ok(again) => assert!(again == graph, "it does not come back equal:\n{printed}\n{again}"),
        Err(e) => panic!("what was printed is not read: {e}\n{printed}"),
    }
    if accepted(rlx_ir::verify_ok(&graph)).is_none() {
        return;
    }
    let mut g = Gen::new(data.len() as u64);
    let Some(sample) = small_sample(&graph, &mut g, MAX_ELEMENTS) else { return };
    let compare = if is_tame(&graph, &sample.bindings) { Compare::Values } else { Compare::Shapes };
    let session = session(&mut g);
    agree(&graph, &sample, session, &options(&mut g, None), compare);
}
