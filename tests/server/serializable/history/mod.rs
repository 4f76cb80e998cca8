//! What clients did and found, and whether some order of their transactions explains it: one in which each is whole, and comes after those that had
//! ended before it began (strict serializability), but for those that need not be current.
//!
//! Most keys only gain elements, and each element is added once. So what a transaction finds in a key says of each other one that adds to it whether
//! it came before or after. Of others elements are taken, each once, too: who finds one comes after who has added it and before who has taken it, and
//! who does not comes before the one or after the other, which the times tell, or the order of a queue. Others have one value, each of which is set
//! once: who finds it comes after who has set it, and before who has set another one later. These, and the times, are the edges of a graph, and there
//! is an order unless it has a cycle (Adya 1999; Kingsbury and Alvaro, "Elle", VLDB 2020).

mod taken;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
    time::Duration,
};
use taken::{Chains, Takes};

/// The number of a key.
pub type Key = usize;
/// What is added to a key, once.
pub type Element = u64;

/// How a key holds its elements.
#[derive(Clone, Copy, PartialEq)]
pub enum Rule {
    /// They are found in any order.
    Unordered,
    /// They are found in the order in which they were added.
    Ordered,
    /// The same, and they are taken in this order.
    Queue,
    /// They are taken in any order.
    Pool,
    /// It is how many there are: elements are numbered as they are added, and some may be of those whose replies were lost.
    Counted,
}

/// A part of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// An element was added.
    Add(Key, Element),
    /// These elements were found, and no others.
    Read(Key, Vec<Element>),
    /// An element was found or not.
    Look(Key, Element, bool),
    /// An element was taken; `None`: there was none, or its reply was lost.
    Take(Key, Option<Element>),
    /// An element was added of which it is not known which one it was, if it was executed: its reply was lost.
    Bring(Key),
    /// The key's value was set.
    Set(Key, Element),
    /// This value was found, or none.
    Get(Key, Option<Element>),
}

impl Op {
    /// The key that it is about.
    pub fn key(&self) -> Key {
        match self {
            Op::Add(key, _) | Op::Read(key, _) | Op::Look(key, ..) => *key,
            Op::Take(key, _) | Op::Bring(key) | Op::Set(key, _) | Op::Get(key, _) => *key,
        }
    }
}

/// What a client had executed as one.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// When it was sent.
    pub began: Duration,
    /// When its reply came; `None`: that was lost. Then it tells only what it adds, if it was executed, and of which keys it takes.
    pub ended: Option<Duration>,
    /// Those of one connection are executed in their order.
    pub connection: usize,
    /// Whether it comes after all that had ended before it began. Else it may have been executed as of an earlier moment.
    pub is_current: bool,
    /// What it did, in this order.
    pub ops: Vec<Op>,
}

/// Why one transaction comes before another one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Why {
    /// It had ended before the other one began.
    Time,
    /// Both are of one connection.
    Connection,
    /// The other one found what it added.
    Found,
    /// It did not find what the other one added.
    Missed,
    /// It found what the other one took.
    Taken,
    /// The other one found no more what it had taken, or found.
    Gone,
    /// What it added or took comes before what the other one did, in the key.
    Order,
}

/// A graph whose nodes are transactions, and moments between them.
struct Graph {
    nodes: usize,
    edges: Vec<(u32, u32, Why)>,
}

impl Graph {
    fn add(&mut self, from: usize, to: usize, why: Why) {
        if from != to {
            self.edges.push((from as u32, to as u32, why));
        }
    }

    /// The edges by the node that they leave: where in the vector those of each begin.
    fn sort(&mut self) -> Vec<usize> {
        self.edges.sort_unstable_by_key(|(from, to, _)| (*from, *to));
        let mut begins = vec![0; self.nodes + 1];
        for (from, _, _) in &self.edges {
            begins[*from as usize + 1] += 1;
        }
        for node in 0..self.nodes {
            begins[node + 1] += begins[node];
        }
        begins
    }

