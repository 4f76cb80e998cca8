//! The MPI programs of `examples/mpi`, in C and Fortran, with a few processes: they check their results themselves, also when the server
//! is killed meanwhile. Those in Python are run by `tests/client_python.rs`.

use std::{env, process::Command};

// Built for the tests: the C library lies beside them.
use holdfast as _;

/// What `run` ends with if there is no MPI.
const NOT_INSTALLED: i32 = 3;

fn run(args: &[&str]) {
    let program = env::current_exe().expect("this program");
    let status = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/mpi/run"))
        .args(["--server", env!("CARGO_BIN_EXE_holdfast"), "--languages", "c,fortran", "--library"])
        .arg(program.parent().expect("a folder"))
        .args(args)
        .status()
        .expect("Python runs");
    assert!(matches!(status.code(), Some(0 | NOT_INSTALLED)), "{args:?}: {status}");
}

#[test]
fn counts_edges_and_chunks_are_exact() {
    run(&["--ranks", "3", "--share", "0.05"]);
}

#[test]
fn nothing_acknowledged_is_missing_after_kill_9() {
    run(&["--ranks", "3", "--share", "0.1", "--kill"]);
}
