//! `cosm cp`

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cosm::{ByteString, FileKind, Fs, Host};
use cosm_base::{SandboxName, exit};

use crate::args::CpArgs;
use crate::error::{CliError, Result};
use crate::report;

/// One end of a copy.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Here(PathBuf),
    There { name: String, path: ByteString },
}

pub(super) fn run(args: CpArgs) -> Result<u8> {
    let host = super::host()?;
    let user = args.user;
    super::wait_for(async {
        let copied = match (end(args.from), end(args.to)) {
            (End::Here(from), End::There { name, path }) => {
                let fs = fs(&host, &name, user.as_deref()).await?;
                let to = inside(&fs, path, from.file_name()).await?;
                fs.copy_from_host(&from, to).await?
            }
            (End::There { name, path }, End::Here(to)) => {
                let fs = fs(&host, &name, user.as_deref()).await?;
                let to = outside(to, path.as_path().file_name());
                fs.copy_to_host(path, to).await?
            }
            _ => return Err(CliError::CopyEnds),
        };
        match copied.skipped {
            0 => {}
            count if copied.entries == count => return Err(CliError::CopyNothing),
            count => report::warning(&format!("{count} sockets or devices were left out")),
        }
        Ok(exit::OK)
    })
}

async fn fs(host: &Host, name: &str, user: Option<&str>) -> Result<Fs> {
    let fs = host.get(name).await?.fs();
    Ok(match user {
        Some(user) => fs.as_user(user),
        None => fs,
    })
}

/// NAME:PATH is in a sandbox; anything else, and whatever begins with '/' or '.', is here.
fn end(text: OsString) -> End {
    let bytes = text.as_bytes();
    let colon = bytes.iter().position(|b| *b == b':');
    if let Some(at) = colon.filter(|_| !matches!(bytes.first(), Some(b'/' | b'.')))
        && let Ok(name) = std::str::from_utf8(&bytes[..at])
        && name.parse::<SandboxName>().is_ok()
    {
        let name = name.to_owned();
        let path = bytes[at + 1..].into();
        return End::There { name, path };
    }
    End::Here(PathBuf::from(text))
}

/// Into a folder that is there goes a file of the same name.
async fn inside(fs: &Fs, to: ByteString, name: Option<&OsStr>) -> Result<ByteString> {
    let Some(name) = name else { return Ok(to) };
    let asks_for_folder = to.as_bytes().ends_with(b"/");
    let is_folder = asks_for_folder
        || fs
            .stat(to.clone())
            .await
            .is_ok_and(|entry| entry.kind == FileKind::Directory);
    Ok(if is_folder {
        to.as_path().join(name).into()
    } else {
        to
    })
}

fn outside(to: PathBuf, name: Option<&OsStr>) -> PathBuf {
    match name {
        Some(name) if to.is_dir() || ends_with_slash(&to) => to.join(name),
        _ => to,
    }
}

fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt as _;

    #[test]
    fn ends_are_told_apart() {
        let there = |name: &str, path: &str| End::There {
            name: name.into(),
            path: path.into(),
        };
        assert_eq!(end("box:/a:b".into()), there("box", "/a:b"));
        assert_eq!(end("box:".into()), there("box", ""));
        for here in ["/a:b", "./box:/a", "a", "../x:y", ":/a", "-x:/a"] {
            assert_eq!(end(here.into()), End::Here(here.into()), "{here}");
        }
        let odd = OsString::from_vec(b"box:/\xff".to_vec());
        assert_eq!(
            end(odd),
            End::There {
                name: "box".into(),
                path: b"/\xff".as_slice().into()
            }
        );
    }
}
