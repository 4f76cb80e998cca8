//! What any store could have: threads, a lock, what the processor does for us. Uses nothing of the store.

pub mod background;
pub mod lock;
pub mod probe;
