//! What two processes say to each other: commands of RESP, with the sockets that they are about.

use holdfast_resp::write_command;
use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};
use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

/// Sockets that go with one message; the system allows 253.
const SOCKETS_MAX: usize = 200;

/// Sends a message, and sockets with it.
pub fn send(stream: &UnixStream, message: &[u8], sockets: &[BorrowedFd]) -> io::Result<()> {
    if sockets.len() > SOCKETS_MAX {
        return Err(io::Error::other("too many sockets at once"));
    }
    // Sockets go with the first byte of what they are sent with, so that is the length alone.
    let len = u32::try_from(message.len()).map_err(io::Error::other)?.to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(io::Error::other("no room for the sockets"));
    }
    let sent = loop {
        match sendmsg(stream, &[IoSlice::new(&len)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => break sent?,
        }
    };
    let mut stream = stream;
    stream.write_all(&len[sent..])?;
    stream.write_all(message)
}

/// The next message and its sockets; an error at the end of the other process.
pub fn receive(stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut len = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(stream, &mut [IoSliceMut::new(&mut len)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?.bytes,
        }
    };
    let sockets = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => sockets.collect(),
        _ => Vec::new(),
    });
    let sockets: Vec<OwnedFd> = sockets.collect();
    if received == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut stream = stream;
    stream.read_exact(&mut len[received..])?;
    // What has not come takes no memory.
    let (len, mut message) = (u32::from_le_bytes(len), Vec::new());
    stream.take(len.into()).read_to_end(&mut message)?;
    if message.len() < len as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((message, sockets))
}

/// A message of words.
pub fn words<A: AsRef<[u8]>>(words: &[A]) -> Vec<u8> {
    let mut message = Vec::new();
    write_command(&mut message, words);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::fd::AsFd, thread};

    #[test]
    fn messages_arrive_with_their_sockets() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (lent, mut other) = UnixStream::pair().unwrap();
        let long = vec![b'x'; 1 << 20];
        let expected = long.clone();
        let sender = thread::spawn(move || {
            send(&theirs, b"none", &[]).unwrap();
            send(&theirs, b"two", &[lent.as_fd(), lent.as_fd()]).unwrap();
            send(&theirs, &long, &[lent.as_fd()]).unwrap();
            send(&theirs, b"", &[]).unwrap();
        });
        for (message, count) in [(&b"none"[..], 0), (b"two", 2), (&expected, 1), (b"", 0)] {
            let (received, sockets) = receive(&ours).unwrap();
            assert!(received == message && sockets.len() == count);
            for socket in sockets {
                UnixStream::from(socket).write_all(b"!").unwrap();
                other.read_exact(&mut [0]).unwrap();
            }
        }
        sender.join().unwrap();
        assert_eq!(receive(&ours).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
