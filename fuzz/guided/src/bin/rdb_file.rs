//! RDB files whose checksum is not looked at.
#![no_main]

use holdfast_rdb::file::Reader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(mut reader) = Reader::new(data) {
        while let Ok(Some(_)) = reader.next_record() {}
    }
});
