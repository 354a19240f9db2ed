//! The table of strangers: each row says what it is and what must come out.

use cai_bridge::descriptor::Descriptor;
use cai_bridge::device::Device;
use cai_bridge::dtype::Dtype;
use cai_bridge::error::Kind;
use cai_bridge::layout::Layout;
use toml::Value;

use crate::tables::{int, ints, rows, table, text};

#[test]
fn each_row_says_what_a_stranger_does_and_what_must_come_out() {
    let expected = [
        ("pending", &["kind", "does", "door", "asked", "says", "waits"][..]),
        ("memory", &["kind", "does", "by"]),
        ("renamed", &["form", "does"]),
        ("destructor", &["kind", "does", "form"]),
        ("question", &["kind", "does", "answer"]),
        ("known", &["kind", "does"]),
        ("changed", &["first", "then"]),
        ("compact", &["shape", "strides", "taken"]),
        ("container", &["kind"]),
        ("host", &["kind", "to"]),
        ("dlpacks_alone", &["does", "code", "bits", "lanes", "shape", "bytes", "refused"]),
    ];
    let all = table("strangers.toml");
    assert_eq!(all.len(), expected.len(), "a section that no test reads");
    for (section, keys) in expected {
        for row in rows(&all, section) {
            assert!(keys.iter().all(|key| row.contains_key(*key)), "{section}: {row:?}");
        }
    }
}

#[test]
fn what_is_refused_is_a_kind_of_error() {
    let all = table("strangers.toml");
    for section in ["memory", "changed", "dlpacks_alone"] {
        for row in rows(&all, section) {
            if row.contains_key("refused") {
                let name = text(&row, "refused");
                assert!(Kind::ALL.iter().any(|kind| kind.name() == name), "{row:?}");
            }
        }
    }
}

#[test]
fn what_is_compact_is_so_in_some_order_of_its_axes() {
    for row in rows(&table("strangers.toml"), "compact") {
        let (shape, strides) = (ints(&row["shape"]), ints(&row["strides"]));
        let (layout, _) = Layout::from_elements(&shape, Some(&strides), 4).unwrap();
        assert_eq!(layout.is_compact(), row["taken"].as_bool().unwrap(), "{row:?}");
    }
}

#[test]
fn who_waits_for_a_stranger_is_as_the_plan_has_it() {
    use cai_bridge::stream::{Ready, Request, Stream, plan};
    for row in rows(&table("strangers.toml"), "pending") {
        let trusted = text(&row, "kind") == "dict of a trusted type";
        let ready = if trusted { Ready::Nothing } else { Ready::Unsaid };
        let request = match text(&row, "asked") {
            "none" => Request::Unspecified,
            "-1" => Request::NoOrder,
            _ => Request::On(Stream::Handle(7)),
        };
        let waits = row["waits"] == Value::Integer(1);
        assert_eq!(plan(ready, request).is_none(), waits, "{row:?}");
    }
}

#[test]
fn a_type_that_dlpack_alone_has_takes_the_bytes_that_its_row_says() {
    for row in rows(&table("strangers.toml"), "dlpacks_alone") {
        let number = |key: &str| int(&row, key);
        let (code, bits, lanes) =
            (number("code") as u8, number("bits") as u8, number("lanes") as u16);
        let padded = row.get("padded").is_some_and(|padded| padded.as_bool().unwrap());
        let dtype = Dtype::of_dlpack(code, bits, lanes).unwrap().with_padding(padded);
        assert!(!dtype.is_shared() && dtype.is_padded() == padded, "{row:?}");
        assert_eq!(dtype.check_shared().unwrap_err().kind().name(), text(&row, "refused"));
        let shape = ints(&row["shape"]);
        let strides = row.get("strides").map(ints);
        let layout =
            Layout::from_elements(&shape, strides.as_deref(), dtype.element_size()).unwrap();
        let array = Descriptor::new(4096, dtype, layout, Device::cuda(0), false).unwrap();
        assert_eq!(array.nbytes(), number("bytes"), "{row:?}");
        if !row.contains_key("gaps") {
            let start = if array.nbytes() == 0 { 0 } else { 4096 };
            assert_eq!(array.span(), (start, number("bytes").unsigned_abs()), "{row:?}");
        }
        assert_eq!(array.cai_shape().as_slice(), shape, "no dimension of its own for lanes");
    }
}
