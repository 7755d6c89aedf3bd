// Models by URL: streamed, with progress, kept by the browser.

import { RlxError } from './errors.js';

/** Where the browser keeps models. */
const CACHE = 'rlx-models';

/** A response's bytes as they come; `report(done, total)` hears of each part, `total` is 0 where the server does not say. */
async function read(response, report) {
  const total = Number(response.headers.get('content-length') ?? 0);
  // What is compressed on its way has another length than what arrives.
  const known = response.headers.get('content-encoding') ? 0 : total;
  if (!response.body) {
    const bytes = new Uint8Array(await response.arrayBuffer());
    report(bytes.length, bytes.length);
    return bytes;
  }
  let bytes = new Uint8Array(known || 1 << 20);
  let done = 0;
  report(0, known);
  const reader = response.body.getReader();
  for (;;) {
    const part = await reader.read();
    if (part.done) break;
    if (done + part.value.length > bytes.length) {
      const more = new Uint8Array(Math.max(bytes.length * 2, done + part.value.length));
      more.set(bytes.subarray(0, done));
      bytes = more;
    }
    bytes.set(part.value, done);
    done += part.value.length;
    report(done, known);
  }
  return done === bytes.length ? bytes : bytes.slice(0, done);
}

async function openCache() {
  // Neither Node nor pages from elsewhere than https and localhost have it.
  if (typeof caches === 'undefined') return undefined;
  try {
    return await caches.open(CACHE);
  } catch {
    return undefined;
  }
}

/** What tells one version of a file from another, where the server says. */
const version = (response) => response.headers.get('etag') ?? response.headers.get('last-modified');

/** The kept response, if it is what the server has now, or the server cannot be asked. */
async function kept(cache, url, signal) {
  const found = await cache.match(url);
  if (!found) return undefined;
  try {
    const head = await fetch(url, { method: 'HEAD', signal });
    const same = head.ok && version(head) !== null && version(head) === version(found);
    return same ? found : undefined;
  } catch (e) {
    if (signal?.aborted) throw e;
    return found;
  }
}

async function request(url, signal) {
  let response;
  try {
    response = await fetch(url, { signal });
  } catch (cause) {
    if (signal?.aborted) throw signal.reason;
    throw new RlxError('Io', `${url} could not be fetched: ${cause.message}`, { cause });
  }
  if (!response.ok) {
    throw new RlxError('Io', `${url} could not be fetched: the server says ${response.status} ${response.statusText}`);
  }
  return response;
}

/** The bytes at a URL. With `cache`, from what the browser keeps, as long as the server has the same. */
export async function download(url, { report = () => {}, signal, cache = true } = {}) {
  if (url.protocol === 'file:') {
    const { readFile } = await import('node:fs/promises');
    const bytes = new Uint8Array(await readFile(url, { signal }));
    report(bytes.length, bytes.length);
    return bytes;
  }
  const store = cache ? await openCache() : undefined;
  const found = store && (await kept(store, url.href, signal));
  if (found) return read(found, report);
  const response = await request(url, signal);
  const headers = new Headers(response.headers);
  const bytes = await read(response, report);
  if (store && version(response) !== null) {
    headers.delete('content-encoding');
    headers.set('content-length', String(bytes.length));
    try {
      await store.put(url.href, new Response(bytes, { headers }));
    } catch {
      // The browser has no room: it is fetched again next time.
    }
  }
  return bytes;
}

/** The place of a file beside the model; names that lead elsewhere are rejected, since anyone may have written the model. */
export function beside(url, name) {
  const folder = new URL('.', url);
  const place = new URL(name, folder);
  if (place.origin !== folder.origin || place.protocol !== folder.protocol || !place.pathname.startsWith(folder.pathname)) {
    throw new RlxError('Malformed', `the model's data in "${name}" is not in its own folder`);
  }
  return place;
}
