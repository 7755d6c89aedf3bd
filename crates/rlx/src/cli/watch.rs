//! Stopping a command by its deadline or Ctrl-C, and the progress line on the terminal.
//!
//! The first Ctrl-C (or SIGTERM) is a graceful stop: work stops before its next step, and unfinished files
//! are removed. The second one ends the process immediately.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rlx_ir::{Cancel, Error, ErrorKind, Progress, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::args::Limits;
use super::job::Spinner;

/// The signal that requested this process to stop; 0 for none.
static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// The exit code of a process that a signal stopped, where one did.
pub fn stopped_by_signal() -> Option<u8> {
    let signal = SIGNAL.get()?.load(Ordering::Relaxed);
    u8::try_from(signal).ok().filter(|&n| n > 0).map(|n| n.saturating_add(128))
}

/// A command's work, watched.
pub struct Watch {
    spinner: Spinner,
    progress: Progress,
    quiet: Progress,
}

impl Watch {
    /// Takes the time from now on, and listens to signals.
    pub fn start(limits: &Limits, message: &str, json: bool) -> Result<Watch> {
        let flag = listen().map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot listen for signals: {e}")).with_source(e)
        })?;
        let cancel = Cancel::on_flag(flag);
        let cancel = limits.deadline.map_or(cancel.clone(), |after| cancel.with_deadline(after));
        let (spinner, quiet) = (Spinner::start(message, json), Progress::from(&cancel));
        let progress = match spinner.clone() {
            shown if shown.moves() => quiet.clone().reporting(move |event| shown.say(&event.to_string())),
            _ => quiet.clone(),
        };
        Ok(Watch { spinner, progress, quiet })
    }

    /// Stops work, and shows where it is.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Stops work and shows nothing, where showing would cost time that is measured.
    pub fn quiet(&self) -> &Progress {
        &self.quiet
    }

    /// Shows nothing any more: something else moves on the terminal.
    pub fn hide(&self) {
        self.spinner.hide();
    }

    /// Prints while nothing moves.
    pub fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        self.spinner.aside(print)
    }

    /// Says what is being done.
    pub fn say(&self, message: &str) {
        self.spinner.say(message);
    }
}

/// A flag that the first signal sets; the second one ends the process.
fn listen() -> io::Result<Arc<AtomicBool>> {
    let (stop, signal) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    for number in [SIGINT, SIGTERM] {
        // The order matters: this looks at the flag before the next line sets it.
        flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&stop))?;
        flag::register_usize(number, Arc::clone(&signal), number as usize)?;
        flag::register(number, Arc::clone(&stop))?;
    }
    // A command starts one watch.
    SIGNAL.get_or_init(|| signal);
    Ok(stop)
}
