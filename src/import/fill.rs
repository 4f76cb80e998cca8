//! Keys that are written into a new store directly, without a server. One thread reads, others write, each the keys of its own partitions,
//! so that what belongs to a key is written in its order, and many keys of a partition with one commit.

use super::{
    feed::{Summary, has_expired},
    source::{self, Place, Sink, Stopped},
    target::What,
};
use crate::{
    command::error::{NO_DATABASE, Stop},
    commands::dump,
};
use holdfast_rdb::{
    Value,
    file::{Key, Record},
    stream::Stream,
    unread::{self, Unread},
};
use holdfast_store::{
    DATABASES, Store, Txn,
    hash::{ExpireIf, Expiry},
    list::End,
};
use std::{
    mem,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
};

/// Keys that are written with one commit, and bytes after which no other is added.
const KEYS: usize = 256;
const BYTES: usize = 64 << 10;
/// Groups that may wait for a thread.
const GROUPS: usize = 16;
/// Bytes of a file that a key with its value takes at least.
const KEY_BYTES: u64 = 4;

/// A value, or a piece of one, and its key.
struct Job {
    /// Where the key's name begins among the bytes of the group, and its length.
    at: usize,
    name_len: usize,
    expires_ms: Option<u64>,
    content: Content,
    /// Elements that came before; `None`: it is the whole value.
    piece_at: Option<u64>,
    is_last: bool,
}

enum Content {
    /// A string of so many bytes, which lie behind the name.
    Short(usize),
    /// A value serialized into so many bytes, which lie there, and what it is.
    Serialized(u8, usize),
    Value(Value),
}

/// What is written with one commit: keys of one partition of a database.
#[derive(Default)]
struct Group {
    db: u8,
    partition: u16,
    /// How many keys there will be here, and how many of them expire, as far as that is said, and of use.
    expected: Option<(u64, u64)>,
    jobs: Vec<Job>,
    /// Names and short strings: one block for all, since what one thread takes from the allocator and another gives back costs both.
    bytes: Bytes,
    elements: usize,
    /// Bytes of keys and values.
    size: usize,
}

impl Group {
    fn name(&self, job: &Job) -> &[u8] {
        self.bytes.get(job.at, job.name_len)
    }

    /// The bytes that lie behind the name.
    fn content(&self, job: &Job, len: usize) -> &[u8] {
        self.bytes.get(job.at + job.name_len, len)
    }

    fn is_full(&self) -> bool {
        self.jobs.len() == KEYS || self.size >= BYTES
    }

    /// Begins with a key whose value, or a piece of it, has so many elements and bytes: what that is follows.
    fn begin(&mut self, db: u8, name: &[u8], expires_ms: Option<u64>, elements: usize, bytes: usize) -> Job {
        self.db = db;
        self.elements += elements;
        self.size += name.len() + bytes;
        let (at, name_len) = (self.bytes.len, name.len());
        self.bytes.push(name);
        Job { at, name_len, expires_ms, content: Content::Short(0), piece_at: None, is_last: true }
    }

    /// Makes it empty, with the memory that it has.
    fn clear(&mut self) {
        self.jobs.clear();
        self.bytes.clear();
        (self.elements, self.size, self.expected) = (0, 0, None);
    }
}

/// Bytes in one block.
#[derive(Default)]
struct Bytes {
    /// More than there are.
    memory: Vec<u8>,
    len: usize,
}

impl Bytes {
    fn get(&self, at: usize, len: usize) -> &[u8] {
        &self.memory[at..at + len]
    }

    fn push(&mut self, bytes: &[u8]) {
        /// Lines of memory that are written to next.
        const AHEAD: [usize; 2] = [64, 128];
        let end = self.len + bytes.len();
        if end > self.memory.len() {
            self.memory.resize(end.next_power_of_two(), 0);
        }
        self.memory[self.len..end].copy_from_slice(bytes);
        self.len = end;
        // A thread that writes has them in its cache. They are here by the time that this partition has its next key.
        for ahead in AHEAD {
            if let Some(byte) = self.memory.get_mut(end + ahead) {
                *byte = 0;
            }
        }
    }

