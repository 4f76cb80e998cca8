//! The MPI programs of `examples/mpi`, in C and Fortran, with a few processes: they check their results themselves, also when the server
//! is killed meanwhile. Those in Python are run by `tests/server/client_python.rs`.

use crate::harness::passes_if_installed;
use std::{env, path::Path};

// Built for the tests: the C library lies beside them.
use holdfast as _;

fn run(args: &[&str]) {
    let program = env::current_exe().expect("this program");
    let library = program.parent().and_then(Path::to_str).expect("a folder");
    passes_if_installed(
        "examples/mpi/run",
        &[&["--languages", "c,fortran", "--library", library], args].concat(),
    );
}

#[test]
fn counts_edges_and_chunks_are_exact() {
    run(&["--ranks", "3", "--share", "0.05"]);
}

#[test]
fn nothing_acknowledged_is_missing_after_kill_9() {
    run(&["--ranks", "3", "--share", "0.1", "--kill"]);
}
