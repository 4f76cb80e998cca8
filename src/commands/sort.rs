//! SORT and SORT_RO. BY and GET may lead to any keys; a call that does so locks them all.

use crate::{command::error::WRONG_TYPE, commands::prelude::*};
use holdfast_resp::parse_double;
use holdfast_store::{Cold, Type};
use std::{cmp::Ordering, ops::Range};

const SORTED: KeyAccess = KeyAccess::RO.and(KeyAccess::ACCESS);
const STORED: KeyAccess = KeyAccess::OW.and(KeyAccess::UPDATE);

const ROW: Command = Command {
    group: "generic",
    categories: Categories::SET.and(Categories::SORTEDSET).and(Categories::LIST).and(Categories::DANGEROUS),
    complexity: "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).",
    find_keys: Some(find_keys),
    looks_beyond,
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "sort",
        syntax: "key [BY=by-pattern:p1~pattern] [LIMIT=limit(offset:i count:i)] [GET=get-pattern:p1~pattern+...] [order<ASC|DESC>] [ALPHA=sorting:!] [STORE=destination:k2]",
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLE_KEYS),
        keys: &[KeySpec::one(SORTED, 1), KeySpec::somewhere(SORTED), KeySpec::somewhere(STORED)],
        summary: "Sorts the elements in a list, a set, or a sorted set, optionally storing the result.",
        ..ROW
    }
    .by(Keyed(sort))
    .using(uses::all),
    Command {
        name: "sort_ro",
        syntax: "key [BY=by-pattern:p1~pattern] [LIMIT=limit(offset:i count:i)] [GET=get-pattern:p1~pattern+...] [order<ASC|DESC>] [ALPHA=sorting:!]",
        flags: Flags::READONLY.and(Flags::MOVABLE_KEYS),
        keys: &[KeySpec::one(SORTED, 1), KeySpec::somewhere(SORTED)],
        since: "7.0.0",
        summary: "Returns the sorted elements of a list, a set, or a sorted set.",
        ..ROW
    }
    .by(Keyed(sort))
    .using(uses::all),
];

const NOT_NUMBERS: Stop = Stop::new("ERR One or more scores can't be converted into double");
const BY_IN_CLUSTER: Stop = Stop::new("ERR BY option of SORT denied in cluster mode.");
const GET_IN_CLUSTER: Stop = Stop::new("ERR GET option of SORT denied in cluster mode.");
const BY_DENIED: Stop = Stop::new("ERR BY option of SORT denied due to insufficient ACL permissions.");
const GET_DENIED: Stop = Stop::new("ERR GET option of SORT denied due to insufficient ACL permissions.");

/// Shows each option that has values, and where it is.
fn each_option(args: Args, mut show: impl FnMut(&[u8], usize)) {
    const OPTIONS: [(&[u8], usize); 4] = [(b"limit", 2), (b"get", 1), (b"by", 1), (b"store", 1)];
    let mut at = 2;
    while at < args.len() {
        let option = OPTIONS.iter().find(|(name, _)| args[at].eq_ignore_ascii_case(name));
        if let Some((name, values)) = option.filter(|(_, values)| at + values < args.len()) {
            show(name, at);
            at += values;
        }
        at += 1;
    }
}

/// Of several keys to store at, the last one counts.
fn find_keys(args: Args, found: &mut dyn FnMut(usize, KeyAccess)) {
    found(1, SORTED);
    let mut stored = None;
    if !args[0].eq_ignore_ascii_case(b"sort_ro") {
        each_option(args, |name, at| stored = if name == b"store" { Some(at + 1) } else { stored });
    }
    if let Some(index) = stored {
        found(index, STORED);
    }
}

fn looks_beyond(args: Args) -> bool {
    let mut beyond = false;
    each_option(args, |name, at| {
        beyond |=
            matches!(name, b"get" | b"by") && matches!(Pattern::new(&args[at + 1]), Pattern::Key { .. });
    });
    beyond
}

/// What BY and GET lead to from an element.
#[derive(Clone, Copy)]
enum Pattern<'a> {
    /// The element itself.
    Element,
    /// Nothing.
    Nothing,
    /// A string, or a field of a hash.
    Key {
        /// Of its key, what comes before the element and after it.
        around: (&'a [u8], &'a [u8]),
        field: Option<&'a [u8]>,
    },
}

