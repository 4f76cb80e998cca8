//! `holdfast export`: what comes out of a data folder is what was in it, as another server of ours and a real Redis see it.

use crate::harness::{
    self, Folder, Redis, Rng, Server, long_form, program,
    sample::{LATE_MS, known_to_redis, make_data, state},
    seed,
    transfers::call,
    wait_until,
};
use std::{
    fs,
    process::{Command, Stdio},
    thread,
};

fn start_in(folder: Folder) -> Server {
    Server::start_in(folder, &["--appendfsync", "no"])
}

fn export(folder: &Folder, file: &str, more: &[&str]) -> (bool, String) {
    program(&[&["export", &folder.join("data"), file], more].concat())
}

#[test]
fn what_is_exported_and_imported_is_the_same() {
    let mut rng = Rng(seed());
    for round in 0..long_form("HOLDFAST_EXPORT_ROUNDS", 12) {
        let server = start_in(Folder::new());
        make_data(&mut server.client(), &mut rng, false);
        let expected = state(&mut server.client());
        // What a crash leaves is read as well as what an orderly end does.
        let folder = if rng.one_in(2) {
            server.client().call("WAITAOF 1 0 0");
            server.kill()
        } else {
            server.stop()
        };
        let file = folder.join("dump.rdb");
        let (is_done, text) = export(&folder, &file, &[]);
        assert!(is_done && text.ends_with("ok\n"), "round {round}: {text}");
        let other = Folder::new();
        let (is_done, text) = program(&["import", &file, "--dir", &other.join("data")]);
        assert!(is_done, "round {round}: {text}");
        assert_eq!(state(&mut start_in(other).client()), expected, "round {round}");
        // The folder is as it was.
        assert_eq!(state(&mut start_in(folder).client()), expected, "round {round}");
    }
}

#[test]
fn a_real_redis_loads_what_is_exported() {
    let (mut rng, version) = (Rng(seed()), Redis::rdb_version());
    for round in 0..long_form("HOLDFAST_EXPORT_ROUNDS", 4) {
        let server = start_in(Folder::new());
        make_data(&mut server.client(), &mut rng, true);
        let expected = state(&mut server.client());
        let folder = server.stop();
        let (is_done, text) = export(&folder, &folder.join("dump.rdb"), &["--rdb-version", version]);
        assert!(is_done, "{text}");
        let redis = Redis::start(folder, &[]);
        let mut client = redis.client();
        assert_eq!(known_to_redis(state(&mut client)), known_to_redis(expected), "round {round}");
    }
}

#[test]
fn what_has_expired_is_left_out() {
    let server = start_in(Folder::new());
    server.client().run_script(
        "DEBUG SET-ACTIVE-EXPIRE 0 => +OK
         SET stays value => +OK
         HSET half field value other value => :2
         HSET all field value => :1
         SET expired value PX 1 => +OK
         HPEXPIRE half 1 FIELDS 1 field => [:1]
         HPEXPIRE all 1 FIELDS 1 field => [:1]
         WAITAOF 1 0 0 => [:1 :0]",
    );
    let (folder, other) = (server.kill(), Folder::new());
    let file = other.join("dump.rdb");
    // Nothing is left that needs a newer version.
    let (is_done, text) = export(&folder, &file, &[]);
    assert_eq!((is_done, &text[..]), (true, "version of the format: 11\nkeys: 2\nok\n"));
    let (is_done, text) = program(&["import", &file, "--dir", &other.join("data")]);
    assert!(is_done, "{text}");
    start_in(other).client().run_script(
        "DBSIZE => :2
         GET stays => value
         HGETALL half => [other value]",
    );
}

