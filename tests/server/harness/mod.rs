//! What the black-box tests share: the real binary in a folder of its own, clients that speak plain RESP to it over a
//! real socket, and random choices from a seed.

mod client;
mod folder;
pub mod http;
mod installed;
mod random;
mod redis;
pub mod rounds;
pub mod sample;
mod script;
mod server;
mod set;
pub mod transfers;
mod way;
pub mod written;

pub use client::{Client, array, bulk, bulks, error, is_error, items, number, ok, redirected_to, text};
pub use folder::Folder;
pub use installed::passes_if_installed;
pub use random::{Rng, long_form, noise, seed};
pub use redis::{Redis, redis_cli};
pub use script::show;
pub use server::{Server, assert_sound, check, free_port, holdfast, holdfast_cluster, program, run, told};
pub use set::{Set, by_ways, part};
pub use way::Way;

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Ends the threads of a test that look at a flag, also if it fails: else it would wait for them for ever.
pub struct EndOnDrop<'a>(pub &'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Waits until something holds; `what` says what was waited for in vain.
pub fn wait_until(what: impl FnOnce() -> String, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {}", what());
        thread::sleep(Duration::from_millis(2));
    }
}
