//! `cosm shell`

use cosm_base::exit;

use crate::args::ShellArgs;
use crate::error::Result;
use crate::settings;
use crate::stdio::signals::Asked;
use crate::stdio::{self, Outcome, Stdio};

pub(super) fn run(args: ShellArgs) -> Result<u8> {
    let host = super::host()?;
    super::wait_for(async {
        let sandbox = host.get(&args.name).await?;
        let mut argv = vec![sandbox.shell_program()];
        let at_terminal = stdio::at_terminal();
        // Without a script and a terminal the shell reads its script from standard input.
        let tty = args.script.is_none() && at_terminal;
        let interactive = args.script.is_none();
        if let Some(script) = args.script {
            argv.extend(["-c".into(), script.into()]);
        }
        let options = settings::exec_options(argv, args.process, args.timeout)?;
        let stdio = Stdio {
            interactive,
            tty,
            detach_keys: args.detach_keys,
        };
        let mut asked = Asked::new()?;
        match stdio::foreground(&sandbox, options, &stdio, &mut asked).await {
            Ok(Outcome::Ended(status)) => Ok(super::code_of(&status)),
            Ok(Outcome::Interrupted(signal)) => Ok(exit::of_signal(signal)),
            Ok(Outcome::Detached) => Ok(exit::OK),
            Err(error) => Err(super::explained(&sandbox, error).await),
        }
    })
}
