//! A group of servers that agree on one sequence of entries, so that what one of them was told is done survives the loss of a minority.
//!
//! Raft decides (the crate `raft`; why it: `docs/decisions.md`, "Consensus by raft-rs"). What this crate adds is what an engine without
//! files, network and clock leaves open: the [`Journal`](journal) in which a member remembers what it has promised, the form of
//! [`Message`]s between members, and [`Member`], which has all of it done in the right order. A member does nothing by itself: who owns
//! it ticks it, gives it the messages that arrive, and sends those that it has made. So a group can be simulated in one thread.
//!
//! What the entries mean is the [`Machine`]'s business. Every member has one, and applies the same entries in the same order.

pub mod code;
mod engine;
mod entries;
mod journal;
mod member;
mod members;
mod message;
mod replica;

pub use entries::EachBatch;
pub use member::{Finished, Machine, Member, Options, Role};
pub use members::{Change, MEMBERS_MAX, Members, Peer, Refused};
pub use message::Message;
pub use replica::{ENTRY_BYTES_MAX, Envelope, Extract, Other, ReadLog, Replica};

/// Names a member, for ever: a number that is not 0 and is never given to another one. Nor to the same one after it has lost its journal, unless
/// all others have answered a leader since, whose copy it begins with ([`Replica::adopt`]).
pub type MemberId = u64;
