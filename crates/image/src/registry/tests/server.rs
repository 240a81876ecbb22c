//! A registry that does as each test says, over real sockets.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::super::{RegistryConfig, Timeouts};
use crate::digest::Digest;
use crate::manifest::{Descriptor, media};
use crate::reference::Reference;

/// One request that came.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
    /// How many came before it.
    pub(super) nth: usize,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
    /// The first byte asked for.
    pub(super) fn from(&self) -> usize {
        self.header("range").map_or(0, |range| {
            let from = range.trim_start_matches("bytes=").trim_end_matches('-');
            from.parse().expect("a range")
        })
    }
}

/// What is wrong with how an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// The connection ends after so many bytes of the body.
    Cut(usize),
    /// Nothing more comes after so many bytes of the body.
    Stall(usize),
    /// Not even a header comes.
    Silent,
    /// The body ends with the connection.
    NoLength,
    /// The body goes on for ever.
    Endless,
}

#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) fault: Fault,
}

impl Reply {
    pub(super) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
            fault: Fault::None,
        }
    }
    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
    pub(super) fn fault(mut self, fault: Fault) -> Self {
        self.fault = fault;
        self
    }
    /// What a server answers that knows ranges.
    pub(super) fn part(seen: &Seen, whole: &[u8]) -> Self {
        match seen.from() {
            0 => Self::new(200, whole),
            from if from >= whole.len() => Self::new(416, ""),
            from => Self::new(206, &whole[from..]).header(
                "Content-Range",
                format!("bytes {from}-{}/{}", whole.len() - 1, whole.len()),
            ),
        }
    }
    pub(super) fn redirect(to: impl Into<String>) -> Self {
        Self::new(307, "").header("Location", to)
    }
    pub(super) fn bearer(realm: impl std::fmt::Display) -> Self {
        Self::new(401, r#"{"errors":[{"code":"UNAUTHORIZED"}]}"#).header(
            "WWW-Authenticate",
            format!(
                r#"Bearer realm="{realm}",service="the service",scope="repository:org/app:pull""#
            ),
        )
    }
}

type Answer = dyn Fn(&Seen) -> Reply + Send + Sync;

/// The server; it ends when it is dropped.
pub(super) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    over: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn new(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let over = Arc::new(AtomicBool::new(false));
        let answer: Arc<Answer> = Arc::new(answer);
        let listening = std::thread::spawn({
            let (seen, over) = (Arc::clone(&seen), Arc::clone(&over));
            move || {
                for stream in listener.incoming().flatten() {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    let (seen, over) = (Arc::clone(&seen), Arc::clone(&over));
                    let answer = Arc::clone(&answer);
                    // A client that goes away is none of the server's concern.
                    std::thread::spawn(move || serve(stream, &seen, &over, &*answer).ok());
                }
            }
        });
        Self {
            address,
            seen,
            over,
            listening: Some(listening),
        }
    }

    /// One that has a manifest under every tag and one blob, `content`.
    pub(super) fn with(content: &'static [u8]) -> Self {
        Self::new(|seen| ordinary(seen, content))
    }

    pub(super) fn host(&self) -> String {
        self.address.to_string()
    }
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
    pub(super) fn reference(&self) -> Reference {
        let name = format!("{}/org/app:1", self.address);
        name.parse().expect("a name")
    }
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("nobody panicked").clone()
    }
    pub(super) fn count(&self) -> usize {
        self.seen().len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Whoever waits for a connection looks whether it is over when there is one.
        TcpStream::connect(self.address).ok();
        if let Some(listening) = self.listening.take() {
            listening.join().ok();
        }
    }
}

pub(super) const MANIFEST: &[u8] = br#"{"schemaVersion":2}"#;

pub(super) fn ordinary(seen: &Seen, content: &[u8]) -> Reply {
    if seen.path.contains("/manifests/") {
        Reply::new(200, MANIFEST)
            .header("Content-Type", media::OCI_MANIFEST)
            .header("Docker-Content-Digest", Digest::of(MANIFEST).to_string())
    } else {
        Reply::part(seen, content)
    }
}

pub(super) fn descriptor(content: &[u8]) -> Descriptor {
    Descriptor {
        media_type: media::OCI_LAYER.to_owned(),
        digest: Digest::of(content),
        size: content.len() as u64,
        platform: None,
        annotations: Default::default(),
    }
}

/// With little patience, so that a test of its end is a short one.
pub(super) fn impatient() -> RegistryConfig {
    RegistryConfig {
        timeouts: Timeouts {
            connect: Duration::from_secs(5),
            response: Duration::from_secs(1),
            idle: Duration::from_millis(500),
            document: Duration::from_secs(3),
            backoff: Duration::from_millis(1),
            retry_after: Duration::from_secs(2),
            helper: Duration::from_secs(2),
        },
        retries: 3,
        ..RegistryConfig::default()
    }
}

fn serve(
    stream: TcpStream,
    all: &Mutex<Vec<Seen>>,
    over: &AtomicBool,
    answer: &Answer,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    // The first byte of TLS, which is not spoken here.
    if reader.fill_buf()?.first() == Some(&0x16) {
        return (&stream).write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
    }
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    let (method, path) = (word(), word());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().expect("a length"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let seen = {
        let mut all = all.lock().expect("nobody panicked");
        let seen = Seen {
            method,
            path,
            headers,
            body: String::from_utf8_lossy(&body).into_owned(),
            nth: all.len(),
        };
        all.push(seen.clone());
        seen
    };
    send(&stream, &seen, &answer(&seen), over)
}

fn send(
    mut stream: &TcpStream,
    seen: &Seen,
    reply: &Reply,
    over: &AtomicBool,
) -> std::io::Result<()> {
    let wait = || {
        while !over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    if reply.fault == Fault::Silent {
        wait();
        return Ok(());
    }
    let mut head = format!(
        "HTTP/1.1 {} Whatever\r\nConnection: close\r\n",
        reply.status
    );
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let said = reply
        .headers
        .iter()
        .any(|(name, _)| name == "Content-Length");
    if !said && !matches!(reply.fault, Fault::NoLength | Fault::Endless) {
        head.push_str(&format!("Content-Length: {}\r\n", reply.body.len()));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    if seen.method == "HEAD" {
        return Ok(());
    }
    match reply.fault {
        Fault::Cut(at) => stream.write_all(&reply.body[..at.min(reply.body.len())]),
        Fault::Stall(at) => {
            stream.write_all(&reply.body[..at.min(reply.body.len())])?;
            wait();
            Ok(())
        }
        Fault::Endless => {
            while !over.load(Ordering::SeqCst) {
                stream.write_all(&[b' '; 4096])?;
            }
            Ok(())
        }
        Fault::None | Fault::NoLength | Fault::Silent => stream.write_all(&reply.body),
    }
}
