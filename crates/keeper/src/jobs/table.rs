//! All jobs of a run.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use cosm_agent_client::{AgentClient, ExecControl, ExecInput};
use cosm_base::text::quoted;
use cosm_base::{ErrorKind, RunId, SandboxDir};
use cosm_proto::agent::{ExecStart, ExitReport, Stdio};
use cosm_proto::keeper::{Failure, JobReport, JobStart};
use cosm_state::joblog::{LogWriter, Stream, is_job_id};
use tokio::sync::{Mutex, watch};

use super::feed::{Feed, Ring};
use crate::clock;
use crate::failure;
use crate::machine::Event;
use crate::shared::Shared;

/// The main command's id.
pub(crate) const MAIN: &str = "main";
/// Ended jobs that are still told of. Their logs stay.
const ENDED: usize = 64;

/// A job, running or ended.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) report: RefCell<JobReport>,
    pub(super) ring: RefCell<Ring>,
    pub(super) feeds: RefCell<Vec<Rc<Feed>>>,
    /// The feed of who started it to see all of it.
    starter: Option<Rc<Feed>>,
    pub(super) control: ExecControl,
    pub(super) input: Mutex<Option<ExecInput>>,
    pub(super) terminal: bool,
    pub(super) over: watch::Sender<bool>,
}

/// All jobs of a run.
#[derive(Debug)]
pub(crate) struct Jobs {
    agent: AgentClient,
    dir: SandboxDir,
    run: RunId,
    log_limit: Option<u64>,
    list: RefCell<VecDeque<Rc<Job>>>,
    /// Ids that are being started.
    starting: RefCell<Vec<String>>,
    next: Cell<u64>,
}

impl Jobs {
    pub(crate) fn new(
        agent: AgentClient,
        dir: SandboxDir,
        run: RunId,
        log_limit: Option<u64>,
    ) -> Self {
        Self {
            agent,
            dir,
            run,
            log_limit,
            list: RefCell::default(),
            starting: RefCell::default(),
            next: Cell::new(1),
        }
    }

    /// Starts a job and watches over it from then on.
    pub(crate) async fn start(
        &self,
        shared: &Rc<Shared>,
        start: JobStart,
    ) -> Result<Rc<Job>, Failure> {
        self.start_for(shared, start, None).await
    }

    /// As [`Jobs::start`]; this feed gets all that it says.
    pub(super) async fn start_for(
        &self,
        shared: &Rc<Shared>,
        start: JobStart,
        starter: Option<Rc<Feed>>,
    ) -> Result<Rc<Job>, Failure> {
        let id = self.claim(start.id)?;
        let started = self.start_as(shared, &id, start.exec, starter).await;
        self.starting.borrow_mut().retain(|other| *other != id);
        started
    }

    async fn start_as(
        &self,
        shared: &Rc<Shared>,
        id: &str,
        exec: ExecStart,
        starter: Option<Rc<Feed>>,
    ) -> Result<Rc<Job>, Failure> {
        let terminal = match exec.stdio {
            Stdio::Terminal { .. } => true,
            Stdio::Framed { .. } => false,
            Stdio::Passed { .. } => {
                return Err(failure::plain(
                    ErrorKind::InvalidInput,
                    "a job's streams can't be passed: nobody may be there to hold them",
                ));
            }
        };
        let log = self.log(id)?;
        let argv = exec.argv.clone();
        shared.tell(Event::JobStarted).map_err(failure::refusal)?;
        let session = match self.agent.exec(exec).await {
            Ok(session) => session,
            Err(error) => {
                shared.note(Event::JobEnded {
                    main: false,
                    oom: false,
                    seen: true,
                });
                return Err(failure::agent(error));
            }
        };
        let job = Rc::new(Job {
            report: RefCell::new(JobReport {
                id: id.to_owned(),
                argv,
                pid: Some(session.pid),
                tty: terminal,
                started_ms: clock::now_ms(),
                exit: None,
                failed: None,
            }),
            ring: RefCell::default(),
            feeds: RefCell::new(starter.iter().cloned().collect()),
            starter,
            control: session.control,
            input: Mutex::new(session.input),
            terminal,
            over: watch::Sender::new(false),
        });
        self.enter(job.clone());
        tokio::task::spawn_local(super::run::run(
            shared.clone(),
            job.clone(),
            session.output,
            log,
        ));
        Ok(job)
    }

