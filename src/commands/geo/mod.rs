//! Geospatial indexes: sorted sets whose scores are positions.

mod search;

use crate::{
    command::{BeginSearch, Find, error::NOT_DOUBLE},
    commands::prelude::*,
};
use holdfast_resp::parse_double;
use holdfast_store::{geo::Position, zset::AddOptions};
use search::Kind;

const READ_KEY: KeyAccess = KeyAccess::RO.and(KeyAccess::ACCESS);
const STORED: KeyAccess = KeyAccess::OW.and(KeyAccess::UPDATE);

const ROW: Command = Command {
    group: "geo",
    categories: Categories::GEO,
    since: "3.2.0",
    flags: Flags::READONLY,
    keys: &[KeySpec::one(READ_KEY, 1)],
    ..Command::NEW
};
const RADIUS: Command = Command {
    complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
    ..ROW
};
const STORING_RADIUS: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLE_KEYS),
    find_keys: Some(search::find_keys),
    ..RADIUS
};
const SEARCH: Command = Command {
    since: "6.2.0",
    complexity: "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape",
    ..ROW
};

/// The key behind a word, which is looked for from an argument on.
const fn behind(word: &'static str, from: i32) -> KeySpec {
    KeySpec {
        access: STORED,
        begin: BeginSearch::Keyword(word, from),
        find: Find::Range { last: 0, step: 1, limit: 0 },
    }
}

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "geoadd",
        syntax: "key [condition@6.2.0<NX|XX>] [CH=change:!@6.2.0] data(longitude:d latitude:d member)...",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::UPDATE), 1)],
        summary: "Adds one or more members to a geospatial index. The key is created if it doesn't exist.",
        complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted set.",
        ..ROW
    }
    .by(Keyed(geoadd))
    .using(added),
    Command {
        name: "geodist",
        syntax: "key member1 member2 [unit<M|KM|FT|MI>]",
        summary: "Returns the distance between two members of a geospatial index.",
        ..ROW
    }
    .by(Keyed(geodist))
    .using(uses::elements),
    Command {
        name: "geohash",
        syntax: "key [member...]",
        summary: "Returns members from a geospatial index as geohash strings.",
        complexity: "O(1) for each member requested.",
        ..ROW
    }
    .by(Keyed(geohash))
    .using(uses::elements),
    Command {
        name: "geopos",
        syntax: "key [member...]",
        summary: "Returns the longitude and latitude of members from a geospatial index.",
        complexity: "O(1) for each member requested.",
        ..ROW
    }
    .by(Keyed(geopos))
    .using(uses::elements),
    Command {
        name: "georadius",
        syntax: "key longitude:d latitude:d radius:d unit<M|KM|FT|MI> [WITHCOORD] [WITHDIST] [WITHHASH] [count-block(COUNT=count:i [ANY@6.2.0])] [order<ASC|DESC>] [store<STORE=storekey:k1~key|STOREDIST=storedistkey:k2~key>]",
        keys: &[KeySpec::one(READ_KEY, 1), behind("STORE", 6), behind("STOREDIST", 6)],
        summary: "Queries a geospatial index for members within a distance from a coordinate, optionally stores the result.",
        ..STORING_RADIUS
    }
    .by(Keyed(|call, txn| search::search(call, txn, Kind::Radius { may_store: true })))
    .using(search::of_circle),
    Command {
        name: "georadius_ro",
        syntax: "key longitude:d latitude:d radius:d unit<M|KM|FT|MI> [WITHCOORD] [WITHDIST] [WITHHASH] [count-block(COUNT=count:i [ANY@6.2.0])] [order<ASC|DESC>]",
        since: "3.2.10",
        summary: "Returns members from a geospatial index that are within a distance from a coordinate.",
        ..RADIUS
    }
    .by(Keyed(|call, txn| search::search(call, txn, Kind::Radius { may_store: false })))
    .using(search::of_circle),
    Command {
        name: "georadiusbymember",
        syntax: "key member radius:d unit<M|KM|FT|MI> [WITHCOORD] [WITHDIST] [WITHHASH] [count-block(COUNT=count:i [ANY])] [order<ASC|DESC>] [store<STORE=storekey:k1~key|STOREDIST=storedistkey:k2~key>]",
        keys: &[KeySpec::one(READ_KEY, 1), behind("STORE", 5), behind("STOREDIST", 5)],
        summary: "Queries a geospatial index for members within a distance from a member, optionally stores the result.",
        ..STORING_RADIUS
    }
    .by(Keyed(|call, txn| search::search(call, txn, Kind::RadiusByMember { may_store: true })))
    .using(search::of_circle_around),
    Command {
        name: "georadiusbymember_ro",
        syntax: "key member radius:d unit<M|KM|FT|MI> [WITHCOORD] [WITHDIST] [WITHHASH] [count-block(COUNT=count:i [ANY])] [order<ASC|DESC>]",
        since: "3.2.10",
        summary: "Returns members from a geospatial index that are within a distance from a member.",
        ..RADIUS
    }
    .by(Keyed(|call, txn| search::search(call, txn, Kind::RadiusByMember { may_store: false })))
    .using(search::of_circle_around),
    Command {
        name: "geosearch",
        syntax: "key from<FROMMEMBER=member|FROMLONLAT=fromlonlat(longitude:d latitude:d)> by<circle(BYRADIUS=radius:d unit<M|KM|FT|MI>)|box(BYBOX=width:d height:d unit<M|KM|FT|MI>)> [order<ASC|DESC>] [count-block(COUNT=count:i [ANY])] [WITHCOORD] [WITHDIST] [WITHHASH]",
        summary: "Queries a geospatial index for members inside an area of a box or a circle.",
        ..SEARCH
    }
    .by(Keyed(|call, txn| search::search(call, txn, Kind::Search)))
    .using(|args| search::of_area(args, 2)),
    Command {
        name: "geosearchstore",
        syntax: "destination:k source:k1 from<FROMMEMBER=member|FROMLONLAT=fromlonlat(longitude:d latitude:d)> by<circle(BYRADIUS=radius:d unit<M|KM|FT|MI>)|box(BYBOX=width:d height:d unit<M|KM|FT|MI>)> [order<ASC|DESC>] [count-block(COUNT=count:i [ANY])] [STOREDIST]",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::one(STORED, 1), KeySpec::one(READ_KEY, 2)],
        summary: "Queries a geospatial index for members inside an area of a box or a circle, optionally stores the result.",
        ..SEARCH
    }
    .by(Keyed(|call, txn| search::search(call, txn, Kind::SearchStore)))
    .using(|args| search::of_area(args, 3)),
];

