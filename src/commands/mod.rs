//! The commands: one file per family, with its rows of the command table and their handlers.

mod acl;
mod backup;
mod bitmaps;
mod blocking;
mod clients;
mod cluster;
mod configuration;
mod connection;
mod debug;
pub mod dump;
mod endurance;
mod expire_time;
mod expiry;
mod fields;
mod functions;
mod geo;
mod graph;
mod hashes;
mod hyperloglog;
mod info;
mod introspection;
mod keys;
mod keyspace;
mod latency;
mod lcs;
mod lists;
mod lolwut;
mod memory;
mod migrate;
mod models;
mod ngrams;
mod persistence;
mod prelude;
mod pubsub;
mod replica_set;
mod replication;
mod scan;
mod scm;
mod scripting;
mod server;
mod sets;
mod slowlog;
mod sort;
mod streams;
mod strings;
mod tensors;
mod tracking;
mod transactions;
mod vectors;
mod zsets;

use crate::exec::handler::{Row, Rows};
pub use cluster::{NO_SLOTS, check_replicates, parse_meeting, take_over};
pub use connection::hello_reply;
pub use info::human;
use std::sync::LazyLock;

/// The rows of all commands.
pub static ROWS: LazyLock<Rows> = LazyLock::new(|| Rows::new(FAMILIES));

const FAMILIES: &[&[Row]] = &[
    acl::COMMANDS,
    backup::COMMANDS,
    bitmaps::COMMANDS,
    clients::COMMANDS,
    cluster::COMMANDS,
    configuration::COMMANDS,
    connection::COMMANDS,
    debug::COMMANDS,
    dump::COMMANDS,
    endurance::COMMANDS,
    expiry::COMMANDS,
    fields::COMMANDS,
    geo::COMMANDS,
    graph::COMMANDS,
    functions::COMMANDS,
    hashes::COMMANDS,
    hyperloglog::COMMANDS,
    info::COMMANDS,
    introspection::COMMANDS,
    keys::COMMANDS,
    keyspace::COMMANDS,
    latency::COMMANDS,
    lists::COMMANDS,
    lolwut::COMMANDS,
    memory::COMMANDS,
    migrate::COMMANDS,
    models::COMMANDS,
    ngrams::COMMANDS,
    persistence::COMMANDS,
    pubsub::COMMANDS,
    replica_set::COMMANDS,
    replication::COMMANDS,
    scm::COMMANDS,
    scripting::COMMANDS,
    server::COMMANDS,
    sets::COMMANDS,
    slowlog::COMMANDS,
    sort::COMMANDS,
    streams::COMMANDS,
    strings::COMMANDS,
    tensors::COMMANDS,
    transactions::COMMANDS,
    vectors::COMMANDS,
    zsets::COMMANDS,
];
