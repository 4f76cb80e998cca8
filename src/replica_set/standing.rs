//! What a data folder is to a replica set: the file `replica-set` in it says so.

use super::frame::Kind;
use crate::config::file::replace;
use holdfast_consensus::MemberId;
use holdfast_store::{Io, Lsn};
use std::{fmt::Write, fs, io, path::Path};

/// The file.
const FILE: &str = "replica-set";
/// The folder of the journal.
pub const JOURNAL: &str = "set";
/// Files of a store beside those of its log, the one first without which there is none.
const STORE: [&str; 4] = ["superblock", "heap", "creating", "in-use"];

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The set.
    pub set: u64,
    /// Which of the servers the folder is of.
    pub own: MemberId,
    /// How far the folder has come.
    pub state: State,
}

/// How far a folder has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The others copy it, and it rests: where its log ends and in which epoch, and who has a copy.
    Origin { end: Lsn, epoch: u32, have: Vec<MemberId> },
    /// Beside it lies a copy that is whole, and takes its place.
    Whole,
    /// That is half done: nothing is left of what there was.
    Cleared,
    /// It is one of the set's, with a journal.
    Member,
    /// The same, but something in it is damaged: it is left as it is until there is a copy of another one's.
    Damaged,
}

impl Standing {
    /// `None`: there is no such file.
    ///
    /// # Errors
    /// It cannot be read, or says nothing.
    pub fn read(dir: &Path) -> Result<Option<Standing>, String> {
        match fs::read_to_string(dir.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read the file {FILE} in {}: {error}", dir.display())),
            Ok(text) => Standing::decode(&text)
                .map(Some)
                .ok_or_else(|| format!("the file {FILE} in {} does not say what it must", dir.display())),
        }
    }

    fn decode(text: &str) -> Option<Standing> {
        let (line, rest) = text.strip_suffix('\n')?.split_once('\n')?;
        let words: Vec<&str> = line.split(' ').collect();
        let ["set", set, "server", own] = words[..] else { return None };
        let (set, own) = (u64::from_str_radix(set, 16).ok()?, own.parse().ok()?);
        let words: Vec<&str> = rest.split(' ').collect();
        let state = match words[..] {
            ["member"] => State::Member,
            ["damaged"] => State::Damaged,
            ["whole"] => State::Whole,
            ["cleared"] => State::Cleared,
            ["origin", end, epoch, ref have @ ..] => {
                let have = have.iter().map(|at| at.parse().ok()).collect::<Option<_>>()?;
                State::Origin { end: end.parse().ok()?, epoch: epoch.parse().ok()?, have }
            }
            _ => return None,
        };
        (set > 0 && own > 0).then_some(Standing { set, own, state })
    }

    /// Has the file say it, durably.
    ///
    /// # Errors
    /// The medium's.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let Standing { set, own, state } = self;
        let mut text = format!("set {set:016x} server {own}\n");
        match state {
            State::Member => text.push_str("member"),
            State::Damaged => text.push_str("damaged"),
            State::Whole => text.push_str("whole"),
            State::Cleared => text.push_str("cleared"),
            State::Origin { end, epoch, have } => {
                write!(text, "origin {end} {epoch}").expect("a text takes all");
                have.iter().for_each(|at| write!(text, " {at}").expect("a text takes all"));
            }
        }
        text.push('\n');
        replace(&dir.join(FILE), text.as_bytes())
    }
}

/// What the folder is, of which no copy is to be put in place.
pub fn kind(standing: Option<&Standing>, io: &dyn Io) -> io::Result<Kind> {
    Ok(match standing.map(|standing| &standing.state) {
        Some(State::Origin { .. }) => Kind::Origin,
        Some(State::Damaged) => Kind::Damaged,
        Some(_) => Kind::Member,
        None if io.list("")?.iter().any(|name| name == STORE[0] || name == "creating") => Kind::Data,
        None => Kind::Blank,
    })
}

/// The files of a store, with their lengths: all that a copy needs.
pub fn files(io: &dyn Io) -> io::Result<Vec<(String, u64)>> {
    let is_store = |name: &String| STORE[..2].contains(&name.as_str()) || name.starts_with("dictionary-");
    let mut names: Vec<String> = io.list("")?.into_iter().filter(is_store).collect();
    names.extend(io.list("log")?.into_iter().map(|name| format!("log/{name}")));
    let with_len = |name: String| io.open(&name, false)?.len().map(|len| (name, len));
    names.into_iter().map(with_len).collect()
}

/// Whether a name is one that [`files`] can have told.
pub fn is_file(name: &str) -> bool {
    let is_plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    match name.strip_prefix("log/") {
        Some(name) => is_plain(name) && !name.is_empty(),
        None => STORE[..2].contains(&name) || (name.starts_with("dictionary-") && is_plain(name)),
    }
}

/// Removes a folder with all that is in it, if there is one.
pub fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes what there is of a store, and the journal.
pub fn remove_store(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let is_store = |name: &str| STORE.contains(&name) || name.starts_with("dictionary-");
        if name.to_str().is_some_and(is_store) {
            fs::remove_file(dir.join(name))?;
        }
    }
    ["log", JOURNAL].into_iter().try_for_each(|folder| remove_folder(&dir.join(folder)))?;
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        assert_eq!(Standing::read(dir), Ok(None));
        let states = [
            State::Member,
            State::Damaged,
            State::Whole,
            State::Cleared,
            State::Origin { end: 4096, epoch: 1, have: vec![] },
        ];
        for state in states.into_iter().chain([State::Origin { end: 1 << 40, epoch: 7, have: vec![1, 2] }]) {
            let standing = Standing { set: 0xABC, own: 2, state };
            standing.write(dir).unwrap();
            assert_eq!(Standing::read(dir), Ok(Some(standing)));
        }
        for text in [
            "",
            "set 1 server 1\nmember",
            "set 0 server 1\nmember\n",
            "set 1 server 0\nmember\n",
            "set 1 server 1\norigin 4096\n",
            "set 1 server 1\nmember\nmember\n",
        ] {
            fs::write(dir.join(FILE), text).unwrap();
            assert!(Standing::read(dir).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_files_of_a_store_are_copied() {
        for name in ["heap", "superblock", "log/0000002a", "dictionary-1"] {
            assert!(is_file(name), "{name}");
        }
        for name in [
            "",
            "log/",
            "log/../x",
            "../heap",
            "/heap",
            "lock",
            "in-use",
            "dictionary-/x",
            "set/1",
            "replica-set",
        ] {
            assert!(!is_file(name), "{name}");
        }
    }
}
