//! The list of all clients, and the memory that they may take together.

use crate::clients::client::{Client, flag};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// All clients.
#[derive(Default)]
pub struct Clients {
    last_id: AtomicU64,
    count: AtomicUsize,
    map: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// Bytes of memory that all may take; 0: no limit.
    memory_max: AtomicUsize,
    /// Disconnected since they took too much, so far.
    evicted: AtomicU64,
}

impl Clients {
    /// Sets how many bytes of memory all may take; 0: no limit.
    pub fn limit_memory(&self, max: usize) {
        self.memory_max.store(max, Relaxed);
    }

    /// Whether their memory is limited.
    #[inline]
    pub fn is_memory_limited(&self) -> bool {
        self.memory_max.load(Relaxed) > 0
    }

    /// How many were disconnected since they took too much memory.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// CONFIG RESETSTAT.
    pub fn reset_evicted(&self) {
        self.evicted.store(0, Relaxed);
    }

    /// Those that take the most memory, as many as bring the rest below the limit; each is returned once.
    pub fn evict(&self) -> Vec<Arc<Client>> {
        let max = self.memory_max.load(Relaxed);
        if max == 0 {
            return Vec::new();
        }
        let mut clients = self.all();
        clients.retain(|client| !client.has_flag(flag::EVICTED));
        let mut sum: usize = clients.iter().map(|client| client.memory()).sum();
        if sum <= max {
            return Vec::new();
        }
        clients.retain(|client| !client.has_flag(flag::NO_EVICT));
        clients.sort_by_key(|client| std::cmp::Reverse(client.memory()));
        let mut victims = Vec::new();
        for client in clients {
            if sum <= max {
                break;
            }
            // Two workers may look at the same time.
            if client.flags.fetch_or(flag::EVICTED, Relaxed) & flag::EVICTED == 0 {
                self.evicted.fetch_add(1, Relaxed);
                sum = sum.saturating_sub(client.memory());
                victims.push(client);
            }
        }
        victims
    }

    /// A number for a new client.
    pub fn new_id(&self) -> u64 {
        self.last_id.fetch_add(1, Relaxed) + 1
    }

    /// The last number that a client was given.
    pub fn last_id(&self) -> u64 {
        self.last_id.load(Relaxed)
    }

    /// Gives new clients higher numbers than this one.
    pub fn continue_after(&self, id: u64) {
        self.last_id.fetch_max(id, Relaxed);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Adds a new client.
    pub fn add(&self, client: Arc<Client>) {
        self.map.lock().expect("no holder panics").insert(client.id, client);
        self.count.fetch_add(1, Relaxed);
    }

    /// Removes one that is gone.
    pub fn remove(&self, id: u64) {
        if self.map.lock().expect("no holder panics").remove(&id).is_some() {
            self.count.fetch_sub(1, Relaxed);
        }
    }

    /// The client with this number.
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.map.lock().expect("no holder panics").get(&id).cloned()
    }

    /// All, by number.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.map.lock().expect("no holder panics").values().cloned().collect()
    }
}