    /// A cycle, if there is one: the shortest through a node.
    fn cycle(&mut self) -> Option<Vec<(u32, Why)>> {
        let begins = self.sort();
        // Takes away nodes that no edge leads to, one after another: each that is left has one before it that is left, too (Kahn).
        let mut incoming = vec![0; self.nodes];
        self.edges.iter().for_each(|(_, to, _)| incoming[*to as usize] += 1);
        let mut free: Vec<usize> = (0..self.nodes).filter(|node| incoming[*node] == 0).collect();
        while let Some(node) = free.pop() {
            for (_, to, _) in &self.edges[begins[node]..begins[node + 1]] {
                incoming[*to as usize] -= 1;
                if incoming[*to as usize] == 0 {
                    free.push(*to as usize);
                }
            }
        }
        let left = self
            .edges
            .iter()
            .filter(|(from, to, _)| incoming[*from as usize] > 0 && incoming[*to as usize] > 0);
        let before: HashMap<u32, u32> = left.map(|(from, to, _)| (*to, *from)).collect();
        // Who goes back for ever comes to the same again.
        let (mut at, mut seen) = (*before.keys().next()?, BTreeSet::new());
        while seen.insert(at) {
            at = before[&at];
        }
        self.shortest(at as usize, &begins, &incoming)
    }

    /// The shortest way from a node to itself through those that have something incoming.
    fn shortest(&self, start: usize, begins: &[usize], incoming: &[usize]) -> Option<Vec<(u32, Why)>> {
        let mut came: HashMap<u32, (u32, Why)> = HashMap::new();
        let mut queue = VecDeque::from([start as u32]);
        while let Some(node) = queue.pop_front() {
            for (_, to, why) in &self.edges[begins[node as usize]..begins[node as usize + 1]] {
                if incoming[*to as usize] == 0 || came.contains_key(to) {
                    continue;
                }
                came.insert(*to, (node, *why));
                if *to == start as u32 {
                    let (mut cycle, mut at) = (Vec::new(), *to);
                    loop {
                        let (before, why) = came[&at];
                        cycle.push((before, why));
                        at = before;
                        if at == start as u32 {
                            cycle.reverse();
                            return Some(cycle);
                        }
                    }
                }
                queue.push_back(*to);
            }
        }
        None
    }
}

/// Who has added each element of each key, or has set it.
type Adders = BTreeMap<Key, BTreeMap<Element, usize>>;

/// Whether there is an order; else what stands against it.
pub fn check(history: &[Transaction], rule: impl Fn(Key) -> Rule) -> Result<(), String> {
    let mut adders = Adders::new();
    for (at, transaction) in history.iter().enumerate() {
        for op in &transaction.ops {
            if let Op::Add(key, element) | Op::Set(key, element) = op
                && let Some(other) = adders.entry(*key).or_default().insert(*element, at)
            {
                return Err(format!(
                    "both have added element {element} to key {key}: {:?}, {transaction:?}",
                    history[other]
                ));
            }
        }
    }
    let takes = Takes::of(history, &rule)?;
    let found = look_at_reads(history, &adders, &rule)?;
    // What nobody has ever found was not executed, if its reply was lost.
    let is_executed: Vec<bool> = history
        .iter()
        .map(|transaction| {
            let is_found =
                |op: &Op| matches!(op, Op::Add(key, e) | Op::Set(key, e) if found.all.contains(&(*key, *e)));
            transaction.ended.is_some() || transaction.ops.iter().any(is_found)
        })
        .collect();
    let mut graph = Graph { nodes: history.len(), edges: Vec::new() };
    let mut gets: BTreeMap<Key, Vec<(usize, Element)>> = BTreeMap::new();
    for (at, transaction) in history.iter().enumerate() {
        for op in &transaction.ops {
            if let Rule::Queue | Rule::Pool = rule(op.key()) {
                let adders = adders.get(&op.key());
                takes.add_op(&mut graph, history, adders, &is_executed, &found.chains, (at, op))?;
                continue;
            }
            let (key, look, found) = match op {
                Op::Add(..) | Op::Set(..) | Op::Take(..) | Op::Bring(..) => continue,
                Op::Read(key, found) => (key, None, found.iter().copied().collect::<BTreeSet<_>>()),
                Op::Look(key, element, is_there) => {
                    (key, Some(*element), is_there.then_some(*element).into_iter().collect())
                }
                Op::Get(key, found) => {
                    add_register(&mut graph, history, adders.get(key), &is_executed, at, *found);
                    if let Some(found) = found
                        && transaction.is_current
                    {
                        gets.entry(*key).or_default().push((at, *found));
                    }
                    continue;
                }
            };
            for (element, adder) in adders.get(key).into_iter().flatten() {
                if look.is_none_or(|look| look == *element) && is_executed[*adder] {
                    match found.contains(element) {
                        true => graph.add(*adder, at, Why::Found),
                        false => graph.add(at, *adder, Why::Missed),
                    }
                }
            }
        }
    }
    for (key, gets) in gets {
        add_changes(&mut graph, history, &adders[&key], gets);
    }
    for (key, order) in &found.orders {
        let known: Vec<usize> =
            order.iter().filter_map(|element| adders.get(key)?.get(element).copied()).collect();
        known.windows(2).for_each(|pair| graph.add(pair[0], pair[1], Why::Order));
    }
    for (key, chain) in found.chains.all() {
        for known in [&adders, &takes.takers] {
            let known: Vec<usize> =
                chain.iter().filter_map(|element| known.get(&key)?.get(element).copied()).collect();
            known.windows(2).for_each(|pair| graph.add(pair[0], pair[1], Why::Order));
        }
    }
    let mut last: HashMap<usize, usize> = HashMap::new();
    for at in (0..history.len()).filter(|at| is_executed[*at]) {
        if let Some(before) = last.insert(history[at].connection, at) {
            graph.add(before, at, Why::Connection);
        }
    }
    add_times(&mut graph, history);
    match graph.cycle() {
        None => Ok(()),
        Some(cycle) => Err(Told(history, &cycle).to_string()),
    }
}

