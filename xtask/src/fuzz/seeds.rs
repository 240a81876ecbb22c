//! Inputs to begin with, made of the golden files.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Result, TaskError};
use crate::repo::Repo;

/// Bytes before a frame's payload.
const HEADER: usize = 5;
const STDOUT: u8 = 2;
const DATA: u8 = 4;
/// The operations that the target `agent_client` knows; its first byte chooses one.
const OPERATIONS: u8 = 10;

type Seeds = Vec<(String, Vec<u8>)>;

/// The seeds of a target, each with a name for its file.
pub(super) fn of(repo: &Repo, target: &str) -> Result<Seeds> {
    Ok(match target {
        "agent_messages" => agent(repo)?
            .into_iter()
            .map(|(name, frame)| (name, frame[HEADER..].to_vec()))
            .collect(),
        "keeper_messages" => {
            let folder = repo.path("crates/proto/tests");
            let mut seeds = Seeds::new();
            // Its name has the protocol's version.
            for entry in std::fs::read_dir(&folder).map_err(TaskError::file(&folder))? {
                let path = entry.map_err(TaskError::file(&folder))?.path();
                if path
                    .extension()
                    .is_some_and(|extension| extension == "golden")
                {
                    seeds.extend(golden(&path)?);
                }
            }
            seeds
        }
        "frames" => {
            let stream = agent(repo)?.into_values().flatten();
            let stream: Vec<u8> = stream.collect();
            [0, 6, 255]
                .map(|piece| (piece.to_string(), with(piece, &stream)))
                .into()
        }
        "agent_client" => client(&agent(repo)?),
        "job_log" => {
            let path = repo.path("crates/state/tests/joblog-1.bin");
            let log = std::fs::read(&path).map_err(TaskError::file(path))?;
            let length = (log.len() as u16).to_le_bytes();
            vec![
                ("current".to_owned(), [&[0, 0], &log[..]].concat()),
                ("both".to_owned(), [&length, &log[..], &log[..]].concat()),
            ]
        }
        _ => Vec::new(),
    })
}

/// Each answer to each operation, and whole conversations.
fn client(frames: &BTreeMap<String, Vec<u8>>) -> Seeds {
    let mut talks: Vec<(String, Vec<u8>)> = frames
        .iter()
        .map(|(name, frame)| (name.clone(), frame.clone()))
        .collect();
    let frame = |name: &str| frames.get(name).cloned().unwrap_or_default();
    let raw = |kind: u8, bytes: &[u8]| {
        let mut frame = (bytes.len() as u32).to_le_bytes().to_vec();
        frame.push(kind);
        frame.extend_from_slice(bytes);
        frame
    };
    let exec = [frame("started"), raw(STDOUT, b"hello\n"), frame("exit")];
    talks.push(("talk-exec".to_owned(), exec.concat()));
    let data = [frame("chunk"), raw(DATA, b"bytes")].concat();
    for with_entry in [frame("entry"), Vec::new()] {
        let name = format!("talk-copy-{}", with_entry.len());
        talks.push((name, [with_entry, data.clone(), frame("done")].concat()));
    }
    (0..OPERATIONS)
        .flat_map(|operation| {
            talks
                .iter()
                .map(move |(name, bytes)| (format!("{operation}-{name}"), with(operation, bytes)))
        })
        .collect()
}

fn with(first: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    bytes.extend_from_slice(rest);
    bytes
}

fn agent(repo: &Repo) -> Result<BTreeMap<String, Vec<u8>>> {
    golden(&repo.path("crates/proto/tests/golden/agent.txt"))
}

/// A file of lines with a name and bytes in hexadecimal digits.
fn golden(file: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let text = std::fs::read_to_string(file).map_err(TaskError::file(file))?;
    let line = |line: &str| {
        let (name, digits) = line.split_once(' ')?;
        let bytes = digits.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16).ok()
        });
        Some((name.to_owned(), bytes.collect::<Option<Vec<u8>>>()?))
    };
    text.lines()
        .map(line)
        .collect::<Option<_>>()
        .ok_or_else(|| TaskError::Format {
            file: "a golden file",
            what: "name and hexadecimal digits in each line".to_owned(),
        })
}
