//! Owners: who holds a lease.

use std::fmt;
use std::str::FromStr;

use crate::{ErrorKind, LockError};

/// The identity of one acquisition: 128 random bits from the operating system (rule M3).
///
/// It names no host, process, task or connection, so two tasks of one process contend like strangers.
/// Its text form is 32 lower-case hexadecimal digits, on every backend.
///
/// ```
/// use lock_core::Owner;
/// let owner = Owner::random()?;
/// assert_eq!(owner.to_string().len(), 32);
/// assert_eq!(owner.to_string().parse::<Owner>()?, owner);
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner([u8; 16]);

impl Owner {
    /// Draws a new owner.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the operating system has no random bytes to give.
    pub fn random() -> Result<Self, LockError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|e| LockError::new(ErrorKind::Internal, "the operating system gave no random bytes").source(e))?;
        Ok(Self(bytes))
    }

    /// The raw bits.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Owner {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        let digits = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match u128::from_str_radix(text, 16) {
            Ok(bits) if digits => Ok(Self(bits.to_be_bytes())),
            _ => Err(LockError::new(ErrorKind::Foreign, "not an owner of this library")
                .advice("an owner is 32 lower-case hexadecimal digits")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part that is a time, a process or a host would stand still, or count.
    #[test]
    fn every_bit_is_random_and_no_owner_comes_twice() {
        let owners: std::collections::HashSet<_> = (0..10_000).map(|_| Owner::random().unwrap()).collect();
        assert_eq!(owners.len(), 10_000);
        for bit in 0..128 {
            let ones = owners.iter().filter(|owner| owner.0[bit / 8] >> (bit % 8) & 1 == 1).count();
            // Eight standard deviations to either side.
            assert!((4_600..=5_400).contains(&ones), "bit {bit} is set in {ones} of 10000");
        }
    }

    #[test]
    fn only_the_canonical_text_parses() {
        let text = "00112233445566778899aabbccddeeff";
        assert_eq!(text.parse::<Owner>().unwrap().to_string(), text);
        for bad in ["", "0", "00112233445566778899AABBCCDDEEFF", "+0112233445566778899aabbccddeeff"] {
            assert!(bad.parse::<Owner>().is_err(), "{bad}");
        }
    }
}
