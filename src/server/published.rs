//! Messages of PUBLISH on their way from the server that leads a replica set to those that follow.
//!
//! A message never overtakes what its sender has written before: at the leader it waits until that is agreed on, and where it is shown until that
//! is applied. What there is no room for is lost, as messages may be.

use holdfast_store::Lsn;
use std::collections::VecDeque;

/// Bytes of messages that wait at most, unless one alone has more.
const BYTES_MAX: usize = 16 << 20;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// What its sender has written before lies below.
    pub lsn: Lsn,
    /// Whether it is of SPUBLISH.
    pub to_shard: bool,
    /// To whose subscribers it goes.
    pub channel: Vec<u8>,
    /// What they are told.
    pub message: Vec<u8>,
}

impl Published {
    /// Bytes that it takes, about.
    fn size(&self) -> usize {
        size_of::<Published>() + self.channel.len() + self.message.len()
    }
}

/// Messages that wait, in their order.
#[derive(Default)]
pub struct Queue {
    messages: VecDeque<Published>,
    bytes: usize,
}

impl Queue {
    /// Adds one, if there is room.
    pub fn push(&mut self, message: Published) {
        if self.bytes == 0 || self.bytes + message.size() <= BYTES_MAX {
            self.bytes += message.size();
            self.messages.push_back(message);
        }
    }

    /// Takes the first one, if it waits for no more than what lies below an LSN.
    pub fn pop(&mut self, until: Lsn) -> Option<Published> {
        self.messages.front().filter(|message| message.lsn <= until)?;
        let message = self.messages.pop_front()?;
        self.bytes -= message.size();
        Some(message)
    }

    /// Takes those that wait for no more, of so many bytes, and the one that goes beyond.
    pub fn take(&mut self, until: Lsn, bytes: usize) -> Vec<Published> {
        let (mut taken, mut size) = (Vec::new(), 0);
        while size < bytes
            && let Some(message) = self.pop(until)
        {
            size += message.size();
            taken.push(message);
        }
        taken
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(lsn: Lsn, len: usize) -> Published {
        Published { lsn, to_shard: false, channel: b"a".to_vec(), message: vec![0; len] }
    }

    #[test]
    fn messages_wait_in_their_order_and_take_so_many_bytes() {
        let mut queue = Queue::default();
        [5, 3, 9].into_iter().for_each(|lsn| queue.push(message(lsn, 10)));
        assert_eq!(queue.pop(4), None, "the first one waits, and the others behind it");
        let lsns = |taken: Vec<Published>| -> Vec<Lsn> { taken.iter().map(|message| message.lsn).collect() };
        assert_eq!(lsns(queue.take(8, usize::MAX)), [5, 3]);
        assert_eq!(lsns(queue.take(9, 1)), [9]);
        assert!(queue.is_empty() && queue.bytes == 0);
        queue.push(message(1, 2 * BYTES_MAX));
        queue.push(message(2, 1));
        assert_eq!(lsns(queue.take(9, usize::MAX)), [1], "there was no room for another one");
        (0..100).for_each(|lsn| queue.push(message(lsn, BYTES_MAX / 10)));
        assert_eq!(queue.take(100, usize::MAX).len(), 9);
        assert_eq!(queue.bytes, 0);
    }
}
