//! The client library's interface for Python: the module `holdfast._native`, of which the package in `clients/python` is
//! made.
//!
//! Nothing here waits with the interpreter's lock (GIL), neither for a server nor for the client's own lock: every call
//! to the client lets go of it first. What the client drops meanwhile, on whichever thread, is given back to Python by
//! the next call that has it (`buffer::Returned`), so that the client never waits for the GIL either.
//!
//! ```text
//! request   requests, and waiting for several
//! client    the client, and which request is for whom when it is done
//! argument  what Python hands over
//! reply     what Python gets back
//! buffer    memory of Python's objects: the only file with `unsafe`
//! error     exceptions
//! ```

mod argument;
mod buffer;
mod client;
mod error;
mod reply;
mod request;

use pyo3::prelude::*;

/// What `holdfast/__init__.py` hands on.
#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<client::Client>()?;
    module.add_class::<request::Request>()?;
    module.add_function(wrap_pyfunction!(request::wait_any, module)?)?;
    module.add_function(wrap_pyfunction!(request::wait_some, module)?)?;
    module.add_function(wrap_pyfunction!(request::wait_all, module)?)
}
