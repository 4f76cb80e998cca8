//! Sorted sets.

mod algebra;
mod members;
mod pops;
mod ranges;

use crate::commands::{prelude::*, scan};
use algebra::Operation;
use holdfast_resp::Proto;
use holdfast_store::zset::Scored;
use ranges::By;

const TAKEN: KeyAccess = KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::DELETE);
const STORED: KeyAccess = KeyAccess::OW.and(KeyAccess::UPDATE);

const BASE: Command = Command {
    group: "sorted-set",
    categories: Categories::SORTEDSET,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
    since: "1.2.0",
    ..Command::NEW
};
const READ: Command = Command { flags: Flags::READONLY.and(Flags::FAST), ..BASE };
const RANGE: Command = Command {
    complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.",
    ..BASE
};
const WRITE: Command = Command {
    flags: Flags::WRITE.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::DELETE), 1)],
    ..BASE
};
const REMOVE: Command = Command {
    flags: Flags::WRITE,
    complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.",
    ..WRITE
};
const POP: Command = Command {
    keys: &[KeySpec::one(TAKEN, 1)],
    since: "5.0.0",
    complexity: "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped.",
    ..WRITE
};
const BLOCKING_POP: Command = Command {
    flags: Flags::WRITE.and(Flags::BLOCKING).and(Flags::FAST),
    keys: &[KeySpec::range(TAKEN, 1, -2, 1)],
    since: "5.0.0",
    complexity: "O(log(N)) with N being the number of elements in the sorted set.",
    ..BASE
};
const COMBINE: Command = Command {
    flags: Flags::READONLY.and(Flags::MOVABLE_KEYS),
    keys: &[KeySpec::counted(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
    since: "6.2.0",
    ..BASE
};
const STORE: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLE_KEYS),
    keys: &[KeySpec::one(STORED, 1), KeySpec::counted(KeyAccess::RO.and(KeyAccess::ACCESS), 2)],
    since: "2.0.0",
    ..BASE
};

