//! Replies on their way out, in two buffers: one that is being sent, or waits at the gate, and one that collects what
//! is executed meanwhile. So a client that keeps sending cannot hold back its own earlier replies: their gate does not
//! move any more.

use crate::{
    commit::gate::{Gate, LogFailed, Lsn},
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
    gate: Lsn,
    sealed: Vec<u8>,
    sent: usize,
    sealed_gate: Lsn,
    /// Whether a waker is at the gate for `sealed`.
    at_gate: bool,
}

impl Output {
    /// The replies in `open` depend on everything below `lsn`.
    pub fn depends_on(&mut self, lsn: Lsn) {
        self.gate = self.gate.max(lsn);
    }

    /// Bytes not sent.
    pub fn pending(&self) -> usize {
        self.open.len() + self.sealed.len() - self.sent
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.open.capacity() + self.sealed.capacity()
    }

    /// Sends as much as the gate and the socket allow; ready when all is sent. Returns how many bytes were sent in how
    /// many writes through `count`.
    pub fn poll_flush(
        &mut self,
        cx: &mut Context,
        stream: &mut Stream,
        gate: &Gate,
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
                self.sealed_gate = self.gate;
                self.at_gate = false;
            }
            if self.at_gate && !gate.is_decided(self.sealed_gate) {
                return Poll::Pending;
            }
            self.at_gate = true;
            ready!(gate.poll_open(self.sealed_gate, cx)).map_err(SendError::LogFailed)?;
            let n = ready!(stream.poll_write(cx, &self.sealed[self.sent..])).map_err(SendError::Io)?;
            count(n);
            self.sent += n;
        }
    }

    /// Takes the buffers of an output that has nothing pending.
    pub fn take_buffers(&mut self) -> [Vec<u8>; 2] {
        debug_assert_eq!(self.pending(), 0);
        [std::mem::take(&mut self.open), std::mem::take(&mut self.sealed)]
    }
}
