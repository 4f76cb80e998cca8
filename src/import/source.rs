//! The files: an RDB file, an append-only file, or a folder with a manifest that names such files.
//!
//! A manifest has a line for each file, `file NAME seq N type T`: of type `b`, the base, there is one at most; those of
//! type `i`, increments, follow it in the order of their numbers; `h` is history and not read. A base may be an RDB file,
//! behind which commands may follow. Commands are as clients send them, except for lines that begin with `#`.
//!
//! A server that crashes while it appends leaves a part of a command, or of a transaction, at the end of the file that it was
//! appending to: that is a *torn end*, and is left out, as Redis does with `aof-load-truncated yes`. Only the last file can have
//! one, and a base cannot: it is complete before the manifest names it. Anything else that does not read as commands is damage
//! and refused: above all an argument that claims more bytes than there are while whole commands follow its beginning.

use super::Progress;
use holdfast_rdb::{
    file::{FileError, Reader, Record},
    unread::Unread,
};
use holdfast_resp::split_line;
use std::{
    cell::RefCell,
    fmt, fs,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

/// Bytes of a manifest at most.
const MANIFEST_MAX: u64 = 1 << 20;
/// Bytes of a line of an append-only file at most, other than of data.
const LINE_MAX: u64 = 1 << 10;
/// Arguments of a command, and bytes of one, at most: Redis's limits.
const ARGS_MAX: usize = 1 << 20;
const ARG_MAX: usize = 4000 << 20;
/// Facts that an RDB file tells of itself if commands follow it.
const BEFORE_COMMANDS: [&[u8]; 2] = [b"aof-base", b"aof-preamble"];

/// What takes that which is read, until it has [`Stopped`].
pub trait Sink {
    /// Takes a record of an RDB file.
    fn record(&mut self, record: Record) -> Result<(), Stopped>;
    /// Takes a command as it was found in a file.
    fn command(&mut self, bytes: &[u8], at: Place) -> Result<(), Stopped>;
    /// A line to be told at the end.
    fn note(&mut self, note: String);
    /// The commands have ended within a transaction.
    fn give_up_transaction(&mut self) -> Result<(), Stopped>;
    /// Takes a key whose value was not read: only from who reads those.
    fn unread(&mut self, _: Unread) -> Result<(), Stopped> {
        unreachable!("it does not read values")
    }
    /// Whether it reads small values itself.
    const READS: bool = false;
}

/// A sink takes nothing more; it knows why.
#[derive(Debug, PartialEq)]
pub struct Stopped;

/// An offset of a file.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file.
    pub path: Arc<Path>,
    /// Bytes from its start.
    pub offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {} of {}", self.offset, self.path.display())
    }
}

/// Why not everything was read.
#[derive(Debug, PartialEq)]
pub enum Failure {
    /// A file cannot be read, or is not what it should be: says what is wrong.
    File(String),
    /// The sink has stopped.
    Sink(Stopped),
}

