//! Resolved settings: the second of three types. What was written, the settings file and the defaults become one spec.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use cosm::spec::{ImageSource, Mount, MountSource};
use cosm::{ByteString, ExecOptions, SandboxSpec};
use cosm_base::text::{printable, printable_path, quoted};

use crate::args::parse::{self, ValueError};
use crate::args::{AccessArg, LimitArgs, MountArg, MountArgs, ProcessArgs, SandboxArgs};
use crate::conf::{self, Conf, ConfError};
use crate::env_file::{self, EnvFileError};
use crate::environment;
use crate::error::Result;
use crate::hints;

/// What is wrong with the settings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("COSM_HOME is not set, and neither XDG_DATA_HOME nor HOME names a folder")]
    NoHome,
    #[error(
        "COSM_ID_SLOTS={} is not FIRST:COUNT, the first id and how many ranges of 65536 ids follow from it",
        quoted(.0.as_bytes())
    )]
    IdSlots(OsString),
    #[error("reading {}", printable_path(path))]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the settings file {} can't be used", printable_path(path))]
    Conf {
        path: PathBuf,
        #[source]
        source: ConfError,
    },
    #[error("the settings file {}: {key}", printable_path(path))]
    ConfValue {
        path: PathBuf,
        key: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the file {} can't be used", printable_path(path))]
    EnvFile {
        path: PathBuf,
        #[source]
        source: EnvFileError,
    },
    #[error("the script {} is not UTF-8", printable_path(.0))]
    ScriptText(PathBuf),
    #[error("{} is not an image here: images from registries are not in this version", quoted(.0))]
    Image(String),
    #[error("rootfs bind path does not exist: {}", printable_path(.0))]
    NoRootfs(PathBuf),
    #[error("rootfs bind path is not a directory: {}", printable_path(.0))]
    RootfsNotFolder(PathBuf),
    #[error(transparent)]
    State(cosm::UnknownStatus),
    #[error("{} is not a place in a list: give the `next` of an earlier one", quoted(.0))]
    Cursor(String),
    #[error("a command is needed: this is not a terminal that a shell could have")]
    NoCommand,
}

impl SettingsError {
    /// What would help.
    pub(crate) fn hints(&self) -> Vec<String> {
        match self {
            Self::Image(text) => {
                let mut hints = vec!["write `host`, or a folder as ./dir or /dir".to_owned()];
                if Path::new(text).is_dir() {
                    hints.push(format!("for the folder here: ./{text}"));
                }
                if hints::program_outside(text.as_ref()).is_some() {
                    hints.push(format!(
                        "to run a command on the host's own programs: cosm run -- {text} …"
                    ));
                }
                hints
            }
            Self::NoRootfs(_) | Self::RootfsNotFolder(_) => {
                vec!["IMAGE is a folder that holds a root file system, or `host`".to_owned()]
            }
            Self::NoCommand => vec!["cosm run -- COMMAND, or cosm run -it for a shell".to_owned()],
            _ => Vec::new(),
        }
    }
}

/// What a sandbox is to be.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The spec, without a command.
    pub(crate) spec: SandboxSpec,
    /// The command: as written, else the settings file's.
    pub(crate) command: Vec<ByteString>,
    /// See `--replace`.
    pub(crate) replace: Option<Duration>,
    /// The command's time-out.
    pub(crate) timeout: Option<Duration>,
}

