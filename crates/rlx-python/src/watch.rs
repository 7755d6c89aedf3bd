//! Long calls: the GIL is released, Ctrl-C and timeouts stop them, callbacks hear how far they are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use rlx_ir::progress::Event;
use rlx_ir::{ErrorKind, Progress, Result};

use crate::errors::to_python;

/// Stops calls from another thread.
///
/// Pass it as ``cancel=`` to a call, and call ``cancel()`` from any thread: the call raises `rlx.Cancelled`.
/// The CPU checks before each step of a run; the model stays usable.
#[pyclass(frozen, module = "rlx")]
#[derive(Debug, Default)]
pub struct Cancel {
    inner: rlx_ir::Cancel,
}

#[pymethods]
impl Cancel {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Stops every call that was given this object, now and from now on.
    fn cancel(&self) {
        self.inner.cancel();
    }

    /// Whether it was cancelled.
    #[getter]
    fn cancelled(&self) -> bool {
        self.inner.is_cancelled()
    }
}

/// How a call is watched.
#[derive(Default)]
pub struct Watch {
    callback: Option<Py<PyAny>>,
    timeout: Option<Duration>,
    cancel: Option<rlx_ir::Cancel>,
}

/// Ctrl-C is looked for this often; attaching to the interpreter more often would cost short runs their speed.
const SIGNALS_EVERY: Duration = Duration::from_millis(20);

impl Watch {
    /// From the arguments that every long call takes.
    pub fn new(
        callback: Option<Py<PyAny>>,
        timeout: Option<f64>,
        cancel: Option<&Bound<'_, Cancel>>,
    ) -> PyResult<Self> {
        let seconds = |s: f64| {
            Duration::try_from_secs_f64(s)
                .map_err(|e| pyo3::exceptions::PyValueError::new_err(format!("timeout={s}: {e}")))
        };
        let timeout = timeout.map(seconds).transpose()?;
        Ok(Watch { callback, timeout, cancel: cancel.map(|c| c.get().inner.clone()) })
    }

    /// Calls `f` without the GIL. What the callback or a signal handler raises stops it and is raised here.
    pub fn run<R: Send>(self, py: Python<'_>, f: impl FnOnce(&Progress) -> Result<R> + Send) -> PyResult<R> {
        let limited = |cancel: rlx_ir::Cancel| match self.timeout {
            Some(timeout) => cancel.with_deadline(timeout),
            None => cancel,
        };
        // Stops this call alone, while the caller's may be shared with others.
        let own = limited(rlx_ir::Cancel::new());
        let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
        // Python runs handlers of signals on its main thread only; others need not look.
        let signals = on_main_thread(py)?;
        let progress = match (self.callback, signals) {
            (None, false) => Progress::from(&self.cancel.map_or(own, limited)),
            (callback, signals) => {
                let reporter = Reporter {
                    callback,
                    signals,
                    raised: Arc::clone(&raised),
                    own: own.clone(),
                    caller: self.cancel,
                    start: Instant::now(),
                    looked: AtomicU64::new(0),
                };
                Progress::from(&own).reporting(move |event| reporter.hear(event))
            }
        };
        let result = py.detach(|| f(&progress));
        let stopped = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (result, stopped) {
            (Ok(value), None) => Ok(value),
            (_, Some(error)) => Err(error),
            (Err(e), None) if e.kind() == ErrorKind::Cancelled => {
                // A handler that had no step left to run before.
                py.check_signals()?;
                Err(to_python(py, &e))
            }
            (Err(e), None) => Err(to_python(py, &e)),
        }
    }
}

struct Reporter {
    callback: Option<Py<PyAny>>,
    signals: bool,
    raised: Arc<Mutex<Option<PyErr>>>,
    own: rlx_ir::Cancel,
    caller: Option<rlx_ir::Cancel>,
    start: Instant,
    /// When signals were looked for, in nanoseconds after the start.
    looked: AtomicU64,
}

impl Reporter {
    fn hear(&self, event: Event<'_>) {
        if self.caller.as_ref().is_some_and(rlx_ir::Cancel::is_cancelled) {
            self.own.cancel();
        }
        let due = self.signals && self.due();
        if self.callback.is_none() && !due {
            return;
        }
        // Where the interpreter is shutting down there is nobody to tell.
        let heard = Python::try_attach(|py| {
            if due {
                py.check_signals()?;
            }
            match &self.callback {
                Some(callback) => {
                    let stage = event.stage.doing();
                    callback.call1(py, (stage, event.done, event.total, event.text)).map(drop)
                }
                None => Ok(()),
            }
        });
        if let Some(Err(error)) = heard {
            self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            self.own.cancel();
        }
    }

    fn due(&self) -> bool {
        let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let every = SIGNALS_EVERY.as_nanos() as u64;
        let due = now.saturating_sub(self.looked.load(Ordering::Relaxed)) >= every;
        if due {
            self.looked.store(now, Ordering::Relaxed);
        }
        due
    }
}

/// Whether this is Python's main thread.
fn on_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import(pyo3::intern!(py, "threading"))?;
    let main =
        threading.call_method0(pyo3::intern!(py, "main_thread"))?.getattr(pyo3::intern!(py, "ident"))?;
    let here = threading.call_method0(pyo3::intern!(py, "get_ident"))?;
    main.eq(here)
}
