//! Lists.

use crate::{
    command::error::NOT_POSITIVE,
    commands::{blocking, prelude::*},
};
use holdfast_resp::parse_int;
use holdfast_store::{
    Type, Use,
    list::{
        End::{self, Back, Front},
        List,
    },
};

const READ: Command = Command {
    group: "list",
    categories: Categories::LIST,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
    ..Command::NEW
};
const PUSH: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::INSERT), 1)],
    complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
    ..READ
};
const TAKEN: KeyAccess = KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::DELETE);
const POP: Command = Command {
    flags: Flags::WRITE.and(Flags::FAST),
    keys: &[KeySpec::one(TAKEN, 1)],
    complexity: "O(N) where N is the number of elements returned",
    ..READ
};
const BLOCKING_POP: Command = Command {
    flags: Flags::WRITE.and(Flags::BLOCKING),
    keys: &[KeySpec::range(TAKEN, 1, -2, 1)],
    since: "2.0.0",
    complexity: "O(N) where N is the number of provided keys.",
    ..READ
};
const MOVE: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM),
    keys: &[KeySpec::one(TAKEN, 1), KeySpec::one(KeyAccess::RW.and(KeyAccess::INSERT), 2)],
    ..READ
};
const BLOCKING_MOVE: Command = Command { flags: MOVE.flags.and(Flags::BLOCKING), ..MOVE };
const TRIM: Command =
    Command { flags: Flags::WRITE, keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::DELETE), 1)], ..READ };