/// The places of the members that GEOADD names, each behind its coordinates.
fn added(args: Args) -> Vec<Use> {
    let data: Vec<_> = args.iter().skip(2).skip_while(|word| parse_double(word).is_none()).collect();
    let place = |data: &[&'_ [u8]]| Position::new(parse_double(data[0])?, parse_double(data[1])?);
    data.chunks_exact(3).map(|data| Use::Place(data[2], place(data).map(Position::score))).collect()
}

const BAD_UNIT: Stop = Stop::new("ERR unsupported unit provided. please use M, KM, FT, MI");

/// Reads arguments `at` and `at + 1`.
fn position(call: &Call, at: usize) -> Result<Position, Stop> {
    let [longitude, latitude] = [call.double(at)?, call.double(at + 1)?];
    Position::new(longitude, latitude)
        .ok_or_else(|| format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into())
}

/// An argument as a number of metres.
fn unit(call: &Call, at: usize) -> Result<f64, Stop> {
    metres(call.args.at(at)).ok_or(BAD_UNIT)
}

/// How many metres a unit has.
fn metres(unit: &[u8]) -> Option<f64> {
    const UNITS: [(&str, f64); 4] = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name.as_bytes())).map(|(_, metres)| *metres)
}

/// Longitude and latitude.
fn write_position(out: &mut Writer, position: Position) {
    out.array(2);
    for coordinate in [position.longitude, position.latitude] {
        let text = format!("{coordinate:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        out.double_text(if text == "-0" { "0" } else { text });
    }
}

/// A distance, with four digits behind the point.
fn write_distance(out: &mut Writer, distance: f64) {
    let scaled = (distance * 10_000.0).round() as u64;
    out.bulk(format!("{}.{:04}", scaled / 10_000, scaled % 10_000));
}

fn geoadd(call: &mut Call, txn: &mut Txn) -> Answer {
    let mut options = AddOptions::default();
    let (mut count_changed, mut at) = (false, 2);
    loop {
        let flag = match call.args.get(at) {
            Some(_) if call.is(at, "nx") => &mut options.only_new,
            Some(_) if call.is(at, "xx") => &mut options.only_existing,
            Some(_) if call.is(at, "ch") => &mut count_changed,
            _ => break,
        };
        *flag = true;
        at += 1;
    }
    let left = call.args.len() - at;
    if left == 0 || !left.is_multiple_of(3) || options.only_new && options.only_existing {
        return Err(SYNTAX);
    }
    let member = |at: usize| Ok((call.args.at(at + 2), position(call, at)?.score()));
    let members = (at..call.args.len()).step_by(3).map(member).collect::<Result<Vec<_>, Stop>>()?;
    let key = call.args.at(1);
    let done = txn.zset_add(call.db(), key, options, members)?;
    if done.added + done.updated > 0 {
        call.notify(Class::ZSET, "zadd", key);
    }
    call.reply_int((done.added + if count_changed { done.updated } else { 0 }) as i64)
}

fn geodist(call: &mut Call, txn: &mut Txn) -> Answer {
    let metres = match call.args.len() {
        4 => 1.0,
        5 => unit(call, 4)?,
        _ => return Err(SYNTAX),
    };
    let zset = txn.zset_at(call.db(), call.args.at(1))?;
    let place = |at: usize| Some(Position::of_score(zset?.score(call.args.at(at))?));
    match place(2).zip(place(3)) {
        Some((from, to)) => write_distance(&mut call.out, from.distance(to) / metres),
        None => call.out.null(),
    }
    Ok(Done)
}

fn geohash(call: &mut Call, txn: &mut Txn) -> Answer {
    each_member(call, txn, |out, position| match position {
        Some(position) => out.bulk(position.geohash()),
        None => out.null(),
    })
}

fn geopos(call: &mut Call, txn: &mut Txn) -> Answer {
    each_member(call, txn, |out, position| match position {
        Some(position) => write_position(out, position),
        None => out.null_array(),
    })
}

/// Writes something about each member named, where it is if it is there.
fn each_member(call: &mut Call, txn: &mut Txn, write: fn(&mut Writer, Option<Position>)) -> Answer {
    let zset = txn.zset_at(call.db(), call.args.at(1))?;
    let members = call.args.from(2);
    call.out.array(members.len());
    for member in members.iter() {
        write(&mut call.out, zset.and_then(|zset| zset.score(member)).map(Position::of_score));
    }
    Ok(Done)
}

/// An argument as a floating-point number; else `error`.
fn number(call: &Call, at: usize, error: Stop) -> Result<f64, Stop> {
    call.double(at).map_err(|stop| if stop == NOT_DOUBLE { error } else { stop })
}
