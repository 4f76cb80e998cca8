//! `holdfast backup`, `restore` and `check`: a server that runs is copied as it is at one moment, whatever its clients do.

use crate::harness::{
    Client, Folder, Rng, Server, assert_sound, is_error, ok, program, seed, text,
    transfers::{call, check_moment, int, under_load},
    wait_until,
};
use holdfast_resp::Reply;
use rustix::process::{Pid, getpriority_process};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

fn back_up(server: &Server, more: &[&str]) -> (bool, String) {
    let folder = server.folder();
    program(&[&["backup", "--from", &folder.join("socket"), &folder.join("backups")], more].concat())
}

fn restore(folder: &Folder, more: &[&str]) -> Folder {
    let new = Folder::new();
    let done = program(&[&["restore", &folder.join("backups"), &new.join("data")], more].concat());
    assert!(done.0, "{}", done.1);
    new
}

#[test]
fn a_backup_under_load_is_one_moment() {
    let mut rng = Rng(seed());
    // The log goes around, and values and pages leave memory.
    let options = ["--maxmemory", "24mb", "--log-max-size", "256mb", "--compression", "lz4"];
    let server = Server::start(&options);
    let mut client = server.client();
    let (mut backups, mut exported) = (Vec::new(), Default::default());
    let all = under_load(&server, &mut rng, |now| {
        for rate in ["10gb", "40mb", "20mb"] {
            let before = now();
            let (is_done, told) = back_up(&server, &["--rate", rate]);
            assert!(is_done, "{told}");
            // One is on its way.
            let after: Vec<u64> = now().iter().map(|n| n + 1).collect();
            backups.push((before, after));
            call(&mut client, &["BGSAVE"]);
        }
        // An export is of a moment, too.
        let (file, before) = (server.folder().join("server.rdb"), now());
        let (is_done, told) =
            program(&["export", "--from", &server.folder().join("socket"), "--rate", "40mb", &file]);
        assert!(is_done && told.ends_with("ok\n"), "{told}");
        exported = (before, now().iter().map(|n| n + 1).collect::<Vec<u64>>());
        assert!(!server.folder().path().join("server.rdb.exporting").exists());
    });
    assert_eq!(client.info("backups_ended"), "4");
    assert_eq!(client.info("backup_in_progress"), "0");
    assert_eq!(check_moment(&mut client), all, "the server has them all");
    let folder = server.stop();
    assert_sound(&folder);
    let (is_sound, told) = program(&["check", &folder.join("backups")]);
    assert!(is_sound && told.contains("backup 3: taken") && told.ends_with("ok\n"), "{told}");
    let check_between = |new: Folder, (before, after): &(Vec<u64>, Vec<u64>)| {
        assert_sound(&new);
        let restored = Server::start_in(new, &options);
        let found = check_moment(&mut restored.client());
        let is_between =
            found.iter().zip(before.iter().zip(after)).all(|(n, (from, to))| (from..=to).contains(&n));
        assert!(is_between, "{found:?} is not between {before:?} and {after:?}");
    };
    for (backup, when) in (1..).zip(&backups) {
        check_between(restore(&folder, &["--backup", &format!("{backup}")]), when);
    }
    // The last backup goes to an RDB file as well, and either file into a new folder.
    let (is_done, told) = program(&["export", &folder.join("backups"), &folder.join("backup.rdb")]);
    assert!(is_done && told.ends_with("ok\n"), "{told}");
    for (file, when) in [("server.rdb", &exported), ("backup.rdb", &backups[2])] {
        let new = Folder::new();
        let (is_done, told) = program(&["import", &folder.join(file), "--dir", &new.join("data")]);
        assert!(is_done, "{told}");
        check_between(new, when);
    }
}

