//! What waits for the log: replies until it is durable, and writers until it has room.

pub mod admission;
pub mod durability;
pub mod lease;
