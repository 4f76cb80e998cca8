//! The client and servers over TCP that fail in ways of their own: each test is one fault that was found.

use holdfast_client::{Client, Config, Error, Reply};
use holdfast_resp::{Limits, Parser};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(10);
const NODE: &[u8] = b"%2\r\n$5\r\nproto\r\n:3\r\n$4\r\nmode\r\n$7\r\ncluster\r\n";

type Args = Vec<Vec<u8>>;

/// What a server does with a command.
enum Answer {
    Reply(Vec<u8>),
    Close,
}

fn reply(bytes: &[u8]) -> Answer {
    Answer::Reply(bytes.to_vec())
}

#[derive(Default)]
struct State {
    links: Vec<TcpStream>,
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
