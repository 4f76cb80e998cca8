//! What is read becomes commands: small values go by RESTORE, large collections piece by piece.

use super::{
    source::{Place, Sink, Stopped},
    target::{Outcome, Pipeline, Sent, What},
};
use holdfast_rdb::{
    Fields, Value, encode,
    file::{Key, Record},
};
use holdfast_resp::write_double;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

/// What was imported.
#[derive(Default)]
pub struct Summary {
    pub(super) keys: u64,
    pub(super) expired: u64,
    pub(super) empty: u64,
    pub(super) libraries: u64,
    pub(super) commands: u64,
    pub(super) notes: Vec<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        writeln!(f, "keys: {}", self.keys)?;
        for (name, count) in [
            ("expired keys, left out", self.expired),
            ("collections without elements, left out", self.empty),
            ("libraries of functions", self.libraries),
            ("commands executed again", self.commands),
        ] {
            if count > 0 {
                writeln!(f, "{name}: {count}")?;
            }
        }
        writeln!(f, "ok")
    }
}

/// Whether a key that expires then has done so: such keys are left out when a server loads a file.
pub fn has_expired(expires_ms: Option<u64>) -> bool {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    expires_ms.is_some_and(|at| u128::from(at) <= now())
}

/// Takes everything and does nothing with it: what is not sound has been found then.
#[derive(Default)]
pub struct Verify;

impl Sink for Verify {
    fn record(&mut self, _: Record) -> Result<(), Stopped> {
        Ok(())
    }

    fn command(&mut self, _: &[u8], _: Place) -> Result<(), Stopped> {
        Ok(())
    }

    fn note(&mut self, _: String) {}

    fn give_up_transaction(&mut self) -> Result<(), Stopped> {
        Ok(())
    }
}

/// Sends everything.
pub struct Feed {
    /// Keys go to one after another, each with all that belongs to it.
    pipelines: Vec<Pipeline>,
    /// The one that the key goes to.
    current: usize,
    replace: bool,
    skip_expired: bool,
    /// Set once no more is to be sent.
    interrupted: Arc<AtomicBool>,
    key: Key,
    /// The key is left out, whose pieces all are then.
    leaves_out: bool,
    /// Elements of the key's value so far.
    elements: i64,
    summary: Summary,
}

impl Feed {
    /// Sends to a server, in which keys that are there are replaced or not, until `interrupted` is set. Keys that have expired are
    /// left out or not. Commands stay in their order only with one pipeline.
    pub fn new(
        pipelines: Vec<Pipeline>,
        replace: bool,
        skip_expired: bool,
        interrupted: Arc<AtomicBool>,
    ) -> Feed {
        Feed {
            pipelines,
            current: 0,
            replace,
            skip_expired,
            interrupted,
            key: Key::default(),
            leaves_out: false,
            elements: 0,
            summary: Summary::default(),
        }
    }

    /// Waits for the replies to all that was sent.
    pub fn finish(self) -> (Summary, Sent) {
        let sent = self.pipelines.into_iter().map(Pipeline::finish);
        let all = sent.fold(Sent::default(), |all, one| Sent {
            failure: all.failure.or(one.failure),
            keys: all.keys + one.keys,
            is_unknown: all.is_unknown || one.is_unknown,
        });
        (self.summary, all)
    }

    fn check_interruption(&self) -> Result<(), Stopped> {
        if self.interrupted.load(Relaxed) { Err(Stopped) } else { Ok(()) }
    }

    /// Sends something of the key; with the last of it, the key has arrived.
    fn send<A: AsRef<[u8]>>(&mut self, args: &[A], outcome: Outcome, is_last: bool) -> Result<(), Stopped> {
        self.check_interruption()?;
        let what = What::Key { name: self.key.name.clone(), is_last };
        self.pipelines[self.current].send(args, what, outcome)
    }

    fn other<A: AsRef<[u8]>>(&mut self, args: &[A], what: &'static str) -> Result<(), Stopped> {
        self.check_interruption()?;
        self.pipelines[0].send(args, What::Other(what), Outcome::Any)
    }

    fn whole(&mut self, value: &Value) -> Result<(), Stopped> {
        let Key { name, expires_ms, idle_s, frequency } = self.key.clone();
        // A time of 0 would be none.
        let ttl = expires_ms.map(|at| at.max(1).to_string());
        if let (Value::String(string), None, None) = (value, idle_s, frequency) {
            let mut args = vec![b"SET", &name[..], string];
            if let Some(ttl) = &ttl {
                args.extend([b"PXAT", ttl.as_bytes()]);
            }
            if !self.replace {
                args.push(b"NX");
            }
            return self.send(&args, Outcome::Ok, true);
        }
        let payload = match value {
            Value::String(string) => encode::string(string),
            Value::List(strings) => encode::list(strings.len() as u64, strings.iter()),
            Value::Set(strings) => encode::set(strings.len() as u64, strings.iter()),
            Value::Zset(members) => encode::zset(members.len() as u64, members.iter()),
            Value::Hash(fields) => {
                let fields = fields.iter();
                let fields =
                    fields.map(|f| encode::Field { name: f.name, value: f.value, expires: f.expires });
                encode::hash(&fields.collect::<Vec<_>>())
            }
            Value::Stream(stream) => encode::stream_with_activity(stream),
        };
        let ttl = ttl.as_deref().unwrap_or("0");
        let mut args = vec![b"RESTORE", &name[..], ttl.as_bytes(), &payload, b"ABSTTL"];
        if self.replace {
            args.push(b"REPLACE");
        }
        let (idle, frequency) = (idle_s.map(|it| it.to_string()), frequency.map(|it| it.to_string()));
        match (&idle, &frequency) {
            (_, Some(frequency)) => args.extend([b"FREQ", frequency.as_bytes()]),
            (Some(idle), None) => args.extend([b"IDLETIME", idle.as_bytes()]),
            (None, None) => {}
        }
        self.send(&args, Outcome::Ok, true)
    }

