//! Three or five servers with one log, in one thread: real stores and the real engine over simulated media, on a network that loses, delays,
//! doubles and parts, with power cuts, kills, stalls and clocks that differ, while servers are added and removed, as a seed decides.
//! `HOLDFAST_SEEDS=5000` runs the long form, `HOLDFAST_SEED=n` one seed.

mod aimed;
mod members;
#[path = "../../../store/tests/store/seeds.rs"]
mod seeds;
mod world;

use seeds::with_seeds;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use world::{Counts, World};

/// Steps of trouble in a life.
const TROUBLE: u64 = 5000;

static TOTAL: [AtomicU64; 12] = [const { AtomicU64::new(0) }; 12];

/// A life in trouble, and a good end.
fn live(seed: u64) -> Counts {
    let mut world = World::new(seed);
    (0..TROUBLE).for_each(|_| world.step());
    world.settle();
    world.counts
}

/// Among the lives of these seeds is one whose server asked for votes, heard from those that it is removed, and was elected all the same.
#[test]
fn lives_that_have_failed_do_not_fail_again() {
    for seed in [40, 1004, 4857] {
        live(seed);
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_no_read_goes_back() {
    let seeds = with_seeds(25, |seed| {
        let counts = live(seed);
        let Counts { terms, deposed, rests, reads, hand_overs, cuts, copies, copies_of_behind, .. } = counts;
        let Counts { adds, promotions, removals, followed, .. } = counts;
        let counted = [
            terms,
            deposed,
            rests,
            reads,
            hand_overs,
            cuts,
            copies,
            copies_of_behind,
            adds,
            promotions,
            removals,
            followed,
        ];
        for (total, count) in TOTAL.iter().zip(counted) {
            total.fetch_add(count, Relaxed);
        }
        if std::env::var("HOLDFAST_SEED").is_ok() {
            eprintln!("{counts:?}");
        }
    });
    if seeds >= 20 {
        let total = TOTAL.each_ref().map(|total| total.load(Relaxed));
        assert!(
            total[0] > 2 * seeds
                && total[1] > seeds / 4
                && total[2] > seeds / 4
                && total[3] > seeds
                && total[4] > seeds
                && total[6] > seeds
                && total[8..].iter().all(|count| *count > seeds / 2),
            "{total:?}"
        );
    }
}
