//! Mapped files, and the processor's stores, write-backs and fences. All that is `unsafe` about storage-class memory.

use std::{fs, io, ptr::NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::WriteBack;
#[cfg(target_arch = "x86_64")]
use super::{LINE, WORD};

/// The least that is mapped at once.
const PAGE: usize = 4096;

/// A part of a file in this process's memory.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: memory that belongs to no thread; who writes to it has a contract.
unsafe impl Send for Mapping {}
// SAFETY: the same.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on, both multiples of the page; the file may be shorter. `persists`: refused unless what a
    /// fence has seen off is durable then, the file system's own part of it too (`MAP_SYNC`).
    pub fn new(file: &fs::File, offset: u64, len: usize, persists: bool) -> io::Result<Mapping> {
        let flags = if persists { MapFlags::SHARED_VALIDATE | MapFlags::SYNC } else { MapFlags::SHARED };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { mmap(std::ptr::null_mut(), len, access, flags, file, offset)? };
        Ok(Mapping { start: NonNull::new(start.cast()).expect("the kernel maps nothing at 0 unasked"), len })
    }

    /// Has the system map the pages of a range, so that no store waits for it. They are mapped then if it does not (Linux before 5.14).
    ///
    /// # Panics
    /// If it does not lie within the mapping.
    pub fn populate(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "within the mapping");
        let first = offset / PAGE * PAGE;
        // SAFETY: within the mapping, whose start is that of a page; no byte of it is changed.
        let _ = unsafe {
            madvise(self.start.as_ptr().add(first).cast(), offset + len - first, Advice::LinuxPopulateWrite)
        };
    }

    /// Stores bytes at an offset of the mapping, such that the next [`fence`] of this thread makes them durable.
    ///
    /// # Safety
    /// The file reaches as far, and its medium has memory for this part. Until the fence nobody else stores to any of the
    /// words of 8 bytes that it touches.
    ///
    /// # Panics
    /// If it does not lie within the mapping.
    pub unsafe fn store(&self, offset: usize, bytes: &[u8], write_back: WriteBack) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len), "within the mapping");
        // SAFETY: within the mapping, as was just checked; by contract, the file is there and nobody else stores here.
        unsafe { store(self.start.as_ptr().add(offset), bytes, write_back) }
    }
}

impl Mapping {
    /// Loads bytes from an offset of the mapping. A line that the memory has lost ends the process.
    ///
    /// # Safety
    /// The file reaches as far, and its medium has memory for this part. Nobody stores to it meanwhile.
    ///
    /// # Panics
    /// If it does not lie within the mapping.
    pub unsafe fn load(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len), "within the mapping");
        // SAFETY: within the mapping, as was just checked; by contract, the file is there and nobody changes it; what is borrowed is no
        // mapped memory.
        unsafe { self.start.as_ptr().add(offset).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `mmap`, and nobody can use it any more. If that fails, it stays.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(target_arch = "x86_64")]
use std::arch::{
    asm,
    x86_64::{
        __cpuid, __cpuid_count, _mm_clflush, _mm_loadu_si128, _mm_sfence, _mm_stream_si64, _mm_stream_si128,
    },
};

/// Whether the processor can write lines back so.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "CPUID is safe for newer compilers only")]
pub fn has(write_back: WriteBack) -> bool {
    // Intel 64 Architectures Software Developer's Manual, volume 2, CPUID: leaf 7, bits of EBX.
    let has_bit = |bit: u32| {
        // SAFETY: every processor with 64 bits has CPUID, and leaf 0 says which others it has.
        unsafe { __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & 1 << bit != 0 }
    };
    match write_back {
        WriteBack::ClflushOpt => has_bit(23),
        WriteBack::Clwb => has_bit(24),
        WriteBack::Stream | WriteBack::Clflush | WriteBack::None => true,
    }
}

/// Orders this thread's streamed stores and write-backs before what it does then: they are durable.
#[cfg(target_arch = "x86_64")]
pub fn fence() {
    // SAFETY: every processor with 64 bits has SSE.
    unsafe { _mm_sfence() }
}

