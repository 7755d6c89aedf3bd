//! How long calls are watched and stopped: a [`Cancel`] stops them, a [`Progress`] hears how far they are.
//!
//! Anyone who reads, imports, compiles or runs takes a `&Progress` in the form of its call that ends in
//! `_with_progress`, and goes through [`Progress::step`] between its parts: weights, nodes, passes, steps. A cancelled
//! call gives [`ErrorKind::Cancelled`], writes no file, and leaves what it worked on as usable as before. A deadline is a
//! cancel that fires by time.
//!
//! What is asked is one relaxed load of a flag (and the clock, where there is a deadline), so that it can be asked before
//! every step of a run. What is between two steps, such as one large product, is not interrupted.
//!
//! ```
//! use std::time::Duration;
//! use rlx_ir::ErrorKind;
//! use rlx_ir::progress::{Cancel, Progress, Stage};
//!
//! let cancel = Cancel::new().with_deadline(Duration::from_secs(60));
//! let progress = Progress::from(&cancel).reporting(|event| println!("{event}"));
//! progress.step(Stage::Compile, 3, 11, || "recognize-composites")?; // prints: compiling 3/11 recognize-composites
//! cancel.cancel(); // From any thread.
//! let stopped = progress.step(Stage::Compile, 4, 11, || "fold-batch-norm").unwrap_err();
//! assert_eq!(stopped.kind(), ErrorKind::Cancelled);
//! assert_eq!(stopped.to_string(), "cancelled: stopped while compiling (4 of 11 done)");
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::Instant;
use crate::error::{Error, ErrorKind, Result};
use crate::panics::catch;

/// Stops calls. Clones stop together.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
    deadline: Option<Deadline>,
}

#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Instant,
    after: Duration,
}

impl Cancel {
    /// Stops nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops when `flag` is set, by a handler of signals for example.
    pub fn on_flag(flag: Arc<AtomicBool>) -> Self {
        Cancel { flag, deadline: None }
    }

    /// The same cancel, which fires by itself when this time from now has passed. The earlier of two deadlines counts.
    pub fn with_deadline(self, after: Duration) -> Self {
        // A time beyond what the clock can say never comes.
        let new = Instant::now().checked_add(after).map(|at| Deadline { at, after });
        let earlier = [self.deadline, new].into_iter().flatten().min_by_key(|d| d.at);
        Cancel { deadline: earlier, ..self }
    }

    /// Stops every call that works with this cancel or a clone, now and from now on.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Whether somebody cancelled, or the deadline passed.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Relaxed) || self.is_late()
    }

    #[inline]
    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|d| Instant::now() >= d.at)
    }

    /// Why it stops, in words.
    fn reason(&self) -> String {
        match self.deadline {
            Some(d) if !self.flag.load(Ordering::Relaxed) => format!("the deadline of {:?} passed", d.after),
            _ => "stopped".to_owned(),
        }
    }
}

/// What a call is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// A file is read.
    Read,
    /// Nodes of a model become nodes of a graph.
    Import,
    /// Passes of the compiler.
    Compile,
    /// Weights are read, checked and packed.
    Prepare,
    /// Variants of a step are timed.
    Tune,
    /// Steps of a run.
    Run,
    /// Values are compared with a reference.
    Verify,
    /// A file is written.
    Write,
}

impl Stage {
    /// What is being done: `compiling`.
    pub const fn doing(self) -> &'static str {
        match self {
            Stage::Read => "reading",
            Stage::Import => "importing",
            Stage::Compile => "compiling",
            Stage::Prepare => "preparing weights",
            Stage::Tune => "tuning",
            Stage::Run => "running",
            Stage::Verify => "verifying",
            Stage::Write => "writing",
        }
    }
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// What it is busy with.
    pub stage: Stage,
    /// How many parts of the stage are done.
    pub done: usize,
    /// How many there are; 0 where no one knows.
    pub total: usize,
    /// What comes next: a node, a pass, a file. May be empty.
    pub text: &'a str,
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.stage.doing())?;
        if self.total > 0 {
            write!(f, " {}/{}", self.done, self.total)?;
        }
        if self.text.is_empty() { Ok(()) } else { write!(f, " {}", self.text) }
    }
}

/// Who hears of progress.
type Reporter = Arc<dyn Fn(Event<'_>) + Send + Sync>;

/// What a long call reports to, and asks whether to go on. The default does neither.
#[derive(Clone, Default)]
pub struct Progress {
    cancel: Option<Cancel>,
    report: Option<Reporter>,
    tune_until: Option<Instant>,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reports = self.report.is_some();
        f.debug_struct("Progress")
            .field("cancel", &self.cancel)
            .field("reports", &reports)
            .field("tune_until", &self.tune_until)
            .finish()
    }
}

impl From<&Cancel> for Progress {
    fn from(cancel: &Cancel) -> Self {
        Progress { cancel: Some(cancel.clone()), ..Progress::none() }
    }
}

impl Progress {
    /// No one watches, nothing stops.
    pub const fn none() -> Self {
        Progress { cancel: None, report: None, tune_until: None }
    }

    /// The same, which tells `report` of every step; it is called by the thread that works, and should be quick.
    pub fn reporting(self, report: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        Progress { report: Some(Arc::new(report)), ..self }
    }

