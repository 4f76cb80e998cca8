//! Sets.

use super::hashes::random_count;
use crate::commands::{prelude::*, scan};
use holdfast_resp::parse_int;
use holdfast_store::set::{Combine, Set};

const READ: Command = Command {
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
    categories: Categories::SET,
    group: "set",
    ..Command::NEW
};
const LOOK: Command = Command { keys: &[KeySpec::one(KeyAccess::RO, 1)], ..READ };
const COMBINE: Command = Command {
    flags: Flags::READONLY,
    keys: &[KeySpec::range(KeyAccess::RO.and(KeyAccess::ACCESS), 1, -1, 1)],
    complexity: "O(N) where N is the total number of elements in all given sets.",
    ..READ
};
const STORE: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyAccess::OW.and(KeyAccess::UPDATE), 1),
        KeySpec::range(KeyAccess::RO.and(KeyAccess::ACCESS), 2, -1, 1),
    ],
    ..COMBINE
};
const INTERSECTION: &str =
    "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.";

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "sadd",
        syntax: "key member...",
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::INSERT), 1)],
        summary: "Adds one or more members to a set. Creates the key if it doesn't exist.",
        complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        ..READ
    }
    .by(Keyed(sadd))
    .using(uses::elements),
    Command {
        name: "scard",
        syntax: "key",
        summary: "Returns the number of members in a set.",
        ..LOOK
    }
    .by(Keyed(scard))
    .using(uses::length),
    Command {
        name: "sdiff",
        syntax: "key...",
        summary: "Returns the difference of multiple sets.",
        ..COMBINE
    }
    .by(Keyed(|call, txn| combine(call, txn, Combine::Difference)))
    .using(uses::rest),
    Command {
        name: "sdiffstore",
        syntax: "destination:k key:k1...",
        summary: "Stores the difference of multiple sets in a key.",
        ..STORE
    }
    .by(Keyed(|call, txn| store(call, txn, Combine::Difference)))
    .using(uses::rest),
    Command {
        name: "sinter",
        syntax: "key...",
        summary: "Returns the intersect of multiple sets.",
        complexity: INTERSECTION,
        ..COMBINE
    }
    .by(Keyed(|call, txn| combine(call, txn, Combine::Intersection)))
    .using(uses::common),
    Command {
        name: "sintercard",
        syntax: "numkeys:i key... [LIMIT=limit:i]",
        flags: Flags::READONLY.and(Flags::MOVABLE_KEYS),
        keys: &[KeySpec::counted(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
        since: "7.0.0",
        summary: "Returns the number of members of the intersect of multiple sets.",
        complexity: INTERSECTION,
        ..COMBINE
    }
    .by(Keyed(sintercard))
    .using(uses::common),
    Command {
        name: "sinterstore",
        syntax: "destination:k key:k1...",
        summary: "Stores the intersect of multiple sets in a key.",
        complexity: INTERSECTION,
        ..STORE
    }
    .by(Keyed(|call, txn| store(call, txn, Combine::Intersection)))
    .using(uses::common),
    Command {
        name: "sismember",
        syntax: "key member",
        summary: "Determines whether a member belongs to a set.",
        ..LOOK
    }
    .by(Keyed(sismember))
    .using(uses::element),
    Command {
        name: "smembers",
        syntax: "key",
        flags: Flags::READONLY,
        summary: "Returns all members of a set.",
        complexity: "O(N) where N is the set cardinality.",
        ..READ
    }
    // The union of one set.
    .by(Keyed(|call, txn| combine(call, txn, Combine::Union)))
    .using(uses::all),
    Command {
        name: "smismember",
        syntax: "key member...",
        since: "6.2.0",
        summary: "Determines whether multiple members belong to a set.",
        complexity: "O(N) where N is the number of elements being checked for membership",
        ..READ
    }
    .by(Keyed(smismember))
    .using(uses::elements),
    Command {
        name: "smove",
        syntax: "source:k destination:k1 member",
        flags: Flags::WRITE.and(Flags::FAST),
        keys: &[
            KeySpec::one(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::DELETE), 1),
            KeySpec::one(KeyAccess::RW.and(KeyAccess::INSERT), 2),
        ],
        summary: "Moves a member from one set to another.",
        ..READ
    }
    .by(Keyed(smove))
    .using(|args| vec![Use::Element(args.at(3))]),
    Command {
        name: "spop",
        syntax: "key [count:i@3.2.0]",
        flags: Flags::WRITE.and(Flags::FAST),
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::DELETE), 1)],
        summary: "Returns one or more random members from a set after removing them. Deletes the set if the last member was popped.",
        complexity: "O(1) without the count argument, otherwise O(N) where N is the value of the passed count.",
        ..READ
    }
    .by(Keyed(spop))
    .using(uses::random),
    Command {
        name: "srandmember",
        syntax: "key [count:i@2.6.0]",
        flags: Flags::READONLY,
        summary: "Get one or multiple random members from a set.",
        complexity: "O(1) without the count argument, otherwise O(N) where N is the absolute value of the passed count.",
        ..READ
    }
    .by(Keyed(srandmember))
    .using(uses::random),
    Command {
        name: "srem",
        syntax: "key member...",
        flags: Flags::WRITE.and(Flags::FAST),
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::DELETE), 1)],
        summary: "Removes one or more members from a set. Deletes the set if the last member was removed.",
        complexity: "O(N) where N is the number of members to be removed.",
        ..READ
    }
    .by(Keyed(srem))
    .using(uses::elements),
    Command {
        name: "sscan",
        syntax: "key cursor:i [MATCH=pattern:p] [COUNT=count:i]",
        flags: Flags::READONLY,
        since: "2.8.0",
        summary: "Iterates over members of a set.",
        complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.",
        ..READ
    }
    .by(Keyed(sscan))
    .using(scan::uses),
    Command {
        name: "sunion",
        syntax: "key...",
        summary: "Returns the union of multiple sets.",
        ..COMBINE
    }
    .by(Keyed(|call, txn| combine(call, txn, Combine::Union)))
    .using(uses::all),
    Command {
        name: "sunionstore",
        syntax: "destination:k key:k1...",
        summary: "Stores the union of multiple sets in a key.",
        ..STORE
    }
    .by(Keyed(|call, txn| store(call, txn, Combine::Union)))
    .using(uses::all),
];

