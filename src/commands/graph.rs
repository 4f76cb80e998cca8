//! GRAPH: directed graphs, a key a vertex. Vertices are sorted sets, so that all commands of sorted sets work with them, too.
//! Redis has no such commands.

use crate::{
    command::error::NOT_POSITIVE,
    commands::{prelude::*, scan},
    exec::{cluster::check_unnamed, locking::PAGES_MAX},
    session::progress::{Progress, Removal},
};
use holdfast_resp::parse_int;
use holdfast_store::{
    Cold,
    graph::{self, Direction, Half},
    zset::Zset,
};
use std::{collections::BTreeMap, ops::Bound::Included};

const ACCESS: KeyAccess = KeyAccess::RO.and(KeyAccess::ACCESS);
const CHANGE: KeyAccess = KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE);

const GRAPH: Command =
    Command { categories: Categories::SORTEDSET, since: "7.2.0", group: "graph", ..Command::NEW };
const READ: Command = Command { flags: Flags::READONLY, keys: &[KeySpec::one(ACCESS, 1)], ..GRAPH };
const NEIGHBOURS: Command = Command {
    syntax: "vertex:k",
    complexity: "O(log(N)+M) where N is the number of neighbours of the vertex and M how many of them are returned.",
    ..READ
};
const CHANGES: Command = Command {
    flags: Flags::WRITE,
    keys: &[KeySpec::one(CHANGE, 1)],
    complexity: "O(M*log(N)) where M is the number of edges in the call and N the number of neighbours of a vertex.",
    ..GRAPH
};
/// The keys of whole edges.
const ENDS: &[KeySpec] = &[KeySpec::range(CHANGE, 1, -1, 1)];
const GROWS: Flags = Flags::WRITE.and(Flags::DENYOOM);

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "graph.addedge",
        syntax: "edge(from:k to:k)...",
        flags: GROWS,
        keys: ENDS,
        summary: "Adds one or more edges to a directed graph. Creates the vertices that don't exist.",
        ..CHANGES
    }
    .by(Keyed(|call, txn| change_edges(call, txn, true))),
    Command {
        name: "graph.addhalf",
        syntax: "vertex:k direction<OUT|IN> other...",
        flags: GROWS,
        summary: "Adds the halves that a vertex has of one or more edges, the other ends of which may be on other servers.",
        ..CHANGES
    }
    .by(Keyed(|call, txn| change_halves(call, txn, true)))
    .using(|args| places(args, parse_direction(args.at(2)))),
    Command {
        name: "graph.degree",
        syntax: "vertex:k",
        summary: "Returns how many edges begin at a vertex, and how many end there.",
        complexity: "O(log(N)) where N is the number of neighbours of the vertex.",
        ..READ
    }
    .by(Keyed(degree)),
    Command {
        name: "graph.isconnected",
        syntax: "from:k to",
        flags: Flags::READONLY.and(Flags::FAST),
        summary: "Determines whether an edge leads from one vertex to another.",
        ..READ
    }
    .by(Keyed(is_connected))
    .using(uses::element),
    Command {
        name: "graph.neighbors",
        summary: "Returns the vertices to which edges lead from a vertex.",
        ..NEIGHBOURS
    }
    .by(Keyed(|call, txn| neighbours(call, txn, Direction::Out)))
    .using(|_| vec![scores(Direction::Out)]),
    Command {
        name: "graph.predecessors",
        summary: "Returns the vertices from which edges lead to a vertex.",
        ..NEIGHBOURS
    }
    .by(Keyed(|call, txn| neighbours(call, txn, Direction::In)))
    .using(|_| vec![scores(Direction::In)]),
    Command {
        name: "graph.removeedge",
        syntax: "edge(from:k to:k)...",
        keys: ENDS,
        summary: "Removes one or more edges from a directed graph. Deletes the vertices that have no edges left.",
        ..CHANGES
    }
    .by(Keyed(|call, txn| change_edges(call, txn, false))),
    Command {
        name: "graph.removehalf",
        syntax: "vertex:k direction<OUT|IN> other...",
        summary: "Removes the halves that a vertex has of one or more edges, the other ends of which may be on other servers.",
        ..CHANGES
    }
    .by(Keyed(|call, txn| change_halves(call, txn, false)))
    .using(|args| places(args, None)),
    Command {
        name: "graph.removevertex",
        syntax: "vertex:k [COUNT=count:i]",
        flags: Flags::WRITE.and(Flags::MOVABLE_KEYS),
        keys: &[KeySpec::one(CHANGE, 1), KeySpec::somewhere(CHANGE)],
        summary: "Removes a vertex from a directed graph, with all edges that begin or end there, or those to some of its neighbours.",
        complexity: "O(N*log(M)) where N is the number of neighbours that are removed and M how many neighbours these have. Many are removed in steps.",
        find_keys: Some(|_, found| found(1, CHANGE)),
        looks_beyond: |_| true,
        ..CHANGES
    }
    .by(Keyed(remove_vertex)),
    Command {
        name: "graph.scan",
        syntax: "vertex:k direction<OUT|IN> cursor:i [MATCH=pattern:p] [COUNT=count:i]",
        summary: "Iterates over the vertices to which edges lead from a vertex, or from which they lead to it.",
        complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of neighbours of the vertex.",
        ..READ
    }
    .by(Keyed(scan_neighbours)),
];