const LIMITED_RANGE_COMPLEXITY: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).";
const MULTI_POP_COMPLEXITY: &str = "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and M being the number of elements popped.";
const UNION_COMPLEXITY: &str = "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.";
const INTERSECTION_COMPLEXITY: &str = "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.";
const DIFFERENCE_COMPLEXITY: &str = "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.";

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "bzmpop",
        syntax: "timeout:d numkeys:i key... where<MIN|MAX> [COUNT=count:i]",
        flags: Flags::WRITE.and(Flags::BLOCKING).and(Flags::MOVABLE_KEYS),
        keys: &[KeySpec::counted(TAKEN, 2)],
        since: "7.0.0",
        summary: "Removes and returns a member by score from one or more sorted sets. Blocks until a member is available otherwise. Deletes the sorted set if the last element was popped.",
        complexity: MULTI_POP_COMPLEXITY,
        ..BASE
    }
    .by(Keyed(|call, txn| pops::multi_pop(call, txn, true)))
    .using(|args| uses::popped(args, 2)),
    Command {
        name: "bzpopmax",
        syntax: "key... timeout:d",
        summary: "Removes and returns the member with the highest score from one or more sorted sets. Blocks until a member available otherwise. Deletes the sorted set if the last element was popped.",
        ..BLOCKING_POP
    }
    .by(Keyed(|call, txn| pops::blocking_pop(call, txn, true)))
    .using(uses::ends),
    Command {
        name: "bzpopmin",
        syntax: "key... timeout:d",
        summary: "Removes and returns the member with the lowest score from one or more sorted sets. Blocks until a member is available otherwise. Deletes the sorted set if the last element was popped.",
        ..BLOCKING_POP
    }
    .by(Keyed(|call, txn| pops::blocking_pop(call, txn, false)))
    .using(uses::ends),
    Command {
        name: "zadd",
        syntax: "key [condition@3.0.2<NX|XX>] [comparison@6.2.0<GT|LT>] [CH=change:!@3.0.2] [INCR=increment:!@3.0.2] data(score:d member)...",
        flags: WRITE.flags.and(Flags::DENYOOM),
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::UPDATE), 1)],
        summary: "Adds one or more members to a sorted set, or updates their scores. Creates the key if it doesn't exist.",
        complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted set.",
        ..WRITE
    }
    .by(Keyed(members::zadd))
    .using(members::added),
    Command {
        name: "zcard",
        syntax: "key",
        keys: &[KeySpec::one(KeyAccess::RO, 1)],
        summary: "Returns the number of members in a sorted set.",
        ..READ
    }
    .by(Keyed(members::zcard))
    .using(uses::length),
    Command {
        name: "zcount",
        syntax: "key min:d max:d",
        since: "2.0.0",
        summary: "Returns the count of members in a sorted set that have scores within a range.",
        complexity: "O(log(N)) with N being the number of elements in the sorted set.",
        ..READ
    }
    .by(Keyed(|call, txn| ranges::count(call, txn, By::Score)))
    .using(|args| ranges::scores(args, 2, false, 0)),
    Command {
        name: "zdiff",
        syntax: "numkeys:i key... [WITHSCORES]",
        summary: "Returns the difference between multiple sorted sets.",
        complexity: DIFFERENCE_COMPLEXITY,
        ..COMBINE
    }
    .by(Keyed(|call, txn| algebra::combine(call, txn, Operation::Difference)))
    .using(uses::rest),
    Command {
        name: "zdiffstore",
        syntax: "destination:k numkeys:i key:k1...",
        since: "6.2.0",
        summary: "Stores the difference of multiple sorted sets in a key.",
        complexity: DIFFERENCE_COMPLEXITY,
        ..STORE
    }
    .by(Keyed(|call, txn| algebra::store(call, txn, Operation::Difference)))
    .using(uses::rest),
    Command {
        name: "zincrby",
        syntax: "key increment:i member",
        flags: WRITE.flags.and(Flags::DENYOOM),
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE), 1)],
        summary: "Increments the score of a member in a sorted set.",
        complexity: "O(log(N)) where N is the number of elements in the sorted set.",
        ..WRITE
    }
    .by(Keyed(members::zincrby))
    .using(members::incremented),
    Command {
        name: "zinter",
        syntax: "numkeys:i key... [WEIGHTS=weight:i...] [AGGREGATE=aggregate<SUM|MIN|MAX>] [WITHSCORES]",
        summary: "Returns the intersect of multiple sorted sets.",
        complexity: INTERSECTION_COMPLEXITY,
        ..COMBINE
    }
    .by(Keyed(|call, txn| algebra::combine(call, txn, Operation::Intersection)))
    .using(uses::common),
    Command {
        name: "zintercard",
        syntax: "numkeys:i key... [LIMIT=limit:i]",
        since: "7.0.0",
        summary: "Returns the number of members of the intersect of multiple sorted sets.",
        complexity: "O(N*K) worst case with N being the smallest input sorted set, K being the number of input sorted sets.",
        ..COMBINE
    }
    .by(Keyed(algebra::zintercard))
    .using(uses::common),
    Command {
        name: "zinterstore",
        syntax: "destination:k numkeys:i key:k1... [WEIGHTS=weight:i...] [AGGREGATE=aggregate<SUM|MIN|MAX>]",
        summary: "Stores the intersect of multiple sorted sets in a key.",
        complexity: INTERSECTION_COMPLEXITY,
        ..STORE
    }
    .by(Keyed(|call, txn| algebra::store(call, txn, Operation::Intersection)))
    .using(uses::common),
    Command {
        name: "zlexcount",
        syntax: "key min max",
        since: "2.8.9",
        summary: "Returns the number of members in a sorted set within a lexicographical range.",
        complexity: "O(log(N)) with N being the number of elements in the sorted set.",
        ..READ
    }
    .by(Keyed(|call, txn| ranges::count(call, txn, By::Name)))
    .using(|args| ranges::names(args, 2, false, 0)),
    Command {
        name: "zmpop",
        syntax: "numkeys:i key... where<MIN|MAX> [COUNT=count:i]",
        flags: Flags::WRITE.and(Flags::MOVABLE_KEYS),
        keys: &[KeySpec::counted(TAKEN, 1)],
        since: "7.0.0",
        summary: "Returns the highest- or lowest-scoring members from one or more sorted sets after removing them. Deletes the sorted set if the last member was popped.",
        complexity: MULTI_POP_COMPLEXITY,
        ..BASE
    }
    .by(Keyed(|call, txn| pops::multi_pop(call, txn, false)))
    .using(|args| uses::popped(args, 1)),
    Command {
        name: "zmscore",
        syntax: "key member...",
        since: "6.2.0",
        summary: "Returns the score of one or more members in a sorted set.",
        complexity: "O(N) where N is the number of members being requested.",
        ..READ
    }
    .by(Keyed(members::zmscore))
    .using(uses::elements),
    Command {
        name: "zpopmax",
        syntax: "key [count:i]",
        summary: "Returns the highest-scoring members from a sorted set after removing them. Deletes the sorted set if the last member was popped.",
        ..POP
    }
    .by(Keyed(|call, txn| pops::pop(call, txn, true)))
    .using(uses::last),
    Command {
        name: "zpopmin",
        syntax: "key [count:i]",
        summary: "Returns the lowest-scoring members from a sorted set after removing them. Deletes the sorted set if the last member was popped.",
        ..POP
    }
    .by(Keyed(|call, txn| pops::pop(call, txn, false)))
    .using(uses::first),
    Command {
        name: "zrandmember",
        syntax: "key [options(count:i [WITHSCORES])]",
        since: "6.2.0",
        summary: "Returns one or more random members from a sorted set.",
        complexity: "O(N) where N is the number of elements returned",
        ..BASE
    }
    .by(Keyed(members::zrandmember))
    .using(uses::random),
    Command {
        name: "zrange",
        syntax: "key start stop [sortby@6.2.0<BYSCORE|BYLEX>] [REV@6.2.0] [LIMIT=limit@6.2.0(offset:i count:i)] [WITHSCORES]",
        summary: "Returns members in a sorted set within a range of indexes.",
        ..RANGE
    }
    .by(Keyed(|call, txn| ranges::range(call, txn, None, None)))
    .using(|args| ranges::uses(args, 2, None, None)),
    Command {
        name: "zrangebylex",
        syntax: "key min max [LIMIT=limit(offset:i count:i)]",
        since: "2.8.9",
        summary: "Returns members in a sorted set within a lexicographical range.",
        complexity: LIMITED_RANGE_COMPLEXITY,
        ..RANGE
    }
    .by(Keyed(|call, txn| ranges::range(call, txn, Some(By::Name), Some(false))))
    .using(|args| ranges::uses(args, 2, Some(By::Name), Some(false))),
    Command {
        name: "zrangebyscore",
        syntax: "key min:d max:d [WITHSCORES@2.0.0] [LIMIT=limit(offset:i count:i)]",
        since: "1.0.5",
        summary: "Returns members in a sorted set within a range of scores.",
        complexity: LIMITED_RANGE_COMPLEXITY,
        ..RANGE
    }
    .by(Keyed(|call, txn| ranges::range(call, txn, Some(By::Score), Some(false))))
    .using(|args| ranges::uses(args, 2, Some(By::Score), Some(false))),
    Command {
        name: "zrangestore",
        syntax: "dst:k src:k1 min max [sortby<BYSCORE|BYLEX>] [REV] [LIMIT=limit(offset:i count:i)]",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::one(STORED, 1), KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 2)],
        since: "6.2.0",
        summary: "Stores a range of members from sorted set in a key.",
        complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements stored into the destination key.",
        ..BASE
    }
    .by(Keyed(ranges::zrangestore))
    .using(|args| ranges::uses(args, 3, None, None)),
    Command {
        name: "zrank",
        syntax: "key member [WITHSCORE]",
        since: "2.0.0",
        summary: "Returns the index of a member in a sorted set ordered by ascending scores.",
        complexity: "O(log(N))",
        ..READ
    }
    .by(Keyed(|call, txn| members::rank(call, txn, false)))
    .using(|args| vec![Use::Place(args.at(2), None)]),
    Command {
        name: "zrem",
        syntax: "key member...",
        summary: "Removes one or more members from a sorted set. Deletes the sorted set if all members were removed.",
        complexity: "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements to be removed.",
        ..WRITE
    }
    .by(Keyed(members::zrem))
    .using(|args| args.iter().skip(2).map(|member| Use::Place(member, None)).collect()),
    Command {
        name: "zremrangebylex",
        syntax: "key min max",
        since: "2.8.9",
        summary: "Removes members in a sorted set within a lexicographical range. Deletes the sorted set if all members were removed.",
        ..REMOVE
    }
    .by(Keyed(|call, txn| ranges::remove(call, txn, By::Name)))
    .using(|args| ranges::uses(args, 2, Some(By::Name), Some(false))),
    Command {
        name: "zremrangebyrank",
        syntax: "key start:i stop:i",
        since: "2.0.0",
        summary: "Removes members in a sorted set within a range of indexes. Deletes the sorted set if all members were removed.",
        ..REMOVE
    }
    .by(Keyed(|call, txn| ranges::remove(call, txn, By::Rank)))
    .using(|args| ranges::uses(args, 2, Some(By::Rank), Some(false))),
    Command {
        name: "zremrangebyscore",
        syntax: "key min:d max:d",
        summary: "Removes members in a sorted set within a range of scores. Deletes the sorted set if all members were removed.",
        ..REMOVE
    }
    .by(Keyed(|call, txn| ranges::remove(call, txn, By::Score)))
    .using(|args| ranges::uses(args, 2, Some(By::Score), Some(false))),
    Command {
        name: "zrevrange",
        syntax: "key start:i stop:i [WITHSCORES]",
        summary: "Returns members in a sorted set within a range of indexes in reverse order.",
        ..RANGE
    }
    .by(Keyed(|call, txn| ranges::range(call, txn, Some(By::Rank), Some(true))))
    .using(|args| ranges::uses(args, 2, Some(By::Rank), Some(true))),
    Command {
        name: "zrevrangebylex",
        syntax: "key max min [LIMIT=limit(offset:i count:i)]",
        since: "2.8.9",
        summary: "Returns members in a sorted set within a lexicographical range in reverse order.",
        complexity: LIMITED_RANGE_COMPLEXITY,
        ..RANGE
    }
    .by(Keyed(|call, txn| ranges::range(call, txn, Some(By::Name), Some(true))))
    .using(|args| ranges::uses(args, 2, Some(By::Name), Some(true))),
    Command {
        name: "zrevrangebyscore",
        syntax: "key max:d min:d [WITHSCORES] [LIMIT=limit(offset:i count:i)]",
        since: "2.2.0",
        summary: "Returns members in a sorted set within a range of scores in reverse order.",
        complexity: LIMITED_RANGE_COMPLEXITY,
        ..RANGE
    }
    .by(Keyed(|call, txn| ranges::range(call, txn, Some(By::Score), Some(true))))
    .using(|args| ranges::uses(args, 2, Some(By::Score), Some(true))),
    Command {
        name: "zrevrank",
        syntax: "key member [WITHSCORE]",
        since: "2.0.0",
        summary: "Returns the index of a member in a sorted set ordered by descending scores.",
        complexity: "O(log(N))",
        ..READ
    }
    .by(Keyed(|call, txn| members::rank(call, txn, true)))
    .using(|args| vec![Use::Place(args.at(2), None)]),
    Command {
        name: "zscan",
        syntax: "key cursor:i [MATCH=pattern:p] [COUNT=count:i] [NOSCORES]",
        since: "2.8.0",
        summary: "Iterates over members and scores of a sorted set.",
        complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.",
        ..BASE
    }
    .by(Keyed(members::zscan))
    .using(scan::uses),
    Command {
        name: "zscore",
        syntax: "key member",
        summary: "Returns the score of a member in a sorted set.",
        ..READ
    }
    .by(Keyed(members::zscore))
    .using(uses::element),
    Command {
        name: "zunion",
        syntax: "numkeys:i key... [WEIGHTS=weight:i...] [AGGREGATE=aggregate<SUM|MIN|MAX>] [WITHSCORES]",
        summary: "Returns the union of multiple sorted sets.",
        complexity: UNION_COMPLEXITY,
        ..COMBINE
    }
    .by(Keyed(|call, txn| algebra::combine(call, txn, Operation::Union)))
    .using(uses::all),
    Command {
        name: "zunionstore",
        syntax: "destination:k numkeys:i key:k1... [WEIGHTS=weight:i...] [AGGREGATE=aggregate<SUM|MIN|MAX>]",
        summary: "Stores the union of multiple sorted sets in a key.",
        complexity: UNION_COMPLEXITY,
        ..STORE
    }
    .by(Keyed(|call, txn| algebra::store(call, txn, Operation::Union)))
    .using(uses::all),
];

/// Writes members with or without their scores: over RESP3 in pairs, over RESP2 one after the other.
fn write_members<'a>(
    out: &mut Writer,
    members: impl ExactSizeIterator<Item = Scored<'a>>,
    with_scores: bool,
) {
    let flat = if with_scores && out.proto() == Proto::Resp2 { 2 } else { 1 };
    out.array(members.len() * flat);
    members.for_each(|scored| write_scored(out, scored, with_scores));
}

/// Writes a member with or without its score; see [`write_members`].
fn write_scored(out: &mut Writer, (member, score): Scored, with_score: bool) {
    if with_score && out.proto() == Proto::Resp3 {
        out.array(2);
    }
    out.bulk(member);
    if with_score {
        out.double(score);
    }
}