    fn log(&self, id: &str) -> Result<LogWriter, Failure> {
        // A passing sandbox has no folder until something has to be in it.
        let opened = cosm_state::make_private(self.dir.path())
            .and_then(|()| cosm_state::make_private(&self.dir.logs()))
            .map_err(failure::state);
        opened?;
        let failed = "opening the job's log";
        let mut log =
            LogWriter::open(&self.dir, id, self.log_limit).map_err(failure::os(failed))?;
        log.write(
            Stream::Mark,
            clock::now_ms(),
            self.run.to_string().as_bytes(),
        )
        .map_err(failure::os(failed))?;
        Ok(log)
    }

    fn claim(&self, wanted: Option<String>) -> Result<String, Failure> {
        let taken = |id: &str| {
            self.find(id).is_some() || self.starting.borrow().iter().any(|other| other == id)
        };
        let id = match wanted {
            Some(id) if !is_job_id(&id) => {
                return Err(failure::plain(
                    ErrorKind::InvalidInput,
                    "a job's id is at most 64 letters, digits, '.', '_' and '-', starting with a letter or a digit",
                ));
            }
            Some(id) if taken(&id) => {
                return Err(failure::plain(
                    ErrorKind::AlreadyExists,
                    format!("a job {id} already exists"),
                ));
            }
            Some(id) => id,
            None => loop {
                let id = self.next.replace(self.next.get() + 1).to_string();
                if !taken(&id) {
                    break id;
                }
            },
        };
        self.starting.borrow_mut().push(id.clone());
        Ok(id)
    }

    fn enter(&self, job: Rc<Job>) {
        let mut list = self.list.borrow_mut();
        list.push_back(job);
        let mut surplus = list
            .iter()
            .filter(|job| job.is_over())
            .count()
            .saturating_sub(ENDED);
        list.retain(|job| {
            let goes = surplus > 0 && job.is_over() && job.id() != MAIN;
            surplus -= usize::from(goes);
            !goes
        });
    }

    /// The job with this id.
    pub(crate) fn find(&self, id: &str) -> Option<Rc<Job>> {
        let list = self.list.borrow();
        list.iter()
            .find(|job| job.report.borrow().id == id)
            .cloned()
    }

    /// As [`Jobs::find`], as an answer.
    pub(crate) fn get(&self, id: &str) -> Result<Rc<Job>, Failure> {
        self.find(id).ok_or_else(|| Failure {
            hints: vec!["`cosm jobs NAME` shows the jobs of a sandbox".to_owned()],
            ..failure::plain(ErrorKind::NotFound, format!("no job {}", quoted(id)))
        })
    }

    /// All jobs in the order of their start.
    pub(crate) fn reports(&self) -> Vec<JobReport> {
        let list = self.list.borrow();
        list.iter().map(|job| job.report.borrow().clone()).collect()
    }

    /// Waits until nobody looks any more who started a job to see all of it.
    pub(crate) async fn starters_gone(&self) {
        let list: Vec<_> = self.list.borrow().iter().cloned().collect();
        for feed in list.iter().filter_map(|job| job.starter.as_ref()) {
            feed.left().await;
        }
    }

    /// Waits until all jobs are over, once the guest is.
    pub(crate) async fn all_over(&self) {
        let list: Vec<_> = self.list.borrow().iter().cloned().collect();
        for job in list {
            job.wait().await;
        }
    }
}

impl Job {
    pub(crate) fn id(&self) -> String {
        self.report.borrow().id.clone()
    }

    pub(crate) fn report(&self) -> JobReport {
        self.report.borrow().clone()
    }

    pub(crate) fn exit(&self) -> Option<ExitReport> {
        self.report.borrow().exit.clone()
    }

    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Waits for its end.
    pub(crate) async fn wait(&self) {
        // The sender is this job's own, so that it is there.
        drop(self.over.subscribe().wait_for(|over| *over).await);
    }

    /// Sends it a signal.
    pub(crate) async fn signal(&self, signal: i32, tree: bool) -> Result<(), Failure> {
        if self.is_over() {
            return Err(failure::plain(
                ErrorKind::WrongState,
                format!("the job {} has ended", self.id()),
            ));
        }
        if !(0..=64).contains(&signal) {
            return Err(failure::plain(
                ErrorKind::InvalidInput,
                format!("{signal} is not a signal"),
            ));
        }
        self.control
            .signal(signal, tree)
            .await
            .map_err(failure::agent)
    }
}
