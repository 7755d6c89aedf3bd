// RLX in pages and in Node: `load` a model, `run` it.

import { RlxError, asError } from './errors.js';
import { beside, download } from './fetch.js';
import { awaited, call, init } from './module.js';
import { Tensor, fromModule, toModule } from './tensor.js';

export { RlxError, Tensor, init };

/** Lets the page paint and hear of events. */
const turn = () => new Promise((resolve) => setTimeout(resolve, 0));

/** Rejects as soon as the signal fires; what was begun goes on behind it. */
function orAborted(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) return stop();
    signal.addEventListener('abort', stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}

/** What the browser says of its adapter; many keep it to themselves. */
async function adapterName() {
  const { vendor, architecture, description } = (await navigator.gpu.requestAdapter())?.info ?? {};
  return description || [vendor, architecture].filter(Boolean).join(' ') || 'unnamed adapter';
}

/** What there is to run on, the fastest first. */
export async function devices() {
  const wasm = await init();
  const cpu = { name: 'cpu', available: true, about: call(() => wasm.cpuInstructions()), software: false };
  try {
    const { software } = await awaited(() => wasm.openWebGpu());
    return [{ name: 'webgpu', available: true, about: await adapterName(), software }, cpu];
  } catch (reason) {
    return [{ name: 'webgpu', available: false, about: reason.message, software: false, reason }, cpu];
  }
}

/** The device to load a model on, and why it is not the one that would be first. */
async function choose(wasm, wanted) {
  if (wanted === 'cpu') return { device: 'cpu' };
  if (wanted !== 'auto' && wanted !== 'webgpu') {
    throw new RlxError('Config', `there is no device "${wanted}" here; devices: auto, webgpu, cpu`);
  }
  try {
    await awaited(() => wasm.openWebGpu());
    return { device: 'webgpu' };
  } catch (reason) {
    if (wanted === 'webgpu') throw reason;
    return { device: 'cpu', reason };
  }
}

/** A model's own bytes, and those of the files beside it by name. */
async function fetchAll(wasm, source, { files = {}, onProgress, signal, cache }) {
  const isUrl = typeof source === 'string' || source instanceof URL;
  const url = isUrl ? new URL(source, globalThis.document?.baseURI ?? globalThis.location?.href) : undefined;
  const get = (place, text) => {
    const report = (done, total) => onProgress?.({ stage: 'fetch', done, total, text });
    return download(place, { report, signal, cache });
  };
  const bytes = url ? await get(url, url.href) : toBytes(source, 'the model');
  const given = new Map(Object.entries(files));
  const pairs = [];
  for (const name of call(() => wasm.externalFiles(bytes))) {
    const value = given.get(name);
    if (value !== undefined && typeof value !== 'string' && !(value instanceof URL)) {
      pairs.push([name, toBytes(value, name)]);
    } else if (url || value !== undefined) {
      const place = value === undefined ? beside(url, name) : new URL(value, url ?? globalThis.location?.href);
      pairs.push([name, await get(place, place.href)]);
    }
  }
  return { bytes, pairs };
}

function toBytes(value, what) {
  if (value instanceof Uint8Array) return value;
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  throw new RlxError('Config', `${what}: give a URL, an ArrayBuffer or a Uint8Array`);
}

/** Loads a model; see `index.d.ts`. */
export async function load(source, options = {}) {
  const { device = 'auto', dims = {}, signal } = options;
  signal?.throwIfAborted();
  const wasm = await init();
  const chosen = await choose(wasm, device);
  signal?.throwIfAborted();
  const { bytes, pairs } = await fetchAll(wasm, source, options);
  signal?.throwIfAborted();
  await turn();
  const inner = call(() => new wasm.Model(bytes, pairs, chosen.device, Object.entries(dims)));
  return new Model(wasm, inner, { ...options, wanted: device }, chosen);
}

/** A model on a device; made by `load`. */
export class Model {
  #wasm;
  #inner;
  #options;
  /** The run that was asked for last; each begins when the one before it is over. */
  #last = Promise.resolve();
  #lost = false;
  #device;
  #fallback;

  constructor(wasm, inner, options, { device, reason }) {
    this.#wasm = wasm;
    this.#inner = inner;
    this.#options = options;
    this.#device = device;
    if (reason) this.#fellBack(reason);
  }

  /** The device it runs on now. */
  get device() {
    return this.#device;
  }

  /** Why it does not run on WebGPU, where that was to be tried first. */
  get fallback() {
    return this.#fallback;
  }

  get inputs() {
    return call(() => this.#alive().inputs);
  }

  get outputs() {
    return call(() => this.#alive().outputs);
  }

  /** Runs on named tensors; gives the outputs by name. Runs that are asked for at once are done one after the other. */
  run(inputs, { signal, onProgress } = {}) {
    const before = this.#last;
    const run = (async () => {
      await before;
      signal?.throwIfAborted();
      return this.#run(toModule(inputs), onProgress ?? this.#options.onProgress, signal);
    })();
    this.#last = run.catch(() => {});
    return orAborted(run, signal);
  }

  /** Gives its memory back. */
  free() {
    this.#inner?.free();
    this.#inner = undefined;
  }

  [Symbol.dispose ?? Symbol.for('Symbol.dispose')]() {
    this.free();
  }

  #alive() {
    if (!this.#inner) throw new RlxError('Binding', 'the model was freed');
    return this.#inner;
  }

  #fellBack(reason) {
    this.#device = 'cpu';
    this.#fallback = reason;
    console.warn(`rlx: running on the CPU instead of WebGPU: ${reason.message}`);
    this.#options.onFallback?.(reason);
  }

  #move(device) {
    call(() => this.#alive().moveTo(device));
    this.#device = device;
  }

  /** Opens the device again after it was lost. */
  async #reopen() {
    try {
      await awaited(() => this.#wasm.openWebGpu());
      this.#move('webgpu');
    } catch (reason) {
      if (this.#options.wanted !== 'auto') throw reason;
      this.#move('cpu');
      this.#fellBack(reason);
    }
    this.#lost = false;
  }

  #prepare(inputs, onProgress) {
    const listener = onProgress && ((stage, done, total, text) => onProgress({ stage: stage.toLowerCase(), done, total, text }));
    call(() => this.#alive().prepare(inputs, listener));
  }

  async #run(inputs, onProgress, signal) {
    if (this.#lost) await this.#reopen();
    try {
      this.#prepare(inputs, onProgress);
    } catch (error) {
      // What the device has no kernel for, or is too large for it.
      const other = this.#device === 'webgpu' && this.#options.wanted === 'auto';
      if (!other || (error.kind !== 'Unsupported' && error.kind !== 'OutOfMemory')) throw this.#noted(error);
      this.#move('cpu');
      this.#fellBack(error);
      this.#prepare(inputs, onProgress);
    }
    if (signal) {
      await turn();
      signal.throwIfAborted();
    }
    if (this.#device === 'cpu') return fromModule(call(() => this.#alive().runNow(inputs)));
    try {
      return fromModule(await awaited(() => this.#alive().run(inputs)));
    } catch (error) {
      throw this.#noted(error);
    }
  }

  /** After a fault of the device the next run opens it again. */
  #noted(thrown) {
    const error = asError(thrown);
    if (this.#device === 'webgpu' && error.kind === 'Device') this.#lost = true;
    return error;
  }
}

/** Gives the WebGPU device back to the browser. Runs of models on it fail with an error of kind `Device`; the runs after them open it
 * again. */
export async function closeWebGpu() {
  const wasm = await init();
  call(() => wasm.closeWebGpu());
}