const TOO_MANY: Stop =
    Stop::new("ERR the vertex has more than 65536 neighbours; use COUNT to remove the edges in steps");
const NO_KEY_RIGHTS: Stop = Stop::new("NOPERM No permissions to access a key");

/// The neighbours that a run of GRAPH.REMOVEVERTEX removes. All keys are locked meanwhile, for about a millisecond.
const STEP: u64 = 256;
/// The most that it removes where it cannot go on in another run, which is within MULTI and scripts.
const REMOVED_AT_ONCE: u64 = 1 << 16;
/// The neighbours that a run looks at before any is removed.
const CHECKED_AT_ONCE: u64 = 1 << 14;

fn parse_direction(word: &[u8]) -> Option<Direction> {
    let directions: [(&[u8], Direction); 2] = [(b"out", Direction::Out), (b"in", Direction::In)];
    let found = directions.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
    found.map(|(_, direction)| direction)
}

fn direction(call: &Call) -> Result<Direction, Stop> {
    parse_direction(call.args.at(2)).ok_or(SYNTAX)
}

/// What is used of a vertex whose neighbours in a direction are looked at.
fn scores(direction: Direction) -> Use<'static> {
    let (min, max) = graph::scores(direction);
    Use::Scores { min, max, reverse: false, count: u64::MAX }
}

/// What is used of a vertex to which a half is added, or, without a direction, from which any is removed.
fn place(other: &[u8], added: Option<Direction>) -> Use<'_> {
    Use::Place(other, added.map(graph::score))
}

fn places(args: Args, added: Option<Direction>) -> Vec<Use> {
    args.iter().skip(3).map(|other| place(other, added)).collect()
}

/// The pages that have to be fetched before halves are changed. The arguments of a call do not tell which of its vertices has which
/// of them.
fn absent(txn: &mut Txn, db: u8, halves: &[Half], adds: bool) -> Result<Vec<Cold>, Stop> {
    let (mut uses, mut cold) = (BTreeMap::<&[u8], Vec<Use>>::new(), Vec::new());
    if txn.has_absent() {
        for half in halves {
            uses.entry(half.vertex).or_default().push(place(half.other, adds.then_some(half.direction)));
        }
    }
    for (vertex, uses) in uses {
        let room = PAGES_MAX.saturating_sub(cold.len());
        cold.append(&mut txn.absent(db, [vertex], &uses, !adds, room)?);
    }
    Ok(cold)
}

fn change_edges(call: &mut Call, txn: &mut Txn, adds: bool) -> Answer {
    let args = call.args;
    if args.len().is_multiple_of(2) {
        return Err(wrong_arity(call.command));
    }
    let edges = (1..args.len()).step_by(2).map(|at| (args.at(at), args.at(at + 1)));
    let halves: Vec<Half> = edges.flat_map(|(from, to)| Half::both(from, to)).collect();
    let db = call.db();
    let cold = absent(txn, db, &halves, adds)?;
    if !cold.is_empty() {
        return Ok(Fetch(cold));
    }
    let changed = txn.graph_set(db, halves, adds)?;
    notify(call, txn, &changed.vertices, adds);
    call.reply_int(changed.out_halves as i64)
}

fn change_halves(call: &mut Call, txn: &mut Txn, adds: bool) -> Answer {
    let (args, direction) = (call.args, direction(call)?);
    let others = args.from(3);
    let halves = others.iter().map(|other| Half { vertex: args.at(1), direction, other });
    let changed = txn.graph_set(call.db(), halves, adds)?;
    notify(call, txn, &changed.vertices, adds);
    call.reply_int((changed.out_halves + changed.in_halves) as i64)
}

fn notify(call: &Call, txn: &mut Txn, vertices: &[&[u8]], adds: bool) {
    for vertex in vertices {
        call.notify_taken(txn, Class::ZSET, if adds { "zadd" } else { "zrem" }, vertex);
    }
}

fn degree(call: &mut Call, txn: &mut Txn) -> Answer {
    let vertex = txn.zset_at(call.db(), call.args.at(1))?;
    call.out.map(2);
    for (name, direction) in [("out", Direction::Out), ("in", Direction::In)] {
        let ranks = vertex.map_or(0..0, |vertex| graph::ranks(vertex, direction));
        call.out.bulk(name);
        call.out.int((ranks.end - ranks.start) as i64);
    }
    Ok(Done)
}

fn is_connected(call: &mut Call, txn: &mut Txn) -> Answer {
    let halves = txn.graph_halves(call.db(), call.args.at(1), call.args.at(2))?;
    call.reply_int(halves.has(Direction::Out).into())
}

