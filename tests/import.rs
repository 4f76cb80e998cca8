//! `holdfast import`: what real servers have saved (`tests/import`, made by `tests/import/make`) comes to what they executed.

mod harness;

use harness::{Client, Folder, Rng, Server, is_error, run, seed};
use holdfast_resp::write_command;
use std::fs;

/// The servers whose files are here.
const SERVERS: [&str; 2] = ["redis-7.2", "valkey-8.0"];
const LIBRARY: &str =
    "#!lua name=library\nredis.register_function('f', function(keys, args) return args[1] end)";

fn fixture(name: &str) -> String {
    format!("{}/tests/import/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A server that has executed the commands.
fn executed() -> Server {
    let server = start_in(Folder::new());
    let mut client = server.client();
    let text = fs::read_to_string(fixture("commands")).expect("the commands");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (times, line) = match line.strip_prefix('@').and_then(|line| line.split_once(' ')) {
            Some((times, line)) => (times.parse().expect("a number"), line),
            None => (1, line),
        };
        let mut requests = Vec::new();
        for n in 1..=times {
            let line = if times == 1 { line.to_owned() } else { line.replace("{}", &n.to_string()) };
            let mut words: Vec<&str> = line.split(' ').collect();
            if words[0] == "FUNCTION" {
                words = vec!["FUNCTION", "LOAD", LIBRARY];
            }
            write_command(&mut requests, &words);
        }
        client.send(&requests);
        for _ in 0..times {
            let reply = client.reply();
            assert!(!is_error(&reply, ""), "{line}: {reply:?}");
        }
    }
    server
}

fn start_in(folder: Folder) -> Server {
    Server::start_in(folder, &["--enable-debug-command", "yes", "--appendfsync", "no"])
}

/// Everything that a client can see of the data.
fn state(client: &mut Client) -> Vec<String> {
    let mut seen = Vec::new();
    for command in ["DEBUG DIGEST", "FUNCTION LIST", "XINFO GROUPS stream", "XINFO CONSUMERS stream nobody"] {
        seen.push(format!("{:?}", client.call(command)));
    }
    for db in [0, 9] {
        client.call(&format!("SELECT {db}"));
        seen.push(format!("{:?}", client.call("DBSIZE")));
        for key in ["short", "expiring", "long-hash", "string", "set"] {
            seen.push(format!("{key}: {:?}", client.call(&format!("PEXPIRETIME {key}"))));
        }
    }
    client.call("SELECT 0");
    seen
}

fn import(from: &str, folder: &Folder) -> (bool, String) {
    let output = run(&["import", from, "--dir", &folder.join("data")]);
    (
        output.status.success(),
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn files_of_real_servers_come_to_what_they_executed() {
    let expected = state(&mut executed().client());
    for name in SERVERS {
        for kind in ["rdb", "aof"] {
            let folder = Folder::new();
            let (is_done, text) = import(&fixture(&format!("{name}.{kind}")), &folder);
            assert!(is_done && text.ends_with("ok\n"), "{name}.{kind}: {text}");
            let server = start_in(folder);
            assert_eq!(state(&mut server.client()), expected, "{name}.{kind}");
            let folder = server.stop();
            let (is_sound, text) = harness::check(&folder);
            assert!(is_sound, "{text}");
        }
    }
}

#[test]
fn a_running_server_takes_a_file_unless_it_has_keys() {
    let expected = state(&mut executed().client());
    let server = start_in(Folder::new());
    let (mut client, socket) = (server.client(), server.folder().join("socket"));
    let file = fixture("redis-7.2.rdb");
    let import = |more: &[&str]| {
        let output = run(&[&["import", &file, "--to", &socket], more].concat());
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(import(&[]), (true, String::new()));
    assert_eq!(state(&mut client), expected);
    let (is_done, text) = import(&[]);
    assert!(!is_done && text.contains("has keys already"), "{text}");
    client.call("SET string other");
    client.call("DEL long-set");
    client.call("SADD set one-more");
    let (is_done, text) = import(&["--replace"]);
    assert!(is_done, "{text}");
    assert_eq!(state(&mut client), expected);
    let (is_done, text) = {
        let output = run(&["import", &fixture("redis-7.2.aof"), "--to", &socket]);
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    assert!(!is_done && text.contains("into a new data folder only"), "{text}");
}

#[test]
fn what_is_damaged_is_refused_and_nothing_is_left() {
    let mut rng = Rng(seed());
    let whole = fs::read(fixture("redis-7.2.rdb")).unwrap();
    for round in 0..20 {
        let mut bytes = whole.clone();
        if round % 2 == 0 {
            bytes.truncate(rng.below(whole.len() as u64) as usize);
        } else {
            let at = rng.below(whole.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        let folder = Folder::new();
        let file = folder.join("damaged.rdb");
        fs::write(&file, bytes).unwrap();
        let (is_done, text) = import(&file, &folder);
        assert!(!is_done && text.contains("damaged.rdb"), "round {round}: {text}");
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["damaged.rdb"], "round {round}");
    }
}

#[test]
fn a_folder_that_holds_something_is_left_alone() {
    let folder = Folder::new();
    fs::create_dir(folder.join("data")).unwrap();
    fs::write(folder.join("data/notes"), "mine").unwrap();
    let (is_done, text) = import(&fixture("redis-7.2.rdb"), &folder);
    assert!(!is_done && text.contains("is not empty"), "{text}");
    assert_eq!(folder.read("data/notes"), b"mine");
    let (is_done, text) = import(&folder.join("missing"), &folder);
    assert!(!is_done && text.contains("missing"), "{text}");
}
