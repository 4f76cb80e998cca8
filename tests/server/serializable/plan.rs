//! Transactions: how they are sent, and what has become of them.

use super::{
    ELEMENTS,
    history::{Element, Key, Op},
    keys::{Kind, Shape, kind},
    part::{Part, delivered},
};
use crate::harness::{is_error, redirected_to};
use holdfast_resp::{Reply, write_command};
use std::{collections::BTreeSet, iter, ptr, slice, sync::Mutex};

/// Executes commands, of which each is its count of words, and these, and takes some time before each.
const SCRIPT: &str = "local replies, at = {}, 2
while ARGV[at] do
  for turn = 1, ARGV[1] do end
  local count = tonumber(ARGV[at])
  replies[#replies + 1] = redis.pcall(unpack(ARGV, at + 1, at + count))
  at = at + count + 1
end
return replies";

/// Commands that leave what a key has as it is, together, or come to nothing. `KEY` is its name.
pub const SAME: [&[&str]; 10] = [
    &["RENAME KEY KEY:other", "RENAME KEY:other KEY"],
    &["COPY KEY KEY:other", "RENAME KEY:other KEY"],
    &["EXPIRE KEY 100000"],
    &["PERSIST KEY"],
    &["LTRIM KEY 0 -1"],
    &["SUNIONSTORE KEY KEY"],
    &["ZRANGESTORE KEY KEY 0 -1"],
    &["XTRIM KEY MAXLEN 100000"],
    &["ZREM KEY other"],
    &["HDEL KEY other"],
];

/// Commands that leave nothing of a key: at once, but for the first of these, which does so soon.
pub const CLEAR: [&[&str]; 6] = [
    &["PEXPIRE KEY 30"],
    &["DEL KEY"],
    &["UNLINK KEY"],
    &["PEXPIREAT KEY 1"],
    &["RENAME KEY KEY:other", "DEL KEY:other"],
    &["SET KEY other", "GETDEL KEY"],
];

/// Elements that a key has at once, at most, with those that were moved to it.
const ELEMENTS_MAX: usize = 10 * ELEMENTS as usize;

/// How parts are sent as one.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// There is one.
    Single,
    /// Reads of strings.
    Mget,
    Multi,
    /// Before each of its parts a loop has so many turns.
    Script(u64),
}

/// What streams' groups were given: the stream, the element and the ID of each entry.
pub type Delivered = Mutex<Vec<(Key, Element, String)>>;

/// A transaction that is to be executed.
pub struct Plan<'c> {
    /// As which it is sent.
    pub form: Form,
    /// What it does.
    pub parts: Vec<Part>,
    /// What of [`SAME`] it does besides, to which key, before which of these.
    pub same: Vec<(usize, Key, usize)>,
    /// After which of these it does what of [`CLEAR`] to the key that was read.
    pub clears: Option<(usize, usize)>,
    /// Of its keys.
    pub shape: Shape,
    /// Whether the keys are asked for where they go.
    pub asks: bool,
    /// Is told what is delivered.
    pub delivered: &'c Delivered,
}

/// What has become of it.
pub enum Answer {
    /// It was executed, and did this.
    Done(Vec<Op>),
    /// It was not executed.
    Refused(Refusal),
    /// Its reply, or what that says, does not tell.
    Lost,
}

/// Why it was not.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// A key has changed that is watched.
    Changed,
    /// The keys are where this port is.
    Moved(u16),
    /// The keys may be where this port is by now.
    Ask(u16),
    /// Some are there and some elsewhere, or nobody knows, or a script runs for long.
    Later,
    /// There is no room.
    Full,
}