const MULTI_POP_COMPLEXITY: &str =
    "O(N+M) where N is the number of provided keys and M is the number of elements returned.";

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "blmove",
        syntax: "source:k destination:k1 wherefrom<LEFT|RIGHT> whereto<LEFT|RIGHT> timeout:d",
        since: "6.2.0",
        summary: "Pops an element from a list, pushes it to another list and returns it. Blocks until an element is available otherwise. Deletes the list if the last element was moved.",
        ..BLOCKING_MOVE
    }
    .by(Keyed(|call, txn| {
        let ends = (end(call, 3)?, end(call, 4)?);
        blocking_move(call, txn, ends, 5)
    }))
    .using(uses::ends),
    Command {
        name: "blmpop",
        syntax: "timeout:d numkeys:i key... where<LEFT|RIGHT> [COUNT=count:i]",
        flags: Flags::WRITE.and(Flags::BLOCKING).and(Flags::MOVABLE_KEYS),
        keys: &[KeySpec::counted(TAKEN, 2)],
        since: "7.0.0",
        summary: "Pops the first element from one of multiple lists. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        complexity: MULTI_POP_COMPLEXITY,
        ..READ
    }
    .by(Keyed(|call, txn| multi_pop(call, txn, true)))
    .using(|args| uses::popped(args, 2)),
    Command {
        name: "blpop",
        syntax: "key... timeout:d",
        summary: "Removes and returns the first element in a list. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        ..BLOCKING_POP
    }
    .by(Keyed(|call, txn| blocking_pop(call, txn, Front)))
    .using(uses::ends),
    Command {
        name: "brpop",
        syntax: "key... timeout:d",
        summary: "Removes and returns the last element in a list. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        ..BLOCKING_POP
    }
    .by(Keyed(|call, txn| blocking_pop(call, txn, Back)))
    .using(uses::ends),
    Command {
        name: "brpoplpush",
        syntax: "source:k destination:k1 timeout:d",
        since: "2.2.0",
        summary: "Pops an element from a list, pushes it to another list and returns it. Block until an element is available otherwise. Deletes the list if the last element was popped.",
        ..BLOCKING_MOVE
    }
    .by(Keyed(|call, txn| blocking_move(call, txn, (Back, Front), 3)))
    .using(uses::ends),
    Command {
        name: "lindex",
        syntax: "key index:i",
        summary: "Returns an element from a list by its index.",
        complexity: "O(N) where N is the number of elements to traverse to get to the element at index. This makes asking for the first or the last element of the list O(1).",
        ..READ
    }
    .by(Keyed(lindex))
    .using(|args| range(args, 2, 2)),
    Command {
        name: "linsert",
        syntax: "key where<BEFORE|AFTER> pivot element",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: PUSH.keys,
        since: "2.2.0",
        summary: "Inserts an element before or after another element in a list.",
        complexity: "O(N) where N is the number of elements to traverse before seeing the value pivot. This means that inserting somewhere on the left end on the list (head) can be considered O(1) and inserting somewhere on the right end (tail) is O(N).",
        ..READ
    }
    .by(Keyed(linsert))
    .using(uses::all),
    Command {
        name: "llen",
        syntax: "key",
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::one(KeyAccess::RO, 1)],
        summary: "Returns the length of a list.",
        ..READ
    }
    .by(Keyed(llen))
    .using(uses::length),
    Command {
        name: "lmove",
        syntax: "source:k destination:k1 wherefrom<LEFT|RIGHT> whereto<LEFT|RIGHT>",
        since: "6.2.0",
        summary: "Returns an element after popping it from one list and pushing it to another. Deletes the list if the last element was moved.",
        ..MOVE
    }
    .by(Keyed(|call, txn| {
        let ends = (end(call, 3)?, end(call, 4)?);
        move_element(call, txn, ends)
    }))
    .using(uses::ends),
    Command {
        name: "lmpop",
        syntax: "numkeys:i key... where<LEFT|RIGHT> [COUNT=count:i]",
        flags: Flags::WRITE.and(Flags::MOVABLE_KEYS),
        keys: &[KeySpec::counted(TAKEN, 1)],
        since: "7.0.0",
        summary: "Returns multiple elements from a list after removing them. Deletes the list if the last element was popped.",
        complexity: MULTI_POP_COMPLEXITY,
        ..READ
    }
    .by(Keyed(|call, txn| multi_pop(call, txn, false)))
    .using(|args| uses::popped(args, 1)),
    Command {
        name: "lpop",
        syntax: "key [count:i@6.2.0]",
        summary: "Returns the first elements in a list after removing it. Deletes the list if the last element was popped.",
        ..POP
    }
    .by(Keyed(|call, txn| pop(call, txn, Front)))
    .using(uses::first),
    Command {
        name: "lpos",
        syntax: "key element [RANK=rank:i] [COUNT=num-matches:i] [MAXLEN=len:i]",
        since: "6.0.6",
        summary: "Returns the index of matching elements in a list.",
        complexity: "O(N) where N is the number of elements in the list, for the average case. When searching for elements near the head or the tail of the list, or when the MAXLEN option is provided, the command may run in constant time.",
        ..READ
    }
    .by(Keyed(lpos))
    .using(uses::all),
    Command {
        name: "lpush",
        syntax: "key element...",
        summary: "Prepends one or more elements to a list. Creates the key if it doesn't exist.",
        ..PUSH
    }
    .by(Keyed(|call, txn| push(call, txn, Front, true)))
    .using(|args| uses::pushed(args, Front)),
    Command {
        name: "lpushx",
        syntax: "key element...",
        since: "2.2.0",
        summary: "Prepends one or more elements to a list only when the list exists.",
        ..PUSH
    }
    .by(Keyed(|call, txn| push(call, txn, Front, false)))
    .using(|args| uses::pushed(args, Front)),
    Command {
        name: "lrange",
        syntax: "key start:i stop:i",
        summary: "Returns a range of elements from a list.",
        complexity: "O(S+N) where S is the distance of start offset from HEAD for small lists, from nearest end (HEAD or TAIL) for large lists; and N is the number of elements in the specified range.",
        ..READ
    }
    .by(Keyed(lrange))
    .using(|args| range(args, 2, 3)),
    Command {
        name: "lrem",
        syntax: "key count:i element",
        summary: "Removes elements from a list. Deletes the list if the last element was removed.",
        complexity: "O(N+M) where N is the length of the list and M is the number of elements removed.",
        ..TRIM
    }
    .by(Keyed(lrem))
    .using(uses::all),
    Command {
        name: "lset",
        syntax: "key index:i element",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::UPDATE), 1)],
        summary: "Sets the value of an element in a list by its index.",
        complexity: "O(N) where N is the length of the list. Setting either the first or the last element of the list is O(1).",
        ..READ
    }
    .by(Keyed(lset))
    .using(|args| range(args, 2, 2)),
    Command {
        name: "ltrim",
        syntax: "key start:i stop:i",
        summary: "Removes elements from both ends a list. Deletes the list if all elements were trimmed.",
        complexity: "O(N) where N is the number of elements to be removed by the operation.",
        ..TRIM
    }
    .by(Keyed(ltrim))
    .using(uses::ends),
    Command {
        name: "rpop",
        syntax: "key [count:i@6.2.0]",
        summary: "Returns and removes the last elements of a list. Deletes the list if the last element was popped.",
        ..POP
    }
    .by(Keyed(|call, txn| pop(call, txn, Back)))
    .using(uses::last),
    Command {
        name: "rpoplpush",
        syntax: "source:k destination:k1",
        since: "1.2.0",
        summary: "Returns the last element of a list after removing and pushing it to another list. Deletes the list if the last element was popped.",
        ..MOVE
    }
    .by(Keyed(|call, txn| move_element(call, txn, (Back, Front))))
    .using(uses::ends),
    Command {
        name: "rpush",
        syntax: "key element...",
        summary: "Appends one or more elements to a list. Creates the key if it doesn't exist.",
        ..PUSH
    }
    .by(Keyed(|call, txn| push(call, txn, Back, true)))
    .using(|args| uses::pushed(args, Back)),
    Command {
        name: "rpushx",
        syntax: "key element...",
        since: "2.2.0",
        summary: "Appends an element to a list only when the list exists.",
        ..PUSH
    }
    .by(Keyed(|call, txn| push(call, txn, Back, false)))
    .using(|args| uses::pushed(args, Back)),
];

