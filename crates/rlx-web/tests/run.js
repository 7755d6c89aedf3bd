// The npm package in Node and in headless Chromium, and the public contract there: `node run.js SITE [CHROMIUM PLAYWRIGHT [PART…]]`, where SITE
// is a folder that `cargo xtask test --suite web` makes, and the parts are those of `PARTS`, all by default. Prints each test, and the
// counts that the test command reads.

import { pathToFileURL } from 'node:url';
import { serve } from './server.js';

const PARTS = { node: inNode, goldens: goldensIn, nodes: nodesIn, pages: pagesIn, contract: contractIn };
const [site, chromium, playwright, ...named] = process.argv.slice(2);
const parts = named.length ? named : Object.keys(PARTS);
let [passed, failed] = [0, 0];

function say(name, why, note = '') {
  why === undefined ? passed++ : failed++;
  console.log(`${why === undefined ? 'ok  ' : 'FAIL'} ${name}${note}${why === undefined ? '' : `: ${why}`}`);
}

async function test(name, work) {
  try {
    await work();
    say(name);
  } catch (error) {
    say(name, error?.stack ?? String(error));
  }
}

function same(found, wanted, what = 'value') {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`${what}: ${a}, not ${b}`);
}

async function rejects(promise, check) {
  let error;
  try {
    await promise;
  } catch (thrown) {
    error = thrown;
  }
  if (error === undefined) throw new Error('it did not fail');
  check(error);
  return error;
}

const server = await serve(site);
const data = new URL('/data/', server.origin);

async function inNode() {
  const rlx = await import(pathToFileURL(`${site}/rlx/index.js`));
  const { goldens } = await import(pathToFileURL(`${site}/tests/goldens.js`));
  const digits = new URL('/models/digits/digits.onnx', server.origin);
  const image = new rlx.Tensor(new Float32Array(64).fill(0.5), [1, 1, 8, 8]);
  await test('node: the CPU has SIMD, WebGPU is absent and says why', async () => {
    const [gpu, cpu] = await rlx.devices();
    same([cpu.name, cpu.available, cpu.about], ['cpu', true, 'simd128']);
    same([gpu.name, gpu.available, gpu.reason.kind], ['webgpu', false, 'DeviceUnavailable']);
  });
  for (const { test: name, why, ms } of await goldens(rlx, data, 'cpu')) say(`node: ${name}`, why, ms ? ` (${ms} ms)` : '');
  await test('node: without WebGPU a model goes to the CPU and says so', async () => {
    const said = [];
    const warn = console.warn;
    console.warn = (text) => said.push(text);
    const model = await rlx.load(digits, { onFallback: (reason) => said.push(reason.kind) });
    console.warn = warn;
    same([model.device, model.fallback.kind, said.length], ['cpu', 'DeviceUnavailable', 2]);
    await rejects(rlx.load(digits, { device: 'webgpu' }), (e) => same(e.kind, 'DeviceUnavailable'));
  });
  await test('node: a model declares its inputs and outputs', async () => {
    const model = await rlx.load(digits, { device: 'cpu' });
    same(model.inputs, [{ name: 'image', dtype: 'f32', dims: ['batch', 1, 8, 8] }]);
    same(model.outputs.map((o) => o.name), ['probabilities']);
  });
  await test('node: what is wrong is a typed error', async () => {
    const model = await rlx.load(digits, { device: 'cpu' });
    await rejects(model.run({ picture: image }), (e) => same([e instanceof rlx.RlxError, e.kind], [true, 'Binding']));
    await rejects(model.run({ image: new Float32Array(3) }), (e) => same(e instanceof rlx.RlxError, true));
    await rejects(rlx.load(new Uint8Array([1, 2, 3]), { device: 'cpu' }), (e) => same(e.kind, 'Malformed'));
    await rejects(rlx.load(new URL('/no.onnx', server.origin), { device: 'cpu' }), (e) => same(e.kind, 'Io'));
    await rejects(rlx.load(digits, { device: 'tpu' }), (e) => same(e.kind, 'Config'));
    await rejects(rlx.load(digits, { device: 'cpu', dims: { bach: 1 } }), (e) => same([e.kind, /"batch"/.test(e.message)], ['Dimension', true]));
    // And the model still runs.
    same((await model.run({ image })).probabilities.dims, [1, 10]);
  });
  await test('node: progress comes in order, and loading can be stopped', async () => {
    const heard = [];
    const model = await rlx.load(digits, { device: 'cpu', onProgress: (p) => heard.push(p) });
    await model.run({ image });
    const fetched = heard.filter((p) => p.stage === 'fetch').map((p) => p.done);
    same(fetched, fetched.toSorted((a, b) => a - b));
    for (const stage of ['fetch', 'import', 'compile']) same(heard.some((p) => p.stage === stage), true, stage);
    const stop = new AbortController();
    const loading = rlx.load(digits, { device: 'cpu', signal: stop.signal, onProgress: () => stop.abort() });
    await rejects(loading, (e) => same(e.name, 'AbortError'));
    await rejects(model.run({ image }, { signal: AbortSignal.abort() }), (e) => same(e.name, 'AbortError'));
    same((await model.run({ image })).probabilities.dims, [1, 10]);
  });
  await test('node: runs asked for at once give what they give alone', async () => {
    const model = await rlx.load(digits, { device: 'cpu', dims: { batch: 1 } });
    const images = [0, 1, 2, 3].map((k) => new rlx.Tensor(Float32Array.from({ length: 64 }, (_, i) => ((i * (k + 3)) % 17) / 16), [1, 1, 8, 8]));
    const alone = [];
    for (const one of images) alone.push(Array.from((await model.run({ image: one })).probabilities.data));
    const together = await Promise.all(images.map((one) => model.run({ image: one })));
    same(together.map((o) => Array.from(o.probabilities.data)), alone);
  });
}

