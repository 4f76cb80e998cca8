//! How far a command has come that is done in several runs.

use crate::{commit::durability::Lsn, session::migration::Migration};
use holdfast_consensus::MemberId;
use holdfast_store::stream::Id;
use tokio::time::Instant;

/// How far a command has come that is done in several runs.
pub enum Progress {
    /// KEYS.
    Keys {
        /// Where the scan goes on.
        cursor: u64,
        /// What it has found so far.
        found: Vec<Vec<u8>>,
    },
    /// SAVE: the number of the checkpoint that it waits for.
    Save(u64),
    /// WAITAOF.
    Durable {
        /// Everything below this is to be durable.
        lsn: Lsn,
        /// When it gives up.
        until: Option<Instant>,
    },
    /// CLUSTER: what came of the change that it has ordered.
    Ordered(Result<(), String>),
    /// REPLICASET ADD and REMOVE: the number of the server, and where the change ends in the log.
    Members(MemberId, Lsn),
    /// BACKUP BEGIN.
    Backup,
    /// CONFIG SET: until when it waits for memory to be given back.
    GiveBack(Instant),
    /// MIGRATE.
    Migrate(Box<Migration>),
    /// GRAPH.REMOVEVERTEX.
    RemoveVertex(Removal),
    /// XREAD: for each of its streams, the ID after which it reads.
    Read(Vec<Id>),
}

/// What GRAPH.REMOVEVERTEX has done with the neighbours of a vertex.
#[derive(Clone, Copy, Default)]
pub struct Removal {
    /// The first so many are such as it may change.
    pub checked: u64,
    /// So many are removed.
    pub neighbours: u64,
    /// And so many edges with them.
    pub edges: u64,
}
