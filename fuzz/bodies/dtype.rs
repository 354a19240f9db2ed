//! Fuzzes element types against a second implementation of the typestr grammar.

use cai_bridge::dtype::{Dtype, Typestr};
use cai_bridge::error::Kind;

use super::choices::{Bytes, Choices};

pub fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    if bytes.flag() {
        from_dlpack(bytes.byte(), bytes.byte(), u16::from_le_bytes(bytes.take()));
    } else {
        let name = name(&mut bytes);
        parse(&String::from_utf8_lossy(bytes.slice(24)), name.as_deref());
    }
}

/// The name that an object gives for its element type, if any.
pub fn name(bytes: &mut Bytes<'_>) -> Option<String> {
    match bytes.byte() {
        0 => None,
        known @ 1..=200 => Dtype::all().nth(usize::from(known) % 23).map(|d| d.name().to_owned()),
        _ => Some(String::from_utf8_lossy(bytes.slice(8)).into_owned()),
    }
}

/// A typestr from the table, or any text.
pub fn typestr(bytes: &mut Bytes<'_>) -> String {
    if bytes.byte() < 200 {
        let at = bytes.below(23);
        Dtype::all().nth(at).unwrap().typestr().to_owned()
    } else {
        String::from_utf8_lossy(bytes.slice(6)).into_owned()
    }
}

fn from_dlpack(code: u8, bits: u8, lanes: u16) {
    let row = Dtype::all().find(|dtype| (dtype.code(), dtype.bits()) == (code, bits));
    match (Dtype::from_dlpack(code, bits, lanes), row) {
        (Ok(dtype), Some(row)) => {
            assert_eq!((dtype.code(), dtype.bits(), dtype.lanes()), (code, bits, lanes));
            assert!(lanes > 0 && dtype.index() == row.index());
            assert_eq!(dtype.itemsize() * 8, i64::from(bits));
            assert_eq!(dtype.element_size(), dtype.itemsize() * i64::from(lanes));
            assert_eq!(Dtype::from_name(dtype.name()), Some(row));
            assert!(!dtype.is_complex() || dtype.is_inexact());
            let typestr = dtype.typestr();
            let read = Typestr::parse(typestr).unwrap().resolve(typestr, Some(dtype.name()));
            assert_eq!(read.unwrap(), row);
        }
        (Err(error), row) => assert_eq!(
            error.kind(),
            match (lanes, row, bits % 8) {
                (0, ..) => Kind::Lanes,
                (_, None, 0) => Kind::Dtype,
                (_, None, _) => Kind::SubByte,
                (_, Some(row), _) => panic!("{row:?} is refused: {error}"),
            }
        ),
        (Ok(dtype), None) => panic!("{dtype:?} is no row's"),
    }
}

/// The meaning of a typestr.
enum Meant {
    /// A letter and a size, in native byte order.
    Native(char, i64),
    BigEndian,
    /// Well formed, but a type that the bridge does not know.
    Unknown,
    Malformed,
}

/// The types that one character names, in the order of the characters in [`meant`].
const NAMED: [(char, i64); 14] = [
    ('b', 1),
    ('i', 1),
    ('i', 2),
    ('i', 4),
    ('i', 8),
    ('u', 1),
    ('u', 2),
    ('u', 4),
    ('u', 8),
    ('f', 2),
    ('f', 4),
    ('f', 8),
    ('c', 8),
    ('c', 16),
];

/// Parses a byte order (`<`, `>`, `|`, `=` or none), then a letter with a size, or one character for both. Only `m` and
/// `M` may have a unit in brackets.
fn meant(text: &str) -> Meant {
    let (order, rest) = match text.chars().next() {
        Some(order @ ('<' | '>' | '|')) => (order, &text[1..]),
        Some('=') => ('<', &text[1..]),
        _ => ('<', text),
    };
    let mut letters = rest.chars();
    let Some(letter) = letters.next() else { return Meant::Malformed };
    let mut size = letters.as_str();
    if let Some(at) = "?bhiqBHIQefdFD".find(letter).filter(|_| size.is_empty()) {
        return match (order, NAMED[at]) {
            (_, (letter, 1)) => Meant::Native(letter, 1),
            ('>', _) => Meant::BigEndian,
            ('|', _) => Meant::Malformed,
            (_, (letter, size)) => Meant::Native(letter, size),
        };
    }
    if !"biufcVSaUOmMt".contains(letter) {
        return Meant::Malformed;
    }
    if matches!(letter, 'm' | 'M') {
        size = size.split('[').next().unwrap();
    }
    if letter == 'O' && size.is_empty() {
        return Meant::Unknown;
    }
    if !size.bytes().all(|digit| digit.is_ascii_digit()) {
        return Meant::Malformed;
    }
    let Ok(size) = size.parse() else { return Meant::Malformed };
    match (order, letter, size) {
        (_, 'b' | 'i' | 'u' | 'f' | 'V', 1) => Meant::Native(letter, 1),
        ('>', 'i' | 'u' | 'f' | 'c' | 'V', _) => Meant::BigEndian,
        ('|', 'i' | 'u' | 'f' | 'c', _) => Meant::Malformed,
        _ => Meant::Native(letter, size),
    }
}

fn parse(text: &str, name: Option<&str>) {
    let read = Typestr::parse(text);
    let kind = read.as_ref().err().map(|error| error.kind());
    match meant(text) {
        Meant::Malformed => assert_eq!(kind, Some(Kind::Typestr), "{text:?}"),
        Meant::BigEndian => assert_eq!(kind, Some(Kind::BigEndian), "{text:?}"),
        Meant::Unknown => assert_eq!(kind, Some(Kind::Dtype), "{text:?}"),
        Meant::Native('V', size @ 1..=2) | Meant::Native('f', size @ 1) => {
            assert_eq!(read.as_ref().ok(), Some(&Typestr::Opaque(size)), "{text:?}");
        }
        Meant::Native(letter, size) => {
            let exact =
                Dtype::all().find(|dtype| dtype.typestr()[1..] == format!("{letter}{size}"));
            assert_eq!(read.clone().ok(), exact.map(Typestr::Exact), "{text:?}");
            assert_eq!(kind, exact.is_none().then_some(Kind::Dtype), "{text:?}");
        }
    }
    let Ok(read) = read else { return };
    match (read, read.resolve(text, name)) {
        (Typestr::Exact(dtype), resolved) => match name {
            Some(name) if name != dtype.name() => {
                assert_eq!(resolved.unwrap_err().kind(), Kind::DtypeDiffers);
            }
            _ => assert_eq!(resolved.unwrap(), dtype),
        },
        (Typestr::Opaque(size), Ok(dtype)) => {
            assert_eq!((Some(dtype.name()), dtype.itemsize(), dtype.lanes()), (name, size, 1));
            assert!(dtype.typestr().ends_with(&format!("V{size}")), "{dtype:?}");
        }
        (Typestr::Opaque(size), Err(error)) => {
            assert_eq!(error.kind(), Kind::DtypeAmbiguous);
            let known = name.and_then(Dtype::from_name);
            assert!(known.is_none_or(|d| !d.typestr().ends_with(&format!("V{size}"))), "{error}");
        }
    }
}
