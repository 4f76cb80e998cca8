//! How servers become a replica set. Each tells all others what its folder is; when all have said so, one of them is the origin: the
//! one that has data, or else the first. Its store rests while the others copy it, file by file. When all have a copy, the set is founded, and
//! never again: a server whose folder is blank then has lost its data.

use super::{
    frame::{Frame, Hello, Kind},
    standing::{JOURNAL, Standing, State, files, is_file, kind, remove_all},
};
use crate::{admin::log::log, server::replica_set::ReplicaSet};
use holdfast_consensus::{MemberId, Replica};
use holdfast_io::{Durability, Error, File, Io, crc32c};
use holdfast_store::{Lsn, Options, Store};
use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// Bytes of a file that are asked for at once.
const PART: u64 = 1 << 20;
/// Files of a folder at most.
const FILES_MAX: usize = 1 << 21;
/// How long what another server has said of itself counts.
const FRESH: Duration = Duration::from_secs(2);
/// After what time a part is asked for again.
const AGAIN: Duration = Duration::from_secs(1);
/// How often one of the set's tells the others of itself, who may not be.
const GREET: Duration = Duration::from_secs(1);

/// How far this server is.
pub struct Founding {
    set: Arc<ReplicaSet>,
    dir: PathBuf,
    io: Arc<dyn Io>,
    options: Options,
    standing: Option<Standing>,
    kind: Kind,
    nonce: u64,
    servers: u32,
    own: Option<usize>,
    heard: Vec<Option<(Instant, Hello)>>,
    copy: Option<Copy>,
    greeted: Option<Instant>,
    /// What was logged last.
    told: String,
    outbox: Vec<(usize, Frame)>,
}

/// A folder that is being copied here.
struct Copy {
    set: u64,
    from: usize,
    end: Lsn,
    files: Vec<(String, u64)>,
    at: usize,
    offset: u64,
    file: Option<Arc<dyn File>>,
    asked: Instant,
}

impl Founding {
    /// Of the folder `dir`, which `io` is.
    ///
    /// # Errors
    /// The folder is of another set, or does not say of which.
    pub fn new(
        set: Arc<ReplicaSet>,
        dir: PathBuf,
        io: Arc<dyn Io>,
        options: Options,
    ) -> Result<Founding, String> {
        let standing = Standing::read(&dir)?;
        let count = set.servers.len();
        if let Some(standing) = standing.as_ref().filter(|standing| standing.count != count) {
            return Err(format!(
                "replica-set names {count} servers, and the data folder {} is of a set of {}",
                dir.display(),
                standing.count
            ));
        }
        let kind = kind(standing.as_ref(), &*io).map_err(|e| format!("{}: {e}", dir.display()))?;
        let names: Vec<String> = set.servers.iter().map(ToString::to_string).collect();
        let mut nonce = [0; 8];
        io.random(&mut nonce);
        Ok(Founding {
            own: standing.as_ref().map(|standing| standing.own),
            heard: vec![None; count],
            servers: crc32c(names.join(" ").as_bytes()),
            nonce: u64::from_le_bytes(nonce),
            set,
            dir,
            io,
            options,
            standing,
            kind,
            copy: None,
            greeted: None,
            told: String::new(),
            outbox: Vec::new(),
        })
    }

    /// The set, once this server is one of it.
    pub fn member_of(&self) -> Option<u64> {
        self.standing.as_ref().filter(|standing| standing.state == State::Member).map(|standing| standing.set)
    }

    /// Which of the servers this one is, once that is known.
    pub fn own(&self) -> Option<usize> {
        self.own
    }

    /// What is to be sent, and to which server.
    pub fn take_frames(&mut self) -> Vec<(usize, Frame)> {
        std::mem::take(&mut self.outbox)
    }