#[test]
fn a_backup_of_an_idle_server_is_the_same_and_later_ones_write_what_is_new() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let mut client = server.client();
    for n in 0..2000 {
        call(&mut client, &["SET", &format!("key:{n}"), &format!("value {n} ").repeat(1000)]);
        call(&mut client, &["RPUSH", &format!("list:{}", n % 10), &n.to_string()]);
    }
    call(&mut client, &["EXPIRE", "key:1", "100000"]);
    let digests = |client: &mut Client| text(&client.call("DEBUG DIGEST"));
    let first = digests(&mut client);
    let (is_done, told) = back_up(&server, &[]);
    assert!(is_done && told.starts_with("backup: 1\n"), "{told}");
    for n in 0..20 {
        call(&mut client, &["SET", &format!("key:{n}"), &format!("other {n} ").repeat(1000)]);
    }
    let second = digests(&mut client);
    call(&mut client, &["SAVE"]);
    let (is_done, told) = back_up(&server, &[]);
    assert!(is_done && told.starts_with("backup: 2\n"), "{told}");
    let bytes = |before: &str| {
        let rest = told.split(before).nth(1).expect("a figure");
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().expect("a number")
    };
    let (all, written) = (bytes("bytes: "), bytes("of which "));
    let segment = 32 << 20;
    assert!(written <= all / 50 + segment, "{told}");
    // A third one has nothing to write but its manifest, and a segment that is not full.
    assert!(back_up(&server, &[]).0);
    let folder = server.kill();
    for (number, digest) in [("1", &first), ("2", &second), ("3", &second)] {
        let restored = Server::start_in(restore(&folder, &["--backup", number]), &[]);
        assert_eq!(digests(&mut restored.client()), *digest, "backup {number}");
    }
    // One that is removed is in nobody's way.
    fs::remove_file(folder.join("backups/backup-1")).expect("it is there");
    let server = Server::start_in(folder, &[]);
    assert!(back_up(&server, &[]).0);
    let folder = server.stop();
    assert!(program(&["check", &folder.join("backups")]).0);
    let restored = Server::start_in(restore(&folder, &[]), &[]);
    assert_eq!(digests(&mut restored.client()), second);
    // What was restored goes on by itself, and is backed up elsewhere.
    let mut client = restored.client();
    assert_eq!(client.call("SET new value"), ok());
    let elsewhere = folder.join("backups");
    let (is_done, told) = program(&["backup", "--from", &restored.folder().join("socket"), &elsewhere]);
    assert!(!is_done && told.contains("restored since"), "{told}");
    assert!(back_up(&restored, &[]).0);
}

/// A backup that is under way, slowly.
fn slow_backup(server: &Server) -> std::process::Child {
    let (folder, mut client) = (server.folder(), server.client());
    let child = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["backup", "--from", &folder.join("socket"), &folder.join("backups"), "--rate", "100kb"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    wait_until(|| "a backup is under way".into(), || client.info("backup_in_progress") == "1");
    child
}

#[test]
fn a_kill_of_the_server_or_of_the_backup_harms_neither_side() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for n in 0..500 {
        call(&mut client, &["SET", &format!("key:{n}"), &"x".repeat(2000)]);
    }
    assert!(back_up(&server, &[]).0);
    call(&mut client, &["SET", "after", "it"]);
    // The one who copies goes away: the server keeps nothing for it any more. It has run when nobody else wanted to.
    let mut child = slow_backup(&server);
    let priority = || getpriority_process(Some(Pid::from_child(&child))).expect("it runs");
    wait_until(|| format!("the lowest priority, not {}", priority()), || priority() == 19);
    let (is_done, told) = {
        let folder = server.folder();
        program(&["backup", "--from", &folder.join("socket"), &folder.join("elsewhere")])
    };
    assert!(!is_done && told.contains("Another backup is under way"), "{told}");
    let (is_done, told) = back_up(&server, &[]);
    assert!(!is_done && told.contains("in use by another process"), "{told}");
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    wait_until(|| "the server lets go".into(), || client.info("backup_in_progress") == "0");
    assert!(program(&["check", &server.folder().join("backups")]).0);
    // The server goes away.
    let child = slow_backup(&server);
    let folder = server.kill();
    let output = child.wait_with_output().expect("it ends");
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(!output.status.success() && told.contains("the server "), "{told}");
    assert_sound(&folder);
    let (is_sound, told) = program(&["check", &folder.join("backups")]);
    assert!(is_sound && !told.contains("backup 2"), "{told}");
    let server = Server::start_in(folder, &[]);
    assert!(back_up(&server, &[]).0);
    let folder = server.stop();
    let restored = Server::start_in(restore(&folder, &[]), &[]);
    assert_eq!(int(&mut restored.client(), "DBSIZE"), 501);
}

