//! `holdfast import`: what real servers have saved (`tests/import`, made by `tests/import/make`) comes to what they executed.

use crate::harness::{
    self, Client, Folder, Rng, Server, assert_sound, is_error, number, run, seed, told, wait_until,
};
use holdfast_resp::write_command;
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

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
            assert_sound(&folder);
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

/// An RDB file of strings.
fn rdb(keys: impl Iterator<Item = String>) -> Vec<u8> {
    let mut file = b"REDIS0011".to_vec();
    for key in keys {
        for text in [&b"\0"[..], &[key.len() as u8], key.as_bytes(), &[5], b"value"] {
            file.extend_from_slice(text);
        }
    }
    // Without a checksum.
    [&file[..], &[0xFF; 1], &[0; 8]].concat()
}

/// Names of keys, so many that it takes a while to import them.
fn many_keys() -> impl Iterator<Item = String> {
    (0..1_500_000).map(|n| format!("key:{n}"))
}

/// The program, while it runs.
fn spawn(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program runs")
}

fn signal(process: &Child, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", process.id())]).status();
    assert!(sent.expect("sh runs").success());
}

/// Whether it ended well, and what it printed.
fn ended(process: Child) -> (bool, String) {
    let output = process.wait_with_output().expect("its output");
    (output.status.success(), told(&output))
}

fn names_in(folder: &Folder) -> Vec<String> {
    let names = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

#[test]
fn what_a_killed_import_has_left_goes_with_the_next() {
    let folder = Folder::new();
    let (file, data) = (folder.join("many.rdb"), folder.join("data"));
    fs::write(&file, rdb(many_keys())).unwrap();
    // From then on it heeds signals.
    let begun = folder.join("data.importing/data");
    let start = || {
        let mut process = spawn(&["import", &file, "--dir", &data]);
        wait_until(|| "the import has begun".into(), || Path::new(&begun).exists());
        assert_eq!(process.try_wait().unwrap(), None, "it is under way");
        process
    };
    let small = fixture("redis-7.2.rdb");

    // One that is under way is left alone; one that is interrupted leaves nothing.
    let process = start();
    let (is_done, text) = import(&small, &folder);
    assert!(!is_done && text.contains("another import is under way: it uses "), "{text}");
    signal(&process, "INT");
    let (is_done, text) = ended(process);
    assert!(!is_done && text.ends_with(&format!("interrupted: {data} was not made\n")), "{text}");
    assert!(!text.contains("many.rdb"), "{text}");
    assert_eq!(names_in(&folder), ["many.rdb"]);

    let mut process = start();
    process.kill().unwrap();
    ended(process);
    assert_eq!(names_in(&folder), ["data.importing", "many.rdb"]);
    let (is_done, text) = import(&small, &folder);
    assert!(is_done && text.contains("data.importing, which an import that was killed had left"), "{text}");
    assert_eq!(names_in(&folder), ["data", "many.rdb"]);

    // What is somebody else's stays.
    for name in ["mine", "notice"] {
        let folder = Folder::new();
        fs::create_dir(folder.join("data.importing")).unwrap();
        fs::write(folder.join(&format!("data.importing/{name}")), "mine").unwrap();
        let (is_done, text) = import(&small, &folder);
        assert!(
            !is_done && text.contains("data.importing is in the way, and no import has made it"),
            "{text}"
        );
        assert_eq!(folder.read(&format!("data.importing/{name}")), b"mine");
    }
}

#[test]
fn what_is_there_twice_is_refused() {
    let hash = |name: &str, fields: &[usize]| {
        let mut bytes = vec![4, name.len() as u8];
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0x80);
        bytes.extend_from_slice(&(fields.len() as u32).to_be_bytes());
        for field in fields {
            let field = format!("{field:06}");
            bytes.extend([&[6], field.as_bytes(), &[1], b"v"].concat());
        }
        bytes
    };
    // So many fields come in pieces.
    let fields: Vec<usize> = (0..5000).collect();
    let twice: Vec<usize> = (0..5000).map(|n| n % 4999).collect();
    let file = |parts: &[Vec<u8>]| [&b"REDIS0011"[..], &parts.concat(), &[0xFF], &[0; 8]].concat();
    let strings = |keys: &[&str]| rdb(keys.iter().map(|key| key.to_string()))[9..].to_vec();
    let string = |key: &str| strings(&[key])[..9 + key.len() - 1].to_vec();
    // A set in a listpack.
    let entries = [0x81, b'x', 2, 0x81, b'x', 2, 0xFF];
    let packed = [&[20, 1, b'p', 13, 13, 0, 0, 0, 2, 0][..], &entries].concat();
    let far = [vec![0xFE, 16], string("key")].concat();
    for (bytes, error) in [
        (file(&[string("a"), string("b"), string("a")]), "the key \"a\" is there already"),
        (file(&[string("a"), hash("a", &[1, 2])]), "the key \"a\" is there already"),
        (file(&[hash("a", &[1, 2]), string("a")]), "the key \"a\" is there already"),
        (file(&[string("h"), hash("h", &fields)]), "the key \"h\" is there already"),
        (file(&[hash("h", &fields), hash("h", &fields)]), "the key \"h\" is there already"),
        (file(&[hash("h", &twice)]), "the key \"h\" has an element twice"),
        // Found by who writes it, and told by who reads the file again.
        (file(&[packed]), "an element is there twice, in the value of the key \"p\""),
        (file(&[far]), "the number of a database is refused: ERR DB index is out of range"),
    ] {
        let folder = Folder::new();
        fs::write(folder.join("file.rdb"), bytes).unwrap();
        let (is_done, text) = import(&folder.join("file.rdb"), &folder);
        assert!(!is_done && text.contains(error), "{error}: {text}");
        assert_eq!(names_in(&folder), ["file.rdb"], "{error}");
    }
    let folder = Folder::new();
    fs::write(folder.join("file.rdb"), file(&[string("a"), hash("h", &fields), vec![0xFE, 15], string("a")]))
        .unwrap();
    let (is_done, text) = import(&folder.join("file.rdb"), &folder);
    assert!(is_done && text == "keys: 3\nok\n", "{text}");
    let server = start_in(folder);
    let mut client = server.client();
    assert_eq!(number(&client.call("HLEN h")), Some(5000));
    assert_eq!(client.call("HGET h 004999"), harness::bulk("v"));
}

