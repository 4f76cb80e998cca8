//! The clients that are open, by number: a closed one's number is not used again.

use holdfast_client::Client;
use parking_lot::{Mutex, RwLock};
use std::{collections::HashMap, sync::Arc};

/// Clients that may be open at a time.
const CLIENTS_MAX: usize = 4096;

/// A client, and what C needs besides.
pub struct Handle<T> {
    pub client: Client,
    /// What replies with elements look like in C, by request; only for requests that are not released.
    pub trees: Mutex<HashMap<u64, T>>,
}

struct Place<T> {
    generation: u32,
    handle: Option<Arc<Handle<T>>>,
}

pub struct Handles<T>(RwLock<Vec<Place<T>>>);

impl<T> Handles<T> {
    pub const fn new() -> Handles<T> {
        Handles(RwLock::new(Vec::new()))
    }

    /// Gives a client a number, which is not 0; `None` if too many are open.
    pub fn insert(&self, client: Client) -> Option<u64> {
        let mut places = self.0.write();
        let handle = Some(Arc::new(Handle { client, trees: Mutex::new(HashMap::new()) }));
        let free = places.iter().position(|place| place.handle.is_none() && place.generation < u32::MAX);
        let at = match free {
            Some(at) => at,
            None if places.len() >= CLIENTS_MAX => return None,
            None => {
                places.push(Place { generation: 0, handle: None });
                places.len() - 1
            }
        };
        places[at].generation += 1;
        places[at].handle = handle;
        Some(u64::from(places[at].generation) << 32 | at as u64)
    }

    pub fn get(&self, number: u64) -> Option<Arc<Handle<T>>> {
        let places = self.0.read();
        let place = places.get(number as u32 as usize)?;
        place.handle.clone().filter(|_| u64::from(place.generation) == number >> 32)
    }

    /// Forgets a client; it is dropped when the last call that uses it returns.
    pub fn remove(&self, number: u64) -> Option<Arc<Handle<T>>> {
        let mut places = self.0.write();
        let place = places.get_mut(number as u32 as usize)?;
        if u64::from(place.generation) == number >> 32 { place.handle.take() } else { None }
    }
}