    /// The same, which stops when this time from now has passed, too.
    pub fn with_deadline(self, after: Duration) -> Self {
        let cancel = self.cancel.clone().unwrap_or_default().with_deadline(after);
        Progress { cancel: Some(cancel), ..self }
    }

    /// The same, in which no variant of a step is measured any more when this time from now has passed. Unlike a deadline, that fails
    /// no call: what is left unmeasured is done as it is without tuning.
    pub fn with_tuning_limit(self, after: Duration) -> Self {
        // A time beyond what the clock can say never comes.
        Progress { tune_until: Instant::now().checked_add(after), ..self }
    }

    /// Whether there is time to measure variants of steps.
    pub fn has_time_to_tune(&self) -> bool {
        self.tune_until.is_none_or(|until| Instant::now() < until)
    }

    /// The same without the reporter, for the steps of a part of the work: they can be stopped, and no one hears of them.
    pub fn silent(&self) -> Self {
        Progress { report: None, ..self.clone() }
    }

    /// Asks whether to go on, and reports: of `total` parts of the stage (0: no one knows), `done` are done, and `text` is
    /// next. The text is made only where somebody hears it.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`], or [`ErrorKind::Panic`] where the callback panicked.
    #[inline]
    pub fn step<'t>(
        &self,
        stage: Stage,
        done: usize,
        total: usize,
        text: impl FnOnce() -> &'t str,
    ) -> Result<()> {
        if let Some(cancel) = self.cancel.as_ref().filter(|c| c.is_cancelled()) {
            return Err(stopped(cancel, stage, done, total));
        }
        match &self.report {
            Some(report) => reported(report, Event { stage, done, total, text: text() }),
            None => Ok(()),
        }
    }

    /// Asks whether to go on, and reports nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`].
    #[inline]
    pub fn check(&self, stage: Stage) -> Result<()> {
        match self.cancel.as_ref().filter(|c| c.is_cancelled()) {
            Some(cancel) => Err(stopped(cancel, stage, 0, 0)),
            None => Ok(()),
        }
    }
}

/// Tells the callback. Its panic stops the call like a cancel, with nothing half done.
fn reported(report: &Reporter, event: Event<'_>) -> Result<()> {
    catch(|| report(event)).map_err(|text| {
        let message = format!("the progress callback panicked while {event}: {text}");
        Error::new(ErrorKind::Panic, message).with_hint("correct the callback; the call can be repeated")
    })
}

#[cold]
fn stopped(cancel: &Cancel, stage: Stage, done: usize, total: usize) -> Error {
    let part = if total > 0 { format!(" ({done} of {total} done)") } else { String::new() };
    Error::new(ErrorKind::Cancelled, format!("{} while {}{part}", cancel.reason(), stage.doing()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn clones_stop_together_and_flags_from_outside_stop_too() {
        let flag = Arc::new(AtomicBool::new(false));
        let cancel = Cancel::on_flag(Arc::clone(&flag));
        let progress = Progress::from(&cancel.clone());
        assert!(progress.check(Stage::Run).is_ok() && !cancel.is_cancelled());
        flag.store(true, Ordering::Relaxed);
        assert!(cancel.is_cancelled());
        let e = progress.check(Stage::Write).unwrap_err();
        assert_eq!(
            (e.kind(), e.to_string().as_str()),
            (ErrorKind::Cancelled, "cancelled: stopped while writing")
        );
    }

    #[test]
    fn a_deadline_fires_by_itself_and_the_earlier_one_counts() {
        let far = Cancel::new().with_deadline(Duration::MAX);
        assert!(!far.is_cancelled());
        let near = far.with_deadline(Duration::ZERO).with_deadline(Duration::from_secs(1000));
        let e = Progress::from(&near).step(Stage::Run, 2, 9, || "").unwrap_err();
        assert_eq!(e.to_string(), "cancelled: the deadline of 0ns passed while running (2 of 9 done)");
        near.cancel();
        assert!(near.reason() == "stopped");
    }

    #[test]
    fn a_limit_for_tuning_stops_nothing_else() {
        assert!(Progress::none().has_time_to_tune());
        assert!(Progress::none().with_tuning_limit(Duration::MAX).has_time_to_tune());
        let over = Progress::none().with_tuning_limit(Duration::ZERO).silent();
        assert!(!over.has_time_to_tune() && over.check(Stage::Tune).is_ok());
    }

    #[test]
    fn a_callback_that_panics_is_an_error_of_the_call() {
        let progress = Progress::none().reporting(|event| assert!(event.done < 2, "no more than two"));
        assert!(progress.step(Stage::Run, 1, 9, || "Conv").is_ok());
        let e = progress.step(Stage::Run, 2, 9, || "Conv").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Panic);
        assert!(e.message().contains("while running 2/9 Conv: no more than two"), "{e}");
    }

    #[test]
    fn events_reach_the_reporter_and_text_is_made_for_it_alone() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&heard);
        let progress = Progress::none().reporting(move |e| to.lock().unwrap().push(e.to_string()));
        progress.step(Stage::Import, 1, 2, || "Conv").unwrap();
        progress.step(Stage::Read, 0, 0, || "").unwrap();
        assert_eq!(*heard.lock().unwrap(), ["importing 1/2 Conv", "reading"]);
        Progress::none().step(Stage::Run, 0, 1, || unreachable!("no one listens")).unwrap();
    }
}
