//! Ranges: by rank, score or name, in either direction, to read, count, store and remove.

use super::write_members;
use crate::commands::prelude::*;
use holdfast_resp::{parse_double, parse_int};
use holdfast_store::{positions_between, zset::Zset};
use std::ops::{Bound, Range};

const BAD_SCORE: Stop = Stop::new("ERR min or max is not a float");
const BAD_NAME: Stop = Stop::new("ERR min or max not valid string range item");
const LIMIT_BY_RANK: Stop =
    Stop::new("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX");
const SCORES_BY_NAME: Stop =
    Stop::new("ERR syntax error, WITHSCORES not supported in combination with BYLEX");

/// What the ends of a range are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Indices.
    Rank,
    /// Scores.
    Score,
    /// Members, all with the same score.
    Name,
}

/// The two ends.
enum Ends<'a> {
    Ranks(i64, i64),
    Scores(Bound<f64>, Bound<f64>),
    Names(NameEnd<'a>, NameEnd<'a>),
}

/// An end of a range of names.
#[derive(Clone, Copy)]
enum NameEnd<'a> {
    /// `-`: before all names.
    Lowest,
    At(Bound<&'a [u8]>),
    /// `+`: behind all names.
    Highest,
}

impl<'a> Ends<'a> {
    /// Reads the arguments `min` and `max`.
    fn parse(call: &Call<'a>, by: By, min: usize, max: usize) -> Result<Self, Stop> {
        let args = call.args;
        Ok(match by {
            By::Rank => Ends::Ranks(call.int(min)?, call.int(max)?),
            By::Score => Ends::Scores(score_end(args.at(min))?, score_end(args.at(max))?),
            By::Name => Ends::Names(name_end(args.at(min))?, name_end(args.at(max))?),
        })
    }

    /// The ranks that they mean; indices count backwards if `reverse`.
    fn ranks(&self, zset: Zset, reverse: bool) -> Range<u64> {
        match *self {
            Ends::Ranks(first, last) => {
                let len = zset.len();
                let Range { start, end } = positions_between(first, last, len);
                if reverse { len - end..len - start } else { start..end }
            }
            Ends::Scores(min, max) => zset.ranks_by_score(min, max),
            Ends::Names(NameEnd::Highest, _) | Ends::Names(_, NameEnd::Lowest) => 0..0,
            Ends::Names(min, max) => zset.ranks_by_name(min.bound(), max.bound()),
        }
    }
}

impl<'a> NameEnd<'a> {
    fn bound(self) -> Bound<&'a [u8]> {
        match self {
            NameEnd::At(bound) => bound,
            NameEnd::Lowest | NameEnd::Highest => Bound::Unbounded,
        }
    }
}

/// `1.5`, `(1.5`, `( 1.5`, `-inf`. As in C, nothing at all is 0.
fn score_end(text: &[u8]) -> Result<Bound<f64>, Stop> {
    let score = |text: &[u8]| match text {
        [] => Ok(0.0),
        text => parse_double(text.trim_ascii_start()).ok_or(BAD_SCORE),
    };
    match text {
        [b'(', text @ ..] => score(text).map(Bound::Excluded),
        text => score(text).map(Bound::Included),
    }
}

/// `-`, `+`, `[name`, `(name`.
fn name_end(text: &[u8]) -> Result<NameEnd<'_>, Stop> {
    match text {
        b"-" => Ok(NameEnd::Lowest),
        b"+" => Ok(NameEnd::Highest),
        [b'[', name @ ..] => Ok(NameEnd::At(Bound::Included(name))),
        [b'(', name @ ..] => Ok(NameEnd::At(Bound::Excluded(name))),
        _ => Err(BAD_NAME),
    }
}

/// What a command of the ZRANGE family uses; its ends are the arguments from `min` on.
pub fn uses(args: Args, min: usize, by: Option<By>, reverse: Option<bool>) -> Vec<Use> {
    let options = min + 2..args.len();
    let word = |name: &[u8]| options.clone().find(|&index| args.at(index).eq_ignore_ascii_case(name));
    let is_by_score = || word(b"byscore").is_some();
    let by = by.unwrap_or_else(|| match word(b"bylex") {
        Some(_) => By::Name,
        None if is_by_score() => By::Score,
        None => By::Rank,
    });
    let reverse = reverse.unwrap_or_else(|| word(b"rev").is_some());
    let limit = word(b"limit").filter(|at| at + 2 < args.len()).and_then(|at| {
        let (offset, count) = (parse_int(args.at(at + 1))?, parse_int(args.at(at + 2))?);
        u64::try_from(offset).ok()?.checked_add(u64::try_from(count).ok()?)
    });
    match by {
        By::Rank => {
            let ends = parse_int(args.at(min)).zip(parse_int(args.at(min + 1)));
            ends.map(|(first, last)| Use::Positions { first, last, reverse }).into_iter().collect()
        }
        By::Score => scores(args, min, reverse, limit.unwrap_or(u64::MAX)),
        By::Name => names(args, min, reverse, limit.unwrap_or(u64::MAX)),
    }
}

/// The members with scores between two arguments, as many at most.
pub fn scores(args: Args, min: usize, reverse: bool, count: u64) -> Vec<Use> {
    let (least, greatest) = if reverse { (min + 1, min) } else { (min, min + 1) };
    match (score_end(args.at(least)), score_end(args.at(greatest))) {
        (Ok(min), Ok(max)) => vec![Use::Scores { min, max, reverse, count }],
        _ => Vec::new(),
    }
}

