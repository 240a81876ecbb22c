//! Writing the maps of a guest's ids.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;

use cosm_driver::LaunchError;
use cosm_sys::idmap::{self, Extent, Kind};
use cosm_sys::{process, spawn};
use rustix::process::Pid;

use crate::explain;
use crate::host::{NEWGIDMAP, NEWUIDMAP};
use crate::ids::Ids;

/// Maps a guest's ids.
pub(crate) fn map_ids(pid: Pid, ids: &Ids) -> Result<(), LaunchError> {
    let failed = |e: io::Error| explain::ids(e, ids.helper);
    if ids.helper {
        return write_maps_with_helpers(pid, &ids.users, &ids.groups).map_err(failed);
    }
    if ids.deny_setgroups {
        idmap::deny_setgroups(pid).map_err(failed)?;
    }
    idmap::write(pid, Kind::Users, &ids.users).map_err(failed)?;
    idmap::write(pid, Kind::Groups, &ids.groups).map_err(failed)
}

/// Has `newuidmap` and `newgidmap` write the maps, both at the same time.
pub(crate) fn write_maps_with_helpers(
    pid: Pid,
    users: &[Extent],
    groups: &[Extent],
) -> io::Result<()> {
    let start = |program: &str, map: &[Extent]| -> io::Result<(spawn::Spawned, File)> {
        let mut arguments = vec![program.to_owned(), pid.as_raw_nonzero().to_string()];
        arguments.extend(map.iter().flat_map(|e| {
            [
                e.inside.to_string(),
                e.outside.to_string(),
                e.count.to_string(),
            ]
        }));
        let arguments: Vec<_> = arguments
            .into_iter()
            .map(std::ffi::CString::new)
            .collect::<Result<_, _>>()?;
        let arguments: Vec<_> = arguments.iter().map(|a| a.as_c_str()).collect();
        let said: File = memory_file()?;
        let spawned = spawn::spawn(&spawn::Spawn {
            program: arguments[0],
            args: &arguments,
            env: &[],
            fds: &[(said.as_fd(), 2)],
            workdir: Some(c"/"),
            new_session: false,
        })?;
        Ok((spawned, said))
    };
    let first = start(NEWUIDMAP, users)?;
    let second = start(NEWGIDMAP, groups);
    let finish = |(spawned, mut said): (spawn::Spawned, File)| -> io::Result<()> {
        match process::wait(spawned.pidfd.as_fd())? {
            process::Exit::Code(0) => Ok(()),
            _ => {
                let mut text = String::new();
                io::Seek::rewind(&mut said)?;
                said.read_to_string(&mut text)?;
                Err(io::Error::other(text.trim().to_owned()))
            }
        }
    };
    let first = finish(first);
    let second = second.and_then(finish);
    first.and(second)
}

fn memory_file() -> io::Result<File> {
    let file = rustix::fs::memfd_create(c"cosm-said", rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(file.into())
}
