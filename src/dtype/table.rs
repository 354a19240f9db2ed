//! The table's rows. `docs/generate.py dtypes` writes this file from `tests/data/dtype.toml`.

/// An element type: a row of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) code: u8,
    pub(super) bits: u8,
    pub(super) typestr: &'static str,
}

pub(super) const fn row(name: &'static str, code: u8, bits: u8, typestr: &'static str) -> Row {
    Row { name, code, bits, typestr }
}

/// Every type that both protocols can carry. The codes are `DLDataTypeCode`'s of DLPack 1.3.
pub(super) const TABLE: [Row; 23] = [
    row("bool", 6, 8, "|b1"),
    row("int8", 0, 8, "|i1"),
    row("int16", 0, 16, "<i2"),
    row("int32", 0, 32, "<i4"),
    row("int64", 0, 64, "<i8"),
    row("uint8", 1, 8, "|u1"),
    row("uint16", 1, 16, "<u2"),
    row("uint32", 1, 32, "<u4"),
    row("uint64", 1, 64, "<u8"),
    row("float16", 2, 16, "<f2"),
    row("float32", 2, 32, "<f4"),
    row("float64", 2, 64, "<f8"),
    row("complex64", 5, 64, "<c8"),
    row("complex128", 5, 128, "<c16"),
    row("bfloat16", 4, 16, "<V2"),
    row("float8_e3m4", 7, 8, "|V1"),
    row("float8_e4m3", 8, 8, "|V1"),
    row("float8_e4m3b11fnuz", 9, 8, "|V1"),
    row("float8_e4m3fn", 10, 8, "|V1"),
    row("float8_e4m3fnuz", 11, 8, "|V1"),
    row("float8_e5m2", 12, 8, "|V1"),
    row("float8_e5m2fnuz", 13, 8, "|V1"),
    row("float8_e8m0fnu", 14, 8, "|V1"),
];
