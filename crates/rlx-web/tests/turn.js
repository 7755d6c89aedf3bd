// How the module of the contract's tests gives up its turn: its call is suspended until the page's other tasks have run.

export const turn = new WebAssembly.Suspending(() => new Promise((done) => setTimeout(done)));
