//! Transactions that lock partitions as they meet keys, beside others that lock several at once: none waits for ever, and
//! each is atomic.

use holdfast_store::{Options, SimIo, Store, Txn};
use std::{sync::Arc, thread, time::Duration};

const KEYS: usize = 24;
const EACH: i64 = 1000;

fn store() -> Arc<Store> {
    let options =
        Options { partitions: 8, heap_bytes_max: 64 << 20, background: false, ..Options::default() };
    Arc::new(Store::open_on(Arc::new(SimIo::new(1)), options).unwrap())
}

fn key(number: usize) -> Vec<u8> {
    format!("account:{number}").into_bytes()
}

fn add(txn: &mut Txn, number: usize, amount: i64) {
    let key = key(number);
    let old: i64 = txn.get(0, &key).unwrap().map_or(0, |v| std::str::from_utf8(v).unwrap().parse().unwrap());
    txn.set(0, &key, (old + amount).to_string().as_bytes(), false).unwrap();
}

fn wait_for(mut done: impl FnMut() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

/// Moves between accounts in threads of three kinds; the sum stays.
#[test]
fn no_circle_of_waiting() {
    let store = store();
    for number in 0..KEYS {
        add(&mut store.begin_keys([key(number).as_slice()]), number, EACH);
    }
    let (done, all_done) = std::sync::mpsc::channel();
    for thread in 0..9usize {
        let (store, done) = (store.clone(), done.clone());
        thread::spawn(move || {
            let mut state = thread as u64 + 1;
            let mut draw = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % KEYS
            };
            for round in 0..400 {
                let accounts = [draw(), draw(), draw(), draw()];
                let mut txn = match thread % 3 {
                    0 => store.try_begin_growing(&[], true).unwrap(),
                    1 => store.try_begin_growing(&[store.partition_of(&key(accounts[0]))], true).unwrap(),
                    _ if round % 50 == 0 => store.begin_all(),
                    _ => {
                        let names = accounts.map(key);
                        store.begin_keys(names.iter().map(Vec::as_slice))
                    }
                };
                for (at, &account) in accounts.iter().enumerate() {
                    if thread % 3 < 2 {
                        wait_for(|| txn.try_include(&key(account)));
                    }
                    add(&mut txn, account, if at % 2 == 0 { 1 } else { -1 });
                    thread::yield_now();
                }
                if thread % 3 < 2 && round % 100 == 0 {
                    wait_for(|| txn.try_include_all());
                    assert_eq!(txn.len(0), KEYS as u64);
                }
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..9 {
        all_done.recv_timeout(Duration::from_secs(60)).expect("a thread waits for ever");
    }
    let mut txn = store.begin_all();
    let sum: i64 = (0..KEYS)
        .map(|n| std::str::from_utf8(txn.get(0, &key(n)).unwrap().unwrap()).unwrap().parse::<i64>().unwrap())
        .sum();
    assert_eq!(sum, KEYS as i64 * EACH);
}

#[test]
fn who_is_held_up_can_do_something_else() {
    let store = store();
    let (held, free) = (store.partition_of(&key(0)), store.partition_of(&key(1)));
    assert_ne!(held, free);
    let mut growing = store.try_begin_growing(&[held], true).unwrap();
    let (asked, answers) = std::sync::mpsc::channel();
    type Question = fn(&Store) -> bool;
    let questions: [Question; 7] = [
        |store| store.try_begin_keys([&key(0)[..]]).is_ok(),
        |store| store.try_begin_expected(&key(0), store.derive(&key(0)), 0).is_ok(),
        |store| store.try_begin_all().is_ok(),
        |store| store.try_begin_growing(&[store.partition_of(&key(0))], false).is_ok(),
        |store| store.try_begin_growing(&[], true).is_ok(),
        |store| store.try_len(0).is_ok(),
        |store| store.try_stats().is_ok(),
    ];
    for question in questions {
        let (store, asked) = (store.clone(), asked.clone());
        thread::spawn(move || asked.send(question(&store)).unwrap());
    }
    let wait = Duration::from_millis(100);
    assert!(answers.recv_timeout(wait).is_err(), "they wait");
    growing.hold_long();
    for _ in questions {
        assert!(!answers.recv_timeout(Duration::from_secs(60)).expect("it does not wait any more"));
    }
    // Others wait for nothing, other scripts included.
    assert!(store.try_begin(&[free]).is_ok());
    assert!(store.try_begin_growing(&[free], false).is_ok());
    drop(growing);
    assert!(questions.iter().all(|question| question(&store)));
}

/// A caller that has forgotten to name a key gets it all the same, and learns of its mistake; others that lock several
/// partitions in their order meanwhile give way.
#[test]
fn a_partition_that_was_forgotten_is_locked_late() {
    let store = store();
    for number in 0..KEYS {
        add(&mut store.begin_keys([key(number).as_slice()]), number, EACH);
    }
    let mut txn = store.begin_keys([key(0).as_slice(), &key(1)]);
    add(&mut txn, 1, 0);
    assert!(!txn.take_strayed());
    let other = (2..KEYS)
        .find(|&n| [0, 1].iter().all(|&m| store.partition_of(&key(n)) != store.partition_of(&key(m))));
    add(&mut txn, other.unwrap(), 0);
    assert!(txn.take_strayed() && !txn.take_strayed());
    drop(txn);

    thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..300 {
                    let accounts = [1, 7, 13, 19].map(|step| (thread + round * step) % KEYS);
                    let mut txn = match thread {
                        0 => store.begin_keys([key(accounts[3]).as_slice()]),
                        _ => store.begin_keys(accounts.map(key).iter().map(Vec::as_slice)),
                    };
                    for (number, amount) in accounts.into_iter().zip([-1, 2, -3, 2]) {
                        add(&mut txn, number, amount);
                    }
                    assert!(thread == 0 || !txn.take_strayed());
                }
            });
        }
    });
    let mut txn = store.begin_all();
    let sum: i64 = (0..KEYS)
        .map(|number| {
            std::str::from_utf8(txn.get(0, &key(number)).unwrap().unwrap()).unwrap().parse::<i64>().unwrap()
        })
        .sum();
    assert_eq!(sum, EACH * KEYS as i64);
}

