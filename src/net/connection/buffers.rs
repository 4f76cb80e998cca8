//! What a connection sends and reads, the buffers for it, and the memory that they take.

use super::{Closed, Connection, Slice, output_pause};
use crate::{
    clients::client::{BUFFER_SIZE, Buffers},
    config::Opt,
    session::Multi,
};
use std::task::{Context, Poll};

/// The input that a client may have waiting that has yet to authenticate, as in Redis.
const INPUT_MAX_UNAUTHENTICATED: i64 = 1 << 20;
/// While a command waits, this much of what its client sends meanwhile is read ahead, in bytes.
const INPUT_AHEAD: usize = 64 << 10;

impl Connection {
    /// Sends, reads, and looks for reasons to end. Ready when there is something new to execute.
    pub(super) fn poll_turn(&mut self, cx: &mut Context) -> Poll<Result<(), Closed>> {
        let polled = self.poll_streams(cx);
        if polled.is_pending() {
            self.slice = Slice::default();
        }
        polled
    }

    fn poll_streams(&mut self, cx: &mut Context) -> Poll<Result<(), Closed>> {
        self.handle.register(cx);
        if self.shared.is_freezing() && (!self.in_command || self.may_freeze) {
            self.interrupted = self.in_command;
            return Poll::Ready(Err(Closed::Frozen));
        }
        if self.handle.killed.get() {
            return Poll::Ready(Err(Closed::Killed));
        }
        if self.handle.overrun.get() {
            return Poll::Ready(Err(Closed::OutputLimit));
        }
        self.take_pushed();
        let (stats, client) = (self.shared.worker.stats(), &self.handle.client);
        let flushed = self.output.poll_flush(cx, &mut self.stream, &self.shared.durability, |n| {
            stats.writes.add(1);
            stats.output_bytes.add(n as u64);
            client.count_output(n);
        });
        match flushed {
            Poll::Ready(Ok(())) if self.closing => return Poll::Ready(Err(Closed::ByServer)),
            Poll::Ready(Ok(())) if self.ended && !self.has_work() => return Poll::Ready(Err(Closed::ByPeer)),
            Poll::Ready(Ok(())) => {
                for buffer in self.output.take_buffers() {
                    self.shared.give_buffer(buffer);
                }
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Closed::Send(error))),
            Poll::Pending => {}
        }
        let pending = self.output.pending();
        self.handle.pending.set(pending);
        self.handle.waits_for_log.set(pending > 0 && self.output.waits_for_log(&self.shared.durability));
        self.handle.client.publish_output(pending);
        self.account();
        if self.is_over_output_limit(pending) {
            return Poll::Ready(Err(Closed::OutputLimit));
        }
        if self.closing || pending >= output_pause(self.is_unauthenticated()) {
            return Poll::Pending;
        }
        if self.stalled && !self.in_command {
            return Poll::Ready(Ok(()));
        }
        if self.ended {
            return Poll::Pending;
        }
        // Who waits for other clients, maybe for ever, must be found out to have gone: that comes behind all that was sent.
        let reads_all = self.handle.has_waited.get();
        if self.in_command && !reads_all && self.input.len() - self.head > self.parser.length() + INPUT_AHEAD
        {
            return Poll::Pending;
        }
        self.poll_read(cx)
    }

    /// Whether what has come is still to be executed, and waits neither for other clients nor for room: that may never end, and who
    /// waits may be gone.
    fn has_work(&self) -> bool {
        if self.in_command { !self.may_freeze } else { self.stalled }
    }

    fn poll_read(&mut self, cx: &mut Context) -> Poll<Result<(), Closed>> {
        self.make_room();
        match self.stream.poll_read(cx, &mut self.input) {
            Poll::Pending => {
                if self.input.is_empty() {
                    self.shared.give_buffer(std::mem::take(&mut self.input));
                    self.handle.client.publish_input(0, 0);
                }
                Poll::Pending
            }
            Poll::Ready(Ok(0)) => {
                self.ended = true;
                // What was sent before is still answered: a peer may close its half and read on.
                let is_over = self.output.pending() == 0 && !self.has_work();
                if is_over { Poll::Ready(Err(Closed::ByPeer)) } else { Poll::Pending }
            }
            Poll::Ready(Ok(n)) => {
                self.shared.worker.stats().reads.add(1);
                self.shared.worker.stats().input_bytes.add(n as u64);
                self.handle.client.count_input(n);
                let mut limit = self.shared.worker.server.config.number(Opt::ClientQueryBufferLimit);
                if self.is_unauthenticated() {
                    limit = limit.min(INPUT_MAX_UNAUTHENTICATED);
                }
                if (self.input.len() - self.head) as i64 > limit {
                    return Poll::Ready(Err(Closed::InputLimit));
                }
                if self.output.open.capacity() == 0 {
                    self.output.open = self.shared.take_reply_buffer(self.output.recent());
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(Closed::Read(error))),
        }
    }

    /// Makes room to read into. A buffer grows with what arrives, at most to twice that, and hardly beyond the argument
    /// that is being read: an announced length alone costs nothing.
    fn make_room(&mut self) {
        if self.head == self.input.len() {
            self.input.clear();
            self.head = 0;
            if self.input.capacity() > BUFFER_SIZE {
                self.input = Vec::new();
            }
        }
        if self.input.capacity() == 0 {
            self.input = self.shared.take_buffer();
        }
        if self.input.len() == self.input.capacity() || (self.head > 0 && self.parser.is_partial()) {
            self.input.drain(..self.head);
            self.head = 0;
        }
        if self.input.len() == self.input.capacity() {
            let missing = self.parser.needed().saturating_sub(self.input.len());
            self.input.reserve_exact(missing.clamp(BUFFER_SIZE, self.input.len().max(BUFFER_SIZE)));
        }
    }

    /// Shows other threads what the connection does.
    pub(super) fn publish(&self) {
        self.session.publish();
        self.publish_buffers();
    }

    fn publish_buffers(&self) {
        self.handle.client.publish_buffers(Buffers {
            input: self.input.len() - self.head,
            input_free: self.input.capacity() - self.input.len(),
            output: self.output.pending(),
            memory: self.memory(),
        });
    }

    /// Bytes of memory held.
    fn memory(&self) -> usize {
        let buffers = self.input.capacity() + self.output.memory() + self.handle.pushed.borrow().capacity();
        let queued = self.session.multi.as_ref().map_or(0, Multi::memory);
        size_of::<Self>() + buffers + self.parser.memory() + queued
    }

    /// Shows others what it holds, when that has grown, and sees to it that all clients stay within their limit.
    fn account(&mut self) {
        /// Growth that is worth adding up what all clients take.
        const STEP: usize = 64 << 10;
        let memory = self.memory();
        if memory > self.accounted + STEP {
            self.accounted = memory;
            self.publish_buffers();
            let server = &self.shared.worker.server;
            if server.clients.is_memory_limited() {
                server.evict_clients();
            }
        } else if memory < self.accounted {
            self.accounted = memory;
            self.publish_buffers();
        }
    }
}
