//! Random streams, for the tests of all collections.

use holdfast_heap::{Arena, Tx};

use super::{Group, Id, Stream, Trim, TrimTo, Writer, group};
use crate::collections::{Context, testing::Random};

const GROUPS: [&[u8]; 2] = [b"group", b"group of another name"];

fn name(random: &mut Random) -> Vec<u8> {
    format!("consumer {}", random.below(20)).into_bytes()
}

/// Adds an entry, or delivers some to a consumer.
pub fn grow(arena: &mut Arena, tx: &mut Tx, cx: Context, obj: u64, random: &mut Random) {
    let mut writer = Writer::new(arena, tx, obj, cx);
    let last = writer.stream().last_id();
    let group_name = GROUPS[random.below(2) as usize];
    if random.below(3) > 0 {
        let id = Id::new(last.ms + random.below(2), last.seq + 1 + random.below(3));
        let value = vec![b'v'; random.below(60) as usize];
        let own = random.below(9).to_string();
        let name = if random.below(4) == 0 { own.as_bytes() } else { b"usual name" };
        writer.add(id, [(name, &value[..]), (b"second", b"x")].into_iter()).unwrap().unwrap();
        return;
    }
    writer.add_group(group_name, Id::MIN, None).unwrap();
    let group = writer.group(group_name).unwrap();
    let from = Group::at(writer.stream(), group).last_id();
    let ids: Vec<Id> = writer.stream().range(from, Id::MAX, false).map(|entry| entry.id).take(5).collect();
    let (consumer, _) = writer.see(group, &name(random), true).unwrap();
    writer.deliver(group, consumer, &ids, random.below(4) == 0).unwrap();
}

/// Deletes or trims entries, acknowledges some, removes a consumer or a group.
pub fn shrink(arena: &mut Arena, tx: &mut Tx, cx: Context, obj: u64, random: &mut Random) {
    let stream = Stream::new(arena, obj);
    let len = stream.len();
    let from = Id::new(random.below(1 + stream.last_id().ms), 0);
    let ids: Vec<Id> = stream.range(from, Id::MAX, false).map(|entry| entry.id).take(20).collect();
    let group_name = GROUPS[random.below(2) as usize];
    let pending = stream.group(group_name).map(|group| group.pending(from).map(|p| p.id).take(20).collect());
    let pending: Vec<Id> = pending.unwrap_or_default();
    let mut writer = Writer::new(arena, tx, obj, cx);
    let choice = random.below(100);
    match writer.group(group_name) {
        _ if choice < 50 && !ids.is_empty() => {
            writer.delete(ids[random.below(ids.len() as u64) as usize]);
        }
        _ if choice < 53 => {
            let to = TrimTo::Len(random.below(1 + len));
            writer.trim(&Trim { to, whole_leaves: choice == 50, limit: 20 * u64::from(choice == 50) });
        }
        Some(group) if choice < 95 && !pending.is_empty() => {
            writer.acknowledge(group, pending[random.below(pending.len() as u64) as usize]);
        }
        Some(group) if choice < 99 => _ = writer.remove_consumer(group, &name(random)),
        Some(_) if choice == 99 => _ = writer.remove_group(group_name),
        _ => {}
    }
}

/// Fills a stream by so many steps.
pub fn fill(arena: &mut Arena, tx: &mut Tx, cx: Context, obj: u64, random: &mut Random, size: u64) {
    for _ in 0..size {
        grow(arena, tx, cx, obj, random);
        if random.below(5) == 0 {
            shrink(arena, tx, cx, obj, random);
        }
    }
    let first = Stream::new(arena, obj).groups().next().map(|group| group.at);
    if let Some(at) = first {
        group::set_position(arena, tx, at, Id::new(1, 1), Some(3));
    }
}
