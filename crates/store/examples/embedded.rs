//! The store in a program of its own, without a server: `cargo run -p holdfast-store --example embedded -- FOLDER`.

use holdfast_store::{Options, Store};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: embedded FOLDER")?;
    let store = Store::open(folder, Options::default())?;
    const DB: u8 = 0;

    // A transaction happens as a whole or not at all: what it reads comes first, and what it is to write is written when
    // this returns. It runs again if a value that it reads must be fetched from the medium first.
    let (visits, wait_lsn) = store.run(&[b"visits", b"visitor:1"], |reader, writes| {
        let seen = reader.get(DB, b"visits")?.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
        let visits: u64 = seen.unwrap_or(0) + 1;
        writes.set(DB, b"visits", visits.to_string());
        writes.hash_set(DB, b"visitor:1", [("name", "Ada"), ("city", "London")]);
        Ok(visits)
    })?;

    // What was committed is safe when the log is durable up to what the commit returned.
    store.log().wait_durable(wait_lsn)?;
    println!("visit {visits} is durable");
    store.close()?;
    Ok(())
}
