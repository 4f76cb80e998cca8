//! Starts and ends of the real binary: what it refuses, what it says then, and what it finds after each kind of end.

use crate::harness::{Client, Folder, Rng, Server, bulk, check, is_error, number, ok, run, seed};
use holdfast_resp::{Reply, write_command};
use holdfast_store::FORMAT_VERSIONS;
use std::{collections::BTreeMap, fs, path::PathBuf, time::SystemTime};

const PAGE: usize = 4096;

/// What a server says when it must refuse a folder's data.
fn refusal(folder: &Folder) -> String {
    let args = ["--port", "0", "--unixsocket", &folder.join("socket"), "--dir", &folder.join("data")];
    let output = run(&args);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{text}");
    text
}

/// A server with `keys` strings.
fn filled(keys: usize) -> Server {
    let server = Server::start(&[]);
    fill(&mut server.client(), 0, keys);
    server
}

fn fill(client: &mut Client, from: usize, to: usize) {
    let mut requests = Vec::new();
    for key in from..to {
        write_command(&mut requests, &["SET", &format!("key:{key}"), &value(key)]);
    }
    client.send(&requests);
    for _ in from..to {
        assert_eq!(client.reply(), ok());
    }
}

fn get(client: &mut Client, key: usize) -> Reply {
    client.call(&format!("GET key:{key}"))
}

fn value(key: usize) -> String {
    format!("value:{key}:").repeat(10)
}

fn assert_filled(server: &Server, keys: usize) {
    let mut client = server.client();
    for key in 0..keys {
        assert_eq!(get(&mut client, key), bulk(value(key)));
    }
}

#[test]
fn every_end_is_followed_by_a_start_with_all_data() {
    let mut server = filled(100);
    for round in 1..4 {
        server = server.restart(Server::stop);
        assert_filled(&server, 100 * round);
        fill(&mut server.client(), 100 * round, 100 * round + 50);
        server = server.restart(Server::kill);
        assert_filled(&server, 100 * round + 50);
        fill(&mut server.client(), 100 * round + 50, 100 * round + 100);
        server = server.restart(|mut server| {
            server.client().send(b"SHUTDOWN\r\n");
            assert_eq!(server.wait().code(), Some(0));
            server.kill()
        });
        assert_filled(&server, 100 * (round + 1));
    }
    let (is_sound, text) = check(&server.stop());
    assert!(is_sound && text.contains("keys: 400\n"), "{text}");
}

/// Has both superblocks say that the data is of a version of the format.
fn set_version(folder: &Folder, version: u32) {
    let mut blocks = folder.read("data/superblock");
    for block in blocks.chunks_mut(PAGE) {
        block[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = crc32c::crc32c(&block[..PAGE - 4]);
        block[PAGE - 4..].copy_from_slice(&crc.to_le_bytes());
    }
    folder.write_at("data/superblock", 0, &blocks);
}

#[test]
fn data_of_another_version_is_refused_untouched() {
    let (first, last) = FORMAT_VERSIONS.into_inner();
    for version in [1, first - 1, last + 1] {
        let folder = filled(10).stop();
        set_version(&folder, version);
        let files = |folder: &Folder| {
            ["data/superblock", "data/heap", "data/log/00000000"].map(|name| folder.read(name))
        };
        let before = files(&folder);
        let text = refusal(&folder);
        let (age, what) = match version > last {
            true => ("newer", "start that version"),
            false => ("older", "move the keys by MIGRATE"),
        };
        let versions = format!("(format {version}; this one reads formats {first} to {last}");
        let says = |words: &str| text.contains(words);
        assert!(says(&format!("made by an {age}")) || says(&format!("made by a {age}")), "{text}");
        assert!(says(&versions) && says(what), "{text}");
        assert!(!check(&folder).0);
        assert!(files(&folder) == before, "the files are as they were");
    }
}

#[test]
fn either_superblock_heals_the_other() {
    let mut rng = Rng(seed());
    let mut folder = filled(100).stop();
    for copy in [0, 1, rng.below(2)] {
        folder.flip_bit("data/superblock", copy * PAGE as u64 + rng.below(PAGE as u64), rng.below(8));
        let server = Server::start_in(folder, &[]);
        let log = server.log();
        assert!(log.contains(&format!("superblock at offset {}", copy * PAGE as u64)), "{log}");
        assert_filled(&server, 100);
        folder = server.stop();
        let (is_sound, text) = check(&folder);
        assert!(is_sound && !text.contains("note"), "{text}");
    }
    let bit = rng.below(8);
    folder.flip_bit("data/superblock", rng.below(PAGE as u64), bit);
    folder.flip_bit("data/superblock", PAGE as u64 + rng.below(PAGE as u64), bit);
    for text in [refusal(&folder), check(&folder).1] {
        assert!(text.contains("corrupt: superblock at offset 0"), "{text}");
    }
}

/// What lies in a data folder: the bytes of files, and when all of it was changed.
fn contents(folder: &Folder) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let mut contents = BTreeMap::new();
    for name in ["data", "data/log"] {
        let folder = PathBuf::from(folder.join(name));
        let entries = fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        for path in entries.chain([folder.clone()]) {
            let bytes = if path.is_file() { fs::read(&path).expect("a file") } else { Vec::new() };
            let changed = fs::metadata(&path).and_then(|meta| meta.modified()).expect("a time");
            contents.insert(path, (changed, bytes));
        }
    }
    contents
}

