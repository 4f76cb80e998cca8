//! What hostile, broken and slow clients cost: an error as in Redis, and bounded memory. What idle ones cost: next to
//! nothing.

use crate::harness::{Client, Server, bulk, error, ok, text, wait_until};
use holdfast_resp::{Reply, write_command};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{thread, time::Duration};

const MIB: u64 = 1 << 20;

/// The only client of a server: the one that saw that it serves may be a moment in leaving.
fn first_client(server: &Server) -> Client {
    let mut client = server.client();
    wait_until(|| "others leave".into(), || client.info("connected_clients") == "1");
    client
}

fn pong() -> Reply {
    Reply::Simple(b"PONG".to_vec())
}

#[test]
fn oversize_and_malformed_input_is_refused() {
    let server = Server::start(&["--proto-max-bulk-len", "1mb"]);
    let long = |start: &[u8]| [start, &b"1".repeat(70_000)].concat();
    for (input, message) in [
        (&b"*2147483648\r\n"[..], "invalid multibulk length"),
        (b"*-x\r\n", "invalid multibulk length"),
        (b"*1\r\n$1048577\r\n", "invalid bulk length"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
        (b"SET a 'b\r\n", "unbalanced quotes in request"),
        (b"SET a \"b\"c\r\n", "unbalanced quotes in request"),
        (&long(b"*"), "too big mbulk count string"),
        (&long(b"*1\r\n$"), "too big bulk count string"),
        (&long(b"GET "), "too big inline request"),
    ] {
        let mut client = server.client();
        client.send(b"PING\r\n");
        // The server may refuse before it has read all.
        let _ = client.try_send(input);
        assert_eq!(client.reply(), pong());
        assert_eq!(client.reply(), error(&format!("ERR Protocol error: {message}")));
        assert_eq!(client.try_reply(), None);
    }
    let mut client = server.client();
    let largest = vec![b'v'; MIB as usize];
    assert_eq!(client.call_args(&[b"SET", b"key", &largest[..]]), ok());
    assert_eq!(client.call("GET key"), Reply::Bulk(largest));
}

#[test]
fn what_is_announced_and_not_sent_takes_no_memory() {
    let server = Server::start(&[]);
    server.client().call("PING");
    let before = server.settled_bytes();
    let clients: Vec<Client> = (0..200)
        .map(|nth| {
            let mut client = server.client();
            match nth % 3 {
                0 => client.send(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$500000000\r\nabc"),
                1 => client.send(b"*1000000\r\n$3\r\nDEL\r\n$1\r\na\r\n"),
                _ => client.send(b"SET half a li"),
            }
            client
        })
        .collect();
    // The server has read all of it when the last one's neighbour is answered.
    assert_eq!(server.client().call("PING"), pong());
    let each = (server.resident_bytes() - before) / clients.len() as u64;
    assert!(each < 64 << 10, "{each} bytes each");
}

#[test]
fn a_value_sent_slowly_takes_the_memory_of_what_has_arrived() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call("PING");
    let before = server.settled_bytes();
    let value = vec![b'v'; 64 * MIB as usize];
    client.send(format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${}\r\n", value.len()).as_bytes());
    let (first, rest) = value.split_at(8 * MIB as usize);
    client.send(first);
    thread::sleep(Duration::from_millis(100));
    let grown = server.resident_bytes() - before;
    assert!(grown < 20 * MIB, "{grown} bytes for 8 MiB");
    client.send(rest);
    client.send(b"\r\n");
    assert_eq!(client.reply(), ok());
    assert_eq!(server.client().call("STRLEN key"), Reply::Int(value.len() as i64));
}

/// Without a limit on the output a client that does not read is not disconnected; it is just not read from any more.
#[test]
fn replies_that_nobody_reads_do_not_pile_up() {
    let server = Server::start(&["--workers", "1"]);
    let mut slow = server.client();
    let value = vec![b'v'; MIB as usize];
    assert_eq!(slow.call_args(&[b"SET", b"big", &value[..]]), ok());
    let before = server.settled_bytes();
    let gets = 1000;
    slow.send(&b"GET big\r\n".repeat(gets));
    let mut other = server.client();
    for _ in 0..20 {
        assert_eq!(other.call("PING"), pong());
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < 200 * MIB, "{grown} bytes");
        thread::sleep(Duration::from_millis(10));
    }
    for _ in 0..gets {
        assert_eq!(slow.reply(), bulk(&value));
    }
}

#[test]
fn endless_random_elements_end_with_the_client() {
    let server = Server::start(&["--workers", "1", "--client-output-buffer-limit", "normal 1mb 0 0"]);
    let mut other = server.client();
    other.run_script("hset h a 1 => :1\n sadd s a => :1\n zadd z 1 a => :1");
    for command in ["hrandfield h", "srandmember s", "zrandmember z"] {
        // That is known before.
        let refused = other.call(&format!("{command} -4611686018427387903"));
        assert_eq!(refused, error("ERR the reply would be too long"));
        let command = format!("{command} -40000000");
        let mut greedy = server.client();
        greedy.send(format!("{command}\r\n").as_bytes());
        assert_eq!(other.call("ping"), pong());
        assert_eq!(greedy.try_reply(), None, "{command}");
    }
    // It is as much as a script may have, whatever its client may.
    let script = "return #redis.call('srandmember', KEYS[1], -1000000)";
    assert_eq!(other.call_args(&["eval", script, "1", "s"]), Reply::Int(1_000_000));
}

#[test]
fn one_client_too_many_is_told_so() {
    let server = Server::start(&["--maxclients", "10"]);
    let mut clients = vec![first_client(&server)];
    clients.extend((1..10).map(|_| server.client()));
    clients.iter_mut().for_each(|client| assert_eq!(client.call("PING"), pong()));
    let mut refused = server.client();
    assert_eq!(refused.try_reply(), Some(error("ERR max number of clients reached")));
    assert_eq!(refused.try_reply(), None);
    clients.pop();
    wait_until(|| "a place is free".into(), || server.client().try_call("PING") == Some(pong()));
}

#[test]
fn ten_thousand_idle_clients_are_held_and_cost_little() {
    // Of this process, and what the server may have.
    let files = raise_file_limit();
    let count = 10_000.min(files.saturating_sub(1200));
    assert!(count >= 100, "{files} files are too few for any test");
    let server = Server::start(&["--maxclients", &count.to_string()]);
    let mut first = first_client(&server);
    let before = server.settled_bytes();
    let mut clients: Vec<Client> = (1..count).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send(b"PING\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.reply(), pong());
    }
    assert_eq!(first.info("connected_clients"), count.to_string());
    let each = server.resident_bytes().saturating_sub(before) / count;
    eprintln!("{count} clients, {each} bytes of RAM each");
    assert!(each < 4000, "{each} bytes each");

    let share = idle_cpu_share(&server);
    assert!(share < 0.05, "{share} of a CPU with {count} idle clients");
    for client in clients.iter_mut().step_by(97) {
        assert_eq!(client.call("PING"), pong());
    }
}

#[test]
fn an_idle_server_leaves_the_cpu_alone() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let mut requests = Vec::new();
    for n in 0..10_000 {
        write_command(&mut requests, &["SET", &format!("key:{n}"), "value"]);
    }
    client.send(&requests);
    (0..10_000).for_each(|_| assert_eq!(client.reply(), ok()));
    let share = idle_cpu_share(&server);
    assert!(share < 0.03, "{share} of a CPU while idle");
}