impl<'a> Pattern<'a> {
    fn new(text: &'a [u8]) -> Pattern<'a> {
        if text == b"#" {
            return Pattern::Element;
        }
        let Some(star) = text.iter().position(|byte| *byte == b'*') else { return Pattern::Nothing };
        let (before, after) = (&text[..star], &text[star + 1..]);
        let arrow = after.windows(2).position(|pair| pair == b"->").filter(|at| at + 2 < after.len());
        match arrow {
            Some(at) => Pattern::Key { around: (before, &after[..at]), field: Some(&after[at + 2..]) },
            None => Pattern::Key { around: (before, after), field: None },
        }
    }

    /// The key whose value must be at hand to follow the pattern from an element.
    fn key(self, element: &[u8]) -> Option<Vec<u8>> {
        match self {
            Pattern::Key { around: (before, after), .. } => Some([before, element, after].concat()),
            _ => None,
        }
    }

    fn follow(self, txn: &mut Txn, db: u8, element: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        let Pattern::Key { around: (before, after), field } = self else {
            return Ok(matches!(self, Pattern::Element).then(|| element.to_vec()));
        };
        let key = [before, element, after].concat();
        Ok(match (txn.type_of(db, &key), field) {
            (Some(Type::Hash), Some(field)) => txn.hash_get(db, &key, field)?.map(|value| value.to_vec()),
            (Some(Type::String), None) => txn.get(db, &key)?.map(<[u8]>::to_vec),
            _ => None,
        })
    }
}

/// How to sort, and what to do with the result.
struct Query<'a> {
    /// The first and the number; below zero: all.
    limit: (i64, i64),
    descending: bool,
    alphabetical: bool,
    by: Option<Pattern<'a>>,
    /// A pattern that leads nowhere was given: the elements keep their order.
    unsorted: bool,
    get: Vec<Pattern<'a>>,
    store: Option<&'a [u8]>,
}

