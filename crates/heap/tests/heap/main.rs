//! The heap as its users see it.

mod alloc;
mod checkpoint;
mod crash;
mod evict;
mod home;
mod media;
mod world;
