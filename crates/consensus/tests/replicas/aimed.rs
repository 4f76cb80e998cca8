//! What chance alone seldom meets.

use crate::{
    seeds::{Rng, with_seeds},
    world::{World, all, key, options, value, write_of},
};
use bytes::Bytes;
use holdfast_consensus::{Envelope, MemberId, Role, code::Encoder};
use holdfast_io::Error;
use holdfast_store::Store;
use std::{
    cell::RefCell,
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A leader that is cut off answers reads until its lease ends, and not longer: though the one that could tell of another leader was just
/// restarted, and does not know what it has promised; or though answers arrive long after they were asked for.
#[test]
fn a_lease_ends_before_another_leader_is_elected() {
    with_seeds(60, |seed| {
        let mut world = World::new(seed);
        world.has_trouble = false;
        (0..250).for_each(|_| world.step());
        let ids = world.ids();
        let leads = |id: &MemberId| world.servers[id].up.as_ref().is_some_and(|up| up.store.is_some());
        let Some(leader) = ids.iter().copied().find(leads) else { return };
        let others: Vec<_> = ids.iter().copied().filter(|id| *id != leader).collect();
        if seed % 3 == 2 {
            // It has told another one to lead, and does not hear that this one does.
            world.servers[&leader].up.as_ref().unwrap().replica.hand_over(others[0]);
            world.send(leader);
            world.parted.extend(others.iter().map(|&id| (id, leader)));
        } else if seed % 3 == 0 {
            // Some want another leader, and could be it, but the others keep to this one.
            world.only_reads = ids.iter().copied().collect();
            (0..30).for_each(|_| world.step());
            let (promised, waiting) = others.split_at(others.len() / 2);
            world.parted.extend(waiting.iter().flat_map(|&id| [(leader, id), (id, leader)]));
            (0..60 + world.rng.below(60)).for_each(|_| world.step());
            world.only_reads.clear();
            for &id in promised {
                world.servers.get_mut(&id).unwrap().up = None;
                world.parted.extend([(leader, id), (id, leader)]);
            }
        } else {
            world.slow.extend(others.iter().map(|&id| (id, leader)));
            (0..100 + world.rng.below(30)).for_each(|_| world.step());
            world.parted.extend(others.iter().map(|&id| (leader, id)));
        }
        (0..200).for_each(|_| world.step());
    });
}

/// With another server away, the vote of the one that hands over is needed, and counts.
#[test]
fn who_hands_over_with_another_one_away_votes() {
    static ELECTED: AtomicU64 = AtomicU64::new(0);
    let seeds = with_seeds(10, |seed| {
        let mut world = World::new(seed);
        world.has_trouble = false;
        assert!(world.until(|world| world.leader().is_some()));
        (0..100).for_each(|_| world.step());
        let leader = world.leader().expect("nobody makes trouble");
        let ids: Vec<MemberId> = world.ids().into_iter().filter(|id| *id != leader).collect();
        if ids.len() != 2 {
            return;
        }
        let replica =
            |world: &World, id: MemberId| world.servers[&id].up.as_ref().expect("it runs").replica.clone();
        let term = replica(&world, leader).term();
        world.servers.get_mut(&ids[1]).unwrap().stalled_for = u64::MAX;
        replica(&world, leader).hand_over(ids[0]);
        // The old leader says its last words only in every other step.
        let leads = |world: &World| replica(world, ids[0]).role() == Role::Leader;
        let is_first = (0..50).any(|_| {
            world.step();
            leads(&world)
        });
        ELECTED.fetch_add(u64::from(is_first), Relaxed);
        assert!(!is_first || replica(&world, ids[0]).term() == term + 1);
    });
    assert!(seeds < 10 || ELECTED.load(Relaxed) > 1, "{ELECTED:?} of {seeds}");
}

/// A leader's sign of life tells a replica of more than it has: that is damage, and not the end of the process.
#[test]
fn who_has_less_than_it_has_acknowledged_says_so() {
    with_seeds(10, |seed| {
        let mut world = World::new(seed);
        world.has_trouble = false;
        assert!(world.until(|world| world.leader().is_some()));
        (0..100).for_each(|_| world.step());
        let leader = world.leader().expect("one leads");
        let other = world.ids().into_iter().find(|id| *id != leader).expect("another one");
        let replica = world.servers[&other].up.as_ref().expect("it is up").replica.clone();
        // Kind, whom it is for, who sends it, its term; of the log; what is decided.
        let mut bytes = Encoder::default();
        bytes.u8(6).u64(other).u64(leader).u64(replica.term()).u64(0).u64(0).u64(1 << 40).u64(0);
        bytes.u8(0).u64(0).u64(0).u64(0).bytes(&[]).u8(0).u32(0);
        let mut envelope = Encoder::default();
        envelope.u64(0).u64(0).bytes(&bytes.into_bytes());
        let envelope = Bytes::from(envelope.into_bytes());
        let stepped = replica.step(Envelope::decode(&envelope, &envelope).expect("the form of one"));
        assert!(matches!(stepped, Err(Error::Corrupt { .. })), "{stepped:?}");
    });
}

/// A server votes for another leader, acknowledges what that appends, and loses all it knows of that. The old leader, which does not know of the
/// other one yet, must not win it over.
#[test]
fn who_has_forgotten_a_vote_does_not_follow_the_leader_that_was_voted_out() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let seeds = with_seeds(40, |seed| {
        let mut world = World::new(seed);
        world.has_trouble = false;
        (0..250).for_each(|_| world.step());
        let leads = |world: &World, id: MemberId| {
            let up = world.servers[&id].up.as_ref();
            up.is_some_and(|up| {
                up.replica.role() == Role::Leader && up.store.is_some() && !up.replica.is_deposed()
            })
        };
        let ids = world.ids();
        let Some(old) = ids.iter().copied().find(|id| leads(&world, *id)).filter(|_| ids.len() == 3) else {
            return;
        };
        // All that it has is agreed on.
        world.only_reads.insert(old);
        (0..40).for_each(|_| world.step());
        world.part(old, &ids);
        let others: Vec<_> = ids.iter().copied().filter(|id| *id != old).collect();
        let mut new = None;
        for _ in 0..150 {
            world.step();
            new = others.iter().copied().find(|id| leads(&world, *id));
            if new.is_some() {
                break;
            }
        }
        let Some(new) = new else { return };
        // The other one acknowledges something.
        let before = world.counts.acknowledged;
        for _ in 0..30 {
            world.step();
            if world.counts.acknowledged > before {
                break;
            }
        }
        COUNT.fetch_add(u64::from(leads(&world, old) && world.counts.acknowledged > before), Relaxed);
        let voter = others.into_iter().find(|id| *id != new).unwrap();
        world.lose_data(voter);
        world.parted.clear();
        world.part(new, &ids);
        (0..200).for_each(|_| world.step());
        world.only_reads.clear();
        world.settle();
    });
    assert!(seeds < 40 || COUNT.load(Relaxed) > 1, "{COUNT:?}");
}

