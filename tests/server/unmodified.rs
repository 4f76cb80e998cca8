//! Unmodified clients, those that are quick to install: see `tests/clients/run`, which has more.

use crate::harness::passes_if_installed;

/// Each has a folder of its own to be installed in, which those of one library share.
fn check(clients: &[&str]) {
    passes_if_installed("tests/clients/run", clients);
}

#[test]
fn redis_py_finds_what_it_expects() {
    check(&["redis-py", "redis-py-cluster"]);
}

#[test]
fn hiredis_finds_what_it_expects() {
    check(&["hiredis"]);
}

#[test]
fn go_redis_finds_what_it_expects() {
    check(&["go-redis", "go-redis-cluster"]);
}

#[test]
fn node_redis_finds_what_it_expects() {
    check(&["node-redis"]);
}

#[test]
fn ioredis_finds_what_it_expects() {
    check(&["ioredis", "ioredis-cluster"]);
}

#[test]
fn smartredis_finds_what_it_expects() {
    check(&["smartredis"]);
}
