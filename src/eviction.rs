//! What `maxmemory-policy` asks for.

use crate::{config::Opt, server::Server};
use holdfast_store::Uses;

/// Follows a new `maxmemory-policy`, or new parameters of it.
pub fn apply_policy(server: &Server) -> Result<(), String> {
    let number = |opt| server.config.number(opt) as u32;
    let counts = server.config.choice(Opt::MaxMemoryPolicy).ends_with("lfu");
    server.store.keep_uses(match counts {
        true => {
            Uses::Count { log_factor: number(Opt::LfuLogFactor), decay_minutes: number(Opt::LfuDecayTime) }
        }
        false => Uses::Last,
    });
    Ok(())
}
