//! What of its keys' values a call uses, as its arguments tell: so what is not in memory can be fetched before the call runs.

use holdfast_resp::{Args, parse_int};
use holdfast_store::{Use, Wanted, list::End};

/// Tells it of a call; see [`Row::uses`](super::handler::Row::uses). The seeds of what is chosen at random are put in by who asks.
pub type Uses = for<'a> fn(Args<'a>) -> Vec<Use<'a>>;

/// The element that follows the key.
pub fn element(args: Args) -> Vec<Use> {
    args.iter().skip(2).take(1).map(Use::Element).collect()
}

/// All elements that follow the key.
pub fn elements(args: Args) -> Vec<Use> {
    args.iter().skip(2).map(Use::Element).collect()
}

/// Fields, each followed by its value.
pub fn pairs(args: Args) -> Vec<Use> {
    let values = args.iter().skip(3).step_by(2);
    args.iter().skip(2).step_by(2).zip(values).map(|(name, value)| Use::Field(name, value)).collect()
}

/// Both ends.
pub fn ends(_: Args) -> Vec<Use> {
    [0, -1].map(|at| Use::Positions { first: at, last: at, reverse: false }).into()
}

/// Elements that come to the end of a list.
pub fn pushed(args: Args, end: End) -> Vec<Use> {
    let at = if end == End::Front { 0 } else { -1 };
    let elements = args.iter().skip(2).map(|element| Use::Pushed(end, element));
    elements.chain([Use::Positions { first: at, last: at, reverse: false }]).collect()
}

/// As many from the first on as the argument behind the key says, or one.
pub fn first(args: Args) -> Vec<Use> {
    vec![Use::Positions { first: 0, last: count(args) - 1, reverse: false }]
}

/// As many of the last.
pub fn last(args: Args) -> Vec<Use> {
    vec![Use::Positions { first: -count(args), last: -1, reverse: false }]
}

fn count(args: Args) -> i64 {
    args.get(2).and_then(parse_int).unwrap_or(1).max(1)
}

/// As many chosen at random as the argument behind the key says, or one; below zero, each is chosen anew.
pub fn random(args: Args) -> Vec<Use> {
    let wanted = match args.get(2).map(parse_int) {
        None => Wanted::Any(1),
        Some(Some(count)) if count >= 0 => Wanted::Different(count as u64),
        Some(Some(count)) => Wanted::Any(count.unsigned_abs()),
        Some(None) => return Vec::new(),
    };
    vec![Use::Random { wanted, seed: 0 }]
}

/// As many popped from several keys as the arguments behind their number, which is argument `at`, say.
pub fn popped(args: Args, at: usize) -> Vec<Use> {
    let keys = args.get(at).and_then(parse_int).and_then(|keys| usize::try_from(keys).ok());
    let Some(end) = keys.and_then(|keys| keys.checked_add(at + 1)).filter(|&end| end < args.len()) else {
        return Vec::new();
    };
    let is_first = args[end].eq_ignore_ascii_case(b"left") || args[end].eq_ignore_ascii_case(b"min");
    let count = args.get(end + 2).and_then(parse_int).unwrap_or(1).max(1);
    let (first, last) = if is_first { (0, count - 1) } else { (-count, -1) };
    vec![Use::Positions { first, last, reverse: false }]
}

/// Whole strings.
pub fn bytes(_: Args) -> Vec<Use> {
    vec![Use::Bytes(0, usize::MAX)]
}

/// What is found by the members of the smallest of several sets.
pub fn common(_: Args) -> Vec<Use> {
    vec![Use::Common]
}

/// What is found by the members of the first of several sets.
pub fn rest(_: Args) -> Vec<Use> {
    vec![Use::Rest]
}

/// How many elements there are.
pub fn length(_: Args) -> Vec<Use> {
    vec![Use::Length]
}

/// What it takes to remove a small value.
pub fn removal(_: Args) -> Vec<Use> {
    vec![Use::Removal]
}

/// All.
pub fn all(_: Args) -> Vec<Use> {
    vec![Use::All]
}