/// # Safety
/// `at` can be written for the length of `bytes`, and no other thread stores to the words that this touches.
#[cfg(target_arch = "x86_64")]
unsafe fn store(at: *mut u8, bytes: &[u8], write_back: WriteBack) {
    if write_back == WriteBack::Stream {
        // SAFETY: by contract.
        return unsafe { stream(at, bytes) };
    }
    // SAFETY: by contract; what is borrowed is no mapped memory.
    unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    let (first, end) = (at as usize / LINE * LINE, at as usize + bytes.len());
    for line in (first..end).step_by(LINE) {
        let line = line as *const u8;
        // SAFETY: a line of the mapping, which begins at a page; the processor has the instruction, as `Scm::new` has checked.
        unsafe {
            match write_back {
                WriteBack::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                WriteBack::ClflushOpt => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                WriteBack::Clflush => _mm_clflush(line),
                WriteBack::Stream | WriteBack::None => {}
            }
        }
    }
}

/// Stores that pass the caches by: words of 8 bytes at the ends, and 16 bytes between them.
///
/// # Safety
/// As [`store`].
#[cfg(target_arch = "x86_64")]
unsafe fn stream(mut at: *mut u8, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let skip = at as usize % WORD;
        if skip == 0 && (at as usize).is_multiple_of(16) && bytes.len() >= 16 {
            let whole = bytes.len() / 16 * 16;
            for i in (0..whole).step_by(16) {
                // SAFETY: by contract; both ends lie within what is stored, and the target is aligned.
                unsafe { _mm_stream_si128(at.add(i).cast(), _mm_loadu_si128(bytes.as_ptr().add(i).cast())) };
            }
            // SAFETY: not beyond the end.
            at = unsafe { at.add(whole) };
            bytes = &bytes[whole..];
            continue;
        }
        let len = bytes.len().min(WORD - skip);
        // SAFETY: the word is aligned, so it lies within the page, and nobody else stores to it.
        unsafe {
            let word = at.sub(skip);
            let mut merged = word.cast::<[u8; WORD]>().read();
            merged[skip..skip + len].copy_from_slice(&bytes[..len]);
            _mm_stream_si64(word.cast(), i64::from_ne_bytes(merged));
            at = at.add(len);
        }
        bytes = &bytes[len..];
    }
}

/// Elsewhere lines are not written back by hand, so only an emulation works.
#[cfg(not(target_arch = "x86_64"))]
pub fn has(write_back: WriteBack) -> bool {
    write_back == WriteBack::None
}

/// Orders this thread's stores before what it does then.
#[cfg(not(target_arch = "x86_64"))]
pub fn fence() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// # Safety
/// `at` can be written for the length of `bytes`, and no other thread stores to the words that this touches.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn store(at: *mut u8, bytes: &[u8], _: WriteBack) {
    // SAFETY: by contract; what is borrowed is no mapped memory.
    unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_of_any_place_and_length_change_nothing_else() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4096).expect("a page");
        let mapping = Mapping::new(&file, 0, 4096, false).expect("a mapping");
        let mut expected = vec![0; 4096];
        let methods = WriteBack::NAMES.iter().map(|(_, method)| *method).filter(|&method| has(method));
        for method in methods {
            for (round, offset) in (0..70).enumerate() {
                for len in [0, 1, 7, 8, 9, 15, 16, 17, 31, 64, 100, 250] {
                    let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + round + len) as u8).collect();
                    // SAFETY: the page is there, and this is the only thread.
                    unsafe { mapping.store(1000 + offset, &bytes, method) };
                    fence();
                    expected[1000 + offset..][..len].copy_from_slice(&bytes);
                    let mut found = vec![0; 4096];
                    std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 0).expect("the page");
                    assert!(found == expected, "{len} bytes at {offset} by {}", method.name());
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "within the mapping")]
    fn stores_beyond_the_mapping_are_refused() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4096).expect("a page");
        let mapping = Mapping::new(&file, 0, 4096, false).expect("a mapping");
        // SAFETY: it is refused.
        unsafe { mapping.store(4090, &[0; 7], WriteBack::None) };
    }
}
