use cai_bridge::device::Place;
use cai_bridge::stream::{Alive, Elided, Ready, Request, Stream, Thread, between, plan};
use toml::{Table, Value};

use crate::alive::{alive, at};
use crate::tables::{int, rows, table, text};

const HERE: Thread = Thread::numbered(1);

fn stream(value: &Value) -> Stream {
    match value {
        Value::Integer(handle) => Stream::Handle(*handle as u64),
        Value::String(text) if text == "legacy" => Stream::Legacy,
        Value::String(text) => Stream::PerThread(Thread::numbered(
            text.strip_prefix("thread:").unwrap().parse().unwrap(),
        )),
        other => panic!("{other:?}"),
    }
}

#[test]
fn integers_name_streams_as_both_specifications_have_it() {
    for row in rows(&table("stream.toml"), "dialect") {
        let value = i128::from(int(&row, "value"));
        let (cai, dlpack) =
            (Ready::from_cai(Some(value), HERE), Request::from_integer(Some(value), HERE));
        if let Some(kind) = row.get("kind") {
            let in_dict = row.get("in_dict").unwrap_or(kind);
            assert_eq!(cai.unwrap_err().kind().name(), in_dict.as_str().unwrap());
            assert_eq!(dlpack.unwrap_err().kind().name(), kind.as_str().unwrap());
            continue;
        }
        let named = stream(&row["stream"]);
        assert_eq!(cai.unwrap(), Ready::On(named));
        assert_eq!(dlpack.unwrap(), Request::On(named));
        assert_eq!(Ready::On(named).to_cai(HERE), Some(value as u64));
        assert_eq!(Stream::from_native(value as u64, HERE), named);
    }
}

#[test]
fn none_and_minus_one_mean_what_each_dialect_says() {
    assert_eq!(Ready::from_cai(None, HERE).unwrap(), Ready::Nothing);
    assert_eq!(Ready::from_cai(Some(-1), HERE).unwrap_err().kind().name(), "StreamNoOrder");
    assert_eq!(Request::from_integer(None, HERE).unwrap(), Request::Unspecified);
    assert_eq!(Request::from_integer(None, HERE).unwrap().or_legacy(), Request::On(Stream::Legacy));
    assert_eq!(Request::from_integer(Some(-1), HERE).unwrap().or_legacy(), Request::NoOrder);
    assert_eq!(Stream::from_native(0, HERE), Stream::Legacy);
}

#[test]
fn the_plan_is_the_table() {
    for row in rows(&table("stream.toml"), "plan") {
        let ready = match &row["ready"] {
            Value::String(text) if text == "nothing" => Ready::Nothing,
            Value::String(text) if text == "unsaid" => Ready::Unsaid,
            value => Ready::On(stream(value)),
        };
        let request = match &row["request"] {
            Value::String(text) if text == "unsaid" => Request::Unspecified,
            Value::Integer(-1) => Request::NoOrder,
            value => Request::On(stream(value)),
        };
        match (plan(ready, request), ready.stream(), request) {
            (Some(why), ..) => assert_eq!(why.as_str(), text(&row, "elided"), "{row:?}"),
            (None, Some(from), Request::On(to)) => is_the_edge_of(&row, alive(from), alive(to)),
            other => panic!("{other:?}"),
        }
    }
}

fn is_the_edge_of(row: &Table, from: Alive<'_>, to: Alive<'_>) {
    match between(from, to) {
        Some(why) => assert_eq!(why.as_str(), text(row, "elided"), "{row:?}"),
        None => {
            let named = |alive: Alive<'_>| alive.stream().seen_from(HERE);
            assert_eq!(
                (named(from), named(to)),
                (stream(&row["from"]), stream(&row["to"])),
                "{row:?}"
            );
        }
    }
}

#[test]
fn the_way_back_is_the_table() {
    for row in rows(&table("stream.toml"), "give_back") {
        is_the_edge_of(&row, alive(stream(&row["consumer"])), alive(stream(&row["home"])));
    }
}

#[test]
fn a_default_stream_is_another_one_on_another_device_and_a_handle_is_not() {
    let (here, there) = (Place::gpu(0), Place::gpu(1));
    for default in [Stream::Legacy, Stream::PerThread(HERE)] {
        assert!(!at(here, default).is(at(there, default)));
        assert_eq!(between(at(here, default), at(there, Stream::Legacy)), None);
    }
    let handle = Stream::Handle(7);
    assert!(at(here, handle).is(at(there, handle)));
    assert_eq!(between(at(here, handle), at(there, handle)), Some(Elided::SameStream));
}

#[test]
fn what_is_alive_is_named_as_the_calling_thread_can() {
    let (own, other) =
        (Alive::per_thread(Place::gpu(0)), alive(Stream::PerThread(Thread::numbered(0))));
    assert_eq!((own.native(), other.native(), alive(Stream::Handle(9)).native()), (2, 1, 9));
    assert_eq!(Alive::default_stream(Stream::Handle(9), Place::gpu(0)).map(Alive::native), None);
    assert_eq!(Alive::legacy(Place::gpu(3)).place().ordinal, 3);
}

#[test]
fn each_thread_has_a_number_of_its_own() {
    let here = Thread::current();
    assert_eq!(here, Thread::current());
    assert_ne!(here, std::thread::spawn(Thread::current).join().unwrap());
}

#[test]
fn a_dict_read_on_another_thread_does_not_name_that_threads_own_stream() {
    let ready = Ready::On(Stream::PerThread(HERE));
    assert_eq!(ready.to_cai(HERE), Some(2));
    assert_eq!(ready.to_cai(Thread::numbered(2)), Some(1));
    assert_eq!(Ready::Nothing.to_cai(Thread::numbered(2)), None);
    assert_eq!(Ready::Unsaid.to_cai(Thread::numbered(2)), Some(1));
}

#[test]
fn a_stream_is_told_by_its_role_and_its_integer() {
    assert_eq!(Stream::Legacy.to_string(), "the legacy default stream (1)");
    assert_eq!(Stream::PerThread(HERE).to_string(), "the per-thread default stream (2)");
    assert_eq!(Stream::Handle(0x7000).to_string(), "the stream 0x7000");
}
