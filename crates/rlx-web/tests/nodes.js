// ONNX's node cases, on any engine: what each gives is compared with what the case expects, as `crates/rlx-onnx/tests/node_suite.rs` does.

import { bytesOf, tensorOf } from './goldens.js';

/** The number that the bits of a 16-bit float are. */
function half(bits) {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

const word = new DataView(new ArrayBuffer(4));
function brain(bits) {
  word.setUint32(0, bits << 16);
  return word.getFloat32(0);
}

const FLOATS = { f32: Number, f64: Number, f16: half, bf16: brain };

/** Why an output is not what is expected: type, dimensions and integers must be equal, floats within ONNX's own tolerance. */
function difference(found, wanted) {
  if (found === undefined) return 'there is no such output';
  if (found.dtype !== wanted.dtype || found.dims.join() !== wanted.dims.join()) {
    return `[${found.dims}] ${found.dtype}, not [${wanted.dims}] ${wanted.dtype}`;
  }
  const float = FLOATS[wanted.dtype];
  for (let i = 0; i < wanted.data.length; i++) {
    const [x, y] = [found.data[i], wanted.data[i]];
    if (x === y) continue;
    if (float === undefined) return `${x} at ${i}, not ${y}`;
    const [a, b] = [float(x), float(y)];
    const close = a === b || (Number.isNaN(a) && Number.isNaN(b)) || Math.abs(a - b) <= 1e-7 + 1e-3 * Math.abs(b);
    if (!close) return `${a} at ${i}, not ${b}`;
  }
  return undefined;
}

/** Runs one case: `undefined`, why it is not run here, or what is wrong. */
async function one(rlx, base, device, { file, model, sets }) {
  const bytes = await bytesOf(base, file);
  const loaded = await rlx.load(new Uint8Array(bytes, 0, model), { device });
  try {
    for (const { inputs, outputs } of sets) {
      const found = await loaded.run(Object.fromEntries(inputs.map((t) => [t.name, tensorOf(rlx, bytes, t)])));
      for (const output of outputs) {
        const why = difference(found[output.name], tensorOf(rlx, bytes, output));
        if (why !== undefined) return { failed: `${output.name}: ${why}` };
      }
    }
    return loaded.device === device ? {} : { failed: `it ran on ${loaded.device}` };
  } finally {
    loaded.free();
  }
}

/** Runs the cases from number `from` to `to` on `device`. Of each: its name, and `skipped` or `failed` with the reason. */
export async function nodeCases(rlx, base, device, from, to) {
  const { cases } = JSON.parse(new TextDecoder().decode(await bytesOf(base, 'index.json')));
  const results = [];
  for (const { name, why, ...what } of cases.slice(from, to)) {
    let result;
    try {
      result = why === undefined ? await one(rlx, base, device, what) : { skipped: why };
    } catch (error) {
      const text = `${error.kind ?? error.name}: ${error.message}`;
      result = error.kind === 'Unsupported' ? { skipped: text } : { failed: text };
    }
    results.push({ name, ...result });
  }
  return { all: cases.length, results };
}
