//! The table of strangers: each row says what it is and what must come out.

use cai_bridge::error::Kind;
use cai_bridge::layout::Layout;
use toml::Value;

use crate::tables::{ints, rows, table, text};

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
    for section in ["memory", "changed"] {
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
