//! Holdfast's store: an embeddable key-value store in which the log is the database and RAM is a cache of it.
//!
//! Keys are spread over *partitions* by Redis Cluster's hash slots. A [`Txn`] locks the partitions of its keys, does what
//! one command (or one MULTI) does, and commits as one batch of the log. The reply may leave when the log is durable
//! beyond the LSN that [`Txn::commit`] returns. [`Store::run`] is for those who embed the store: what it does happens as a whole or
//! not at all.
//!
//! ```
//! use holdfast_store::{Options, SimIo, Store};
//! use std::sync::Arc;
//!
//! // On a real machine: `Store::open("data", Options::default())`.
//! let store = Store::open_on(Arc::new(SimIo::new(1)), Options { heap_bytes_max: 64 << 20, ..Options::default() })?;
//! let ((), wait_lsn) = store.run(&[b"greeting"], |_, writes| {
//!     writes.set(0, b"greeting", "hello");
//!     Ok(())
//! })?;
//! store.log().wait_durable(wait_lsn)?;
//! let (value, _) = store.get(0, b"greeting", |value| value.map(<[u8]>::to_vec))?;
//! assert_eq!(value.as_deref(), Some(&b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `ARCHITECTURE.md` follows a SET through the layers; `docs/format.md` says what is on the media.

mod backup;
mod cache;
mod collections;
mod engine;
mod format;
mod maintenance;
mod partition;
mod salvage;
mod store;
mod txn;
mod typed;
mod util;

pub use backup::{
    folder::{BackupFolder, BackupInfo, BackupWritten},
    plan::Plan,
    point::{RestorePoint, Until},
};
pub use cache::uses::Uses;
pub use collections::{
    Limits, positions_between, redo_max,
    sample::{Wanted, draws},
    uses::Use,
};
pub use engine::locks::{LockBusy, ReleasedLocks};
pub use format::{
    bytes_written::{BytesWritten, WriteCause},
    compress::{Codec, CompressionSetting, CompressionStats},
    digest::{SLOTS, hash_slot},
    entry_word::Type,
    superblock::VERSIONS as FORMAT_VERSIONS,
};
pub use holdfast_heap::{HomeMethod, HomeStats};
pub use holdfast_io::{Durability, Error as OpenError, FolderUse, Further, Io, RealIo, SimIo};
pub use holdfast_log::{
    Admission, Appendfsync, Groups, Limit, Log, LogStats, Lsn, Purpose, Replayed, SMALL_BYTES,
};
pub use maintenance::{
    backup::{BackupState, Begin, Lease},
    disk::DiskUsage,
    eviction::{Eviction, EvictionOrder, EvictionScope, Room},
};
pub use partition::{
    Lookups,
    budget::{Memory, Process},
    changes::{Change, ChangeFilter, ChangeKind, Follow},
    cold::{Cold, ColdItem, Fetched},
    databases::{DATABASES, SYSTEM_DATABASE},
    observers::{Notify, Observer, ObserverId, Turn},
    scan::ScanStep,
};
pub use salvage::{Doubt, End, Finding, LostKey, SalvagedKey, SalvagedValue, salvage};
pub use store::{
    EXPECTED_MAX, FILES, Store,
    check::CheckReport,
    damaged_folders, folders, folders_in_use,
    follow::Follower,
    open::replay_log,
    options::{Options, Recovery, Replication},
    read::Got,
    run::{Reader, Writes},
    stats::Stats,
};
pub use txn::{
    Begun, Txn,
    error::{Error, Result},
    target::Expected,
};
pub use typed::{bitmap, geo, graph, hash, hyperloglog, list, set, stream, string, zset, zset_algebra};