fn sadd(call: &mut Call, txn: &mut Txn) -> Answer {
    let added = txn.set_add(call.db(), call.args.at(1), call.args.from(2).iter())?;
    if added > 0 {
        call.notify(Class::SET, "sadd", call.args.at(1));
    }
    call.reply_int(added as i64)
}

fn srem(call: &mut Call, txn: &mut Txn) -> Answer {
    let removed = txn.set_remove(call.db(), call.args.at(1), call.args.from(2).iter())?;
    if removed > 0 {
        call.notify_taken(txn, Class::SET, "srem", call.args.at(1));
    }
    call.reply_int(removed as i64)
}

fn smove(call: &mut Call, txn: &mut Txn) -> Answer {
    let [from, to, member] = [1, 2, 3].map(|index| call.args.at(index));
    let db = call.db();
    let has = |set: Set| set.contains(member);
    let adds = call.notifies(Class::SET) && !txn.set_at(db, to).is_ok_and(|set| set.is_some_and(has));
    let moved = txn.set_move(db, from, to, member)?;
    if moved && from != to {
        call.notify_taken(txn, Class::SET, "srem", from);
        if adds {
            call.notify(Class::SET, "sadd", to);
        }
    }
    call.reply_int(moved.into())
}

fn scard(call: &mut Call, txn: &mut Txn) -> Answer {
    let len = txn.set_at(call.db(), call.args.at(1))?.map_or(0, Set::len);
    call.reply_int(len as i64)
}

fn sismember(call: &mut Call, txn: &mut Txn) -> Answer {
    let set = txn.set_at(call.db(), call.args.at(1))?;
    call.reply_int(set.is_some_and(|set| set.contains(call.args.at(2))).into())
}

fn smismember(call: &mut Call, txn: &mut Txn) -> Answer {
    let set = txn.set_at(call.db(), call.args.at(1))?;
    let members = call.args.from(2);
    call.out.array(members.len());
    for member in members.iter() {
        call.out.int(set.is_some_and(|set| set.contains(member)).into());
    }
    Ok(Done)
}

