//! The table of strangers: each row says what it is and what must come out.

use cai_bridge::cai::{Decoded, Dialect, Fields, decode, encode};
use cai_bridge::descriptor::Descriptor;
use cai_bridge::device::Device;
use cai_bridge::dtype::{Dtype, Typestr};
use cai_bridge::layout::Layout;
use cai_bridge::stream::{Ready, Thread};

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
        ("cais_alone", &["does", "set", "bytes", "refused"]),
        ("elsewhere", &["does", "refused"]),
        ("answers", &["does"]),
        ("written", &["typestr", "means"]),
        ("records", &["dtype", "does"]),
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
fn what_is_written_otherwise_means_what_the_array_interface_writes() {
    for row in rows(&table("strangers.toml"), "written") {
        let (written, means) = (text(&row, "typestr"), text(&row, "means"));
        assert!(Typestr::is_same(written, means), "{row:?}");
        assert_eq!(Typestr::itemsize(written), Typestr::itemsize(means), "{row:?}");
        assert_eq!(Typestr::alignment(written), Typestr::alignment(means), "{row:?}");
        assert_eq!(Typestr::parse(written).ok(), Typestr::parse(means).ok(), "{row:?}");
        assert_eq!(Typestr::parse(means).is_err(), row.contains_key("alone"), "{row:?}");
        let again = Typestr::respelled(written).unwrap_or_else(|| written.to_string());
        assert!(!row.contains_key("alone") || again == means, "{again}");
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
fn a_type_that_dlpack_alone_has_takes_the_bytes_that_its_row_says() {
    for row in rows(&table("strangers.toml"), "dlpacks_alone") {
        let number = |key: &str| int(&row, key);
        let (code, bits, lanes) =
            (number("code") as u8, number("bits") as u8, number("lanes") as u16);
        let padded = row.get("padded").is_some_and(|padded| padded.as_bool().unwrap());
        let dtype = Dtype::of_dlpack(code, bits, lanes).unwrap().with_padding(padded);
        assert!(!dtype.is_shared() && dtype.is_padded() == padded, "{row:?}");
        let refused = text(&row, "refused");
        assert_eq!(dtype.check_shared().unwrap_err().kind().name(), refused);
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
        let written = encode(&array, Ready::Nothing, Thread::numbered(1)).unwrap_err();
        assert_eq!(written.kind().name(), refused, "{row:?}");
    }
}

#[test]
fn a_type_that_the_other_protocol_alone_has_goes_on_by_its_bytes_or_is_refused() {
    for row in rows(&table("strangers.toml"), "cais_alone") {
        let set = row["set"].as_table().unwrap();
        let shape = ints(&set["shape"]);
        let strides = set.get("strides").map(ints);
        let start = row.get("start").map_or(0, |start| start.as_integer().unwrap().unsigned_abs());
        let fields = Fields {
            shape: shape.iter().copied().collect(),
            typestr: set["typestr"].as_str().unwrap(),
            data: (4096 + start, false),
            strides: strides.as_ref().map(|strides| strides.iter().copied().collect()),
            version: 3,
            stream: None,
            structured: row.contains_key("descr"),
        };
        let (bytes, mut layout) = (int(&row, "bytes"), Layout::EMPTY);
        let mut read = |goes_on| {
            let dialect = Dialect {
                here: Thread::numbered(1),
                unnamed: None,
                declared: false,
                goes_on,
                dtype: None,
            };
            decode(&fields, dialect, || None, &mut layout)
        };
        assert_eq!(read(false).unwrap_err().kind().name(), text(&row, "refused"), "{row:?}");
        let Decoded { dtype, reach, ptr, .. } = read(true).unwrap();
        assert!(dtype.is_cais_alone() && !dtype.is_shared());
        let gpu = Device::cuda(0);
        let array = Descriptor::new(ptr, dtype, (layout, reach), gpu, false).unwrap();
        let count: i64 = shape.iter().product();
        assert_eq!((array.cai_size(), array.nbytes()), (count, count * bytes), "{row:?}");
        assert_eq!((array.cai_itemsize(), array.cai_shape().as_slice()), (bytes, &shape[..]));
        let entries = encode(&array, Ready::Nothing, Thread::numbered(1)).unwrap();
        assert_eq!(entries.shape.collect::<Vec<_>>(), shape, "{row:?}");
        assert_eq!(entries.strides.map(Iterator::collect::<Vec<_>>), strides, "{row:?}");
    }
}
