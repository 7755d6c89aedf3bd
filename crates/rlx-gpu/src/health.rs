//! Whether a device is still there, and the errors that no call could give: those that reached none, and those that are reported
//! after it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};

use rlx_driver::Device;
use rlx_ir::{Error, ErrorKind, Result};

use crate::signal::locked;

/// What a call will have to say.
type Report = Pin<Box<dyn Future<Output = Option<Error>> + Send>>;

/// What is known of a device. The driver's callbacks have it, too.
pub struct Health {
    device: Device,
    lost: OnceLock<String>,
    stray: Mutex<Option<Error>>,
    /// The calls that have not reported yet, the oldest first.
    late: Mutex<Vec<Report>>,
}

impl Health {
    /// A device that was just opened.
    pub fn new(device: Device) -> Arc<Self> {
        let (lost, stray, late) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Arc::new(Health { device, lost, stray, late })
    }

    /// Its name.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Says that the driver gave the device up, and why. The first reason stays: it is the cause.
    pub fn lose(&self, reason: String) {
        let _ = self.lost.set(reason);
    }

    /// Why the driver gave the device up, if it did.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// An error that reached no call. The first one is reported, once.
    pub fn stray(&self, error: Error) {
        locked(&self.stray).get_or_insert(error);
    }

    /// What a call will have to say, where nobody can wait for it.
    pub fn later(&self, report: impl Future<Output = Option<Error>> + Send + 'static) {
        locked(&self.late).push(Box::pin(report));
    }

    /// Whether all calls have reported, and whether one of them did so just now that it was wrong: its error is then a stray one.
    pub fn poll(&self, context: &mut Context<'_>) -> (bool, Poll<()>) {
        let (mut late, mut wrong) = (locked(&self.late), false);
        late.retain_mut(|report| match report.as_mut().poll(context) {
            Poll::Ready(found) => {
                wrong |= found.is_some();
                found.into_iter().for_each(|error| self.stray(error));
                false
            }
            Poll::Pending => true,
        });
        (wrong, if late.is_empty() { Poll::Ready(()) } else { Poll::Pending })
    }

    /// Gives up turns until `done`, and until all calls have reported, or the device is lost. Whether one of them was wrong: see [`Health::poll`].
    pub fn take_turns(&self, turn: impl Fn(), done: &dyn Fn() -> bool) -> bool {
        let (mut context, mut wrong) = (Context::from_waker(Waker::noop()), false);
        loop {
            let (just_now, calls) = self.poll(&mut context);
            wrong |= just_now;
            if self.lost().is_some() || (calls.is_ready() && done()) {
                return wrong;
            }
            turn();
        }
    }

    /// Whether all is well.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] with the driver's reason when the device was lost, or an error that reached no call.
    pub fn check(&self) -> Result<()> {
        if let Some(reason) = self.lost() {
            let message = format!("the device was lost ({reason})");
            return Err(Error::new(ErrorKind::Device, message)
                .with_device(self.device.name())
                .with_hint("compile again: the device is then opened again"));
        }
        locked(&self.stray).take().map_or(Ok(()), Err)
    }
}

/// The error for memory of `device` that cannot be had; `what` says for what.
pub fn out_of_memory(device: Device, what: &str) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("{what}: the device has no memory left"))
        .with_device(device.name())
        .with_hint("use smaller dimensions or batch, or drop executables that are not needed")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Reports after so many polls.
    fn report(after: usize, say: Option<&'static str>) -> impl Future<Output = Option<Error>> + Send {
        let mut left = after;
        std::future::poll_fn(move |_| {
            if left > 0 {
                left -= 1;
                return Poll::Pending;
            }
            Poll::Ready(say.map(|text| Error::new(ErrorKind::Device, text)))
        })
    }

    #[test]
    fn calls_report_later_and_the_first_error_is_told_once() {
        let health = Health::new(Device::Cuda);
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(health.poll(&mut context), (false, Poll::Ready(())));
        health.later(report(1, Some("a")));
        health.later(report(0, None));
        health.later(report(1, Some("b")));
        health.later(report(2, Some("c")));
        assert_eq!(health.poll(&mut context), (false, Poll::Pending));
        assert!(health.check().is_ok());
        assert_eq!(health.poll(&mut context), (true, Poll::Pending));
        assert_eq!(health.check().unwrap_err().message(), "a");
        assert!(health.check().is_ok(), "it was told");
        assert_eq!(health.poll(&mut context), (true, Poll::Ready(())));
        assert_eq!(health.check().unwrap_err().message(), "c");
        assert_eq!(health.poll(&mut context), (false, Poll::Ready(())));
    }

    #[test]
    fn turns_are_given_up_until_all_is_done_and_reported_or_the_device_is_lost() {
        let health = Health::new(Device::Cuda);
        let turns = Cell::new(0);
        let turn = || turns.set(turns.get() + 1);
        assert!(!health.take_turns(turn, &|| true));
        assert_eq!(turns.take(), 0, "there was nothing to wait for");
        assert!(!health.take_turns(turn, &|| turns.get() == 3));
        assert_eq!(turns.take(), 3);
        health.later(report(2, Some("a")));
        health.later(report(5, None));
        assert!(health.take_turns(turn, &|| turns.get() >= 3));
        assert_eq!((turns.take(), health.check().unwrap_err().message()), (5, "a"));
        let lost = || {
            turn();
            health.lose("unplugged".into());
        };
        assert!(!health.take_turns(lost, &|| false));
        assert_eq!(turns.take(), 1);
    }

    #[test]
    fn a_device_that_was_lost_stays_lost_for_the_first_reason() {
        let health = Health::new(Device::Cuda);
        health.stray(Error::new(ErrorKind::Device, "a stray error"));
        health.lose("unplugged".into());
        health.lose("and burnt".into());
        for _ in 0..2 {
            let error = health.check().unwrap_err();
            assert_eq!((error.kind(), error.device()), (ErrorKind::Device, Some(Device::Cuda.name())));
            assert!(error.message().contains("(unplugged)"), "{error}");
        }
    }
}
