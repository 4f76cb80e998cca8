//! What is done with members that are named, or drawn at random.

use super::write_scored;
use crate::commands::{hashes::random_count, prelude::*, scan};
use holdfast_resp::{Proto, parse_double, write_double};
use holdfast_store::zset::{AddOptions, Incremented};

const NX_WITH_XX: Stop = Stop::new("ERR XX and NX options at the same time are not compatible");
const GT_WITH_LT: Stop = Stop::new("ERR GT, LT, and/or NX options at the same time are not compatible");
const INCR_OF_MANY: Stop = Stop::new("ERR INCR option supports a single increment-element pair");
const NOT_A_NUMBER: Stop = Stop::new("ERR resulting score is not a number (NaN)");
const OUT_OF_RANGE: Stop = Stop::new("ERR value is out of range");

/// What only_… of [`AddOptions`], and the two that say what is replied, are called.
struct AddArgs {
    options: AddOptions,
    count_changed: bool,
    increment: bool,
    /// Where the first score is.
    scores_at: usize,
}

impl AddArgs {
    fn parse(call: &Call) -> Result<AddArgs, Stop> {
        let mut options = AddOptions::default();
        let (mut count_changed, mut increment) = (false, false);
        let mut at = 2;
        loop {
            let flag = match call.args.get(at) {
                Some(_) if call.is(at, "nx") => &mut options.only_new,
                Some(_) if call.is(at, "xx") => &mut options.only_existing,
                Some(_) if call.is(at, "gt") => &mut options.only_greater,
                Some(_) if call.is(at, "lt") => &mut options.only_less,
                Some(_) if call.is(at, "ch") => &mut count_changed,
                Some(_) if call.is(at, "incr") => &mut increment,
                _ => break,
            };
            *flag = true;
            at += 1;
        }
        let left = call.args.len() - at;
        if left == 0 || left % 2 == 1 {
            return Err(SYNTAX);
        }
        let AddOptions { only_new, only_existing, only_greater, only_less } = options;
        if only_new && only_existing {
            return Err(NX_WITH_XX);
        }
        if only_greater && (only_new || only_less) || only_less && only_new {
            return Err(GT_WITH_LT);
        }
        if increment && left > 2 {
            return Err(INCR_OF_MANY);
        }
        Ok(AddArgs { options, count_changed, increment, scores_at: at })
    }
}

/// The members that ZADD names, each behind its score, or behind what is added to it.
pub fn added(args: Args) -> Vec<Use> {
    let is_option = |word: &&[u8]| parse_double(word).is_none();
    let is_added = args.iter().skip(2).take_while(is_option).any(|word| word.eq_ignore_ascii_case(b"incr"));
    let data: Vec<&[u8]> = args.iter().skip(2).skip_while(is_option).collect();
    let pairs = data.chunks_exact(2).map(|pair| (pair[1], parse_double(pair[0])));
    pairs
        .map(|(member, score)| match score {
            Some(by) if is_added => Use::Moved(member, by),
            score => Use::Place(member, score),
        })
        .collect()
}

/// The member whose score ZINCRBY adds to.
pub fn incremented(args: Args) -> Vec<Use> {
    parse_double(args.at(2)).map(|by| Use::Moved(args.at(3), by)).into_iter().collect()
}

pub fn zadd(call: &mut Call, txn: &mut Txn) -> Answer {
    let AddArgs { options, count_changed, increment, scores_at } = AddArgs::parse(call)?;
    let args = call.args;
    if increment {
        return increment_score(call, txn, options, scores_at);
    }
    let scores = (scores_at..args.len()).step_by(2);
    for at in scores.clone() {
        call.double(at)?;
    }
    let members = scores.map(|at| (args.at(at + 1), parse_double(args.at(at)).expect("checked before")));
    let done = txn.zset_add(call.db(), args.at(1), options, members)?;
    if done.added + done.updated > 0 {
        call.notify(Class::ZSET, "zadd", args.at(1));
    }
    call.reply_int((done.added + if count_changed { done.updated } else { 0 }) as i64)
}

pub fn zincrby(call: &mut Call, txn: &mut Txn) -> Answer {
    increment_score(call, txn, AddOptions::default(), 2)
}

fn increment_score(call: &mut Call, txn: &mut Txn, options: AddOptions, at: usize) -> Answer {
    let by = call.double(at)?;
    let (db, key, member) = (call.db(), call.args.at(1), call.args.at(at + 1));
    let notifies = call.notifies(Class::ZSET);
    let old = if notifies { txn.zset_at(db, key)?.and_then(|zset| zset.score(member)) } else { None };
    match txn.zset_increment(db, key, options, member, by)? {
        Incremented::To(score) => {
            call.out.double(score);
            if notifies && old != Some(score) {
                call.notify(Class::ZSET, "zincr", key);
            }
        }
        Incremented::Not => call.out.null(),
        Incremented::NotANumber => return Err(NOT_A_NUMBER),
    }
    Ok(Done)
}

