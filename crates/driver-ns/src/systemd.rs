//! A delegated cgroup from the user's own systemd manager.
//!
//! An ordinary user may not make cgroups, but the user's manager (`user@UID.service`) may, and hands a transient scope
//! over (`Delegate=yes`) to whoever asks for it on the session bus. A scope of that manager is no part of a login
//! session: with lingering on, it outlives the logout.
//!
//! The interface is org.freedesktop.systemd1(5), StartTransientUnit.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cosm_base::text::printable_path;
use zbus::export::ordered_stream::OrderedStreamExt as _;
use zbus::zvariant::{OwnedObjectPath, Value};

/// Long enough for a busy manager, short enough for a person who waits.
const DEADLINE: Duration = Duration::from_secs(5);

/// Why there is no delegated cgroup.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DelegationError {
    #[error("no systemd user manager answers at {}", printable_path(.0))]
    NoBus(PathBuf),
    #[error("the systemd user manager can't be asked")]
    Bus(#[from] zbus::Error),
    #[error("the systemd user manager did not answer within {} s", DEADLINE.as_secs())]
    Silent,
    #[error("the systemd user manager ended the request with `{0}`")]
    Refused(String),
}

/// The socket of a user's session bus.
fn bus_of(uid: u32) -> PathBuf {
    PathBuf::from(format!("/run/user/{uid}/bus"))
}

/// Whether there is a user manager to ask.
pub(crate) fn is_there(uid: u32) -> bool {
    bus_of(uid).exists() && Path::new(&format!("/run/user/{uid}/systemd/private")).exists()
}

/// Whether the user's manager goes on after the last logout; `None` where systemd is not in charge.
pub(crate) fn lingers(user: &str) -> Option<bool> {
    Path::new("/run/systemd/system")
        .exists()
        .then(|| Path::new("/var/lib/systemd/linger").join(user).exists())
}

/// Moves a process of this user into a new scope that is handed over to it, and waits until it is there. The scope
/// goes away by itself with its last process.
pub(crate) async fn delegated_scope(uid: u32, unit: &str, pid: u32) -> Result<(), DelegationError> {
    let bus = bus_of(uid);
    if !is_there(uid) {
        return Err(DelegationError::NoBus(bus));
    }
    tokio::time::timeout(DEADLINE, start(&bus, unit, pid))
        .await
        .map_err(|_| DelegationError::Silent)?
}

async fn start(bus: &Path, unit: &str, pid: u32) -> Result<(), DelegationError> {
    let address = format!("unix:path={}", bus.display());
    let connection = zbus::connection::Builder::address(address.as_str())?
        .build()
        .await?;
    let manager = zbus::Proxy::new(
        &connection,
        "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1",
        "org.freedesktop.systemd1.Manager",
    )
    .await?;
    // Listening starts before the request: the job may be over before the answer is read.
    let mut ended = manager.receive_signal("JobRemoved").await?;
    let _subscribed: () = manager.call("Subscribe", &()).await?;
    let properties: Vec<(&str, Value<'_>)> = vec![
        ("Description", Value::from("cosm sandbox")),
        ("PIDs", Value::from(vec![pid])),
        ("Delegate", Value::from(true)),
        ("CollectMode", Value::from("inactive-or-failed")),
        // The default accounting of old managers is off.
        ("MemoryAccounting", Value::from(true)),
        ("TasksAccounting", Value::from(true)),
        ("CPUAccounting", Value::from(true)),
        ("IOAccounting", Value::from(true)),
    ];
    let auxiliary: Vec<(&str, Vec<(&str, Value<'_>)>)> = Vec::new();
    let job: OwnedObjectPath = manager
        .call("StartTransientUnit", &(unit, "fail", properties, auxiliary))
        .await?;
    while let Some(signal) = ended.next().await {
        let body = signal.body();
        let (_, path, _, result): (u32, OwnedObjectPath, String, String) = body.deserialize()?;
        if path == job {
            return if result == "done" {
                Ok(())
            } else {
                Err(DelegationError::Refused(result))
            };
        }
    }
    Err(DelegationError::Silent)
}