    /// Time goes on.
    ///
    /// # Errors
    /// The medium's.
    pub fn tick(&mut self) -> Result<(), String> {
        let now = Instant::now();
        if self.kind != Kind::Member || self.greeted.is_none_or(|greeted| now >= greeted + GREET) {
            self.greeted = Some(now);
            (0..self.set.servers.len()).for_each(|to| self.greet(to));
        }
        match self.kind {
            Kind::Member => Ok(()),
            Kind::Origin => self.offer(),
            Kind::Blank | Kind::Data => {
                if let Some(copy) = self.copy.as_mut().filter(|copy| now >= copy.asked + AGAIN) {
                    copy.asked = now;
                    self.ask();
                }
                self.decide(now)
            }
        }
    }

    fn greet(&mut self, to: usize) {
        let hello = Hello {
            to: to as u32,
            nonce: self.nonce,
            from: self.own.map(|own| own as u32),
            servers: self.servers,
            set: self.standing.as_ref().map_or(0, |standing| standing.set),
            kind: self.kind,
        };
        self.outbox.push((to, Frame::Hello(hello)));
    }

    /// Another server has sent something.
    ///
    /// # Errors
    /// The medium's; or the option `replica-set` is another one than when the set was founded.
    pub fn receive(&mut self, frame: Frame) -> Result<(), String> {
        match frame {
            Frame::Hello(hello) => self.meet(hello),
            Frame::Offer { set, from, to, end, files } => {
                self.take_offer(set, from as usize, to as usize, end, files)
            }
            Frame::Fetch { set, from, name, offset } => self.send_part(set, from as usize, name, offset),
            Frame::Part { set, name, offset, bytes } => self.take_part(set, &name, offset, &bytes),
            Frame::Envelope { .. } => Ok(()),
        }
    }

    fn meet(&mut self, hello: Hello) -> Result<(), String> {
        if hello.servers != self.servers {
            self.tell(format!(
                "another server has another list of servers in its option replica-set than this one ({})",
                self.set.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            ));
            return Ok(());
        }
        let to = hello.to as usize;
        if hello.nonce == self.nonce {
            return match self.own {
                Some(own) if own != to => Err(format!(
                    "replica-set: this was server {} of the set, and is number {} in the list now: the order must stay",
                    own + 1,
                    to + 1
                )),
                _ => {
                    self.own = Some(to).filter(|to| *to < self.heard.len());
                    Ok(())
                }
            };
        }
        let Some(from) = hello.from.map(|from| from as usize).filter(|from| *from < self.heard.len()) else {
            return Ok(());
        };
        if self.kind == Kind::Member && hello.kind != Kind::Member {
            self.greet(from);
        }
        if let Some(standing) =
            self.standing.as_mut().filter(|it| it.set == hello.set && hello.kind == Kind::Member)
            && let State::Origin { have, .. } = &mut standing.state
            && !have.contains(&from)
        {
            have.push(from);
            self.write()?;
        }
        self.heard[from] = Some((Instant::now(), hello));
        Ok(())
    }