impl From<String> for Failure {
    fn from(what: String) -> Failure {
        Failure::File(what)
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Failure {
        Failure::Sink(stopped)
    }
}

/// Files to be read one after another.
pub struct Source {
    files: Vec<SourceFile>,
    bytes: u64,
    has_commands: bool,
}

struct SourceFile {
    path: Arc<Path>,
    /// Whether a crash can have torn its end.
    can_be_torn: bool,
}

impl Source {
    /// The files of a path.
    pub fn find(path: &Path) -> Result<Source, String> {
        let failed = |e: io::Error| format!("{}: {e}", path.display());
        let files = match fs::metadata(path).map_err(failed)?.is_dir() {
            true => in_manifest(path)?,
            false => vec![SourceFile { path: path.into(), can_be_torn: true }],
        };
        let (mut bytes, mut has_commands) = (0, path.is_dir());
        for SourceFile { path: file, .. } in &files {
            let failed = |e: io::Error| format!("{}: {e}", file.display());
            bytes += fs::metadata(file).map_err(failed)?.len();
            let mut start = Vec::new();
            fs::File::open(file).and_then(|file| file.take(6).read_to_end(&mut start)).map_err(failed)?;
            has_commands |= !is_rdb(&start);
        }
        if !has_commands {
            has_commands = has_commands_behind(&files[0].path)?;
        }
        Ok(Source { files, bytes, has_commands })
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there are commands, or may be, and not only keys.
    pub fn has_commands(&self) -> bool {
        self.has_commands
    }

    /// Reads everything.
    pub fn read(&self, sink: &mut impl Sink) -> Result<(), Failure> {
        let progress = Rc::new(RefCell::new((Progress::new(), 0)));
        let result = self.files.iter().try_for_each(|SourceFile { path, can_be_torn }| {
            let named = |what: String| format!("{}: {what}", path.display());
            let file = fs::File::open(path).map_err(|e| named(e.to_string()))?;
            let mut file = BufReader::with_capacity(
                256 << 10,
                Counted { file, all: self.bytes, progress: progress.clone() },
            );
            let start = file.fill_buf().map_err(|e| named(e.to_string()))?;
            let can_be_torn = *can_be_torn;
            if is_rdb(start) {
                read_rdb(file, path, can_be_torn, sink)
            } else {
                read_commands(file, Place { path: path.clone(), offset: 0 }, can_be_torn, sink)
            }
            .map_err(|failure| match failure {
                Failure::File(what) => Failure::File(named(what)),
                failure => failure,
            })
        });
        progress.borrow_mut().0.end();
        result
    }
}

fn is_rdb(start: &[u8]) -> bool {
    start.starts_with(b"REDIS") || start.starts_with(b"VALKEY")
}

/// Whether an RDB file says that commands follow it. What it says of itself comes first.
fn has_commands_behind(path: &Path) -> Result<bool, String> {
    let named = |e: FileError| format!("{}: {e}", path.display());
    let file = fs::File::open(path).map_err(|e| named(FileError::Io(e)))?;
    let mut reader = Reader::new(file).map_err(named)?;
    while let Some(Record::Aux(name, value)) = reader.next_record().map_err(named)? {
        if BEFORE_COMMANDS.contains(&&name[..]) && value == b"1" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A file whose bytes are counted as they are read.
struct Counted {
    file: fs::File,
    all: u64,
    progress: Rc<RefCell<(Progress, u64)>>,
}

impl Read for Counted {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read(out)?;
        let (progress, done) = &mut *self.progress.borrow_mut();
        *done += len as u64;
        progress.show(*done, self.all);
        Ok(len)
    }
}

fn read_rdb<S: Sink>(
    file: impl Read,
    path: &Arc<Path>,
    can_be_torn: bool,
    sink: &mut S,
) -> Result<(), Failure> {
    let named = |e: FileError| e.to_string();
    let mut reader = Reader::new(file).map_err(named)?;
    let mut has_commands = false;
    loop {
        if S::READS {
            while let Some(unread) = reader.next_unread() {
                sink.unread(unread)?;
            }
        }
        let Some(record) = reader.next_record().map_err(named)? else { break };
        if let Record::Aux(name, value) = &record {
            has_commands |= BEFORE_COMMANDS.contains(&&name[..]) && value == b"1";
        }
        sink.record(record)?;
    }
    if has_commands {
        let at = Place { path: path.clone(), offset: reader.position() };
        read_commands(BufReader::new(reader.into_rest()), at, can_be_torn, sink)
    } else {
        Ok(reader.end().map_err(named)?)
    }
}

/// Reads commands until the end. What is at a torn end is left out.
fn read_commands(
    mut file: impl BufRead,
    mut at: Place,
    can_be_torn: bool,
    sink: &mut impl Sink,
) -> Result<(), Failure> {
    let mut command = Vec::new();
    let (mut in_transaction, mut transaction_at) = (false, 0);
    let cut = loop {
        command.clear();
        let offset = at.offset;
        match read_command(&mut file, &mut command) {
            Ok(Some(name)) => {
                if name.eq_ignore_ascii_case(b"multi") {
                    if in_transaction {
                        return Err(format!(
                            "at byte {offset}: a transaction begins within that at byte {transaction_at}, whose end is damaged"
                        )
.into());
                    }
                    (in_transaction, transaction_at) = (true, offset);
                } else if name.eq_ignore_ascii_case(b"exec") || name.eq_ignore_ascii_case(b"discard") {
                    in_transaction = false;
                }
                if !name.is_empty() {
                    sink.command(&command, at.clone())?;
                }
                at.offset += command.len() as u64;
            }
            Ok(None) if in_transaction => break transaction_at,
            Ok(None) => return Ok(()),
            Err(Broken::Cut) => {
                if let Some(at) = find_command(&command) {
                    return Err(format!(
                        "at byte {offset}: damaged: an argument claims more bytes than there are, but whole commands follow, \
                         the first at byte {}. (If they are no commands but the value of that argument, and the file was only \
                         cut short, cut off the rest of it, too: truncate -s {offset} FILE)",
                        offset + at as u64
                    )
.into());
                }
                break if in_transaction { transaction_at } else { offset };
            }
            Err(Broken::Io(error)) => return Err(error.to_string().into()),
            Err(Broken::Malformed(what)) => return Err(format!("at byte {offset}: {what}").into()),
        }
    };
    if !can_be_torn {
        return Err(format!(
            "at byte {cut}: the file is cut short, which a crash does to none but the last increment"
        )
        .into());
    }
    if in_transaction {
        sink.give_up_transaction()?;
    }
    let left_out = at.offset + command.len() as u64 - cut;
    sink.note(format!(
        "the last command or transaction, at byte {cut} of the last file, is cut short, as a crash does it: {left_out} bytes \
         were left out"
    ));
    Ok(())
}

/// Why there is no next command.
enum Broken {
    Io(io::Error),
    /// The file ends within it.
    Cut,
    Malformed(&'static str),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Io(error)
    }
}

/// Appends the next command to `out` as it is, and returns its name: none of a line that is no command, `None` at the end.
fn read_command(file: &mut impl BufRead, out: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Broken> {
    const COUNT: Broken = Broken::Malformed("no command: a number of arguments is expected");
    const LENGTH: Broken = Broken::Malformed("no command: the length of an argument is expected");
    match file.fill_buf()?.first() {
        None => return Ok(None),
        Some(b'#') => {
            read_line(file, out)?;
            return Ok(Some(Vec::new()));
        }
        Some(_) => {}
    }
    let count = read_number(file, out, b'*', ARGS_MAX).map_err(|broken| broken.unwrap_or(COUNT))?;
    if count == 0 {
        return Err(COUNT);
    }
    let mut name = Vec::new();
    for at in 0..count {
        let len = read_number(file, out, b'$', ARG_MAX).map_err(|broken| broken.unwrap_or(LENGTH))?;
        let start = out.len();
        let read = file.by_ref().take(len as u64 + 2).read_to_end(out)?;
        if !b"\r\n".starts_with(out.get(start + len..).unwrap_or_default()) {
            return Err(Broken::Malformed("an argument is not as long as it says"));
        }
        if read < len + 2 {
            return Err(Broken::Cut);
        }
        if at == 0 {
            name = out[start..start + len].to_vec();
        }
    }
    if name.is_empty() { Err(Broken::Malformed("a command without a name")) } else { Ok(Some(name)) }
}

/// Where the first whole command begins within what seems to be the first part of one: behind the end of a line, as each command
/// does but the first of a file.
fn find_command(bytes: &[u8]) -> Option<usize> {
    // If it takes this long to see, that is no value that was cut.
    let mut bytes_max = bytes.len().saturating_mul(16);
    let mut starts = (2..bytes.len()).filter(|&at| bytes[at] == b'*' && bytes[..at].ends_with(b"\r\n"));
    starts.find(|&at| {
        let mut command = Vec::new();
        let is_whole = matches!(read_command(&mut &bytes[at..], &mut command), Ok(Some(_)));
        bytes_max = bytes_max.saturating_sub(command.len());
        is_whole || bytes_max == 0
    })
}

/// Appends a line.
fn read_line(file: &mut impl BufRead, out: &mut Vec<u8>) -> Result<(), Broken> {
    let len = file.by_ref().take(LINE_MAX).read_until(b'\n', out)?;
    match out.last() {
        Some(b'\n') if len > 0 => Ok(()),
        _ if len as u64 == LINE_MAX => Err(Broken::Malformed("a line that is too long")),
        _ => Err(Broken::Cut),
    }
}

/// A number on a line of its own; `Err(None)` if there is something else.
fn read_number(
    file: &mut impl BufRead,
    out: &mut Vec<u8>,
    mark: u8,
    max: usize,
) -> Result<usize, Option<Broken>> {
    let start = out.len();
    if let Err(broken) = read_line(file, out) {
        // A line that is cut must be the beginning of such a number.
        let digits = out[start..].strip_prefix(&[mark]).map(|rest| rest.strip_suffix(b"\r").unwrap_or(rest));
        let is_beginning = out.len() == start || digits.is_some_and(|it| it.iter().all(u8::is_ascii_digit));
        return Err(Some(broken).filter(|broken| !matches!(broken, Broken::Cut) || is_beginning));
    }
    let digits = out[start..].strip_prefix(&[mark]).and_then(|rest| rest.strip_suffix(b"\r\n"));
    let number = digits.filter(|digits| digits.iter().all(u8::is_ascii_digit));
    let number = number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    number.filter(|number| *number <= max).ok_or(None)
}

/// The files that the manifest of a folder names, or that of the folder `appendonlydir` in it.
fn in_manifest(dir: &Path) -> Result<Vec<SourceFile>, String> {
    let within = dir.join("appendonlydir");
    let manifests = |dir: &Path| -> Result<Vec<PathBuf>, String> {
        let failed = |e: io::Error| format!("{}: {e}", dir.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "manifest") {
                found.push(path);
            }
        }
        Ok(found)
    };
    let mut found = manifests(dir)?;
    if found.is_empty() && within.is_dir() {
        found = manifests(&within)?;
    }
    match &found[..] {
        [manifest] => read_manifest(manifest),
        [] => Err(format!(
            "{}: there is no manifest of an append-only file; name an RDB file by its path",
            dir.display()
        )),
        _ => Err(format!("{}: there is more than one manifest", dir.display())),
    }
}

fn read_manifest(path: &Path) -> Result<Vec<SourceFile>, String> {
    let named = |what: String| format!("{}: {what}", path.display());
    let mut text = Vec::new();
    let file = fs::File::open(path).map_err(|e| named(e.to_string()))?;
    file.take(MANIFEST_MAX).read_to_end(&mut text).map_err(|e| named(e.to_string()))?;
    let Manifest { base, increments } = parse_manifest(&text).map_err(named)?;
    let mut files: Vec<SourceFile> = base
        .iter()
        .chain(&increments)
        .map(|name| SourceFile { path: path.with_file_name(name).into(), can_be_torn: false })
        .collect();
    if let (Some(last), false) = (files.last_mut(), increments.is_empty()) {
        last.can_be_torn = true;
    }
    Ok(files)
}

/// Names of files. The base is read first, then the increments in their order.
#[derive(Debug, PartialEq)]
struct Manifest {
    base: Option<String>,
    increments: Vec<String>,
}

fn parse_manifest(text: &[u8]) -> Result<Manifest, String> {
    let (mut base, mut increments) = (None, Vec::new());
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let at = |what: String| format!("line {}: {what}", number + 1);
        let mut line = line.trim_ascii().to_vec();
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let mut spans = Vec::new();
        split_line(&mut line, &mut spans).map_err(|_| at("unbalanced quotes".into()))?;
        let words: Option<Vec<&str>> =
            spans.iter().map(|span| std::str::from_utf8(&line[span.start..span.end]).ok()).collect();
        let words = words.ok_or_else(|| at("not UTF-8".into()))?;
        let (mut name, mut sequence, mut kind) = (None, None, None);
        for pair in words.chunks(2) {
            match pair {
                ["file", value] => name = Some(*value),
                ["seq", value] => sequence = value.parse::<u64>().ok(),
                ["type", value] => kind = Some(*value),
                [word, ..] => return Err(at(format!("'{word}' is not known"))),
                [] => {}
            }
        }
        let (Some(name), Some(sequence), Some(kind)) = (name, sequence, kind) else {
            return Err(at("it needs a file, a seq and a type".into()));
        };
        if name.is_empty() || name.contains('/') || name == ".." {
            return Err(at(format!("'{name}' is not a file beside the manifest")));
        }
        match kind {
            "b" if base.is_none() => base = Some(name.to_owned()),
            "b" => return Err(at("a second base".into())),
            "i" => increments.push((sequence, name.to_owned())),
            "h" => {}
            _ => return Err(at(format!("type '{kind}' is not known"))),
        }
    }
    if !increments.is_sorted_by(|a, b| a.0 < b.0) {
        return Err("the increments are out of order".into());
    }
    if base.is_none() && increments.is_empty() {
        return Err("it names no file".into());
    }
    Ok(Manifest { base, increments: increments.into_iter().map(|(_, name)| name).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_read_in_order() {
        let text = b"# by hand\nfile a.base.rdb seq 1 type b\nfile a.old seq 1 type h\nfile \"a b.incr\" seq 1 type i\r\n\nfile a.2 seq 2 type i\n";
        let Manifest { base, increments } = parse_manifest(text).unwrap();
        assert_eq!(
            (base.as_deref(), &increments[..]),
            (Some("a.base.rdb"), &["a b.incr".to_owned(), "a.2".into()][..])
        );
        for (text, error) in [
            (&b"file a seq 1 type b\nfile b seq 2 type b\n"[..], "line 2: a second base"),
            (b"file a seq 2 type i\nfile b seq 1 type i\n", "the increments are out of order"),
            (b"file ../a seq 2 type i\n", "line 1: '../a' is not a file beside the manifest"),
            (b"file a seq 2 type x\n", "line 1: type 'x' is not known"),
            (b"file a seq 2\n", "line 1: it needs a file, a seq and a type"),
            (b"file a seq 2 type i endoffset 5\n", "line 1: 'endoffset' is not known"),
            (b"file \"a seq 2 type i\n", "line 1: unbalanced quotes"),
            (b"file a seq 1 type h\n", "it names no file"),
            (b"", "it names no file"),
        ] {
            assert_eq!(parse_manifest(text), Err(error.to_owned()));
        }
    }

    /// Keeps what it is given.
    #[derive(Default)]
    struct Kept {
        commands: Vec<(Vec<u8>, u64)>,
        notes: Vec<String>,
        given_up: bool,
    }

    impl Sink for Kept {
        fn record(&mut self, _: Record) -> Result<(), Stopped> {
            Ok(())
        }

        fn command(&mut self, bytes: &[u8], at: Place) -> Result<(), Stopped> {
            self.commands.push((bytes.to_vec(), at.offset));
            Ok(())
        }

        fn note(&mut self, note: String) {
            self.notes.push(note);
        }

        fn give_up_transaction(&mut self) -> Result<(), Stopped> {
            self.given_up = true;
            Ok(())
        }
    }

    /// Reads the commands of a text; the error says what is wrong with it.
    fn read(text: &[u8], can_be_torn: bool, sink: &mut Kept) -> Result<(), String> {
        let at = Place { path: Path::new("file").into(), offset: 0 };
        read_commands(text, at, can_be_torn, sink).map_err(|failure| match failure {
            Failure::File(what) => what,
            Failure::Sink(Stopped) => unreachable!("it takes everything"),
        })
    }

    const SELECT: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";
    const MULTI: &[u8] = b"*1\r\n$5\r\nmulti\r\n";
    const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

    #[test]
    fn commands_are_read_up_to_a_torn_end() {
        let text = [&b"#TS:1700000000\r\n"[..], SELECT, MULTI, SELECT, EXEC].concat();
        for len in 0..=text.len() {
            let (mut last, mut not_last) = (Kept::default(), Kept::default());
            read(&text[..len], true, &mut last).unwrap();
            let whole = [0, 16, 16 + SELECT.len(), text.len()].contains(&len);
            assert_eq!(last.notes.is_empty(), whole, "{len}");
            assert_eq!(last.given_up, (54..text.len()).contains(&len), "{len}");
            assert_eq!(read(&text[..len], false, &mut not_last).is_ok(), whole, "{len}");
            let found = last.commands.iter().map(|(bytes, _)| bytes.len()).sum::<usize>();
            assert!(found <= len.saturating_sub(16));
            for (bytes, offset) in &last.commands {
                assert!(text[*offset as usize..].starts_with(bytes), "{len}");
            }
        }
    }

    const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n";

    #[test]
    fn an_argument_that_swallows_what_follows_is_no_torn_end() {
        // Each length of each command but the last, made so large that the file seems to end within the argument, with and
        // without a transaction around, and with an end that is torn besides.
        for (before, after) in [(&b""[..], &b""[..]), (MULTI, EXEC)] {
            let head = [before, SET, SELECT].concat();
            let text = [&head[..], SET, after, SELECT].concat();
            let lengths = (0..text.len() - SELECT.len()).filter(|&at| text[at] == b'$');
            for at in lengths {
                for torn in [0, 3] {
                    let (start, rest) = (&text[..=at], &text[at + 1..text.len() - torn]);
                    let damaged = [start, b"9999", rest].concat();
                    let result = read(&damaged, true, &mut Kept::default());
                    let follows = &text[at..text.len() - SELECT.len()];
                    let whole = follows.windows(3).any(|it| it == b"\r\n*") || torn == 0;
                    let error = result.err().unwrap_or_default();
                    assert_eq!(error.contains("whole commands follow"), whole, "{at} {torn}: {error}");
                }
            }
        }
    }

    #[test]
    fn what_looks_like_endless_commands_is_no_torn_end() {
        // An argument of each is the beginning of the next one: each by itself takes as long to read as all that follows.
        let nested = b"$8\r\n*1048576\r\n".repeat(100_000);
        let text = [b"*1\r\n$99999999\r\n\r\n*1048576\r\n", &nested[..]].concat();
        let error = read(&text, true, &mut Kept::default()).unwrap_err();
        assert!(error.contains("whole commands follow"), "{error}");
    }

    #[test]
    fn a_line_that_is_no_beginning_of_a_command_is_no_torn_end() {
        for (end, is_torn) in [
            (&b"*"[..], true),
            (b"*1", true),
            (b"*1\r", true),
            (b"*1\r\n$", true),
            (b"*1\r\n$4\rEXEC", false),
            (b"xyz", false),
            (b"*x", false),
            (b"*1\rx", false),
            (b"*1\r\n*", false),
            (b"*1\r\n$1x", false),
            (b"*1\r\n$4\r\nPING\r", true),
            (b"*1\r\n$4\r\nPINGx", false),
            (b"\0\0\0\0", false),
        ] {
            let text = [SELECT, end].concat();
            let mut kept = Kept::default();
            let result = read(&text, true, &mut kept);
            assert_eq!(result.is_ok(), is_torn, "{}", end.escape_ascii());
            let told = format!(
                "at byte {} of the last file, is cut short, as a crash does it: {} bytes were left out",
                SELECT.len(),
                end.len()
            );
            assert_eq!(kept.notes.iter().any(|note| note.contains(&told)), is_torn, "{:?}", kept.notes);
        }
    }

    #[test]
    fn transactions_are_not_nested() {
        let text = [MULTI, SET, MULTI, SET, EXEC].concat();
        let error = read(&text, true, &mut Kept::default()).unwrap_err();
        assert!(error.contains("within that at byte 0, whose end is damaged"), "{error}");
    }

    #[test]
    fn only_the_last_increment_can_be_torn() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
        let torn = &SET[..SET.len() - 1];
        for (base, first, second, is_read) in [
            (SET, SET, torn, true),
            (SET, torn, SET, false),
            (torn, SET, SET, false),
            (SET, torn, b"", false),
        ] {
            write("a.manifest", b"file a seq 1 type b\nfile b seq 1 type i\nfile c seq 2 type i\n");
            write("a", base);
            write("b", first);
            write("c", second);
            let result = Source::find(folder.path()).unwrap().read(&mut Kept::default());
            assert_eq!(result.is_ok(), is_read, "{result:?}");
        }
        write("a.manifest", b"file a seq 1 type b\n");
        write("a", torn);
        let error = Source::find(folder.path()).unwrap().read(&mut Kept::default()).unwrap_err();
        assert!(
            matches!(&error, Failure::File(what) if what.contains("a: at byte 0: the file is cut short, which")),
            "{error:?}"
        );
    }

    #[test]
    fn what_is_no_command_is_named() {
        for (text, error) in [
            (&b"GET a\r\n"[..], "at byte 0: no command: a number of arguments is expected"),
            (b"*0\r\n", "at byte 0: no command: a number of arguments is expected"),
            (b"*-1\r\n", "at byte 0: no command: a number of arguments is expected"),
            (b"*1048577\r\n", "at byte 0: no command: a number of arguments is expected"),
            (b"*1\r\n+OK\r\n", "at byte 0: no command: the length of an argument is expected"),
            (b"*1\r\n$4194304001\r\n", "at byte 0: no command: the length of an argument is expected"),
            (b"*1\r\n$4\r\nPINGPONG\r\n", "at byte 0: an argument is not as long as it says"),
            (b"*1\r\n$0\r\n\r\n", "at byte 0: a command without a name"),
            (&[b'*'; 2000], "at byte 0: a line that is too long"),
        ] {
            assert_eq!(read(text, true, &mut Kept::default()), Err(error.to_owned()));
        }
    }
}
