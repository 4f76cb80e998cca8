//! Copies of a data folder that a server uses: one made file by file opens only if it is of one moment, and else says that it is torn; a
//! snapshot of the file system always is.

use crate::harness::{
    Client, Folder, Rng, Server, long_form, number, program, run, seed, text, told,
    transfers::{WRITERS, is_between, while_writing},
};
use holdfast_resp::{Reply, write_command};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// The log goes around, and pages leave memory.
const OPTIONS: [&str; 4] = ["--maxmemory", "24mb", "--log-max-size", "64mb"];

/// The n-th transaction of a writer: its number in a value of each kind.
fn transact(client: &mut Client, rng: &mut Rng, writer: u64, n: u64) {
    let (count, w, n) = (n, writer, n.to_string());
    let filler = n.repeat(1 + rng.below(1500) as usize);
    let mut requests = Vec::new();
    let commands: [&[&str]; 6] = [
        &["MULTI"],
        &["SET", &format!("count:{w}"), &n],
        &["RPUSH", &format!("list:{w}"), &n],
        &["HSET", &format!("hash:{w}"), &(count % 50).to_string(), &n],
        &["SET", &format!("filler:{w}:{}", count % 300), &filler],
        &["EXEC"],
    ];
    commands.iter().for_each(|command| write_command(&mut requests, command));
    client.send(&requests);
    (0..5).for_each(|_| drop(client.reply()));
    assert!(matches!(client.reply(), Reply::Array(replies) if replies.len() == 4), "the transaction is done");
}

/// Whether the data is that of one moment; the number of each writer's last transaction in it.
fn check_moment(client: &mut Client) -> Vec<u64> {
    let mut int = |command: &str| number(&client.call(command)).unwrap_or(0);
    let mut counts = Vec::new();
    for writer in 0..WRITERS {
        let n = int(&format!("LLEN list:{writer}"));
        if n > 0 {
            assert_eq!(int(&format!("LINDEX list:{writer} -1")), n);
            assert_eq!(int(&format!("HGET hash:{writer} {}", n % 50)), n);
        }
        counts.push(n);
    }
    for (writer, n) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
        assert_eq!(text(&client.call(&format!("GET count:{writer}"))), n.to_string());
        let first = n.saturating_sub(299).max(1);
        for n in first..=*n {
            let filler = text(&client.call(&format!("GET filler:{writer}:{}", n % 300)));
            assert!(filler.starts_with(&n.to_string()), "{filler} of {n}");
        }
    }
    counts
}

fn command(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|it| it.success())
}

/// `holdfast check` of a copy, which says that it is torn if it is not sound; whether it is.
fn is_one_moment(data: &str) -> bool {
    let output = run(&["check", data]);
    let text = told(&output);
    match output.status.code() {
        Some(0) => return true,
        Some(1) => {}
        _ => panic!("holdfast check ended with {}:\n{text}", output.status),
    }
    assert!(text.contains("it is a torn copy") && text.contains("use holdfast backup"), "{text}");
    false
}

