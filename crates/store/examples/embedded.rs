//! The store in a program of its own, without a server: `cargo run -p holdfast-store --example embedded -- FOLDER`.

use holdfast_store::{Options, Store, collections::hash::Expiry};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: embedded FOLDER")?;
    let store = Store::open(folder, Options::default())?;
    const DB: u8 = 0;

    // A transaction is one batch of the log: a crash leaves all of it or nothing. It runs again if a value that it reads
    // must be fetched from the medium first.
    let (visits, gate) = store.run(&[b"visits", b"visitor:1"], |txn| {
        let seen =
            txn.get(DB, b"visits")?.and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
        let visits = seen.unwrap_or(0) + 1;
        txn.set(DB, b"visits", visits.to_string().as_bytes(), true)?;
        txn.hash_set(DB, b"visitor:1", [(&b"name"[..], &b"Ada"[..]), (b"city", b"London")], Expiry::Keep)?;
        Ok(visits)
    })?;

    // What was committed is safe when the log is durable up to what the commit returned.
    store.log().wait_durable(gate)?;
    println!("visit {visits} is durable");
    store.close()?;
    Ok(())
}
