//! Typestrs, read.

use super::{Dtype, TABLE};
use crate::error::{Error, Kind, Result};

/// The typestrs that name one type, as numbers: the bytes in their order, those that are absent 0.
/// A dict is decoded at every import, and comparing numbers is what makes this search cheap.
const EXACT: [u32; TABLE.len()] = {
    let mut keys = [0; TABLE.len()];
    let mut at = 0;
    while at < TABLE.len() {
        let text = TABLE[at].typestr.as_bytes();
        if text[1] != b'V' {
            keys[at] = key(text);
        }
        at += 1;
    }
    keys
};

/// `text` of up to four bytes as a number; 0 for anything longer.
const fn key(text: &[u8]) -> u32 {
    match *text {
        [a, b, c] => u32::from_le_bytes([a, b, c, 0]),
        // A NUL at the end would make it the number of a shorter one.
        [a, b, c, d] if d != 0 => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// Whether there are types of that many bytes that NumPy has no letter for.
fn is_opaque(size: i64) -> bool {
    Dtype::all().any(|dtype| dtype.is_opaque() && dtype.itemsize() == size)
}

/// The meaning of a typestr.
///
/// # Examples
///
/// ```
/// use cai_bridge::dtype::{Dtype, Typestr};
///
/// assert_eq!(Typestr::parse("|u1")?, Typestr::Exact(Dtype::from_dlpack(1, 8, 1)?));
/// let opaque = Typestr::parse("|V1")?; // an 8-bit float, as PyTorch and CuPy export it
/// assert_eq!(opaque, Typestr::Opaque(1));
/// assert_eq!(opaque.resolve("|V1", Some("float8_e4m3fn"))?.typestr(), "|V1");
/// assert!(opaque.resolve("|V1", None).is_err(), "never guessed");
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Typestr {
    /// One type.
    Exact(Dtype),
    /// Some type of this many bytes that NumPy has no letter for.
    Opaque(i64),
}

impl Typestr {
    /// Reads a typestr.
    pub fn parse(text: &str) -> Result<Self> {
        let wanted = key(text.as_bytes());
        match Dtype::all().find(|dtype| EXACT[dtype.index()] == wanted && wanted != 0) {
            Some(dtype) => Ok(Self::Exact(dtype)),
            None => Self::parse_uncommon(text),
        }
    }

    /// The bytes of an item, as far as it can be handed on without a word for its type: neither a reference to an
    /// object nor a field of bits.
    #[doc(hidden)]
    pub fn itemsize(text: &str) -> Option<i64> {
        let Spelling { letter, size, digits, .. } = Spelling::of(text)?;
        match letter {
            'O' | 't' => None,
            // A unit that is cut off.
            _ if digits.contains('[') && !digits.ends_with(']') => None,
            'U' => size.checked_mul(4),
            _ => Some(size),
        }
        .filter(|size| *size > 0)
    }

    /// Whether it is some type of as many bytes as `dtype`, in the byte order of this machine.
    #[doc(hidden)]
    pub fn has_bytes_of(text: &str, dtype: Dtype) -> bool {
        let is_swapped = || Spelling::of(text).is_some_and(|read| read.order == '>');
        Self::itemsize(text) == Some(dtype.itemsize()) && (dtype.itemsize() == 1 || !is_swapped())
    }

    /// The typestr in the spelling that every reader knows; `None` if it has that spelling.
    #[doc(hidden)]
    pub fn respelled(text: &str) -> Option<String> {
        let Spelling { order, letter, digits, .. } = Spelling::of(text)?;
        let order = if matches!(letter, 'V' | 'S' | 'a') { '|' } else { order };
        let is_usual = text.starts_with(['<', '>', '|']) && text.len() > 2;
        (!is_usual).then(|| format!("{order}{letter}{digits}"))
    }

    /// The number that an item's address is a multiple of, where a GPU reads it as the typestr's type. Complex numbers are
    /// read whole: CUDA's own (`float2`, `double2`), thrust's and PyTorch's are aligned so, and the compiler loads both
    /// parts at once. The characters of text are of four bytes; what is inside of records is their reader's to know.
    #[doc(hidden)]
    pub fn alignment(text: &str) -> u64 {
        match Spelling::of(text) {
            Some(Spelling { letter: 'U', .. }) => 4,
            Some(Spelling { letter: 'V' | 'S' | 'a' | 'O' | 't', .. }) | None => 1,
            Some(Spelling { size, .. }) if matches!(size, 2 | 4 | 8 | 16) => size.unsigned_abs(),
            Some(_) => 1,
        }
    }

    /// Whether both name the same type.
    #[doc(hidden)]
    pub fn is_same(text: &str, other: &str) -> bool {
        let of = |text| {
            let Spelling { order, letter, size, digits } = Spelling::of(text)?;
            let unit = digits.find('[').and_then(|at| digits.get(at..));
            let is_free = matches!(letter, 'V' | 'S' | 'a') || (size == 1 && letter != 'U');
            let order = if is_free { '|' } else { order };
            Some((order, if letter == 'a' { 'S' } else { letter }, size, unit))
        };
        text == other || of(text).is_some_and(|read| Some(read) == of(other))
    }

    /// Whether it is some type of bytes, which may have fields.
    #[doc(hidden)]
    pub fn may_have_fields(text: &str) -> bool {
        Spelling::of(text).is_some_and(|read| read.letter == 'V')
    }

    /// The spellings that the table does not have, and the refusals.
    fn parse_uncommon(text: &str) -> Result<Self> {
        let malformed = || Error::new(Kind::Typestr, format!("{text:?}"));
        let Spelling { order, letter, size, .. } = Spelling::of(text).ok_or_else(malformed)?;
        let has_more = matches!(letter, 'm' | 'M' | 'O');
        let plain = format!("{order}{letter}{size}");
        if size > 0 && !has_more && plain != text {
            // Another spelling of the same. As NumPy has it, leading zeros are no part of a size.
            return Self::parse(&plain);
        }
        match letter {
            'f' if size == 1 => return Ok(Self::Opaque(1)),
            'V' if (size == 1 || order != '>') && is_opaque(size) => {
                return Ok(Self::Opaque(size));
            }
            'b' | 'i' | 'u' if size == 1 => return Self::parse(&format!("|{letter}1")),
            _ => {}
        }
        match (order, letter) {
            ('>', 'i' | 'u' | 'f' | 'c' | 'V') => {
                Err(Error::new(Kind::BigEndian, format!("{text:?}")))
            }
            ('|', 'i' | 'u' | 'f' | 'c') => Err(malformed()),
            _ => Err(Error::at(Kind::Dtype, "typestr", format!("{text:?}"))),
        }
    }

    /// The type, with `name` saying which where the typestr does not.
    ///
    /// # Errors
    ///
    /// No name where one is needed, or one of a type that is not the typestr's.
    pub fn resolve(self, text: &str, name: Option<&str>) -> Result<Dtype> {
        match (self, name) {
            (Self::Exact(dtype), Some(name)) if name != dtype.name() => {
                let got = format!("the type name {name:?} beside the typestr {text:?}");
                Err(Error::new(Kind::DtypeDiffers, got))
            }
            (Self::Exact(dtype), _) => Ok(dtype),
            (Self::Opaque(_), None) => Err(Error::new(Kind::DtypeAmbiguous, format!("{text:?}"))),
            (Self::Opaque(size), Some(name)) => match Dtype::from_name(name) {
                Some(dtype) if dtype.is_opaque() && dtype.itemsize() == size => Ok(dtype),
                known => {
                    let got = format!("{text:?} with the type name {name:?}");
                    let other = known.map(Dtype::itemsize).filter(|other| *other != size);
                    let why = other.map(|other| format!(", whose itemsize is {other}"));
                    Err(Error::new(Kind::DtypeAmbiguous, got + &why.unwrap_or_default()))
                }
            },
        }
    }
}

/// A well-formed typestr, taken apart, as the array interface writes it.
///
/// NumPy and CuPy read three spellings more, and so do we where they are sure: `=` for the byte order of this machine,
/// no byte order at all, which means the same, and a character of one type in place of letter and size, as DALI's `=f`
/// and `=B`. Characters whose size is the compiler's, as `l`, are refused.
struct Spelling<'a> {
    order: char,
    letter: char,
    /// The size in bytes; of text in characters.
    size: i64,
    /// All that follows the letter.
    digits: &'a str,
}

/// The letter and the size that a character alone stands for, as NumPy's `dtype.char` and Python's `struct` agree.
const fn by_character(character: char) -> Option<(char, &'static str)> {
    Some(match character {
        '?' => ('b', "1"),
        'b' => ('i', "1"),
        'h' => ('i', "2"),
        'i' => ('i', "4"),
        'q' => ('i', "8"),
        'B' => ('u', "1"),
        'H' => ('u', "2"),
        'I' => ('u', "4"),
        'Q' => ('u', "8"),
        'e' => ('f', "2"),
        'f' => ('f', "4"),
        'd' => ('f', "8"),
        'F' => ('c', "8"),
        'D' => ('c', "16"),
        _ => return None,
    })
}

impl<'a> Spelling<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (order, rest) = match text.chars().next()? {
            order @ ('<' | '>' | '|') => (order, text.get(1..)?),
            '=' => ('<', text.get(1..)?),
            _ => ('<', text),
        };
        let mut letters = rest.chars();
        let letter = letters.next()?;
        if letters.as_str().is_empty()
            && let Some((letter, digits)) = by_character(letter)
        {
            // A byte has no order, and what is longer has one.
            let (is_byte, is_free) = (digits == "1", order == '|');
            let order = if is_byte { '|' } else { order };
            let size = digits.parse().ok()?;
            return (is_byte || !is_free).then_some(Self { order, letter, size, digits });
        }
        let known = matches!(
            letter,
            'b' | 'i' | 'u' | 'f' | 'c' | 'V' | 'S' | 'a' | 'U' | 'O' | 'm' | 'M' | 't'
        );
        if !known {
            return None;
        }
        let digits = letters.as_str();
        // Times have a unit in brackets; nothing else has.
        let unit = if matches!(letter, 'm' | 'M') { digits.find('[') } else { None };
        let number = unit.and_then(|at| digits.get(..at)).unwrap_or(digits);
        let size = match number {
            "" if letter == 'O' => 8,
            _ if number.bytes().all(|byte| byte.is_ascii_digit()) => number.parse().ok()?,
            _ => return None,
        };
        Some(Self { order, letter, size, digits })
    }
}