pub fn zrem(call: &mut Call, txn: &mut Txn) -> Answer {
    let removed = txn.zset_remove(call.db(), call.args.at(1), call.args.from(2).iter())?;
    if removed > 0 {
        call.notify_taken(txn, Class::ZSET, "zrem", call.args.at(1));
    }
    call.reply_int(removed as i64)
}

pub fn zcard(call: &mut Call, txn: &mut Txn) -> Answer {
    let zset = txn.zset_at(call.db(), call.args.at(1))?;
    call.reply_int(zset.map_or(0, |zset| zset.len() as i64))
}

pub fn zscore(call: &mut Call, txn: &mut Txn) -> Answer {
    let zset = txn.zset_at(call.db(), call.args.at(1))?;
    write_score(&mut call.out, zset.and_then(|zset| zset.score(call.args.at(2))));
    Ok(Done)
}

pub fn zmscore(call: &mut Call, txn: &mut Txn) -> Answer {
    let zset = txn.zset_at(call.db(), call.args.at(1))?;
    let members = call.args.from(2);
    call.out.array(members.len());
    for member in members.iter() {
        write_score(&mut call.out, zset.and_then(|zset| zset.score(member)));
    }
    Ok(Done)
}

fn write_score(out: &mut Writer, score: Option<f64>) {
    match score {
        Some(score) => out.double(score),
        None => out.null(),
    }
}

/// ZRANK, and, if `reverse`, ZREVRANK.
pub fn rank(call: &mut Call, txn: &mut Txn, reverse: bool) -> Answer {
    let with_score = match call.args.len() {
        3 => false,
        4 if call.is(3, "withscore") => true,
        4 => return Err(SYNTAX),
        _ => return Err(wrong_arity(call.command)),
    };
    let member = call.args.at(2);
    let zset = txn.zset_at(call.db(), call.args.at(1))?;
    let found = zset.and_then(|zset| Some((zset, zset.rank(member)?)));
    match found {
        Some((zset, rank)) => {
            let rank = if reverse { zset.len() - 1 - rank } else { rank };
            if with_score {
                call.out.array(2);
            }
            call.out.int(rank as i64);
            if with_score {
                write_score(&mut call.out, zset.score(member));
            }
        }
        None if with_score => call.out.null_array(),
        None => call.out.null(),
    }
    Ok(Done)
}

pub fn zrandmember(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    if call.args.len() == 2 {
        match txn.zset_at(db, key)? {
            Some(zset) => {
                let draws = call.draws();
                call.out.bulk(zset.random(draws).0);
            }
            None => call.out.null(),
        }
        return Ok(Done);
    }
    let count = random_count(call)?;
    let with_scores = match call.args.len() {
        3 => false,
        4 if call.is(3, "withscores") => true,
        _ => return Err(SYNTAX),
    };
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(OUT_OF_RANGE);
    }
    let Some(zset) = txn.zset_at(db, key)? else {
        call.out.array(0);
        return Ok(Done);
    };
    let flat = if with_scores && call.out.proto() == Proto::Resp2 { 2 } else { 1 };
    let mut draws = call.draws();
    if count < 0 {
        let count = count.unsigned_abs();
        call.out.array(count as usize * flat);
        call.repeat(count, |out| write_scored(out, zset.random(&mut draws), with_scores))?;
    } else {
        let members = zset.sample(count as usize, draws);
        call.out.array(members.len() * flat);
        members.into_iter().for_each(|scored| write_scored(&mut call.out, scored, with_scores));
    }
    Ok(Done)
}

pub fn zscan(call: &mut Call, txn: &mut Txn) -> Answer {
    let cursor = scan::parse_cursor(call.args.at(2))?;
    let Some(zset) = txn.zset_at(call.db(), call.args.at(1))? else {
        scan::reply(&mut call.out, |_| (0, 0));
        return Ok(Done);
    };
    let options = scan::Options::parse(call.command.name, call.args.from(3), |_, _| Ok(false))?;
    scan::reply(&mut call.out, |out| {
        let mut replies = 0;
        let next = zset.scan(cursor, options.count, |member, score| {
            if options.matches(member) {
                out.bulk(member);
                replies += 1;
                if !options.only_names {
                    let mut text = Vec::with_capacity(24);
                    write_double(&mut text, score);
                    out.bulk(text);
                    replies += 1;
                }
            }
        });
        (next, replies)
    });
    Ok(Done)
}
