import * as rlx from '../rlx/index.js';
import { WordPiece } from './wordpiece.js';

const status = document.getElementById('status');
const button = document.getElementById('search');
const params = new URLSearchParams(location.search);
let model;
let tokenizer;
const known = new Map();

/** A sentence as a vector of length 1: the mean of the last layer over its tokens. */
async function embed(text) {
  if (known.has(text)) return known.get(text);
  const ids = tokenizer.encode(text);
  const dims = [1, ids.length];
  const tensor = (values) => new rlx.Tensor(BigInt64Array.from(values, BigInt), dims);
  const outputs = await model.run({
    input_ids: tensor(ids),
    attention_mask: tensor(ids.map(() => 1)),
    token_type_ids: tensor(ids.map(() => 0)),
  });
  const hidden = Object.values(outputs)[0];
  const [, tokens, width] = hidden.dims;
  const vector = new Float32Array(width);
  for (let t = 0; t < tokens; t++) for (let i = 0; i < width; i++) vector[i] += hidden.data[t * width + i];
  const length = Math.hypot(...vector);
  known.set(text, vector.map((v) => v / length));
  return known.get(text);
}

async function search() {
  button.disabled = true;
  const start = performance.now();
  const texts = document.getElementById('texts').value.split('\n').filter((line) => line.trim());
  try {
    const query = await embed(document.getElementById('query').value);
    const scored = [];
    for (const [at, text] of texts.entries()) {
      status.textContent = `Reading sentence ${at + 1} of ${texts.length} …`;
      const vector = await embed(text);
      scored.push({ text, score: vector.reduce((sum, v, i) => sum + v * query[i], 0) });
    }
    scored.sort((a, b) => b.score - a.score);
    document.getElementById('found').replaceChildren(
      ...scored.map(({ text, score }) => {
        const item = document.createElement('li');
        item.textContent = `${score.toFixed(3)}  ${text}`;
        return item;
      }),
    );
    status.textContent = `${texts.length} sentences in ${((performance.now() - start) / 1000).toFixed(2)} s on ${model.device}`;
    document.body.dataset.found = 'true';
  } catch (error) {
    status.className = 'wrong';
    status.textContent = error.message;
  }
  button.disabled = false;
}

try {
  const vocabulary = await fetch('../models/minilm/vocab.txt');
  tokenizer = new WordPiece(await vocabulary.text());
  model = await rlx.load('../models/minilm/minilm.onnx', {
    device: params.get('device') ?? 'auto',
    onProgress: ({ stage, done, total }) => {
      const share = total ? ` ${Math.round((100 * done) / total)} %` : '';
      status.textContent = `${stage}${share}`;
    },
  });
  status.textContent = `Ready on ${model.device}${model.fallback ? ` (${model.fallback.message})` : ''}.`;
  button.disabled = false;
  button.addEventListener('click', search);
  document.body.dataset.ready = 'true';
} catch (error) {
  status.className = 'wrong';
  status.textContent = error.message;
}
