//! Unmodified clients, those that are quick to install: see `tests/clients/run`, which has more.

use std::process::Command;

const CLIENTS: [&str; 9] = [
    "redis-py",
    "hiredis",
    "go-redis",
    "node-redis",
    "ioredis",
    "smartredis",
    "redis-py-cluster",
    "go-redis-cluster",
    "ioredis-cluster",
];

/// What `run` ends with if a client could not be installed, and no other has failed.
const NOT_INSTALLED: i32 = 3;

#[test]
fn clients_find_what_they_expect() {
    let status = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/run"))
        .args(["--server", env!("CARGO_BIN_EXE_holdfast")])
        .args(CLIENTS)
        .status()
        .expect("Python runs");
    // Package managers need a network, which a machine that runs the tests may lack.
    assert!(matches!(status.code(), Some(0 | NOT_INSTALLED)), "{status}");
}
