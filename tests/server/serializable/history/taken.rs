//! Keys of which elements are taken: by whom, and what it says not to find one.

use super::{Adders, Element, Graph, Key, Op, Rule, Transaction, Why, precedes};
use std::{cmp::Ordering, collections::BTreeMap, iter};

/// Who has taken what.
pub struct Takes {
    pub takers: Adders,
    /// Those of each key that may have taken an element of which nobody knows.
    lost: BTreeMap<Key, Vec<usize>>,
    /// Who has found each element.
    finders: BTreeMap<(Key, Element), Vec<usize>>,
}

impl Takes {
    pub fn of(history: &[Transaction], rule: impl Fn(Key) -> Rule) -> Result<Takes, String> {
        let mut takes = Takes { takers: Adders::new(), lost: BTreeMap::new(), finders: BTreeMap::new() };
        for (at, transaction) in history.iter().enumerate() {
            for op in &transaction.ops {
                match op {
                    Op::Take(key, Some(element)) => {
                        let other = takes.takers.entry(*key).or_default().insert(*element, at);
                        if let Some(other) = other {
                            return Err(format!(
                                "both have taken element {element} of key {key}: {:?}, {transaction:?}",
                                history[other]
                            ));
                        }
                    }
                    Op::Take(key, None) if transaction.ended.is_none() => {
                        takes.lost.entry(*key).or_default().push(at);
                    }
                    Op::Read(key, found) if matches!(rule(*key), Rule::Queue | Rule::Pool) => {
                        for element in found {
                            takes.finders.entry((*key, *element)).or_default().push(at);
                        }
                    }
                    Op::Look(key, element, true) => {
                        takes.finders.entry((*key, *element)).or_default().push(at);
                    }
                    _ => {}
                }
            }
        }
        Ok(takes)
    }

    /// Adds what a part of a transaction says of a key of which elements are taken.
    pub fn add_op(
        &self,
        graph: &mut Graph,
        history: &[Transaction],
        adders: Option<&BTreeMap<Element, usize>>,
        is_executed: &[bool],
        chains: &Chains,
        (at, op): (usize, &Op),
    ) -> Result<(), String> {
        let (key, transaction) = (op.key(), &history[at]);
        let (look, found) = match op {
            Op::Read(_, found) => (None, &found[..]),
            Op::Look(_, element, true) => (Some(*element), &[*element][..]),
            Op::Look(_, element, false) => (Some(*element), &[][..]),
            Op::Take(_, None) if transaction.ended.is_some() => (None, &[][..]),
            Op::Take(_, Some(element)) => {
                let adder = adders.and_then(|adders| adders.get(element));
                adder.into_iter().for_each(|adder| graph.add(*adder, at, Why::Found));
                return Ok(());
            }
            _ => return Ok(()),
        };
        // What was certainly there before, and nobody is known to have taken.
        let mut missing = Vec::new();
        for (element, adder) in adders.into_iter().flatten() {
            if look.is_some_and(|look| look != *element) || !is_executed[*adder] {
                continue;
            }
            let taker = self.takers.get(&key).and_then(|takers| takers.get(element)).copied();
            if found.contains(element) {
                graph.add(*adder, at, Why::Found);
                taker.into_iter().for_each(|taker| graph.add(at, taker, Why::Taken));
                continue;
            }
            if *adder == at || taker == Some(at) {
                continue;
            }
            let place = chains.compare(key, *element, found);
            let was_added = place == Some(Ordering::Less) || precedes(history, *adder, at);
            match taker {
                Some(taker) if was_added => graph.add(taker, at, Why::Gone),
                Some(taker) if place.is_some() || precedes(history, at, taker) => {
                    graph.add(at, *adder, Why::Missed);
                }
                Some(_) => {}
                None if was_added => {
                    missing.push(*element);
                    // It does not come again.
                    let finders = self.finders.get(&(key, *element)).into_iter().flatten();
                    finders.for_each(|finder| graph.add(*finder, at, Why::Gone));
                }
                None if place.is_some() || !self.lost.contains_key(&key) => {
                    graph.add(at, *adder, Why::Missed);
                }
                None => {}
            }
        }
        let may_have_taken =
            |lost: &&usize| transaction.ended.is_none_or(|ended| history[**lost].began < ended);
        let lost = self.lost.get(&key).into_iter().flatten().filter(may_have_taken).count();
        if missing.len() > lost {
            return Err(format!(
                "nobody has taken {missing:?} of key {key}, {lost} replies were lost, and {transaction:?}"
            ));
        }
        Ok(())
    }
}

/// Elements of queues, as they were found one after another: nothing comes between two of them, ever.
#[derive(Default)]
pub struct Chains {
    after: BTreeMap<(Key, Element), Element>,
    before: BTreeMap<(Key, Element), Element>,
    /// In which chain each is, by the first of it, and where.
    places: BTreeMap<(Key, Element), (Element, usize)>,
}

impl Chains {
    /// Adds elements that were found; false: that goes not with what was found before.
    pub fn add(&mut self, key: Key, found: &[Element]) -> bool {
        found.windows(2).all(|pair| {
            *self.after.entry((key, pair[0])).or_insert(pair[1]) == pair[1]
                && *self.before.entry((key, pair[1])).or_insert(pair[0]) == pair[0]
        })
    }

    /// Each has a first one: if they came in a circle, so would those who have added them.
    pub fn all(&self) -> impl Iterator<Item = (Key, Vec<Element>)> {
        let begins = self.after.keys().filter(|first| !self.before.contains_key(first));
        begins.map(|(key, first)| {
            let next = |element: &Element| self.after.get(&(*key, *element)).copied();
            (*key, iter::successors(Some(*first), next).collect())
        })
    }

    /// Looks up where each is.
    pub fn number(&mut self) {
        let all: Vec<(Key, Vec<Element>)> = self.all().collect();
        for (key, chain) in all {
            for (place, element) in chain.iter().enumerate() {
                self.places.insert((key, *element), (chain[0], place));
            }
        }
    }

    /// Whether an element comes before or after the first of those that are there, if that is known.
    fn compare(&self, key: Key, element: Element, there: &[Element]) -> Option<Ordering> {
        let (chain, place) = self.places.get(&(key, element))?;
        let (other, first) = self.places.get(&(key, *there.first()?))?;
        (chain == other).then(|| place.cmp(first))
    }
}
