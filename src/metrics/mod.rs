//! The metrics port: what an operator's tools ask by HTTP. It shows [`figures`](crate::figures), to programs and on a page, in a thread of its own, so that who
//! asks slowly, or often, keeps no client waiting.

mod encode;
mod port;
mod snapshot;
mod status;

pub use port::Bound;
