//! What commands print. Nobody may read it any more, or what it goes to may be full: that ends them, but is no fault of theirs.

use std::{
    fmt::Arguments,
    io::{self, ErrorKind, Write},
    process,
};

/// As `print!`.
macro_rules! out {
    ($($text:tt)*) => { $crate::util::console::print(format_args!($($text)*)) };
}

/// As `println!`.
macro_rules! outln {
    ($($text:tt)*) => { $crate::util::console::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// As `eprintln!`.
macro_rules! errln {
    ($($text:tt)*) => { $crate::util::console::tell(format_args!($($text)*)) };
}

pub(crate) use {errln, out, outln};

/// Prints to standard output. Ends the process with exit code 1 if that cannot be, quietly if nobody reads it.
pub fn print(text: Arguments) {
    let mut out = io::stdout().lock();
    if let Err(e) = out.write_fmt(text).and_then(|()| out.flush()) {
        if e.kind() != ErrorKind::BrokenPipe {
            tell(format_args!("holdfast: cannot write to standard output: {e}"));
        }
        process::exit(1);
    }
}

/// Prints a line to standard error, if that can be.
pub fn tell(text: Arguments) {
    let _ = writeln!(io::stderr(), "{text}");
}
