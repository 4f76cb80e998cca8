//! Unions, intersections and differences of sorted sets. Plain sets take part too: their members have score 1.

use super::{set::Set, zset::Zset};
use crate::{
    collections::{Context, absent::Finder, uses::Use},
    format::entry_word::Type,
    txn::{
        Txn,
        error::{Error, Result},
        frozen::Located,
    },
};
use holdfast_heap::{AbsentPage, Arena};
use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
};

/// One of the sets, and what its scores are multiplied by.
#[derive(Clone, Copy, Debug)]
pub struct Input<'k> {
    /// Its key; without a value it is an empty set.
    pub key: &'k [u8],
    /// The factor.
    pub weight: f64,
}

/// What becomes of the scores of a member that is in several sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregate {
    /// Their sum; of opposite infinities, 0.
    #[default]
    Sum,
    /// The lowest.
    Min,
    /// The highest.
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Aggregate::Sum => number(a + b),
            Aggregate::Min => a.min(b),
            Aggregate::Max => a.max(b),
        }
    }
}

/// What is stored of a score: no NaN, and one zero.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score + 0.0 }
}

/// Members with their scores, in the order of a sorted set.
pub type Members = Vec<(Vec<u8>, f64)>;

/// An input that has been found.
enum Operand<'t> {
    Zset(Zset<'t>, f64),
    Set(Set<'t>, f64),
}

impl Operand<'_> {
    fn len(&self) -> u64 {
        match self {
            Operand::Zset(zset, _) => zset.len(),
            Operand::Set(set, _) => set.len(),
        }
    }

    /// Where its object is.
    fn object(&self) -> (&Arena, Context<'_>, u64) {
        match self {
            Operand::Zset(zset, _) => (zset.arena, zset.context, zset.obj),
            Operand::Set(set, _) => (set.arena, set.context, set.obj),
        }
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Operand::Zset(zset, weight) => zset.score(member).map(|score| number(score * weight)),
            Operand::Set(set, weight) => set.contains(member).then_some(*weight),
        }
    }

    /// Shows members to `each` until it breaks off.
    fn visit(&self, mut each: impl FnMut(&[u8], f64) -> ControlFlow<()>) {
        let _ = match self {
            Operand::Zset(zset, weight) => zset
                .iter(0..u64::MAX, false)
                .try_for_each(|(member, score)| each(member, number(score * weight))),
            Operand::Set(set, weight) => set.members().try_for_each(|member| each(&member, *weight)),
        };
    }
}

