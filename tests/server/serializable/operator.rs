//! What an operator does with servers meanwhile: nothing of it may be seen by who executes transactions, but that they wait, or lose a connection.

use super::actor::Common;
use crate::harness::{Client, EndOnDrop, Rng};
use std::{sync::atomic::Ordering::Relaxed, thread, time::Duration};

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
