//! What a command is going to use of a collection and is not in memory: found by the same descents that the command will make,
//! each of which stops at the first page that is absent.
//!
//! Which elements those are is a guess from the command's arguments. A wrong guess costs a read at most, and what is not guessed
//! is read when it is used, with the collection's partition locked.

use super::{
    Context, hash, list,
    object::{self, Type},
    packed::parse_int,
    set, zset,
};
use holdfast_heap::{AbsentPage, Arena};
use std::{convert::Infallible, ops::Range};

/// Elements of a command that are looked for, at most.
const ELEMENTS_MAX: usize = 256;

/// Whether all of a range is in memory.
///
/// # Errors
/// The first page that is not.
pub fn look(arena: &Arena, offset: u64, len: usize) -> Result<(), AbsentPage> {
    arena.absent(offset, len).map_or(Ok(()), Err)
}

/// Says that all of any range is in memory: to descend without a look.
///
/// # Errors
/// None.
#[inline(always)]
pub fn no_look(_: u64, _: usize) -> Result<(), Infallible> {
    Ok(())
}

/// Adds the pages to `pages` that a command which names these elements, or positions, will find absent first.
pub fn collect(arena: &Arena, cx: Context, obj: u64, elements: &[&[u8]], pages: &mut Vec<AbsentPage>) {
    let mut add = |looked: Result<(), AbsentPage>| match looked {
        Err(page) if !pages.contains(&page) => pages.push(page),
        _ => {}
    };
    let header = look(arena, obj, object::HEADER as usize);
    if header.is_err() {
        return add(header);
    }
    if object::is_packed(arena, obj) {
        return add(look(arena, arena.u64(obj + object::ROOT), 1));
    }
    let elements = &elements[..elements.len().min(ELEMENTS_MAX)];
    match object::ty(arena, obj) {
        Type::Hash => elements.iter().for_each(|name| add(hash::look(arena, cx, obj, name))),
        Type::Set => elements.iter().for_each(|member| add(set::look(arena, cx, obj, member))),
        Type::Zset => {
            elements.iter().for_each(|member| add(zset::look(arena, cx, obj, member)));
            if let Some(ranks) = positions(elements, object::count(arena, obj)) {
                add(zset::look_at_ranks(arena, obj, ranks));
            }
        }
        Type::List => {
            let len = object::count(arena, obj);
            let ends = [0, len.saturating_sub(1)];
            let named = positions(elements, len).map(|range| [range.start, range.end.saturating_sub(1)]);
            ends.into_iter()
                .chain(named.into_iter().flatten())
                .for_each(|at| add(list::look(arena, obj, at)));
        }
        Type::String | Type::Stream => {}
    }
}

/// The positions that the first two elements name, if they are numbers, or the first one alone; those below zero count from the
/// end.
fn positions(elements: &[&[u8]], len: u64) -> Option<Range<u64>> {
    let position = |element: &&[u8]| {
        let index = parse_int(element)?;
        Some(if index < 0 { index.saturating_add_unsigned(len).max(0) as u64 } else { index as u64 })
    };
    let first = position(elements.first()?)?;
    let last = elements.get(1).and_then(position).unwrap_or(first);
    Some(first..last.saturating_add(1))
}
