//! `cosm logs`

use std::time::SystemTime;

use cosm::{ByteString, LogOptions, LogPiece, LogStream, Logs};
use cosm_base::exit;
use serde_json::json;

use crate::args::{LogsArgs, StreamArg};
use crate::error::Result;
use crate::output;
use crate::stdio::pump::Target;

pub(super) fn run(args: LogsArgs) -> Result<u8> {
    let host = super::host()?;
    let mut options = LogOptions::default();
    if let Some(age) = args.since {
        options = options.since(
            SystemTime::now()
                .checked_sub(age)
                .unwrap_or(SystemTime::UNIX_EPOCH),
        );
    }
    if let Some(lines) = args.tail {
        options = options.tail(lines);
    }
    options = match args.stream {
        Some(StreamArg::Stdout) => options.stream(LogStream::Stdout),
        Some(StreamArg::Stderr) => options.stream(LogStream::Stderr),
        None => options,
    };
    if args.follow {
        options = options.follow();
    }
    super::wait_for(async {
        let sandbox = host.get(&args.name).await?;
        let logs = sandbox.logs(&args.job, options).await?;
        show(logs, args.format.json, args.timestamps).await?;
        Ok(exit::OK)
    })
}

async fn show(mut logs: Logs, json: bool, timestamps: bool) -> Result<()> {
    let (mut out, mut err) = (Target::stdout(), Target::stderr());
    let mut line_begins = true;
    while let Some(piece) = logs.next().await? {
        if json {
            output::line(&piece_json(&piece))?;
            continue;
        }
        let target = match piece.stream {
            LogStream::Stdout => &mut out,
            LogStream::Stderr => &mut err,
        };
        if timestamps {
            target.write(&stamped(&piece, &mut line_begins))?;
        } else {
            target.write(&piece.bytes)?;
        }
        if target.is_gone() {
            return Ok(());
        }
    }
    Ok(())
}

/// One piece a line, so that it can be read while it grows.
fn piece_json(piece: &LogPiece) -> String {
    let stream = match piece.stream {
        LogStream::Stdout => "stdout",
        LogStream::Stderr => "stderr",
    };
    let text = ByteString::from(piece.bytes.as_slice());
    json!({ "time": output::time(piece.time_ms), "stream": stream, "text": text }).to_string()
}

fn stamped(piece: &LogPiece, line_begins: &mut bool) -> Vec<u8> {
    let stamp = output::time(piece.time_ms);
    let mut out = Vec::with_capacity(piece.bytes.len() + stamp.len() + 1);
    for line in piece.bytes.split_inclusive(|b| *b == b'\n') {
        if *line_begins {
            out.extend_from_slice(stamp.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(line);
        *line_begins = line.ends_with(b"\n");
    }
    out
}
