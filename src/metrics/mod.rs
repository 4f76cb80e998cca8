//! The metrics port: what an operator's tools ask by HTTP. It shows [`figures`](crate::figures), in a thread of its own, so that who
//! asks slowly, or often, keeps no client waiting.

mod encode;
mod port;
mod snapshot;

pub use port::Bound;
