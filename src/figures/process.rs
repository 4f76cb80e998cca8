//! What the system tells of this process.

/// The system's file on this process, with the bytes in RAM: `VmRSS` now, `VmHWM` at most so far.
pub const STATUS: &str = "/proc/self/status";

/// Whose CPU time.
#[derive(Clone, Copy)]
pub enum Whose {
    /// This process's.
    Own = libc::RUSAGE_SELF as isize,
    /// That of its children which have ended.
    Children = libc::RUSAGE_CHILDREN as isize,
}

/// CPU time, in microseconds.
pub struct CpuTime {
    /// In the kernel.
    pub system: u64,
    /// Elsewhere.
    pub user: u64,
}

/// The CPU time used so far.
pub fn cpu_time(whose: Whose) -> CpuTime {
    // SAFETY: all zeroes is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid, writable rusage.
    unsafe { libc::getrusage(whose as libc::c_int, &mut usage) };
    let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    CpuTime { system: us(usage.ru_stime), user: us(usage.ru_utime) }
}
