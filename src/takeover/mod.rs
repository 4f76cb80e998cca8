//! Another process takes over from the one that serves, mostly of a newer version: the data folder, the sockets where it listens, and its
//! clients, which notice a pause and nothing else.
//!
//! The old process ([`give`]) starts the new one, and lends it its sockets. The new one ([`take`]) does what it can without the data, and
//! says that it is ready. Then the old one has its connections rest between two commands, makes everything durable, closes the
//! data folder, and passes the connections on. Up to that moment it goes on by itself if anything fails; afterwards it has another process of
//! its own program do what the new one was to do. At any time, one process at most uses the data folder, one at most reads from a
//! client, and each command is executed by one of them:
//!
//! * the old process closes the folder before it says so, and touches neither it nor a client from then on;
//! * the new one opens the folder after it was told so, and reads from no client before it has said that it serves;
//! * once it has said so, the old one ends.
//!
//! It uses the server and all below it, and is used by the program.

use crate::config::{Config, Opt};

pub mod give;
pub mod take;
mod wire;

/// The variable by which a process learns that it is to take over; what it needs comes by its standard input.
const VARIABLE: &str = "HOLDFAST_TAKE_OVER";
/// What must be the same in both processes: what the data lie on, and whether others have them, too.
const UNCHANGED: [Opt; 5] =
    [Opt::Medium, Opt::FlashDir, Opt::ReplicaSet, Opt::ClusterEnabled, Opt::ReplicaOf];

/// These options, and the further folders, with their values.
fn unchanged(config: &Config) -> impl Iterator<Item = (&'static str, String)> {
    let more: Vec<String> = config.more_dirs().iter().map(|dir| dir.display().to_string()).collect();
    let options = UNCHANGED.map(|opt| (opt.spec().name, config.show(opt)));
    options.into_iter().chain([("dir, the further ones", more.join(" "))])
}

/// The version of what the two processes say to each other.
const VERSION: &str = "1";