/// Resolves what `run` and `create` share.
///
/// # Errors
/// A file can't be read, or a value can't be used.
pub(crate) fn resolve(
    args: SandboxArgs,
    image: Option<OsString>,
    command: Vec<OsString>,
    timeout: Option<Duration>,
) -> Result<Settings> {
    let mut settings = Settings {
        spec: SandboxSpec::default(),
        command: Vec::new(),
        replace: args.replace,
        timeout: None,
    };
    let mut here = args.mounts.here;
    if let Some(path) = &args.conf {
        apply_conf(&mut settings, path, &mut here)?;
    }
    let spec = &mut settings.spec;
    if let Some(image) = image {
        spec.image = image_source(&image)?;
    }
    check_image(&spec.image)?;
    replace_if(&mut spec.name, args.name);
    spec.labels.extend(args.label);
    process(spec, args.process)?;
    limits(spec, args.limits);
    replace_if(&mut spec.hostname, args.hostname);
    replace_if(&mut spec.shell, args.shell.map(Into::into));
    for (name, file) in args.script {
        let text = read(&file)?;
        let text = String::from_utf8(text).map_err(|_| SettingsError::ScriptText(file))?;
        spec.scripts.insert(name, text);
    }
    set_if(&mut spec.net, args.net);
    set_if(&mut spec.profile, args.profile);
    set_if(&mut spec.isolation, args.isolation);
    set_if(&mut spec.ids, args.ids);
    spec.io_uring |= args.io_uring;
    mounts(spec, args.mounts, here)?;
    if !command.is_empty() {
        settings.command = command.into_iter().map(Into::into).collect();
    }
    settings.timeout = timeout.or(settings.timeout);
    Ok(settings)
}

/// A command's options of what was written.
///
/// # Errors
/// A file can't be read.
pub(crate) fn exec_options(
    mut argv: Vec<ByteString>,
    args: ProcessArgs,
    timeout: Option<Duration>,
) -> Result<ExecOptions> {
    let mut options = ExecOptions::new(argv.remove(0))
        .args(argv)
        .envs(variables(&args)?);
    if let Some(cwd) = args.workdir {
        options = options.cwd(cwd);
    }
    if let Some(user) = args.user {
        options = options.user(user);
    }
    for limit in args.rlimit {
        options = options.rlimit_range(limit.name, limit.soft, limit.hard);
    }
    Ok(match timeout {
        Some(limit) => options.timeout(limit),
        None => options,
    })
}

fn process(spec: &mut SandboxSpec, args: ProcessArgs) -> Result<()> {
    spec.env.extend(variables(&args)?);
    replace_if(&mut spec.workdir, args.workdir.map(Into::into));
    replace_if(&mut spec.user, args.user);
    for limit in args.rlimit {
        spec.rlimits.retain(|known| known.name != limit.name);
        spec.rlimits.push(limit);
    }
    Ok(())
}

/// Files first, so that single variables win.
fn variables(args: &ProcessArgs) -> Result<Vec<(ByteString, ByteString)>> {
    let mut all = Vec::new();
    for path in &args.env_file {
        let lines = env_file::parse(&read(path)?);
        all.extend(lines.map_err(|source| SettingsError::EnvFile {
            path: path.clone(),
            source,
        })?);
    }
    all.extend(args.env.iter().cloned());
    Ok(all.into_iter().filter_map(passed_on).collect())
}

/// A variable without a value has this program's; one that is not set here is left out.
fn passed_on((name, value): env_file::Variable) -> Option<(ByteString, ByteString)> {
    let value = match value {
        Some(value) => value,
        None => std::env::var_os(name.as_os_str())?.into(),
    };
    Some((name, value))
}

fn limits(spec: &mut SandboxSpec, args: LimitArgs) {
    let resources = &mut spec.resources;
    set_if(&mut resources.memory, args.memory);
    set_if(&mut resources.cpus, args.cpus);
    set_if(&mut resources.pids, args.pids);
    set_if(&mut resources.disk, args.disk);
    set_if(&mut resources.log, args.log_size);
    replace_if(&mut spec.timeouts.max_duration, args.max_duration);
    replace_if(&mut spec.timeouts.idle, args.idle_timeout);
    set_if(&mut spec.timeouts.stop, args.stop_timeout);
}

fn mounts(spec: &mut SandboxSpec, args: MountArgs, here: Option<AccessArg>) -> Result<()> {
    for mount in args.mount {
        add_mount(spec, mount)?;
    }
    for mount in args.tmpfs {
        put_mount(spec, mount);
    }
    for device in args.device {
        spec.devices.retain(|known| known.target != device.target);
        spec.devices.push(device);
    }
    for prefix in args.mount_prefix {
        let prefix = environment::absolute(&prefix)?.into();
        if !spec.prefixes.contains(&prefix) {
            spec.prefixes.push(prefix);
        }
    }
    if let Some(access) = here {
        let folder = environment::current_dir()?;
        spec.workdir.get_or_insert_with(|| folder.clone().into());
        let read_only = access == AccessArg::Ro;
        add_mount(
            spec,
            MountArg {
                source: folder,
                target: None,
                read_only,
            },
        )?;
    }
    Ok(())
}