/// Whether it is known at once that the one comes before the other one.
fn precedes(history: &[Transaction], one: usize, other: usize) -> bool {
    let (before, after) = (&history[one], &history[other]);
    let are_current = before.is_current && after.is_current;
    let is_earlier = are_current && before.ended.is_some_and(|ended| ended < after.began);
    is_earlier || before.connection == after.connection && one < other
}

/// Adds what it means that a transaction has found this value of a key.
fn add_register(
    graph: &mut Graph,
    history: &[Transaction],
    setters: Option<&BTreeMap<Element, usize>>,
    is_executed: &[bool],
    at: usize,
    found: Option<Element>,
) {
    let Some(setters) = setters else { return };
    let setter = found.map(|found| setters[&found]);
    if let Some(setter) = setter {
        graph.add(setter, at, Why::Found);
    }
    for other in setters.values().copied().filter(|other| is_executed[*other]) {
        match setter {
            Some(setter) if setter == other || at == other => {}
            Some(setter) if precedes(history, setter, other) => graph.add(at, other, Why::Missed),
            Some(setter) if precedes(history, other, at) => graph.add(other, setter, Why::Order),
            Some(_) => {}
            None => graph.add(at, other, Why::Missed),
        }
    }
}

/// Adds what it means that a value of a key was found after another one: it was set later, too.
fn add_changes(
    graph: &mut Graph,
    history: &[Transaction],
    setters: &BTreeMap<Element, usize>,
    mut gets: Vec<(usize, Element)>,
) {
    gets.sort_unstable_by_key(|(at, _)| history[*at].ended);
    for (at, found) in &gets {
        let earlier = gets.partition_point(|(other, _)| history[*other].ended < Some(history[*at].began));
        if let Some((_, before)) = gets[..earlier].last() {
            graph.add(setters[before], setters[found], Why::Order);
        }
    }
}

/// What reads say of the keys.
struct Found {
    all: BTreeSet<(Key, Element)>,
    /// Of each key that has one, the longest.
    orders: BTreeMap<Key, Vec<Element>>,
    chains: Chains,
}

/// Elements of a key that somebody has added whose reply was lost.
#[derive(Default)]
struct Brought {
    times: usize,
    found: BTreeSet<Element>,
}

impl Brought {
    /// Whether this may be one of them, besides those that were found so far.
    fn may_be(&mut self, element: Element) -> bool {
        self.found.insert(element);
        self.found.len() <= self.times
    }
}