/** ONNX's node cases in the page. What is listed as failing must fail, everything else pass or need what the device has not. */
async function nodesOn(page, device) {
  const { readFileSync } = await import('node:fs');
  const index = JSON.parse(readFileSync(`${site}/nodes/index.json`));
  const [name, start] = [device === 'cpu' ? 'simd128' : device, performance.now()];
  const listed = new Set(index.cases.filter((one) => one.listed.includes(name)).map((one) => one.name));
  const base = new URL('/nodes/', server.origin).href;
  const [reasons, faults] = [new Map(), []];
  let good = 0;
  for (let from = 0; from < index.cases.length; from += 100) {
    const { results } = await page.evaluate(([base, on, from]) => nodeCases(rlx, new URL(base), on, from, from + 100), [base, device, from]);
    for (const { name, skipped, failed } of results) {
      if (skipped !== undefined) reasons.set(skipped, [...(reasons.get(skipped) ?? []), name]);
      else if (failed !== undefined && !listed.has(name)) faults.push(`${name}: ${failed}`);
      else if (failed === undefined && listed.has(name)) faults.push(`${name} passes, but is listed as failing`);
      else if (failed === undefined) good++;
    }
  }
  const least = index.atLeast[name];
  if (good < least) faults.push(`${good} cases pass; there were ${least}`);
  passed += good;
  const others = [...reasons.values()].reduce((sum, names) => sum + names.length, 0);
  console.log(`${name === 'webgpu' ? '@nodes' : '    '} ${name} ${good} of ${index.cases.length}`);
  console.log(`@skip ${others} node cases in a page on ${name} need what is not there; ${listed.size} more are listed as wrong or random`);
  if (process.env.RLX_NODE_REASONS) for (const [why, names] of reasons) console.log(`     ${names.length} (${names[0]}): ${why}`);
  faults.forEach((fault) => say(`chromium: ${device}: ${fault}`, 'the node case does not do as expected'));
  say(`chromium: ONNX's node cases on ${device}`, faults.length ? `${faults.length} do not do as expected` : undefined, ` (${Math.round(performance.now() - start)} ms)`);
}