/// Without the others, the folder of one of a set is that of a server on its own, which goes on in the epoch of its log; and another set begins with
/// it.
#[test]
fn a_folder_of_a_set_opens_alone_and_begins_another_set() {
    with_seeds(6, |seed| {
        let mut world = World::new(seed);
        (0..1000).for_each(|_| world.step());
        world.settle();
        let id = world.any();
        let folder = world.servers.remove(&id).unwrap().io.fork();
        let mut truth = None;
        let mut last_epoch = 1;
        // The first time it replays what the set has written, and then nothing.
        for life in 0..3 {
            let store = Store::open_on(Arc::new(folder.clone()), options(None)).unwrap();
            let found = all(&store);
            if let Some(truth) = truth {
                assert!(found == truth, "life {life}");
            }
            for (&key, &write) in &world.acknowledged {
                assert!(
                    found[key as usize].as_deref().map(write_of) >= Some(write),
                    "key {key}, life {life}"
                );
            }
            assert!(store.log().epoch() > 1 && store.log().epoch() >= last_epoch, "life {life}");
            last_epoch = store.log().epoch();
            if life == 1 {
                let write = world.next_write;
                let set = store.run(&[&key(1)], |_, writes| {
                    writes.set(0, &key(1), value(write, 10));
                    Ok(())
                });
                set.unwrap();
                world.next_write += 1;
            }
            truth = Some(all(&store));
            store.check().unwrap();
            store.close().unwrap();
        }
        let store = Store::open_on(Arc::new(folder.clone()), options(None)).unwrap();
        let mut next = World::begin(Rng(seed), &folder, store);
        (next.next_write, next.acknowledged) = (world.next_write, world.acknowledged);
        (0..1000).for_each(|_| next.step());
        next.settle();
        assert!(next.leaders.keys().all(|term| *term > u64::from(last_epoch)));
    });
}

