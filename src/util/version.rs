//! Versions.

/// The version of Redis whose behaviour this is.
pub const REDIS_VERSION: &str = "7.2.4";
/// This program's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
