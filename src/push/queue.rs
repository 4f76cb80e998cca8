//! What goes to clients without their asking: messages, invalidations, what MONITOR shows.
//!
//! Each worker has a queue. Who has something for its clients puts a message there, once for all of them, and the worker
//! hands the text to each; many messages are delivered at one waking. Whoever pushes never waits for a client. All messages
//! of a sender to a client take the same way, so their order is kept, and a worker empties its queue before it goes on
//! after a command that has pushed something.

use crate::{clients::client::Client, commit::durability::Lsn};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::*},
};
use tokio::sync::Notify;

/// While more than this waits in a queue, commands that would add to it wait, in bytes.
const QUEUE_MAX: usize = 64 << 20;
/// What a message takes beside its text, about, in bytes.
const MESSAGE_BYTES: usize = 64;

/// Something for some clients of a worker.
pub struct PushMessage {
    /// What they get.
    pub payload: Payload,
    /// Who gets it, by number. Who is not there any more gets nothing.
    pub to: Arc<Vec<u64>>,
    /// It may be sent when everything below is durable.
    pub wait_lsn: Lsn,
}

/// What a message says.
#[derive(Clone)]
pub enum Payload {
    /// An out-of-band message without its first byte: the type, which alone depends on the client's protocol.
    Push(Arc<[u8]>),
    /// The same, for clients of RESP3 only.
    Resp3(Arc<[u8]>),
    /// This, as it is.
    Raw(Arc<[u8]>),
    /// Copies of keys are not valid any more.
    Invalidate {
        /// The keys, as an array; `None`: all keys.
        keys: Option<Arc<[u8]>>,
        /// Whether they are those of another client.
        redirected: bool,
    },
}

impl Payload {
    /// A message of so many bulk strings.
    pub fn push(parts: &[&[u8]]) -> Payload {
        let mut text = Vec::with_capacity(16 + parts.iter().map(|part| part.len() + 16).sum::<usize>());
        text.extend_from_slice(format!("{}\r\n", parts.len()).as_bytes());
        for part in parts {
            text.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            text.extend_from_slice(part);
            text.extend_from_slice(b"\r\n");
        }
        Payload::Push(text.into())
    }

    fn len(&self) -> usize {
        match self {
            Payload::Push(text) | Payload::Resp3(text) | Payload::Raw(text) => text.len(),
            Payload::Invalidate { keys, .. } => keys.as_ref().map_or(0, |keys| keys.len()),
        }
    }

    /// Appends it as a client gets it.
    pub fn write(&self, client: &Client, out: &mut Vec<u8>) {
        let resp3 = client.speaks_resp3();
        match self {
            Payload::Push(text) => {
                out.push(if resp3 { b'>' } else { b'*' });
                out.extend_from_slice(text);
            }
            Payload::Raw(text) => out.extend_from_slice(text),
            Payload::Resp3(text) if resp3 => {
                out.push(b'>');
                out.extend_from_slice(text);
            }
            Payload::Invalidate { keys, redirected } if resp3 || *redirected && client.is_subscribed() => {
                // Over RESP2 it is a message to those who are subscribed to this channel.
                out.extend_from_slice(match resp3 {
                    true => b">2\r\n$10\r\ninvalidate\r\n",
                    false => b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n",
                });
                match keys {
                    Some(keys) => out.extend_from_slice(keys),
                    None => out.extend_from_slice(if resp3 { b"_\r\n" } else { b"$-1\r\n" }),
                }
            }
            Payload::Resp3(_) | Payload::Invalidate { .. } => {}
        }
    }
}

/// The queues of all workers.
pub struct PushQueues {
    queues: Vec<Queue>,
    /// Too much waits somewhere.
    is_full: AtomicBool,
}

#[derive(Default)]
struct Queue {
    messages: Mutex<Vec<PushMessage>>,
    bytes: AtomicUsize,
    /// Whether there are messages.
    waiting: AtomicBool,
    wake: Notify,
}

impl PushQueues {
    /// For so many workers.
    pub fn new(workers: usize) -> PushQueues {
        PushQueues {
            queues: (0..workers).map(|_| Queue::default()).collect(),
            is_full: AtomicBool::new(false),
        }
    }

    /// Whether those who push should wait a little.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Puts a message into a worker's queue.
    pub fn send(&self, worker: usize, message: PushMessage) {
        let queue = &self.queues[worker];
        let len = message.payload.len() + MESSAGE_BYTES;
        let mut messages = queue.messages.lock().expect("no holder panics");
        messages.push(message);
        if queue.bytes.fetch_add(len, Relaxed) + len > QUEUE_MAX {
            self.is_full.store(true, Relaxed);
        }
        if messages.len() == 1 {
            queue.waiting.store(true, Release);
            queue.wake.notify_one();
        }
    }

    /// Whether a worker has messages.
    #[inline]
    pub fn has_messages(&self, worker: usize) -> bool {
        self.queues[worker].waiting.load(Acquire)
    }

    /// Waits until a worker has messages.
    pub async fn wait(&self, worker: usize) {
        self.queues[worker].wake.notified().await;
    }

    /// Empties a worker's queue into `messages`, which is empty.
    pub fn take(&self, worker: usize, messages: &mut Vec<PushMessage>) {
        let queue = &self.queues[worker];
        let mut waiting = queue.messages.lock().expect("no holder panics");
        std::mem::swap(&mut *waiting, messages);
        queue.bytes.store(0, Relaxed);
        queue.waiting.store(false, Relaxed);
        // If another queue is too full still, the next message to it says so again.
        self.is_full.store(false, Relaxed);
    }
}
