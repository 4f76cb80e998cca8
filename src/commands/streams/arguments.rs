//! What the arguments of several commands have in common: IDs, ranges of IDs, how to trim.

use crate::{command::error::NOT_INTEGER, commands::prelude::*, config::Opt};
use holdfast_resp::parse_int;
use holdfast_store::stream::{Id, NewId, Trim, TrimTo};

const INVALID_ID: Stop = Stop::new("ERR Invalid stream ID specified as stream command argument");
const INVALID_START: Stop = Stop::new("ERR invalid start ID for the interval");
const INVALID_END: Stop = Stop::new("ERR invalid end ID for the interval");
const TWO_STRATEGIES: Stop =
    Stop::new("ERR syntax error, MAXLEN and MINID options at the same time are not compatible");
const NEGATIVE_MAXLEN: Stop = Stop::new("ERR The MAXLEN argument must be >= 0.");
const NEGATIVE_LIMIT: Stop = Stop::new("ERR The LIMIT argument must be >= 0.");
const NOTHING_TO_LIMIT: Stop =
    Stop::new("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy");
const EXACT_LIMIT: Stop = Stop::new("ERR syntax error, LIMIT cannot be used without the special ~ option");
const NO_STRATEGY: Stop = Stop::new("ERR syntax error, XTRIM must be called with a trimming strategy");

/// Entries that XAUTOCLAIM claims unless told otherwise.
pub const AUTO_COUNT: u64 = 100;
/// Bytes of the longest text that can be an ID.
const ID_LEN_MAX: usize = 127;

/// Reads a part of an ID as Redis does: what is no canonical integer may still be one to C's `strtoull`.
fn part(text: &[u8]) -> Option<u64> {
    if let Some(number) = parse_int(text) {
        return u64::try_from(number).ok();
    }
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    Some(if negative { number.wrapping_neg() } else { number })
}

/// Reads `ms` or `ms-seq`, and what comes instead of `seq` if it is missing.
fn split(text: &[u8]) -> Option<(u64, Option<&[u8]>)> {
    if text.len() > ID_LEN_MAX {
        return None;
    }
    match text.iter().position(|&byte| byte == b'-') {
        Some(at) => Some((part(&text[..at])?, Some(&text[at + 1..]))),
        None => Some((part(text)?, None)),
    }
}

/// An ID; without its second part that is `seq`.
pub fn parse_id(text: &[u8], seq: u64) -> Result<Id, Stop> {
    let (ms, given) = split(text).ok_or(INVALID_ID)?;
    match given {
        Some(text) => part(text).map(|seq| Id::new(ms, seq)).ok_or(INVALID_ID),
        None => Ok(Id::new(ms, seq)),
    }
}

/// An ID, or `-` or `+` for the least or the greatest one.
pub fn parse_bound(text: &[u8], seq: u64) -> Result<Id, Stop> {
    match text {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        _ => parse_id(text, seq),
    }
}

/// The first ID of a range: a bound, or behind `(` the ID before it.
pub fn parse_start(text: &[u8]) -> Result<Id, Stop> {
    match text {
        [b'(', after @ ..] if !after.is_empty() => parse_id(after, 0)?.next().ok_or(INVALID_START),
        _ => parse_bound(text, 0),
    }
}

/// The last ID of a range: a bound, or behind `(` the ID after it.
pub fn parse_end(text: &[u8]) -> Result<Id, Stop> {
    match text {
        [b'(', before @ ..] if !before.is_empty() => {
            parse_id(before, u64::MAX)?.previous().ok_or(INVALID_END)
        }
        _ => parse_bound(text, u64::MAX),
    }
}

/// All arguments from one on as IDs.
pub fn parse_ids(args: Args) -> Result<Vec<Id>, Stop> {
    args.iter().map(|arg| parse_id(arg, 0)).collect()
}

/// The entries between the IDs that two arguments name, the greater one first in reverse, as many as COUNT says.
pub fn range(args: Args, start: usize, end: usize) -> Vec<Use> {
    let count = args.iter().skip(4).next_back().filter(|_| args.len() == 6).and_then(parse_int);
    let count = count.and_then(|count| u64::try_from(count).ok()).unwrap_or(u64::MAX);
    match (parse_start(args.at(start)), parse_end(args.at(end))) {
        (Ok(from), Ok(to)) => vec![Use::Ids { from, to, reverse: start > end, count }],
        _ => Vec::new(),
    }
}

/// The options of XREAD and XREADGROUP that say what is read.
pub struct ReadOptions<'a> {
    /// Where the word STREAMS is.
    pub streams_at: usize,
    count: u64,
    group: Option<(&'a [u8], &'a [u8])>,
}

