//! GEOSEARCH, GEORADIUS and the like: members in an area, to read or to store.

use super::{READ_KEY, STORED, metres, number, position, unit, write_distance, write_position};
use crate::commands::prelude::*;
use holdfast_resp::parse_double;
use holdfast_store::{
    geo::{self, Centre, Place, Position, Shape},
    zset::Zset,
};

/// Which command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// GEORADIUS.
    Radius { may_store: bool },
    /// GEORADIUSBYMEMBER.
    RadiusByMember { may_store: bool },
    /// GEOSEARCH.
    Search,
    /// GEOSEARCHSTORE.
    SearchStore,
}

const BAD_RADIUS: Stop = Stop::new("ERR need numeric radius");
const NEGATIVE_RADIUS: Stop = Stop::new("ERR radius cannot be negative");
const BAD_WIDTH: Stop = Stop::new("ERR need numeric width");
const BAD_HEIGHT: Stop = Stop::new("ERR need numeric height");
const NEGATIVE_BOX: Stop = Stop::new("ERR height or width cannot be negative");
const NO_MEMBER: Stop = Stop::new("ERR could not decode requested zset member");
const BAD_COUNT: Stop = Stop::new("ERR COUNT must be > 0");
const ANY_WITHOUT_COUNT: Stop = Stop::new("ERR the ANY argument requires COUNT argument");

/// The keys of GEORADIUS and GEORADIUSBYMEMBER. Of several to store at, the last one counts; all are found.
pub fn find_keys(args: Args, found: &mut dyn FnMut(usize, KeyAccess)) {
    found(1, READ_KEY);
    let mut at = 5;
    while at + 1 < args.len() {
        if args[at].eq_ignore_ascii_case(b"store") || args[at].eq_ignore_ascii_case(b"storedist") {
            at += 1;
            found(at, STORED);
        }
        at += 1;
    }
}

/// What GEORADIUS uses; arguments that are wrong use nothing.
pub fn of_circle(args: Args) -> Vec<Use> {
    area(place(args, 2), circle(args, 4))
}

/// What GEORADIUSBYMEMBER uses.
pub fn of_circle_around(args: Args) -> Vec<Use> {
    area(args.get(2).map(Centre::Member), circle(args, 3))
}

/// What GEOSEARCH uses, whose options begin at an argument.
pub fn of_area(args: Args, options: usize) -> Vec<Use> {
    let (mut centre, mut shape) = (None, None);
    for at in options..args.len() {
        let is = |word: &str| args[at].eq_ignore_ascii_case(word.as_bytes());
        if is("frommember") {
            centre = args.get(at + 1).map(Centre::Member);
        } else if is("fromlonlat") {
            centre = place(args, at + 1);
        } else if is("byradius") {
            shape = circle(args, at + 1);
        } else if is("bybox") {
            let sides = [length(args, at + 1, at + 3), length(args, at + 2, at + 3)];
            if let [Some(width), Some(height)] = sides {
                shape = Some(Shape::Box { width, height });
            }
        }
    }
    area(centre, shape)
}

fn area<'a>(centre: Option<Centre<'a>>, shape: Option<Shape>) -> Vec<Use<'a>> {
    centre.zip(shape).map_or(Vec::new(), |(centre, shape)| geo::uses(centre, shape))
}

fn place(args: Args, at: usize) -> Option<Centre> {
    let [longitude, latitude] = [at, at + 1].map(|at| args.get(at).and_then(parse_double));
    Position::new(longitude?, latitude?).map(Centre::At)
}

fn circle(args: Args, at: usize) -> Option<Shape> {
    length(args, at, at + 1).map(Shape::Circle)
}

/// A length in metres, by its number and its unit.
fn length(args: Args, at: usize, unit: usize) -> Option<f64> {
    let number = args.get(at).and_then(parse_double).filter(|number| *number >= 0.0);
    Some(number? * metres(args.get(unit)?)?)
}

