//! Passing descriptors over Unix sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// How many descriptors one message carries at most here.
pub const MAX_FDS: usize = 8;

/// Sends bytes and descriptors in one message. Returns the number of bytes sent, which for a stream may be fewer than
/// given; the descriptors go with the first of them.
///
/// # Errors
/// `EINVAL` for more than [`MAX_FDS`] descriptors or no bytes at all (a stream carries no descriptors without a byte).
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if fds.len() > MAX_FDS || bytes.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?)
}

/// Receives bytes and up to [`MAX_FDS`] descriptors, which are closed on exec. The kernel closes what does not fit.
///
/// # Errors
/// `recvmsg`'s.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(
        socket,
        &mut [IoSliceMut::new(bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut fds = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            fds.extend(received);
        }
    }
    Ok((message.bytes, fds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_pipe_arrives_and_works() {
        let (left, right) = UnixStream::pair().expect("pair");
        let (mut reader, writer) = io::pipe().expect("pipe");
        assert_eq!(send(&left, b"x", &[writer.as_fd()]).expect("send"), 1);
        drop(writer);
        let mut byte = [0];
        let (count, mut fds) = receive(&right, &mut byte).expect("receive");
        assert_eq!((count, fds.len()), (1, 1));
        std::fs::File::from(fds.remove(0))
            .write_all(b"hello")
            .expect("write");
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("read");
        assert_eq!(text, "hello");
    }
}
