//! The side of the process that takes over.

use super::{
    VARIABLE, VERSION, unchanged,
    wire::{receive, send, words},
};
use crate::{
    admin::log::log,
    clients::client::Client,
    config::{Config, Opt},
    metrics::Bound,
    net::listener::Listeners,
    script::cache::Script,
    server::{
        Server,
        handover::{self, Connected},
        mailbox::Message,
    },
};
use holdfast_store::Lsn;
use std::{
    collections::HashMap,
    env, fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};
use tokio::{runtime::LocalRuntime, sync::mpsc};

/// The process that has served so far.
pub struct Predecessor {
    stream: UnixStream,
    offer: HashMap<String, String>,
    /// Sockets that it has lent and nobody has taken yet: those where it listens, and those of the metrics port.
    sockets: Vec<OwnedFd>,
}

impl Predecessor {
    /// The process from which this one is to take over, if there is one.
    pub fn meet() -> Result<Option<Predecessor>, String> {
        if env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let failed = |e: io::Error| format!("cannot take over: {e}");
        let input = rustix::stdio::stdin().try_clone_to_owned().map_err(failed)?;
        // What this process starts has nothing to do with it.
        let nothing = fs::File::open("/dev/null").map_err(failed)?;
        rustix::stdio::dup2_stdin(&nothing).map_err(|e| failed(e.into()))?;
        let stream = UnixStream::from(input);
        let (message, sockets) = receive(&stream).map_err(failed)?;
        let said = handover::decode(&message)?;
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        let pairs = said.get(1..).unwrap_or_default().chunks_exact(2);
        let offer: HashMap<String, String> = pairs.map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
        match offer.get("version").map(String::as_str) {
            Some(VERSION) => Ok(Some(Predecessor { stream, offer, sockets })),
            other => Err(format!(
                "cannot take over from a process that does so by version {}, and not by {VERSION}: restart the server",
                other.unwrap_or("?")
            )),
        }
    }

    fn said(&self, name: &str) -> String {
        self.offer.get(name).cloned().unwrap_or_default()
    }

    /// The sockets where it listens, which must be where this process is to.
    pub fn listeners(&mut self, config: &Config) -> Result<Listeners, String> {
        let kinds = self.said("listeners");
        let count = kinds.split_whitespace().count().min(self.sockets.len());
        let sockets: Vec<OwnedFd> = self.sockets.drain(..count).collect();
        Listeners::adopt(config, &|name| self.said(name), kinds.split_whitespace(), sockets.into_iter())
    }

    /// Makes sure that its data folder is the one that this process is to open, and of the same kind.
    pub fn check_folder(&self, config: &Config) -> Result<(), String> {
        let (dir, its) = (config.text(Opt::Dir), self.said("dir"));
        if fs::canonicalize(&dir).ok().as_deref() != Some(Path::new(&its)) {
            return Err(format!("option 'dir' is '{dir}', and '{its}' in the process that serves"));
        }
        for (name, own) in unchanged(config) {
            // An older version does not say all of them.
            if let Some(its) = self.offer.get(name).filter(|its| **its != own) {
                return Err(format!(
                    "option '{name}' is '{own}', and '{its}' in the process that serves: restart the server"
                ));
            }
        }
        Ok(())
    }

    /// The metrics port, if there is to be one: its sockets if it stays where it is. To be called after [`Predecessor::listeners`].
    pub fn metrics(&mut self, config: &Config) -> Result<Option<Bound>, String> {
        let port = config.number(Opt::MetricsPort).to_string();
        let is_same =
            self.said("metrics-port") == port && self.said("metrics-bind") == config.text(Opt::MetricsBind);
        let sockets = std::mem::take(&mut self.sockets);
        if is_same && !sockets.is_empty() {
            Ok(Some(Bound::adopt(sockets.into_iter())))
        } else {
            Bound::open(config)
        }
    }