impl<'a> ReadOptions<'a> {
    /// Finds them, if they are well-formed: a group and a consumer can be called as an option is.
    pub fn find(args: Args<'a>) -> Option<ReadOptions<'a>> {
        let (mut at, mut count, mut group) = (1, u64::MAX, None);
        loop {
            let word = args.get(at)?;
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            at += match () {
                () if is("streams") => return Some(ReadOptions { streams_at: at, count, group }),
                () if is("count") => {
                    count = args.get(at + 1).and_then(self::count).unwrap_or(u64::MAX);
                    2
                }
                () if is("block") => 2,
                () if is("group") => {
                    group = args.get(at + 1).zip(args.get(at + 2));
                    3
                }
                () if is("noack") => 1,
                () => return None,
            };
        }
    }
}

/// The entries that XREAD and XREADGROUP name: those behind IDs, what is new to a group, what is pending for a consumer.
pub fn read(args: Args) -> Vec<Use> {
    let Some(ReadOptions { streams_at, count, group }) = ReadOptions::find(args) else { return Vec::new() };
    let ids = args.iter().skip(streams_at + 1 + (args.len() - streams_at - 1) / 2);
    let of_id = |id: &[u8]| {
        if let (Some((group, consumer)), b">") = (group, id) {
            return Some(Use::Unread { group, consumer, count });
        }
        let (from, to) = (parse_id(id, 0).ok()?.next()?, Id::MAX);
        Some(match group {
            Some((group, owner)) => {
                Use::Pending { group, owner: Some(owner), from, to, count, entries: true }
            }
            None => Use::Ids { from, to, reverse: false, count },
        })
    };
    ids.filter_map(of_id).collect()
}

fn count(text: &[u8]) -> Option<u64> {
    u64::try_from(parse_int(text)?).ok().filter(|&count| count > 0)
}

/// What is pending with the IDs behind a group, for whomever it is.
pub fn acknowledged(args: Args) -> Vec<Use> {
    let group = args.at(2);
    let ids = args.iter().skip(3).filter_map(|id| parse_id(id, 0).ok());
    ids.map(|id| Use::Pending { group, owner: None, from: id, to: id, count: 1, entries: false }).collect()
}

/// What XCLAIM names: entries, where they are pending for anybody, and where they will be for the one who claims them.
pub fn claimed(args: Args) -> Vec<Use> {
    let ids = args.iter().skip(5).map_while(|id| parse_id(id, 0).ok());
    let of_id = |id| {
        // It is looked for whether it is pending or not.
        let entry = Use::Ids { from: id, to: id, reverse: false, count: 1 };
        for_another(args, (id, id), 1).into_iter().chain([entry])
    };
    ids.flat_map(of_id).collect()
}

/// The same of XAUTOCLAIM, if all that it looks at was pending for long enough.
pub fn claimed_from(args: Args) -> Vec<Use> {
    let number = args.iter().skip(6).position(|arg| arg.eq_ignore_ascii_case(b"count"));
    let count = number.and_then(|at| count(args.get(6 + at + 1)?)).unwrap_or(AUTO_COUNT);
    let from = args.get(5).and_then(|from| parse_start(from).ok());
    from.map_or(Vec::new(), |from| for_another(args, (from, Id::MAX), count).into())
}

fn for_another(args: Args, (from, to): (Id, Id), count: u64) -> [Use; 2] {
    let (group, taker) = (args.at(2), args.at(3));
    [(None, true), (Some(taker), false)].map(|(owner, entries)| Use::Pending {
        group,
        owner,
        from,
        to,
        count,
        entries,
    })
}

/// What XPENDING shows.
pub fn pending(args: Args) -> Vec<Use> {
    let at = if args.get(3).is_some_and(|word| word.eq_ignore_ascii_case(b"idle")) { 5 } else { 3 };
    let range = |at| {
        let (from, to) = (parse_start(args.get(at)?).ok()?, parse_end(args.get(at + 1)?).ok()?);
        Some((from, to, count(args.get(at + 2)?)?))
    };
    let (from, to, count) = range(at).unwrap_or((Id::MIN, Id::MAX, 1));
    vec![Use::Pending { group: args.at(2), owner: args.get(at + 3), from, to, count, entries: false }]
}

/// The entries with the IDs behind the key.
pub fn each(args: Args) -> Vec<Use> {
    let ids = args.iter().skip(2).filter_map(|id| parse_id(id, 0).ok());
    ids.map(|id| Use::Ids { from: id, to: id, reverse: false, count: 1 }).collect()
}

/// The first entry.
pub fn first(_: Args) -> Vec<Use> {
    vec![Use::Ids { from: Id::MIN, to: Id::MAX, reverse: false, count: 1 }]
}

/// The last entry.
pub fn last(_: Args) -> Vec<Use> {
    vec![Use::Ids { from: Id::MIN, to: Id::MAX, reverse: true, count: 1 }]
}

/// The ID of a new entry.
fn parse_new_id(text: &[u8]) -> Result<NewId, Stop> {
    match split(text) {
        Some((ms, Some(b"*"))) => Ok(NewId::At(ms)),
        _ => parse_id(text, 0).map(NewId::Exactly),
    }
}

/// The options of XADD and XTRIM.
pub struct Adding {
    /// How to trim, if at all.
    pub trim: Option<Trim>,
    /// NOMKSTREAM was not given.
    pub create: bool,
    /// The ID of XADD.
    pub id: NewId,
    /// Where the fields begin.
    pub fields_at: usize,
}

impl Adding {
    /// Reads the options up to the ID, or all of them if there is none (XTRIM).
    pub fn parse(call: &Call, has_id: bool) -> Result<Adding, Stop> {
        let args = call.args;
        let mut adding = Adding { trim: None, create: true, id: NewId::Now, fields_at: args.len() + 1 };
        let mut limit = None;
        let mut at = 2;
        while at < args.len() {
            let more = args.len() - 1 - at;
            if has_id && args.at(at) == b"*" {
                adding.fields_at = at + 1;
                break;
            }
            let by_len = call.is(at, "maxlen");
            if more > 0 && (by_len || call.is(at, "minid")) {
                if adding.trim.is_some() {
                    return Err(TWO_STRATEGIES);
                }
                let sign = if more >= 2 { args.at(at + 1) } else { b"" };
                at += if matches!(sign, b"~" | b"=") { 2 } else { 1 };
                let to = if by_len {
                    let len = parse_int(args.at(at)).ok_or(NOT_INTEGER)?;
                    TrimTo::Len(u64::try_from(len).map_err(|_| NEGATIVE_MAXLEN)?)
                } else {
                    TrimTo::Id(parse_id(args.at(at), 0)?)
                };
                adding.trim = Some(Trim { to, whole_leaves: sign == b"~", limit: 0 });
            } else if more > 0 && call.is(at, "limit") {
                at += 1;
                let number = parse_int(args.at(at)).ok_or(NOT_INTEGER)?;
                limit = Some(u64::try_from(number).map_err(|_| NEGATIVE_LIMIT)?);
            } else if has_id && call.is(at, "nomkstream") {
                adding.create = false;
            } else if has_id {
                adding.id = parse_new_id(args.at(at))?;
                adding.fields_at = at + 1;
                break;
            } else {
                return Err(SYNTAX);
            }
            at += 1;
        }
        match &mut adding.trim {
            None if limit.is_some_and(|limit| limit > 0) => return Err(NOTHING_TO_LIMIT),
            None if !has_id => return Err(NO_STRATEGY),
            None if limit.is_some() => return Err(EXACT_LIMIT),
            None => {}
            Some(trim) if !trim.whole_leaves && limit.is_some() => return Err(EXACT_LIMIT),
            Some(trim) if trim.whole_leaves => trim.limit = limit.unwrap_or_else(|| default_limit(call)),
            Some(_) => {}
        }
        Ok(adding)
    }
}

/// How many entries are trimmed at most by whole nodes unless told otherwise: those of a hundred full nodes.
fn default_limit(call: &Call) -> u64 {
    match call.server().config.number(Opt::StreamNodeMaxEntries).saturating_mul(100) {
        0 => 10_000,
        limit => limit.clamp(1, 1_000_000) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_redis_does() {
        let cases: [(&str, Option<Id>); 14] = [
            ("5", Some(Id::new(5, 9))),
            ("5-7", Some(Id::new(5, 7))),
            ("18446744073709551615-18446744073709551615", Some(Id::MAX)),
            ("18446744073709551616", None),
            ("007-01", Some(Id::new(7, 1))),
            (" 7-+1", Some(Id::new(7, 1))),
            ("1--1", None),
            ("1--0", Some(Id::new(1, 0))),
            ("1-", None),
            ("-1", None),
            ("", None),
            ("x", None),
            ("1-*", None),
            ("1-2-3", None),
        ];
        for (text, id) in cases {
            assert_eq!(parse_id(text.as_bytes(), 9).ok(), id, "{text:?}");
        }
        assert!(parse_id(&[b'0'; ID_LEN_MAX], 0).is_ok() && parse_id(&[b'0'; ID_LEN_MAX + 1], 0).is_err());
        assert_eq!(parse_new_id(b"5-*"), Ok(NewId::At(5)));
        assert_eq!(parse_new_id(b"5"), Ok(NewId::Exactly(Id::new(5, 0))));
        assert_eq!(parse_start(b"(1-1"), Ok(Id::new(1, 2)));
        assert_eq!(parse_start(b"(+"), Err(INVALID_ID));
        assert_eq!(parse_start(b"("), Err(INVALID_ID));
        assert_eq!(parse_end(b"(2"), Ok(Id::new(2, u64::MAX - 1)));
        assert_eq!(parse_end(b"(0-0"), Err(INVALID_END));
        assert_eq!((parse_start(b"-"), parse_end(b"+")), (Ok(Id::MIN), Ok(Id::MAX)));
    }
}
