//! Connections between servers that belong together: a server has one to each other one, by which it only sends.
//!
//! A connection begins with what makes sure of both ends ([`Trust`]), by a preface that says what its frames are about. Then come frames: four
//! bytes of length, four of CRC-32C, and the frame. What cannot be sent is dropped, and said again by those who need it said: a group by its own rules, a server
//! that joins by asking once more.

use crate::{
    admin::log::log,
    config::{Config, Opt},
    net::listener::listen_on_port,
    transport::trust::{Link, Trust},
};
use bytes::Bytes;
use holdfast_io::{crc32c, crc32c_append};
use std::{
    cell::Cell,
    collections::HashMap,
    future::poll_fn,
    io::{
        self,
        ErrorKind::{InvalidData, PermissionDenied},
        IoSlice,
    },
    net::TcpListener,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, ReadBuf},
    net::TcpStream,
    sync::mpsc::{self, Receiver, Sender},
    task::spawn_local,
    time::{sleep, timeout},
};

/// Bytes of a long frame that count as a part of it.
const PART_BYTES: usize = 1 << 20;
/// Frames that wait for a server that does not take them, and that wait to be looked at.
const WAITING_MAX: usize = 1024;
/// Bytes of frames that wait for a server, and one more frame.
const WAITING_BYTES: usize = 64 << 20;
/// Connections from other servers.
const CONNECTIONS_MAX: usize = 4096;
/// How long a connection may take to come about, and some of a frame to be taken.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a server is left alone that could not be reached.
const RETRY: Duration = Duration::from_millis(200);
/// A connection by which nothing was sent for so long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// A frame, and the host that it has come from.
pub type Received = (String, Vec<u8>);

/// What goes over a bus, and between whom.
#[derive(Clone)]
pub struct Protocol {
    /// Who may take part.
    pub trust: Arc<Trust>,
    /// What a connection begins with.
    pub preface: &'static [u8; 8],
    /// Bytes of a frame at most.
    pub frame_max: usize,
}

/// The ways to other servers.
pub struct Bus {
    protocol: Protocol,
    ways: HashMap<(String, u16), Way>,
    sent: Rc<Cell<u64>>,
    parts: Rc<Cell<u64>>,
}

/// To one of them.
struct Way {
    frames: Sender<Vec<Bytes>>,
    /// Bytes of those that wait, and of the one that is being sent.
    waiting: Rc<Cell<usize>>,
}

/// Opens the sockets at which other servers connect.
///
/// # Errors
/// The port is in use, or no address of the option `bind` is there.
pub fn listen(config: &Config, port: u16) -> Result<Vec<TcpListener>, String> {
    let backlog = config.number(Opt::TcpBacklog) as i32;
    let listeners = listen_on_port(Opt::Bind, &config.text(Opt::Bind), port, backlog)?;
    if listeners.is_empty() {
        return Err(format!("cannot listen on port {port} for the other servers: no address is there"));
    }
    Ok(listeners)
}

impl Bus {
    /// Takes frames from other servers from now on, within a runtime.
    pub fn start(protocol: Protocol, listeners: Vec<TcpListener>) -> (Bus, Receiver<Received>) {
        let (sender, frames) = mpsc::channel(WAITING_MAX);
        let (open, parts) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let is_remote = |listener: &TcpListener| listener.local_addr().is_ok_and(|at| !at.ip().is_loopback());
        if protocol.trust.is_open()
            && let Some(at) = listeners.iter().find(|it| is_remote(it)).and_then(|it| it.local_addr().ok())
        {
            log!(
                Warning,
                "whoever reaches port {} can pass for one of these servers: set masterauth on all of them, or let them speak TLS",
                at.port()
            );
        }
        for listener in listeners {
            let counts = (open.clone(), parts.clone());
            spawn_local(accept(protocol.clone(), listener, sender.clone(), counts));
        }
        (Bus { protocol, ways: HashMap::new(), sent: Rc::default(), parts }, frames)
    }

    /// Parts of long frames that have come before the last one of each.
    pub fn parts(&self) -> u64 {
        self.parts.get()
    }

    /// Frames that were sent.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Whether few frames wait on a way, so that one may be sent without which others can do.
    pub fn is_idle(&self, place: &(String, u16)) -> bool {
        self.ways.get(place).is_none_or(|way| {
            let frames = way.frames.max_capacity() - way.frames.capacity();
            frames < WAITING_MAX / 8 && way.waiting.get() < WAITING_BYTES / 8
        })
    }

    /// Sends a frame, of one or more pieces, if there is room for it on its way: whether there is.
    pub fn send(&mut self, place: (String, u16), frame: Vec<Bytes>) -> bool {
        let way = self.ways.entry(place).or_insert_with_key(|(host, port)| {
            let (sender, frames) = mpsc::channel(WAITING_MAX);
            let waiting = Rc::default();
            let counts = (self.sent.clone(), Rc::clone(&waiting));
            spawn_local(carry(self.protocol.clone(), host.clone(), *port, frames, counts));
            Way { frames: sender, waiting }
        });
        if way.waiting.get() > WAITING_BYTES {
            return false;
        }
        let len = len_of(&frame);
        // A way that is closed was idle: the next frame opens another one.
        let sent = way.frames.try_send(frame);
        match &sent {
            Ok(()) => way.waiting.set(way.waiting.get() + len),
            Err(mpsc::error::TrySendError::Closed(_)) => self.ways.retain(|_, way| !way.frames.is_closed()),
            Err(mpsc::error::TrySendError::Full(_)) => {}
        }
        sent.is_ok()
    }
}

