//! The client and servers over TCP that fail in ways of their own: each test is one fault that was found.

use holdfast_client::{
    Address, Client, Command, Config, Error, Executed, Network, Protocol, Reply, RequestId, Transport,
};
use holdfast_resp::{Limits, Parser};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(10);
const NODE: &[u8] = b"%2\r\n$5\r\nproto\r\n:3\r\n$4\r\nmode\r\n$7\r\ncluster\r\n";
const ALONE: &[u8] = b"%1\r\n$5\r\nproto\r\n:3\r\n";
const OK: &[u8] = b"$2\r\nok\r\n";

type Args = Vec<Vec<u8>>;

/// What a server does with a command.
enum Answer {
    Reply(Vec<u8>),
    Close,
    Nothing,
}

fn reply(bytes: &[u8]) -> Answer {
    Answer::Reply(bytes.to_vec())
}

#[derive(Default)]
struct State {
    links: Vec<TcpStream>,
    is_dead: bool,
}

/// A server whose answers are a function of the connection's number and the command.
struct Fake {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Fake {
    fn new(hello: &'static [u8], answer: impl Fn(usize, &Args) -> Answer + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, answer) = (Arc::clone(&state), Arc::new(answer));
        thread::spawn(move || {
            for link in listener.incoming() {
                let mut state = shared.lock().unwrap();
                if state.is_dead {
                    return;
                }
                let link = link.unwrap();
                state.links.push(link.try_clone().unwrap());
                let number = state.links.len();
                let answer = Arc::clone(&answer);
                thread::spawn(move || serve(link, number, hello, &*answer));
            }
        });
        Fake { port, state }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn links(&self) -> usize {
        self.state.lock().unwrap().links.len()
    }

    /// Ends: connections are closed, and new ones refused.
    fn kill(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_dead = true;
        state.links.iter().for_each(|link| drop(link.shutdown(Shutdown::Both)));
        drop(state);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

fn serve(mut link: TcpStream, number: usize, hello: &[u8], answer: &dyn Fn(usize, &Args) -> Answer) {
    let (mut parser, mut input, mut buffer) = (Parser::new(), Vec::new(), [0; 4096]);
    loop {
        while let Ok(Some(used)) = parser.parse(&mut input, &Limits::default()) {
            let args: Args = {
                let args = parser.args(&input);
                (0..args.len()).map(|at| args.at(at).to_vec()).collect()
            };
            input.drain(..used);
            let answer = if args[0] == b"HELLO" { reply(hello) } else { answer(number, &args) };
            match answer {
                Answer::Reply(reply) if link.write_all(&reply).is_ok() => {}
                Answer::Nothing => {}
                _ => return drop(link.shutdown(Shutdown::Both)),
            }
        }
        match link.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(n) => input.extend_from_slice(&buffer[..n]),
        }
    }
}

fn config(servers: &[&Fake]) -> Config {
    Config::new(servers.iter().map(|server| server.address())).unwrap()
}

fn get(client: &Client, key: &str) -> Result<Reply, Error> {
    let id = client.bget(key.as_bytes())?;
    assert!(client.wait(id, Some(PATIENCE))?, "{key} is not done");
    client.take(id)
}

fn ok() -> Result<Reply, Error> {
    Ok(Reply::Bulk(b"ok".to_vec()))
}

/// The next attempt was made at once, hundreds of times a second.
#[test]
fn a_node_that_closes_when_it_is_asked_is_not_asked_all_the_time() {
    let node = Fake::new(NODE, |_, _| Answer::Close);
    let mut config = config(&[&node]);
    config.request_timeout = Some(Duration::from_millis(300));
    let client = Client::new(config).unwrap();
    assert!(matches!(get(&client, "k"), Err(Error::TimedOut { .. })));
    assert!((2..12).contains(&node.links()), "{} connections", node.links());
}

/// The reply to CLUSTER SLOTS of a cluster whose slots are all at the first of these ports; the others are replicas.
fn map_of(ports: &[u16]) -> Answer {
    let servers = ports.iter().map(|port| format!("*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$2\r\nid\r\n"));
    let count = 2 + ports.len();
    reply(format!("*1\r\n*{count}\r\n:0\r\n:16383\r\n{}", servers.collect::<String>()).as_bytes())
}

/// Its keys were out of reach for ever, and so was all without a key: nobody else was asked.
#[test]
fn a_node_that_has_failed_over_is_left() {
    // Who leads, and who follows.
    let roles = Arc::new(Mutex::new(Vec::new()));
    let node = || {
        let roles = Arc::clone(&roles);
        Fake::new(NODE, move |_, args| match &args[0][..] {
            b"CLUSTER" => map_of(&roles.lock().unwrap()),
            _ => reply(OK),
        })
    };
    let (first, second) = (node(), node());
    *roles.lock().unwrap() = vec![first.port, second.port];
    // Told of one node only.
    let client = Client::new(config(&[&first])).unwrap();
    assert_eq!(get(&client, "k"), ok());
    assert_eq!(second.links(), 0);
    first.kill();
    let missed = [
        client.bget(b"k").unwrap(),
        client.submit(Command::new("PING").key(None)).unwrap(),
        client.submit(Command::new("BLPOP").arg("list").arg("0").untimed()).unwrap(),
    ];
    // The second one does not lead at once.
    assert!(!client.wait_all(&missed, Some(Duration::from_millis(150))).unwrap());
    *roles.lock().unwrap() = vec![second.port, first.port];
    assert!(client.wait_all(&missed, Some(PATIENCE)).unwrap());
    missed.into_iter().for_each(|id| assert_eq!(client.take(id), ok()));
    assert_eq!(get(&client, "other"), ok());
}

/// Half of the keys were out of reach until a request for another one was made.
#[test]
fn a_seed_that_is_not_there_is_no_loss() {
    let port = Arc::new(Mutex::new(0));
    let is_at = Arc::clone(&port);
    let node = Fake::new(NODE, move |_, args| match &args[0][..] {
        b"CLUSTER" => map_of(&[*is_at.lock().unwrap()]),
        _ => reply(OK),
    });
    *port.lock().unwrap() = node.port;
    let gone = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().to_string();
    let client = Client::new(Config::new([gone.clone(), gone, node.address()]).unwrap()).unwrap();
    // Slots 5061 and 12182.
    assert_eq!([get(&client, "bar"), get(&client, "foo")], [ok(), ok()]);
    assert_eq!(client.call(Command::new("PING").key(None)), ok());
}

/// The connection stayed unless the request that timed out was the one whose reply was due.
#[test]
fn a_server_that_hangs_is_left_whoever_was_waiting() {
    for is_cancelled in [true, false] {
        // It hangs on the first connection, in the one case after a late reply to the first request.
        let server = Fake::new(ALONE, move |link, args| match (link, &args[1][..]) {
            (1, b"late") if !is_cancelled => {
                thread::sleep(Duration::from_millis(140));
                reply(OK)
            }
            (1, _) => Answer::Nothing,
            _ => reply(OK),
        });
        let mut config = config(&[&server]);
        config.request_timeout = Some(Duration::from_millis(200));
        let client = Client::new(config).unwrap();
        let first = client.bget(b"late").unwrap();
        client.flush();
        if is_cancelled {
            client.progress(Duration::from_millis(20));
            client.cancel(first).unwrap();
        } else {
            let second = client.bget(b"k").unwrap();
            assert!(client.wait_all(&[first, second], Some(PATIENCE)).unwrap());
            assert_eq!(client.take(first), ok());
            assert!(matches!(client.take(second), Err(Error::TimedOut { .. })));
        }
        // Nobody waits for anything: that the server is gone is found all the same.
        client.progress(Duration::from_millis(250));
        assert_eq!(get(&client, "k"), ok());
        assert_eq!(server.links(), 2);
    }
}

/// Each moved all those behind it, and looked through all that were listed.
#[test]
fn many_requests_that_wait_are_let_go_of_in_no_time() {
    let gone = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().to_string();
    let client = Client::new(Config::new([gone]).unwrap()).unwrap();
    let value = vec![7; 100];
    let set = |n: usize| {
        client
            .submit(Command::new("SET").arg(&format!("key:{n}")).arg(&value).listed())
            .expect("there is room")
    };
    let ids: Vec<_> = (0..60_000).map(set).collect();
    let started = Instant::now();
    ids.iter().for_each(|&id| client.cancel(id).unwrap());
    ids.iter().rev().for_each(|&id| client.release(id).unwrap());
    assert_eq!((client.in_flight(), client.next_completion()), (0, None));
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}

/// Drives a client as a loop of events does, which makes progress when the descriptor tells; whether a request is done.
fn watch(client: &Client, id: RequestId) -> bool {
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        let mut fds = [PollFd::from_borrowed_fd(client.event_fd(), PollFlags::IN)];
        let wait = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        if poll(&mut fds, Some(&wait)).unwrap() > 0 {
            client.progress(Duration::ZERO);
        }
        if client.peek(id, |_, _| ()).is_ok() {
            return true;
        }
    }
    false
}

/// Nothing was begun, nor timed, until somebody called.
#[test]
fn the_descriptor_tells_of_requests_without_a_connection() {
    let server = Fake::new(ALONE, |_, args| if args[1] == b"die" { Answer::Close } else { reply(OK) });
    let mut config = config(&[&server]);
    config.request_timeout = Some(Duration::from_millis(300));
    let client = Client::new(config).unwrap();
    client.event_fd();
    for key in ["first", "again"] {
        let id = client.bget(key.as_bytes()).unwrap();
        assert!(watch(&client, id), "{key}");
        assert_eq!(client.take(id), ok());
        let write = client.submit(Command::new("LPUSH").arg("die").arg("x")).unwrap();
        assert!(watch(&client, write));
    }
    server.kill();
    let id = client.bget(b"k").unwrap();
    assert!(watch(&client, id));
    assert!(matches!(client.take(id), Err(Error::TimedOut { .. })));
}

/// Completions that were not fetched had everybody who waits look at them all the time.
#[test]
fn completions_that_are_not_fetched_do_not_wake_those_who_wait() {
    let server = Fake::new(ALONE, |_, args| {
        thread::sleep(Duration::from_millis(if args[1] == b"slow" { 300 } else { 0 }));
        reply(OK)
    });
    let client = Client::new(config(&[&server])).unwrap();
    let listed = client.submit(Command::new("GET").arg("k").listed()).unwrap();
    assert!(client.wait(listed, Some(PATIENCE)).unwrap());
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let before = used();
    assert_eq!(get(&client, "slow"), ok());
    assert!(used() - before < Duration::from_millis(50), "{:?}", used() - before);
    assert!(watch(&client, listed) && client.next_completion() == Some(listed));
}

/// A connection that takes all that has arrived at once, as TLS may, and then tells of nothing: a read gets little of it.
struct Buffered {
    event: OwnedFd,
    arrived: VecDeque<u8>,
}

impl Read for Buffered {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // There may be nothing to reset.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        let n = buf.len().min(8).min(self.arrived.len());
        self.arrived.drain(..n).zip(buf).for_each(|(from, to)| *to = from);
        if n == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(n) }
    }
}