impl Plan<'_> {
    /// The commands, and of which part of the transaction each is.
    fn commands(&self) -> Vec<(Option<&Part>, String)> {
        let mut commands = Vec::new();
        for (at, part) in self.parts.iter().enumerate() {
            for (_, key, how) in self.same.iter().filter(|(before, ..)| *before == at) {
                let name = self.shape.name(*key);
                commands.extend(SAME[*how].iter().map(|command| (None, command.replace("KEY", &name))));
            }
            let before = self.shape.command_before(part).filter(|_| !matches!(self.form, Form::Single));
            commands.extend(before.map(|command| (None, command)));
            commands.push((Some(part), self.shape.command_of(part)));
            if let Some((_, how)) = self.clears.filter(|(after, _)| *after == at) {
                let name = self.shape.name(part.key());
                commands.extend(CLEAR[how].iter().map(|command| (None, command.replace("KEY", &name))));
            }
        }
        commands
    }

    /// Whether it clears a key soon after, if that is still there then.
    pub fn expires(&self) -> bool {
        self.clears.is_some_and(|(_, how)| how == 0)
    }

    /// What it takes after its end, each of these at any time.
    pub fn taken_later(&self) -> Vec<Vec<Op>> {
        let parts = self.parts.iter().filter(|part| part.takes_later()).map(Part::lost);
        parts.chain(self.expires().then(|| self.cleared())).collect()
    }

    /// What it takes, if it clears a key and it is not known what that had.
    fn cleared(&self) -> Vec<Op> {
        let cleared = self.clears.map(|(after, _)| self.parts[after].key());
        let takes = cleared.map(|key| iter::repeat_n(Op::Take(key, None), ELEMENTS_MAX));
        takes.into_iter().flatten().collect()
    }

    /// What it may have done, if its reply was lost.
    pub fn lost(&self) -> Vec<Op> {
        self.parts.iter().flat_map(Part::lost).chain(self.cleared()).collect()
    }

    pub fn write(&self, request: &mut Vec<u8>) {
        let commands: Vec<String> = self.commands().into_iter().map(|(_, command)| command).collect();
        let mut write = |command: &str| {
            write_command(request, &command.split_whitespace().collect::<Vec<_>>());
        };
        if self.asks {
            write("ASKING");
        }
        match self.form {
            Form::Single => write(&self.shape.command_alone(&self.parts[0])),
            Form::Mget => {
                let names = commands.iter().map(|command| command.split_whitespace().last().expect("a name"));
                write(&format!("MGET {}", names.collect::<Vec<_>>().join(" ")));
            }
            Form::Multi => {
                write("MULTI");
                commands.iter().for_each(|command| write(command));
                write("EXEC");
            }
            Form::Script(turns) => {
                let words: Vec<Vec<&str>> =
                    commands.iter().map(|command| command.split_whitespace().collect()).collect();
                let keys: BTreeSet<&str> = words
                    .iter()
                    .flat_map(|words| match words[0] {
                        "RENAME" | "COPY" | "LMOVE" | "SMOVE" => &words[1..3],
                        "LMPOP" | "ZMPOP" => &words[2..4],
                        "XGROUP" => &words[2..3],
                        "XREADGROUP" => &words[words.len() - 2..words.len() - 1],
                        _ => &words[1..2],
                    })
                    .copied()
                    .collect();
                let mut args: Vec<String> = vec!["EVAL".into(), SCRIPT.into(), keys.len().to_string()];
                args.extend(keys.into_iter().map(str::to_owned));
                args.push(turns.to_string());
                for words in words {
                    args.push(words.len().to_string());
                    args.extend(words.into_iter().map(str::to_owned));
                }
                write_command(request, &args);
            }
        }
    }

    /// What its replies say, of which `next` is the next one, unless it is lost.
    pub fn read(&self, mut next: impl FnMut() -> Option<Reply>) -> Answer {
        let mut refusal = None;
        let commands = self.commands();
        // OK to ASKING; OK to MULTI, and QUEUED for each.
        let before =
            usize::from(self.asks) + if let Form::Multi = self.form { 1 + commands.len() } else { 0 };
        for _ in 0..before {
            let Some(reply) = next() else { return Answer::Lost };
            refusal = refusal.or(refused(&reply));
        }
        let Some(reply) = next() else { return Answer::Lost };
        if let Some(refusal) = refusal {
            assert!(is_error(&reply, "EXECABORT"), "{refusal:?}, and {:?}: {reply:?}", self.parts);
            return Answer::Refused(refusal);
        }
        if let Some(refusal) = refused(&reply) {
            return Answer::Refused(refusal);
        }
        if may_be_executed(&reply) {
            return Answer::Lost;
        }
        let reply = match (self.form, &self.parts[0], reply) {
            // Of XREAD, as XRANGE has it.
            (Form::Single, Part::Op(Op::Read(key, _)), Reply::Array(mut streams))
                if kind(*key) == Kind::Stream =>
            {
                let Some(Reply::Array(mut stream)) = streams.pop() else { panic!("{streams:?}") };
                stream.pop().expect("its entries")
            }
            (Form::Single, Part::Op(Op::Read(..)), Reply::Map(mut streams)) => {
                streams.pop().expect("its entries").1
            }
            (.., reply) => reply,
        };
        let replies = match (self.form, &reply) {
            (Form::Single, reply) => slice::from_ref(reply),
            (_, Reply::Array(replies)) => replies,
            (Form::Multi, Reply::Null) => return Answer::Refused(Refusal::Changed),
            (form, reply) => panic!("{form:?} {:?}: {reply:?}", self.parts),
        };
        assert_eq!(replies.len(), commands.len(), "{:?}: {replies:?}", self.parts);
        let mut ops = Vec::new();
        for (at, ((part, _), reply)) in commands.iter().zip(replies).enumerate() {
            let Some(part) = part else { continue };
            if is_error(reply, "OOM") {
                // EXEC has room for all that its commands come to, or for none, unless they only remove.
                let adds = self.parts.iter().any(Part::adds);
                assert!(matches!(self.form, Form::Script(_)) || !adds, "{commands:?}: {replies:?}");
                continue;
            }
            ops.extend(part.told(reply, matches!(self.form, Form::Single)));
            if let Part::Deliver(stream) = part
                && !matches!(reply, Reply::Null | Reply::Error(_))
            {
                let (id, element) = delivered(reply);
                self.delivered.lock().expect("no test has failed").push((*stream, element, id));
            }
            let clears =
                self.clears.filter(|(after, _)| !self.expires() && ptr::eq(*part, &self.parts[*after]));
            if let (Some((_, how)), Some(Op::Read(key, found))) = (clears, ops.last().cloned())
                && !replies[at + 1..][..CLEAR[how].len()].iter().any(|reply| is_error(reply, ""))
            {
                ops.extend(found.into_iter().map(|element| Op::Take(key, Some(element))));
            }
        }
        Answer::Done(ops)
    }
}

/// Whether a node does not execute a command, nor a transaction with it.
pub fn refused(reply: &Reply) -> Option<Refusal> {
    let Reply::Error(why) = reply else { return None };
    let why = String::from_utf8_lossy(why);
    match (why.split(' ').next()?, redirected_to(&why)) {
        ("MOVED", Some(port)) => Some(Refusal::Moved(port)),
        ("ASK", Some(port)) => Some(Refusal::Ask(port)),
        ("TRYAGAIN" | "CLUSTERDOWN" | "BUSY", _) => Some(Refusal::Later),
        ("OOM", _) => Some(Refusal::Full),
        ("EXECABORT", _) if why.contains(" OOM ") => Some(Refusal::Full),
        _ => None,
    }
}

/// Whether a server does not execute commands, or not any more: whatever was sent may have been executed.
pub fn may_be_executed(reply: &Reply) -> bool {
    // A script of a connection that an operator ends is ended, too.
    const WORDS: [&str; 6] =
        ["READONLY", "MASTERDOWN", "LOADING", "EXECABORT", "UNBLOCKED", "ERR Script killed by user"];
    WORDS.iter().any(|word| is_error(reply, word))
}