fn add_mount(spec: &mut SandboxSpec, mount: MountArg) -> Result<()> {
    let source: ByteString = environment::absolute(&mount.source)?.into();
    let target = mount.target.unwrap_or_else(|| source.clone());
    let source = MountSource::Bind(source);
    put_mount(
        spec,
        Mount {
            target,
            source,
            read_only: mount.read_only,
        },
    );
    Ok(())
}

/// A later mount of the same place wins.
fn put_mount(spec: &mut SandboxSpec, mount: Mount) {
    spec.mounts.retain(|known| known.target != mount.target);
    spec.mounts.push(mount);
}

fn image_source(image: &OsStr) -> Result<ImageSource> {
    let bytes = image.as_bytes();
    let is_folder = bytes.starts_with(b"/")
        || bytes.starts_with(b"./")
        || bytes.starts_with(b"../")
        || bytes == b"."
        || bytes == b"..";
    match bytes {
        b"host" => Ok(ImageSource::Host),
        _ if is_folder => Ok(ImageSource::Folder(
            environment::absolute(Path::new(image))?.into(),
        )),
        _ => Err(SettingsError::Image(printable(bytes)).into()),
    }
}

fn check_image(image: &ImageSource) -> Result<()> {
    let ImageSource::Folder(path) = image else {
        return Ok(());
    };
    let path = path.as_path();
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(SettingsError::RootfsNotFolder(path.to_owned()).into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(SettingsError::NoRootfs(path.to_owned()).into())
        }
        Err(source) => Err(SettingsError::Read {
            path: path.to_owned(),
            source,
        }
        .into()),
    }
}

fn apply_conf(settings: &mut Settings, path: &Path, here: &mut Option<AccessArg>) -> Result<()> {
    let text = read(path)?;
    let text = String::from_utf8_lossy(&text);
    let lookup = |name: &str| std::env::var(name).ok();
    let conf = conf::parse(&text, lookup).map_err(|source| SettingsError::Conf {
        path: path.to_owned(),
        source,
    })?;
    ConfReader {
        path,
        settings,
        here,
    }
    .apply(conf)
}

/// Turns a settings file's texts into settings, with the readers of the command line.
struct ConfReader<'a> {
    path: &'a Path,
    settings: &'a mut Settings,
    here: &'a mut Option<AccessArg>,
}