/// What is decided the others are told at once, not with the next sign of life; but with the next entry if there is something for one already.
#[test]
fn others_hear_at_once_or_with_the_next_entry_what_is_decided() {
    with_seeds(10, |seed| {
        let mut world = World::new(seed);
        world.has_trouble = false;
        assert!(world.until(|world| world.leader().is_some()));
        (0..100).for_each(|_| world.step());
        let ids = world.ids();
        world.only_reads = ids.iter().copied().collect();
        (0..100).for_each(|_| world.step());
        let leader = world.leader().expect("nobody makes trouble");
        let replica = |id: &MemberId| world.servers[id].up.as_ref().expect("it runs").replica.clone();
        let store = world.servers[&leader].up.as_ref().and_then(|up| up.store.clone()).expect("it leads");
        // Nobody's time goes on from here on. Returns how many messages the leader has sent.
        let exchange = || {
            let mut of_leader = 0;
            loop {
                let envelopes: Vec<_> = ids.iter().flat_map(|id| replica(id).take_messages()).collect();
                if envelopes.is_empty() {
                    return of_leader;
                }
                for envelope in envelopes {
                    of_leader += usize::from(envelope.message.from() == leader);
                    replica(&envelope.message.to()).step(envelope).expect("sound media");
                }
            }
        };
        let write = || {
            let set = store.run(&[&key(0)], |_, writes| {
                writes.set(0, &key(0), value(0, 100));
                Ok(())
            });
            set.expect("room").1
        };
        let known = |end| ids.iter().filter(|id| replica(id).extent().1 >= end).count();
        exchange();
        let first = write();
        assert!(store.log().commit_once().expect("a sound medium"));
        assert_eq!(exchange(), 2 * (ids.len() - 1), "an entry, and that it is decided");
        assert_eq!(known(first), ids.len());

        let second = write();
        assert!(store.log().commit_once().expect("a sound medium"));
        let third = write();
        assert_eq!(exchange(), ids.len() - 1, "an entry");
        assert_eq!(known(second), 1, "the leader knows");
        assert!(store.log().commit_once().expect("a sound medium"));
        exchange();
        assert_eq!(known(third), ids.len());
    });
}

