// Whole models against their goldens, on any engine: the same code in Node and in a page.

/** The arrays of a data folder: `index.json` names models, goldens and where each tensor's bytes are. */
export async function bytesOf(base, name) {
  const response = await fetch(new URL(name, base));
  if (!response.ok) throw new Error(`${name}: ${response.status}`);
  return response.arrayBuffer();
}

const ARRAYS = {
  f32: Float32Array, f64: Float64Array, f16: Uint16Array, bf16: Uint16Array, bool: Uint8Array, i8: Int8Array, u8: Uint8Array,
  i16: Int16Array, u16: Uint16Array, i32: Int32Array, u32: Uint32Array, i64: BigInt64Array, u64: BigUint64Array,
};

export function tensorOf(rlx, buffer, { dtype, dims, offset, bytes }) {
  const array = ARRAYS[dtype];
  return new rlx.Tensor(new array(buffer.slice(offset, offset + bytes)), dims, dtype);
}

/** How far an output may be: 1e-3 of the element and 1e-4 of the largest magnitude, or what the model's case says. */
function difference(found, wanted, step) {
  if (found === undefined) return 'no such output';
  if (found.dtype !== wanted.dtype || found.dims.join() !== wanted.dims.join()) {
    return `[${found.dims}] ${found.dtype}, not [${wanted.dims}] ${wanted.dtype}`;
  }
  const largest = wanted.data.reduce((most, x) => Math.max(most, Math.abs(Number(x))), 0);
  for (let i = 0; i < wanted.data.length; i++) {
    const [x, y] = [Number(found.data[i]), Number(wanted.data[i])];
    const room = 1e-3 * Math.abs(y) + Math.max(1e-4, step) * largest;
    if (!(Math.abs(x - y) <= room) && !(Number.isNaN(x) && Number.isNaN(y))) return `element ${i} is ${x}, not ${y}`;
  }
  return undefined;
}

/** Runs every golden of the models on `device`; gives a line for each. */
export async function goldens(rlx, base, device, only) {
  const index = JSON.parse(new TextDecoder().decode(await bytesOf(base, 'index.json')));
  const results = [];
  for (const model of index.models.filter(({ name }) => only === undefined || only.includes(name))) {
    const start = performance.now();
    let loaded = await rlx.load(new URL(model.file, base), { device });
    let ran = device;
    for (const golden of model.goldens) {
      const buffer = await bytesOf(base, golden.file);
      const tensors = (list) => Object.fromEntries(list.map((t) => [t.name, tensorOf(rlx, buffer, t)]));
      const wanted = tensors(golden.outputs);
      let why;
      try {
        let outputs;
        try {
          outputs = await loaded.run(tensors(golden.inputs));
        } catch (error) {
          if (device !== 'webgpu' || error.kind !== 'Unsupported') throw error;
          // Where the GPU has no kernel for an op, the CPU takes over if it may, and says so.
          loaded.free();
          loaded = await rlx.load(new URL(model.file, base), { device: 'auto' });
          outputs = await loaded.run(tensors(golden.inputs));
          if (loaded.fallback?.kind !== 'Unsupported') throw new Error('it does not say why it runs on the CPU');
          ran = 'cpu';
        }
        for (const [name, tensor] of Object.entries(wanted)) why ??= difference(outputs[name], tensor, model.step)?.replace(/^/, `${name}: `);
      } catch (error) {
        why = `${error.name} ${error.kind ?? ''}: ${error.message}`;
      }
      results.push({ model: model.name, golden: golden.file, ran, test: `${model.name} ${golden.file} on ${device}${ran === device ? '' : `, gone to the ${ran}`}`, why, as: loaded.device === ran });
    }
    loaded.free();
    results.at(-1).ms = Math.round(performance.now() - start);
  }
  return results;
}