    fn write(&self) -> Result<(), String> {
        let standing = self.standing.as_ref().expect("it is written");
        standing.write(&self.dir).map_err(|e| self.failed(&e))
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> String {
        format!("cannot use {} for a replica set: {error}", self.dir.display())
    }

    fn tell(&mut self, text: String) {
        if self.told != text {
            log!(Warning, "{text}");
            self.told = text;
        }
    }

    /// Finds who is the origin, and becomes it.
    fn decide(&mut self, now: Instant) -> Result<(), String> {
        let Some(own) = self.own else { return Ok(()) };
        let fresh = |(at, hello): &(Instant, Hello)| (now < *at + FRESH).then(|| hello.clone());
        let others: Vec<Option<Hello>> = self.heard.iter().map(|it| it.as_ref().and_then(fresh)).collect();
        let has = |kind| others.iter().flatten().any(|hello| hello.kind == kind);
        if has(Kind::Origin) {
            if self.kind == Kind::Data {
                self.tell(format!(
                    "{} has data of its own, so it cannot become one of a replica set that has others",
                    self.dir.display()
                ));
            }
            return Ok(());
        }
        if has(Kind::Member) {
            self.tell(
                "the others are a replica set, and the data of this server are not here: it takes no part until its folder is back"
                    .into(),
            );
            return Ok(());
        }
        let kinds: Option<Vec<Kind>> = (0..others.len())
            .map(|at| if at == own { Some(self.kind) } else { others[at].as_ref().map(|hello| hello.kind) })
            .collect();
        let Some(kinds) = kinds else { return Ok(()) };
        let with_data: Vec<usize> = (0..kinds.len()).filter(|at| kinds[*at] == Kind::Data).collect();
        if with_data.len() > 1 {
            let names: Vec<String> = with_data.iter().map(|at| self.set.servers[*at].to_string()).collect();
            self.tell(format!(
                "more than one server has data, and a replica set begins with those of one: {}",
                names.join(", ")
            ));
            return Ok(());
        }
        if with_data.first().copied().unwrap_or(0) == own { self.begin(own) } else { Ok(()) }
    }

    /// Becomes the origin.
    fn begin(&mut self, own: usize) -> Result<(), String> {
        let end = || {
            let store = Store::open_on(self.io.clone(), self.options.clone())?;
            store.close()?;
            Ok(store.log().tail())
        };
        let end = end().map_err(|e: Error| self.failed(&e))?;
        let mut set = [0; 8];
        self.io.random(&mut set);
        let set = u64::from_le_bytes(set).max(1);
        let (count, state) = (self.heard.len(), State::Origin { end, have: Vec::new() });
        self.standing = Some(Standing { set, own, count, state });
        self.write()?;
        self.kind = Kind::Origin;
        log!(Notice, "The replica set {set:016x} begins with the data of this server");
        self.offer()
    }

    /// As the origin, has the others copy the folder, or takes it that all have.
    fn offer(&mut self) -> Result<(), String> {
        let Some(Standing { set, own, state: State::Origin { end, have }, .. }) = self.standing.clone()
        else {
            return Ok(());
        };
        let missing: Vec<usize> =
            (0..self.heard.len()).filter(|at| *at != own && !have.contains(at)).collect();
        if missing.is_empty() {
            return self.join(set, own, end);
        }
        let files = files(&*self.io).map_err(|e| self.failed(&e))?;
        for to in missing {
            let is_blank = |(_, hello): &(Instant, Hello)| hello.kind == Kind::Blank;
            if self.heard[to].as_ref().is_some_and(is_blank) {
                let (from, files) = (own as u32, files.clone());
                self.outbox.push((to, Frame::Offer { set, from, to: to as u32, end, files }));
            }
        }
        Ok(())
    }

    /// Becomes one of the set's, with a folder that has all that the set begins with.
    fn join(&mut self, set: u64, own: usize, end: Lsn) -> Result<(), String> {
        let count = self.heard.len();
        let voters: Vec<MemberId> = (1..=count as MemberId).collect();
        let id = own as MemberId + 1;
        Replica::found(self.io.clone(), JOURNAL, id, &voters, end).map_err(|e| self.failed(&e))?;
        self.standing = Some(Standing { set, own, count, state: State::Member });
        self.write()?;
        (self.kind, self.copy) = (Kind::Member, None);
        log!(Notice, "This is server {id} of {count} of the replica set {set:016x}");
        Ok(())
    }

    fn take_offer(
        &mut self,
        set: u64,
        from: usize,
        to: usize,
        end: Lsn,
        files: Vec<(String, u64)>,
    ) -> Result<(), String> {
        let is_known = from < self.heard.len() && self.own == Some(to) && set > 0;
        let is_possible = files.len() < FILES_MAX && files.iter().all(|(name, _)| is_file(name));
        let is_begun = self.copy.as_ref().is_some_and(|copy| copy.set == set);
        if self.kind != Kind::Blank || !is_known || !is_possible || is_begun {
            return Ok(());
        }
        log!(Notice, "Copying the data of {}", self.set.servers[from]);
        let count = self.heard.len();
        self.standing = Some(Standing { set, own: to, count, state: State::Copying });
        self.write()?;
        remove_all(&*self.io).map_err(|e| self.failed(&e))?;
        self.copy = Some(Copy { set, from, end, files, at: 0, offset: 0, file: None, asked: Instant::now() });
        self.go_on()
    }

    /// Asks for the next part; when there is none, the copy is whole.
    fn go_on(&mut self) -> Result<(), String> {
        let Some(copy) = &mut self.copy else { return Ok(()) };
        let gone_on = copy.open_next(&*self.io);
        if !gone_on.map_err(|e| self.failed(&e))? {
            self.ask();
            return Ok(());
        }
        let (set, end) = self.copy.as_ref().map(|copy| (copy.set, copy.end)).expect("it is whole");
        ["log", ""]
            .into_iter()
            .try_for_each(|folder| self.io.sync_dir(folder))
            .map_err(|e| self.failed(&e))?;
        let own = self.own.expect("it was offered to it");
        self.join(set, own, end)
    }

    fn ask(&mut self) {
        let (Some(copy), Some(own)) = (&self.copy, self.own) else { return };
        let (set, name, offset) = (copy.set, copy.files[copy.at].0.clone(), copy.offset);
        self.outbox.push((copy.from, Frame::Fetch { set, from: own as u32, name, offset }));
    }

    fn send_part(&mut self, set: u64, from: usize, name: String, offset: u64) -> Result<(), String> {
        let is_offered = self.kind == Kind::Origin && self.standing.as_ref().is_some_and(|it| it.set == set);
        if !is_offered || from >= self.heard.len() || !is_file(&name) {
            return Ok(());
        }
        let read = || -> io::Result<Vec<u8>> {
            let file = self.io.open(&name, false)?;
            let mut bytes = vec![0; file.len()?.saturating_sub(offset).min(PART) as usize];
            file.read_at(&mut bytes, offset)?;
            bytes.truncate(bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1));
            Ok(bytes)
        };
        let bytes = read().map_err(|e| self.failed(&e))?;
        self.outbox.push((from, Frame::Part { set, name, offset, bytes }));
        Ok(())
    }

