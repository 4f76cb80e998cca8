//! Exceptions: the classes of `holdfast._errors`.

use holdfast_client::{Error, Executed};
use pyo3::{exceptions::PyValueError, prelude::*, sync::PyOnceLock};

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// The class of this name.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let classes = CLASSES.get_or_try_init(py, || py.import("holdfast._errors").map(Bound::unbind))?;
    classes.bind(py).getattr(name)
}

fn raised(py: Python<'_>, name: &str, text: &str) -> PyErr {
    match class(py, name).and_then(|class| class.call1((text,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// An error reply as an object.
pub fn reply<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    class(py, "ReplyError")?.call1((&*String::from_utf8_lossy(text),))
}

/// The client was closed, or is another process's.
pub fn closed(py: Python<'_>, text: &str) -> PyErr {
    raised(py, "ClosedError", text)
}

/// The same of a request that was handed over before: the server may have executed it. Other exceptions stay as they are.
pub fn closed_meanwhile(py: Python<'_>, error: PyErr) -> PyErr {
    match class(py, "ClosedError") {
        Ok(closed) if error.is_instance(py, &closed) => {
            raised(py, "ClosedUnknownError", &error.value(py).to_string())
        }
        _ => error,
    }
}

/// The request was released.
pub fn released(py: Python<'_>) -> PyErr {
    raised(py, "ReleasedError", "the request was released")
}

/// What went wrong as an exception, a new one each time.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let unknown = error.executed() == Executed::Unknown;
    let name = match error {
        Error::Server(_) => "ReplyError",
        Error::TooSmall { needed } => {
            let error =
                class(py, "TooSmallError").and_then(|class| class.call1((error.to_string(), *needed)));
            return error.map_or_else(|error| error, PyErr::from_value);
        }
        Error::TooLarge { .. } => "TooLargeError",
        Error::Lost { .. } if unknown => "LostUnknownError",
        Error::Lost { .. } => "LostError",
        Error::TimedOut { .. } if unknown => "TimedOutUnknownError",
        Error::TimedOut { .. } => "TimedOutError",
        Error::Cancelled { .. } if unknown => "CancelledUnknownError",
        Error::Cancelled { .. } => "CancelledError",
        Error::Refused(_) => "RefusedError",
        Error::Redirected(_) => "RedirectedError",
        Error::Full => "FullError",
        Error::NoSuchRequest => return released(py),
        Error::InProgress => return pyo3::exceptions::PyTimeoutError::new_err(error.to_string()),
        Error::Invalid(text) => return PyValueError::new_err(*text),
        Error::Setup(_) => "SetupError",
    };
    raised(py, name, &error.to_string())
}