    fn clear(&mut self) {
        self.len = 0;
    }
}

/// What has become of an import.
pub struct Filled {
    /// What was imported.
    pub summary: Summary,
    /// The sources of libraries of functions, which only a server can load.
    pub libraries: Vec<Vec<u8>>,
    /// Why not all was taken, if so.
    pub failure: Option<String>,
}

/// Why no more is taken: the first reason that was met.
#[derive(Default)]
struct Failure {
    is_set: AtomicBool,
    why: Mutex<Option<String>>,
}

impl Failure {
    fn set(&self, why: String) {
        self.why.lock().expect("no holder panics").get_or_insert(why);
        self.is_set.store(true, Relaxed);
    }
}

/// Writes what `read` passes on, from files of so many bytes, into a store, by so many threads, until `interrupted` is set. Returns what `read`
/// returns, too.
pub fn fill<T>(
    store: &Store,
    threads: usize,
    bytes: u64,
    interrupted: &AtomicBool,
    read: impl FnOnce(&mut Filler) -> Result<T, source::Failure>,
) -> (Result<T, source::Failure>, Filled) {
    let failure = Failure::default();
    let (empty, spare) = channel();
    let (read, summary, libraries) = thread::scope(|scope| {
        let writers = (0..threads).map(|_| {
            let (groups, inbox) = sync_channel(GROUPS);
            let (writer, failure, empty) =
                (thread::Builder::new().name("import".into()), &failure, empty.clone());
            writer.spawn_scoped(scope, move || write_all(store, &inbox, &empty, failure)).expect("a thread");
            groups
        });
        let mut filler = Filler {
            store,
            writers: writers.collect(),
            groups: (0..store.partitions())
                .map(|partition| Group { partition, ..Group::default() })
                .collect(),
            spare,
            db: store.database(0),
            keys_max: bytes / KEY_BYTES,
            expected: None,
            has_begun: vec![false; store.partitions().into()],
            key: Key::default(),
            leaves_out: false,
            elements: 0,
            failure: &failure,
            interrupted,
            summary: Summary::default(),
            libraries: Vec::new(),
        };
        let read = read(&mut filler).and_then(|read| {
            filler.pass_all_on()?;
            Ok(read)
        });
        (read, filler.summary, filler.libraries)
    });
    (read, Filled { summary, libraries, failure: failure.why.into_inner().expect("no holder panics") })
}

/// Takes what is read.
pub struct Filler<'f> {
    store: &'f Store,
    /// The ways to the threads that write.
    writers: Vec<SyncSender<Group>>,
    /// What is gathered for each partition.
    groups: Vec<Group>,
    /// Groups that were written, for their memory.
    spare: Receiver<Group>,
    db: u8,
    /// Keys that the files can have at most.
    keys_max: u64,
    /// How many keys the database is said to have, and how many of them expire, in each partition.
    expected: Option<(u64, u64)>,
    /// In which partitions the database has a group of keys.
    has_begun: Vec<bool>,
    key: Key,
    /// The key has expired and is left out: all of its pieces are then.
    leaves_out: bool,
    /// Elements of the key's value so far.
    elements: u64,
    failure: &'f Failure,
    interrupted: &'f AtomicBool,
    summary: Summary,
    /// The sources of libraries of functions.
    libraries: Vec<Vec<u8>>,
}

