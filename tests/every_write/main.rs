//! Every command that writes, found by looping over the command table: what it has done is there after `kill -9`, to the
//! last byte.
//!
//! `HOLDFAST_WRITE_ROUNDS=100` runs the long form, `HOLDFAST_SEED=n` with the choices of another run.

#[path = "../harness/mod.rs"]
mod harness;

use harness::{Client, Rng, Server, check, long_form, seed};
use holdfast_resp::Reply;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{SystemTime, UNIX_EPOCH},
};

/// Calls in a round.
const CALLS: usize = 400;
const DATABASES: usize = 4;

/// One line of `calls.txt`.
struct Template(Vec<&'static str>);

impl Template {
    fn all() -> Vec<Template> {
        let lines = include_str!("calls.txt").lines();
        let calls = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        calls.map(|line| Template(line.split(' ').collect())).collect()
    }

    /// Whether it is a call of a command, `set` or `xgroup|create`.
    fn is_of(&self, command: &str) -> bool {
        let mut words = self.0.iter();
        command.split('|').all(|name| words.next() == Some(&name))
    }

    fn fill(&self, rng: &mut Rng) -> Vec<Vec<u8>> {
        self.0.iter().map(|word| unescape(&fill(word, rng))).collect()
    }
}

/// Puts something in the places that `calls.txt` explains.
fn fill(word: &str, rng: &mut Rng) -> String {
    let mut filled = String::new();
    let mut chars = word.chars().peekable();
    while let Some(c) = chars.next() {
        let place = chars.peek().copied().filter(|next| c == '$' && next.is_ascii_alphabetic());
        let Some(place) = place else {
            filled.push(c);
            continue;
        };
        chars.next();
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
        let kinds = ['s', 'l', 'h', 'e', 'z', 'x', 'p', 'b', 'g'];
        filled += &match place {
            'k' => format!("{}:{}", kinds[rng.below(kinds.len() as u64) as usize], rng.below(3)),
            'v' => "v".repeat(1 + rng.below(300) as usize),
            'm' => char::from(b'a' + rng.below(8) as u8).to_string(),
            'n' => (1 + rng.below(20)).to_string(),
            'f' => format!("{}.25", rng.below(100)),
            't' => (now_ms + 10_000_000 + rng.below(1000)).to_string(),
            'T' => (now_ms / 1000 + 10_000 + rng.below(1000)).to_string(),
            kind if kinds.contains(&kind) => format!("{kind}:{}", rng.below(3)),
            other => panic!("calls.txt does not explain ${other}"),
        };
    }
    filled
}

/// `\xNN` and `\n`.
fn unescape(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        rest = match escaped.strip_prefix('x') {
            Some(hex) => {
                bytes.push(u8::from_str_radix(&hex[..2], 16).expect("two digits"));
                &hex[2..]
            }
            None => {
                bytes.push(b'\n');
                escaped.strip_prefix('n').expect("\\x or \\n")
            }
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

/// The names of the commands that write, subcommands as `container|name`.
fn write_commands(client: &mut Client) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let Reply::Array(mut rows) = client.call("command") else { panic!("COMMAND lists the commands") };
    while let Some(row) = rows.pop() {
        let Reply::Array(fields) = row else { panic!("a row of fields") };
        let (Reply::Array(flags), Reply::Array(subcommands)) = (&fields[2], &fields[9]) else {
            panic!("flags and subcommands")
        };
        if flags.contains(&Reply::Simple(b"write".to_vec())) && subcommands.is_empty() {
            found.insert(harness::text(&fields[0]));
        }
        rows.extend(subcommands.iter().cloned());
    }
    found
}

/// All that the server holds: for each key its value, serialized, and when it expires; and the functions.
fn state(client: &mut Client) -> BTreeMap<(usize, Vec<u8>), (Reply, Reply)> {
    let mut state = BTreeMap::new();
    for db in 0..DATABASES {
        client.call(&format!("select {db}"));
        let Reply::Array(keys) = client.call("keys *") else { panic!("KEYS lists keys") };
        for key in keys {
            let key = key.as_bytes().expect("a key").to_vec();
            let value = client.call_args(&[b"dump".as_slice(), &key]);
            assert!(matches!(value, Reply::Bulk(_)), "{key:?}: {value:?}");
            let expiry = client.call_args(&[b"pexpiretime".as_slice(), &key]);
            state.insert((db, key), (value, expiry));
        }
    }
    client.call("select 0");
    state.insert((DATABASES, b"functions".to_vec()), (client.call("function dump"), Reply::Null));
    state
}

#[test]
fn what_any_command_has_written_survives_kill_9() {
    let mut rng = Rng(seed());
    let templates = Template::all();
    let mut server = Server::start(&["--appendfsync", "always"]);
    let commands = write_commands(&mut server.client());
    let missing: Vec<_> = commands.iter().filter(|name| !templates.iter().any(|t| t.is_of(name))).collect();
    assert!(missing.is_empty(), "tests/every_write/calls.txt has no call of {missing:?}");

    let mut written = BTreeSet::new();
    for _ in 0..long_form("HOLDFAST_WRITE_ROUNDS", 4) {
        let mut client = server.client();
        for _ in 0..CALLS {
            let template = &templates[rng.below(templates.len() as u64) as usize];
            let in_multi = rng.one_in(8);
            if in_multi {
                client.call("multi");
            }
            let reply = client.call_args(&template.fill(&mut rng));
            if in_multi {
                client.call("exec");
            }
            if !matches!(reply, Reply::Error(_)) {
                written.extend(commands.iter().filter(|name| template.is_of(name)));
            }
        }
        let before = state(&mut client);
        server = server.restart(Server::kill);
        let after = state(&mut server.client());
        for (key, value) in &before {
            assert_eq!(after.get(key), Some(value), "{key:?}");
        }
        assert_eq!(before.len(), after.len(), "keys that were not there");
    }
    let never: Vec<_> = commands.iter().filter(|name| !written.contains(name)).collect();
    assert!(never.is_empty(), "only errors from {never:?}");
    let (sound, report) = check(&server.kill());
    assert!(sound, "{report}");
}
