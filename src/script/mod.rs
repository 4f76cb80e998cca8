//! Scripts in Lua 5.1: EVAL and functions.
//!
//! Each worker has an interpreter of its own ([`engine`]), and all share the sources ([`cache`]). A script runs where its
//! command does, in one transaction that locks partitions as the script meets keys ([`run`]); what it calls goes through the
//! same dispatch as what a client sends.

mod api;
mod bit;
pub mod busy;
pub mod cache;
mod cjson;
mod cmsgpack;
pub mod engine;
pub mod flags;
mod guards;
mod host;
pub mod library;
mod lua;
mod number;
mod pack;
mod reply;
pub mod run;
mod sandbox;
pub mod stack;

pub use api::sha1;