impl Filler<'_> {
    fn add(&mut self, value: Value, is_first: bool, is_last: bool) -> Result<(), Stopped> {
        let (elements, bytes) = size(&value);
        let piece_at = (!is_first || !is_last).then_some(self.elements);
        self.elements += elements as u64;
        let partition = usize::from(self.store.partition_of(&self.key.name));
        // What a stream needs beside its entries is found out only when it is written; before a piece something may have to be read.
        let is_alone = piece_at.is_some() || matches!(value, Value::Stream(_));
        if is_alone && !self.groups[partition].jobs.is_empty() {
            self.pass_on(partition)?;
        }
        let group = &mut self.groups[partition];
        let job = group.begin(self.db, &self.key.name, self.key.expires_ms, elements, bytes);
        let content = match value {
            Value::String(string) if string.len() <= BYTES => {
                group.bytes.push(&string);
                Content::Short(string.len())
            }
            value => Content::Value(value),
        };
        group.jobs.push(Job { content, piece_at, is_last, ..job });
        if is_alone || group.is_full() { self.pass_on(partition) } else { Ok(()) }
    }

    fn pass_on(&mut self, partition: usize) -> Result<(), Stopped> {
        if self.failure.is_set.load(Relaxed) || self.interrupted.load(Relaxed) {
            return Err(Stopped);
        }
        let group = &mut self.groups[partition];
        if group.is_full() && !mem::replace(&mut self.has_begun[partition], true) {
            // Where few keys have come, few may come, whatever is said: their names may belong to other partitions.
            group.expected = self.expected;
        }
        let writer = &self.writers[partition % self.writers.len()];
        let next = Group { partition: partition as u16, ..self.spare.try_recv().unwrap_or_default() };
        writer.send(mem::replace(&mut self.groups[partition], next)).map_err(|_| Stopped)
    }

    fn pass_all_on(&mut self) -> Result<(), Stopped> {
        for partition in 0..self.groups.len() {
            if !self.groups[partition].jobs.is_empty() {
                self.pass_on(partition)?;
            }
        }
        Ok(())
    }
}

impl Sink for Filler<'_> {
    fn record(&mut self, record: Record) -> Result<(), Stopped> {
        match record {
            Record::Aux(..) => {}
            Record::Library(source) => {
                self.summary.libraries += 1;
                self.libraries.push(source);
            }
            Record::Database(number) => {
                self.pass_all_on()?;
                match u8::try_from(number).ok().filter(|number| usize::from(*number) < DATABASES) {
                    Some(number) => {
                        (self.db, self.expected) = (self.store.database(number), None);
                        self.has_begun.fill(false);
                    }
                    None => {
                        let refused: Stop = NO_DATABASE;
                        self.failure.set(format!("the number of a database is refused: {}", refused.text()));
                        return Err(Stopped);
                    }
                }
            }
            Record::Sizes(keys, expiring) => {
                let keys = keys.min(self.keys_max);
                let of_each = |count: u64| count / u64::from(self.store.partitions());
                self.expected = Some((of_each(keys), of_each(expiring.min(keys))));
            }
            Record::Key(key) => {
                self.leaves_out = has_expired(key.expires_ms);
                (self.key, self.elements) = (key, 0);
            }
            Record::Nothing => self.summary.empty += 1,
            Record::Value { is_last, .. } if self.leaves_out => {
                self.summary.expired += u64::from(is_last);
            }
            Record::Value { value, is_first, is_last } => {
                self.summary.keys += u64::from(is_last);
                self.add(value, is_first, is_last)?;
            }
        }
        Ok(())
    }

    fn command(&mut self, _: &[u8], _: Place) -> Result<(), Stopped> {
        unreachable!("a server executes commands")
    }

    fn note(&mut self, note: String) {
        self.summary.notes.push(note);
    }

    fn give_up_transaction(&mut self) -> Result<(), Stopped> {
        unreachable!("a server executes commands")
    }

    fn unread(&mut self, key: Unread) -> Result<(), Stopped> {
        if has_expired(key.expires_ms) {
            self.summary.expired += 1;
            return Ok(());
        }
        self.summary.keys += 1;
        let partition = usize::from(self.store.partition_of(key.name));
        let group = &mut self.groups[partition];
        let job = group.begin(self.db, key.name, key.expires_ms, key.elements, key.bytes);
        let content = match key.content {
            unread::Content::Text(text) => {
                group.bytes.push(text);
                Content::Short(text.len())
            }
            unread::Content::Serialized(kind, bytes) => {
                group.bytes.push(bytes);
                Content::Serialized(kind, bytes.len())
            }
        };
        group.jobs.push(Job { content, ..job });
        if group.is_full() { self.pass_on(partition) } else { Ok(()) }
    }

    const READS: bool = true;
}