    fn piece(&mut self, value: &Value, is_first: bool, is_last: bool) -> Result<(), Stopped> {
        let name = self.key.name.clone();
        if is_first {
            self.elements = 0;
            if self.replace {
                self.send(&[b"DEL", &name[..]], Outcome::Any, false)?;
            }
        }
        let digits: Vec<Vec<u8>>;
        let (command, args): (&[u8], Vec<&[u8]>) = match value {
            Value::List(strings) => (b"RPUSH", strings.iter().collect()),
            Value::Set(strings) => (b"SADD", strings.iter().collect()),
            Value::Zset(members) => {
                let written = members.iter().map(|(_, score)| {
                    let mut text = Vec::new();
                    write_double(&mut text, score);
                    text
                });
                digits = written.collect();
                let pairs = members.iter().zip(&digits);
                (b"ZADD", pairs.flat_map(|((member, _), score)| [&score[..], member]).collect())
            }
            Value::Hash(fields) => {
                (b"HSET", fields.iter().flat_map(|field| [field.name, field.value]).collect())
            }
            Value::String(_) | Value::Stream(_) => unreachable!("only other collections come in pieces"),
        };
        let each = if matches!(value, Value::Zset(_) | Value::Hash(_)) { 2 } else { 1 };
        let added = (args.len() / each) as i64;
        self.elements += added;
        if added > 0 {
            // RPUSH tells how many elements there are, the others how many are new.
            let expected = if matches!(value, Value::List(_)) { self.elements } else { added };
            let args: Vec<&[u8]> = [command, &name].into_iter().chain(args).collect();
            self.send(&args, Outcome::Number(expected), false)?;
        }
        if let Value::Hash(fields) = value {
            self.expire_fields(fields)?;
        }
        if !is_last {
            return Ok(());
        }
        match self.key.expires_ms {
            Some(at) => {
                let at = at.max(1).to_string();
                self.send(&[b"PEXPIREAT", &name[..], at.as_bytes()], Outcome::Any, true)
            }
            None => self.send(&[b"EXISTS", &name[..]], Outcome::Number(1), true),
        }
    }

    fn expire_fields(&mut self, fields: &Fields) -> Result<(), Stopped> {
        let name = self.key.name.clone();
        for field in fields.iter().filter(|field| field.expires != 0) {
            let at = field.expires.to_string();
            self.send(
                &[b"HPEXPIREAT", &name[..], at.as_bytes(), b"FIELDS", b"1", field.name],
                Outcome::Any,
                false,
            )?;
        }
        Ok(())
    }
}

impl Sink for Feed {
    fn record(&mut self, record: Record) -> Result<(), Stopped> {
        match record {
            Record::Aux(..) | Record::Sizes(..) => Ok(()),
            Record::Library(source) => {
                self.summary.libraries += 1;
                let mut args = vec![&b"FUNCTION"[..], b"LOAD"];
                if self.replace {
                    args.push(b"REPLACE");
                }
                args.push(&source);
                self.other(&args, "a library of functions")
            }
            Record::Database(number) => {
                let (number, what) = (number.to_string(), "the number of a database");
                self.pipelines.iter_mut().try_for_each(|pipeline| {
                    pipeline.send(&[b"SELECT", number.as_bytes()], What::Other(what), Outcome::Any)
                })
            }
            Record::Key(key) => {
                self.leaves_out = self.skip_expired && has_expired(key.expires_ms);
                self.key = key;
                self.current = (self.current + 1) % self.pipelines.len();
                Ok(())
            }
            Record::Nothing => {
                self.summary.empty += 1;
                Ok(())
            }
            Record::Value { is_last, .. } if self.leaves_out => {
                self.summary.expired += u64::from(is_last);
                Ok(())
            }
            Record::Value { value, is_first, is_last } => {
                self.summary.keys += u64::from(is_last);
                if is_first && is_last { self.whole(&value) } else { self.piece(&value, is_first, is_last) }
            }
        }
    }

    fn command(&mut self, bytes: &[u8], at: Place) -> Result<(), Stopped> {
        self.summary.commands += 1;
        assert!(self.pipelines.len() == 1, "what is executed again is executed in its order");
        self.check_interruption()?;
        self.pipelines[0].send_bytes(bytes, What::Command(at), Outcome::Any)
    }

    fn note(&mut self, note: String) {
        self.summary.notes.push(note);
    }

    fn give_up_transaction(&mut self) -> Result<(), Stopped> {
        self.other(&[b"DISCARD"], "the end of a transaction")
    }
}
