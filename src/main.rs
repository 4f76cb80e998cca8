//! The Holdfast server.
fn main() {}
