//! Backups in a folder: what a server has pinned is copied there, each byte checked by its checksum, and can be verified and restored
//! from there. See `docs/format.md`, "Backups".
//!
//! One process copies while another one serves, and both agree by a [`plan::Plan`]. Uses of the store only what is on the media.

pub mod folder;
mod manifest;
mod moment;
pub mod plan;
pub mod point;
mod view;