/// What is searched for and how the result is shown.
#[derive(Default)]
struct Query<'a> {
    centre: Option<Position>,
    /// A member was named as the centre, whether it is there or not.
    from_member: bool,
    shape: Option<Shape>,
    /// Metres in the unit of the shape.
    unit: f64,
    with_distance: bool,
    with_hash: bool,
    with_position: bool,
    order: Option<Order>,
    count: Option<usize>,
    any: bool,
    /// The key, and whether distances are its scores.
    store: Option<(&'a [u8], bool)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Nearest,
    Farthest,
}

impl<'a> Query<'a> {
    /// Reads the arguments. Without a sorted set, members and, for GEORADIUSBYMEMBER, the radius are not looked at.
    fn parse(call: &Call<'a>, kind: Kind, zset: Option<Zset>) -> Result<Query<'a>, Stop> {
        let mut query = Query { unit: 1.0, ..Query::default() };
        let mut at = match kind {
            Kind::Radius { .. } => {
                query.centre = Some(position(call, 2)?);
                query.set_circle(call, 4)?;
                6
            }
            Kind::RadiusByMember { .. } => {
                if let Some(zset) = zset {
                    query.centre = Some(place_of(zset, call.args.at(2))?);
                    query.set_circle(call, 3)?;
                }
                5
            }
            Kind::Search => 2,
            Kind::SearchStore => {
                query.store = Some((call.args.at(1), false));
                3
            }
        };
        while at < call.args.len() {
            at += query.parse_option(call, kind, zset, at)?;
        }
        query.check(call, kind)?;
        Ok(query)
    }

    fn set_circle(&mut self, call: &Call, at: usize) -> Result<(), Stop> {
        let radius = number(call, at, BAD_RADIUS)?;
        if radius < 0.0 {
            return Err(NEGATIVE_RADIUS);
        }
        self.unit = unit(call, at + 1)?;
        self.shape = Some(Shape::Circle(radius * self.unit));
        Ok(())
    }

    fn set_box(&mut self, call: &Call, at: usize) -> Result<(), Stop> {
        let (width, height) = (number(call, at, BAD_WIDTH)?, number(call, at + 1, BAD_HEIGHT)?);
        if width < 0.0 || height < 0.0 {
            return Err(NEGATIVE_BOX);
        }
        self.unit = unit(call, at + 2)?;
        self.shape = Some(Shape::Box { width: width * self.unit, height: height * self.unit });
        Ok(())
    }

    /// Reads the option at an argument, and returns how many arguments it has.
    fn parse_option(
        &mut self,
        call: &Call<'a>,
        kind: Kind,
        zset: Option<Zset>,
        at: usize,
    ) -> Result<usize, Stop> {
        let left = call.args.len() - at - 1;
        let is = |word: &str, values: usize| call.is(at, word) && left >= values;
        let searches = matches!(kind, Kind::Search | Kind::SearchStore);
        let may_store =
            matches!(kind, Kind::Radius { may_store: true } | Kind::RadiusByMember { may_store: true });
        let is_circle = matches!(self.shape, Some(Shape::Circle(_)));
        let is_box = matches!(self.shape, Some(Shape::Box { .. }));
        let values = if is("withdist", 0) {
            self.with_distance = true;
            0
        } else if is("withhash", 0) {
            self.with_hash = true;
            0
        } else if is("withcoord", 0) {
            self.with_position = true;
            0
        } else if is("any", 0) {
            self.any = true;
            0
        } else if is("asc", 0) {
            self.order = Some(Order::Nearest);
            0
        } else if is("desc", 0) {
            self.order = Some(Order::Farthest);
            0
        } else if is("count", 1) {
            let count = call.int(at + 1)?;
            self.count = Some(usize::try_from(count).ok().filter(|count| *count > 0).ok_or(BAD_COUNT)?);
            1
        } else if may_store && (is("store", 1) || is("storedist", 1)) {
            self.store = Some((call.args.at(at + 1), is("storedist", 1)));
            1
        } else if kind == Kind::SearchStore && is("storedist", 0) {
            self.store = Some((call.args.at(1), true));
            0
        } else if searches && is("frommember", 1) && (self.centre.is_none() || self.from_member) {
            self.from_member = true;
            self.centre = zset.map(|zset| place_of(zset, call.args.at(at + 1))).transpose()?;
            1
        } else if searches && is("fromlonlat", 2) && !self.from_member {
            self.centre = Some(position(call, at + 1)?);
            2
        } else if searches && is("byradius", 2) && !is_box {
            self.set_circle(call, at + 1)?;
            2
        } else if searches && is("bybox", 3) && !is_circle {
            self.set_box(call, at + 1)?;
            3
        } else {
            return Err(SYNTAX);
        };
        Ok(1 + values)
    }

    fn check(&self, call: &Call, kind: Kind) -> Result<(), Stop> {
        let with_more = self.with_distance || self.with_hash || self.with_position;
        if self.store.is_some() && with_more {
            let what = if kind == Kind::SearchStore { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            let error = format!("ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options");
            return Err(error.into());
        }
        let one_of = |what: &str| -> Stop {
            [b"ERR exactly one of ", what.as_bytes(), b" can be specified for ", call.args.at(0)]
                .concat()
                .into()
        };
        if matches!(kind, Kind::Search | Kind::SearchStore) {
            if self.centre.is_none() && !self.from_member {
                return Err(one_of("FROMMEMBER or FROMLONLAT"));
            }
            if self.shape.is_none() {
                return Err(one_of("BYRADIUS and BYBOX"));
            }
        }
        if self.any && self.count.is_none() {
            return Err(ANY_WITHOUT_COUNT);
        }
        Ok(())
    }

    /// The members that are asked for, in their order.
    fn run(&self, zset: Zset) -> Vec<Place> {
        let (Some(centre), Some(shape)) = (self.centre, self.shape) else { return Vec::new() };
        let max = self.count.filter(|_| self.any).unwrap_or(usize::MAX);
        let mut places = zset.places(centre, shape, max);
        // So many are the nearest ones unless any will do.
        let order = self.order.or((self.count.is_some() && !self.any).then_some(Order::Nearest));
        if let Some(order) = order {
            places.sort_by(|a, b| {
                let order_by_distance = a.distance.total_cmp(&b.distance);
                if order == Order::Nearest { order_by_distance } else { order_by_distance.reverse() }
            });
        }
        places.truncate(self.count.unwrap_or(usize::MAX));
        places
    }
}

/// Where a member is.
fn place_of(zset: Zset, member: &[u8]) -> Result<Position, Stop> {
    zset.score(member).map(Position::of_score).ok_or(NO_MEMBER)
}

/// Searches.
pub fn search(call: &mut Call, txn: &mut Txn, kind: Kind) -> Answer {
    let (db, from) = (call.db(), if kind == Kind::SearchStore { 2 } else { 1 });
    let zset = txn.zset_at(db, call.args.at(from))?;
    let query = Query::parse(call, kind, zset)?;
    let places = zset.map_or_else(Vec::new, |zset| query.run(zset));
    let Some((key, by_distance)) = query.store else {
        write_places(call, &query, places);
        return Ok(Done);
    };
    let score = |place: &Place| if by_distance { place.distance / query.unit } else { place.score };
    let members = places.into_iter().map(|place| (score(&place), place.member));
    let members: Vec<(Vec<u8>, f64)> = members.map(|(score, member)| (member, score)).collect();
    let was_there = call.notifies(Class::GENERIC) && txn.exists(db, key);
    txn.zset_replace(db, key, members.iter().map(|(member, score)| (member, *score)))?;
    let event = if kind == Kind::SearchStore { "geosearchstore" } else { "georadiusstore" };
    call.notify_stored(Class::ZSET, event, key, !members.is_empty(), was_there);
    call.reply_int(members.len() as i64)
}

fn write_places(call: &mut Call, query: &Query, places: Vec<Place>) {
    let more = [query.with_distance, query.with_hash, query.with_position];
    let more = more.into_iter().filter(|with| *with).count();
    call.out.array(places.len());
    for place in places {
        if more > 0 {
            call.out.array(1 + more);
        }
        call.out.bulk(place.member);
        if query.with_distance {
            write_distance(&mut call.out, place.distance / query.unit);
        }
        if query.with_hash {
            call.out.int(place.score as i64);
        }
        if query.with_position {
            write_position(&mut call.out, place.position);
        }
    }
}
