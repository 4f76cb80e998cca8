//! What a simulated medium holds, beside what a running machine sees of it.
//!
//! Both kinds of state, a file's bytes and the names of files, are kept the same way: as the machine sees it, as
//! it is for certain on the medium, and the changes between the two in their order. A power cut applies some.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    thread::ThreadId,
};

use parking_lot::Mutex;

use super::rng::Rng;
use crate::{BLOCK, WORD};

/// One file's bytes, whether or not a name leads to them.
pub struct Inode {
    /// Bytes that its medium writes whole or not at all.
    unit: usize,
    /// Shared with what is on the medium, and with other machines, until it is changed.
    data: Arc<Vec<u8>>,
    medium: Arc<Vec<u8>>,
    pending: Vec<Change>,
    /// Blocks that take no space.
    holes: BTreeSet<usize>,
}

enum Change {
    /// `durable` ones wait here only to stay in order behind pending ones.
    Write {
        offset: usize,
        bytes: Vec<u8>,
        durable: bool,
        /// Whose fence makes it durable.
        by: Option<ThreadId>,
    },
    SetLen(usize),
}

impl Inode {
    /// An empty file.
    pub fn new(unit: usize) -> Node {
        Self::on_medium(Arc::default(), &BTreeSet::new(), unit)
    }

    fn on_medium(bytes: Arc<Vec<u8>>, holes: &BTreeSet<usize>, unit: usize) -> Node {
        let holes = holes.range(..bytes.len() / BLOCK).copied().collect();
        Arc::new(Mutex::new(Self { unit, data: bytes.clone(), medium: bytes, pending: Vec::new(), holes }))
    }

    /// The first of some bytes that are written, any number of parts that the medium writes whole.
    pub fn cut_short(&self, bytes: &mut Vec<u8>, rng: &mut Rng) {
        let parts = bytes.len().div_ceil(self.unit) as u64;
        bytes.truncate((rng.draw() % parts.max(1)) as usize * self.unit);
    }

    /// Bytes of the medium that it takes.
    pub fn space(&self) -> usize {
        self.data.len() - self.holes.len() * BLOCK
    }

    /// Bytes of the medium that it takes more once bytes from `start` to `end` are written.
    pub fn growth(&self, start: usize, end: usize) -> usize {
        end.saturating_sub(self.data.len())
            + self.holes.range(start / BLOCK..end.div_ceil(BLOCK)).count() * BLOCK
    }

    pub fn punch_hole(&mut self, offset: usize, len: usize) {
        let end = (offset + len).min(self.data.len() / BLOCK * BLOCK);
        if offset < end {
            self.write(offset, vec![0; end - offset], false);
            self.holes.extend(offset / BLOCK..end / BLOCK);
        }
    }

    /// The bytes as the machine sees them.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    pub fn write(&mut self, offset: usize, bytes: Vec<u8>, durable: bool) {
        self.show(offset, &bytes);
        if durable && self.pending.is_empty() {
            store(&mut self.medium, offset, &bytes);
        } else {
            self.pending.push(Change::Write { offset, bytes, durable, by: None });
        }
    }

    /// Has the machine see bytes, which nobody has on the way to the medium.
    pub fn show(&mut self, offset: usize, bytes: &[u8]) {
        store(&mut self.data, offset, bytes);
        self.holes.retain(|block| !(offset / BLOCK..(offset + bytes.len()).div_ceil(BLOCK)).contains(block));
    }

    /// A store by a thread, which its fence makes durable; `None`: no fence does.
    pub fn store(&mut self, offset: usize, bytes: Vec<u8>, by: Option<ThreadId>) {
        self.show(offset, &bytes);
        self.pending.push(Change::Write { offset, bytes, durable: false, by });
    }

    /// Whether there are stores that are not fenced.
    pub fn has_stores(&self) -> bool {
        self.pending.iter().any(|change| matches!(change, Change::Write { by: Some(_), durable: false, .. }))
    }

    /// Makes a thread's stores durable.
    pub fn fence(&mut self, thread: ThreadId) {
        for change in &mut self.pending {
            match change {
                Change::Write { durable, by, .. } if *by == Some(thread) => *durable = true,
                _ => {}
            }
        }
        let is_durable = |change: &Change| matches!(change, Change::Write { durable: true, .. });
        let first = self.pending.iter().take_while(|change| is_durable(change)).count();
        for change in self.pending.drain(..first) {
            if let Change::Write { offset, bytes, .. } = change {
                store(&mut self.medium, offset, &bytes);
            }
        }
    }

    /// A write that fails half-way: some of the parts that the medium writes whole arrive.
    pub fn tear(&mut self, offset: usize, bytes: &[u8], rng: &mut Rng) {
        for (at, sector) in surviving(offset, bytes, self.unit, rng) {
            self.write(at, sector.to_vec(), false);
        }
    }

    pub fn set_len(&mut self, len: usize) {
        Arc::make_mut(&mut self.data).resize(len, 0);
        self.holes.split_off(&(len / BLOCK));
        self.pending.push(Change::SetLen(len));
    }

    pub fn sync(&mut self) {
        for change in mem::take(&mut self.pending) {
            match change {
                Change::Write { offset, bytes, .. } => store(&mut self.medium, offset, &bytes),
                Change::SetLen(len) => Arc::make_mut(&mut self.medium).resize(len, 0),
            }
        }
    }

    /// A sync that fails: as in Linux, what did not reach the medium is forgotten, so that a second sync succeeds
    /// without it, and reads still show it.
    pub fn sync_fails(&mut self, rng: &mut Rng) {
        self.medium = self.after_power_cut(rng);
        self.pending.clear();
    }

    fn after_power_cut(&self, rng: &mut Rng) -> Arc<Vec<u8>> {
        let mut medium = self.medium.clone();
        for change in &self.pending {
            match change {
                Change::Write { offset, bytes, durable: true, .. } => store(&mut medium, *offset, bytes),
                Change::Write { offset, bytes, durable: false, .. } => {
                    for (at, sector) in surviving(*offset, bytes, self.unit, rng) {
                        store(&mut medium, at, sector);
                    }
                }
                Change::SetLen(len) => {
                    if rng.chance(128) {
                        Arc::make_mut(&mut medium).resize(*len, 0);
                    }
                }
            }
        }
        medium
    }
}

