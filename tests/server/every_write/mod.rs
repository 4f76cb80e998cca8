//! Every command that writes, found by looping over the command table: what it has done is there after `kill -9`, to the
//! last byte.
//!
//! `HOLDFAST_WRITE_ROUNDS=100` runs the long form, `HOLDFAST_SEED=n` with the choices of another run.

mod calls;

use crate::harness::{self, Client, Rng, Server, assert_sound, long_form, seed};
use calls::Template;
use holdfast_resp::Reply;
use std::collections::{BTreeMap, BTreeSet};

/// Calls in a round.
const CALLS: usize = 1500;
const DATABASES: usize = 4;

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
    let (_other, port) = Server::start_with_port(&[]);
    let commands = write_commands(&mut server.client());
    let missing: Vec<_> = commands.iter().filter(|name| !templates.iter().any(|t| t.is_of(name))).collect();
    assert!(missing.is_empty(), "tests/server/every_write/calls.txt has no call of {missing:?}");

    let mut written = BTreeSet::new();
    for _ in 0..long_form("HOLDFAST_WRITE_ROUNDS", 4) {
        let mut client = server.client();
        for _ in 0..CALLS {
            let template = &templates[rng.below(templates.len() as u64) as usize];
            let in_multi = rng.one_in(8);
            if in_multi {
                client.call("multi");
            }
            let reply = client.call_args(&template.fill(port, &mut |end| rng.below(end)));
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
    assert_sound(&server.kill());
}
