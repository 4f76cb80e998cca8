//! A server whose worker serves connections in the test's own thread, on a clock that the test moves. Nothing happens while
//! the test does something else, so a seed decides all that happens, and in which order.

use super::World;
use crate::{
    clients::client::Client, net::event_loop::EventLoop, server::mailbox::Message, transport::stream::Socket,
};
use holdfast_resp::{Reply, write_command};
use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    sync::Arc,
    time::Duration,
};
use tokio::{
    runtime::{Builder, LocalOptions, LocalRuntime},
    task::{spawn_blocking, yield_now},
    time,
};

/// The words of a command.
pub type Words = Vec<Vec<u8>>;

/// A server that serves connections while it is told to run.
pub struct Served {
    runtime: LocalRuntime,
    pub world: World,
}

impl Served {
    /// Serves what is connected from now on.
    pub fn new(mut world: World) -> Served {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .start_paused(true)
            // So that what is read from the medium is read in order.
            .max_blocking_threads(1)
            .build_local(LocalOptions::default())
            .expect("a runtime");
        let inbox = world.inbox.take().expect("nobody serves yet");
        runtime.spawn_local(EventLoop::new(world.worker.clone()).serve(inbox));
        Served { runtime, world }
    }

    /// A new client.
    pub fn connect(&self) -> Line {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        for socket in [&near, &far] {
            socket.set_nonblocking(true).expect("a socket that does not block");
        }
        let server = &self.world.worker.server;
        let client = Client::new(server.clients.new_id(), String::new(), String::new(), 0, 0, true);
        let client = Arc::new(client);
        server.clients.add(client.clone());
        server.send(0, Message::Accept(Socket::Unix(far), client.clone()));
        Line { id: client.id, socket: near, input: Vec::new(), waiting: VecDeque::new(), is_closed: false }
    }

    /// Lets the worker run until it has nothing left to do, for some milliseconds of its clock.
    pub fn run(&self) {
        self.runtime.block_on(async {
            let (mut quiet, mut seen) = (0, self.progress());
            while quiet < 3 {
                for _ in 0..4 {
                    yield_now().await;
                }
                // What it has asked the medium for before is there then.
                spawn_blocking(|| ()).await.expect("it does nothing");
                time::advance(Duration::from_millis(1)).await;
                let now = self.progress();
                quiet = if now == seen { quiet + 1 } else { 0 };
                seen = now;
            }
        });
    }

    /// Moves the worker's clock, and lets it run.
    pub fn pass(&self, time: Duration) {
        self.runtime.block_on(time::advance(time));
        self.run();
    }

    /// What changes while the worker does something.
    fn progress(&self) -> [u64; 4] {
        let (server, store) = (&self.world.worker.server, self.world.store());
        let bytes = (server.sum(|worker| &worker.input_bytes), server.sum(|worker| &worker.output_bytes));
        [server.calls(), store.log().tail(), bytes.0, bytes.1]
    }
}

/// A client's connection.
pub struct Line {
    /// The client's number.
    pub id: u64,
    socket: UnixStream,
    input: Vec<u8>,
    /// What was sent and is not answered: the commands that a reply tells of, which are several for EXEC.
    pub waiting: VecDeque<Vec<Words>>,
    /// The server has closed it.
    pub is_closed: bool,
}

/// What has arrived at a client.
pub struct Arrived {
    /// The commands that it answers; none: it was not asked for.
    pub answers: Vec<Words>,
    pub reply: Reply,
}

impl Line {
    /// Sends commands in one piece. Those from MULTI to EXEC are sent together.
    pub fn send(&mut self, commands: impl IntoIterator<Item = Words>) {
        let (mut request, mut queue) = (Vec::new(), None::<Vec<Words>>);
        for words in commands {
            write_command(&mut request, &words);
            match (words[0].as_slice(), &mut queue) {
                (b"multi", _) => queue = Some(Vec::new()),
                (b"exec", Some(queued)) => {
                    self.waiting.push_back(std::mem::take(queued));
                    continue;
                }
                (_, Some(queued)) => queued.push(words.clone()),
                _ => {}
            }
            self.waiting.push_back(vec![words]);
        }
        // Who sends to a server that has closed the connection learns of that when it receives.
        let _ = self.socket.write_all(&request);
    }

    /// What has arrived since the last look.
    pub fn receive(&mut self) -> Vec<Arrived> {
        let mut chunk = [0; 16384];
        loop {
            match self.socket.read(&mut chunk) {
                Ok(0) => {
                    self.is_closed = true;
                    break;
                }
                Ok(n) => self.input.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // The server has closed it without having read all.
                Err(e) if e.kind() == ErrorKind::ConnectionReset => {
                    self.is_closed = true;
                    break;
                }
                Err(e) => panic!("{e}"),
            }
        }
        let mut received = Vec::new();
        while let Some((reply, len)) = Reply::parse(&self.input).expect("a valid reply") {
            self.input.drain(..len);
            let answers = match reply {
                Reply::Push(_) => Vec::new(),
                _ => self.waiting.pop_front().expect("a reply to nothing"),
            };
            received.push(Arrived { answers, reply });
        }
        received
    }
}