#[test]
fn what_cannot_be_exported_is_told_and_nothing_is_left() {
    let server = start_in(Folder::new());
    let mut client = server.client();
    client.call("HSET hash field value other value");
    client.call(&format!("HPEXPIREAT hash {LATE_MS} FIELDS 1 field"));
    client.call(&format!("SET string {}", "x".repeat(50_000)));
    let file = server.folder().join("dump.rdb");
    let left = |folder: &Folder| {
        fs::read_dir(folder.path())
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_str().is_some_and(|name| name.starts_with("dump.rdb")))
    };

    // A server uses the folder.
    let (is_done, text) = export(server.folder(), &file, &[]);
    assert!(!is_done && text.contains("in use by another process") && !left(server.folder()), "{text}");

    // The format is too old.
    let folder = server.stop();
    let (is_done, text) = export(&folder, &file, &["--rdb-version", "11"]);
    assert!(!is_done && text.contains("the value of the key \"hash\" needs version 12"), "{text}");
    assert!(!left(&folder));
    let (is_done, text) = export(&folder, &file, &[]);
    assert!(is_done && text.starts_with("version of the format: 12\nkeys: 2\n"), "{text}");

    // There is a file, or another export.
    let (is_done, text) = export(&folder, &file, &[]);
    assert!(!is_done && text.contains("dump.rdb is there already"), "{text}");
    fs::rename(&file, folder.join("dump.rdb.exporting")).unwrap();
    let (is_done, text) = export(&folder, &file, &[]);
    assert!(!is_done && text.contains("dump.rdb.exporting is in the way"), "{text}");
    fs::remove_file(folder.join("dump.rdb.exporting")).unwrap();

    // The value is damaged.
    let segment = fs::read_dir(folder.join("data/log")).unwrap().map(|entry| entry.unwrap().file_name());
    let segment = segment.map(|name| format!("data/log/{}", name.to_str().unwrap()));
    let places = segment.filter_map(|name| {
        let at = folder.read(&name).windows(1000).position(|bytes| bytes.iter().all(|byte| *byte == b'x'))?;
        Some((name, at as u64))
    });
    let places: Vec<_> = places.collect();
    assert!(!places.is_empty());
    for (name, at) in places {
        folder.flip_bit(&name, at + 20_000, 3);
    }
    let (is_done, text) = export(&folder, &file, &[]);
    assert!(!is_done && text.contains("is damaged") && !left(&folder), "{text}");

    let (is_done, text) = program(&["export", &folder.join("none"), &file]);
    assert!(!is_done && text.contains("none is not a data folder"), "{text}");
    let (is_done, text) = export(&folder, &file, &["--rdb-version", "9"]);
    assert!(!is_done && text.contains("see holdfast export --help"), "{text}");
}

#[test]
fn an_export_of_a_server_that_needs_its_room_is_no_file() {
    let server = Server::start(&["--log-max-size", "128mb"]);
    let (mut client, value) = (server.client(), "x".repeat(1 << 20));
    let fill = |client: &mut harness::Client| {
        for n in 0..20 {
            call(client, &["SET", &format!("large:{n}"), &value]);
        }
    };
    fill(&mut client);
    let file = server.folder().join("dump.rdb");
    let socket = server.folder().join("socket");
    let (is_done, text) = program(&["export", "--from", &socket, &file]);
    assert!(is_done && text == "version of the format: 11\nkeys: 20\nok\n", "{text}");
    assert_eq!(fs::metadata(&file).expect("the file").len() >> 20, 20);
    fs::remove_file(&file).expect("the file");
    // On a terminal it shows how far it is.
    let holdfast = env!("CARGO_BIN_EXE_holdfast");
    let command = format!("{holdfast} export --from {socket} --rate 10mb {file}");
    let output = Command::new("script").args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).output();
    let text = String::from_utf8(output.expect("script runs").stdout).expect("UTF-8");
    assert!(
        text.contains(" % of 20 keys\r")
            && text.ends_with("\rversion of the format: 11\r\nkeys: 20\r\nok\r\n"),
        "{text:?}"
    );
    fs::remove_file(&file).expect("the file");
    let (is_done, text) = thread::scope(|scope| {
        let export = scope.spawn(|| program(&["export", "--from", &socket, "--rate", "1mb", &file]));
        wait_until(|| "it has begun".into(), || client.info("backup_in_progress") == "1");
        while client.info("backups_lost") == "0" {
            fill(&mut client);
        }
        export.join().expect("no panic")
    });
    assert!(!is_done && text.contains("the backup had to yield"), "{text}");
    let names = fs::read_dir(server.folder().path()).expect("the folder");
    let names: Vec<_> = names.map(|entry| entry.expect("a file").file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with("dump.rdb")), "{names:?}");
}
