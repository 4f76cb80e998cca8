//! Stores that touch the same line are made as one, so that it is written back once.

use std::borrow::Cow;

use holdfast_io::{LINE, Result};

use super::{Place, Store};

/// Puts stores together that share lines and lie between the same fences. `load` reads what is between them, which nobody else changes.
pub fn merge<'r>(
    stores: Vec<Store<'r>>,
    mut load: impl FnMut(Place, &mut [u8]) -> Result<()>,
) -> Result<Vec<Store<'r>>> {
    if stores.len() < 2 {
        return Ok(stores);
    }
    let (mut merged, mut pages) = (Vec::with_capacity(stores.len()), Vec::with_capacity(stores.len()));
    for (number, store) in stores.into_iter().enumerate() {
        match store.place {
            Place::Page(offset) => pages.push((offset, number, store)),
            // The words beside that of an extent may be another transaction's.
            Place::Owner(_) => merged.push(store),
        }
    }
    pages.sort_unstable_by_key(|&(offset, number, _)| (offset, number));
    let line = LINE as u64;
    let mut pages = pages.into_iter().peekable();
    while let Some((start, number, store)) = pages.next() {
        let mut end = start + store.bytes.len() as u64;
        let shares = |offset: u64, end: u64| offset / line < end.div_ceil(line);
        if pages.peek().is_none_or(|&(offset, ..)| !shares(offset, end)) {
            merged.push(store);
            continue;
        }
        let (mut group, mut has_gaps) = (vec![(start, number, store)], false);
        while let Some(next) = pages.next_if(|&(offset, ..)| shares(offset, end)) {
            has_gaps |= next.0 > end;
            end = end.max(next.0 + next.2.bytes.len() as u64);
            group.push(next);
        }
        let mut bytes = vec![0; (end - start) as usize];
        if has_gaps {
            load(Place::Page(start), &mut bytes)?;
        }
        // The last one of a place stays.
        group.sort_unstable_by_key(|&(_, number, _)| number);
        for (offset, _, store) in &group {
            bytes[(offset - start) as usize..][..store.bytes.len()].copy_from_slice(&store.bytes);
        }
        merged.push(Store { place: Place::Page(start), bytes: Cow::Owned(bytes) });
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes, and the offset that they go to.
    type Bytes<'b> = (u64, &'b [u8]);

    /// What some stores leave in memory that was 9 all over, and the places that they go to once they are merged.
    fn left(stores: &[Bytes]) -> (Vec<u8>, Vec<u64>) {
        let memory = vec![9; 512];
        let stores =
            stores.iter().map(|&(offset, bytes)| Store { place: Place::Page(offset), bytes: bytes.into() });
        let load = |place, bytes: &mut [u8]| {
            let Place::Page(at) = place else { panic!("of pages only") };
            bytes.copy_from_slice(&memory[at as usize..][..bytes.len()]);
            Ok(())
        };
        let merged = merge(stores.collect(), load).unwrap();
        let (mut after, mut places) = (memory.clone(), Vec::new());
        for store in merged {
            let Place::Page(at) = store.place else { panic!("of pages only") };
            after[at as usize..][..store.bytes.len()].copy_from_slice(&store.bytes);
            places.push(at);
        }
        (after, places)
    }

    #[test]
    fn stores_that_share_a_line_are_one() {
        let cases: &[(&[Bytes], &[u64])] = &[
            (&[(100, &[1; 8])], &[100]),
            (&[(120, &[1; 4]), (66, &[2; 2])], &[66]),
            (&[(0, &[1; 64]), (64, &[2; 8])], &[0, 64]),
            (&[(60, &[1; 8]), (120, &[2; 4]), (130, &[3; 1])], &[60, 130]),
            (&[(70, &[1; 20]), (64, &[2; 10]), (80, &[3; 2]), (300, &[4; 3])], &[64, 300]),
            (&[(10, &[1; 200]), (50, &[2; 3]), (220, &[3; 1])], &[10]),
            (&[(64, &[1; 2]), (64, &[2; 1]), (64, &[])], &[64]),
        ];
        for (stores, places) in cases {
            let mut expected = vec![9; 512];
            for (at, bytes) in *stores {
                expected[*at as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            assert_eq!(left(stores), (expected, places.to_vec()), "{stores:?}");
        }
    }

    #[test]
    fn words_of_extents_stay_apart() {
        let store = |extent| Store { place: Place::Owner(extent), bytes: vec![1; 8].into() };
        let merged = merge(vec![store(1), store(2)], |_, _| panic!("nothing is read")).unwrap();
        assert_eq!(merged.len(), 2);
    }
}
