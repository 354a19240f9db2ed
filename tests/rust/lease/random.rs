//! Random sequences of ends, questions and failures, against a model of one line a rule.

use cai_bridge::lease::EndState;

use crate::bodies::choices::Random;
use crate::bodies::lease::Program;
use crate::events::Events;

#[test]
fn no_holder_is_dropped_twice_or_lost_or_settled_again_whatever_comes_in_whatever_order() {
    let mut ends = Vec::new();
    // Nobody listens to the warnings, which are others' matter.
    Events::by(|| {
        for seed in 1..=400 {
            let mut program = Program::new(Random(seed * 0x9E37_79B9));
            (0..80).for_each(|_| program.step());
            ends.extend(program.finish());
        }
    });
    for state in [None, Some(EndState::GivenBack), Some(EndState::Abandoned)] {
        let count = ends.iter().filter(|end| **end == state).count();
        assert!(count > 50, "the programs test something: {count} of {state:?}");
    }
}