/// The elements between the positions that two arguments name.
fn range(args: Args, first: usize, last: usize) -> Vec<Use> {
    let positions = parse_int(args.at(first)).zip(parse_int(args.at(last)));
    positions.map(|(first, last)| Use::Positions { first, last, reverse: false }).into_iter().collect()
}

/// There is no key to change.
pub(super) const NO_SUCH_KEY: Stop = Stop::new("ERR no such key");
/// There is no element with this index.
pub(super) const INDEX_OUT_OF_RANGE: Stop = Stop::new("ERR index out of range");
const RANK_ZERO: Stop = Stop::new(
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
);
const OUT_OF_RANGE: Stop =
    Stop::new("ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807");
const NEGATIVE_COUNT: Stop = Stop::new("ERR COUNT can't be negative");
const NEGATIVE_MAXLEN: Stop = Stop::new("ERR MAXLEN can't be negative");

/// Argument `index` as the name of an end.
fn end(call: &Call, index: usize) -> Result<End, Stop> {
    match (call.is(index, "left"), call.is(index, "right")) {
        (true, _) => Ok(Front),
        (_, true) => Ok(Back),
        _ => Err(SYNTAX),
    }
}

/// The event of adding at an end.
fn pushed(end: End) -> &'static str {
    if end == Front { "lpush" } else { "rpush" }
}

/// The event of removing from an end.
fn popped(end: End) -> &'static str {
    if end == Front { "lpop" } else { "rpop" }
}

fn llen(call: &mut Call, txn: &mut Txn) -> Answer {
    let list = txn.list_at(call.db(), call.args.at(1))?;
    call.reply_int(list.map_or(0, |list| list.len() as i64))
}

fn lindex(call: &mut Call, txn: &mut Txn) -> Answer {
    let element = match txn.list_at(call.db(), call.args.at(1))? {
        Some(list) => list.get(call.int(2)?),
        None => None,
    };
    call.out.bulk_or_null(element);
    Ok(Done)
}

fn lrange(call: &mut Call, txn: &mut Txn) -> Answer {
    let (first, last) = (call.int(2)?, call.int(3)?);
    match txn.list_at(call.db(), call.args.at(1))? {
        Some(list) => {
            let elements = list.range(first, last);
            call.out.array(elements.len());
            elements.for_each(|element| call.out.bulk(element));
        }
        None => call.out.array(0),
    }
    Ok(Done)
}

fn lpos(call: &mut Call, txn: &mut Txn) -> Answer {
    let (mut rank, mut count, mut max_len) = (1, None, 0);
    let mut option = 3;
    while option < call.args.len() {
        if option + 1 == call.args.len() {
            return Err(SYNTAX);
        }
        if call.is(option, "rank") {
            rank = match call.int(option + 1)? {
                0 => return Err(RANK_ZERO),
                i64::MIN => return Err(OUT_OF_RANGE),
                rank => rank,
            };
        } else if call.is(option, "count") {
            count = Some(call.int_from(option + 1, 0, NEGATIVE_COUNT)?);
        } else if call.is(option, "maxlen") {
            max_len = call.int_from(option + 1, 0, NEGATIVE_MAXLEN)?;
        } else {
            return Err(SYNTAX);
        }
        option += 2;
    }
    // A limit of 0 is none.
    let unlimited = |limit: i64| if limit == 0 { u64::MAX } else { limit as u64 };
    let list = txn.list_at(call.db(), call.args.at(1))?;
    let mut found = list
        .into_iter()
        .flat_map(|list| list.positions(call.args.at(2), unlimited(max_len), rank < 0))
        .skip(rank.unsigned_abs() as usize - 1);
    match count {
        Some(count) => {
            let place = call.out.defer();
            let found = found.take(unlimited(count) as usize);
            let count = found.map(|position| call.out.int(position as i64)).count();
            call.out.set_array(place, count);
        }
        None => match found.next() {
            Some(position) => call.out.int(position as i64),
            None => call.out.null(),
        },
    }
    Ok(Done)
}

fn push(call: &mut Call, txn: &mut Txn, end: End, create: bool) -> Answer {
    let elements = call.args.from(2).iter();
    let len = txn.list_push(call.db(), call.args.at(1), end, elements, create)?;
    if len > 0 {
        call.notify(Class::LIST, pushed(end), call.args.at(1));
    }
    call.reply_int(len as i64)
}