#[test]
fn what_is_damaged_or_in_the_way_is_told() {
    let server = Server::start(&[]);
    let mut client = server.client();
    assert_eq!(client.call("SET key value"), ok());
    assert!(is_error(&client.call("BACKUP END"), "ERR This connection has begun no backup"));
    assert!(matches!(client.call("BACKUP BEGIN"), Reply::Array(parts) if parts.len() == 2));
    assert!(is_error(&client.call("BACKUP BEGIN"), "ERR Another backup is under way"));
    assert_eq!(client.call("BACKUP END"), ok());
    assert!(is_error(&client.call("BACKUP END"), "ERR This connection has begun no backup"));
    let folder = server.folder();
    // A folder with something else.
    fs::create_dir(folder.join("backups")).expect("a folder");
    fs::write(folder.join("backups/mine"), "text").expect("a file");
    let (is_done, told) = back_up(&server, &[]);
    assert!(!is_done && told.contains("not empty: it has mine"), "{told}");
    fs::remove_file(folder.join("backups/mine")).expect("it is there");
    let (is_done, told) = program(&["backup", "--from", &folder.join("socket"), &folder.join("data")]);
    assert!(!is_done && told.contains("is not a folder of backups"), "{told}");
    let (is_done, told) = program(&["restore", &folder.join("backups"), &folder.join("new")]);
    assert!(!is_done && told.contains("has no backups"), "{told}");
    assert!(back_up(&server, &[]).0);
    let (is_done, told) = program(&["restore", &folder.join("backups"), &folder.join("data")]);
    assert!(!is_done && told.contains("is not empty"), "{told}");
    let (is_done, told) =
        program(&["restore", &folder.join("backups"), &folder.join("new"), "--backup", "7"]);
    assert!(!is_done && told.contains("there is no backup 7"), "{told}");
    // A server that is started there would begin without data.
    let is_made = || Path::new(&folder.join("new")).exists();
    assert!(!is_made());
    let names = fs::read_dir(folder.join("backups")).expect("the folder");
    let mut names = names.map(|entry| entry.expect("a file").file_name().into_string().expect("UTF-8"));
    let heap = names.find(|name| name.starts_with("heap-")).expect("a heap");
    let (heap, away) = (folder.join(&format!("backups/{heap}")), folder.join("away"));
    fs::rename(&heap, &away).expect("it is there");
    let (is_done, told) = program(&["restore", &folder.join("backups"), &folder.join("new")]);
    assert!(!is_done && told.contains("the file is missing") && !is_made(), "{told}");
    fs::rename(&away, &heap).expect("it is there");
    // A backup that has lost its head is none, and there is no other one.
    let manifest = folder.join("backups/backup-1");
    let whole = fs::read(&manifest).expect("a manifest");
    fs::write(&manifest, [&[0; 4096], &whole[4096..]].concat()).expect("it is there");
    let (is_sound, told) = program(&["check", &folder.join("backups")]);
    assert!(
        !is_sound && told.contains("has no sound backup") && told.contains("note: backup-1 was not"),
        "{told}"
    );
    fs::write(&manifest, whole).expect("it is there");
    // A flipped bit of each file.
    let mut rng = Rng(seed());
    for entry in fs::read_dir(folder.join("backups")).expect("the folder") {
        let name = entry.expect("a file").file_name().into_string().expect("UTF-8");
        let (name, path) = (format!("backups/{name}"), name);
        let len = fs::metadata(folder.join(&name)).expect("its length").len();
        if len == 0 {
            continue; // The lock.
        }
        let (at, bit) = (rng.below(len), rng.below(8));
        folder.flip_bit(&name, at, bit);
        let (is_sound, told) = program(&["check", &folder.join("backups")]);
        assert!(!is_sound && told.contains(&path), "{told}");
        let (is_done, told) = program(&["restore", &folder.join("backups"), &folder.join("new")]);
        assert!(!is_done, "{told}");
        let _ = fs::remove_dir_all(folder.join("new"));
        folder.flip_bit(&name, at, bit);
    }
    assert!(program(&["check", &folder.join("backups")]).0);
    // What was not restored to its end is no data folder.
    let data = restore(folder, &[]);
    fs::remove_file(data.join("data/superblock")).expect("it is there");
    let mut refused = Server::spawn(data, &[]);
    assert!(!refused.wait().success());
    assert!(refused.log().contains("no superblock"), "{}", refused.log());
}

/// Such a backup had the heap of what was taken back, and the log of what came instead.
#[test]
fn what_was_put_back_is_not_backed_up_on_top_of_what_it_was() {
    let mut server = Server::start(&[]);
    let backups = Folder::new();
    let back_up = |server: &Server| {
        program(&["backup", "--from", &server.folder().join("socket"), &backups.join("backups")])
    };
    server.client().call("SET key before");
    let folder = server.stop();
    let (data, kept) = (folder.join("data"), folder.join("kept"));
    let copy = |from: &str, to: &str| {
        assert!(Command::new("cp").args(["-a", from, to]).status().expect("cp runs").success());
    };
    copy(&data, &kept);
    server = Server::start_in(folder, &[]);
    server.client().call("DEBUG POPULATE 1000");
    server.client().call("SAVE");
    let (is_done, told) = back_up(&server);
    assert!(is_done, "{told}");
    let folder = server.kill();
    fs::remove_dir_all(&data).expect("it is there");
    copy(&kept, &data);
    server = Server::start_in(folder, &[]);
    server.client().call("SET key after");
    let (is_done, told) = back_up(&server);
    assert!(!is_done && told.contains("has been put back") && !told.contains("panicked"), "{told}");
}

