//! How servers become a replica set. Each tells all others what its folder is; when all have said so, one of them is the origin: the
//! one that has data, or else the first. Its store rests while the others copy it. When all have a copy, the set is founded, and
//! never again: a server whose folder is blank then has lost its data, and gets a copy of the leader's, as one does that is too far behind.

use super::{
    copying::{self, Copying, Offered},
    frame::{Frame, Hello, Kind},
    giving::Giving,
    standing::{JOURNAL, Standing, State, is_file, kind},
};
use crate::{admin::log::log, server::replica_set::ReplicaSet};
use holdfast_consensus::{Extract, MemberId, Replica};
use holdfast_io::{Error, Io, crc32c};
use holdfast_store::{Options, Store};
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// Files of a folder at most.
const FILES_MAX: usize = 1 << 21;
/// How long what another server has said of itself counts.
const FRESH: Duration = Duration::from_secs(2);
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
    /// The number of the last entry of the replica.
    last: u64,
    copying: Option<Copying>,
    /// The folder that others copy.
    giving: Option<Giving>,
    greeted: Option<Instant>,
    /// What was logged last.
    told: String,
    outbox: Vec<(usize, Frame)>,
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
        let mut standing = Standing::read(&dir)?;
        if let Some(standing) = &mut standing {
            let installed = copying::install(&dir, standing);
            installed.map_err(|e| format!("cannot put a copy in place in {}: {e}", dir.display()))?;
        }
        let count = set.servers.len();
        if let Some(standing) = standing.as_ref().filter(|standing| standing.count != count) {
            return Err(format!(
                "replica-set names {count} servers, and the data folder {} is of a set of {}",
                dir.display(),
                standing.count
            ));
        }
        let kind = kind(standing.as_ref(), &*io).map_err(|e| format!("{}: {e}", dir.display()))?;
        let mut nonce = [0; 8];
        io.random(&mut nonce);
        Ok(Founding {
            own: standing.as_ref().map(|standing| standing.own),
            heard: vec![None; count],
            last: 0,
            servers: crc32c(set.list().as_bytes()),
            nonce: u64::from_le_bytes(nonce),
            set,
            dir,
            io,
            options,
            standing,
            kind,
            copying: None,
            giving: None,
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

    /// Tells all servers of this one, of whose replica `last` is the number of the last entry; 0: there is none.
    pub fn greet_all(&mut self, last: u64) {
        self.last = last;
        self.greeted = Some(Instant::now());
        (0..self.set.servers.len()).for_each(|to| self.greet(to));
    }

    /// Time goes on. `last`: as above.
    ///
    /// # Errors
    /// The medium's.
    pub fn tick(&mut self, last: u64) -> Result<(), String> {
        let now = Instant::now();
        if self.kind != Kind::Member || self.greeted.is_none_or(|greeted| now >= greeted + GREET) {
            self.greet_all(last);
        }
        match self.copying.as_mut().map(Copying::is_due) {
            Some(None) => {
                log!(Warning, "The copy does not come, and is given up");
                self.copying = None;
            }
            Some(Some(true)) => self.ask(),
            _ => {}
        }
        match self.kind {
            Kind::Member => Ok(()),
            Kind::Origin => self.offer(),
            Kind::Blank | Kind::Data => self.decide(now),
            Kind::Damaged => {
                self.tell("the data of this server are damaged: a copy of the leader's is asked for".into());
                Ok(())
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
            last: self.last,
        };
        self.outbox.push((to, Frame::Hello(hello)));
    }

    /// Another server has sent something.
    ///
    /// # Errors
    /// The medium's; or the option `replica-set` is another one than when the set was founded. Or a copy is to take the place of what there is, and
    /// the server must begin again.
    pub fn receive(&mut self, frame: Frame, replica: Option<&Replica>) -> Result<(), String> {
        match frame {
            Frame::Hello(hello) => self.meet(hello),
            Frame::Offer { set, from, to, nonce, extract, files } => {
                let (from, to) = (from as usize, to as usize);
                self.take_offer(to, nonce, Offered { set, from, extract, files }, replica)
            }
            Frame::Fetch { from, name, offset, .. } => self.give(from as usize, &name, offset),
            Frame::Part { set, name, offset, bytes } => self.take_part(set, &name, offset, &bytes, replica),
            Frame::Envelope { .. } => Ok(()),
        }
    }

    fn meet(&mut self, hello: Hello) -> Result<(), String> {
        if hello.servers != self.servers {
            self.tell(format!(
                "another server has another list of servers in its option replica-set than this one ({})",
                self.set.list()
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
        if has(Kind::Member) || has(Kind::Damaged) {
            self.tell(match self.kind {
                Kind::Data => format!("{} has data that are not the replica set's: it takes no part", self.dir.display()),
                _ => "the others are a replica set, and the data of this server are not here: a copy is asked for".into(),
            });
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
            Ok((store.log().tail(), store.log().epoch()))
        };
        let (end, epoch) = end().map_err(|e: Error| self.failed(&e))?;
        let mut set = [0; 8];
        self.io.random(&mut set);
        let set = u64::from_le_bytes(set).max(1);
        let (count, state) = (self.heard.len(), State::Origin { end, epoch, have: Vec::new() });
        self.standing = Some(Standing { set, own, count, state });
        self.write()?;
        self.kind = Kind::Origin;
        log!(Notice, "The replica set {set:016x} begins with the data of this server");
        self.offer()
    }

    /// As the origin, has the others copy the folder, or takes it that all have.
    fn offer(&mut self) -> Result<(), String> {
        let Some(Standing { set, own, state: State::Origin { end, epoch, have }, .. }) =
            self.standing.clone()
        else {
            return Ok(());
        };
        let base = Replica::first_base(&self.voters(), end);
        // Nobody has voted in it.
        let voted = (epoch.into(), 0);
        let missing: Vec<usize> =
            (0..self.heard.len()).filter(|at| *at != own && !have.contains(at)).collect();
        if missing.is_empty() {
            return self.join(set, own, &base, voted);
        }
        if self.giving.is_none() {
            // Who copies it has nothing yet.
            let giving = Giving::new(set, own, self.io.clone(), Extract { base, last: (0, 0), voted });
            self.giving = Some(giving.map_err(|e| self.failed(&e))?);
        }
        let giving = self.giving.as_ref().expect("it is there");
        for to in missing {
            if let Some((_, hello)) = &self.heard[to]
                && hello.kind == Kind::Blank
            {
                self.outbox.push((to, giving.offer(to, hello.nonce)));
            }
        }
        Ok(())
    }

    fn voters(&self) -> Vec<MemberId> {
        (1..=self.heard.len() as MemberId).collect()
    }

    /// Becomes one of the set's, with a folder that has all that the set begins with.
    fn join(&mut self, set: u64, own: usize, base: &[u8], voted: (u64, MemberId)) -> Result<(), String> {
        let id = own as MemberId + 1;
        Replica::adopt(self.io.clone(), JOURNAL, id, base, voted).map_err(|e| self.failed(&e))?;
        self.giving = None;
        self.become_member(Standing { set, own, count: self.heard.len(), state: State::Member })
    }

    fn become_member(&mut self, standing: Standing) -> Result<(), String> {
        let Standing { set, own, count, .. } = standing;
        self.standing = Some(standing);
        self.write()?;
        self.kind = Kind::Member;
        log!(Notice, "This is server {} of {count} of the replica set {set:016x}", own + 1);
        Ok(())
    }

    fn take_offer(
        &mut self,
        to: usize,
        nonce: u64,
        offered: Offered,
        replica: Option<&Replica>,
    ) -> Result<(), String> {
        let (from, count) = (offered.from, self.heard.len());
        let is_known = from < count && self.own == Some(to) && offered.set > 0;
        let is_possible =
            offered.files.len() < FILES_MAX && offered.files.iter().all(|(name, _)| is_file(name));
        let is_wanted = match self.kind {
            // What another process was to get, which had this folder before, may lack what that has acknowledged since.
            Kind::Blank => nonce == self.nonce,
            Kind::Damaged => {
                let is_ours = |standing: &Standing| standing.set == offered.set;
                nonce == self.nonce && self.standing.as_ref().is_some_and(is_ours)
            }
            Kind::Member => {
                self.member_of() == Some(offered.set)
                    && nonce == 0
                    && replica.is_some_and(|replica| replica.is_of_use(&offered.extract))
            }
            Kind::Data | Kind::Origin => false,
        };
        if !is_wanted || !is_known || !is_possible || self.copying.is_some() {
            return Ok(());
        }
        log!(Notice, "Copying the data of {}", self.set.servers[from]);
        let begun = Copying::begin(self.io.clone(), &self.dir, to, offered);
        self.copying = Some(begun.map_err(|e| self.failed(&e))?);
        self.ask();
        Ok(())
    }

    fn ask(&mut self) {
        if let Some(copying) = &self.copying {
            self.outbox.push((copying.from, copying.fetch()));
        }
    }

    /// As the origin.
    fn give(&mut self, from: usize, name: &str, offset: u64) -> Result<(), String> {
        let Some(giving) = self.giving.as_ref().filter(|_| from < self.heard.len()) else { return Ok(()) };
        let part = giving.part(name, offset).map_err(|e| self.failed(&e))?;
        self.outbox.extend(part.map(|part| (from, part)));
        Ok(())
    }

    fn take_part(
        &mut self,
        set: u64,
        name: &str,
        offset: u64,
        bytes: &[u8],
        replica: Option<&Replica>,
    ) -> Result<(), String> {
        let Some(copying) = self.copying.as_mut().filter(|copying| copying.set == set) else { return Ok(()) };
        if name.is_empty() && copying.is_whole() {
            let copying = self.copying.take().expect("it is whole");
            return self.finish(copying, replica);
        }
        let taken = copying.take(name, offset, bytes);
        if taken.map_err(|e| self.failed(&e))? {
            self.ask();
        }
        Ok(())
    }

    /// All that was copied was kept until the end.
    fn finish(&mut self, copying: Copying, replica: Option<&Replica>) -> Result<(), String> {
        let is_of_use =
            self.kind.needs_all() || replica.is_some_and(|replica| replica.is_of_use(&copying.extract));
        let Some(own) = self.own.filter(|_| is_of_use) else { return Ok(()) };
        let (set, count) = (copying.set, self.heard.len());
        copying.finish().map_err(|e| self.failed(&e))?;
        let mut standing = Standing { set, own, count, state: State::Whole };
        standing.write(&self.dir).map_err(|e| self.failed(&e))?;
        if self.kind == Kind::Member {
            return Err("a copy of the leader's data takes the place of what there is".into());
        }
        copying::install(&self.dir, &mut standing).map_err(|e| self.failed(&e))?;
        self.become_member(standing)
    }
}
