//! Waiting: for locks, for a result that a device's callback leaves for the thread or the task that waits for it, for futures; and in a page,
//! where nothing but the page's other tasks can end it.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A mutex's contents, also after a panic elsewhere: every use leaves them whole.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

static TURN: OnceLock<fn()> = OnceLock::new();

/// Says how a page gives up its turn in the midst of a call: `turn` returns after other tasks of the page's event loop ran. Calls that would wait for
/// a device, and are an error in a page without this, wait there, too: they give up turns until what they wait for is there. The first
/// function stays. Where threads can wait, nothing calls it.
///
/// A host does this by JavaScript Promise Integration: `turn` is an import that is a `WebAssembly.Suspending`, and what waits is called through an
/// export made by `WebAssembly.promising`, with no JavaScript between the two. A call that waits below any other export is ended by the host.
///
/// ```no_run
/// #[cfg(target_family = "wasm")]
/// #[link(wasm_import_module = "./turn.js")]
/// unsafe extern "C" {
///     // export const turn = new WebAssembly.Suspending(() => new Promise((done) => setTimeout(done)));
///     safe fn turn();
/// }
/// # #[cfg(not(target_family = "wasm"))]
/// # fn turn() {}
/// rlx_gpu::set_turn(|| turn());
/// ```
///
/// While a call waits, the page may call the module, but nothing of it that uses the device or gives up turns itself: that call is not over.
pub fn set_turn(turn: fn()) {
    let _ = TURN.set(turn);
}

/// What [`set_turn`] was given.
pub(crate) fn turn() -> Option<fn()> {
    TURN.get().copied()
}

/// The value of a future that is ready at once or soon, and needs no waker for that.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => turn().unwrap_or(std::thread::yield_now)(),
        }
    }
}

/// Whether something has arrived, and how it went.
pub struct Signal<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    result: Option<T>,
    /// The task to wake.
    task: Option<Waker>,
    watch: Watch,
}

/// Whether some thread waits for the device on behalf of the task.
#[derive(PartialEq)]
enum Watch {
    None,
    Running,
    /// It no longer does: what there is to say is said to who waits.
    Over,
}

impl<T> Default for Signal<T> {
    fn default() -> Self {
        let state = State { result: None, task: None, watch: Watch::None };
        Signal { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<T: Send + 'static> Signal<T> {
    /// It arrived: wakes who waits.
    pub fn set(&self, result: T) {
        let task = {
            let mut state = locked(&self.state);
            state.result = Some(result);
            state.task.take()
        };
        self.changed.notify_all();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Whether it arrived.
    pub fn is_set(&self) -> bool {
        locked(&self.state).result.is_some()
    }

    /// Waits for at most `most`, and gives what `read` makes of what arrived. In a page, where no thread can wait and the standard
    /// library has no clock, that is what is there.
    pub fn wait<R>(&self, most: Duration, read: impl FnOnce(Option<&T>) -> R) -> R {
        let state = locked(&self.state);
        if state.result.is_some() || cfg!(target_family = "wasm") {
            return read(state.result.as_ref());
        }
        let waited = self.changed.wait_timeout_while(state, most, |state| state.result.is_none());
        read(waited.unwrap_or_else(PoisonError::into_inner).0.result.as_ref())
    }

    /// Whether it arrived; if not, the task of `context` is woken later. Where `watch` is given, somebody must wait for the device so that it
    /// calls back: a thread does that, for the task.
    pub fn poll(
        self: &Arc<Self>,
        context: &mut Context<'_>,
        watch: Option<impl FnOnce() + Send + 'static>,
    ) -> Poll<()> {
        let mut state = locked(&self.state);
        if state.result.is_some() || state.watch == Watch::Over {
            return Poll::Ready(());
        }
        state.task = Some(context.waker().clone());
        let Some(watch) = watch.filter(|_| state.watch == Watch::None) else { return Poll::Pending };
        state.watch = Watch::Running;
        drop(state);
        let signal = Arc::clone(self);
        let watch = move || {
            watch();
            let task = {
                let mut state = locked(&signal.state);
                state.watch = Watch::Over;
                state.task.take()
            };
            if let Some(task) = task {
                task.wake();
            }
        };
        // Without a thread, who takes the result waits.
        let spawned = std::thread::Builder::new().name("rlx-gpu-wait".to_string()).spawn(watch);
        if spawned.is_err() { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn who_waits_and_the_task_that_polls_are_told() {
        let signal = Arc::new(Signal::default());
        let mut context = Context::from_waker(Waker::noop());
        assert!(!signal.is_set() && signal.poll(&mut context, None::<fn()>).is_pending());
        assert_eq!(signal.wait(Duration::ZERO, |found: Option<&i32>| found.copied()), None);
        let other = Arc::clone(&signal);
        std::thread::spawn(move || other.set(7)).join().unwrap();
        assert_eq!(signal.wait(Duration::ZERO, |found| found.copied()), Some(7));
        assert!(signal.is_set() && signal.poll(&mut context, None::<fn()>).is_ready());
    }

    #[test]
    fn a_thread_waits_for_the_device_once_and_the_task_goes_on_behind_it() {
        let signal = Arc::new(Signal::<()>::default());
        let mut context = Context::from_waker(Waker::noop());
        let (go, wait) = channel::<()>();
        let (done, over) = channel::<()>();
        let watch = move || {
            wait.recv().unwrap();
            done.send(()).unwrap();
        };
        assert!(signal.poll(&mut context, Some(watch)).is_pending());
        assert!(signal.poll(&mut context, Some(|| panic!("a second thread"))).is_pending());
        go.send(()).unwrap();
        over.recv().unwrap();
        while signal.poll(&mut context, None::<fn()>).is_pending() {
            std::thread::yield_now();
        }
        assert!(!signal.is_set(), "nothing arrived: who takes the result finds out");
    }
}
