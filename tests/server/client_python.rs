//! The client library from Python: the wheel is built, installed, and tested against the real server by
//! `clients/python/tests`.

use crate::harness::passes_if_installed;

#[test]
fn python_calls_right_and_wrong() {
    passes_if_installed("clients/python/tests/run", &[]);
}