/// A replica that does not answer is sent so much and no more, and one that is back gets what it lacks a little at a time.
#[test]
fn who_is_behind_is_sent_a_little_at_a_time() {
    const VALUE: usize = 512 << 10;
    const WINDOW: usize = 16 << 20;
    const TURN: usize = 4 << 20;
    // Of a message, beside what was meant.
    const MESSAGE: usize = 2 << 20;
    with_seeds(4, |seed| {
        let mut world = World::new(seed);
        world.has_trouble = false;
        assert!(world.until(|world| world.leader().is_some()));
        (0..100).for_each(|_| world.step());
        let ids = world.ids();
        world.only_reads = ids.iter().copied().collect();
        (0..100).for_each(|_| world.step());
        let leader = world.leader().expect("nobody makes trouble");
        let away = ids.iter().copied().find(|id| *id != leader).expect("another one");
        let replica = |id: &MemberId| world.servers[id].up.as_ref().expect("it runs").replica.clone();
        let store = world.servers[&leader].up.as_ref().and_then(|up| up.store.clone()).expect("it leads");
        let waiting = RefCell::new(VecDeque::new());
        let take = |id: &MemberId| {
            let (late, other): (Vec<_>, Vec<_>) =
                replica(id).take_messages().into_iter().partition(|envelope| envelope.message.to() == away);
            waiting.borrow_mut().extend(late.into_iter().map(|envelope| Bytes::from(envelope.encode())));
            other
        };
        // All but the one that is away. Nobody's time goes on.
        let exchange = || {
            loop {
                let envelopes: Vec<_> = ids.iter().filter(|id| **id != away).flat_map(take).collect();
                if envelopes.is_empty() {
                    return;
                }
                for envelope in envelopes {
                    replica(&envelope.message.to()).step(envelope).expect("sound media");
                }
            }
        };
        let bytes = || waiting.borrow().iter().map(Bytes::len).sum::<usize>();
        let write = |number: u64| {
            let set = store.run(&[&key(99)], |_, writes| {
                writes.set(0, &key(99), value(number, VALUE));
                Ok(())
            });
            set.expect("room");
            assert!(store.log().commit_once().expect("a sound medium"));
            exchange();
        };
        exchange();
        for number in 0..64 {
            write(number);
        }
        assert_eq!(replica(&leader).extent().1, store.log().tail(), "the others are enough");
        assert!((WINDOW..WINDOW + MESSAGE).contains(&bytes()), "{} bytes are on their way", bytes());

        // All that was under way is lost, and nobody says so.
        waiting.borrow_mut().clear();
        for _ in 0..10 {
            replica(&leader).tick().expect("a sound medium");
            exchange();
        }
        assert!(bytes() > 0, "signs of life");
        let mut turns = 0;
        while replica(&away).extent() != replica(&leader).extent() {
            let Some(message) = waiting.borrow_mut().pop_front() else {
                // Everything that was sent has arrived.
                replica(&leader).tick().expect("a sound medium");
                exchange();
                continue;
            };
            replica(&away)
                .step(Envelope::decode(&message, &message).expect("it was encoded"))
                .expect("sound media");
            for answer in replica(&away).take_messages() {
                let before = bytes();
                replica(&answer.message.to()).step(answer).expect("sound media");
                exchange();
                let sent = bytes() - before;
                assert!(sent < TURN + MESSAGE, "{sent} bytes at once");
                assert!(bytes() < WINDOW + TURN + MESSAGE, "{} bytes are on their way", bytes());
            }
            turns += 1;
            assert!(turns < 10_000, "it does not get all");
        }
    });
}

/// A leader that has sent so much that it takes time waits for answers, but not for ever; who gets much wants no other leader meanwhile.
#[test]
fn what_is_long_deposes_nobody() {
    // All of them take three seconds at the least rate that counts.
    const VALUE: usize = 4 << 20;
    const VALUES: u64 = 12;
    with_seeds(4, |seed| {
        let mut world = World::new(seed);
        world.has_trouble = false;
        assert!(world.until(|world| world.leader().is_some()));
        (0..100).for_each(|_| world.step());
        let ids = world.ids();
        world.only_reads = ids.iter().copied().collect();
        (0..100).for_each(|_| world.step());
        let leader = world.leader().expect("nobody makes trouble");
        let others: Vec<MemberId> = ids.into_iter().filter(|id| *id != leader).collect();
        let replica =
            |world: &World, id: MemberId| world.servers[&id].up.as_ref().expect("it runs").replica.clone();
        let store = world.servers[&leader].up.as_ref().and_then(|up| up.store.clone()).expect("it leads");
        for number in 1..=VALUES {
            let set = store.run(&[&key(99)], |_, writes| {
                writes.set(0, &key(99), value(number, VALUE));
                Ok(())
            });
            set.expect("room");
        }
        store.log().commit_once().expect("a sound medium");
        drop(store);
        // Nothing else arrives: of a second, parts come in nine tenths.
        for step in 0..125 {
            world.network.clear();
            if step % 50 < 45 {
                others.iter().for_each(|id| replica(&world, *id).is_being_sent());
            }
            world.step();
        }
        let leads = |world: &World| {
            let up = world.servers[&leader].up.as_ref();
            up.is_some_and(|up| !up.replica.is_deposed() && up.replica.role() == Role::Leader)
        };
        assert!(leads(&world), "it has waited for two and a half seconds");
        let is_led = Role::Follower { leader };
        assert!(others.iter().all(|id| replica(&world, *id).role() == is_led), "they wait, too");
        for _ in 0..150 {
            world.network.clear();
            world.step();
        }
        assert!(!leads(&world), "they are gone");
    });
}
