//! A worker with real connections, on a simulated machine.

use crate::{
    clients::client::Client as Shown,
    commands::ROWS,
    config::{Config, Opt, file},
    exec::worker::Clock,
    net::event_loop,
    server::{Server, apply::apply_all, cluster::Cluster, mailbox::Message},
    transport::stream::Socket,
};
use holdfast_io::Moment;
use holdfast_resp::{Reply, write_command};
use holdfast_store::{Options, SimIo, Store};
use std::{
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
    time::Duration,
};
use tokio::sync::mpsc::{self, UnboundedReceiver};

/// How long a machine that does much else may take for what is done at once.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct World {
    pub sim: SimIo,
    pub server: Arc<Server>,
    /// Of the worker, until it runs.
    mailbox: Option<UnboundedReceiver<Message>>,
}

impl World {
    /// One whose worker does not run yet.
    pub fn new(settings: &[(&str, &str)]) -> World {
        World::with_log(u64::MAX, settings)
    }

    /// The same, with a log of so many bytes at most.
    pub fn with_log(log_bytes_max: u64, settings: &[(&str, &str)]) -> World {
        let sim = SimIo::new(1);
        let options =
            Options { partitions: 4, segment_size: Some(1 << 20), log_bytes_max, ..Options::default() };
        let store = Store::open_on(Arc::new(sim.clone()), options).expect("a new store");
        let (sender, mailbox) = mpsc::unbounded_channel();
        let config = Config::default();
        for (option, value) in settings {
            file::set(&config, option, &[value]).expect("an option");
        }
        config.set(Opt::EnableDebugCommand, &["yes"]).expect("an option");
        let cluster = Arc::new(Cluster::new(&config));
        let server = Server::new(&ROWS.table, Arc::new(config), cluster, Arc::new(store), None, vec![sender]);
        apply_all(&server).expect("the default options");
        World { sim, server, mailbox: Some(mailbox) }
    }

    /// Starts the worker, for those who are clients already and who will be.
    pub fn run(&mut self, clock: Clock) {
        let (server, mailbox) = (self.server.clone(), self.mailbox.take().expect("it does not run"));
        thread::spawn(move || event_loop::run(server, &ROWS, 0, clock, mailbox));
    }

    /// One whose worker runs.
    pub fn start(settings: &[(&str, &str)]) -> World {
        let mut world = World::new(settings);
        world.run(Moment::now);
        world
    }

    pub fn client(&self) -> Client {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        far.set_nonblocking(true).expect("a socket that does not block");
        let shown = Shown::new(self.server.clients.new_id(), String::new(), String::new(), 0, 0, true);
        let shown = Arc::new(shown);
        self.server.clients.add(shown.clone());
        self.server.send(0, Message::Accept(Socket::Unix(far), shown));
        Client { socket: near, input: Vec::new() }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.sim.release_writes();
        self.server.send(0, Message::Stop);
    }
}

pub struct Client {
    socket: UnixStream,
    input: Vec<u8>,
}

impl Client {
    pub fn send(&mut self, command: &str) {
        self.send_all(&[command]);
    }

    /// Sends a pipeline, which the socket's buffer has to hold if the worker does not run.
    pub fn send_all(&mut self, commands: &[impl AsRef<str>]) {
        let mut request = Vec::new();
        for command in commands {
            write_command(&mut request, &command.as_ref().split(' ').collect::<Vec<_>>());
        }
        self.socket.set_write_timeout(Some(PATIENCE)).expect("a time");
        self.socket.write_all(&request).expect("a connection");
    }

    pub fn call(&mut self, command: &str) -> Reply {
        self.send(command);
        self.reply()
    }

    pub fn reply(&mut self) -> Reply {
        self.reply_within(PATIENCE).expect("a reply")
    }

    pub fn reply_within(&mut self, time: Duration) -> Option<Reply> {
        self.socket.set_read_timeout(Some(time)).expect("a time");
        loop {
            if let Some((reply, length)) = Reply::parse(&self.input).expect("a valid reply") {
                self.input.drain(..length);
                return Some(reply);
            }
            let mut chunk = [0; 4096];
            match self.socket.read(&mut chunk) {
                Ok(0) => panic!("the server has closed the connection"),
                Ok(n) => self.input.extend_from_slice(&chunk[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return None,
                Err(e) => panic!("{e}"),
            }
        }
    }
}