async fn accept(
    protocol: Protocol,
    listener: TcpListener,
    frames: Sender<Received>,
    (open, parts): (Rc<Cell<usize>>, Rc<Cell<u64>>),
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log!(Warning, "the other servers cannot connect: {error}"),
    };
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(RETRY).await;
            continue;
        };
        if open.get() >= CONNECTIONS_MAX {
            continue;
        }
        open.set(open.get() + 1);
        let (protocol, frames, open) = (protocol.clone(), frames.clone(), open.clone());
        let parts = parts.clone();
        spawn_local(async move {
            let host = peer.ip().to_canonical().to_string();
            if let Err(error) = receive(&protocol, stream, &host, &frames, &parts).await {
                log!(Verbose, "a connection from {host} ends: {error}");
            }
            open.set(open.get() - 1);
        });
    }
}

async fn receive(
    protocol: &Protocol,
    stream: TcpStream,
    host: &str,
    frames: &Sender<Received>,
    parts: &Cell<u64>,
) -> io::Result<()> {
    let mut stream =
        BufReader::new(timeout(PATIENCE, protocol.trust.accept(protocol.preface, stream)).await??);
    loop {
        let (len, crc) = (stream.read_u32_le().await? as usize, stream.read_u32_le().await?);
        if len > protocol.frame_max {
            return Err(io::Error::other("a frame is not so long"));
        }
        // What has not come takes no memory.
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let part = PART_BYTES.min(len - bytes.len());
            if (&mut stream).take(part as u64).read_to_end(&mut bytes).await? < part {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            parts.set(parts.get() + u64::from(bytes.len() < len));
        }
        if crc32c(&bytes) != crc {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if frames.send((host.to_owned(), bytes)).await.is_err() {
            return Ok(());
        }
    }
}

/// Sends frames to a server as long as there are any now and then.
async fn carry(
    protocol: Protocol,
    host: String,
    port: u16,
    mut frames: Receiver<Vec<Bytes>>,
    (sent, waiting): (Rc<Cell<u64>>, Rc<Cell<usize>>),
) {
    let mut connection: Option<Box<dyn Link>> = None;
    let mut told = String::new();
    loop {
        let next = poll_fn(|cx| {
            // The other end says nothing: if there is anything to be read, it is the end, and what is written would be lost.
            let mut said = [0];
            if connection
                .as_mut()
                .is_some_and(|link| Pin::new(link).poll_read(cx, &mut ReadBuf::new(&mut said)).is_ready())
            {
                connection = None;
            }
            frames.poll_recv(cx)
        });
        let Ok(Some(frame)) = timeout(IDLE, next).await else { return };
        if connection.is_none() {
            match connect(&protocol, &host, port).await {
                Ok(link) => (connection, told) = (Some(link), String::new()),
                // That it is not there is nothing to tell.
                Err(error) if matches!(error.kind(), PermissionDenied | InvalidData) => {
                    let error = error.to_string();
                    if error != told {
                        log!(Warning, "cannot speak to {host}:{port}: {error}");
                        told = error;
                    }
                }
                Err(_) => {}
            }
        }
        let Some(link) = &mut connection else {
            // What waits is out of date when the server can be reached again.
            while frames.try_recv().is_ok() {}
            waiting.set(0);
            sleep(RETRY).await;
            continue;
        };
        let len = len_of(&frame);
        let crc = frame.iter().fold(0, |crc, piece| crc32c_append(crc, piece));
        let head = [(len as u32).to_le_bytes(), crc.to_le_bytes()].concat();
        let mut pieces = vec![Bytes::from(head)];
        pieces.extend(frame);
        match write(link, &pieces).await {
            Ok(()) => sent.set(sent.get() + 1),
            Err(_) => connection = None,
        }
        waiting.set(waiting.get() - len);
    }
}

fn len_of(frame: &[Bytes]) -> usize {
    frame.iter().map(Bytes::len).sum()
}

/// Writes pieces, one behind the other. It may take long as long as some of them is taken.
async fn write(link: &mut Box<dyn Link>, pieces: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<IoSlice> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let taken = timeout(PATIENCE, link.write_vectored(rest)).await??;
        if taken == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, taken);
    }
    timeout(PATIENCE, link.flush()).await?
}

async fn connect(protocol: &Protocol, host: &str, port: u16) -> io::Result<Box<dyn Link>> {
    let stream = timeout(PATIENCE, protocol.trust.reach(host, port)).await??;
    timeout(PATIENCE, protocol.trust.connect(protocol.preface, stream)).await?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::runtime;

    #[test]
    fn what_waits_for_a_server_is_limited_in_frames_and_bytes() {
        let place = |name: &str| (name.to_owned(), 1);
        runtime::local().expect("a runtime").block_on(async {
            let trust = Arc::new(Trust::new(Opt::TlsCluster));
            let protocol = Protocol { trust, preface: b"preface\n", frame_max: 1 << 30 };
            let (mut bus, _frames) = Bus::start(protocol, Vec::new());
            // Nothing is sent while this does not wait.
            let mut accepted = |name: &str, len: usize| {
                let frame = Bytes::from(vec![0; len]);
                (0..2 * WAITING_MAX).take_while(|_| bus.send(place(name), vec![frame.clone()])).count()
            };
            assert_eq!(accepted("short", 10), WAITING_MAX);
            assert_eq!(accepted("long", 1 << 20), WAITING_BYTES / (1 << 20) + 1);
            assert_eq!(accepted("huge", WAITING_BYTES + 1), 1);
            assert!(!bus.is_idle(&place("long")) && bus.is_idle(&place("another")));
        });
    }
}
