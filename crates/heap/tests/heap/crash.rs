//! Transactions, checkpoints, crashes and replay against a model.

use crate::world::World;
use holdfast_heap::EXTENT;
use holdfast_io::{Fault, Io};

const MAX_BYTES: u64 = 48 * EXTENT;

/// Runs a world until `steps` are over, or an operation of the machine fails; returns how many pages have left memory.
fn run(world: &mut World, steps: u64) -> u64 {
    let mut evicted = 0;
    for step in 0..steps {
        let growth = if step / 60 % 2 == 0 { 5 } else { 2 };
        let result = match world.random.below(4) {
            0 => world.checkpoint_step(),
            1 => {
                evicted += world.evict();
                Ok(())
            }
            _ => world.transact(growth),
        };
        // Shortening the file after a checkpoint may fail, and so cut the power, without a word.
        if result.is_err() || world.sim.free_bytes().is_err() {
            break;
        }
    }
    evicted
}

#[test]
fn nothing_is_lost_or_torn_by_a_crash_at_any_time() {
    let mut evicted = 0;
    for seed in 0..15 {
        println!("seed {seed}");
        let mut world = World::new(seed, MAX_BYTES, 3);
        for _ in 0..6 {
            let steps = world.random.below(300);
            evicted += run(&mut world, steps);
            let power_cut = world.random.chance(2);
            world.restart(power_cut).unwrap();
        }
        world.check_blocks();
        world.clear();
        world.check_blocks();
    }
    assert!(evicted > 1000, "only {evicted} pages have left memory");
}

#[test]
fn nothing_is_lost_or_torn_by_a_crash_in_any_operation() {
    for seed in 0..15 {
        println!("seed {seed}");
        let mut world = World::new(seed, MAX_BYTES, 2);
        for _ in 0..6 {
            let operations = 1 + world.random.below(30);
            world.sim.crash_after(operations);
            run(&mut world, 300);
            world.restart(true).unwrap();
        }
        world.check_blocks();
    }
}

#[test]
fn a_failed_checkpoint_loses_nothing() {
    for seed in 0..15 {
        println!("seed {seed}");
        let mut world = World::new(seed, MAX_BYTES, 2);
        for _ in 0..6 {
            let passed = world.random.below(10);
            world.sim.fault(Fault::write("heap").after(passed));
            run(&mut world, 300);
            // Without a restart: the next checkpoint writes what the failed one could not.
            world.sim.clear_faults();
            run(&mut world, 100);
            let power_cut = world.random.chance(2);
            world.restart(power_cut).unwrap();
        }
        world.check_blocks();
    }
}
