//! What of its keys' values a call uses, as its arguments tell: so what is not in memory can be fetched before the call runs.

use holdfast_resp::{Args, parse_int};
use holdfast_store::Use;

/// Tells it of a call; see [`Row::uses`](super::handler::Row::uses).
pub type Uses = for<'a> fn(Args<'a>) -> Vec<Use<'a>>;

/// The element that follows the key.
pub fn element(args: Args) -> Vec<Use> {
    args.iter().skip(2).take(1).map(Use::Element).collect()
}

/// All elements that follow the key.
pub fn elements(args: Args) -> Vec<Use> {
    args.iter().skip(2).map(Use::Element).collect()
}

/// Those of which each is followed by a value.
pub fn pairs(args: Args) -> Vec<Use> {
    args.iter().skip(2).step_by(2).map(Use::Element).collect()
}

/// Both ends.
pub fn ends(_: Args) -> Vec<Use> {
    [0, -1].map(|at| Use::Positions { first: at, last: at, reverse: false }).into()
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

/// Whole strings.
pub fn bytes(_: Args) -> Vec<Use> {
    vec![Use::Bytes(0, usize::MAX)]
}

/// All.
pub fn all(_: Args) -> Vec<Use> {
    vec![Use::All]
}
