//! Payloads of RESTORE whose checksum is good.
#![no_main]

use holdfast_rdb::{crc64, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut payload = data.to_vec();
    payload.extend_from_slice(&9u16.to_le_bytes());
    payload.extend_from_slice(&crc64(0, &payload).to_le_bytes());
    let _ = decode(&payload);
});
