//! Saying what a sandbox should be, step by step. What is wrong is collected and told by `build`.

use std::time::Duration;

use cosm_base::units::{ByteSize, UnitError, parse_duration};
use cosm_base::{ByteString, ErrorKind, SandboxName};
use cosm_spec::{
    Device, IdMode, ImageSource, Isolation, Lifetime, Limit, Mount, MountSource, NetMode, Profile,
    Rlimit, RlimitName, SandboxSpec,
};

use crate::error::{Error, Fault, Result};
use crate::host::Host;
use crate::sandbox::Sandbox;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Builds a [`SandboxSpec`], and creates the sandbox. Made by [`Sandbox::builder`].
///
/// Nothing is checked until [`build`](Self::build): the first thing that could not be read is reported, else all that
/// is illegal in the spec at once.
#[derive(Debug)]
#[must_use]
pub struct SandboxBuilder {
    host: Host,
    spec: SandboxSpec,
    replace: Option<Duration>,
    wrong: Option<Error>,
}

impl SandboxBuilder {
    pub(crate) fn new(host: &Host, name: &str) -> Self {
        let builder = Self {
            host: host.clone(),
            spec: SandboxSpec::default(),
            replace: None,
            wrong: None,
        };
        if name.is_empty() {
            return builder;
        }
        builder.read("name", name, str::parse::<SandboxName>, |spec, name| {
            spec.name = Some(name)
        })
    }

    fn read<T, E: Into<Cause>>(
        mut self,
        field: &'static str,
        text: &str,
        parse: impl FnOnce(&str) -> std::result::Result<T, E>,
        set: impl FnOnce(&mut SandboxSpec, T),
    ) -> Self {
        match parse(text) {
            Ok(value) => set(&mut self.spec, value),
            Err(source) if self.wrong.is_none() => {
                let fault = Fault::Value {
                    field,
                    text: text.to_owned(),
                    source: source.into(),
                };
                self.wrong = Some(Error::new(ErrorKind::InvalidInput, fault).retry_safe());
            }
            Err(_) => {}
        }
        self
    }

    fn with(mut self, set: impl FnOnce(&mut SandboxSpec)) -> Self {
        set(&mut self.spec);
        self
    }

