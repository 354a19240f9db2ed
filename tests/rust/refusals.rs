use std::panic::{RefUnwindSafe, UnwindSafe};

use cai_bridge::Error;
use cai_bridge::cai::{self, Claim, Decoded, Dialect, Fields};
use cai_bridge::error::{Class, Kind};
use cai_bridge::layout::{Dims, Layout};
use cai_bridge::stream::{Ready, Stream, Thread};
use toml::{Table, Value};

use crate::tables::{rows, table, text};

const SECTIONS: [&str; 5] = ["cai", "tensor", "argument", "object", "rust"];

#[test]
fn an_error_goes_to_any_thread_and_out_of_a_panics_frame() {
    const fn goes<T: Send + Sync + UnwindSafe + RefUnwindSafe>() {}
    goes::<Error>();
}

#[test]
fn every_kind_of_error_has_a_row() {
    let table = table("refusals.toml");
    for kind in Kind::ALL {
        let found = SECTIONS.iter().any(|section| {
            rows(&table, section).iter().any(|row| text(row, "kind") == kind.name())
        });
        assert!(found, "no row of tests/data/refusals.toml raises {}", kind.name());
    }
}

#[test]
fn every_row_gives_its_kind_the_class_that_the_code_gives_it() {
    let table = table("refusals.toml");
    for row in SECTIONS.iter().flat_map(|section| rows(&table, section)) {
        let kind = Kind::ALL.iter().find(|kind| kind.name() == text(&row, "kind"));
        let kind = kind.unwrap_or_else(|| panic!("no such kind: {row:?}"));
        let class = match kind.class() {
            Class::Buffer => "BufferError",
            Class::Value => "ValueError",
            Class::Type => "TypeError",
            Class::Driver => "DriverError",
            other => panic!("{other:?} has no exception here"),
        };
        assert_eq!(class, text(&row, "class"), "{row:?}");
    }
}

fn dims(value: Option<&Value>) -> Option<Option<Dims>> {
    match value {
        None => Some(None),
        Some(Value::Array(items)) => {
            let items: Option<Vec<i64>> = items.iter().map(Value::as_integer).collect();
            items.map(|items| Some(items.into_iter().collect()))
        }
        Some(_) => None,
    }
}

/// The fields of a row, where they have the types that the core takes.
fn fields(set: &Table) -> Option<Fields<'_>> {
    let shape = dims(set.get("shape"))?.unwrap_or_else(|| [4].into_iter().collect());
    Some(Fields {
        shape,
        typestr: set.get("typestr").map_or(Some("<f4"), Value::as_str)?,
        data: (0x7000, false),
        strides: dims(set.get("strides"))?,
        version: set.get("version").map_or(Some(3), Value::as_integer)?,
        stream: set
            .get("stream")
            .map(Value::as_integer)
            .map_or(Some(None), |stream| stream.map(|s| Some(i128::from(s))))?,
        structured: false,
    })
}

fn dialect(unnamed: Option<Stream>) -> Dialect {
    Dialect { here: Thread::current(), unnamed, declared: false, goes_on: false, dtype: None }
}

fn decode(fields: &Fields<'_>, dialect: Dialect) -> cai_bridge::Result<Decoded> {
    let mut layout = Layout::EMPTY;
    cai::decode(fields, dialect, || None, &mut layout)
}

#[test]
fn refused_dicts_say_what_was_wrong_what_it_was_and_what_is_allowed() {
    let mut checked = 0;
    for row in rows(&table("refusals.toml"), "cai") {
        let Some(fields) = row.get("set").and_then(Value::as_table).and_then(fields) else {
            continue;
        };
        let is_for_cai = row.get("where").and_then(Value::as_str) == Some("CAI");
        if is_for_cai || row.contains_key("add") || text(&row, "got").contains("below") {
            continue; // needs the pointer: tests/python
        }
        let error = decode(&fields, dialect(None)).expect_err(&format!("{row:?}"));
        assert_eq!(error.kind().name(), text(&row, "kind"), "{row:?}");
        assert_eq!(error.field(), text(&row, "field"), "{row:?}");
        assert!(error.got().contains(text(&row, "got")), "{error}");
        assert_eq!(
            error.to_string(),
            format!("{}: got {}; allowed: {}", error.field(), error.got(), error.allowed())
        );
        checked += 1;
    }
    assert!(checked > 20, "{checked}");
}

/// A dict of two floats.
fn two_floats(version: i64, stream: Option<i128>) -> Fields<'static> {
    Fields {
        shape: [2].into_iter().collect(),
        strides: None,
        typestr: "<f4",
        data: (0x7000, false),
        version,
        stream,
        structured: false,
    }
}

#[test]
fn a_name_of_another_type_than_the_typestrs_is_refused() {
    let named = |typestr: &str, name| {
        let fields = Fields { typestr, ..two_floats(3, None) };
        fields.decode(name).map(|(decoded, _)| decoded.dtype.name()).map_err(|error| error.kind())
    };
    for name in [None, Some("float32")] {
        assert_eq!(named("<f4", name), Ok("float32"));
    }
    for name in ["int32", "float64", "no type"] {
        assert_eq!(named("<f4", Some(name)), Err(Kind::DtypeDiffers), "{name}");
    }
    let unnamed = Fields { typestr: "<V2", ..two_floats(3, None) }.decode(None).unwrap_err();
    assert_eq!(unnamed.got(), "\"<V2\" without a type_name");
    let records = Fields { typestr: "|V8", structured: true, ..two_floats(3, None) };
    assert_eq!(records.decode(None).unwrap_err().field(), "descr");
    assert_eq!(named("<V2", Some("bfloat16")), Ok("bfloat16"));
    assert_eq!(named("<V2", Some("float16")), Err(Kind::DtypeAmbiguous));
}

#[test]
fn a_stream_of_none_or_0_is_the_default_stream_of_a_producer_that_means_it_so() {
    let claim = |version: i64, stream: Option<i128>, unnamed: Option<Stream>| {
        decode(&two_floats(version, stream), dialect(unnamed)).map(|decoded| decoded.claim)
    };
    let said = |stream| Claim::Stated(Ready::On(stream));
    for default in [Stream::Legacy, Stream::PerThread(Thread::current())] {
        for unnamed in [None, Some(0)] {
            assert_eq!(claim(3, unnamed, Some(default)).unwrap(), said(default));
        }
        assert_eq!(claim(3, Some(7), Some(default)).unwrap(), said(Stream::Handle(7)));
    }
    assert_eq!(claim(3, None, None).unwrap(), Claim::Stated(Ready::Nothing));
    assert_eq!(claim(3, Some(0), None).unwrap_err().kind().name(), "StreamZero");
    assert_eq!(claim(2, None, Some(Stream::Legacy)).unwrap(), Claim::Silent);
}

#[test]
fn what_names_no_stream_need_not_be_understood_where_the_caller_says_one() {
    for (stream, version) in [(0, 2), (0, 3), (-1, 3)] {
        let fields = two_floats(version, Some(stream));
        let declared = Dialect { declared: true, ..dialect(None) };
        let decoded = decode(&fields, declared).unwrap();
        assert_eq!(decoded.claim, Claim::Silent);
        decode(&fields, dialect(None)).unwrap_err();
    }
}