impl Write for Buffered {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let is_greeting = buf.windows(5).any(|part| part == b"HELLO");
        if is_greeting {
            self.arrived.extend(ALONE);
        } else {
            self.arrived.extend(b"$5000\r\n".iter().chain(&[b'x'; 5000]).chain(b"\r\n"));
        }
        rustix::io::write(&self.event, &1u64.to_ne_bytes())?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Buffered {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn connected(&self) -> io::Result<()> {
        Ok(())
    }

    fn buffers(&self) -> bool {
        true
    }
}

struct BufferedNetwork;

impl Network for BufferedNetwork {
    fn connect(&mut self, _: &Address, _: u32) -> io::Result<Box<dyn Transport>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Box::new(Buffered { event, arrived: VecDeque::new() }))
    }
}

/// The rest of a reply waited until the server sent something else.
#[test]
fn the_descriptor_tells_of_what_the_transport_holds() {
    let mut config = Config::new(["host:1"]).unwrap();
    config.network = Some(Box::new(BufferedNetwork));
    let client = Client::new(config).unwrap();
    client.event_fd();
    let id = client.bget(b"k").unwrap();
    assert!(watch(&client, id));
    assert_eq!(client.take(id), Ok(Reply::Bulk(vec![b'x'; 5000])));
}

/// The 257th shared a connection, which could not be closed when one of the two was called off.
#[test]
fn requests_that_may_take_any_time_share_no_connection() {
    let servers = [Fake::new(ALONE, |_, _| Answer::Nothing), Fake::new(ALONE, |_, _| Answer::Nothing)];
    let client = Client::new(config(&[&servers[0], &servers[1]])).unwrap();
    // The first server's, and the second one's.
    let pop = |key: &str| client.submit(Command::new("BLPOP").arg(key).arg("0").untimed());
    let ids: Vec<_> = (0..256).map(|_| pop("bar").unwrap()).collect();
    assert_eq!([pop("bar"), pop("foo")], [Err(Error::Full), Err(Error::Full)]);
    client.cancel(ids[255]).unwrap();
    let other = pop("foo").unwrap();
    assert_eq!(pop("bar"), Err(Error::Full));
    client.cancel(other).unwrap();
    assert!(pop("bar").is_ok());
}