/** The contract's device tests on WebGPU. Those that need what a page lacks are named. */
async function contractIn({ page }) {
  const [tests, lacks] = [await page.evaluate('contractTests()'), new Map()];
  await test('chromium: a call that would wait is an error where the page did not say how', async () => {
    same(await page.evaluate('withoutTurns()'), 'DeviceUnavailable, no error, Unsupported, Unsupported');
  });
  await test('chromium: a test of the contract that panics is one that failed, and says why', async () => {
    const panics = tests.findIndex(({ lack }) => lack?.includes('panic'));
    const why = await page.evaluate((index) => contractTest(index), panics);
    same(/panicked at .*rs/.test(why), true, why);
  });
  const before = passed;
  for (const [index, { name, lack }] of tests.entries()) {
    if (lack !== undefined) {
      lacks.set(lack, [...(lacks.get(lack) ?? []), name]);
      continue;
    }
    const start = performance.now();
    const why = await page.evaluate((index) => contractTest(index), index);
    say(`chromium: contract on webgpu: ${name}`, why ?? undefined, ` (${Math.round(performance.now() - start)} ms)`);
  }
  for (const [lack, names] of lacks) console.log(`@skip ${names.length} contract tests on webgpu: ${lack}: ${names.join(', ')}`);
  console.log(`@contract webgpu ${passed - before}`);
}

async function goldensIn({ page }) {
  for (const device of ['webgpu', 'cpu']) {
    const results = await page.evaluate(([base, on]) => goldens(rlx, new URL(base), on), [data.href, device]);
    for (const { test: name, model, golden, ran, why, ms, as } of results) {
      if (ran === 'webgpu' && !why) console.log(`@golden webgpu ${model} ${golden}`);
      say(`chromium: ${name}`, why ?? (as ? undefined : 'it ran on another device'), ms ? ` (${ms} ms)` : '');
    }
  }
}

async function nodesIn({ page }) {
  for (const device of ['webgpu', 'cpu']) await nodesOn(page, device);
}

/** Headless Chromium on its software GPU, with a page that has what the tests call. */
async function inChromium(parts) {
  const { chromium: engine } = (await import(pathToFileURL(`${playwright}/index.js`))).default;
  const browser = await engine.launch({
    executablePath: chromium,
    args: ['--headless=new', '--no-sandbox', '--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader', '--enable-features=Vulkan',
      '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-quic', '--no-first-run'],
  });
  const context = await browser.newContext();
  const elsewhere = [];
  context.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(server.origin) && !url.startsWith('data:') && !url.startsWith('blob:')) elsewhere.push(url);
  });
  const page = await context.newPage();
  page.on('pageerror', (error) => say('page', error.message));
  page.on('console', (message) => {
    if (message.type() === 'error') console.log(`     console: ${message.text()}`);
  });
  await page.goto(`${server.origin}/tests/page.html`);
  await page.waitForFunction('globalThis.ready');
  await test('chromium: WebGPU is there, on the software adapter', async () => {
    const found = await page.evaluate('rlx.devices()');
    console.log(`     ${found.map((d) => `${d.name}: ${d.about}`).join('; ')}`);
    same(found.map((d) => [d.name, d.available]), [['webgpu', true], ['cpu', true]]);
  });
  for (const part of parts) await PARTS[part]({ context, page });
  await test('chromium: no request left the origin', async () => same(elsewhere, []));
  await browser.close();
}

