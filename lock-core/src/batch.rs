//! Questions of many callers that travel as one request.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::{Effect, ErrorKind, LockError};

/// Gathers the questions that many tasks ask at about the same time, and sends them as one request.
///
/// Nothing waits for a timer: what is asked while a request is on its way goes with the next one, and what is asked by tasks that were woken together
/// goes together. Keepers of one manager wake together to renew, so ten thousand renewals take a few hundred requests.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use futures_util::future::join_all;
/// use lock_core::Batch;
///
/// let squares = Batch::<u64, u64>::new(100);
/// let answers = join_all((1..=3).map(|n| squares.ask(n, |all: Vec<u64>| async move {
///     assert_eq!(all, [1, 2, 3], "one request for all");
///     Ok(all.into_iter().map(|n| n * n).collect())
/// })));
/// let squared: Result<Vec<u64>, _> = answers.await.into_iter().collect();
/// assert_eq!(squared.unwrap(), [1, 4, 9]);
/// # }
/// ```
pub struct Batch<Q, A> {
    queue: Arc<Mutex<Queue<Q, A>>>,
    most: usize,
}

struct Queue<Q, A> {
    waiting: Vec<Asked<Q, A>>,
    /// A task sends what waits here.
    is_sending: bool,
}

struct Asked<Q, A> {
    question: Q,
    reply: oneshot::Sender<Result<A, LockError>>,
}

impl<Q: Send + 'static, A: Send + 'static> Batch<Q, A> {
    /// Sends at most so many questions as one request.
    pub fn new(most: usize) -> Self {
        Self { queue: Arc::new(Mutex::new(Queue { waiting: Vec::new(), is_sending: false })), most: most.max(1) }
    }

    /// Asks, together with others, and waits for one's own answer. `send` makes the request: it answers each question in its place. Whoever comes
    /// first lends its `send` to those that come while it is at work, so every caller must bring the same one.
    ///
    /// `send` must be bounded in time; while it is on its way, later questions wait. It runs in a task of its own, on the caller's runtime.
    ///
    /// # Errors
    /// What `send` says, to all whose questions it carried. `Internal` with an unknown effect if it panicked or left out an answer.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer only; the request may still take effect. A question that waits for its turn is not sent any more.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn ask<S, F>(&self, question: Q, send: S) -> Result<A, LockError>
    where
        S: Fn(Vec<Q>) -> F + Send + 'static,
        F: Future<Output = Result<Vec<A>, LockError>> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let is_first = {
            let mut queue = locked(&self.queue);
            queue.waiting.push(Asked { question, reply });
            !mem::replace(&mut queue.is_sending, true)
        };
        if is_first {
            let sending = Sending { queue: self.queue.clone(), is_over: false };
            tokio::spawn(send_all(sending, self.most, send));
        }
        answer.await.unwrap_or_else(|_| {
            Err(LockError::new(ErrorKind::Internal, "a request for many was not answered").with_effect(Effect::Unknown))
        })
    }
}

/// The one task that sends. However it ends, the next question starts another.
struct Sending<Q, A> {
    queue: Arc<Mutex<Queue<Q, A>>>,
    is_over: bool,
}

impl<Q, A> Drop for Sending<Q, A> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut queue = locked(&self.queue);
            queue.is_sending = false;
            queue.waiting.clear();
        }
    }
}

/// Sends what waits until nothing does.
async fn send_all<Q, A, F>(mut sending: Sending<Q, A>, most: usize, send: impl Fn(Vec<Q>) -> F)
where
    F: Future<Output = Result<Vec<A>, LockError>>,
{
    loop {
        // Whoever was woken together with the first speaks before this goes on.
        tokio::task::yield_now().await;
        let (questions, replies): (Vec<_>, Vec<_>) = {
            let mut queue = locked(&sending.queue);
            queue.waiting.retain(|asked| !asked.reply.is_closed());
            if queue.waiting.is_empty() {
                queue.is_sending = false;
                sending.is_over = true;
                return;
            }
            let count = most.min(queue.waiting.len());
            queue.waiting.drain(..count).map(|asked| (asked.question, asked.reply)).unzip()
        };
        // Who does not wait any more hears nothing, which is no failure.
        match send(questions).await {
            Ok(answers) => replies.into_iter().zip(answers).for_each(|(reply, answer)| drop(reply.send(Ok(answer)))),
            Err(error) => replies.into_iter().for_each(|reply| drop(reply.send(Err(error.clone())))),
        }
    }
}

/// No caller's code runs while this is held, so the queue is whole.
fn locked<Q, A>(queue: &Mutex<Queue<Q, A>>) -> MutexGuard<'_, Queue<Q, A>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<Q, A> fmt::Debug for Batch<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_asked_while_a_request_is_on_its_way_goes_with_the_next() {
        let batch = Arc::new(Batch::<u32, (u32, usize)>::new(100));
        let requests = Arc::new(AtomicUsize::new(0));
        let ask = |number: u32, after: u64| {
            let (batch, requests) = (batch.clone(), requests.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                let send = move |numbers: Vec<u32>| {
                    let request = requests.fetch_add(1, Ordering::Relaxed);
                    async move {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        Ok(numbers.into_iter().map(|number| (number, request)).collect())
                    }
                };
                batch.ask(number, send).await.expect("an answer")
            })
        };
        let answers = join_all([ask(1, 0), ask(2, 10), ask(3, 90), ask(4, 250)]).await;
        let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("no panic")).collect();
        assert_eq!(answers, [(1, 0), (2, 1), (3, 1), (4, 2)]);
    }

    #[tokio::test]
    async fn no_request_carries_more_than_it_may_and_none_is_forgotten() {
        let batch = Batch::<usize, usize>::new(16);
        let send = |some: Vec<usize>| async move {
            assert!(some.len() <= 16);
            Ok(some)
        };
        let answers = join_all((0..1000).map(|number| batch.ask(number, send))).await;
        assert!(answers.into_iter().enumerate().all(|(number, answer)| answer.expect("an answer") == number));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_gone_is_not_asked_for_and_a_panic_is_no_end() {
        let batch = Batch::<u32, u32>::new(1);
        let send = |some: Vec<u32>| async move {
            assert_ne!(some, [2], "nobody waits for it");
            tokio::time::sleep(Duration::from_millis(100)).await;
            if some == [3] { panic!("as some backend may") } else { Ok(some) }
        };
        let brief = async {
            let asked = tokio::time::timeout(Duration::from_millis(50), batch.ask(2, send)).await;
            assert!(asked.is_err());
        };
        let (first, (), third) = tokio::join!(batch.ask(1, send), brief, batch.ask(3, send));
        assert_eq!(first.expect("an answer"), 1);
        assert_eq!(third.expect_err("it panicked").kind(), ErrorKind::Internal);
        assert_eq!(batch.ask(4, send).await.expect("an answer"), 4);
    }
}