/// It was lost with its connection, so that all that was on its way with it was, too, and then fetched five times more.
#[test]
fn a_reply_that_is_too_large_is_the_matter_of_its_request() {
    let server = Fake::new(ALONE, |_, args| match &args[1][..] {
        b"large" => reply(&[&b"$100000\r\n"[..], &[b'x'; 100_000], b"\r\n"].concat()),
        b"many" => {
            reply(&[&b"*20\r\n"[..], &b"$5000\r\n"[..], &[b'x'; 5000], b"\r\n", &OK.repeat(19)].concat())
        }
        _ => reply(OK),
    });
    let client = Client::new(Config { reply_bytes_max: 4096, ..config(&[&server]) }).unwrap();
    let ids = ["a", "large", "many", "b"].map(|key| client.bget(key.as_bytes()).unwrap());
    assert!(client.wait_all(&ids, Some(PATIENCE)).unwrap());
    let too_large = || Err(Error::TooLarge { max: 4096 });
    assert_eq!(ids.map(|id| client.take(id)), [ok(), too_large(), too_large(), ok()]);
    assert_eq!(server.links(), 1);
}

/// Over RESP2 nothing is said first, so that the refusal was taken for the reply to a request that was not executed.
#[test]
fn a_connection_that_is_refused_is_no_reply() {
    let server = Fake::new(ALONE, |_, _| reply(b"-ERR max number of clients reached\r\n"));
    let mut config = config(&[&server]);
    config.protocol = Protocol::Resp2;
    let client = Client::new(config).unwrap();
    let error = client.call(Command::new("SET").arg("k").arg("v")).unwrap_err();
    assert_eq!(
        (error.executed(), error),
        (Executed::No, Error::Refused("ERR max number of clients reached".into()))
    );
}
