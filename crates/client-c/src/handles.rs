//! The clients that are open, by number: a closed one's number is not used again.

use holdfast_client::Client;
use parking_lot::RwLock;
use std::{
    cell::RefCell,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// Clients that may be open at a time.
const CLIENTS_MAX: usize = 4096;

struct Place {
    generation: u32,
    client: Option<Arc<Client>>,
}

pub struct Handles {
    places: RwLock<Vec<Place>>,
    /// Counts clients that were closed.
    closed: AtomicU64,
}

/// The client that a thread has used last.
struct Last {
    number: u64,
    /// How many were closed when it was found open.
    closed: u64,
    client: Weak<Client>,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

impl Handles {
    pub const fn new() -> Handles {
        Handles { places: RwLock::new(Vec::new()), closed: AtomicU64::new(0) }
    }

    /// Gives a client a number, which is not 0; `None` if too many are open.
    pub fn insert(&self, client: Client) -> Option<u64> {
        let mut places = self.places.write();
        let client = Some(Arc::new(client));
        let free = places.iter().position(|place| place.client.is_none() && place.generation < u32::MAX);
        let at = match free {
            Some(at) => at,
            None if places.len() >= CLIENTS_MAX => return None,
            None => {
                places.push(Place { generation: 0, client: None });
                places.len() - 1
            }
        };
        places[at].generation += 1;
        places[at].client = client;
        Some(u64::from(places[at].generation) << 32 | at as u64)
    }

    /// An open client. Programs have one, or one a thread, which is found without the lock.
    pub fn get(&self, number: u64) -> Option<Arc<Client>> {
        let closed = self.closed.load(Ordering::Acquire);
        let found = LAST.try_with(|last| {
            let last = last.borrow();
            let last = last.as_ref().filter(|last| last.number == number && last.closed == closed)?;
            last.client.upgrade()
        });
        match found {
            Ok(Some(client)) => Some(client),
            _ => self.find(number, closed),
        }
    }

    fn find(&self, number: u64, closed: u64) -> Option<Arc<Client>> {
        let places = self.places.read();
        let place = places.get(number as u32 as usize)?;
        let client = place.client.clone().filter(|_| u64::from(place.generation) == number >> 32)?;
        let last = Last { number, closed, client: Arc::downgrade(&client) };
        // A thread that ends has no such memory any more.
        let _ = LAST.try_with(|place| place.replace(Some(last)));
        Some(client)
    }

    /// Forgets a client; it is dropped when the last call that uses it returns.
    pub fn remove(&self, number: u64) -> Option<Arc<Client>> {
        let mut places = self.places.write();
        let place = places.get_mut(number as u32 as usize)?;
        self.closed.fetch_add(1, Ordering::Release);
        if u64::from(place.generation) == number >> 32 { place.client.take() } else { None }
    }
}
