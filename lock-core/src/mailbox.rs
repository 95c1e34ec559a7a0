//! What a guard asks of its keeper, and that it has gone.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::{LockError, Released};

/// What a guard asks of its keeper.
#[derive(Debug)]
pub(crate) enum Command {
    Renew(oneshot::Sender<Result<(), LockError>>),
    Release(oneshot::Sender<Result<Released, LockError>>),
}

impl Command {
    fn is_waited_for(&self) -> bool {
        match self {
            Self::Renew(reply) => !reply.is_closed(),
            Self::Release(_) => true,
        }
    }
}

/// Each held lock has one, so it is small: a channel would take a kilobyte. It holds no more than there are calls under way.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    mail: Mutex<Mail>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct Mail {
    commands: VecDeque<Command>,
    guard_gone: bool,
    keeper_gone: bool,
}

impl Mailbox {
    /// Puts a command in; `false` when the keeper has ended, so that nobody will answer.
    pub(crate) fn post(&self, command: Command) -> bool {
        let mut mail = self.mail();
        if mail.keeper_gone {
            return false;
        }
        mail.commands.retain(Command::is_waited_for);
        mail.commands.push_back(command);
        drop(mail);
        self.bell.notify_one();
        true
    }

    /// The guard is dropped: the keeper reads what is there, and then that nothing will come.
    pub(crate) fn guard_goes(&self) {
        self.mail().guard_gone = true;
        self.bell.notify_one();
    }

    /// The next command; `None` when the guard has gone. For the keeper alone; dropping it loses nothing.
    pub(crate) async fn next(&self) -> Option<Command> {
        loop {
            {
                let mut mail = self.mail();
                if let Some(command) = mail.commands.pop_front() {
                    return Some(command);
                }
                if mail.guard_gone {
                    return None;
                }
            }
            self.bell.notified().await;
        }
    }

    /// The keeper ends: what nobody has read is answered by whoever calls this, or goes unanswered with it.
    pub(crate) fn close(&self) -> VecDeque<Command> {
        let mut mail = self.mail();
        mail.keeper_gone = true;
        std::mem::take(&mut mail.commands)
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        // The data is whole between any two statements.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn renew() -> (Command, oneshot::Receiver<Result<(), LockError>>) {
        let (reply, answer) = oneshot::channel();
        (Command::Renew(reply), answer)
    }

    #[tokio::test]
    async fn commands_come_in_order_and_before_the_end() {
        let mailbox = Mailbox::default();
        assert!(mailbox.next().now_or_never().is_none(), "nothing is there yet");
        let (first, _waits) = renew();
        let (reply, _answer) = oneshot::channel();
        assert!(mailbox.post(first) && mailbox.post(Command::Release(reply)));
        mailbox.guard_goes();
        assert!(matches!(mailbox.next().await, Some(Command::Renew(_))));
        assert!(matches!(mailbox.next().await, Some(Command::Release(_))));
        assert!(mailbox.next().await.is_none());
    }

    #[tokio::test]
    async fn whoever_gave_up_waiting_takes_no_room() {
        let mailbox = Mailbox::default();
        for _ in 0..100 {
            assert!(mailbox.post(renew().0));
        }
        assert_eq!(mailbox.close().len(), 1);
    }

    #[tokio::test]
    async fn a_keeper_that_ended_takes_nothing_and_leaves_nobody_waiting() {
        let mailbox = Mailbox::default();
        let (command, answer) = renew();
        assert!(mailbox.post(command));
        drop(mailbox.close());
        assert!(answer.await.is_err());
        assert!(!mailbox.post(renew().0));
    }

    #[tokio::test]
    async fn one_that_waits_is_woken() {
        let mailbox = std::sync::Arc::new(Mailbox::default());
        let keeper = tokio::spawn({
            let mailbox = mailbox.clone();
            async move { mailbox.next().await.is_none() }
        });
        tokio::task::yield_now().await;
        mailbox.guard_goes();
        assert!(keeper.await.unwrap());
    }
}
