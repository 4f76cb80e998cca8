//! `holdfast check --salvage`: what is intact in a damaged folder is copied, the rest is told, and the folder stays as it is.

use crate::harness::{
    Client, Folder, Rng, Server, assert_sound, bulk, bulks, check, holdfast, number, run,
    sample::{make_data, state},
    seed, told,
};
use std::{collections::BTreeMap, fs, path::Path};

/// Salvages a server's folder into `new/data`; the exit code, and what was printed.
fn salvage(folder: &Folder, new: &Folder) -> (Option<i32>, String) {
    let before = bytes_of(&folder.path().join("data"));
    let output = run(&["check", "--salvage", &folder.join("data"), &new.join("data")]);
    assert!(before == bytes_of(&folder.path().join("data")), "the damaged folder was changed");
    let text = told(&output);
    (output.status.code(), text)
}

/// All files, with their bytes.
fn bytes_of(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(bytes_of(&path));
        } else {
            all.insert(path.display().to_string(), fs::read(&path).expect("a file"));
        }
    }
    all
}

/// Where in which file of the log some bytes are.
fn places(folder: &Folder, log: &str, wanted: &[u8]) -> Vec<(String, u64)> {
    let mut places = Vec::new();
    for entry in fs::read_dir(folder.join(log)).expect("a log") {
        let name = format!("{log}/{}", entry.expect("an entry").file_name().to_str().expect("a name"));
        let bytes = folder.read(&name);
        let at = bytes.windows(wanted.len()).enumerate().filter(|(_, part)| *part == wanted);
        places.extend(at.map(|(at, _)| (name.clone(), at as u64)));
    }
    places
}

fn flip_each(folder: &Folder, wanted: &str) {
    let places = places(folder, "data/log", wanted.as_bytes());
    assert!(!places.is_empty(), "{wanted} is in the log");
    places.iter().for_each(|(name, at)| folder.flip_bit(name, *at, 2));
}

fn count(client: &mut Client) -> u64 {
    number(&client.call("DBSIZE")).expect("a number")
}

#[test]
fn all_of_a_sound_folder_is_salvaged() {
    let server = Server::start(&[]);
    make_data(&mut server.client(), &mut Rng(seed()), false);
    let expected = state(&mut server.client());
    // As a crash leaves it, and as an orderly end does.
    let mut folder = server.kill();
    for _ in 0..2 {
        let new = Folder::new();
        let (code, text) = salvage(&folder, &new);
        assert!(code == Some(0) && text.ends_with("ok\n"), "{text}");
        assert!(!Path::new(&new.join("data/may-be-older")).exists());
        assert_sound(&new);
        assert_eq!(state(&mut Server::start_in(new, &[]).client()), expected);
        folder = Server::start_in(folder, &[]).stop();
    }
}

#[test]
fn what_is_damaged_is_told_and_the_rest_is_there() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for n in 0..500 {
        client.call(&format!("SET key:{n} value-of-{n}-"));
        client.call(&format!("RPUSH list:{n} element"));
    }
    client.call("EXPIRE key:1 10000");
    let folder = server.stop();
    flip_each(&folder, "value-of-77-");
    flip_each(&folder, "value-of-399-");
    let (is_sound, text) = check(&folder);
    assert!(!is_sound && text.contains("holdfast check --salvage"), "{text}");

    // One that is cut off, here since nobody reads what it tells, leaves nothing that is taken for a data folder.
    let cut = Folder::new();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = holdfast();
    command.args(["check", "--salvage", &folder.join("data"), &cut.join("data")]).stdout(writer);
    assert_eq!(command.status().expect("it runs").code(), Some(1));
    let (is_sound, text) = check(&cut);
    assert!(!is_sound, "{text}");

    let new = Folder::new();
    let (code, text) = salvage(&folder, &new);
    assert_eq!(code, Some(2), "{text}");
    for n in [77, 399] {
        let told = format!("lost: database 0, key \"key:{n}\" (string): corrupt: log/");
        assert!(text.contains(&told) && text.contains(": item checksum\n"), "{text}");
    }
    assert!(text.contains("\nkeys that are lost: at least 2\n"), "{text}");
    assert!(!Path::new(&new.join("data/may-be-older")).exists());
    assert_sound(&new);
    let server = Server::start_in(new, &[]);
    let mut client = server.client();
    assert_eq!(count(&mut client), 998);
    assert_eq!(client.call("GET key:78"), bulk("value-of-78-"));
    assert!(number(&client.call("TTL key:1")).is_some_and(|seconds| seconds > 9000));
    assert_eq!(client.call("LRANGE list:77 0 -1"), bulks(["element"]));
}

#[test]
fn without_a_superblock_what_the_log_has_is_kept_apart() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for n in 0..100 {
        client.call(&format!("SET key:{n} old"));
        client.call(&format!("SET key:{n} value:{n}"));
    }
    client.call("DEL key:3");
    let folder = server.stop();
    for file in ["superblock", "heap"] {
        fs::rename(folder.join(&format!("data/{file}")), folder.join("aside")).expect("a file");
        let new = Folder::new();
        let (code, text) = salvage(&folder, &new);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(&format!("damaged: open {file}: ")), "{text}");
        assert!(text.contains("may be older: database 0, key \"key:3\" (string): "), "{text}");
        assert!(text.contains("keys that are intact: 0, now in "), "{text}");
        let server = Server::start_in(new, &[]);
        assert_eq!(count(&mut server.client()), 0);
        let new = server.stop();
        fs::rename(new.join("data/may-be-older"), new.join("found")).expect("a folder");
        fs::remove_dir_all(new.join("data")).expect("a folder");
        fs::rename(new.join("found"), new.join("data")).expect("a folder");
        let server = Server::start_in(new, &[]);
        assert_eq!(server.client().call("GET key:99"), bulk("value:99"));
        assert_eq!(count(&mut server.client()), 100);
        fs::rename(folder.join("aside"), folder.join(&format!("data/{file}"))).expect("a file");
    }
}

#[test]
fn a_missing_further_folder_costs_what_was_in_it() {
    let folder = Folder::new();
    let second = folder.join("second");
    let server = Server::start_in(folder, &["--dir", &second, "--log-max-size", "64mb"]);
    let mut client = server.client();
    let value = "x".repeat(100_000);
    for n in 0..100 {
        client.call_args(&["SET", &format!("key:{n}"), &value]);
    }
    let folder = server.stop();
    fs::rename(&second, folder.join("gone")).expect("a folder");
    let new = Folder::new();
    let (code, text) = salvage(&folder, &new);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("/second") && text.contains("lost: "), "{text}");
    let server = Server::start_in(new, &[]);
    let mut client = server.client();
    assert!((1..100).contains(&count(&mut client)), "{text}");
}

#[test]
fn what_cannot_be_salvaged_is_refused() {
    let server = Server::start(&[]);
    let folder = server.folder();
    let refused = |args: &[&str], what: &str| {
        let output = run(&[&["check", "--salvage"], args].concat());
        let text = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(output.status.code() == Some(1) && text.contains(what), "{text}");
    };
    let (data, new) = (folder.join("data"), folder.join("new"));
    refused(&[&data, &new], "in use by another process");
    refused(&[&data], "holdfast check --salvage DIR NEW");
    refused(&[&folder.join("none"), &new], "none is no folder");
    fs::create_dir_all(folder.join("empty")).expect("a folder");
    refused(&[&folder.join("empty"), &new], "neither the superblock nor the log can be read");
    let folder = server.stop();
    refused(&[&folder.join("data"), &folder.join("data")], "is not empty");
}
