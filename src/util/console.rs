//! What commands print. Nobody may read it any more, or what it goes to may be full: that ends them, but is no fault of theirs.

use std::{
    env,
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

/// Prints a line to standard error, if that can be; to the journal as an error, line by line.
pub fn tell(text: Arguments) {
    let text = format!("{text}\n");
    // In one piece, since others may write there, too.
    let _ = io::stderr().write_all(
        match is_stderr_the_journal() {
            true => text.lines().map(|line| format!("<3>{line}\n")).collect::<String>(),
            false => text,
        }
        .as_bytes(),
    );
}

/// systemd says by `JOURNAL_STREAM` which device and inode the journal's stream is; the variable outlives a redirection of the standard error.
pub fn is_stderr_the_journal() -> bool {
    let named = env::var("JOURNAL_STREAM").ok();
    let stream = rustix::fs::fstat(io::stderr()).ok();
    named.zip(stream).is_some_and(|(named, stream)| named == format!("{}:{}", stream.st_dev, stream.st_ino))
}