/// Elements and bytes of a value.
fn size(value: &Value) -> (usize, usize) {
    match value {
        Value::String(string) => (1, string.len()),
        Value::List(strings) | Value::Set(strings) => (strings.len(), strings.bytes()),
        Value::Zset(members) => (2 * members.len(), members.iter().map(|(member, _)| member.len() + 8).sum()),
        Value::Hash(fields) => {
            (2 * fields.len(), fields.iter().map(|field| field.name.len() + field.value.len() + 8).sum())
        }
        Value::Stream(stream) => stream_size(stream),
    }
}

/// The same of a stream: its store takes four times the room of other elements for each.
fn stream_size(stream: &Stream) -> (usize, usize) {
    let entries = stream.entries.iter().map(|entry| {
        let bytes = entry.fields().map(|(name, value)| name.len() + value.len() + 16).sum::<usize>();
        (1 + entry.fields().len(), bytes + 16)
    });
    let groups = stream.groups.iter().map(|group| {
        let names = group.consumers.iter().map(|consumer| consumer.name.len()).sum::<usize>();
        (1 + group.consumers.len() + group.pending.len(), group.name.len() + names + 32 * group.pending.len())
    });
    let all = entries.chain(groups).fold((1, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    (4 * all.0, 4 * all.1)
}

/// Writes groups until there are no more, or one fails; then the others are taken and thrown away, so that nobody waits.
fn write_all(store: &Store, inbox: &Receiver<Group>, empty: &Sender<Group>, failure: &Failure) {
    for mut group in inbox {
        if failure.is_set.load(Relaxed) {
            continue;
        }
        if let Err(why) = write(store, &group) {
            failure.set(why);
        }
        store.log().kick();
        group.clear();
        if group.bytes.memory.len() <= 4 * BYTES {
            // At the end nobody needs it any more.
            let _ = empty.send(group);
        }
    }
}

/// Why a key is not taken.
enum Refusal {
    Stop(Stop),
    Because(&'static str),
}

impl From<Stop> for Refusal {
    fn from(stop: Stop) -> Refusal {
        Refusal::Stop(stop)
    }
}

impl From<holdfast_store::Error> for Refusal {
    fn from(error: holdfast_store::Error) -> Refusal {
        Refusal::Stop(error.into())
    }
}

/// Writes a group with one commit; the error says what is wrong with which key.
fn write(store: &Store, group: &Group) -> Result<(), String> {
    let mut fetched = Vec::new();
    if let Some((keys, expiring)) = group.expected {
        store.expect_keys(group.db, group.partition, keys, expiring);
    }
    loop {
        let names = group.jobs.iter().map(|job| group.name(job));
        let txn = store.begin_filling(group.db, group.partition, names, group.elements, group.size);
        let mut txn = txn.map_err(|e| Stop::from(e).text().into_owned())?;
        txn.supply(mem::take(&mut fetched));
        let written =
            group.jobs.iter().try_for_each(|job| write_job(&mut txn, group, job).map_err(|why| (job, why)));
        let (job, refusal) = match written {
            Ok(()) => {
                txn.count_call(group.size);
                txn.commit();
                return Ok(());
            }
            // A collection has left memory between two pieces. Each is the only one of its group, so nothing has been written.
            Err((Job { piece_at: Some(_), .. }, Refusal::Stop(Stop::Cold(cold)))) => {
                drop(txn);
                fetched.push(store.fetch(cold));
                continue;
            }
            Err(refused) => refused,
        };
        let key = What::Key { name: group.name(job).to_vec(), is_last: true };
        return Err(match refusal {
            Refusal::Stop(stop) => format!("{key} is refused: {}", stop.text()),
            Refusal::Because(why) => format!("{key} {why}"),
        });
    }
}

fn write_job(txn: &mut Txn, group: &Group, job: &Job) -> Result<(), Refusal> {
    const IS_THERE: Refusal = Refusal::Because("is there already");
    let (db, key) = (group.db, group.name(job));
    // A whole value looks for its key itself, which need not be done twice.
    let found = txn.lookups().hits;
    match (&job.content, job.piece_at) {
        (_, Some(0)) if txn.exists(db, key) => return Err(IS_THERE),
        (Content::Value(value), Some(before)) => {
            if !add_piece(txn, db, key, value, before)? {
                return Err(Refusal::Because("has an element twice"));
            }
        }
        (Content::Value(value), None) => dump::store(txn, db, key, value)?,
        (Content::Short(len), _) => txn.set(db, key, group.content(job, *len), false)?,
        (Content::Serialized(kind, len), _) => {
            // The reader tells more of it, when it reads the file again.
            let value = unread::read(*kind, group.content(job, *len));
            dump::store(txn, db, key, &value.map_err(|_| Refusal::Because("is damaged"))?)?;
        }
    }
    if job.piece_at.is_none() && txn.lookups().hits > found {
        return Err(IS_THERE);
    }
    if !job.is_last {
        return Ok(());
    }
    // A time of 0 would be none.
    if let Some(at) = job.expires_ms {
        txn.set_expiry(db, key, Some(at.max(1)))?;
    }
    // How often and when it was used is told of a key in memory, not on the medium.
    Ok(())
}

/// Adds a piece to a collection that has so many elements; whether all of them are new.
fn add_piece(txn: &mut Txn, db: u8, key: &[u8], piece: &Value, before: u64) -> holdfast_store::Result<bool> {
    Ok(match piece {
        Value::List(elements) if elements.is_empty() => true,
        Value::List(elements) => {
            let len = txn.list_push(db, key, End::Back, elements.iter(), true)?;
            len == before + elements.len() as u64
        }
        Value::Set(members) => txn.set_add(db, key, members.iter())? == members.len() as u64,
        Value::Zset(members) => {
            let added = txn.zset_add(db, key, Default::default(), members.iter())?.added;
            added == members.len() as u64
        }
        Value::Hash(fields) => {
            let pairs = fields.iter().map(|field| (field.name, field.value));
            let added = txn.hash_set(db, key, pairs, Expiry::Clear)?;
            for field in fields.iter().filter(|field| field.expires != 0) {
                txn.hash_expire(db, key, [field.name], field.expires, ExpireIf::Always, |_| ())?;
            }
            added == fields.len() as u64
        }
        Value::String(_) | Value::Stream(_) => unreachable!("only other collections come in pieces"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_store::{Options, SimIo};
    use std::{
        sync::Arc,
        time::{Duration, SystemTime, UNIX_EPOCH},
    };

    /// Its first pieces stayed without the others, and without an end of their time.
    #[test]
    fn a_collection_that_expires_while_it_is_read_is_taken_whole() {
        const LIFE: Duration = Duration::from_millis(300);
        let options = Options { partitions: 4, segment_size: Some(1 << 20), ..Options::default() };
        let store = Store::open_on(Arc::new(SimIo::new(1)), options).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let expires_ms = (now + LIFE).as_millis() as u64;
        let piece = |n: u64, is_last| {
            let value = Value::Set([format!("member {n}")].into_iter().collect());
            Record::Value { value, is_first: n == 0, is_last }
        };
        let (read, filled) = fill(&store, 1, 1 << 20, &AtomicBool::new(false), |filler| {
            let key = Key { name: b"set".to_vec(), expires_ms: Some(expires_ms), ..Key::default() };
            let mut record = |record| filler.record(record).map_err(source::Failure::Sink);
            record(Record::Key(key))?;
            record(piece(0, false))?;
            thread::sleep(LIFE + Duration::from_millis(1));
            record(piece(1, true))
        });
        assert!(read.is_ok() && filled.failure.is_none(), "{:?}", filled.failure);
        let db = store.database(0);
        let kept = store.begin_keys([&b"set"[..]]).expiry(db, b"set").flatten();
        assert_eq!(kept, Some(expires_ms));
    }
}
