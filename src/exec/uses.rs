//! What of its keys' values a call uses, as its arguments tell: so what is not in memory can be fetched before the call runs.

use holdfast_resp::Args;
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

/// Whole strings.
pub fn bytes(_: Args) -> Vec<Use> {
    vec![Use::Bytes(0, usize::MAX)]
}

/// All.
pub fn all(_: Args) -> Vec<Use> {
    vec![Use::All]
}