/// What a crash has left is for the next start to mend.
#[test]
fn a_check_leaves_everything_as_it_is() {
    let server = filled(100);
    assert!(check(server.folder()).1.contains("is in use by another process"));
    let folder = server.kill();
    let sound_and_untouched = |folder: &Folder| {
        let before = contents(folder);
        let (is_sound, text) = check(folder);
        assert!(is_sound && text.contains("keys: 100\n"), "{text}");
        assert!(contents(folder) == before, "something was written");
        text
    };
    let text = sound_and_untouched(&folder);
    assert!(!text.contains("note"), "{text}");

    // The header of a batch that follows the last one, and no batch; it lies in the first segment.
    let checkpoint = u64::from_le_bytes(folder.read("data/superblock")[64..72].try_into().unwrap());
    let lsn = checkpoint + offset_after(&text, " batches, ").expect("the bytes to replay");
    let torn = PAGE as u64 + lsn;
    folder.write_at("data/log/00000000", torn, &[16, 0, 0, 0, 1, 2, 3, 4]);
    folder.write_at("data/log/00000000", torn + 8, &lsn.to_le_bytes());
    folder.flip_bit("data/superblock", PAGE as u64 + 20, 1);
    // As in a copy of the data.
    fs::remove_file(folder.join("data/lock")).expect("a lock");
    let text = sound_and_untouched(&folder);
    assert!(text.contains("note: superblock at offset 4096: "), "{text}");
    let cut = format!("note: log/00000000 at offset {torn}: a torn tail of 16 bytes that a start cuts\n");
    assert!(text.contains(&cut), "{text}");

    let server = Server::start_in(folder, &[]);
    assert!(server.log().contains("a torn tail of 16 bytes was cut"), "{}", server.log());
    assert_filled(&server, 100);
    assert!(!sound_and_untouched(&server.stop()).contains("note"));
}

/// A bit of the log that has to be replayed: everything behind it is out of reach, so the server does not start.
#[test]
fn a_flipped_bit_in_the_log_to_replay_is_named() {
    let mut rng = Rng(seed());
    let server = filled(100);
    let logged = server.folder().read("data/log/00000000").iter().rposition(|&byte| byte != 0);
    let end = logged.expect("a log") as u64;
    // The next batch says that all before it was durable. Without it, damage to the end looks like a torn tail.
    fill(&mut server.client(), 100, 101);
    let folder = server.kill();
    // The log begins with LSN 4096, behind a page of its first segment that holds nothing.
    let start = 2 * PAGE as u64;
    for _ in 0..5 {
        let (offset, bit) = (start + rng.below(end - start), rng.below(8));
        folder.flip_bit("data/log/00000000", offset, bit);
        for text in [refusal(&folder), check(&folder).1] {
            let named = offset_after(&text, "corrupt: log/00000000 at offset ");
            assert!(named.is_some_and(|named| named <= offset), "bit {bit} at {offset}: {text}");
        }
        folder.flip_bit("data/log/00000000", offset, bit);
    }
    assert_filled(&Server::start_in(folder, &[]), 101);
}