/// The members with names between two arguments, as many at most.
pub fn names(args: Args, min: usize, reverse: bool, count: u64) -> Vec<Use> {
    let (least, greatest) = if reverse { (min + 1, min) } else { (min, min + 1) };
    match (name_end(args.at(least)), name_end(args.at(greatest))) {
        (Ok(NameEnd::Highest), _) | (_, Ok(NameEnd::Lowest)) => Vec::new(),
        (Ok(min), Ok(max)) => vec![Use::Names { min: min.bound(), max: max.bound(), reverse, count }],
        _ => Vec::new(),
    }
}

/// What a command of the ZRANGE family asks for.
struct Query<'a> {
    ends: Ends<'a>,
    reverse: bool,
    /// How many to skip, and how many to take at most (below zero: all).
    limit: Option<(i64, i64)>,
    with_scores: bool,
}

impl<'a> Query<'a> {
    /// Reads the two ends, from argument `at` on, and what follows. `by` and `reverse` are given by the command's name, or
    /// else by options.
    fn parse(
        call: &Call<'a>,
        at: usize,
        by: Option<By>,
        reverse: Option<bool>,
        store: bool,
    ) -> Result<Self, Stop> {
        let (mut option_by, mut option_reverse) = (None, false);
        let (mut limit, mut with_scores) = (None, false);
        let mut option = at + 2;
        while option < call.args.len() {
            if !store && call.is(option, "withscores") {
                with_scores = true;
            } else if call.is(option, "limit") && option + 2 < call.args.len() {
                limit = Some((call.int(option + 1)?, call.int(option + 2)?));
                option += 2;
            } else if reverse.is_none() && !option_reverse && call.is(option, "rev") {
                option_reverse = true;
            } else if by.or(option_by).is_none() && call.is(option, "bylex") {
                option_by = Some(By::Name);
            } else if by.or(option_by).is_none() && call.is(option, "byscore") {
                option_by = Some(By::Score);
            } else {
                return Err(SYNTAX);
            }
            option += 1;
        }
        let by = by.or(option_by).unwrap_or(By::Rank);
        let reverse = reverse.unwrap_or(option_reverse);
        if by == By::Rank && limit.is_some_and(|(_, count)| count != -1) {
            return Err(LIMIT_BY_RANK);
        }
        if by == By::Name && with_scores {
            return Err(SCORES_BY_NAME);
        }
        let (min, max) = if reverse && by != By::Rank { (at + 1, at) } else { (at, at + 1) };
        let ends = Ends::parse(call, by, min, max)?;
        Ok(Query { ends, reverse, limit: limit.filter(|_| by != By::Rank), with_scores })
    }

    fn ranks(&self, zset: Zset) -> Range<u64> {
        let Range { start, end } = self.ends.ranks(zset, self.reverse);
        let Some((offset, count)) = self.limit else { return start..end };
        let len = end - start;
        // A negative offset skips everything.
        let skip = u64::try_from(offset).unwrap_or(u64::MAX).min(len);
        let take = u64::try_from(count).unwrap_or(u64::MAX).min(len - skip);
        if self.reverse { end - skip - take..end - skip } else { start + skip..start + skip + take }
    }
}

/// ZRANGE, and those of the like whose names give a part of the query.
pub fn range(call: &mut Call, txn: &mut Txn, by: Option<By>, reverse: Option<bool>) -> Answer {
    let query = Query::parse(call, 2, by, reverse, false)?;
    match txn.zset_at(call.db(), call.args.at(1))? {
        Some(zset) => {
            let members = zset.iter(query.ranks(zset), query.reverse);
            write_members(&mut call.out, members, query.with_scores);
        }
        None => call.out.array(0),
    }
    Ok(Done)
}

pub fn zrangestore(call: &mut Call, txn: &mut Txn) -> Answer {
    let query = Query::parse(call, 3, None, None, true)?;
    let db = call.db();
    let zset = txn.zset_at(db, call.args.at(2))?;
    let members: Vec<(Vec<u8>, f64)> = zset
        .into_iter()
        .flat_map(|zset| zset.iter(query.ranks(zset), false))
        .map(|(member, score)| (member.to_vec(), score))
        .collect();
    let to = call.args.at(1);
    let was_there = call.notifies(Class::GENERIC) && txn.exists(db, to);
    txn.zset_replace(db, to, members.iter().map(|(member, score)| (member, *score)))?;
    call.notify_stored(Class::ZSET, "zrangestore", to, !members.is_empty(), was_there);
    call.reply_int(members.len() as i64)
}

/// ZCOUNT, ZLEXCOUNT.
pub fn count(call: &mut Call, txn: &mut Txn, by: By) -> Answer {
    let ends = Ends::parse(call, by, 2, 3)?;
    let ranks = txn.zset_at(call.db(), call.args.at(1))?.map_or(0..0, |zset| ends.ranks(zset, false));
    call.reply_int((ranks.end - ranks.start) as i64)
}

/// ZREMRANGEBYRANK and the like.
pub fn remove(call: &mut Call, txn: &mut Txn, by: By) -> Answer {
    let ends = Ends::parse(call, by, 2, 3)?;
    let (db, key) = (call.db(), call.args.at(1));
    let ranks = txn.zset_at(db, key)?.map_or(0..0, |zset| ends.ranks(zset, false));
    let removed = ranks.end - ranks.start;
    if removed > 0 {
        txn.zset_remove_ranks(db, key, ranks)?;
        call.notify_taken(txn, Class::ZSET, call.command.name, key);
    }
    call.reply_int(removed as i64)
}
