use cai_bridge::stream::{Edge, Home, Ready, Request, Stream, Thread, plan, plan_return};
use toml::{Table, Value};

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
            assert_eq!(cai.unwrap_err().kind().name(), kind.as_str().unwrap());
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
    assert_eq!(Request::from_integer(None, HERE).unwrap(), Request::Unsaid);
    assert_eq!(Request::from_integer(None, HERE).unwrap().or_legacy(), Request::On(Stream::Legacy));
    assert_eq!(Request::from_integer(Some(-1), HERE).unwrap().or_legacy(), Request::NoOrder);
    assert_eq!(Stream::from_native(0, HERE), Stream::Legacy);
}

#[test]
fn the_plan_is_the_table() {
    for row in rows(&table("stream.toml"), "plan") {
        let ready = match &row["ready"] {
            Value::String(text) if text == "nothing" => Ready::Nothing,
            value => Ready::On(stream(value)),
        };
        let request = match &row["request"] {
            Value::String(text) if text == "unsaid" => Request::Unsaid,
            Value::Integer(-1) => Request::NoOrder,
            value => Request::On(stream(value)),
        };
        is_the_edge_of(&row, plan(ready, request, HERE));
    }
}

fn is_the_edge_of(row: &Table, edge: Edge) {
    match edge {
        Edge::Elided(why) => assert_eq!(why.as_str(), text(row, "elided"), "{row:?}"),
        Edge::Order { from, to, unless_blocking } => {
            assert_eq!((from, to), (stream(&row["from"]), stream(&row["to"])), "{row:?}");
            let known = row.get("unless_blocking").and_then(Value::as_integer);
            assert_eq!(unless_blocking.map(|handle| handle as i64), known, "{row:?}");
        }
    }
}

#[test]
fn the_way_back_is_the_table() {
    let known = |value: &Value| (value.as_str() != Some("unknown")).then(|| stream(value));
    for row in rows(&table("stream.toml"), "give_back") {
        let home = known(&row["home"]).map_or(Home::Unknown, Home::On);
        is_the_edge_of(&row, plan_return(known(&row["consumer"]), home, HERE));
    }
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
}

#[test]
fn a_stream_is_told_by_its_role_and_its_integer() {
    assert_eq!(Stream::Legacy.to_string(), "the legacy default stream (1)");
    assert_eq!(Stream::PerThread(HERE).to_string(), "the per-thread default stream (2)");
    assert_eq!(Stream::Handle(0x7000).to_string(), "the stream 0x7000");
}
