//! Commands of which one attempt is not enough: what they wait for, and how they go on.

use super::{Closed, Connection};
use crate::{
    admin::log::log,
    clients::client::flag,
    exec::{answer::Outcome, turn::Turn},
    net::shared::Shared,
    script::stack::{OnStack, Pause},
    server::mailbox::Wake,
    session::ahead::Ids,
};
use holdfast_store::Cold;
use std::{future::poll_fn, pin::pin, sync::atomic::Ordering::Relaxed, task::Poll, time::Duration};
use tokio::{sync::OwnedSemaphorePermit, time};

/// How long a script waits for a stack.
const STACK_RETRY: Duration = Duration::from_millis(100);

impl Connection {
    /// Attempts the command at the head of the input until it is done, and waits between attempts.
    pub(super) async fn see_through(&mut self, turn: &Turn<'_>, mut outcome: Outcome) -> Result<(), Closed> {
        let (shared, worker) = (self.shared.clone(), turn.worker);
        let mut wake = Wake::First;
        let mut on_stack = false;
        self.handle.in_progress.set(true);
        loop {
            if !matches!(outcome, Outcome::Busy | Outcome::Queue | Outcome::Fetch(_)) {
                // A command that waits for something other than room gives up its place in the queue of writers.
                self.session.ticket = None;
            }
            if outcome.may_take_long() {
                // Many connections may wait at once.
                self.session.ahead.clear();
            }
            match outcome {
                Outcome::Done => break,
                Outcome::Close => {
                    self.handle.client.set_flag(flag::CLOSING, true);
                    self.closing = true;
                    break;
                }
                Outcome::OnStack => on_stack = true,
                Outcome::Wait(until) => wake = self.wait(until).await?,
                Outcome::Partial => self.let_others_run().await?,
                Outcome::Postpone(until) => {
                    worker.stats().blocked.fetch_add(1, Relaxed);
                    // Only the end of CLIENT PAUSE notifies; an attempt that comes too early is put off again.
                    let over = self.drive(time::timeout_at(until, shared.unpaused.notified())).await;
                    worker.stats().blocked.fetch_sub(1, Relaxed);
                    let _ = over?;
                }
                Outcome::WaiterFirst => {
                    // The turn may have ended before this began to listen, so that it does not listen for long.
                    const LONGEST: Duration = Duration::from_millis(1);
                    let turns = worker.server.turns.notified();
                    let _ = self.drive(time::timeout(LONGEST, turns)).await?;
                }
                Outcome::LockBusy => {
                    // The lock may have been released before this began to listen, so that it does not listen for long.
                    const LONGEST: Duration = Duration::from_millis(5);
                    let released = worker.server.released.notified();
                    let _ = self.drive(time::timeout(LONGEST, released)).await?;
                }
                Outcome::Busy | Outcome::Queue => {
                    let was_refused = matches!(outcome, Outcome::Busy);
                    let may_try = worker.server.writers.wait(&mut self.session.ticket, was_refused);
                    worker.stats().blocked.fetch_add(1, Relaxed);
                    self.may_freeze = true;
                    let admitted = self.drive(may_try).await;
                    self.may_freeze = false;
                    worker.stats().blocked.fetch_sub(1, Relaxed);
                    admitted?;
                }
                Outcome::WaitFor(work) => {
                    worker.stats().blocked.fetch_add(1, Relaxed);
                    let done = self.drive(work.begin()).await;
                    worker.stats().blocked.fetch_sub(1, Relaxed);
                    self.session.progress = done?;
                }
                Outcome::SendSnapshot(request) => {
                    // On the heap: each connection would have the room for it.
                    Box::pin(self.send_snapshot(request)).await?;
                    self.closing = true;
                    break;
                }
                Outcome::Fetch(mut cold) => {
                    self.session.fetched.extend(self.session.ahead.take(&mut cold));
                    if !cold.is_empty() {
                        self.fetch(turn, cold).await?;
                    }
                }
            }
            let script_turn = if on_stack { self.script_turn().await? } else { None };
            turn.resume();
            outcome = if script_turn.is_some() {
                run_on_stack(&shared, || self.attempt_again(turn, wake)).await
            } else {
                self.attempt_again(turn, wake)
            };
            self.settle(turn, &outcome)?;
        }
        self.handle.end_command();
        // It was not idle meanwhile.
        self.handle.client.touch(turn.now());
        // A command that was refused in the end leaves what was fetched for it, and how far it had come.
        self.session.fetched.clear();
        self.session.progress = None;
        self.session.spent_ns = 0;
        Ok(())
    }