#[test]
fn a_medium_that_is_full_fails_the_backup_only() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for n in 0..500 {
        call(&mut client, &["SET", &format!("key:{n}"), &"x".repeat(4000)]);
    }
    let backups = server.folder().join("backups");
    fs::create_dir(&backups).expect("a folder");
    let script = "mount -t tmpfs -o size=1m none \"$1\" && exec \"$2\" backup --from \"$3\" \"$1\"";
    let output = Command::new("unshare")
        .args(["-Urm", "sh", "-c", script, "sh", &backups, env!("CARGO_BIN_EXE_holdfast")])
        .arg(server.folder().join("socket"))
        .output()
        .expect("it runs");
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    if told.contains("unshare") || told.contains("mount") {
        eprintln!("passed over: no medium can be made here: {told}");
        return;
    }
    assert!(!output.status.success() && told.contains("No space left on device"), "{told}");
    assert_eq!(client.call("SET key value"), ok());
    assert!(back_up(&server, &[]).0);
}

/// What docs/operations.md tells an operator to type.
#[test]
fn the_commands_of_the_documentation_work() {
    let text =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).expect("the page");
    let section = text.split("\n## ").find(|section| section.starts_with("Back up\n")).expect("the section");
    let server = Server::start(&[]);
    let folder = server.folder();
    // So that there is a state between two backups, with clock marks around it.
    let told = back_up(&server, &[]).1;
    let moment = told.lines().find_map(|line| line.strip_prefix("moment: LSN ")).expect("a moment");
    let mut time = 0;
    for _ in 0..2 {
        time = unix_time();
        call(&mut server.client(), &["INCR", "key"]);
        wait_for_a_mark();
    }
    let places = [
        ("localhost:6379", folder.join("socket")),
        ("/backups/one", folder.join("backups")),
        ("/var/lib/holdfast", folder.join("new")),
        ("2026-03-01T11:59:30Z", time.to_string()),
        ("123456789", moment.to_owned()),
    ];
    let commands: Vec<_> = section.lines().filter_map(|line| line.strip_prefix("    holdfast ")).collect();
    assert!(commands.len() >= 4, "{commands:?}");
    for command in commands {
        let here =
            places.iter().fold(command.to_owned(), |command, (there, here)| command.replace(there, here));
        let (is_done, told) = program(&here.split(' ').collect::<Vec<_>>());
        assert!(is_done && told.ends_with("ok\n"), "{command}: {told}");
    }
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs()
}

/// The log has a clock mark a second, while something is written.
fn wait_for_a_mark() {
    thread::sleep(Duration::from_millis(1600));
}

#[test]
fn a_point_in_time_between_backups_is_restored() {
    let server = Server::start(&[]);
    let mut client = server.client();
    call(&mut client, &["SET", "key", "1"]);
    let (is_done, told) = back_up(&server, &[]);
    assert!(is_done, "{told}");
    let moment = told.lines().find_map(|line| line.strip_prefix("moment: LSN ")).expect("a moment");
    wait_for_a_mark();
    call(&mut client, &["SET", "key", "2"]);
    wait_for_a_mark();
    let time = unix_time();
    wait_for_a_mark();
    // The log has a mark behind this one, too.
    call(&mut client, &["SET", "key", "3"]);
    wait_for_a_mark();
    call(&mut client, &["SET", "key", "4"]);
    assert!(back_up(&server, &[]).0);
    let folder = server.stop();
    let (is_sound, told) = program(&["check", &folder.join("backups")]);
    assert!(is_sound && told.contains(": a state from LSN "), "{told}");
    for (option, point, value) in [("--lsn", moment, "1"), ("--time", &time.to_string(), "2")] {
        let server = Server::start_in(restore(&folder, &[option, point]), &[]);
        assert_eq!(text(&server.client().call("GET key")), value, "{option} {point}");
    }
    let new = folder.join("new");
    for (option, point, what) in [
        ("--lsn", "1", "have no state of LSN 1"),
        ("--lsn", "999999999999", "have no state of LSN"),
        ("--time", "1971-01-01T00:00:00Z", "have no state of that time"),
        ("--time", "tomorrow", "is no time such as"),
        ("--lsn", "x", "'x' is no LSN"),
    ] {
        let (is_done, told) = program(&["restore", &folder.join("backups"), &new, option, point]);
        assert!(!is_done && told.contains(what) && !Path::new(&new).exists(), "{told}");
    }
}