async function pagesIn({ context, page }) {
  await test('chromium: a model is fetched once, and again when it changes', async () => {
    const asked = async () => {
      const before = server.log.length;
      await page.evaluate(`rlx.load('/models/mlp/mlp.onnx', { device: 'cpu' }).then((m) => m.free())`);
      return server.log.slice(before).filter((line) => line.startsWith('GET') && line.includes('mlp'));
    };
    await page.evaluate(`caches.delete('rlx-models')`);
    same((await asked()).length, 2, 'the graph and its weights');
    same(await asked(), []);
    const { utimesSync } = await import('node:fs');
    utimesSync(`${site}/models/mlp/mlp.onnx`, new Date(), new Date(Date.now() - 3600e3));
    same(await asked(), ['GET /models/mlp/mlp.onnx']);
  });
  await test('chromium: a lost device is an error of its run, and there again for the next one', async () => {
    const found = await page.evaluate(async () => {
      const model = await rlx.load('/models/digits/digits.onnx', { device: 'webgpu' });
      const image = new rlx.Tensor(new Float32Array(64).fill(0.5), [1, 1, 8, 8]);
      const before = Array.from((await model.run({ image })).probabilities.data);
      await rlx.closeWebGpu();
      const error = await model.run({ image }).then(() => undefined, (e) => ({ kind: e.kind, message: e.message }));
      const after = Array.from((await model.run({ image })).probabilities.data);
      return { error, same: before.join() === after.join(), device: model.device };
    });
    same([found.error?.kind, found.same, found.device], ['Device', true, 'webgpu'], found.error?.message);
  });
  await test('chromium: a run that no one waits for any more disturbs no other', async () => {
    const found = await page.evaluate(async () => {
      const model = await rlx.load('/models/digits/digits.onnx', { device: 'webgpu' });
      const image = new rlx.Tensor(new Float32Array(64).fill(0.5), [1, 1, 8, 8]);
      const before = Array.from((await model.run({ image })).probabilities.data).join();
      const stop = new AbortController();
      const stopped = model.run({ image }, { signal: stop.signal }).then(() => 'ran', (e) => e.name);
      stop.abort();
      const others = await Promise.all([model.run({ image }), model.run({ image })]);
      return { stopped: await stopped, same: others.every((o) => Array.from(o.probabilities.data).join() === before) };
    });
    same(found, { stopped: 'AbortError', same: true });
  });
  for (const device of ['webgpu', 'cpu']) {
    await test(`chromium: the page of digits reads what is drawn, on ${device}`, async () => {
      const demo = await context.newPage();
      await demo.goto(`${server.origin}/demo/digits.html?device=${device}`);
      await demo.waitForSelector('body[data-ready]');
      const box = await demo.locator('#pad').boundingBox();
      const strokes = { 1: [[[120, 40], [120, 215]]], 0: [Array.from({ length: 33 }, (_, i) => [128 + 55 * Math.sin((i * Math.PI) / 16), 128 - 85 * Math.cos((i * Math.PI) / 16)])] };
      for (const [digit, lines] of Object.entries(strokes)) {
        await demo.click('#clear');
        for (const [first, ...rest] of lines) {
          await demo.mouse.move(box.x + first[0], box.y + first[1]);
          await demo.mouse.down();
          for (const [x, y] of rest) await demo.mouse.move(box.x + x, box.y + y);
          await demo.mouse.up();
        }
        await demo.waitForSelector('#answer[data-digit]');
        same(await demo.locator('#answer').getAttribute('data-digit'), digit, 'the digit');
        await demo.screenshot({ path: `${site}/digits-${device}-${digit}.png` });
      }
      await demo.close();
    });
  }
  await test('chromium: the page of sentences finds the one that means the same', async () => {
    const demo = await context.newPage();
    demo.setDefaultTimeout(240e3);
    await demo.goto(`${server.origin}/demo/search.html`);
    await demo.waitForSelector('body[data-ready]');
    await demo.click('#search');
    await demo.waitForSelector('body[data-found]');
    const first = await demo.locator('#found li').first().textContent();
    same(/guitar/.test(first), true, first);
    console.log(`     ${await demo.locator('#status').textContent()}; first: ${first}`);
    await demo.screenshot({ path: `${site}/search.png` });
    await demo.close();
  });
}

if (parts.includes('node')) await inNode();
const others = parts.filter((part) => part !== 'node');
if (chromium && others.length) await inChromium(others);
server.close();
console.log(`@counts passed=${passed} failed=${failed}`);
process.exit(failed ? 1 : 0);
