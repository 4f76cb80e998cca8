//! What the primary writes, executed as it arrives. Each command goes to a worker over one connection ([`Inside`]), and its offset counts as
//! executed when its reply has come, which it does when it is durable under `appendfsync always`.

use super::{
    Broken,
    inside::Inside,
    link::{Link, Sender},
};
use crate::{
    admin::log::log,
    server::{Server, replication::Order},
};
use holdfast_resp::{Limits, Parser, Reply, write_command};
use std::{
    io::{BufWriter, Read, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Commands that may be on their way to the worker, or wait for being durable, at the same time.
const WINDOW: usize = 10_000;
/// Bytes that go to the worker at once.
const BUFFER: usize = 64 << 10;
/// How often the primary is told what is durable here.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_secs(1);
/// Bytes of a command and of a reply that an error shows.
const SHOWN: usize = 100;

/// A command of the primary that was handed on, or that was not for the worker.
struct Passed {
    /// Where it ends in the history.
    end: u64,
    /// The beginning of it, for an error; `None`: there is no reply.
    command: Option<Vec<u8>>,
    /// The primary waits for an acknowledgement.
    is_awaited: bool,
}

/// What the threads of a stream share.
struct Shared {
    server: Arc<Server>,
    /// Why no more is executed, if so.
    failure: Mutex<Option<String>>,
    /// The way to the primary now.
    sender: Mutex<Option<Sender>>,
}

impl Shared {
    fn acknowledge(&self) {
        let Some(sender) = self.sender.lock().expect("no holder panics").clone() else { return };
        let mut request = Vec::new();
        write_command(
            &mut request,
            &["REPLCONF", "ACK", &self.server.replication.offset.load(Relaxed).to_string()],
        );
        // Who reads from the primary finds out if it is gone.
        let _ = sender.lock().expect("no holder panics").write_all(&request);
    }

    fn fail(&self, why: String) {
        log!(Warning, "the primary is not followed any further: {why}");
        self.failure.lock().expect("no holder panics").get_or_insert(why);
    }

    fn failure(&self) -> Option<String> {
        self.failure.lock().expect("no holder panics").clone()
    }
}

/// What a primary writes from an offset of its history on. It outlives the link.
pub struct Stream {
    server: Arc<Server>,
    id: String,
    /// Where the last command that was handed on ends.
    passed: u64,
    worker: BufWriter<UnixStream>,
    replies: JoinHandle<()>,
    awaited: SyncSender<Passed>,
    shared: Arc<Shared>,
    _inside: Inside,
}

impl Stream {
    /// Begins behind an offset of a history.
    ///
    /// # Errors
    /// There can be no connection to a worker, or the order does not hold any more.
    pub fn begin(server: &Arc<Server>, order: &Order, id: String, offset: u64) -> Result<Stream, Broken> {
        let (inside, socket) = Inside::open(server, order)?;
        let (awaited, inbox) = sync_channel(WINDOW);
        server.replication.offset.store(offset, Relaxed);
        let shared =
            Arc::new(Shared { server: server.clone(), failure: Mutex::default(), sender: Mutex::default() });
        let (replies, seen) = (socket.try_clone()?, shared.clone());
        let replies = thread::Builder::new()
            .name("replica-replies".into())
            .spawn(move || see_replies(replies, &inbox, &seen))?;
        let worker = BufWriter::with_capacity(BUFFER, socket);
        let server = server.clone();
        Ok(Stream { server, id, passed: offset, worker, replies, awaited, shared, _inside: inside })
    }

    /// The history, and where in it the primary may go on: behind the last whole command that has arrived.
    pub fn position(&self) -> (String, u64) {
        (self.id.clone(), self.passed)
    }

    /// The primary calls the history by another name from now on.
    pub fn rename(&mut self, id: String) {
        self.id = id;
    }

    /// Whether a command was not executed.
    pub fn has_failed(&self) -> bool {
        self.shared.failure().is_some()
    }

    /// Ends it; what was handed on and is not executed is not executed any more.
    pub fn end(self) {
        let Stream { worker, replies, awaited, _inside: inside, .. } = self;
        drop(inside);
        drop(awaited);
        // Dropping it would write once more, in vain.
        drop(worker.into_parts());
        replies.join().expect("a panic ends the process");
    }

    /// Executes what comes by a link, until it breaks.
    ///
    /// # Errors
    /// Always: why it does not go on.
    pub fn follow(&mut self, link: &mut Link) -> Result<(), Broken> {
        *self.shared.sender.lock().expect("no holder panics") = Some(link.sender());
        let broken = self.read_from(link);
        *self.shared.sender.lock().expect("no holder panics") = None;
        // What was handed on is executed all the same.
        let flushed = self.worker.flush().map_err(|e| Broken::Refused(self.failure_or(e.to_string())));
        self.show();
        flushed.and(broken)
    }

    fn read_from(&mut self, link: &mut Link) -> Result<(), Broken> {
        let limits = Limits { max_bulk_len: self.server.string_max(), unauthenticated: false };
        let mut parser = Parser::new();
        // A primary that has sent its copy as it went waits for this before it goes on.
        self.shared.acknowledge();
        let mut acknowledged = Instant::now();
        loop {
            let mut used = 0;
            while let Some(length) = parser
                .parse(&mut link.input[used..], &limits)
                .map_err(|e| Broken::Refused(format!("its commands do not read as commands: {e}")))?
            {
                let args = parser.args(&link.input[used..]);
                let names =
                    |at: usize, name: &[u8]| args.len() > at && args.at(at).eq_ignore_ascii_case(name);
                let is_awaited = names(0, b"replconf") && names(1, b"getack");
                let is_for_worker = !args.is_empty() && !names(0, b"replconf") && !names(0, b"ping");
                let bytes = &link.input[used..used + length];
                let passed = Passed {
                    end: self.passed + length as u64,
                    command: is_for_worker.then(|| bytes[..length.min(SHOWN)].to_vec()),
                    is_awaited,
                };
                if is_for_worker {
                    let written = self.worker.write_all(bytes);
                    written.map_err(|e| Broken::Refused(self.failure_or(e.to_string())))?;
                }
                self.passed = passed.end;
                if let Err(full) = self.awaited.try_send(passed) {
                    // What its replies are awaited of must have been sent.
                    let written = self.worker.flush();
                    written.map_err(|e| Broken::Refused(self.failure_or(e.to_string())))?;
                    let (TrySendError::Full(passed) | TrySendError::Disconnected(passed)) = full;
                    let sent = self.awaited.send(passed);
                    sent.map_err(|_| Broken::Refused(self.failure_or("no replies are seen".into())))?;
                }
                used += length;
            }
            link.input.drain(..used);
            self.worker.flush().map_err(|e| Broken::Refused(self.failure_or(e.to_string())))?;
            if let Some(why) = self.shared.failure() {
                return Err(Broken::Refused(why));
            }
            self.show();
            if acknowledged.elapsed() >= ACKNOWLEDGE_EVERY {
                self.shared.acknowledge();
                acknowledged = Instant::now();
            }
            link.read()?;
        }
    }

    fn show(&self) {
        self.server.replication.heard(&self.id, self.passed);
    }

    fn failure_or(&self, what: String) -> String {
        self.shared.failure().unwrap_or(what)
    }
}

/// Looks at the reply to each command. The first that is an error ends it: the data would not be the primary's any more.
fn see_replies(mut socket: UnixStream, inbox: &Receiver<Passed>, shared: &Shared) {
    let (mut input, mut next) = (Vec::new(), 0);
    while let Ok(Passed { end, command, is_awaited }) = inbox.recv() {
        if let Some(command) = command {
            match read_reply(&mut socket, &mut input, &mut next) {
                Ok(reply) => {
                    if let Some(error) = error_in(&reply) {
                        let shown = command.escape_ascii();
                        return shared
                            .fail(format!("a command that begins with \"{shown}\" is refused: {error}"));
                    }
                }
                Err(why) => return shared.fail(why),
            }
        }
        shared.server.replication.offset.store(end, Relaxed);
        if is_awaited {
            shared.acknowledge();
        }
    }
}

fn read_reply(socket: &mut UnixStream, input: &mut Vec<u8>, next: &mut usize) -> Result<Reply, String> {
    loop {
        if let Some((reply, len)) = Reply::parse(&input[*next..]).map_err(|e| e.to_string())? {
            *next += len;
            return Ok(reply);
        }
        input.drain(..*next);
        *next = 0;
        let start = input.len();
        input.resize(start + BUFFER, 0);
        let read = socket.read(&mut input[start..]);
        input.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return Err("its connection to a worker was closed".into()),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The error that a reply is, or has in it.
fn error_in(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Error(text) => Some(String::from_utf8_lossy(text).chars().take(SHOWN).collect()),
        Reply::Array(replies) => replies.iter().find_map(error_in),
        _ => None,
    }
}
