//! Replies as objects of Python.

use crate::error;
use holdfast_client::Reply;
use pyo3::{
    prelude::*,
    types::{PyBool, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple},
};

/// A reply as an object. Errors within one are objects, too, and not raised.
pub fn object<'py>(py: Python<'py>, reply: &Reply) -> PyResult<Bound<'py, PyAny>> {
    Ok(match reply {
        Reply::Array(items) | Reply::Push(items) => {
            PyList::new(py, items.iter().map(|item| object(py, item)).collect::<PyResult<Vec<_>>>()?)?
                .into_any()
        }
        Reply::Map(pairs) => {
            let dict = PyDict::new(py);
            for (key, value) in pairs {
                dict.set_item(hashable(py, key)?, object(py, value)?)?;
            }
            dict.into_any()
        }
        Reply::Set(items) => {
            PySet::new(py, items.iter().map(|item| hashable(py, item)).collect::<PyResult<Vec<_>>>()?)?
                .into_any()
        }
        scalar => self::scalar(py, scalar)?,
    })
}

/// The same for what is a key or an element of a set: tuples and frozen sets instead of lists, maps and sets.
fn hashable<'py>(py: Python<'py>, reply: &Reply) -> PyResult<Bound<'py, PyAny>> {
    let all = |items: &[Reply]| items.iter().map(|item| hashable(py, item)).collect::<PyResult<Vec<_>>>();
    Ok(match reply {
        Reply::Array(items) | Reply::Push(items) => PyTuple::new(py, all(items)?)?.into_any(),
        Reply::Set(items) => PyFrozenSet::new(py, all(items)?)?.into_any(),
        Reply::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| Ok((hashable(py, key)?, hashable(py, value)?)));
            PyTuple::new(py, pairs.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        scalar => self::scalar(py, scalar)?,
    })
}

/// A reply that has no elements.
fn scalar<'py>(py: Python<'py>, reply: &Reply) -> PyResult<Bound<'py, PyAny>> {
    Ok(match reply {
        Reply::Simple(text) => PyString::new(py, &String::from_utf8_lossy(text)).into_any(),
        Reply::Error(text) => error::reply(py, text)?,
        Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => PyBytes::new(py, bytes).into_any(),
        Reply::Int(number) => PyInt::new(py, *number).into_any(),
        Reply::Double(number) => PyFloat::new(py, *number).into_any(),
        Reply::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        Reply::BigNumber(digits) => {
            // Python refuses thousands of digits, and a server may send anything.
            let text = PyString::new(py, &String::from_utf8_lossy(digits));
            match py.get_type::<PyInt>().call1((text,)) {
                Ok(number) => number,
                Err(_) => PyBytes::new(py, digits).into_any(),
            }
        }
        Reply::Null | Reply::Array(_) | Reply::Push(_) | Reply::Map(_) | Reply::Set(_) => {
            py.None().into_bound(py)
        }
    })
}