fn combine(call: &mut Call, txn: &mut Txn, how: Combine) -> Answer {
    let sets = txn.sets_at(call.db(), call.args.from(1).iter())?;
    if let [Some(set)] = sets[..] {
        // Its length is known.
        call.out.set(set.len() as usize);
        set.members().for_each(|member| call.out.bulk(&*member));
        return Ok(Done);
    }
    let place = call.out.defer();
    let count = how.members(&sets).map(|member| call.out.bulk(&*member)).count();
    call.out.set_set(place, count);
    Ok(Done)
}

fn store(call: &mut Call, txn: &mut Txn, how: Combine) -> Answer {
    let (db, to) = (call.db(), call.args.at(1));
    let was_there = call.notifies(Class::GENERIC) && txn.exists(db, to);
    let count = txn.set_store(db, to, how, call.args.from(2).iter())?;
    call.notify_stored(Class::SET, call.command.name, to, count > 0, was_there);
    call.reply_int(count as i64)
}

fn sintercard(call: &mut Call, txn: &mut Txn) -> Answer {
    let count = parse_int(call.args.at(1)).filter(|&count| count > 0);
    let count = count.ok_or(Stop::new("ERR numkeys should be greater than 0"))?;
    let keys = call.args.from(2);
    if count > keys.len() as i64 {
        return Err(Stop::new("ERR Number of keys can't be greater than number of args"));
    }
    let count = count as usize;
    let mut limit = usize::MAX;
    let mut options = keys.from(count).iter();
    while let Some(name) = options.next() {
        let value = options.next().filter(|_| name.eq_ignore_ascii_case(b"limit")).ok_or(SYNTAX)?;
        let value = parse_int(value).filter(|&value| value >= 0);
        limit = match value.ok_or(Stop::new("ERR LIMIT can't be negative"))? {
            0 => usize::MAX,
            value => value as usize,
        };
    }
    let sets = txn.sets_at(call.db(), keys.iter().take(count))?;
    let count = Combine::Intersection.members(&sets).take(limit).count();
    call.reply_int(count as i64)
}

fn spop(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    if call.args.len() == 2 {
        let draws = call.draws();
        let popped = txn.set_pop(db, key, 1, draws, |member| call.out.bulk(member))?;
        match popped {
            0 => call.out.null(),
            _ => call.notify_taken(txn, Class::SET, "spop", key),
        }
        return Ok(Done);
    }
    if call.args.len() > 3 {
        return Err(SYNTAX);
    }
    let count = parse_int(call.args.at(2)).filter(|&count| count >= 0);
    let count = count.ok_or(Stop::new("ERR value is out of range, must be positive"))? as u64;
    let len = txn.set_at(db, key)?.map_or(0, Set::len);
    call.out.set(count.min(len) as usize);
    let draws = call.draws();
    if txn.set_pop(db, key, count, draws, |member| call.out.bulk(member))? > 0 {
        call.notify_taken(txn, Class::SET, "spop", key);
    }
    Ok(Done)
}

fn srandmember(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    if call.args.len() == 2 {
        match txn.set_at(db, key)? {
            Some(set) => {
                let draws = call.draws();
                call.out.bulk(&*set.random(draws));
            }
            None => call.out.null(),
        }
        return Ok(Done);
    }
    if call.args.len() > 3 {
        return Err(SYNTAX);
    }
    let count = random_count(call)?;
    let Some(set) = txn.set_at(db, key)? else {
        call.out.array(0);
        return Ok(Done);
    };
    let mut draws = call.draws();
    if count < 0 {
        let count = count.unsigned_abs();
        call.out.array(count as usize);
        call.repeat(count, |out| out.bulk(&*set.random(&mut draws)))?;
    } else {
        let members = set.sample(count as usize, draws);
        call.out.array(members.len());
        members.iter().for_each(|member| call.out.bulk(&**member));
    }
    Ok(Done)
}

fn sscan(call: &mut Call, txn: &mut Txn) -> Answer {
    let cursor = scan::parse_cursor(call.args.at(2))?;
    let Some(set) = txn.set_at(call.db(), call.args.at(1))? else {
        scan::reply(&mut call.out, |_| (0, 0));
        return Ok(Done);
    };
    let options = scan::Options::parse(call.command.name, call.args.from(3), |_, _| Ok(false))?;
    scan::reply(&mut call.out, |out| {
        let mut replies = 0;
        let next = set.scan(cursor, options.count, |member| {
            if options.matches(&member) {
                out.bulk(&*member);
                replies += 1;
            }
        });
        (next, replies)
    });
    Ok(Done)
}