impl ConfReader<'_> {
    fn apply(self, conf: Conf) -> Result<()> {
        let text = |scalar: conf::Scalar| scalar.0;
        let args = ProcessArgs {
            env: conf
                .env
                .into_iter()
                .map(|(n, v)| (n.into(), Some(v.0.into())))
                .collect(),
            env_file: conf.env_file.into_iter().map(Into::into).collect(),
            workdir: conf.workdir.map(Into::into),
            user: conf.user.map(text),
            rlimit: self.all("rlimits", conf.rlimits, |(name, limits)| {
                let (soft, hard) = limits.0.split_once(':').unwrap_or((&limits.0, &limits.0));
                parse::rlimit_of(&name, soft, hard)
            })?,
        };
        process(&mut self.settings.spec, args)?;
        let args = LimitArgs {
            memory: self.one("memory", conf.memory, parse::size_limit)?,
            cpus: self.one("cpus", conf.cpus, parse::cpu_limit)?,
            pids: self.one("pids", conf.pids, parse::count_limit)?,
            disk: self.one("disk", conf.disk, parse::size_limit)?,
            log_size: self.one("log-size", conf.log_size, parse::size_limit)?,
            max_duration: self.one("max-duration", conf.max_duration, parse::duration)?,
            idle_timeout: self.one("idle-timeout", conf.idle_timeout, parse::duration)?,
            stop_timeout: self.one("stop-timeout", conf.stop_timeout, parse::duration)?,
        };
        limits(&mut self.settings.spec, args);
        let args = MountArgs {
            here: None,
            mount: self.all("mounts", conf.mounts, |text| parse::mount(text.into()))?,
            tmpfs: self.all("tmpfs", conf.tmpfs, |text| parse::tmpfs(text.into()))?,
            mount_prefix: conf.mount_prefix.into_iter().map(Into::into).collect(),
            device: self.all("devices", conf.devices, |text| parse::device(text.into()))?,
        };
        mounts(&mut self.settings.spec, args, None)?;
        if self.here.is_none() {
            *self.here = self.choice("here", conf.here)?;
        }
        self.settings.timeout = self.one("timeout", conf.timeout, parse::duration)?;
        let name = conf.name.map(conf::Scalar);
        self.settings.spec.name = self.one("name", name, parse::name)?;
        if let Some(image) = conf.image {
            self.settings.spec.image = image_source(OsStr::new(&image))?;
        }
        if let Some(command) = conf.command {
            self.settings.command = command.into_iter().map(Into::into).collect();
        }
        let (net, profile) = (
            self.choice("net", conf.net)?,
            self.choice("profile", conf.profile)?,
        );
        let (isolation, ids) = (
            self.choice("isolation", conf.isolation)?,
            self.choice("ids", conf.ids)?,
        );
        let spec = &mut self.settings.spec;
        replace_if(&mut spec.hostname, conf.hostname);
        replace_if(&mut spec.shell, conf.shell.map(Into::into));
        spec.scripts.extend(conf.scripts);
        spec.labels
            .extend(conf.labels.into_iter().map(|(key, value)| (key, value.0)));
        set_if::<_, crate::args::NetArg>(&mut spec.net, net);
        set_if::<_, crate::args::ProfileArg>(&mut spec.profile, profile);
        set_if::<_, crate::args::IsolationArg>(&mut spec.isolation, isolation);
        set_if::<_, crate::args::IdsArg>(&mut spec.ids, ids);
        spec.io_uring = conf.io_uring.unwrap_or(false);
        Ok(())
    }

    fn one<T, E: std::error::Error + Send + Sync + 'static>(
        &self,
        key: &'static str,
        value: Option<conf::Scalar>,
        read: impl Fn(&str) -> std::result::Result<T, E>,
    ) -> Result<Option<T>> {
        value
            .map(|value| read(&value.0).map_err(|e| self.wrong(key, e)))
            .transpose()
    }

    fn all<I, T>(
        &self,
        key: &'static str,
        values: impl IntoIterator<Item = I>,
        read: impl Fn(I) -> std::result::Result<T, ValueError>,
    ) -> Result<Vec<T>> {
        values
            .into_iter()
            .map(|value| read(value).map_err(|e| self.wrong(key, e)))
            .collect()
    }

    fn choice<T: ValueEnum>(&self, key: &'static str, value: Option<String>) -> Result<Option<T>> {
        let Some(text) = value else { return Ok(None) };
        match T::from_str(&text, false) {
            Ok(choice) => Ok(Some(choice)),
            Err(_) => Err(self.wrong(key, ValueError::Choice(text, choices::<T>()))),
        }
    }

    fn wrong(
        &self,
        key: &'static str,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> crate::error::CliError {
        let path = self.path.to_owned();
        SettingsError::ConfValue {
            path,
            key,
            source: Box::new(source),
        }
        .into()
    }
}

fn choices<T: ValueEnum>() -> String {
    let names: Vec<String> = T::value_variants()
        .iter()
        .filter_map(|v| v.to_possible_value())
        .map(|v| v.get_name().to_owned())
        .collect();
    names.join(", ")
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| {
        SettingsError::Read {
            path: path.to_owned(),
            source,
        }
        .into()
    })
}

fn replace_if<T>(place: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *place = value;
    }
}

fn set_if<T, V: Into<T>>(place: &mut T, value: Option<V>) {
    if let Some(value) = value {
        *place = value.into();
    }
}
