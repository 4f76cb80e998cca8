//! What could be in any program: numbers, patterns, memory. It uses nothing else of the server.

pub mod allocator;
pub mod console;
pub mod counter;
pub mod ending;
pub mod extended;
pub mod glob;
pub mod memory;
pub mod open_files;
pub mod program;
pub mod progress;
pub mod random;
pub mod runtime;
pub mod version;
