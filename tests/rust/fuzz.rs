//! Every input that the fuzzer has kept, by the body that it was kept for.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, panic};

use crate::bodies::ALL;

#[test]
fn every_target_stands_its_corpus() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let names = |folder: &Path| -> BTreeSet<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let targets = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&corpora), targets, "a corpus for each target, and no other");
    for (target, body) in ALL {
        let corpus = corpora.join(target);
        let inputs = names(&corpus);
        assert!(!inputs.is_empty(), "{target} has no input");
        for input in inputs {
            let data = fs::read(corpus.join(&input)).unwrap();
            let stood = panic::catch_unwind(|| body(&data));
            assert!(stood.is_ok(), "fuzz/corpus/{target}/{input}");
        }
    }
}