/// The share of one CPU that a server uses, once it has finished what it had to do: the least of three seconds, since what else the machine
/// does can only add to it.
fn idle_cpu_share(server: &Server) -> f64 {
    let shares = (0..3).map(|_| {
        let before = server.cpu_seconds();
        thread::sleep(Duration::from_secs(1));
        server.cpu_seconds() - before
    });
    let share = shares.fold(f64::INFINITY, f64::min);
    eprintln!("idle: {:.1} % of a CPU", share * 100.0);
    share
}

/// Allows this process, and those that it starts, as many open files as it may allow; returns how many.
fn raise_file_limit() -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.unwrap_or(u64::MAX)
}

/// Anybody can connect; who has not said who he is must not take memory by not reading.
#[test]
fn who_has_not_authenticated_takes_little_memory() {
    let server = Server::start(&["--requirepass", "secret"]);
    let mut admin = server.client();
    assert_eq!(admin.call("auth secret"), ok());
    let mut flood = Client::connect(&server.folder().join("socket")).unwrap();
    // Ends when the connection does.
    let flooding = thread::spawn(move || drop(flood.try_send(&b"PING\r\n".repeat(1 << 20))));
    let mut before = 0;
    wait_until(
        || "the server reads no more of it".into(),
        || {
            thread::sleep(Duration::from_millis(200));
            let now = admin.info("total_net_input_bytes").parse::<u64>().expect("a number");
            let is_still = before > 10_000 && now < before + 1000;
            before = now;
            is_still
        },
    );
    let list = text(&admin.call("client list"));
    let flood = list.lines().find(|line| !line.contains("cmd=client|list")).expect("the flood");
    let field = |name: &str| -> u64 {
        let start = flood.find(&format!(" {name}=")).expect("a field") + name.len() + 2;
        flood[start..].split(' ').next().expect("a value").parse().expect("a number")
    };
    assert!(field("tot-mem") < 128 << 10, "{flood}");
    let id = flood.split(' ').next().expect("an id").trim_start_matches("id=");
    assert_eq!(admin.call(&format!("client kill id {id}")), Reply::Int(1));
    flooding.join().expect("no panic");
}