    /// Reads what the command at the head of the input wants, and with it what those behind it will want.
    async fn fetch(&mut self, turn: &Turn<'_>, cold: Vec<Cold>) -> Result<(), Closed> {
        let own = Ids::of(&cold);
        let mut wanted = cold;
        if let Some(mut upcoming) = self.look_ahead(turn) {
            self.session.ahead.keep_only(&mut upcoming);
            wanted.extend(upcoming.into_iter().filter(|cold| !own.has(cold.id())));
        }
        let fetching = self.shared.worker.fetcher.fetch(wanted);
        let fetched = self.drive(fetching).await?;
        let (fetched, ahead): (Vec<_>, Vec<_>) =
            fetched.into_iter().partition(|fetched| own.has(fetched.id()));
        self.session.ahead.add(ahead);
        self.session.fetched.extend(fetched);
        Ok(())
    }

    /// Waits until the worker's interpreter is this connection's, or a script is busy: `None`, for then commands are refused.
    async fn script_turn(&mut self) -> Result<Option<OwnedSemaphorePermit>, Closed> {
        const LOOK: Duration = Duration::from_millis(5);
        let worker = self.shared.worker.clone();
        if let Ok(turn) = worker.script_turn.clone().try_acquire_owned() {
            return Ok(Some(turn));
        }
        self.session.ahead.clear();
        let turn = async {
            let mut turn = pin!(worker.script_turn.clone().acquire_owned());
            loop {
                match time::timeout(LOOK, turn.as_mut()).await {
                    Ok(turn) => return Some(turn.expect("nobody closes it")),
                    Err(_) if worker.server.busy.is_on() => return None,
                    Err(_) => {}
                }
            }
        };
        worker.scripts_waiting.update(|waiting| waiting + 1);
        let turn = self.drive(turn).await;
        worker.scripts_waiting.update(|waiting| waiting - 1);
        turn
    }

    /// Waits until a key is written, CLIENT UNBLOCK says so, or it is time.
    async fn wait(&mut self, until: Option<time::Instant>) -> Result<Wake, Closed> {
        let handle = self.handle.clone();
        let shared = self.shared.clone();
        let worker = &shared.worker;
        let waiting = self.session.waiting.as_mut().expect("it waits for something");
        if self.waits_until.is_some() {
            // It has waited for a part of its time already.
            waiting.until = self.waits_until.take();
        }
        let until = waiting.until.or(until);
        let signal = waiting.signal();
        handle.client.set_waits_for(waiting.keys().map(|(db, key)| (db, key.to_vec())).collect());
        let mut alarm = pin!(async {
            match until {
                Some(until) => time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        });
        handle.has_waited.set(true);
        worker.stats().blocked.fetch_add(1, Relaxed);
        handle.client.set_flag(flag::BLOCKED, true);
        self.publish();
        self.may_freeze = true;
        let woken = self.drive(poll_fn(|cx| {
            if let Some(why) = handle.wake.take() {
                return Poll::Ready(why);
            }
            if signal.poll(cx).is_ready() {
                return Poll::Ready(Wake::Signal);
            }
            alarm.as_mut().poll(cx).map(|()| Wake::Timeout)
        }));
        let woken = woken.await;
        self.may_freeze = false;
        handle.client.end_block(worker.stats());
        woken
    }
}

/// Runs a script on a stack of its own. The worker serves others between its parts, and while it waits; its own connection
/// does nothing else, as in Redis.
async fn run_on_stack(shared: &Shared, run: impl FnOnce() -> Outcome) -> Outcome {
    let stack = match shared.worker.take_stack() {
        Ok(stack) => stack,
        Err(e) => {
            log!(Warning, "no memory for the stack of a script: {e}");
            return Outcome::postpone(STACK_RETRY);
        }
    };
    let mut running = OnStack::new(stack, run);
    let mut fetched = Vec::new();
    let outcome = loop {
        let paused = match running.resume(std::mem::take(&mut fetched)) {
            Ok(outcome) => break outcome,
            Err(paused) => paused,
        };
        // The worker may not come to rest before the script's end.
        shared.worker.kick();
        match paused {
            Pause::Turn => shared.others_run().await,
            Pause::LockBusy => {
                const LONGEST: Duration = Duration::from_millis(1);
                let _ = time::timeout(LONGEST, shared.worker.server.released.notified()).await;
            }
            Pause::Fetch(cold) => fetched = shared.worker.fetcher.fetch(cold).await,
        }
    };
    shared.worker.give_stack(running.into_stack());
    outcome
}
