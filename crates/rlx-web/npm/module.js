// The WebAssembly module: loaded once, and every call into it.

import initialise, * as wasm from './rlx_web.js';
import { RlxError, asError } from './errors.js';

let loading;
/** What ended the module, once something did. */
let ended;

async function bytesInNode(url) {
  const { readFile } = await import('node:fs/promises');
  return readFile(url);
}

/** Loads the module, from beside this file unless a place or the bytes are given. */
export function init({ module } = {}) {
  loading ??= (async () => {
    const inNode = typeof process === 'object' && process.versions?.node !== undefined;
    const place = module ?? new URL('./rlx_web_bg.wasm', import.meta.url);
    const isFile = inNode && place instanceof URL && place.protocol === 'file:';
    try {
      await initialise({ module_or_path: isFile ? await bytesInNode(place) : place });
    } catch (cause) {
      // Another call may find it.
      loading = undefined;
      throw new RlxError('Io', `the module of RLX could not be loaded: ${cause?.message ?? cause}`, {
        hint: 'serve rlx_web_bg.wasm beside index.js, with the type application/wasm; it takes an engine with SIMD (of 2023 or later)',
        cause,
      });
    }
    return wasm;
  })();
  return loading;
}

/** Calls into the module; what it throws becomes an `RlxError`. */
export function call(work) {
  if (ended) throw ended;
  try {
    return work();
  } catch (thrown) {
    // A trap: the module panicked, or ran out of memory or stack. Its memory may be in any state.
    if (thrown instanceof WebAssembly.RuntimeError || thrown instanceof RangeError) {
      const text = wasm.lastPanic() ?? 'it ran out of memory or stack';
      ended = new RlxError('Panic', `RLX stopped: ${text}`, { hint: 'reload the page', cause: thrown });
      throw ended;
    }
    throw asError(thrown);
  }
}

/** As `call`, for what gives a promise. */
export async function awaited(work) {
  try {
    return await call(work);
  } catch (thrown) {
    throw asError(thrown);
  }
}
