//! Servers that are added and removed, in orders that chance alone seldom meets.

use crate::{seeds::with_seeds, world::World};
use holdfast_consensus::{Change, MemberId};

/// A set of three in which all is well, and its leader first. `None`: it has five.
fn three(seed: u64) -> Option<(World, [MemberId; 3])> {
    let mut world = World::new(seed);
    world.has_trouble = false;
    let ids: [MemberId; 3] = world.ids().try_into().ok()?;
    assert!(world.until(|world| world.leader().is_some()));
    let leader = world.leader()?;
    let others: Vec<MemberId> = ids.into_iter().filter(|id| *id != leader).collect();
    Some((world, [leader, others[0], others[1]]))
}

/// One more server, which votes in the end, if those that are added do.
fn add(world: &mut World, leader: MemberId) -> MemberId {
    let mut added = None;
    for _ in 0..500 {
        let replica = world.servers[&leader].up.as_ref().expect("it leads").replica.clone();
        added = added.or_else(|| world.add(&replica));
        world.step();
        let Some(id) = added else { continue };
        let peer = replica.members().peers.get(&id).cloned();
        let is_there = !world.servers[&id].is_blank && world.servers[&id].up.is_some();
        if is_there && peer.is_some_and(|peer| peer.votes || !world.promotes) {
            return id;
        }
    }
    panic!("it is not added: {}", world.describe());
}

fn change(world: &mut World, leader: MemberId, change: &Change) {
    let mut wanted = None;
    for _ in 0..500 {
        let replica = world.servers[&leader].up.as_ref().expect("it leads").replica.clone();
        wanted = wanted.or_else(|| replica.propose(change).ok());
        world.step();
        if wanted.as_ref() == Some(&replica.members()) {
            return;
        }
    }
    panic!("{change:?} is not agreed on: {}", world.describe());
}

/// A server has lost its data, and gets a copy whose log began before others were removed. Together they were a majority then.
#[test]
fn those_who_were_removed_elect_nobody() {
    with_seeds(12, |seed| {
        let Some((mut world, [leader, lost, removed])) = three(seed) else { return };
        let ids = [add(&mut world, leader), add(&mut world, leader)];
        // It hears nothing of that it is not one of them any more.
        world.part(removed, &[leader, lost, ids[0], ids[1]]);
        change(&mut world, leader, &Change::Remove(removed));
        world.lose_data(lost);
        assert!(world.until(|world| !world.servers[&lost].is_blank), "{}", world.describe());
        world.parted.clear();
        for id in [lost, removed] {
            world.part(id, &[leader, ids[0], ids[1]]);
        }
        (0..200).for_each(|_| world.step());
        world.settle();
    });
}

/// Once the leader counts it no more, it is destroyed, and the leader is, too: those that are left elect another one, though they lose their
/// power before they hear of anything else.
#[test]
fn who_is_counted_no_more_may_be_destroyed_at_once() {
    with_seeds(40, |seed| {
        let Some((mut world, [leader, removed, other])) = three(seed) else { return };
        let added = add(&mut world, leader);
        let replica = world.servers[&leader].up.as_ref().expect("it leads").replica.clone();
        assert!(world.until(|_| replica.propose(&Change::Remove(removed)).is_ok()));
        assert!(world.until(|_| !replica.counted().peers.contains_key(&removed)), "{}", world.describe());
        world.lose_data(removed);
        world.lose_data(leader);
        world.cut_power(other);
        world.cut_power(added);
        world.network.clear();
        world.settle();
    });
}

/// The entry that a start begins with says who the members are, and somebody lacks it.
#[test]
fn the_base_is_sent_as_it_is() {
    with_seeds(12, |seed| {
        let Some((mut world, [leader, other, behind])) = three(seed) else { return };
        world.only_reads.extend([leader, other, behind]);
        world.part(behind, &[leader, other]);
        let replica = world.servers[&leader].up.as_ref().expect("it leads").replica.clone();
        let mut added = None;
        while added.is_none() {
            added = world.add(&replica);
            world.step();
        }
        let added = added.expect("it was waited for");
        let log_of =
            |world: &World| world.servers[&leader].up.as_ref().unwrap().store.as_ref().unwrap().log().clone();
        // It is the only entry, and the last one.
        world.servers[&leader].up.as_ref().unwrap().store.as_ref().unwrap().append_clock_mark();
        assert!(world.until(|world| log_of(world).durable() == log_of(world).tail()));
        assert_eq!(replica.members().peers.len(), 4);
        world.part(added, &[leader, other, behind]);
        // Both begin with that entry from now on.
        world.servers[&leader].up.as_ref().unwrap().store.as_ref().unwrap().checkpoint().unwrap();
        (0..20).for_each(|_| world.step());
        world.follow(other, true);
        for id in [leader, other] {
            world.servers.get_mut(&id).unwrap().up = None;
        }
        world.parted.clear();
        world.only_reads.clear();
        world.settle();
    });
}

/// One that was added votes for another leader and acknowledges what that appends, and loses it all. The leader that added it, and knows of none
/// of that, must not win it over.
#[test]
fn a_new_server_that_has_forgotten_follows_no_leader_that_was_voted_out() {
    with_seeds(12, |seed| {
        let Some((mut world, [old, other, third])) = three(seed) else { return };
        world.promotes = false;
        let new = add(&mut world, old);
        world.only_reads.insert(old);
        (0..40).for_each(|_| world.step());
        // The leader stands still, and another one is elected.
        world.servers.get_mut(&old).unwrap().stalled_for = 10_000;
        assert!(world.until(|world| world.leader().is_some_and(|id| id != old)));
        let leader = world.leader().unwrap();
        let late = if leader == other { third } else { other };
        change(&mut world, leader, &Change::Promote(new));
        change(&mut world, leader, &Change::Remove(old));
        world.part(late, &[leader, new]);
        let before = world.counts.acknowledged;
        assert!(world.until(|world| world.counts.acknowledged > before + 3));
        // Who has acknowledged it is gone, or does not know it any more.
        world.lose_data(new);
        world.part(leader, &[old, late, new]);
        world.part(old, &[leader, late]);
        world.servers.get_mut(&old).unwrap().stalled_for = 0;
        world.network.retain(|(_, _, to, _)| *to != old);
        (0..50).for_each(|_| world.step());
        world.parted.clear();
        world.part(leader, &[old, late, new]);
        world.part(old, &[leader, late, new]);
        (0..200).for_each(|_| world.step());
        world.only_reads.clear();
        world.settle();
    });
}