    /// The root file system: `host` (the default), or a folder of this host, which is copied on write.
    pub fn image(self, image: impl Into<ByteString>) -> Self {
        let image = image.into();
        self.with(|spec| {
            spec.image = match image.as_bytes() {
                b"host" => ImageSource::Host,
                _ => ImageSource::Folder(image),
            }
        })
    }
    /// The main command, which runs as the job `main`.
    pub fn command<A: Into<ByteString>>(self, argv: impl IntoIterator<Item = A>) -> Self {
        self.with(|spec| spec.command = Some(argv.into_iter().map(Into::into).collect()))
    }
    /// The most memory, such as `512m`; `unlimited` for no limit. Default 4 GiB where it can be bounded.
    pub fn memory(self, size: &str) -> Self {
        self.read(
            "memory",
            size,
            limit::<ByteSize, UnitError>,
            |spec, size| {
                spec.resources.memory = size;
            },
        )
    }
    /// The most processors, with a fraction if need be. Default: all.
    pub fn cpus(self, cpus: f64) -> Self {
        self.with(|spec| spec.resources.cpus = Limit::At(cpus))
    }
    /// The most processes and threads. Default 4096.
    pub fn pids(self, pids: u64) -> Self {
        self.with(|spec| spec.resources.pids = Limit::At(pids))
    }
    /// The most that the guest's own files may take, such as `2g`; `unlimited` for no limit.
    pub fn disk(self, size: &str) -> Self {
        self.read("disk", size, limit::<ByteSize, UnitError>, |spec, size| {
            spec.resources.disk = size;
        })
    }
    /// The most that one job's log keeps, such as `64m`; `unlimited` for no limit. Default 16 MiB.
    pub fn log_size(self, size: &str) -> Self {
        self.read(
            "log size",
            size,
            limit::<ByteSize, UnitError>,
            |spec, size| {
                spec.resources.log = size;
            },
        )
    }
    /// The working directory in the guest. Default `/`.
    pub fn workdir(self, path: impl Into<ByteString>) -> Self {
        self.with(|spec| spec.workdir = Some(path.into()))
    }
    /// The shell that runs scripts. Default `/bin/sh`.
    pub fn shell(self, path: impl Into<ByteString>) -> Self {
        self.with(|spec| spec.shell = Some(path.into()))
    }
    /// The host name in the guest. Default: the sandbox's id.
    pub fn hostname(self, name: &str) -> Self {
        self.with(|spec| spec.hostname = Some(name.to_owned()))
    }
    /// The user of commands: `name`, `id`, `name:group` or `id:id`. Default: root.
    pub fn user(self, user: &str) -> Self {
        self.with(|spec| spec.user = Some(user.to_owned()))
    }
    /// Adds an environment variable; a later one of the same name wins.
    pub fn env(self, name: impl Into<ByteString>, value: impl Into<ByteString>) -> Self {
        self.with(|spec| spec.env.push((name.into(), value.into())))
    }
    /// Adds environment variables.
    pub fn envs<N: Into<ByteString>, V: Into<ByteString>>(
        self,
        envs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.with(|spec| {
            spec.env
                .extend(envs.into_iter().map(|(n, v)| (n.into(), v.into())))
        })
    }
    /// Adds an executable script, found on PATH in the guest by its name.
    pub fn script(self, name: &str, text: &str) -> Self {
        self.with(|spec| drop(spec.scripts.insert(name.to_owned(), text.to_owned())))
    }
    /// Adds a label.
    pub fn label(self, key: &str, value: &str) -> Self {
        self.with(|spec| drop(spec.labels.insert(key.to_owned(), value.to_owned())))
    }
    /// Mounts a file or folder of this host, writable.
    pub fn bind(self, source: impl Into<ByteString>, target: impl Into<ByteString>) -> Self {
        self.volume(target, MountSource::Bind(source.into()), false)
    }
    /// Mounts a file or folder of this host so that the guest can't write to it.
    pub fn bind_readonly(
        self,
        source: impl Into<ByteString>,
        target: impl Into<ByteString>,
    ) -> Self {
        self.volume(target, MountSource::Bind(source.into()), true)
    }
    /// Mounts memory. `None` is 64 MiB.
    pub fn tmpfs(self, target: impl Into<ByteString>, size: Option<ByteSize>) -> Self {
        self.volume(target, MountSource::Tmpfs { size, mode: None }, false)
    }
    /// Mounts something.
    pub fn volume(
        self,
        target: impl Into<ByteString>,
        source: MountSource,
        read_only: bool,
    ) -> Self {
        let mount = Mount {
            target: target.into(),
            source,
            read_only,
        };
        self.with(|spec| spec.mounts.push(mount))
    }
    /// Lets the guest open a device node of this host at the same path.
    pub fn device(self, path: impl Into<ByteString>) -> Self {
        let source = path.into();
        self.with(|spec| {
            spec.devices.push(Device {
                target: source.clone(),
                source,
            })
        })
    }
    /// Mounts a prefix (`~/.pyenv/versions/3.12`) read-only at its own place with its `bin` on PATH.
    pub fn prefix(self, path: impl Into<ByteString>) -> Self {
        self.with(|spec| spec.prefixes.push(path.into()))
    }
    /// Sets a POSIX limit of every command, soft and hard.
    pub fn rlimit(self, name: RlimitName, limit: u64) -> Self {
        self.rlimit_range(name, limit, limit)
    }
    /// Sets a POSIX limit of every command.
    pub fn rlimit_range(self, name: RlimitName, soft: u64, hard: u64) -> Self {
        self.with(|spec| spec.rlimits.push(Rlimit { name, soft, hard }))
    }
    /// The longest a run may last. Default: no limit.
    pub fn max_duration(self, limit: Duration) -> Self {
        self.with(|spec| spec.timeouts.max_duration = Some(limit))
    }
    /// Stop after this long without an open command, job or transfer. Default: never.
    pub fn idle_timeout(self, limit: Duration) -> Self {
        self.with(|spec| spec.timeouts.idle = Some(limit))
    }
    /// As [`idle_timeout`](Self::idle_timeout), written `90s` or `1h30m`.
    pub fn idle_timeout_text(self, limit: &str) -> Self {
        self.read("idle time-out", limit, parse_duration, |spec, limit| {
            spec.timeouts.idle = Some(limit);
        })
    }
    /// Between asking the guest to stop and killing it. Default 10 s; 0 kills at once.
    pub fn stop_timeout(self, limit: Duration) -> Self {
        self.with(|spec| spec.timeouts.stop = limit)
    }
    /// No network but a loopback interface. This is the default.
    pub fn disable_network(self) -> Self {
        self.with(|spec| spec.net = NetMode::None)
    }
    /// What of a network the guest gets.
    pub fn network(self, mode: NetMode) -> Self {
        self.with(|spec| spec.net = mode)
    }
    /// How much the guest's root may do.
    pub fn profile(self, profile: Profile) -> Self {
        self.with(|spec| spec.profile = profile)
    }
    /// How the guest is kept apart from the host.
    pub fn isolation(self, isolation: Isolation) -> Self {
        self.with(|spec| spec.isolation = isolation)
    }
    /// How many ids the guest has.
    pub fn ids(self, ids: IdMode) -> Self {
        self.with(|spec| spec.ids = ids)
    }
    /// Let the sandbox outlive this process. By default it ends with it.
    pub fn persistent(self) -> Self {
        self.with(|spec| spec.lifetime = Lifetime::Persistent)
    }
    /// Remove the sandbox once it has stopped.
    pub fn remove_on_exit(self) -> Self {
        self.with(|spec| spec.remove_on_exit = true)
    }
    /// Put this sandbox in the place of one of the same name. That one is asked to end and killed after `grace`
    /// (0: at once).
    pub fn replace(mut self, grace: Duration) -> Self {
        self.replace = Some(grace);
        self
    }

    /// The checked spec.
    ///
    /// # Errors
    /// `InvalidInput`: what could not be read, or all that is illegal.
    pub fn build(self) -> Result<SandboxSpec> {
        if let Some(error) = self.wrong {
            return Err(error);
        }
        self.spec.check()?;
        Ok(self.spec)
    }

    /// Creates and starts the sandbox.
    ///
    /// # Errors
    /// As [`build`](Self::build) and [`Host::create`].
    pub async fn create(self) -> Result<Sandbox> {
        let (host, replace) = (self.host.clone(), self.replace);
        host.create(self.build()?, replace).await
    }
}

fn limit<T: std::str::FromStr<Err = E>, E>(text: &str) -> std::result::Result<Limit<T>, E> {
    match text {
        "unlimited" => Ok(Limit::Unlimited),
        "default" => Ok(Limit::Default),
        _ => text.parse().map(Limit::At),
    }
}