/// See [`Txn::absent_to_combine`].
fn absent_of(operands: Vec<Option<Operand>>, wanted: Use, pages_max: usize) -> BTreeSet<AbsentPage> {
    let is_none = |operand: &Option<Operand>| operand.is_none();
    let mut present = match wanted {
        Use::Common if operands.iter().any(is_none) => return BTreeSet::new(),
        _ if operands.first().is_none_or(is_none) => return BTreeSet::new(),
        _ => operands.into_iter().flatten().collect::<Vec<_>>(),
    };
    if matches!(wanted, Use::Common) {
        present.sort_by_key(Operand::len);
    }
    let (first, others) = present.split_first().expect("the first is there");
    let (arena, context, obj) = first.object();
    let finder = Finder::new(arena, false, pages_max);
    finder.find(context, obj, &[Use::All]);
    let mut pages = finder.into_pages();
    if !pages.is_empty() {
        return pages;
    }
    for other in others {
        let (arena, context, obj) = other.object();
        let finder = Finder::new(arena, false, pages_max - pages.len());
        first.visit(|member, _| {
            finder.find(context, obj, &[Use::Element(member)]);
            if finder.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        pages.append(&mut finder.into_pages());
    }
    pages
}

fn sorted(mut members: Members) -> Members {
    members.sort_unstable_by(|a, b| a.1.partial_cmp(&b.1).expect("a number").then_with(|| a.0.cmp(&b.0)));
    members
}

impl Txn<'_> {
    fn operands(&mut self, db: u8, inputs: &[Input]) -> Result<Vec<Option<Operand<'_>>>> {
        // Only once all are found, because looking for one may remove it.
        let mut found = Vec::with_capacity(inputs.len());
        for input in inputs {
            found.push(match self.type_of(db, input.key) {
                None => None,
                Some(ty @ (Type::Set | Type::Zset)) => self.object(db, input.key, ty)?.map(|obj| (ty, obj)),
                Some(_) => return Err(Error::WrongType),
            });
        }
        let operand = |(input, found): (&Input, Option<(Type, Located)>)| {
            let (ty, obj) = found?;
            Some(match ty {
                Type::Set => Operand::Set(self.set_of(input.key, obj), input.weight),
                _ => Operand::Zset(self.zset_of(input.key, obj), input.weight),
            })
        };
        Ok(inputs.iter().zip(found).map(operand).collect())
    }

    /// The pages that are not in memory, and so many at most, of what [`Use::Common`] or [`Use::Rest`] of the sets at these keys are found by.
    /// Their headers must be in memory.
    pub(crate) fn absent_to_combine(
        &mut self,
        db: u8,
        keys: &[&[u8]],
        wanted: Use,
        pages_max: usize,
    ) -> BTreeSet<AbsentPage> {
        let inputs: Vec<Input> = keys.iter().map(|&key| Input { key, weight: 1.0 }).collect();
        let found = |txn: &mut Self| {
            let operands = txn.operands(db, &inputs)?;
            Ok::<_, Error>(absent_of(operands, wanted, pages_max))
        };
        // What is of another type, or not in memory, the command meets.
        self.look(found).unwrap_or_default()
    }

    /// Shows the members that all sets have to `each` until it breaks off.
    fn visit_common(
        &mut self,
        db: u8,
        inputs: &[Input],
        aggregate: Aggregate,
        mut each: impl FnMut(&[u8], f64) -> ControlFlow<()>,
    ) -> Result<()> {
        let operands = self.operands(db, inputs)?;
        let Some(mut operands) = operands.into_iter().collect::<Option<Vec<_>>>() else { return Ok(()) };
        operands.sort_by_key(Operand::len);
        let Some((first, others)) = operands.split_first() else { return Ok(()) };
        first.visit(|member, score| {
            let all = others
                .iter()
                .try_fold(score, |score, other| other.score(member).map(|more| aggregate.of(score, more)));
            all.map_or(ControlFlow::Continue(()), |score| each(member, score))
        });
        Ok(())
    }

    /// The members of all sets.
    pub fn zset_union(&mut self, db: u8, inputs: &[Input], aggregate: Aggregate) -> Result<Members> {
        let mut operands: Vec<Operand> = self.operands(db, inputs)?.into_iter().flatten().collect();
        // Redis adds up scores in this order.
        operands.sort_by_key(Operand::len);
        let mut union: HashMap<Vec<u8>, f64> = HashMap::new();
        for operand in &operands {
            operand.visit(|member, score| {
                match union.get_mut(member) {
                    Some(sum) => *sum = aggregate.of(*sum, score),
                    None => drop(union.insert(member.to_vec(), score)),
                }
                ControlFlow::Continue(())
            });
        }
        Ok(sorted(union.into_iter().collect()))
    }

    /// The members that all sets have.
    pub fn zset_intersection(&mut self, db: u8, inputs: &[Input], aggregate: Aggregate) -> Result<Members> {
        let mut members = Vec::new();
        self.visit_common(db, inputs, aggregate, |member, score| {
            members.push((member.to_vec(), score));
            ControlFlow::Continue(())
        })?;
        Ok(sorted(members))
    }

    /// How many members all sets have; it stops counting at `limit`, unless that is 0.
    pub fn zset_intersection_len(&mut self, db: u8, inputs: &[Input], limit: u64) -> Result<u64> {
        let mut count = 0;
        self.visit_common(db, inputs, Aggregate::Sum, |_, _| {
            count += 1;
            if count == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(count)
    }

    /// The members of the first set that no other has, with their scores there.
    pub fn zset_difference(&mut self, db: u8, inputs: &[Input]) -> Result<Members> {
        let mut operands = self.operands(db, inputs)?.into_iter();
        let Some(first) = operands.next().flatten() else { return Ok(Vec::new()) };
        let others: Vec<Operand> = operands.flatten().collect();
        let mut members = Vec::new();
        first.visit(|member, score| {
            if others.iter().all(|other| other.score(member).is_none()) {
                members.push((member.to_vec(), score));
            }
            ControlFlow::Continue(())
        });
        Ok(sorted(members))
    }
}
