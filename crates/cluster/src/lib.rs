//! A cluster: servers, and which of them has which hash slots.
//!
//! That is one [`Map`], which a group of the servers decides on ([`holdfast_consensus`]) and every one of them has: there is no gossip,
//! and there are no two opinions. A [`Change`] of it is refused or done, in an order that is the same everywhere. [`Node`] is a server's
//! part in that: how it joins the others, takes notice of those that fail, and what it sends to whom ([`Frame`]). Like a member of the
//! group it does nothing by itself, so that a cluster can be simulated in one thread.

mod change;
mod frame;
mod map;
mod node;
mod place;
mod slots;

pub use change::Change;
pub use frame::Frame;
pub use holdfast_consensus::MemberId;
pub use map::{Map, Member, Transfer};
pub use node::{Done, Node, NodeOptions};
pub use place::{Address, Name, Seat};
pub use slots::{SLOTS, Slots};