fn pop(call: &mut Call, txn: &mut Txn, end: End) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    match call.args.len() {
        2 => match txn.list_pop(db, key, end, 1, |element| call.out.bulk(element))? {
            0 => call.out.null(),
            _ => call.notify_taken(txn, Class::LIST, popped(end), key),
        },
        3 => {
            let count = call.int_from(2, 0, NOT_POSITIVE)? as u64;
            if !pop_array(call, txn, key, end, count)? {
                call.out.null_array();
            }
        }
        _ => return Err(wrong_arity(call.command)),
    }
    Ok(Done)
}

/// Removes up to `count` elements from a list and replies with them; false without the list.
fn pop_array(call: &mut Call, txn: &mut Txn, key: &[u8], end: End, count: u64) -> Result<bool, Stop> {
    let db = call.db();
    let Some(len) = txn.list_at(db, key)?.map(List::len) else { return Ok(false) };
    call.out.array(count.min(len) as usize);
    if txn.list_pop(db, key, end, count, |element| call.out.bulk(element))? > 0 {
        call.notify_taken(txn, Class::LIST, popped(end), key);
    }
    Ok(true)
}

fn linsert(call: &mut Call, txn: &mut Txn) -> Answer {
    let behind = match (call.is(2, "after"), call.is(2, "before")) {
        (true, _) => 1,
        (_, true) => 0,
        _ => return Err(SYNTAX),
    };
    let (db, key) = (call.db(), call.args.at(1));
    let pivot = txn.list_at(db, key)?.map(|list| list.positions(call.args.at(3), u64::MAX, false).next());
    let len = match pivot {
        None => 0,
        Some(None) => -1,
        Some(Some(pivot)) => {
            let len = txn.list_insert(db, key, pivot + behind, call.args.at(4))?;
            call.notify(Class::LIST, "linsert", key);
            len as i64
        }
    };
    call.reply_int(len)
}

fn lset(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    txn.list_at(db, key)?.ok_or(NO_SUCH_KEY)?;
    match txn.list_set(db, key, call.int(2)?, call.args.at(3))? {
        Some(true) => call.out.ok(),
        _ => return Err(INDEX_OUT_OF_RANGE),
    }
    call.notify(Class::LIST, "lset", key);
    Ok(Done)
}

fn ltrim(call: &mut Call, txn: &mut Txn) -> Answer {
    let (first, last) = (call.int(2)?, call.int(3)?);
    let (db, key) = (call.db(), call.args.at(1));
    if txn.list_at(db, key)?.is_some() {
        txn.list_trim(db, key, first, last)?;
        call.notify_taken(txn, Class::LIST, "ltrim", key);
    }
    call.reply_ok()
}

fn lrem(call: &mut Call, txn: &mut Txn) -> Answer {
    let count = call.int(2)?;
    if count == i64::MIN {
        return Err(OUT_OF_RANGE);
    }
    let limit = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let removed = txn.list_remove(call.db(), call.args.at(1), call.args.at(3), limit, count < 0)?;
    if removed > 0 {
        call.notify_taken(txn, Class::LIST, "lrem", call.args.at(1));
    }
    call.reply_int(removed as i64)
}

fn move_element(call: &mut Call, txn: &mut Txn, ends: (End, End)) -> Answer {
    let (from, to) = ((call.args.at(1), ends.0), (call.args.at(2), ends.1));
    match txn.list_move(call.db(), from, to)? {
        Some(element) => {
            call.out.bulk(element);
            call.notify(Class::LIST, pushed(ends.1), to.0);
            call.notify_taken(txn, Class::LIST, popped(ends.0), from.0);
        }
        None => call.out.null(),
    }
    Ok(Done)
}

fn blocking_move(call: &mut Call, txn: &mut Txn, ends: (End, End), timeout_at: usize) -> Answer {
    let timeout = call.timeout(timeout_at)?;
    let from = call.args.at(1);
    match call.first_of(txn, [from].into_iter(), Type::List)? {
        Some(_) => move_element(call, txn, ends),
        None => call.wait_or(txn, [from].into_iter(), timeout, |out| out.null()),
    }
}

fn blocking_pop(call: &mut Call, txn: &mut Txn, end: End) -> Answer {
    blocking::pop(call, txn, Type::List, |call, txn, key| {
        call.out.array(2);
        call.out.bulk(key);
        txn.list_pop(call.db(), key, end, 1, |element| call.out.bulk(element))?;
        call.notify_taken(txn, Class::LIST, popped(end), key);
        Ok(())
    })
}

fn multi_pop(call: &mut Call, txn: &mut Txn, waits: bool) -> Answer {
    const LIST: (Type, [&str; 2]) = (Type::List, ["left", "right"]);
    blocking::multi_pop(call, txn, waits, LIST, |call, txn, key, back, count| {
        pop_array(call, txn, key, if back { Back } else { Front }, count).map(drop)
    })
}
