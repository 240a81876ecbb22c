//! Loop devices: a file as a disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::raw::syscall;

const LOOP_CTL_GET_FREE: usize = 0x4C82;
const LOOP_CONFIGURE: usize = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// A loop device over a file. The device lets go of the file by itself once nobody has it open or mounted.
#[derive(Debug)]
pub struct LoopDevice {
    /// Keeps the device attached until it is mounted.
    _device: File,
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches a file, which must be open for writing.
    ///
    /// # Errors
    /// No loop devices here (`ENOENT`), or no right to them (`EACCES`).
    pub fn attach(file: &File) -> io::Result<Self> {
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")?;
        loop {
            // SAFETY: the request takes no argument.
            let number = unsafe {
                syscall(
                    libc::SYS_ioctl,
                    [control.as_raw_fd() as usize, LOOP_CTL_GET_FREE, 0, 0, 0, 0],
                )
            }?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = OpenOptions::new().read(true).write(true).open(&path)?;
            // SAFETY: all zeroes is a valid `LoopConfig`, a structure of numbers.
            let mut config: LoopConfig = unsafe { std::mem::zeroed() };
            config.fd = file.as_raw_fd() as u32;
            config.info.flags = LO_FLAGS_AUTOCLEAR;
            // SAFETY: `config` has the layout of the kernel's `loop_config` and outlives the call.
            let configured = unsafe {
                syscall(
                    libc::SYS_ioctl,
                    [
                        device.as_raw_fd() as usize,
                        LOOP_CONFIGURE,
                        &raw const config as usize,
                        0,
                        0,
                        0,
                    ],
                )
            };
            match configured {
                Ok(_) => {
                    return Ok(Self {
                        _device: device,
                        path,
                    });
                }
                // Somebody else was faster.
                Err(Errno::BUSY) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The device's path.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }
}
