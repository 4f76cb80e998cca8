//! Memory of Python's objects by the buffer protocol. As long as a [`Buffer`] is there, its object keeps the memory where it
//! is and as long as it is: a `bytearray` cannot be resized, an array is not freed.
//!
//! What the memory holds may be changed by Python code at any time, as with every extension that lets go of the GIL. The
//! library only copies these bytes, and decides nothing by them: short arguments, among them commands' names and keys,
//! are copied before it sees them (`argument`).

use parking_lot::Mutex;
use pyo3::{exceptions::PyTypeError, ffi, prelude::*};
use std::{ffi::CStr, mem, ptr, slice, sync::Arc};

/// A contiguous buffer of a Python object, its elements in C's order.
pub struct Buffer(Box<ffi::Py_buffer>);

// SAFETY: the view is not changed after it was filled; releasing it needs the GIL, which `drop` takes.
unsafe impl Send for Buffer {}

impl Buffer {
    /// The object's memory, to be read.
    pub fn readable(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        Buffer::get(object, ffi::PyBUF_CONTIG_RO)
    }

    /// The object's memory, to be written to; `BufferError` if it is read-only or not contiguous.
    pub fn writable(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        Buffer::get(object, ffi::PyBUF_CONTIG)
    }

    fn get(object: &Bound<'_, PyAny>, flags: i32) -> PyResult<Buffer> {
        let buffer = match Buffer::of_kind(object, flags | ffi::PyBUF_FORMAT) {
            // Numpy has types that no format describes, such as datetime64 and bfloat16.
            Err(_) if is_plain_array(object) => Buffer::of_kind(object, flags)?,
            buffer => buffer?,
        };
        if buffer.has_objects() {
            return Err(PyTypeError::new_err("references to Python objects are no bytes that can be stored"));
        }
        Ok(buffer)
    }

    fn of_kind(object: &Bound<'_, PyAny>, flags: i32) -> PyResult<Buffer> {
        // SAFETY: the object is one, and we have the GIL.
        if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 0 {
            let kind = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("a bytes-like object is needed, not '{kind}'")));
        }
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: as above; the view is ours, and stays where it is in memory, to which some objects point.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &mut *view, flags) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Buffer(view))
    }

    /// Whether its elements have references to Python objects in them, which are `O` in a format; names of fields are between
    /// colons.
    fn has_objects(&self) -> bool {
        if self.0.format.is_null() {
            return false;
        }
        // SAFETY: not null, so it is a string that stays until the view is released.
        let format = unsafe { CStr::from_ptr(self.0.format) };
        format.to_bytes().split(|&byte| byte == b':').step_by(2).any(|types| types.contains(&b'O'))
    }

    /// Whether it is a single value and no array.
    pub fn is_scalar(&self) -> bool {
        self.0.ndim == 0
    }

    fn len(&self) -> usize {
        usize::try_from(self.0.len).unwrap_or(0)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self.len() {
            0 => &[],
            // SAFETY: the object has promised so many contiguous bytes until the view is released. That nobody changes
            // them meanwhile is not sure; see above.
            len => unsafe { slice::from_raw_parts(self.0.buf.cast(), len) },
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self.len() {
            0 => &mut [],
            // SAFETY: as above, and the view is one for writing: `Target` is made of no other.
            len => unsafe { slice::from_raw_parts_mut(self.0.buf.cast(), len) },
        }
    }
}

/// Whether it is an array of numpy whose elements have no references in them.
fn is_plain_array(object: &Bound<'_, PyAny>) -> bool {
    let has_objects = object.getattr("dtype").and_then(|dtype| dtype.getattr("hasobject")?.is_truthy());
    has_objects.is_ok_and(|has| !has)
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // An interpreter that has ended has freed its objects.
        Python::try_attach(|_| {
            // SAFETY: filled by `PyObject_GetBuffer`, and not used again.
            unsafe { ffi::PyBuffer_Release(ptr::from_mut(&mut *self.0)) }
        });
    }
}

/// Buffers that the client has dropped. It does so with its own lock, where it must not wait for the GIL: who has that
/// gives them back.
#[derive(Default)]
pub struct Returned(Mutex<Vec<Buffer>>);

impl Returned {
    /// Gives them back to their objects.
    pub fn release(&self, _: Python<'_>) {
        let returned = mem::take(&mut *self.0.lock());
        // Not with the lock: an object may do anything when it gets its buffer back.
        drop(returned);
    }
}

/// A buffer that the client has.
pub struct Lent {
    buffer: Option<Buffer>,
    returned: Arc<Returned>,
}

impl Lent {
    pub fn new(buffer: Buffer, returned: &Arc<Returned>) -> Lent {
        Lent { buffer: Some(buffer), returned: Arc::clone(returned) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.returned.0.lock().extend(self.buffer.take());
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], Buffer::bytes)
    }
}

/// A buffer for a reply, which the client has.
pub struct LentTarget(Lent);

impl LentTarget {
    /// Of an object whose memory can be written to.
    pub fn new(object: &Bound<'_, PyAny>, returned: &Arc<Returned>) -> PyResult<LentTarget> {
        Ok(LentTarget(Lent::new(Buffer::writable(object)?, returned)))
    }
}

impl AsMut<[u8]> for LentTarget {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.buffer.as_mut().map_or(&mut [], Buffer::bytes_mut)
    }
}
