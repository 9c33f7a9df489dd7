//! Denormals: the calling thread's arithmetic treats them as zeros, because the CPU is up to 100 times slower on them.

/// Flushes denormal results to zero and reads denormal operands as zero (FTZ and DAZ) in the calling thread from now on.
///
/// Every thread that computes calls this once. Does nothing on CPUs other than x86-64.
pub fn flush_denormals() {
    #[cfg(target_arch = "x86_64")]
    control::write(control::read() | control::FLUSH);
}

/// Whether [`flush_denormals`] is in force in the calling thread.
pub fn denormals_flushed() -> bool {
    #[cfg(target_arch = "x86_64")]
    let flushed = control::read() & control::FLUSH == control::FLUSH;
    #[cfg(not(target_arch = "x86_64"))]
    let flushed = false;
    flushed
}

/// The control and status register of SSE and AVX.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the register is reached by assembly only")]
mod control {
    use std::arch::asm;

    /// Flush to zero (bit 15) and denormals are zero (bit 6).
    pub(super) const FLUSH: u32 = 1 << 15 | 1 << 6;

    pub(super) fn read() -> u32 {
        let mut register = 0_u32;
        // SAFETY: stores 4 bytes to `register` and changes nothing else.
        unsafe {
            asm!("stmxcsr [{}]", in(reg) &raw mut register, options(nostack, preserves_flags));
        };
        register
    }

    pub(super) fn write(register: u32) {
        // SAFETY: `register` is a value of `read` plus the bits of `FLUSH`, so no reserved bit is set and no exception is unmasked.
        // The compiler assumes that no code depends on denormals, which holds for kernels whose results may be flushed.
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const register, options(nostack, readonly, preserves_flags));
        };
    }
}
