//! RDB files whose checksum is not looked at.
#![no_main]

use holdfast_rdb::{
    file::Reader,
    unread::{Content, read},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(mut reader) = Reader::new(data) {
        while let Ok(Some(_)) = reader.next_record() {}
    }
    if let Ok(mut reader) = Reader::new(data) {
        loop {
            while let Some(unread) = reader.next_unread() {
                if let Content::Serialized(kind, bytes) = unread.content {
                    let _ = read(kind, bytes);
                }
            }
            let Ok(Some(_)) = reader.next_record() else { break };
        }
    }
});