    /// Says that this process is ready, and waits until the data folder is closed.
    pub fn let_go(self) -> Result<Going, String> {
        let gone = |_| "the process that serves goes on, or has ended".to_owned();
        send(&self.stream, &words(&["ready"]), &[]).map_err(gone)?;
        let (message, _) = receive(&self.stream).map_err(gone)?;
        let said = handover::decode(&message)?;
        let [b"go", ended_at] = said.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] else {
            return Err(format!("the process that serves says {}", message.escape_ascii()));
        };
        let ended_at = std::str::from_utf8(ended_at).ok().and_then(|text| text.parse().ok());
        let stream = self.stream.try_clone().map_err(|e| e.to_string())?;
        let receiving = thread::Builder::new().name("take-over".into()).spawn(move || take_all(&stream));
        Ok(Going { ended_at, stream: self.stream, receiving: receiving.map_err(|e| e.to_string())? })
    }
}

/// What another process has passed on.
#[derive(Default)]
struct Taken {
    connections: Vec<(OwnedFd, Connected)>,
    scripts: Vec<(Vec<u8>, bool)>,
    last_id: u64,
}

/// Takes what there is. What is cut off stays away: its connection is closed, since nobody has it.
fn take_all(stream: &UnixStream) -> Result<Taken, String> {
    let mut taken = Taken::default();
    loop {
        let (message, mut sockets) = match receive(stream) {
            Ok(received) => received,
            Err(_) => {
                log!(Warning, "The process that served has ended before it had passed on all of its clients");
                return Ok(taken);
            }
        };
        let words = handover::decode(&message)?;
        match (words.first().map(Vec::as_slice), sockets.pop()) {
            (Some(b"client"), Some(socket)) => taken.connections.push((socket, Connected::decode(&message)?)),
            (Some(kind @ (b"script" | b"eval")), None) if words.len() == 2 => {
                taken.scripts.push((words[1].clone(), kind == b"script"));
            }
            (Some(b"end"), None) if words.len() == 2 => {
                taken.last_id = String::from_utf8_lossy(&words[1]).parse().unwrap_or(0);
                return Ok(taken);
            }
            _ => return Err(format!("the process that served says {}", message.escape_ascii())),
        }
    }
}

/// The process that has served so far, and serves no more.
pub struct Going {
    /// Where it has ended the log.
    pub ended_at: Option<Lsn>,
    stream: UnixStream,
    receiving: JoinHandle<Result<Taken, String>>,
}

impl Going {
    /// Gives its clients to the workers, and says that they are served here from now on.
    pub fn adopt(self, server: &Arc<Server>, runtime: &LocalRuntime) -> Result<(), String> {
        let Taken { connections, scripts, last_id } =
            self.receiving.join().expect("a panic ends the process")?;
        let ids = connections.iter().map(|(_, connected)| connected.id);
        server.clients.continue_after(ids.max().unwrap_or(0).max(last_id));
        for (source, is_kept) in scripts {
            // One that is not understood by this version is an error of whoever calls it.
            if let Ok(script) = Script::new(&source) {
                server.scripts.add(script, is_kept);
            }
        }
        let (workers, count) = (server.workers.len(), connections.len());
        let all_are_frozen = || {
            let (done, mut frozen) = mpsc::unbounded_channel();
            (0..workers).for_each(|worker| server.send(worker, Message::Freeze(done.clone())));
            drop(done);
            runtime.block_on(async { while frozen.recv().await.is_some() {} });
        };
        // None of them executes anything before each is what it was: a message goes to all who are subscribed.
        all_are_frozen();
        for (at, (socket, connected)) in connections.into_iter().enumerate() {
            let (worker, id) = (at % workers, connected.id);
            let (addr, laddr) = (connected.addr.clone(), connected.laddr.clone());
            let client = Client::new(id, addr, laddr, worker, socket.as_raw_fd(), connected.is_unix);
            let client = Arc::new(client);
            server.clients.add(client.clone());
            let socket = connected.socket(socket);
            server.send(worker, Message::Adopt(socket, client, Box::new(connected)));
        }
        all_are_frozen();
        // Whoever is gone need not know.
        let _ = send(&self.stream, &words(&["serves"]), &[]);
        (0..workers).for_each(|worker| server.send(worker, Message::Thaw));
        log!(Notice, "Took over from the process that served: {count} clients");
        Ok(())
    }
}