pub type Node = Arc<Mutex<Inode>>;

/// All names of a medium. Folders have no existence of their own.
#[derive(Default)]
pub struct Names {
    current: BTreeMap<String, Node>,
    medium: BTreeMap<String, Node>,
    /// A name and where it leads from then on: to a file, or to none.
    pending: Vec<(String, Option<Node>)>,
}

impl Names {
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.current.get(name)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.current.values()
    }

    /// The names in a folder, without it, sorted.
    pub fn list(&self, folder: &str) -> Vec<String> {
        let paths = self.current.keys().map(|path| split(path));
        paths.filter(|(parent, _)| *parent == folder).map(|(_, name)| name.to_owned()).collect()
    }

    pub fn set(&mut self, name: &str, node: Option<Node>) {
        redirect(&mut self.current, name, node.clone());
        self.pending.push((name.to_owned(), node));
    }

    pub fn sync(&mut self, folder: &str) {
        for (name, node) in mem::take(&mut self.pending) {
            if split(&name).0 == folder {
                redirect(&mut self.medium, &name, node);
            } else {
                self.pending.push((name, node));
            }
        }
    }

    /// The names, and copies of the files behind them, as the machine sees them, all of it on the medium.
    pub fn fork(&self) -> Self {
        let copy = |node: &Node| {
            let node = node.lock();
            Inode::on_medium(node.data.clone(), &node.holes, node.unit)
        };
        let files: BTreeMap<String, Node> =
            self.current.iter().map(|(name, node)| (name.clone(), copy(node))).collect();
        Self { current: files.clone(), medium: files, pending: Vec::new() }
    }

    /// What a power cut decides about.
    pub fn undecided(&self) -> Undecided {
        let (names, files, units) = Default::default();
        let (mut all, mut known) = (Undecided { names, files, units }, Vec::new());
        for (name, node) in &self.medium {
            let file = all.number_of(name, node, &mut known);
            all.names.insert(name.clone(), file);
        }
        for (name, node) in &self.pending {
            let file = node.as_ref().map(|node| all.number_of(name, node, &mut known));
            all.units.push(Unit::Name { name: name.clone(), file });
        }
        all
    }

    /// Names, and files behind them by number, that are on the medium.
    pub fn on_medium(
        names: BTreeMap<String, usize>,
        files: Vec<Arc<Vec<u8>>>,
        undecided: &[UndecidedFile],
    ) -> Self {
        let nodes: Vec<Node> = (files.into_iter().zip(undecided))
            .map(|(bytes, file)| Inode::on_medium(bytes, &file.holes, file.unit))
            .collect();
        let medium: BTreeMap<_, _> =
            names.into_iter().map(|(name, file)| (name, nodes[file].clone())).collect();
        Self { current: medium.clone(), medium, pending: Vec::new() }
    }

    /// The names, and the files behind them, of which a machine finds itself in possession after a power cut.
    pub fn after_power_cut(&self, rng: &mut Rng) -> Self {
        let mut medium = self.medium.clone();
        for (name, node) in &self.pending {
            if rng.chance(128) {
                redirect(&mut medium, name, node.clone());
            }
        }
        for node in medium.values_mut() {
            let cut = node.lock();
            let left = Inode::on_medium(cut.after_power_cut(rng), &cut.holes, cut.unit);
            drop(cut);
            *node = left;
        }
        Self { current: medium.clone(), medium, pending: Vec::new() }
    }
}

