//! The client library's interface for C, and so for all languages that can call C. `clients/c/include/holdfast.h` is
//! written by cbindgen from `abi`, the only file with `unsafe`; `clients/c/README.md` says how to use it.

mod abi;
mod handles;

pub use abi::*;