fn neighbours(call: &mut Call, txn: &mut Txn, direction: Direction) -> Answer {
    let Some(vertex) = txn.zset_at(call.db(), call.args.at(1))? else {
        call.out.array(0);
        return Ok(Done);
    };
    let members = vertex.iter(graph::ranks(vertex, direction), false);
    call.out.array(members.len());
    members.for_each(|(other, _)| call.out.bulk(other));
    Ok(Done)
}

fn scan_neighbours(call: &mut Call, txn: &mut Txn) -> Answer {
    let (direction, cursor) = (direction(call)?, scan::parse_cursor(call.args.at(3))?);
    let options = scan::Options::parse(call.command.name, call.args.from(4), |_, _| Ok(false))?;
    let vertex = txn.zset_at(call.db(), call.args.at(1))?;
    scan::reply(&mut call.out, |out| {
        let mut replies = 0;
        let next = vertex.map_or(0, |vertex| {
            vertex.scan(cursor, options.count, |other, score| {
                if graph::has(score, direction) && options.matches(other) {
                    out.bulk(other);
                    replies += 1;
                }
            })
        });
        (next, replies)
    });
    Ok(Done)
}

/// GRAPH.REMOVEVERTEX. The keys of the neighbours are not named, so that whether the user may change them, and whether they
/// are on this server, is looked at here.
///
/// Many neighbours are removed in several runs, which leave a whole graph each. Before the first one all of them are looked at,
/// in several runs, too, so that a call that is refused has changed nothing.
fn remove_vertex(call: &mut Call, txn: &mut Txn) -> Answer {
    let (args, in_one) = (call.args, call.session.in_exec);
    let wanted = match args.len() {
        2 => u64::MAX,
        4 if call.is(2, "count") => {
            let count = parse_int(args.at(3)).and_then(|count| u64::try_from(count).ok());
            let count = count.filter(|&count| count > 0).ok_or(NOT_POSITIVE)?;
            if in_one { count.min(REMOVED_AT_ONCE) } else { count }
        }
        _ => return Err(SYNTAX),
    };
    let mut done = match call.session.progress {
        Some(Progress::RemoveVertex(done)) => done,
        _ => Removal::default(),
    };
    let (db, vertex, left) = (call.db(), args.at(1), wanted - done.neighbours);
    let step = left.min(if in_one { REMOVED_AT_ONCE } else { STEP });
    let first = Use::Scores { min: Included(1.0), max: Included(3.0), reverse: false, count: step };
    let cold = txn.absent(db, [vertex], &[first], true, PAGES_MAX)?;
    if !cold.is_empty() {
        return Ok(Fetch(cold));
    }
    let neighbours = txn.graph_neighbours(db, vertex, step)?;
    let all = txn.zset_at(db, vertex)?;
    let count = all.map_or(0, Zset::len).min(left);
    let goes_on = count > step;
    if goes_on && in_one {
        return Err(TOO_MANY);
    }
    if let Some(all) = all.filter(|_| goes_on && done.checked < count) {
        let next = done.checked + CHECKED_AT_ONCE;
        let neighbours = all.iter(done.checked..next.min(count), false);
        check_neighbours(call, neighbours.map(|(name, _)| name))?;
        done.checked = next;
        call.session.progress = Some(Progress::RemoveVertex(done));
        return Ok(Partial);
    }
    let names = || neighbours.iter().map(|(name, _)| &name[..]);
    check_neighbours(call, names())?;
    let mut cold = txn.cold(db, names());
    let halves: Vec<Half> =
        names().map(|name| Half { vertex: name, direction: Direction::In, other: vertex }).collect();
    cold.append(&mut absent(txn, db, &halves, false)?);
    if !cold.is_empty() {
        return Ok(Fetch(cold));
    }
    let changed = txn.graph_detach(db, vertex, names())?;
    // An edge from the vertex to itself has both of its halves there.
    let edges = neighbours.iter().map(|(name, halves)| if name == vertex { 1 } else { halves.count() });
    done.edges += edges.sum::<u64>();
    done.neighbours += neighbours.len() as u64;
    notify(call, txn, &changed, false);
    if goes_on {
        call.session.progress = Some(Progress::RemoveVertex(done));
        return Ok(Partial);
    }
    call.session.progress = None;
    call.reply_int(done.edges as i64)
}

/// Whether neighbours are such as GRAPH.REMOVEVERTEX may change.
fn check_neighbours<'k>(call: &Call, names: impl Iterator<Item = &'k [u8]> + Clone) -> Result<(), Stop> {
    let id = call.table().find(call.args.at(0)).expect("it is this command");
    if !call.session.user.may_use_keys(id, call.args, names.clone(), CHANGE) {
        return Err(NO_KEY_RIGHTS);
    }
    check_unnamed(call.server(), call.session, call.args.at(1), names)
}
