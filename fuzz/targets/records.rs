//! The files that say how a sandbox is, damaged: a passing sandbox's, and the records of one that is kept.

#![no_main]

use std::fs;

use cosm_base::{Home, SandboxId};
use cosm_spec::SandboxSpec;
use cosm_state::{Filter, Page, PhaseRecord, Reader};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let home = Home::new(folder.path());
    let id = SandboxId::from_random([1; 8]);
    let dir = home.sandbox(id);
    fs::create_dir_all(dir.passing().parent().expect("a folder")).expect("a folder");
    fs::write(dir.passing(), bytes).expect("a file");

    if let Ok(Some(record)) = PhaseRecord::read(&dir) {
        record.write(&dir).expect("a record that was read");
        assert_eq!(
            PhaseRecord::read(&dir).expect("it reads back"),
            Some(record)
        );
    }
    fs::create_dir_all(dir.path()).expect("a folder");
    fs::rename(dir.passing(), dir.records()).expect("a file");
    if let Ok(Some(record)) = PhaseRecord::read(&dir) {
        record.write(&dir).expect("a record that was read");
    }
    drop(cosm_state::read_run(&dir));
    cosm_state::clear_run(&dir).expect("a file that can be written");
    assert_eq!(cosm_state::read_run(&dir).expect("it reads"), None);
    fs::copy(dir.records(), dir.passing()).expect("a file");
    let reader = Reader::new(&home);
    let page = Page {
        limit: 10,
        before: None,
    };
    let rows = reader.list(&Filter::default(), page).expect("a list");
    assert!(rows.len() <= 1);
    for row in rows {
        drop(SandboxSpec::from_stored(&row.spec));
        drop(reader.status(row.id));
    }
    drop(reader.leftovers());
    if let Ok(spec) = SandboxSpec::from_stored(bytes) {
        drop(spec.check());
        assert_eq!(
            SandboxSpec::from_stored(&spec.to_stored()).expect("it reads back"),
            spec
        );
    }
});
