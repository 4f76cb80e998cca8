//! What operators are told: the log of messages, counters, endurance, latency, slow commands, refused writes. It knows commands by their
//! descriptions only.

pub mod endurance;
pub mod latency;
pub mod log;
pub mod refusals;
pub mod scm;
pub mod slow_medium;
pub mod slowlog;
pub mod stats;
pub mod syslog;