/// Checks what each read tells by itself.
fn look_at_reads(
    history: &[Transaction],
    adders: &Adders,
    rule: impl Fn(Key) -> Rule,
) -> Result<Found, String> {
    let mut found = Found { all: BTreeSet::new(), orders: BTreeMap::new(), chains: Chains::default() };
    let mut brought: BTreeMap<Key, Brought> = BTreeMap::new();
    for op in history.iter().flat_map(|transaction| &transaction.ops) {
        if let Op::Bring(key) = op {
            brought.entry(*key).or_default().times += 1;
        }
    }
    for (at, transaction) in history.iter().enumerate() {
        // What it has added so far, or what it has set last.
        let mut own: BTreeMap<Key, Vec<Element>> = BTreeMap::new();
        let mut taken: BTreeSet<(Key, Element)> = BTreeSet::new();
        for op in &transaction.ops {
            let (key, there) = match op {
                Op::Add(key, element) => {
                    own.entry(*key).or_default().push(*element);
                    continue;
                }
                Op::Set(key, element) => {
                    own.insert(*key, vec![*element]);
                    continue;
                }
                Op::Take(_, None) if transaction.ended.is_none() => continue,
                Op::Bring(_) => continue,
                Op::Read(key, there) => (*key, there.clone()),
                Op::Look(key, element, is_there) => {
                    (*key, is_there.then_some(*element).into_iter().collect())
                }
                Op::Get(key, there) | Op::Take(key, there) => (*key, there.iter().copied().collect()),
            };
            if there.iter().any(|element| taken.contains(&(key, *element))) {
                return Err(format!("{transaction:?} finds what it has taken"));
            }
            let own = own.entry(key).or_default();
            let expects = |element: &Element| match op {
                Op::Look(_, looked, _) => looked == element,
                Op::Take(_, taken) => taken.is_none(),
                _ => true,
            };
            if own.iter().any(|element| expects(element) && !there.contains(element)) {
                return Err(format!("{transaction:?} does not find what it has added"));
            }
            for element in &there {
                match adders.get(&key).and_then(|adders| adders.get(element)) {
                    None if rule(key) == Rule::Counted => {}
                    None if brought.get_mut(&key).is_some_and(|brought| brought.may_be(*element)) => {}
                    None => return Err(format!("nobody has added what {transaction:?} finds")),
                    Some(adder) if *adder == at && !own.contains(element) => {
                        return Err(format!("{transaction:?} finds what it adds later"));
                    }
                    Some(adder) if *adder != at && is_replaced_at_once(&history[*adder], key, *element) => {
                        return Err(format!(
                            "{transaction:?} finds what was never there: {:?}",
                            history[*adder]
                        ));
                    }
                    Some(_) => drop(found.all.insert((key, *element))),
                }
            }
            if let Op::Take(_, Some(element)) = op {
                own.retain(|own| own != element);
                taken.insert((key, *element));
            }
            if let Op::Read(..) = op {
                if there.iter().collect::<BTreeSet<_>>().len() < there.len() {
                    return Err(format!("{transaction:?} finds an element twice"));
                }
                if rule(key) == Rule::Queue && !found.chains.add(key, &there) {
                    return Err(format!(
                        "something comes between elements of key {key}, and {transaction:?}"
                    ));
                }
                if let Rule::Ordered | Rule::Counted = rule(key) {
                    let order = found.orders.entry(key).or_default();
                    let common = order.len().min(there.len());
                    if order[..common] != there[..common] {
                        return Err(format!("key {key} was {order:?}, and {transaction:?}"));
                    }
                    if there.len() > order.len() {
                        *order = there;
                    }
                }
            }
        }
    }
    found.chains.number();
    Ok(found)
}

/// Whether a transaction sets another value of the key after this one.
fn is_replaced_at_once(transaction: &Transaction, key: Key, element: Element) -> bool {
    let mut set = transaction.ops.iter().filter_map(|op| match op {
        Op::Set(of, element) if *of == key => Some(*element),
        _ => None,
    });
    set.next_back().is_some_and(|last| last != element)
}

/// Adds a node for each end, after which comes what begins later.
fn add_times(graph: &mut Graph, history: &[Transaction]) {
    let current = || history.iter().enumerate().filter(|(_, transaction)| transaction.is_current);
    let begins = current().map(|(at, transaction)| (transaction.began, false, at));
    let ended = |(at, transaction): (usize, &Transaction)| transaction.ended.map(|ended| (ended, true, at));
    let mut events: Vec<(Duration, bool, usize)> = begins.chain(current().filter_map(ended)).collect();
    // What begins at the moment when another one ends does not come after it.
    events.sort_unstable();
    let mut moment = None;
    for (_, is_end, at) in events {
        if !is_end {
            moment.into_iter().for_each(|moment| graph.add(moment, at, Why::Time));
            continue;
        }
        let next = graph.nodes;
        graph.nodes += 1;
        moment.into_iter().for_each(|moment| graph.add(moment, next, Why::Time));
        graph.add(at, next, Why::Time);
        moment = Some(next);
    }
}

