//! What calls report later: a page tells the errors of a call when its event loop turns, not when the call returns.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The errors of a call's scopes, the innermost scope first.
type Scopes = Pin<Box<dyn Future<Output = Vec<wgpu::Error>> + Send>>;

/// The calls that have not reported yet, the oldest first.
#[derive(Default)]
pub(crate) struct Late {
    calls: Vec<(String, Scopes)>,
}

impl Late {
    /// A call that did `what`, and what its scopes will say.
    pub(crate) fn push<S>(&mut self, what: String, (first, second, third): (S, S, S))
    where
        S: Future<Output = Option<wgpu::Error>> + Send + 'static,
    {
        let all = async move { [first.await, second.await, third.await].into_iter().flatten().collect() };
        self.calls.push((what, Box::pin(all)));
    }

    /// The errors that were reported by now, each with what was done; and whether nothing more is to come.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> (Vec<(String, wgpu::Error)>, Poll<()>) {
        let mut found = Vec::new();
        self.calls.retain_mut(|(what, scopes)| match scopes.as_mut().poll(context) {
            Poll::Ready(errors) => {
                found.extend(errors.into_iter().map(|error| (what.clone(), error)));
                false
            }
            Poll::Pending => true,
        });
        (found, if self.calls.is_empty() { Poll::Ready(()) } else { Poll::Pending })
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn error(text: &str) -> wgpu::Error {
        let source = Box::<dyn std::error::Error + Send + Sync>::from("test");
        wgpu::Error::Validation { source, description: text.to_string() }
    }

    #[test]
    fn calls_report_in_order_and_once() {
        let mut late = Late::default();
        let mut context = Context::from_waker(Waker::noop());
        assert!(late.poll(&mut context).1.is_ready());
        let mut turns = 0;
        let mut scope = |after: usize, say: Option<&'static str>| {
            let mut left = after;
            turns += 1;
            std::future::poll_fn(move |_| {
                if left > 0 {
                    left -= 1;
                    return Poll::Pending;
                }
                Poll::Ready(say.map(error))
            })
        };
        late.push("one".into(), (scope(0, None), scope(1, Some("a")), scope(0, Some("b"))));
        late.push("two".into(), (scope(0, None), scope(0, None), scope(0, Some("c"))));
        let (first, polled) = late.poll(&mut context);
        assert!(polled.is_pending() && first.len() == 1 && first[0].0 == "two");
        let (then, polled) = late.poll(&mut context);
        let texts: Vec<String> = then.iter().map(|(what, e)| format!("{what} {e}")).collect();
        assert!(polled.is_ready() && texts.len() == 2, "{texts:?}");
        assert!(texts[0].starts_with("one") && texts[0].contains('a') && texts[1].contains('b'));
        assert!(late.poll(&mut context).0.is_empty() && turns == 6);
    }
}