    fn take_part(&mut self, set: u64, name: &str, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let Some(copy) = &mut self.copy else { return Ok(()) };
        let is_wanted = copy.set == set && copy.files[copy.at].0 == name && copy.offset == offset;
        if !is_wanted || bytes.len() as u64 > PART {
            return Ok(());
        }
        let taken = copy.take(bytes);
        taken.map_err(|e| self.failed(&e))?;
        self.go_on()
    }
}

impl Copy {
    /// Opens the next file that has anything, if no file is open. True: there is none.
    fn open_next(&mut self, io: &dyn Io) -> io::Result<bool> {
        while self.file.is_none() {
            let Some((name, len)) = self.files.get(self.at) else { return Ok(true) };
            let file = io.open(name, true)?;
            file.set_len(*len)?;
            if *len > 0 {
                self.file = Some(file);
            } else {
                file.sync()?;
                self.at += 1;
            }
        }
        Ok(false)
    }

    /// Takes the part that was asked for.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let len = self.files[self.at].1;
        let file = self.file.as_ref().expect("what was asked for is open");
        let part = PART.min(len - self.offset);
        if bytes.len() as u64 > part {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a part is too long"));
        }
        if !bytes.is_empty() {
            file.write_at(&[bytes], self.offset, Durability::Volatile)?;
        }
        self.offset += part;
        self.asked = Instant::now();
        if self.offset == len {
            file.sync()?;
            (self.file, self.offset) = (None, 0);
            self.at += 1;
        }
        Ok(())
    }
}
