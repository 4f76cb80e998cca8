//! Connections between the nodes of a cluster: a node has one to each other node, by which it only sends.
//!
//! A connection begins with [`PREFACE`]. Then come frames: four bytes of length, four of CRC-32C, and the frame. What cannot be sent is
//! dropped, and said again by those who need it said: the group by its own rules, a server that joins by asking once more.

use super::cannot_listen;
use crate::{
    admin::log::log,
    config::{Config, Opt},
    net::listener::listen_on_port,
    server::cluster::bus_port,
};
use holdfast_cluster::Frame;
use holdfast_io::crc32c;
use std::{cell::Cell, collections::HashMap, io, net::TcpListener, rc::Rc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::mpsc::{self, Receiver, Sender},
    task::spawn_local,
    time::{sleep, timeout},
};

const PREFACE: &[u8; 8] = b"HFbus01\n";
/// Bytes of a frame at most.
const FRAME_MAX: usize = 64 << 20;
/// Frames that wait for a node that does not take them, and that wait to be looked at.
const WAITING_MAX: usize = 1024;
/// Connections from other nodes.
const CONNECTIONS_MAX: usize = 4096;
/// How long a connection may take to come about, and a frame to be taken.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a node is left alone that could not be reached.
const RETRY: Duration = Duration::from_millis(200);
/// A connection by which nothing was sent for so long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// A frame, and the host that it has come from.
pub type Received = (String, Frame);

/// The ways to other nodes.
pub struct Bus {
    ways: HashMap<(String, u16), Sender<Vec<u8>>>,
    sent: Rc<Cell<u64>>,
}

/// Opens the sockets at which other nodes connect.
pub fn listen(config: &Config) -> Result<Vec<TcpListener>, String> {
    let port = bus_port(config).ok_or("there is no port for the other nodes of the cluster")?;
    let backlog = config.number(Opt::TcpBacklog) as i32;
    let listeners = listen_on_port(Opt::Bind, &config.text(Opt::Bind), port, backlog)?;
    if listeners.is_empty() {
        return Err(cannot_listen(port, &io::ErrorKind::AddrNotAvailable.into()));
    }
    Ok(listeners)
}

impl Bus {
    /// Takes frames from other nodes from now on, within a runtime.
    pub fn start(listeners: Vec<TcpListener>) -> (Bus, Receiver<Received>) {
        let (sender, frames) = mpsc::channel(WAITING_MAX);
        let open = Rc::new(Cell::new(0));
        for listener in listeners {
            spawn_local(accept(listener, sender.clone(), open.clone()));
        }
        (Bus { ways: HashMap::new(), sent: Rc::default() }, frames)
    }

    /// Frames that were sent.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Sends a frame, if there is room for it on its way.
    pub fn send(&mut self, place: (String, u16), frame: Vec<u8>) {
        let way = self.ways.entry(place).or_insert_with_key(|(host, port)| {
            let (sender, frames) = mpsc::channel(WAITING_MAX);
            spawn_local(carry(host.clone(), *port, frames, self.sent.clone()));
            sender
        });
        // A way that is closed was idle: the next frame opens another one.
        if let Err(mpsc::error::TrySendError::Closed(frame)) = way.try_send(frame) {
            self.ways.retain(|_, way| !way.is_closed());
            drop(frame);
        }
    }
}

async fn accept(listener: TcpListener, frames: Sender<Received>, open: Rc<Cell<usize>>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log!(Warning, "the other nodes of the cluster cannot connect: {error}"),
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
        let (frames, open) = (frames.clone(), open.clone());
        spawn_local(async move {
            let host = peer.ip().to_canonical().to_string();
            if let Err(error) = receive(stream, &host, &frames).await {
                log!(Verbose, "a connection from node {host} ends: {error}");
            }
            open.set(open.get() - 1);
        });
    }
}

async fn receive(stream: TcpStream, host: &str, frames: &Sender<Received>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut preface = [0; PREFACE.len()];
    timeout(PATIENCE, stream.read_exact(&mut preface)).await??;
    if &preface != PREFACE {
        return Err(io::Error::other("it is no node's"));
    }
    loop {
        let (len, crc) = (stream.read_u32_le().await? as usize, stream.read_u32_le().await?);
        if len > FRAME_MAX {
            return Err(io::Error::other("a frame is not so long"));
        }
        // What has not come takes no memory.
        let mut bytes = Vec::new();
        let read = (&mut stream).take(len as u64).read_to_end(&mut bytes).await?;
        if read < len || crc32c(&bytes) != crc {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // A newer node may send what this one does not know.
        let Some(frame) = Frame::decode(&bytes) else { continue };
        if frames.send((host.to_owned(), frame)).await.is_err() {
            return Ok(());
        }
    }
}

/// Sends frames to a node as long as there are any now and then.
async fn carry(host: String, port: u16, mut frames: Receiver<Vec<u8>>, sent: Rc<Cell<u64>>) {
    let mut connection = None;
    while let Ok(Some(frame)) = timeout(IDLE, frames.recv()).await {
        if connection.is_none() {
            connection = connect(&host, port).await.ok();
        }
        let Some(stream) = &mut connection else {
            // What waits is out of date when the node can be reached again.
            while frames.try_recv().is_ok() {}
            sleep(RETRY).await;
            continue;
        };
        let mut bytes = Vec::with_capacity(8 + frame.len());
        bytes.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32c(&frame).to_le_bytes());
        bytes.extend_from_slice(&frame);
        match timeout(PATIENCE, stream.write_all(&bytes)).await {
            Ok(Ok(())) => sent.set(sent.get() + 1),
            _ => connection = None,
        }
    }
}

async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = timeout(PATIENCE, TcpStream::connect((host, port))).await??;
    stream.set_nodelay(true)?;
    let mut stream = stream;
    stream.write_all(PREFACE).await?;
    Ok(stream)
}
