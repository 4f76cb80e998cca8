use super::*;
use crate::collections::{
    Context, Hasher, Limits, any,
    testing::{self as bench, Random},
};

fn add(arena: &mut Arena, tx: &mut Tx, cx: Context, obj: u64, id: Id, value: &[u8]) -> Result<(), Full> {
    let mut writer = Writer::new(arena, tx, obj, cx);
    writer.add(id, [(&b"name"[..], value)].into_iter()).map(|added| added.expect("an ID that is greater"))
}

#[test]
fn an_entry_costs_little_more_than_its_values() {
    let (hasher, limits) = (Hasher::new([1, 2]), Limits::default());
    let cx = bench::context(&hasher, &limits);
    let (mut arena, mut tx) = (bench::arena(16 << 20), Tx::new());
    let obj = create(&mut arena, &mut tx, b"stream").unwrap();
    let (mut redo, value) = (0, [7; 20]);
    for i in 1..=10_000 {
        add(&mut arena, &mut tx, cx, obj, Id::new(1_700_000_000_000 + i, 0), &value).unwrap();
        redo += tx.buf.len();
        tx.clear();
    }
    let bytes = any::heap_bytes(&arena, obj);
    assert!(bytes < 10_000 * 32, "{bytes} bytes");
    assert!(redo < 10_000 * 130, "{redo} bytes of redo");
    assert_eq!(Stream::new(&arena, obj).nodes().0, 100);
}

#[test]
fn without_room_nothing_changes() {
    let (hasher, limits) = (Hasher::new([1, 2]), Limits::default());
    let cx = bench::context(&hasher, &limits);
    let (mut arena, mut tx) = (bench::arena(2 << 20), Tx::new());
    let mut random = Random::new(1);
    let empty = arena.allocated_bytes();
    let obj = create(&mut arena, &mut tx, b"stream").unwrap();
    let mut writer = Writer::new(&mut arena, &mut tx, obj, cx);
    writer.add_group(b"group", Id::MIN, Some(0)).unwrap();
    let content = |arena: &Arena| {
        let mut content = Vec::new();
        serial::export(arena, obj, &mut content);
        content
    };
    let mut full = 0;
    for i in 1.. {
        let before = (content(&arena), arena.allocated_bytes());
        let id = Id::new(1, i);
        let failed = if random.below(2) == 0 {
            add(&mut arena, &mut tx, cx, obj, id, &[1; 9000]).is_err()
        } else {
            let mut writer = Writer::new(&mut arena, &mut tx, obj, cx);
            let group = writer.group(b"group").unwrap();
            let name = vec![b'n'; random.below(30_000) as usize];
            match writer.consumer(group, &name) {
                Err(Full) => true,
                Ok((consumer, _)) => {
                    let before = (content(&arena), arena.allocated_bytes());
                    let ids: Vec<Id> = (1..=i).map(|seq| Id::new(1, seq)).collect();
                    let mut writer = Writer::new(&mut arena, &mut tx, obj, cx);
                    let failed = writer.deliver(group, consumer, &ids, false).is_err();
                    if failed {
                        assert_eq!(content(&arena), before.0);
                    }
                    tx.clear();
                    full += u64::from(failed);
                    if full > 10 {
                        break;
                    }
                    continue;
                }
            }
        };
        tx.clear();
        if failed {
            assert!((content(&arena), arena.allocated_bytes()) == before);
            full += 1;
        }
        if full > 10 {
            break;
        }
    }
    check(&arena, obj).unwrap();
    bench::destroy(&mut arena, &mut tx, obj);
    assert_eq!(arena.allocated_bytes(), empty);
}

#[test]
fn a_leaf_goes_with_its_last_entry() {
    let (hasher, limits) = (Hasher::new([1, 2]), Limits { stream_node_max_entries: 3, ..Limits::default() });
    let cx = bench::context(&hasher, &limits);
    let (mut arena, mut tx) = (bench::arena(4 << 20), Tx::new());
    let obj = create(&mut arena, &mut tx, b"stream").unwrap();
    for i in 1..=9 {
        add(&mut arena, &mut tx, cx, obj, Id::new(i, 0), b"value").unwrap();
    }
    for (id, leaves) in [(5, 3), (4, 3), (6, 2), (9, 2), (1, 2), (2, 2), (3, 1)] {
        assert!(Writer::new(&mut arena, &mut tx, obj, cx).delete(Id::new(id, 0)));
        assert_eq!(Stream::new(&arena, obj).nodes().0, leaves, "{id}");
        check(&arena, obj).unwrap();
    }
    // What is left of the last leaf, in which a deleted entry follows the others, is below the ID; but not the whole leaf.
    let mut writer = Writer::new(&mut arena, &mut tx, obj, cx);
    let trim = Trim { to: TrimTo::Id(Id::new(9, 0)), whole_leaves: true, limit: 0 };
    assert_eq!(writer.trim(&trim), 0);
    assert_eq!(writer.trim(&Trim { whole_leaves: false, ..trim }), 2);
    assert_eq!(Stream::new(&arena, obj).nodes(), (0, 0));
    assert_eq!(Stream::new(&arena, obj).last_id(), Id::new(9, 0));
}