/// Copies a folder file by file in any order, as slowly as one of many gigabytes is copied.
fn copy_slowly(from: &str, to: &str, rng: &mut Rng) {
    let in_folder = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(format!("{from}/{folder}")).expect("a folder");
        let files = entries.filter_map(|entry| entry.ok().filter(|entry| entry.path().is_file()));
        files.map(|file| format!("{folder}/{}", file.file_name().to_str().expect("a name"))).collect()
    };
    let mut files = [in_folder("."), in_folder("log")].concat();
    fs::create_dir_all(format!("{to}/log")).expect("a folder");
    while !files.is_empty() {
        let file = files.swap_remove(rng.below(files.len() as u64) as usize);
        // It may have gone.
        let _ = fs::copy(format!("{from}/{file}"), format!("{to}/{file}"));
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_copy_made_under_load_is_one_moment_or_says_that_it_is_torn() {
    let mut rng = Rng(seed());
    let server = Server::start(&OPTIONS);
    type Copy = (Folder, Vec<u64>, Vec<u64>, bool);
    let (mut copies, mut rng_of_copies) = (Vec::<Copy>::new(), Rng(rng.draw()));
    while_writing(&server, &mut rng, transact, |now| {
        let data = server.folder().join("data");
        let enough = long_form("HOLDFAST_COPIES", 12) as usize;
        // On a busy machine little is written meanwhile: it goes on until one is torn.
        while copies.len() < enough
            || copies.len() < 10 * enough && copies.iter().all(|(.., is_whole)| *is_whole)
        {
            let (copy, before) = (Folder::new(), now());
            match copies.len() % 2 {
                // It fails if a file goes meanwhile, and says so. Its copy is looked at all the same.
                0 => drop(command("cp", &["-r", &data, &copy.join("data")])),
                _ => copy_slowly(&data, &copy.join("data"), &mut rng_of_copies),
            }
            let (after, is_whole) = (now(), is_one_moment(&copy.join("data")));
            copies.push((copy, before, after, is_whole));
        }
    });
    drop(server.stop());
    let mut torn = 0;
    for (copy, before, after, is_whole) in copies {
        if is_whole {
            let server = Server::start_in(copy, &OPTIONS);
            let found = check_moment(&mut server.client());
            assert!(is_between(&found, &before, &after), "{found:?} is not between {before:?} and {after:?}");
            assert!(server.log().contains("the folder is a copy of one that was in use"), "{}", server.log());
            continue;
        }
        torn += 1;
        let before = copy.disk_bytes();
        let (is_done, text) = program(&["serve", "--port", "0", "--dir", &copy.join("data")]);
        assert!(!is_done && text.contains("it is a torn copy"), "{text}");
        assert_eq!(copy.disk_bytes(), before, "it is left as it was");
    }
    println!("{torn} copies were torn");
    assert!(torn > 0, "copies under load are of one moment by chance only");
}

#[test]
fn a_copy_of_a_folder_that_nobody_writes_to_opens() {
    let server = Server::start(&OPTIONS);
    let mut client = server.client();
    (1..600).for_each(|n| transact(&mut client, &mut Rng(n), 0, n));
    drop(client);
    let copy = |folder: &Folder| {
        let copy = Folder::new();
        assert!(command("cp", &["-r", &folder.join("data"), &copy.join("data")]));
        copy
    };
    // After a crash it is a copy of a folder that was in use, after an orderly end it is not.
    let folder = server.kill();
    let crashed = copy(&folder);
    let folder = Server::start_in(folder, &OPTIONS).stop();
    assert!(!Path::new(&folder.join("data/in-use")).exists());
    let ended = copy(&folder);
    for (copy, is_told) in [(crashed, true), (ended, false)] {
        let server = Server::start_in(copy, &OPTIONS);
        assert_eq!(check_moment(&mut server.client()), [599, 0, 0]);
        assert_eq!(server.log().contains("is a copy of one that was in use"), is_told);
        // It is in use itself from then on.
        let server = server.restart(Server::kill);
        assert!(!server.log().contains("is a copy of one that was in use"), "{}", server.log());
    }
}

/// A file system of its own, in the file `medium` of a folder, mounted at `data` there.
struct Medium(String);

impl Medium {
    /// `None` where nothing may be mounted.
    fn mount(folder: &Folder) -> Option<Medium> {
        let data = folder.join("data");
        fs::create_dir_all(&data).expect("a folder");
        command("mount", &["-o", "loop", &folder.join("medium"), &data]).then_some(Medium(data))
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        command("umount", &[&self.0]);
    }
}

#[test]
fn a_snapshot_of_the_file_system_is_one_moment() {
    let (original, snapshot) = (Folder::new(), Folder::new());
    let medium = fs::File::create(original.join("medium"));
    medium.and_then(|file| file.set_len(400 << 20)).expect("room");
    if !command("mkfs.ext4", &["-q", &original.join("medium")]) {
        return;
    }
    let Some(mounted) = Medium::mount(&original) else { return };
    let server = Server::start_in(original, &OPTIONS);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    while_writing(&server, &mut Rng(seed()), transact, |now| {
        before = now();
        let (data, medium) = (server.folder().join("data"), server.folder().join("medium"));
        assert!(command("fsfreeze", &["-f", &data]));
        let is_copied = command("cp", &["--sparse=always", &medium, &snapshot.join("medium")]);
        assert!(command("fsfreeze", &["-u", &data]) && is_copied);
        after = now();
    });
    let original = server.kill();
    drop(mounted);
    drop(original);
    let mounted = Medium::mount(&snapshot).expect("as before");
    assert!(is_one_moment(&snapshot.join("data")));
    let server = Server::start_in(snapshot, &OPTIONS);
    let found = check_moment(&mut server.client());
    assert!(is_between(&found, &before, &after), "{found:?} is not between {before:?} and {after:?}");
    // It is no copy of files.
    assert!(!server.log().contains("is a copy of one that was in use"), "{}", server.log());
    let snapshot = server.kill();
    drop(mounted);
    drop(snapshot);
}
