//! How many files the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Allows this process as many open files as it may have, `wanted` if that takes privilege and it has it; returns how
/// many those are.
pub fn raise_limit(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // No figure: there is no limit.
    let (now, most) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    let is_allowed = |&files: &u64| {
        let raised = Rlimit { current: Some(files), maximum: Some(files) };
        setrlimit(Resource::Nofile, raised).is_ok()
    };
    [most.max(wanted), most].into_iter().find(is_allowed).unwrap_or(now)
}
