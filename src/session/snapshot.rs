//! What a client of REPLCONF has said about the snapshot that it will ask for by SYNC or PSYNC.

/// What a client wants of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRequest {
    /// The client wants a snapshot and nothing after it: it is no replica.
    pub is_only: bool,
    /// The client understands a transfer whose end is told by a mark, and not by a length before it.
    pub knows_mark: bool,
    /// Keys with their values.
    pub keys: bool,
    /// Libraries of functions.
    pub functions: bool,
    /// The client has called PSYNC, which has a reply of its own.
    pub is_psync: bool,
}

impl Default for SnapshotRequest {
    /// Everything, for a replica of Redis 2.8.
    fn default() -> Self {
        SnapshotRequest { is_only: false, knows_mark: false, keys: true, functions: true, is_psync: false }
    }
}
