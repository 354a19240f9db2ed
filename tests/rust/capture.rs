//! Edges during graph captures: the rule as a table, and what an order does by it.

use cai_bridge::capture::{CaptureStatus, Direction, Route, host_route, route};
use cai_bridge::stream::Stream;
use toml::Value;

use crate::tables::{rows, table, text};

fn status(value: &Value) -> CaptureStatus {
    match value {
        Value::Integer(number) => CaptureStatus::Inside(*number as u64),
        Value::String(text) if text == "outside" => CaptureStatus::Outside,
        Value::String(text) if text == "beside" => CaptureStatus::Beside,
        other => panic!("{other:?}"),
    }
}

fn name(route: Route) -> &'static str {
    match route {
        Route::Plain => "plain",
        Route::Edge => "edge",
        Route::External => "external",
        Route::Pointless => "pointless",
        Route::Refused(kind) => kind.name(),
    }
}

#[test]
fn the_route_of_an_edge_is_the_table() {
    for (section, direction) in [
        ("hand_over", Direction::HandOver),
        ("unsaid", Direction::Unsaid),
        ("give_back", Direction::GiveBack),
    ] {
        for row in rows(&table("capture.toml"), section) {
            let to = match row.get("to") {
                Some(_) => Stream::Legacy,
                None => Stream::Handle(7),
            };
            let got = name(route(direction, status(&row["from"]), to, status(&row["status"])));
            assert_eq!(got, text(&row, "route"), "{section}: {row:?}");
        }
    }
}

#[test]
fn the_route_of_a_wait_of_the_host_is_the_table() {
    for row in rows(&table("capture.toml"), "host") {
        assert_eq!(name(host_route(status(&row["status"]))), text(&row, "route"), "{row:?}");
    }
}
