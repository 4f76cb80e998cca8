//! Positions on the earth as scores of sorted sets, as Redis keeps them.
//!
//! A score is a geohash of 52 bits: 26 of the longitude and 26 of the latitude, interleaved, so that a cell of the map,
//! which fixes the first bits of both, is a range of scores. A search looks at the cell of its centre and at the eight
//! around it, of a size that the area fits in, and then at each member there.

use super::zset::Zset;
use crate::collections::{uses::Use, zset::ScoreRange};
use std::ops::{Bound, Range};

/// As the map projection has it, which cannot show the poles.
const LATITUDE_MAX: f64 = 85.051_128_78;
const LONGITUDE_MAX: f64 = 180.0;
/// Bits of each coordinate in a score.
const STEPS_MAX: u32 = 26;
/// Metres; the figures are Redis's.
const EARTH_RADIUS: f64 = 6_372_797.560_856;
const MERCATOR_MAX: f64 = 20_037_726.37;
const DEGREE: f64 = std::f64::consts::PI / 180.0;

/// A place on the earth, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// East of Greenwich, -180 to 180.
    pub longitude: f64,
    /// North of the equator, -85.05112878 to 85.05112878.
    pub latitude: f64,
}

impl Position {
    /// A position, if it is one that a score can say.
    pub fn new(longitude: f64, latitude: f64) -> Option<Position> {
        let is_on_map = (-LONGITUDE_MAX..=LONGITUDE_MAX).contains(&longitude)
            && (-LATITUDE_MAX..=LATITUDE_MAX).contains(&latitude);
        is_on_map.then_some(Position { longitude, latitude })
    }

    /// The score of the smallest cell that it is in.
    pub fn score(self) -> f64 {
        Cell::at(self, STEPS_MAX).bits() as f64
    }

    /// The middle of the cell that a score says.
    pub fn of_score(score: f64) -> Position {
        let area = Cell::of_bits(score as i64 as u64).area();
        let middle = |range: &Range<f64>, max: f64| ((range.start + range.end) / 2.0).clamp(-max, max);
        Position {
            longitude: middle(&area.longitudes, LONGITUDE_MAX),
            latitude: middle(&area.latitudes, LATITUDE_MAX),
        }
    }

    /// The distance in metres along the surface, of a sphere.
    pub fn distance(self, other: Position) -> f64 {
        let v = ((other.longitude * DEGREE - self.longitude * DEGREE) / 2.0).sin();
        if v == 0.0 {
            return self.distance_of_latitudes(other);
        }
        let (from, to) = (self.latitude * DEGREE, other.latitude * DEGREE);
        let u = ((to - from) / 2.0).sin();
        let a = u * u + from.cos() * to.cos() * v * v;
        2.0 * EARTH_RADIUS * a.sqrt().asin()
    }

    fn distance_of_latitudes(self, other: Position) -> f64 {
        EARTH_RADIUS * (other.latitude * DEGREE - self.latitude * DEGREE).abs()
    }

    /// The standard geohash in base 32: 11 letters, of which the last one is always `0`, since 52 bits are known.
    pub fn geohash(self) -> String {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        // The standard divides the latitudes up to the poles.
        let bits = Cell::within(self, STEPS_MAX, 90.0).bits();
        let letter = |at: u32| char::from(LETTERS[(bits >> (52 - 5 * at) & 31) as usize]);
        (1..=10).map(letter).chain(['0']).collect()
    }
}

/// A cell of the map divided into 2^steps by 2^steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    /// From the west.
    x: u32,
    /// From the south.
    y: u32,
    steps: u32,
}

struct Area {
    longitudes: Range<f64>,
    latitudes: Range<f64>,
}

impl Cell {
    fn at(position: Position, steps: u32) -> Cell {
        Cell::within(position, steps, LATITUDE_MAX)
    }

    /// The cell if the map reaches to this latitude.
    fn within(position: Position, steps: u32, latitude_max: f64) -> Cell {
        let cells = f64::from(1 << steps);
        let index = |coordinate: f64, max: f64| ((coordinate + max) / (max + max) * cells) as u32;
        Cell { x: index(position.longitude, LONGITUDE_MAX), y: index(position.latitude, latitude_max), steps }
    }

