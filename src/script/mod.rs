//! Scripts in Lua 5.1: EVAL and functions.
//!
//! Each worker has an interpreter of its own ([`engine`], [`holdfast_lua`]), and all share the sources ([`cache`]). A script runs where its
//! command does, in one transaction that locks partitions as the script meets keys ([`crate::exec::script`]); what it calls goes through the
//! same dispatch as what a client sends.

pub mod busy;
pub mod cache;
pub mod engine;
pub mod flags;
pub mod library;
pub mod names_keys;
pub mod stack;
