//! Arguments of commands: what Python hands over, as bytes.

use crate::buffer::{Buffer, Lent, Returned};
use holdfast_client::{COPIED_MAX, Command};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple},
};
use std::{mem, sync::Arc};

/// An argument of a command.
pub enum Argument<'a> {
    /// Of a string, or of bytes that cannot change.
    Borrowed(&'a [u8]),
    /// Of a number, or of a short buffer.
    Copied(Vec<u8>),
    /// More than [`COPIED_MAX`] bytes.
    Buffer(Buffer),
}

impl<'a> Argument<'a> {
    /// A command's name.
    pub fn name(name: &'a str) -> Argument<'a> {
        Argument::Borrowed(name.as_bytes())
    }

    /// The bytes of an object: of a string in UTF-8, of a number its decimal text, of all else its memory.
    pub fn read(object: &'a Bound<'_, PyAny>) -> PyResult<Argument<'a>> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            let bytes = bytes.as_bytes();
            // A long one may be lent, which takes more than to borrow it for the call.
            if bytes.len() <= COPIED_MAX {
                return Ok(Argument::Borrowed(bytes));
            }
        } else if let Ok(text) = object.cast::<PyString>() {
            return Ok(Argument::Borrowed(text.to_str()?.as_bytes()));
        } else if object.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err(
                "a truth value is no argument: say 0 or 1, or what the command takes",
            ));
        } else if let Ok(number) = object.cast::<PyInt>() {
            return Ok(Argument::Copied(match number.extract::<i64>() {
                Ok(number) => number.to_string().into_bytes(),
                Err(_) => number.str()?.to_str()?.as_bytes().to_vec(),
            }));
        } else if let Ok(number) = object.cast::<PyFloat>() {
            // The shortest text that is read as this number again.
            return Ok(Argument::Copied(format!("{:?}", number.value()).into_bytes()));
        }
        let buffer = Buffer::readable(object)?;
        if buffer.is_scalar() {
            return Err(PyTypeError::new_err(
                "an array without dimensions may be meant as a number or as bytes: say int(x), float(x) or x.tobytes()",
            ));
        }
        if buffer.bytes().len() <= COPIED_MAX {
            return Ok(Argument::Copied(buffer.bytes().to_vec()));
        }
        Ok(Argument::Buffer(buffer))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Argument::Borrowed(bytes) => bytes,
            Argument::Copied(bytes) => bytes,
            Argument::Buffer(buffer) => buffer.bytes(),
        }
    }
}

/// The arguments of a command, its name first.
pub fn arguments<'a>(objects: &'a [Bound<'_, PyAny>]) -> PyResult<Vec<Argument<'a>>> {
    if objects.is_empty() {
        return Err(PyValueError::new_err("the command has no name"));
    }
    objects.iter().map(Argument::read).collect()
}

/// Those of a call with any number.
pub fn objects<'py>(args: &Bound<'py, PyTuple>) -> Vec<Bound<'py, PyAny>> {
    args.iter().collect()
}

/// A command of arguments. With `lend`, long buffers are handed over, else copied when the command is submitted.
pub fn command<'a>(args: &'a mut [Argument<'_>], lend: bool, returned: &Arc<Returned>) -> Command<'a> {
    let (name, rest) = args.split_first_mut().expect("a command has a name");
    let mut command = Command::new(name.bytes());
    for arg in rest {
        if lend && matches!(arg, Argument::Buffer(_)) {
            if let Argument::Buffer(buffer) = mem::replace(arg, Argument::Borrowed(&[])) {
                command = command.lent(Box::new(Lent::new(buffer, returned)));
            }
        } else {
            command = command.arg(arg.bytes());
        }
    }
    command
}