    fn of_bits(bits: u64) -> Cell {
        Cell { x: every_other(bits >> 1), y: every_other(bits), steps: STEPS_MAX }
    }

    /// The coordinates' bits, interleaved.
    fn bits(self) -> u64 {
        spread(self.y) | spread(self.x) << 1
    }

    fn area(self) -> Area {
        let cells = f64::from(1 << self.steps);
        let coordinates = |index: u32, max: f64| {
            let edge = |index: u32| -max + f64::from(index) / cells * (max + max);
            edge(index)..edge(index.wrapping_add(1))
        };
        Area { longitudes: coordinates(self.x, LONGITUDE_MAX), latitudes: coordinates(self.y, LATITUDE_MAX) }
    }

    /// The scores of the positions in it.
    fn scores(self) -> ScoreRange {
        let shift = 52 - 2 * self.steps;
        let [start, end] = [self.bits(), self.bits() + 1].map(|bits| (bits << shift) as f64);
        (Bound::Included(start), Bound::Excluded(end))
    }

    /// The cell so many columns to the east and rows to the north; the map goes on at its other side.
    fn neighbour(self, east: i32, north: i32) -> Cell {
        let moved = |index: u32, by: i32| match by {
            0 => index,
            by => index.wrapping_add_signed(by) & ((1 << self.steps) - 1),
        };
        Cell { x: moved(self.x, east), y: moved(self.y, north), ..self }
    }
}

/// Puts a zero between each two bits.
fn spread(bits: u32) -> u64 {
    [(16, 0x0000_ffff_0000_ffff), (8, 0x00ff_00ff_00ff_00ff), (4, 0x0f0f_0f0f_0f0f_0f0f)]
        .into_iter()
        .chain([(2, 0x3333_3333_3333_3333), (1, 0x5555_5555_5555_5555)])
        .fold(u64::from(bits), |bits, (shift, mask)| (bits | bits << shift) & mask)
}

/// The bits at even places: the reverse of [`spread`].
fn every_other(bits: u64) -> u32 {
    [(1, 0x3333_3333_3333_3333), (2, 0x0f0f_0f0f_0f0f_0f0f), (4, 0x00ff_00ff_00ff_00ff)]
        .into_iter()
        .chain([(8, 0x0000_ffff_0000_ffff), (16, 0x0000_0000_ffff_ffff)])
        .fold(bits & 0x5555_5555_5555_5555, |bits, (shift, mask)| (bits | bits >> shift) & mask) as u32
}

/// What a search looks for around its centre; lengths in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Up to this distance.
    Circle(f64),
    /// Up to half of the width to the east and west, and half of the height to the north and south.
    Box {
        /// From west to east, along the member's latitude.
        width: f64,
        /// From south to north.
        height: f64,
    },
}

impl Shape {
    /// The member's distance from the centre, if it is within.
    fn holds(self, centre: Position, member: Position) -> Option<f64> {
        match self {
            Shape::Circle(radius) => Some(centre.distance(member)).filter(|distance| *distance <= radius),
            Shape::Box { width, height } => {
                let beside = Position { longitude: centre.longitude, ..member };
                let is_within = member.distance_of_latitudes(centre) <= height / 2.0
                    && member.distance(beside) <= width / 2.0;
                is_within.then(|| centre.distance(member))
            }
        }
    }

