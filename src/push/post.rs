//! What goes to clients without their asking: messages, invalidations, what MONITOR shows.
//!
//! Each worker has a mailbox. Who has something for its clients puts a letter there, once for all of them, and the worker
//! hands the text to each; many letters are delivered at one waking. Whoever posts never waits for a client. All letters
//! of a sender to a client take the same way, so their order is kept, and a worker empties its mailbox before it goes on
//! after a command that has posted something.

use crate::{clients::client::Client, commit::gate::Lsn};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::*},
};
use tokio::sync::Notify;

/// While more than this waits in a mailbox, commands that would add to it wait, in bytes.
const MAIL_MAX: usize = 64 << 20;
/// What a letter takes beside its text, about, in bytes.
const LETTER_BYTES: usize = 64;

/// Text for some clients of a worker.
pub struct Letter {
    /// What they get.
    pub text: Text,
    /// Who gets it, by number. Who is not there any more gets nothing.
    pub to: Arc<Vec<u64>>,
    /// It may be sent when everything below is durable.
    pub gate: Lsn,
}

/// What a letter says.
#[derive(Clone)]
pub enum Text {
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

impl Text {
    /// A message of so many bulk strings.
    pub fn push(parts: &[&[u8]]) -> Text {
        let mut text = Vec::with_capacity(16 + parts.iter().map(|part| part.len() + 16).sum::<usize>());
        text.extend_from_slice(format!("{}\r\n", parts.len()).as_bytes());
        for part in parts {
            text.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            text.extend_from_slice(part);
            text.extend_from_slice(b"\r\n");
        }
        Text::Push(text.into())
    }

    fn len(&self) -> usize {
        match self {
            Text::Push(text) | Text::Resp3(text) | Text::Raw(text) => text.len(),
            Text::Invalidate { keys, .. } => keys.as_ref().map_or(0, |keys| keys.len()),
        }
    }

    /// Appends it as a client gets it.
    pub fn write(&self, client: &Client, out: &mut Vec<u8>) {
        let resp3 = client.speaks_resp3();
        match self {
            Text::Push(text) => {
                out.push(if resp3 { b'>' } else { b'*' });
                out.extend_from_slice(text);
            }
            Text::Raw(text) => out.extend_from_slice(text),
            Text::Resp3(text) if resp3 => {
                out.push(b'>');
                out.extend_from_slice(text);
            }
            Text::Invalidate { keys, redirected } if resp3 || *redirected && client.is_subscribed() => {
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
            Text::Resp3(_) | Text::Invalidate { .. } => {}
        }
    }
}

/// The mailboxes of all workers.
pub struct Post {
    boxes: Vec<Mailbox>,
    /// Too much waits somewhere.
    is_full: AtomicBool,
}

#[derive(Default)]
struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    bytes: AtomicUsize,
    /// Whether there are letters.
    waiting: AtomicBool,
    wake: Notify,
}

impl Post {
    /// For so many workers.
    pub fn new(workers: usize) -> Post {
        Post { boxes: (0..workers).map(|_| Mailbox::default()).collect(), is_full: AtomicBool::new(false) }
    }

    /// Whether those who would post should wait a little.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Puts a letter into a worker's mailbox.
    pub fn send(&self, worker: usize, letter: Letter) {
        let mailbox = &self.boxes[worker];
        let len = letter.text.len() + LETTER_BYTES;
        let mut letters = mailbox.letters.lock().expect("no holder panics");
        letters.push(letter);
        if mailbox.bytes.fetch_add(len, Relaxed) + len > MAIL_MAX {
            self.is_full.store(true, Relaxed);
        }
        if letters.len() == 1 {
            mailbox.waiting.store(true, Release);
            mailbox.wake.notify_one();
        }
    }

    /// Whether a worker has mail.
    #[inline]
    pub fn has_mail(&self, worker: usize) -> bool {
        self.boxes[worker].waiting.load(Acquire)
    }

    /// Waits until a worker has mail.
    pub async fn wait(&self, worker: usize) {
        self.boxes[worker].wake.notified().await;
    }

    /// Empties a worker's mailbox into `letters`, which is empty.
    pub fn take(&self, worker: usize, letters: &mut Vec<Letter>) {
        let mailbox = &self.boxes[worker];
        let mut waiting = mailbox.letters.lock().expect("no holder panics");
        std::mem::swap(&mut *waiting, letters);
        mailbox.bytes.store(0, Relaxed);
        mailbox.waiting.store(false, Relaxed);
        // If another mailbox is too full still, the next letter to it says so again.
        self.is_full.store(false, Relaxed);
    }
}
