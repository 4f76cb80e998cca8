//! Replies on their way out, in two buffers: one that is being sent, or waits for durability, and one that collects what
//! is executed meanwhile. So a client that keeps sending cannot hold back its own earlier replies: what they wait for does not
//! move any more.

use crate::{
    commit::durability::{DurabilityQueue, LogFailed, Lsn},
    transport::stream::Stream,
};
use std::{
    io,
    task::{Context, Poll, ready},
};

/// Why replies cannot be sent.
#[derive(Debug)]
pub enum SendError {
    /// The connection is broken.
    Io(io::Error),
    /// What they tell of will never be durable.
    LogFailed(LogFailed),
}

/// A connection's output.
#[derive(Default)]
pub struct Output {
    /// What is executed now is answered here.
    pub open: Vec<u8>,
    /// What `open` depends on.
    wait_lsn: Lsn,
    sealed: Vec<u8>,
    /// See [`Output::recent`].
    recent: usize,
    sent: usize,
    sealed_lsn: Lsn,
    /// Whether a waker is in the queue for `sealed_lsn`.
    is_queued: bool,
}

impl Output {
    /// The replies in `open` depend on everything below `lsn`.
    pub fn depends_on(&mut self, lsn: Lsn) {
        self.wait_lsn = self.wait_lsn.max(lsn);
    }

    /// Bytes not sent.
    pub fn pending(&self) -> usize {
        self.open.len() + self.sealed.len() - self.sent
    }

    /// Bytes of the most replies that were lately sent at once; half as many each time that they are fewer.
    pub fn recent(&self) -> usize {
        self.recent
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.open.capacity() + self.sealed.capacity()
    }

    /// Sends as much as is durable and the socket takes; ready when all is sent. Returns how many bytes were sent in how
    /// many writes through `count`.
    pub fn poll_flush(
        &mut self,
        cx: &mut Context,
        stream: &mut Stream,
        durability: &DurabilityQueue,
        mut count: impl FnMut(usize),
    ) -> Poll<Result<(), SendError>> {
        loop {
            if self.sent == self.sealed.len() {
                self.sealed.clear();
                self.sent = 0;
                if self.open.is_empty() {
                    return stream.poll_flush(cx).map_err(SendError::Io);
                }
                std::mem::swap(&mut self.open, &mut self.sealed);
                self.recent = self.sealed.len().max(self.recent / 2);
                self.sealed_lsn = self.wait_lsn;
                self.is_queued = false;
            }
            if self.is_queued && !durability.is_decided(self.sealed_lsn) {
                return Poll::Pending;
            }
            self.is_queued = true;
            ready!(durability.poll_durable(self.sealed_lsn, cx)).map_err(SendError::LogFailed)?;
            let n = ready!(stream.poll_write(cx, &self.sealed[self.sent..])).map_err(SendError::Io)?;
            count(n);
            self.sent += n;
        }
    }

    /// Whether what is to be sent next is not durable.
    pub fn waits_for_log(&self, durability: &DurabilityQueue) -> bool {
        self.sent < self.sealed.len() && self.is_queued && !durability.is_decided(self.sealed_lsn)
    }

    /// All that is not sent; the log is durable.
    pub fn into_pending(mut self) -> Vec<u8> {
        self.sealed.drain(..self.sent);
        self.sealed.append(&mut self.open);
        self.sealed
    }

    /// Takes the buffers of an output that has nothing pending.
    pub fn take_buffers(&mut self) -> [Vec<u8>; 2] {
        debug_assert_eq!(self.pending(), 0);
        [std::mem::take(&mut self.open), std::mem::take(&mut self.sealed)]
    }
}