/// A bit of a value that is older than the last checkpoint: only this value is lost, and it is never served.
#[test]
fn a_flipped_bit_in_a_value_is_named_and_not_served() {
    let folder = filled(100).stop();
    let log = folder.read("data/log/00000000");
    let wanted = value(50);
    let offset =
        log.windows(wanted.len()).position(|bytes| bytes == wanted.as_bytes()).expect("the value") as u64;
    folder.flip_bit("data/log/00000000", offset + 3, 5);

    let (is_sound, text) = check(&folder);
    assert!(!is_sound, "{text}");
    let named = offset_after(&text, "corrupt: log/00000000 at offset ");
    assert!(named.is_some_and(|named| (offset - 100..offset).contains(&named)), "{offset}: {text}");

    let server = Server::start_in(folder, &[]);
    let mut client = server.client();
    let reply = get(&mut client, 50);
    assert!(is_error(&reply, "ERR corrupt: log/00000000 at offset "), "{reply:?}");
    assert_eq!(get(&mut client, 51), bulk(value(51)));
    assert_eq!(client.call_args(&["SET", "key:50", "again"]), ok());
    assert_eq!(get(&mut client, 50), bulk("again"));
    assert!(check(&server.stop()).0, "an overwritten value is not missed");
}

#[test]
fn a_flipped_bit_in_the_heap_is_named_or_harmless() {
    let mut rng = Rng(seed());
    let folder = filled(1000).stop();
    let heap = folder.read("data/heap");
    let used: Vec<usize> = (0..heap.len() / PAGE)
        .filter(|page| heap[page * PAGE..(page + 1) * PAGE].iter().any(|&byte| byte != 0))
        .collect();
    let mut found = 0;
    for _ in 0..20 {
        let page = used[rng.below(used.len() as u64) as usize];
        let (offset, bit) = ((page * PAGE) as u64 + rng.below(PAGE as u64), rng.below(8));
        folder.flip_bit("data/heap", offset, bit);
        let (is_sound, text) = check(&folder);
        if !is_sound {
            let named = offset_after(&text, "corrupt: heap at offset ");
            assert!(
                named.is_some_and(|named| named / PAGE as u64 == page as u64),
                "bit {bit} at {offset}: {text}"
            );
            found += 1;
        }
        folder.flip_bit("data/heap", offset, bit);
    }
    assert!(found > 0, "20 pages that are all unused");
    assert_filled(&Server::start_in(folder, &[]), 1000);
}

/// The number that follows `words` in a message.
fn offset_after(text: &str, words: &str) -> Option<u64> {
    let rest = &text[text.find(words)? + words.len()..];
    rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}

#[test]
fn what_was_acknowledged_before_an_orderly_end_is_there_after_it() {
    let server = filled(0);
    let mut client = server.client();
    for number in 0..10_000 {
        client.send(format!("SET counter {number}\r\n").as_bytes());
    }
    assert_eq!(client.reply(), ok());
    let folder = server.stop();
    let mut acknowledged = 1;
    while client.try_reply().is_some() {
        acknowledged += 1;
    }
    let last = number(&Server::start_in(folder, &[]).client().call("GET counter"));
    assert!(last.is_some_and(|last| last + 1 >= acknowledged), "{acknowledged} acknowledged, {last:?} there");
}

#[test]
fn a_socket_left_by_a_killed_server_is_no_obstacle() {
    let folder = filled(10).kill();
    assert!(fs::exists(folder.join("socket")).expect("a look at the folder"));
    let folder = Server::start_in(folder, &[]).stop();
    assert!(!fs::exists(folder.join("socket")).expect("a look at the folder"));
    // What is no socket is not a server's.
    fs::write(folder.join("file"), "mine").unwrap();
    let output =
        run(&["serve", "--port", "0", "--unixsocket", &folder.join("file"), "--dir", &folder.join("data")]);
    assert_eq!((output.status.code(), &folder.read("file")[..]), (Some(1), &b"mine"[..]));
}

#[test]
fn what_else_lies_in_a_new_data_folder_stays() {
    let folder = Folder::new();
    fs::create_dir(folder.join("data")).unwrap();
    fs::write(folder.join("data/notes"), "mine").unwrap();
    let folder = Server::start_in(folder, &[]).stop();
    assert_eq!(folder.read("data/notes"), b"mine");
    fs::remove_file(folder.join("data/superblock")).unwrap();
    fs::remove_file(folder.join("data/heap")).unwrap();
    let output =
        run(&["serve", "--port", "0", "--unixsocket", &folder.join("s"), "--dir", &folder.join("data")]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("the data folder has a log but no superblock"));
}
