//! The process's memory: how much it is, and what the allocator keeps of it.

use holdfast_store::Process;
use std::fs;

/// For the store, which shares memory out.
pub const PROCESS: Process = Process { resident_bytes, give_back };

/// Blocks from this size on are mappings of their own, which go back to the system when they are freed. Smaller ones are not, or
/// each large value would cost a page fault for each of its pages.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 4 << 20;
/// Free bytes that the allocator keeps at the end of each of its heaps.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 4 << 20;

/// Has the allocator keep little of what was freed. To be called before there are threads.
pub fn set_up() {
    // SAFETY: both set a number, which no other thread reads yet.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

/// Gives memory back to the system that the allocator keeps for later.
pub fn give_back() {
    // SAFETY: malloc_trim takes no pointer and may be called at any time from any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes of files in the process's memory that are the program and its libraries. What is more is a data folder in storage-class
/// memory, which is the medium.
const PROGRAM_BYTES_MAX: u64 = 16 << 20;

/// RAM of the process, in bytes; 0 if that cannot be told.
fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = statm.split(' ').map(|pages| pages.parse::<u64>().unwrap_or(0));
    let page = rustix::param::page_size() as u64;
    // The whole address space; what of it is in memory; what of that is of files.
    let (_, resident, files) = (pages.next(), pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(files) * page + (files * page).min(PROGRAM_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_use_is_seen() {
        // Other tests of this process take and give back memory meanwhile.
        let is_seen = || {
            let before = resident_bytes();
            let memory = std::hint::black_box(vec![1u8; 64 << 20]);
            let with = resident_bytes();
            drop(memory);
            before > 0 && with >= before + (60 << 20)
        };
        assert!((0..100).any(|_| is_seen()));
    }
}