/// What is on a medium for certain, and what may be there as well.
pub struct Undecided {
    /// Which file is behind each name that is there for certain.
    names: BTreeMap<String, usize>,
    /// All files, also those whose names may be there.
    pub files: Vec<UndecidedFile>,
    /// What may be there as well, in order.
    pub units: Vec<Unit>,
}

/// A file of which more may be on the medium.
pub struct UndecidedFile {
    /// One that it has or had.
    pub name: String,
    /// What is there for certain, if no unit changes it.
    pub bytes: Arc<Vec<u8>>,
    holes: BTreeSet<usize>,
    unit: usize,
}

/// What survives a power cut whole or not at all.
pub enum Unit {
    /// Bytes within a word of a file.
    Word {
        file: usize,
        offset: usize,
        bytes: [u8; WORD],
        len: usize,
        /// Which of the file's writes and stores it is of.
        change: usize,
        /// It does survive, and is here to stay in order.
        is_certain: bool,
    },
    /// A length of a file.
    Len { file: usize, len: usize },
    /// A name, and which file is behind it then, if any.
    Name { name: String, file: Option<usize> },
}

impl Undecided {
    /// The number of a file, which it gets with its units if it has none yet.
    fn number_of(&mut self, name: &str, node: &Node, known: &mut Vec<Node>) -> usize {
        if let Some(number) = known.iter().position(|known| Arc::ptr_eq(known, node)) {
            return number;
        }
        let (file, inode) = (known.len(), node.lock());
        known.push(node.clone());
        let (bytes, holes, unit) = (inode.medium.clone(), inode.holes.clone(), inode.unit);
        self.files.push(UndecidedFile { name: name.to_owned(), bytes, holes, unit });
        for (number, change) in inode.pending.iter().enumerate() {
            match change {
                Change::SetLen(len) => self.units.push(Unit::Len { file, len: *len }),
                Change::Write { offset, bytes, durable, .. } => {
                    let end = offset + bytes.len();
                    let mut at = *offset;
                    while at < end {
                        let next = (at + 1).next_multiple_of(WORD).min(end);
                        let mut word = [0; WORD];
                        word[..next - at].copy_from_slice(&bytes[at - offset..next - offset]);
                        let len = next - at;
                        self.units.push(Unit::Word {
                            file,
                            offset: at,
                            bytes: word,
                            len,
                            change: number,
                            is_certain: *durable,
                        });
                        at = next;
                    }
                }
            }
        }
        file
    }

    /// The files behind the names, by number, and their bytes, if some of the units survive.
    pub fn decide(&self, survives: &[bool]) -> (BTreeMap<String, usize>, Vec<Arc<Vec<u8>>>) {
        let mut names = self.names.clone();
        let mut files: Vec<_> = self.files.iter().map(|file| file.bytes.clone()).collect();
        for (unit, &survives) in self.units.iter().zip(survives) {
            match unit {
                Unit::Word { file, offset, bytes, len, is_certain, .. } if survives || *is_certain => {
                    store(&mut files[*file], *offset, &bytes[..*len]);
                }
                Unit::Len { file, len } if survives => Arc::make_mut(&mut files[*file]).resize(*len, 0),
                Unit::Name { name, file: Some(file) } if survives => {
                    names.insert(name.clone(), *file);
                }
                Unit::Name { name, file: None } if survives => {
                    names.remove(name);
                }
                _ => {}
            }
        }
        (names, files)
    }
}

/// A path's folder and its name in it.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn redirect(names: &mut BTreeMap<String, Node>, name: &str, node: Option<Node>) {
    match node {
        Some(node) => names.insert(name.to_owned(), node),
        None => names.remove(name),
    };
}

/// Copies `bytes` to `offset`, with zeroes in a gap before them.
fn store(data: &mut Arc<Vec<u8>>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let data = Arc::make_mut(data);
    let end = offset + bytes.len();
    if data.len() < end {
        data.resize(end, 0);
    }
    data[offset..end].copy_from_slice(bytes);
}

/// The parts of a write, cut at multiples of what the medium writes whole, that survive; often all or none, for those are the likely cases.
fn surviving<'a>(
    offset: usize,
    bytes: &'a [u8],
    unit: usize,
    rng: &'a mut Rng,
) -> impl Iterator<Item = (usize, &'a [u8])> + 'a {
    let odds = [0, 16, 128, 240, 256][(rng.draw() % 5) as usize];
    let mut at = offset;
    let end = offset + bytes.len();
    std::iter::from_fn(move || {
        while at < end {
            let start = at;
            at = (start + 1).next_multiple_of(unit).min(end);
            if rng.chance(odds) {
                return Some((start, &bytes[start - offset..at - offset]));
            }
        }
        None
    })
}
