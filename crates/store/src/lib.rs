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
//! let ((), gate) = store.run(&[b"greeting"], |_, writes| {
//!     writes.set(0, b"greeting", "hello");
//!     Ok(())
//! })?;
//! store.log().wait_durable(gate)?;
//! let (value, _) = store.get(0, b"greeting", |value| value.map(<[u8]>::to_vec))?;
//! assert_eq!(value.as_deref(), Some(&b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `ARCHITECTURE.md` follows a SET through the layers; `docs/format.md` says what is on the media.

mod access;
mod ahead;
mod background;
mod batch;
mod cache;
mod changes;
mod check;
mod chunk;
mod cleaner;
pub mod collections;
mod copy;
mod creating;
mod digest;
mod eviction;
mod freezer;
mod index;
mod item;
mod maintenance;
mod memory;
mod observers;
mod partition;
mod payload;
mod probe;
mod random;
mod read;
mod run;
mod scan;
mod scratch;
mod shared;
mod stats;
mod steps;
mod store;
mod superblock;
mod txn;
pub mod typed;
mod word;

pub use access::Uses;
pub use ahead::{EXPECTED_MAX, Expected};
pub use changes::{Change, Follow, Wanted, What};
pub use check::CheckReport;
pub use digest::{SLOTS, hash_slot};
pub use eviction::{Among, Eviction, First, Room};
pub use holdfast_heap::{Arena, Image, Tx};
pub use holdfast_io::{Durability, Error as OpenError, Io, RealIo, SimIo};
pub use holdfast_log::{Admission, Appendfsync, Limit, Log, Lsn, Purpose, SMALL_BYTES};
pub use memory::{Memory, Process};
pub use observers::{Observer, ObserverId, Tell, Turn};
pub use partition::{DATABASES, SYSTEM_DATABASE};
pub use run::{Reader, Writes};
pub use scan::ScanStep;
pub use stats::Stats;
pub use store::{Options, Recovery, Store};
pub use superblock::VERSION as FORMAT_VERSION;
pub use txn::{Begun, Cold, Error, Fetched, HeldUp, Located, Result, SetDown, Txn, redo_max};
pub use word::Type;