impl<'a> Query<'a> {
    fn parse(call: &Call<'a>) -> Result<Query<'a>, Stop> {
        let args = call.args;
        let id = call.table().find(args.at(0)).expect("it is this command");
        let may_read_all = || call.session.user.may_read_all_keys(id, args);
        let may_store = call.command.flags.has(Flags::WRITE);
        let mut query = Query {
            limit: (0, -1),
            descending: false,
            alphabetical: false,
            by: None,
            unsorted: false,
            get: Vec::new(),
            store: None,
        };
        let mut at = 2;
        while at < args.len() {
            let is = |name: &str, values: usize| call.is(at, name) && at + values < args.len();
            let values = if is("asc", 0) {
                query.descending = false;
                0
            } else if is("desc", 0) {
                query.descending = true;
                0
            } else if is("alpha", 0) {
                query.alphabetical = true;
                0
            } else if is("limit", 2) {
                query.limit = (call.int(at + 1)?, call.int(at + 2)?);
                2
            } else if may_store && is("store", 1) {
                query.store = Some(args.at(at + 1));
                1
            } else if is("by", 1) {
                let pattern = args.at(at + 1);
                if pattern.contains(&b'*') && call.server().cluster.is_on() {
                    return Err(BY_IN_CLUSTER);
                }
                if pattern.contains(&b'*') && !may_read_all() {
                    return Err(BY_DENIED);
                }
                query.by = Some(Pattern::new(pattern));
                query.unsorted |= !pattern.contains(&b'*');
                1
            } else if is("get", 1) {
                if call.server().cluster.is_on() {
                    return Err(GET_IN_CLUSTER);
                }
                if !may_read_all() {
                    return Err(GET_DENIED);
                }
                query.get.push(Pattern::new(args.at(at + 1)));
                1
            } else {
                return Err(SYNTAX);
            };
            at += 1 + values;
        }
        Ok(query)
    }

    /// Which of so many elements are asked for, once they are in order.
    fn range(&self, len: usize) -> Range<usize> {
        let (first, count) = self.limit;
        let start = first.clamp(0, len as i64) as usize;
        let end = if count < 0 { len } else { start.saturating_add(count as usize).min(len) };
        start..end
    }

    /// Puts elements in order, unless something is missing that must be fetched first.
    fn sort(&self, txn: &mut Txn, db: u8, elements: Vec<Vec<u8>>) -> Result<Sorted, Stop> {
        if let Some(pattern) = self.by {
            let cold = cold(txn, db, &[pattern], &elements);
            if !cold.is_empty() {
                return Ok(Err(cold));
            }
        }
        let mut weighed = Vec::with_capacity(elements.len());
        for element in elements {
            let text = match self.by {
                Some(pattern) => pattern.follow(txn, db, &element)?,
                None => None,
            };
            let weight = match (self.alphabetical, self.by, &text) {
                (true, None, _) => Weight::None,
                (true, Some(_), text) => Weight::Text(text.clone()),
                (false, None, _) => Weight::Number(number(&element)?),
                (false, Some(_), Some(text)) => Weight::Number(number(text)?),
                (false, Some(_), None) => Weight::Number(0.0),
            };
            weighed.push((weight, element));
        }
        weighed.sort_by(|(a, x), (b, y)| {
            let order = match (a, b) {
                (Weight::Number(a), Weight::Number(b)) => {
                    a.partial_cmp(b).unwrap_or(Ordering::Equal).then_with(|| x.cmp(y))
                }
                // No text comes before any.
                (Weight::Text(a), Weight::Text(b)) => a.cmp(b),
                _ => x.cmp(y),
            };
            if self.descending { order.reverse() } else { order }
        });
        Ok(Ok(weighed.into_iter().map(|(_, element)| element).collect()))
    }
}

/// What elements are compared by.
enum Weight {
    /// Themselves.
    None,
    Number(f64),
    Text(Option<Vec<u8>>),
}

/// Elements in order, or what must be fetched first.
type Sorted = Result<Vec<Vec<u8>>, Vec<Cold>>;

/// A number as C's `strtod` reads it: after blanks, and 0 without a digit.
fn number(text: &[u8]) -> Result<f64, Stop> {
    if text.is_empty() {
        return Ok(0.0);
    }
    parse_double(text.trim_ascii_start()).ok_or(NOT_NUMBERS)
}

/// The values that patterns lead to from some elements, and that must be fetched first.
fn cold(txn: &mut Txn, db: u8, patterns: &[Pattern], elements: &[Vec<u8>]) -> Vec<Cold> {
    let keys = elements.iter().flat_map(|element| patterns.iter().map(|pattern| pattern.key(element)));
    let keys: Vec<Vec<u8>> = keys.flatten().collect();
    txn.cold(db, keys.iter().map(|key| &key[..]))
}

/// The elements of a list, a set or a sorted set, and whether their order means something.
fn elements(txn: &mut Txn, db: u8, key: &[u8]) -> Result<(Vec<Vec<u8>>, bool), Stop> {
    Ok(match txn.type_of(db, key) {
        None => (Vec::new(), true),
        Some(Type::List) => {
            let list = txn.list_at(db, key)?.expect("it was just there");
            (list.range(0, -1).map(<[u8]>::to_vec).collect(), true)
        }
        Some(Type::Set) => {
            let set = txn.set_at(db, key)?.expect("it was just there");
            (set.members().map(|member| member.to_vec()).collect(), false)
        }
        Some(Type::Zset) => {
            let zset = txn.zset_at(db, key)?.expect("it was just there");
            (zset.iter(0..u64::MAX, false).map(|(member, _)| member.to_vec()).collect(), true)
        }
        Some(_) => return Err(WRONG_TYPE),
    })
}

/// SORT and SORT_RO.
fn sort(call: &mut Call, txn: &mut Txn) -> Answer {
    let mut query = Query::parse(call)?;
    let db = call.db();
    let (mut elements, has_order) = elements(txn, db, call.args.at(1))?;
    if query.unsorted && !has_order && (query.store.is_some() || call.session.in_exec) {
        // What is stored, or seen by a script, does not depend on how a set happens to be kept.
        (query.unsorted, query.by, query.alphabetical) = (false, None, true);
    }
    if !query.unsorted {
        elements = match query.sort(txn, db, elements)? {
            Ok(elements) => elements,
            Err(cold) => return Ok(Fetch(cold)),
        };
    } else if has_order && query.descending {
        elements.reverse();
    }
    let elements = &elements[query.range(elements.len())];
    let cold = cold(txn, db, &query.get, elements);
    if !cold.is_empty() {
        return Ok(Fetch(cold));
    }
    let patterns = if query.get.is_empty() { &[Pattern::Element][..] } else { &query.get };
    let mut values = Vec::with_capacity(elements.len() * patterns.len());
    for element in elements {
        for pattern in patterns {
            values.push(pattern.follow(txn, db, element)?);
        }
    }
    let Some(to) = query.store else {
        call.out.array(values.len());
        values.into_iter().for_each(|value| match value {
            Some(value) => call.out.bulk(value),
            None => call.out.null(),
        });
        return Ok(Done);
    };
    let was_there = call.notifies(Class::GENERIC) && txn.exists(db, to);
    txn.list_replace(db, to, values.iter().map(|value| value.as_deref().unwrap_or_default()))?;
    call.notify_stored(Class::LIST, "sortstore", to, !values.is_empty(), was_there);
    call.reply_int(values.len() as i64)
}