/// What a script has read of keys holds when it goes on, or it is told that it does not.
#[test]
fn who_is_set_down_learns_whether_its_keys_were_written() {
    let store = store();
    let partitions = |number: usize| [store.partition_of(&key(number))];
    let mut txn = store.try_begin_growing(&partitions(0), false).unwrap();
    let aside = txn.release_locks();
    add(&mut store.begin_keys([key(1).as_slice()]), 1, EACH);
    assert!(txn.reacquire_locks(&aside).unwrap(), "another partition was written");
    let aside = txn.release_locks();
    let other = store.begin_keys([key(0).as_slice()]);
    thread::scope(|scope| {
        let taken = scope.spawn(|| store.try_begin(&partitions(0)).is_ok());
        thread::sleep(Duration::from_millis(20));
        drop(other);
        assert!(taken.join().unwrap(), "it waits for one that is not held for long");
    });
    add(&mut store.begin_keys([key(0).as_slice()]), 0, EACH);
    assert!(!txn.reacquire_locks(&aside).unwrap());
    // With its partitions back, it keeps others out.
    txn.hold_long();
    assert!(store.try_begin(&partitions(0)).is_err());
}

/// Two that have written and want what the other one has: the second learns that it must give way.
#[test]
fn who_is_wanted_learns_so() {
    let store = store();
    let partitions = |number: usize| [store.partition_of(&key(number))];
    let mut first = store.try_begin_growing(&partitions(0), false).unwrap();
    let mut second = store.try_begin_growing(&partitions(1), false).unwrap();
    assert!(first.try_take_turn());
    // Each lets the other one run, which would wait else.
    first.hold_long();
    second.hold_long();
    assert!(!second.try_take_turn());
    assert!(!first.try_include(&key(1)) && !second.try_include(&key(0)));
    assert!(second.is_wanted() && !first.is_wanted());
    drop(second);
    assert!(first.try_include(&key(1)));
}
