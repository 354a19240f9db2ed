//! Edges during graph captures: the rule as a table, and what an order does by it.

use cai_bridge::capture::{Direction, Part, Route, route};
use cai_bridge::stream::Stream;
use toml::Value;

use crate::tables::{rows, table, text};

fn part(value: &Value) -> Part {
    match value {
        Value::Integer(number) => Part::Inside(*number as u64),
        Value::String(text) if text == "outside" => Part::Outside,
        Value::String(text) if text == "beside" => Part::Beside,
        other => panic!("{other:?}"),
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
            let got = match route(direction, part(&row["from"]), to, part(&row["part"])) {
                Route::Plain => "plain",
                Route::External => "external",
                Route::Pointless => "pointless",
                Route::Refused(kind) => kind.name(),
            };
            assert_eq!(got, text(&row, "route"), "{section}: {row:?}");
        }
    }
}
