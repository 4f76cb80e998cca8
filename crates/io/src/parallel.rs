//! Work that waits for the medium item by item, done for many items at once.

use crate::{Error, Result};
use std::thread;

/// Calls `f` with each item and returns what it returned, in order. At most so many threads, called `name`, do it at once, each for items
/// that lie one behind another. What one would do alone is done by the caller's.
///
/// # Errors
/// The first that `f` returns, in the order of the items; or a thread cannot be started.
pub fn in_parallel<T: Send, R: Send>(
    name: &str,
    threads: usize,
    items: Vec<T>,
    f: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let share = items.len().div_ceil(threads.max(1));
    if share == items.len() {
        return items.into_iter().map(f).collect();
    }
    let (f, mut items) = (&f, items.into_iter());
    thread::scope(|scope| {
        let mut started = Vec::new();
        while items.len() > 0 {
            let some: Vec<T> = items.by_ref().take(share).collect();
            let each = move || some.into_iter().map(f).collect::<Result<Vec<R>>>();
            let spawned = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, each);
            started.push(spawned.map_err(|e| Error::io(format!("start the thread {name}"), e))?);
        }
        let mut done = Vec::new();
        for thread in started {
            done.extend(thread.join().expect("panics abort")?);
        }
        Ok(done)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn results_are_in_order_and_so_are_errors() {
        let here = thread::current().id();
        for threads in [0, 1, 2, 7, 8, 100, 1000] {
            for items in [0, 1, 2, 7, 100] {
                let double = |n: usize| Ok((2 * n, thread::current().id()));
                let done = in_parallel("test", threads, (0..items).collect(), double).expect("no error");
                assert!(done.iter().map(|(n, _)| *n).eq((0..items).map(|n| 2 * n)));
                let by: HashSet<_> = done.iter().map(|(_, thread)| *thread).collect();
                assert!(by.len() <= threads.max(1), "{} threads for {items}", by.len());
                assert_eq!(by.contains(&here), items == 1 || items > 0 && threads <= 1);
                let odd = |n: usize| match n % 2 {
                    0 => Ok(()),
                    _ => Err(Error::Unusable(format!("{n} is odd"))),
                };
                let error = in_parallel("test", threads, (0..items).collect(), odd).err();
                assert_eq!(error.map(|e| e.to_string().contains("1 is odd")), (items > 1).then_some(true));
            }
        }
    }
}
