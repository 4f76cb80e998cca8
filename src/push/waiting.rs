//! What waits until the log is agreed on, or applied, up to where it belongs.

use crate::commit::durability::Lsn;
use std::collections::VecDeque;

/// Bytes that wait in a queue at most, unless one item alone has more.
const BYTES_MAX: usize = 16 << 20;

/// What waits.
pub trait Waits {
    /// For everything below.
    fn lsn(&self) -> Lsn;

    /// Bytes that it takes, about.
    fn size(&self) -> usize;
}

/// Items that wait, in their order.
pub struct Queue<T> {
    items: VecDeque<T>,
    bytes: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { items: VecDeque::new(), bytes: 0 }
    }
}

impl<T: Waits> Queue<T> {
    /// Adds one, if there is room: whether there is.
    pub fn push(&mut self, item: T) -> bool {
        let has_room = self.bytes == 0 || self.bytes + item.size() <= BYTES_MAX;
        if has_room {
            self.bytes += item.size();
            self.items.push_back(item);
        }
        has_room
    }

    /// Takes the first one, if it waits for no more than what lies below an LSN.
    pub fn pop(&mut self, until: Lsn) -> Option<T> {
        self.items.front().filter(|item| item.lsn() <= until)?;
        let item = self.items.pop_front()?;
        self.bytes -= item.size();
        Some(item)
    }

    /// Takes those that wait for no more, of so many bytes, and the one that goes beyond.
    pub fn take(&mut self, until: Lsn, bytes: usize) -> Vec<T> {
        let (mut taken, mut size) = (Vec::new(), 0);
        while size < bytes
            && let Some(item) = self.pop(until)
        {
            size += item.size();
            taken.push(item);
        }
        taken
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Waits for (Lsn, usize) {
        fn lsn(&self) -> Lsn {
            self.0
        }

        fn size(&self) -> usize {
            self.1
        }
    }

    #[test]
    fn items_wait_in_their_order_and_take_so_many_bytes() {
        let mut queue = Queue::default();
        assert!([5, 3, 9].into_iter().all(|lsn| queue.push((lsn, 10))));
        assert_eq!(queue.pop(4), None, "the first one waits, and the others behind it");
        assert_eq!(queue.take(8, usize::MAX), [(5, 10), (3, 10)]);
        assert_eq!(queue.take(9, 1), [(9, 10)]);
        assert!(queue.is_empty() && queue.bytes == 0);
        assert!(queue.push((1, 2 * BYTES_MAX)));
        assert!(!queue.push((2, 1)), "there is no room for another one");
        assert_eq!(queue.take(9, usize::MAX).len(), 1);
        let taken = (0..100).filter(|lsn| queue.push((*lsn, BYTES_MAX / 10))).count();
        assert_eq!((taken, queue.take(100, usize::MAX).len(), queue.bytes), (10, 10, 0));
    }
}
