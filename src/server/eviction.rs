//! `maxmemory-policy`: which keys are evicted.

use crate::{
    config::{Config, Opt},
    server::Server,
};
use holdfast_store::{Eviction, EvictionOrder, EvictionScope, Uses};
use std::time::Duration;

/// Whether `maxmemory-policy` has keys evicted.
pub fn is_on(config: &Config) -> bool {
    config.choice(Opt::MaxMemoryPolicy) != "noeviction"
}

/// Tells the store what counts against `maxmemory` beside the data when keys are evicted: clients and scripts. To be called
/// now and then.
pub fn count_other_memory(server: &Server) {
    if is_on(&server.config) {
        let OtherMemory { clients, scripts } = OtherMemory::of(server);
        server.store.set_other_bytes(clients + scripts);
    }
}

/// Bytes of memory that are not the store's.
pub struct OtherMemory {
    /// Requests and replies.
    pub clients: u64,
    /// Scripts, and their interpreters.
    pub scripts: u64,
}

impl OtherMemory {
    /// What there is now.
    pub fn of(server: &Server) -> OtherMemory {
        OtherMemory {
            clients: server.clients.all().iter().map(|client| client.memory() as u64).sum(),
            scripts: (server.interpreter_bytes() + server.scripts.size().1) as u64,
        }
    }
}

/// Follows a new `maxmemory-policy`, or new parameters of it.
pub fn apply_policy(server: &Server) {
    let number = |opt| server.config.number(opt) as u32;
    // A replica evicts what its primary does.
    let is_replica = server.replication.is_replica();
    let policy = if is_replica { "noeviction".into() } else { server.config.choice(Opt::MaxMemoryPolicy) };
    let (among, by) = policy.split_once('-').unwrap_or(("", ""));
    server.store.keep_uses(match by {
        "lfu" => {
            Uses::Count { log_factor: number(Opt::LfuLogFactor), decay_minutes: number(Opt::LfuDecayTime) }
        }
        _ => Uses::Last,
    });
    let first = match by {
        "lru" | "lfu" => EvictionOrder::LeastUsed,
        "ttl" => EvictionOrder::SoonestToExpire,
        _ => EvictionOrder::Random,
    };
    let scope = match among {
        // As long as nobody has said how much memory is too much, no key goes for it.
        _ if server.config.number(Opt::MaxMemory) == 0 => None,
        "allkeys" => Some(EvictionScope::All),
        "volatile" => Some(EvictionScope::Expiring),
        _ => None,
    };
    count_other_memory(server);
    let samples = number(Opt::MaxMemorySamples) as usize;
    server.store.set_eviction(scope.map(|scope| Eviction { scope, first, samples }));
}

/// For how long a command evicts keys before it writes.
pub fn time(config: &Config) -> Duration {
    /// That of the longest of Redis's levels; the last one has no limit there.
    const LONGEST: Duration = Duration::from_secs(60);
    let us = match config.number(Opt::MaxMemoryEvictionTenacity) {
        tenacity @ ..=10 => 50.0 * tenacity as f64,
        tenacity @ ..=99 => 500.0 * 1.15_f64.powi(tenacity as i32 - 10),
        _ => return LONGEST,
    };
    Duration::from_micros(us as u64).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::kind::Value;

    #[test]
    fn time_grows_with_tenacity() {
        let config = Config::default();
        let mut last = Duration::ZERO;
        for (tenacity, expected_us) in
            [(0, 0), (1, 50), (10, 500), (11, 575), (50, 133_931), (100, 60_000_000)]
        {
            config.store(Opt::MaxMemoryEvictionTenacity, Value::Number(tenacity));
            assert_eq!(time(&config).as_micros(), expected_us, "{tenacity}");
            last = last.max(time(&config));
        }
        assert_eq!(last, time(&config));
    }
}