/// A cycle, to be read.
struct Told<'h>(&'h [Transaction], &'h [(u32, Why)]);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "no order of the transactions explains what they found. Each of these comes before the next, and the last before the first:"
        )?;
        for (node, why) in self.1 {
            // Moments in between say nothing.
            if let Some(transaction) = self.0.get(*node as usize) {
                writeln!(f, "{transaction:?}\n    {why:?}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Op::*, *};

    /// Transactions of a connection each, from one time to another.
    fn history(transactions: &[(u64, u64, &[Op])]) -> Vec<Transaction> {
        let all = transactions.iter().enumerate();
        all.map(|(connection, (began, ended, ops))| Transaction {
            began: Duration::from_secs(*began),
            ended: (*ended > 0).then(|| Duration::from_secs(*ended)),
            connection,
            is_current: true,
            ops: ops.to_vec(),
        })
        .collect()
    }

    /// Key 0 is ordered, 9 counts, 7 is a queue, 8 and 18 are pools, others are not ordered.
    fn rule(key: Key) -> Rule {
        match key {
            0 => Rule::Ordered,
            7 => Rule::Queue,
            8 | 18 => Rule::Pool,
            9 => Rule::Counted,
            _ => Rule::Unordered,
        }
    }

    /// What stands against an order.
    fn told(transactions: &[(u64, u64, &[Op])]) -> String {
        check(&history(transactions), rule).err().unwrap_or_default()
    }

    #[test]
    fn what_has_an_order_is_told_to_have_one() {
        assert_eq!(told(&[]), "");
        // Those that overlap may be in any order.
        let (add, none, found) = (&[Add(0, 1)][..], &[Read(0, vec![])][..], &[Read(0, vec![1])][..]);
        assert_eq!(told(&[(1, 5, add), (2, 3, none), (2, 4, found)]), "");
        assert_eq!(told(&[(1, 5, add), (2, 3, found), (4, 6, found)]), "");
        // What was not answered may be executed at any time, or never.
        assert_eq!(told(&[(1, 0, add), (2, 3, none), (4, 5, found)]), "");
        assert_eq!(told(&[(1, 0, add), (2, 3, none)]), "");
        assert_eq!(
            told(&[(1, 2, &[Read(0, vec![]), Add(0, 1), Read(0, vec![1]), Add(0, 2), Look(0, 2, true)])]),
            ""
        );
    }

    #[test]
    fn what_has_no_order_is_told() {
        let (add, none, found) = (&[Add(0, 1)][..], &[Read(0, vec![])][..], &[Read(0, vec![1])][..]);
        let no_order = |transactions: &[(u64, u64, &[Op])]| {
            let told = told(transactions);
            assert!(told.starts_with("no order"), "{transactions:?}: {told}");
        };
        // It was lost, or comes late; or it comes and goes.
        no_order(&[(1, 2, add), (3, 4, none)]);
        no_order(&[(1, 5, add), (2, 3, found), (4, 6, none)]);
        // It is seen before it was sent.
        no_order(&[(3, 4, add), (1, 2, found)]);
        // Half of a transaction is seen, or the one without the other in two ways.
        let (both, half) = (&[Add(0, 1), Add(1, 1)][..], &[Read(0, vec![1]), Read(1, vec![])][..]);
        no_order(&[(1, 5, both), (2, 3, half)]);
        no_order(&[(1, 0, both), (2, 3, half)]);
        let (a, b) = (&[Add(1, 1)][..], &[Add(2, 1)][..]);
        let (only_a, only_b) =
            (&[Read(1, vec![1]), Look(2, 1, false)][..], &[Look(1, 1, false), Read(2, vec![1])][..]);
        no_order(&[(1, 9, a), (1, 9, b), (2, 8, only_a), (2, 8, only_b)]);
        // Each has not seen what the other one adds.
        no_order(&[(1, 9, &[Read(1, vec![]), Add(2, 1)]), (1, 9, &[Read(2, vec![]), Add(1, 1)])]);
        // Two orders of the same.
        no_order(&[(1, 2, add), (3, 4, &[Add(0, 2)]), (5, 6, &[Read(0, vec![2, 1])])]);
        // Of one connection, though they were sent together.
        let mut pipeline = history(&[(1, 9, add), (1, 9, none)]);
        pipeline[1].connection = 0;
        assert!(check(&pipeline, rule).is_err());
        // What need not be current may be out of date, but not of two moments.
        let mut copy = history(&[(1, 2, both), (3, 4, none), (5, 6, half)]);
        copy[1].is_current = false;
        copy[2].is_current = false;
        assert!(check(&copy[..2], rule).is_ok());
        assert!(check(&copy, rule).is_err());
        // Who counts knows who has counted before.
        no_order(&[(1, 2, &[Add(9, 2)]), (3, 4, &[Add(9, 1)]), (5, 6, &[Read(9, vec![1, 2])])]);
        // A value is found again, or too late, or half of what was set is.
        let (set, again) = (&[Set(3, 1)][..], &[Set(3, 2)][..]);
        let (none, first, second) = (&[Get(3, None)][..], &[Get(3, Some(1))][..], &[Get(3, Some(2))][..]);
        no_order(&[(1, 2, set), (3, 4, again), (5, 6, first)]);
        no_order(&[(1, 9, set), (1, 9, again), (2, 3, second), (4, 5, first), (6, 7, second)]);
        no_order(&[(1, 2, set), (3, 4, none)]);
        no_order(&[(1, 2, first), (3, 4, set)]);
        no_order(&[(1, 9, &[Set(3, 1), Set(4, 1)]), (2, 3, &[Get(3, Some(1)), Get(4, None)])]);
        // Both have found what the one has replaced.
        let (one, other) = (&[Get(3, Some(1)), Set(3, 2)][..], &[Get(3, Some(1)), Set(3, 3)][..]);
        no_order(&[(1, 2, set), (3, 9, one), (3, 9, other), (10, 11, second)]);
    }

    #[test]
    fn what_is_taken_has_an_order() {
        let (add, take, lost) = (&[Add(8, 1)][..], &[Take(8, Some(1))][..], &[Take(8, None)][..]);
        let (none, found) = (&[Read(8, vec![])][..], &[Read(8, vec![1])][..]);
        assert_eq!(told(&[(1, 2, none), (3, 4, add), (5, 6, found), (7, 8, take), (9, 10, none)]), "");
        assert_eq!(told(&[(1, 9, none), (1, 9, add), (1, 9, found), (1, 9, take), (1, 9, lost)]), "");
        assert_eq!(told(&[(1, 2, &[Add(8, 1), Take(8, Some(1)), Take(8, None), Look(8, 1, false)])]), "");
        // Who has not answered may have taken it, once.
        assert_eq!(told(&[(1, 2, add), (1, 0, lost), (3, 4, none)]), "");
        let (twice, missing) = (&[Add(8, 1), Add(8, 2)][..], "nobody has taken [1, 2] of key 8, 1 replies");
        assert!(told(&[(1, 2, twice), (1, 0, lost), (3, 4, none)]).starts_with(missing));
        assert!(told(&[(1, 2, add), (1, 0, lost), (3, 4, none), (5, 6, found)]).starts_with("no order"));
        assert!(told(&[(1, 2, add), (3, 4, none), (5, 0, lost)]).starts_with("nobody has taken [1]"));
        assert!(told(&[(1, 2, add), (3, 4, none)]).starts_with("nobody has taken [1]"));
        assert!(told(&[(1, 2, add), (3, 4, take), (5, 6, take)]).starts_with("both have taken"));
        assert!(told(&[(1, 2, take)]).starts_with("nobody has added"));
        assert!(told(&[(1, 2, &[Add(8, 1), Take(8, Some(1)), Read(8, vec![1])])]).contains("has taken"));
        assert!(told(&[(1, 2, &[Add(8, 1), Take(8, None)])]).contains("does not find"));
        // It is found too late or too early, or not found in between.
        let no_order = |transactions: &[(u64, u64, &[Op])]| {
            let told = told(transactions);
            assert!(told.starts_with("no order"), "{transactions:?}: {told}");
        };
        no_order(&[(1, 2, add), (3, 4, take), (5, 6, found)]);
        no_order(&[(1, 2, add), (3, 4, none), (5, 6, take)]);
        no_order(&[(3, 4, add), (1, 2, take)]);
        no_order(&[(1, 9, add), (1, 2, found), (3, 4, none), (5, 6, take)]);
        no_order(&[(1, 2, add), (3, 4, &[Look(8, 1, false)]), (5, 6, take)]);
    }

    #[test]
    fn what_is_moved_has_an_order() {
        let add = &[Add(8, 1)][..];
        let moved = &[Take(8, Some(1)), Add(18, 1)][..];
        let (before, after) = ([Read(8, vec![1]), Read(18, vec![])], [Read(8, vec![]), Read(18, vec![1])]);
        assert_eq!(told(&[(1, 2, add), (3, 4, &before), (5, 6, moved), (7, 8, &after)]), "");
        // It is at neither place, or at both.
        let both = [Read(8, vec![1]), Read(18, vec![1])];
        let neither = [Read(8, vec![]), Read(18, vec![])];
        for found in [both, neither] {
            assert!(told(&[(1, 2, add), (3, 6, moved), (4, 5, &found)]).starts_with("no order"));
        }
        // If it is not known whether it was, nor what, it may be at the one place or the other.
        let lost = &[Take(8, None), Bring(18)][..];
        for found in [&before, &after] {
            assert_eq!(told(&[(1, 2, add), (3, 0, lost), (4, 5, found)]), "");
        }
        assert!(told(&[(1, 2, add), (4, 5, &after)]).starts_with("nobody has added"));
        let two = [Read(18, vec![1, 2])];
        assert!(told(&[(1, 2, add), (3, 0, lost), (4, 5, &two)]).starts_with("nobody has added"));
    }

    #[test]
    fn what_is_taken_of_a_queue_is_the_first() {
        let add = |element| [Add(7, element)];
        let take = |element| [Take(7, Some(element))];
        let read = |found: &[Element]| [Read(7, found.to_vec())];
        let all = [add(1), add(2), add(3)].concat();
        assert_eq!(
            told(&[(1, 2, &all), (3, 4, &take(1)), (5, 6, &read(&[2, 3])), (1, 0, &[Take(7, None)])]),
            ""
        );
        let comes_between = told(&[(1, 9, &all), (1, 9, &read(&[1, 2])), (1, 9, &read(&[1, 3]))]);
        assert!(comes_between.starts_with("something comes between"));
        let no_order = |transactions: &[(u64, u64, &[Op])]| {
            let told = told(transactions);
            assert!(told.starts_with("no order"), "{transactions:?}: {told}");
        };
        // By the order in which they were found at any time.
        no_order(&[(1, 2, &all), (3, 4, &read(&[1, 2, 3])), (5, 6, &take(2)), (7, 8, &take(1))]);
        no_order(&[
            (1, 9, &add(1)),
            (1, 9, &add(2)),
            (1, 9, &read(&[1, 2])),
            (1, 9, &read(&[2])),
            (10, 11, &take(1)),
        ]);
        no_order(&[(1, 2, &add(2)), (3, 4, &add(1)), (5, 6, &read(&[1, 2]))]);
        // The last one is gone though the first is there.
        assert!(told(&[(1, 2, &all), (3, 9, &read(&[1, 2]))]).starts_with("nobody has taken [3]"));
    }

    #[test]
    fn what_a_read_cannot_find_is_told() {
        assert!(told(&[(1, 2, &[Read(0, vec![7])])]).starts_with("nobody has added"));
        assert!(told(&[(1, 2, &[Read(0, vec![1]), Add(0, 1)])]).contains("adds later"));
        assert!(told(&[(1, 2, &[Add(0, 1), Read(0, vec![])])]).contains("does not find"));
        assert!(told(&[(1, 2, &[Add(1, 1), Look(1, 1, false)])]).contains("does not find"));
        assert!(told(&[(1, 2, &[Add(0, 1)]), (1, 9, &[Read(0, vec![1, 1])])]).contains("twice"));
        let (adds, one, other) =
            (&[Add(0, 1), Add(0, 2)][..], &[Read(0, vec![1])][..], &[Read(0, vec![2])][..]);
        assert!(told(&[(1, 9, adds), (1, 9, one), (1, 9, other)]).starts_with("key 0 was [1]"));
        assert!(told(&[(1, 2, &[Add(0, 1), Add(0, 1)])]).starts_with("both"));
        assert!(told(&[(1, 9, &[Set(3, 1), Set(3, 2)]), (1, 9, &[Get(3, Some(1))])]).contains("never there"));
        assert!(told(&[(1, 2, &[Set(3, 1), Set(3, 2), Get(3, Some(1))])]).contains("does not find"));
    }
}
