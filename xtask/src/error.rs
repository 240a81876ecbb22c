//! Why a task failed.

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

pub(crate) type Result<T> = std::result::Result<T, TaskError>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    #[error("{0}")]
    Usage(&'static str),
    #[error("{path:?}")]
    File { path: PathBuf, source: io::Error },
    #[error("{program} can't be started")]
    Program { program: String, source: io::Error },
    #[error("`{command}` ended with {status}")]
    Command { command: String, status: ExitStatus },
    #[error("{file} has no {what}")]
    Format { file: &'static str, what: String },
    #[error("{0} failed")]
    Failed(String),
    #[error("what {command} said is not the JSON it should be")]
    Json {
        command: &'static str,
        source: serde_json::Error,
    },
    #[error(transparent)]
    Proof(#[from] crate::proof::ProofError),
}

impl TaskError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    pub(crate) fn program(command: &Command) -> impl FnOnce(io::Error) -> Self {
        let program = command.get_program().to_string_lossy().into_owned();
        move |source| Self::Program { program, source }
    }
}