    /// The coordinates that the shape lies between.
    fn bounds(self, centre: Position) -> Area {
        let (width, height) = match self {
            Shape::Circle(radius) => (radius, radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let north = height / EARTH_RADIUS / DEGREE;
        // Meridians are nearest at the edge that is farther from the equator.
        let edge = if centre.latitude < 0.0 { centre.latitude - north } else { centre.latitude + north };
        let east = width / EARTH_RADIUS / (edge * DEGREE).cos() / DEGREE;
        Area {
            longitudes: centre.longitude - east..centre.longitude + east,
            latitudes: centre.latitude - north..centre.latitude + north,
        }
    }

    /// The cells that hold it.
    fn cells(self, centre: Position) -> impl Iterator<Item = Cell> {
        let bounds = self.bounds(centre);
        let reach = match self {
            Shape::Circle(radius) => radius,
            Shape::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        };
        let mut cell = Cell::at(centre, steps_for(reach, centre.latitude));
        // Near the edge of its cell, the area may reach beyond those around.
        let neighbours_fall_short = || {
            let area = |east: i32, north: i32| cell.neighbour(east, north).area();
            area(0, 1).latitudes.end < bounds.latitudes.end
                || area(0, -1).latitudes.start > bounds.latitudes.start
                || area(1, 0).longitudes.end < bounds.longitudes.end
                || area(-1, 0).longitudes.start > bounds.longitudes.start
        };
        if cell.steps > 1 && neighbours_fall_short() {
            cell = Cell::at(centre, cell.steps - 1);
        }
        let area = cell.area();
        let is_needed = move |(east, north): &(i32, i32)| {
            cell.steps < 2
                || !(*north < 0 && area.latitudes.start < bounds.latitudes.start
                    || *north > 0 && area.latitudes.end > bounds.latitudes.end
                    || *east < 0 && area.longitudes.start < bounds.longitudes.start
                    || *east > 0 && area.longitudes.end > bounds.longitudes.end)
        };
        // In the order in which Redis shows what it finds.
        let all = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let mut last = None;
        all.into_iter().filter(is_needed).map(move |(east, north)| cell.neighbour(east, north)).filter(
            // Of a map with two columns or rows, both neighbours are the same.
            move |cell| last.replace(*cell) != Some(*cell),
        )
    }
}

/// How finely the map is to be divided, so that a cell is about as large as an area of this radius.
fn steps_for(mut radius: f64, latitude: f64) -> u32 {
    if radius == 0.0 {
        return STEPS_MAX;
    }
    let mut steps = -1;
    while radius < MERCATOR_MAX {
        radius *= 2.0;
        steps += 1;
    }
    // Towards the poles cells are narrower.
    steps -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    steps.clamp(1, STEPS_MAX as i32) as u32
}

/// A member that a search has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Its name.
    pub member: Vec<u8>,
    /// Its score.
    pub score: f64,
    /// Where it is.
    pub position: Position,
    /// Its distance from the centre, in metres.
    pub distance: f64,
}

/// Where a search begins.
#[derive(Clone, Copy, Debug)]
pub enum Centre<'a> {
    /// At a position.
    At(Position),
    /// Where a member is.
    Member(&'a [u8]),
}

/// What a search of a shape will use.
pub fn uses(centre: Centre, shape: Shape) -> Vec<Use> {
    fn ranges(centre: Position, shape: Shape) -> Vec<ScoreRange> {
        shape.cells(centre).map(Cell::scores).collect()
    }
    let used = |(min, max)| Use::Scores { min, max, reverse: false, count: u64::MAX };
    match (centre, shape) {
        (Centre::At(centre), shape) => ranges(centre, shape).into_iter().map(used).collect(),
        (Centre::Member(member), Shape::Circle(radius)) => vec![Use::Around {
            member,
            ranges: |score, [radius, _]| ranges(Position::of_score(score), Shape::Circle(radius)),
            extent: [radius, radius],
        }],
        (Centre::Member(member), Shape::Box { width, height }) => vec![Use::Around {
            member,
            ranges: |score, [width, height]| ranges(Position::of_score(score), Shape::Box { width, height }),
            extent: [width, height],
        }],
    }
}

impl Zset<'_> {
    /// The members in a shape around a centre, in no order; if there are more than `max`, any so many.
    pub fn places(self, centre: Position, shape: Shape, max: usize) -> Vec<Place> {
        let found = shape.cells(centre).flat_map(|cell| {
            let (start, end) = cell.scores();
            self.iter(self.ranks_by_score(start, end), false).filter_map(|(member, score)| {
                let position = Position::of_score(score);
                let distance = shape.holds(centre, position)?;
                Some(Place { member: member.to_vec(), score, position, distance })
            })
        });
        found.take(max).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(longitude: f64, latitude: f64) -> Position {
        Position::new(longitude, latitude).unwrap()
    }

    #[test]
    fn scores_are_those_of_redis() {
        for (longitude, latitude, score, geohash) in [
            (13.361389, 38.115556, 3479099956230698.0, "sqc8b49rny0"),
            (15.087269, 37.502669, 3479447370796909.0, "sqdtr74hyu0"),
        ] {
            let position = position(longitude, latitude);
            assert_eq!(position.score(), score);
            let back = Position::of_score(score);
            assert!((back.longitude - longitude).abs() < 1e-5 && (back.latitude - latitude).abs() < 1e-5);
            assert_eq!(back.score(), score);
            assert_eq!(back.geohash(), geohash);
        }
    }

    #[test]
    fn the_map_has_edges() {
        for (longitude, latitude) in [(-180.0, -LATITUDE_MAX), (180.0, LATITUDE_MAX), (180.0, 0.0)] {
            let back = Position::of_score(position(longitude, latitude).score());
            assert!((back.longitude.abs() - 180.0).abs() < 1e-5 && (back.latitude - latitude).abs() < 1e-5);
        }
        assert_eq!(Position::new(180.1, 0.0), None);
        assert_eq!(Position::new(0.0, -85.1), None);
        assert_eq!(Position::new(f64::NAN, 0.0), None);
        let any = Position::of_score(-1.0);
        assert!(Position::new(any.longitude, any.latitude).is_some());
    }

    #[test]
    fn bits_are_interleaved_and_separated() {
        for (x, y) in [(0, 0), (1, 0), (0, 1), (5, 3), (0x2aa_5a5a, 0x3ff_0f0f), (u32::MAX, 12345)] {
            let cell = Cell { x, y, steps: STEPS_MAX };
            assert_eq!(Cell::of_bits(cell.bits()), cell);
            for bit in 0..32 {
                assert_eq!(cell.bits() >> (2 * bit) & 1, u64::from(y >> bit & 1));
                assert_eq!(cell.bits() >> (2 * bit + 1) & 1, u64::from(x >> bit & 1));
            }
        }
    }

    #[test]
    fn distances() {
        let (palermo, catania) = (position(13.361389, 38.115556), position(15.087269, 37.502669));
        assert!((palermo.distance(catania) - 166_274.0).abs() < 1.0);
        assert!((palermo.distance(catania) - catania.distance(palermo)).abs() < 1e-6);
        assert_eq!(palermo.distance(palermo), 0.0);
        assert!((position(5.0, 10.0).distance(position(5.0, 11.0)) - 111_226.3).abs() < 1.0);
    }

    /// Cells that a search looks at hold all that is near enough. Not so near the poles and across the date line, where
    /// Redis misses some too.
    #[test]
    fn cells_hold_what_is_near() {
        let mut state = 7u64;
        let mut below = |end: f64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64 * end
        };
        let mut found = 0;
        for _ in 0..20_000 {
            let centre = position(below(200.0) - 100.0, below(120.0) - 60.0);
            let reach = 10f64.powf(1.0 + below(5.0));
            let shape = if below(2.0) < 1.0 {
                Shape::Circle(reach)
            } else {
                Shape::Box { width: reach, height: below(2.0) * reach }
            };
            let degrees = reach / 70_000.0;
            let longitude = centre.longitude + below(2.0 * degrees) - degrees;
            let latitude = centre.latitude + below(2.0 * degrees) - degrees;
            let Some(member) = Position::new(longitude, latitude) else { continue };
            let member = Position::of_score(member.score());
            if shape.holds(centre, member).is_some() {
                found += 1;
                let is_in = |cell: Cell| Cell::at(member, cell.steps) == cell;
                assert!(shape.cells(centre).any(is_in), "{centre:?} {shape:?} {member:?}");
            }
        }
        assert!(found > 2000, "{found}");
    }
}
