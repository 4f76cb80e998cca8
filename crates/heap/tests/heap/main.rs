//! The heap as its users see it.

mod alloc;
mod checkpoint;
mod crash;
mod media;
mod world;
