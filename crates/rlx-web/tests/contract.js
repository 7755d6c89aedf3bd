// The public contract's device tests on WebGPU: those of `tests/contract`, in the module that its `page.rs` makes. They wait for the device, so
// each is a call that is suspended while the page does other things (JavaScript Promise Integration); a panic ends the module, so each test
// has one of its own.

let compiled;
let count = 0;

/** The module anew: its functions, and its exports as the engine has them. */
async function fresh() {
  compiled ??= WebAssembly.compileStreaming(fetch(new URL('./contract_page_bg.wasm', import.meta.url)));
  const functions = await import(`./contract_page.js?${count++}`);
  return { functions, exports: await functions.default({ module_or_path: await compiled }) };
}

/** Every test: its name, and `lack`, why a page cannot run it, where it cannot. */
export async function contractTests() {
  const { functions } = await fresh();
  const tests = [];
  for (let name; (name = functions.name(tests.length)) !== undefined; ) tests.push({ name, lack: functions.lack(tests.length) });
  return tests;
}

/** Runs test number `index`. Gives what is wrong, or `undefined`. */
export async function contractTest(index) {
  const said = [];
  const { error } = console;
  console.error = (...words) => said.push(words.join(' '));
  try {
    const { exports } = await fresh();
    await WebAssembly.promising(exports.run)(index);
  } catch (thrown) {
    return [...said, thrown.stack ?? String(thrown)].join('\n');
  } finally {
    console.error = error;
  }
  return undefined;
}

/** What calls do that would wait, where the module was not told how: the kinds of their errors. */
export async function withoutTurns() {
  const { functions } = await fresh();
  return functions.without_turns();
}
