//! The log, on simulated machines.

mod basic;
mod below;
mod crash;
mod cursor;
mod damage;
mod fixture;
mod groups;
mod space;
