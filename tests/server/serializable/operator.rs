//! What an operator does with servers meanwhile: nothing of it may be seen by who executes transactions, but that they wait, or lose a connection.

use super::actor::Common;
use crate::harness::{Client, EndOnDrop, Folder, Rng, assert_sound, program};
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    sync::atomic::Ordering::Relaxed,
    thread,
    time::{Duration, Instant},
};

/// What is done together, on one connection, each as often as the others.
const OPERATIONS: [&[&str]; 15] = [
    &["CLIENT PAUSE 50 WRITE"],
    &["CLIENT PAUSE 50 ALL"],
    &["CLIENT PAUSE 3000 WRITE", "CLIENT UNPAUSE"],
    &["CLIENT KILL TYPE normal"],
    &["SCRIPT FLUSH"],
    &["MEMORY PURGE"],
    &["BGSAVE"],
    &["CONFIG SET maxmemory 64mb"],
    &["CONFIG SET maxmemory 128mb"],
    &["CONFIG SET maxmemory 0"],
    &["CONFIG SET compression no"],
    &["CONFIG SET compression lz4"],
    &["CONFIG SET compression zstd"],
    &["CONFIG SET tracking-table-max-keys 5"],
    // What is in the one database is as good as in the other one as long as nobody looks.
    &["MULTI", "SWAPDB 0 1", "SWAPDB 0 1", "EXEC"],
];
/// Milliseconds between two of them, at most.
const PAUSE_MS: u64 = 600;
/// How long a copy of a server's data may take, if it is not given up before.
const COPY_MS: u64 = 5000;
/// How fast a backup is.
const RATES: [&str; 2] = ["5mb", "1gb"];
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Does any of it, with any server, until the history is over.
pub fn operate(common: &Common, mut rng: Rng) {
    let _end = EndOnDrop(&common.is_over);
    while !common.is_over.load(Relaxed) {
        thread::sleep(Duration::from_millis(rng.below(PAUSE_MS)));
        let (_, socket) = common.any_server(&mut rng);
        let Ok(mut client) = Client::connect(&socket) else { continue };
        for command in OPERATIONS[rng.below(OPERATIONS.len() as u64) as usize] {
            if client.try_call(command).is_none() {
                break;
            }
        }
    }
}

/// Copies the data of any server, one after another, until the history is over, and gives up some half-way.
pub fn copy(common: &Common, mut rng: Rng) {
    let _end = EndOnDrop(&common.is_over);
    let (mut begun, mut whole) = (0, 0);
    while !common.is_over.load(Relaxed) {
        // Servers of sets are mostly those that follow, and refuse at once.
        thread::sleep(Duration::from_millis(rng.below(PAUSE_MS / 3)));
        let (_, socket) = common.any_server(&mut rng);
        let patience_ms = if rng.one_in(2) { rng.below(PAUSE_MS) } else { COPY_MS };
        let until = Instant::now() + Duration::from_millis(patience_ms);
        let goes_on = || Instant::now() < until && !common.is_over.load(Relaxed);
        if rng.one_in(3) {
            download(&socket, goes_on);
        } else {
            begun += 1;
            whole += usize::from(back_up(&socket, RATES[rng.below(2) as usize], goes_on));
        }
    }
    println!("{whole} of {begun} backups are whole");
}

/// Takes a file as `redis-cli --rdb` does.
fn download(socket: &str, goes_on: impl Fn() -> bool) {
    let Ok(mut stream) = UnixStream::connect(socket) else { return };
    stream.set_read_timeout(Some(LOOK_EVERY)).expect("a socket");
    if stream.write_all(b"REPLCONF rdb-only 1\r\nSYNC\r\n").is_err() {
        return;
    }
    let mut part = vec![0; 1 << 16];
    while goes_on() && !matches!(stream.read(&mut part), Ok(0)) {}
}

/// Makes a backup; whether it is whole. Such a one is restored.
fn back_up(socket: &str, rate: &str, goes_on: impl Fn() -> bool) -> bool {
    let folder = Folder::new();
    let backups = folder.join("backups");
    let mut child = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["backup", "--from", socket, &backups, "--rate", rate])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    let status = loop {
        match child.try_wait().expect("its status") {
            None if goes_on() => thread::sleep(LOOK_EVERY),
            None => {
                child.kill().expect("it runs");
                break child.wait().expect("its status");
            }
            Some(status) => break status,
        }
    };
    if status.success() {
        let (is_restored, told) = program(&["restore", &backups, &folder.join("data")]);
        assert!(is_restored, "{told}");
        assert_sound(&folder);
    }
    status.success()
}
