//! Memory that takes RAM only where it is used: reserved, given back, and released, by the system's calls.

pub(crate) use system::{allow_huge_pages, forbid_huge_pages, make_huge, reserve, unreserve, zero};

use std::{io, ptr::NonNull};

/// Bytes of a huge page.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

#[cfg(not(miri))]
mod system {
    use super::*;
    use std::{
        ptr,
        sync::{
            OnceLock,
            atomic::{AtomicBool, Ordering::Relaxed},
        },
    };

    /// Ranges that one call of `process_madvise` takes.
    const RANGES_MAX: usize = 512;

    /// Reserves zeroed, page-aligned memory that takes RAM only where it is touched.
    pub(crate) fn reserve(len: usize) -> io::Result<NonNull<u8>> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(NonNull::new(base.cast()).expect("the kernel maps nothing at 0 unasked"))
    }

    /// Zeroes ranges of memory and gives their RAM back.
    ///
    /// # Safety
    /// The ranges are page-aligned, from [`reserve`], and nobody else uses them.
    pub(crate) unsafe fn zero(ranges: &[(NonNull<u8>, usize)]) {
        for some in ranges.chunks(RANGES_MAX) {
            // Other processors forget the addresses of all ranges at once, which is most of what it costs.
            // SAFETY: by contract.
            if some.len() > 1 && unsafe { zero_at_once(some) } {
                continue;
            }
            for &(at, len) in some {
                // SAFETY: by contract; private anonymous memory reads as zero afterwards.
                let rc = unsafe { libc::madvise(at.as_ptr().cast(), len, libc::MADV_DONTNEED) };
                assert_eq!(rc, 0, "madvise: {}", io::Error::last_os_error());
            }
        }
    }

    /// The same by one call; false if the kernel has done part of it at most. Linux does so for a process's own memory since 6.13.
    ///
    /// # Safety
    /// As [`zero`].
    unsafe fn zero_at_once(ranges: &[(NonNull<u8>, usize)]) -> bool {
        static IS_REFUSED: AtomicBool = AtomicBool::new(false);
        static THIS_PROCESS: OnceLock<libc::c_long> = OnceLock::new();
        if IS_REFUSED.load(Relaxed) {
            return false;
        }
        // SAFETY: a new descriptor, closed when the process ends, or -1, which is refused below.
        let this =
            *THIS_PROCESS.get_or_init(|| unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) });
        let vector: Vec<libc::iovec> = ranges
            .iter()
            .map(|&(at, len)| libc::iovec { iov_base: at.as_ptr().cast(), iov_len: len })
            .collect();
        let bytes: usize = ranges.iter().map(|(_, len)| len).sum();
        // SAFETY: the vector lives until the call returns; the memory by contract.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                this,
                vector.as_ptr(),
                vector.len(),
                libc::MADV_DONTNEED,
                0,
            )
        };
        if done < 0 {
            IS_REFUSED.store(true, Relaxed);
        }
        usize::try_from(done) == Ok(bytes)
    }

    /// Has memory from [`reserve`] backed by huge pages where it is touched from now on.
    pub(crate) fn allow_huge_pages(at: NonNull<u8>, len: usize) {
        // SAFETY: advice on memory that stays ours. Where huge pages are not to be had, small ones serve.
        let _ = unsafe { libc::madvise(at.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
    }

    /// Puts a huge page in the place of the small ones behind [`HUGE_PAGE`] bytes from [`reserve`] on, at a multiple of that, if there are
    /// some, and the system has one to give and, since Linux 6.1, does so when it is asked.
    pub(crate) fn make_huge(at: NonNull<u8>) {
        /// `libc` has it for some systems only.
        const MADV_COLLAPSE: libc::c_int = 25;
        // SAFETY: the memory stays ours, and holds what it has held.
        let _ = unsafe { libc::madvise(at.as_ptr().cast(), HUGE_PAGE, MADV_COLLAPSE) };
    }

    /// Has memory from [`reserve`] backed by small pages from now on.
    pub(crate) fn forbid_huge_pages(at: NonNull<u8>, len: usize) {
        // SAFETY: advice on memory that stays ours. Where there are no huge pages it fails, and is not needed.
        let _ = unsafe { libc::madvise(at.as_ptr().cast(), len, libc::MADV_NOHUGEPAGE) };
    }

    /// Ends a reservation.
    ///
    /// # Safety
    /// `base` and `len` are those of [`reserve`], and nobody uses the memory any more.
    pub(crate) unsafe fn unreserve(base: NonNull<u8>, len: usize) {
        // SAFETY: by contract.
        unsafe { libc::munmap(base.as_ptr().cast(), len) };
    }
}

/// The same over the allocator: Miri knows neither MAP_NORESERVE nor madvise.
#[cfg(miri)]
mod system {
    use super::*;
    use crate::PAGE;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, PAGE).expect("a valid layout")
    }

    pub(crate) fn reserve(len: usize) -> io::Result<NonNull<u8>> {
        // SAFETY: `len` is not zero: a heap has at least one extent.
        NonNull::new(unsafe { alloc_zeroed(layout(len)) }).ok_or(io::ErrorKind::OutOfMemory.into())
    }

    /// # Safety
    /// The ranges are from [`reserve`], and nobody else uses them.
    pub(crate) unsafe fn zero(ranges: &[(NonNull<u8>, usize)]) {
        // SAFETY: by contract.
        ranges.iter().for_each(|(at, len)| unsafe { at.write_bytes(0, *len) });
    }

    pub(crate) fn allow_huge_pages(_: NonNull<u8>, _: usize) {}

    pub(crate) fn make_huge(_: NonNull<u8>) {}

    pub(crate) fn forbid_huge_pages(_: NonNull<u8>, _: usize) {}

    /// # Safety
    /// `base` and `len` are those of [`reserve`], and nobody uses the memory any more.
    pub(crate) unsafe fn unreserve(base: NonNull<u8>, len: usize) {
        // SAFETY: by contract.
        unsafe { dealloc(base.as_ptr(), layout(len)) };
    }
}
