//! The instruction sets that this CPU has, and the entry into each.

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512::Avx512;
use super::portable::Portable;
use super::{Kernel, Simd};
use crate::IsaError;

/// An instruction set that this CPU has: a value is the proof.
///
/// ```
/// use lockstep_ops::Isa;
///
/// let isa = Isa::named("portable16")?;
/// assert_eq!((isa.name(), isa.lanes()), ("portable16", 16));
/// # Ok::<(), lockstep_ops::IsaError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Isa(Token);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
enum Token {
    Portable(Portable<8>),
    Portable16(Portable<16>),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

/// All names, best last.
const NAMES: [&str; 4] = ["portable16", "portable", "avx2", "avx512"];

impl Isa {
    /// The best instruction set of this CPU.
    pub fn detect() -> Isa {
        Isa::all_available().pop().unwrap_or(Isa(Token::Portable(Portable)))
    }

    /// All that this CPU can run, best last.
    pub fn all_available() -> Vec<Isa> {
        NAMES.into_iter().filter_map(Isa::detect_named).collect()
    }

    /// The instruction set `"portable"` (8 lanes), `"portable16"`, `"avx2"` or `"avx512"`.
    ///
    /// # Errors
    ///
    /// [`IsaError::Unknown`] if the name is none of these, [`IsaError::Missing`] if this CPU lacks it.
    pub fn named(name: &str) -> Result<Isa, IsaError> {
        let available = || Isa::all_available().into_iter().map(Isa::name).collect();
        match NAMES.into_iter().find(|known| *known == name) {
            None => Err(IsaError::Unknown { name: name.to_owned(), available: available() }),
            Some(name) => Isa::detect_named(name)
                .ok_or_else(|| IsaError::Missing { name, available: available() }),
        }
    }

    fn detect_named(name: &str) -> Option<Isa> {
        let token = match name {
            "portable" => Token::Portable(Portable),
            "portable16" => Token::Portable16(Portable),
            #[cfg(target_arch = "x86_64")]
            "avx2" => Token::Avx2(Avx2::try_new()?),
            #[cfg(target_arch = "x86_64")]
            "avx512" => Token::Avx512(Avx512::try_new()?),
            _ => return None,
        };
        Some(Isa(token))
    }

    /// The name that [`Isa::named`] takes.
    pub fn name(self) -> &'static str {
        match self.0 {
            Token::Portable(_) => "portable",
            Token::Portable16(_) => "portable16",
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(_) => "avx512",
        }
    }

    /// f32 values in a vector: the channels of a block in every blocked layout.
    pub fn lanes(self) -> usize {
        self.dispatch(Lanes)
    }

    /// Vectors that the CPU holds in registers.
    pub fn registers(self) -> usize {
        self.dispatch(Registers)
    }

    /// Runs a kernel with the vectors of this instruction set.
    #[inline]
    pub fn dispatch<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Token::Portable(token) => token.vectorize(kernel),
            Token::Portable16(token) => token.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(token) => token.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(token) => token.vectorize(kernel),
        }
    }
}

struct Lanes;

impl Kernel for Lanes {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        S::LANES
    }
}

struct Registers;

impl Kernel for Registers {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        S::REGISTERS
    }
}
