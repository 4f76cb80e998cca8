//! What any store could have: threads, random numbers, what the processor does for us. Uses nothing of the store.

pub mod background;
pub mod probe;
pub mod random;