/// What an import says of keys that have arrived, before the name of the server.
fn told_to_have_arrived(text: &str) -> (bool, u64) {
    let told = text.split("not complete: ").nth(1).unwrap_or_else(|| panic!("no number: {text}"));
    let (told, is_exact) = told.strip_prefix("at least ").map_or((told, true), |told| (told, false));
    (is_exact, told.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn an_import_into_a_server_that_ends_early_tells_how_far_it_came() {
    let server = start_in(Folder::new());
    let (mut client, socket) = (server.client(), server.folder().join("socket"));
    client.call("ACL SETUSER importer on >secret ~key:* +@all");
    let folder = Folder::new();
    let file = folder.join("some.rdb");
    let keys = (0..30_000).map(|n| if n == 15_000 { "other".into() } else { format!("key:{n}") });
    fs::write(&file, rdb(keys)).unwrap();
    let (is_done, text) =
        ended(spawn(&["import", &file, "--to", &socket, "--user", "importer", "--password", "secret"]));
    assert!(
        !is_done && text.starts_with(&format!("holdfast: {socket}: the key \"other\" is refused: NOPERM")),
        "{text}"
    );
    assert!(!text.contains("some.rdb"), "{text}");
    let (is_exact, keys) = told_to_have_arrived(&text);
    assert_eq!((is_exact, Some(keys)), (true, number(&client.call("DBSIZE"))));
    assert!((15_000..30_000).contains(&keys), "{keys}");

    // Interrupted.
    fs::write(&file, rdb(many_keys())).unwrap();
    let process = spawn(&["import", &file, "--to", &socket, "--replace"]);
    wait_until(|| "keys arrive".into(), || number(&client.call("DBSIZE")) > Some(50_000));
    signal(&process, "INT");
    let (is_done, text) = ended(process);
    assert!(!is_done && text.starts_with("holdfast: interrupted\n"), "{text}");
    let (is_exact, keys) = told_to_have_arrived(&text);
    assert_eq!((is_exact, Some(keys)), (true, number(&client.call("DBSIZE"))));

    // The server is gone. Some of what has arrived was not answered.
    let process = spawn(&["import", &file, "--to", &socket, "--replace"]);
    wait_until(
        || "keys arrive anew".into(),
        || {
            client.call("FLUSHALL");
            number(&client.call("DBSIZE")) > Some(100)
        },
    );
    drop(client);
    server.kill();
    let (is_done, text) = ended(process);
    assert!(!is_done && text.starts_with(&format!("holdfast: {socket}: ")), "{text}");
    assert!(!told_to_have_arrived(&text).0 && !text.contains("some.rdb"), "{text}");
}
