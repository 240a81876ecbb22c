//! Stands in for the agent: process 1 of a guest that runs each connection's script in a shell of its own.
//!
//! A connection carries a script up to the end of input; the answer is its output and, as the last line, its code.
//! Built by the tests as a static program.

use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

fn main() {
    if std::env::var_os("PROBE_NOTHING").is_some() {
        return;
    }
    // SAFETY: descriptor 3 is the listening socket that the driver left for the agent.
    let listener = unsafe { UnixListener::from_raw_fd(3) };
    for connection in listener.incoming().flatten() {
        drop(serve(connection));
    }
}

fn serve(mut connection: UnixStream) -> std::io::Result<()> {
    let mut script = Vec::new();
    connection.read_to_end(&mut script)?;
    if script == b"exit" {
        std::process::exit(0);
    }
    let script = String::from_utf8_lossy(&script).into_owned();
    let output = Command::new("/bin/sh")
        .args(["-c", &format!("exec 2>&1; {script}")])
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => {
            connection.write_all(&output.stdout)?;
            writeln!(connection, "\n{}", output.status.code().unwrap_or(-1))
        }
        Err(error) => writeln!(connection, "{error}\n-2"),
    }
}
