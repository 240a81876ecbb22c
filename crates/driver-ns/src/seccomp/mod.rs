//! The system calls a guest may make: read from the policy, compiled to a filter.

mod compile;
mod policy;

pub use policy::{Action, PolicyError, Rule};

use cosm_sys::seccomp::Instruction;

/// The policy as it is shipped.
const POLICY: &str = include_str!("../../data/seccomp.policy");
const NUMBERS: &str = include_str!("../../data/syscalls.list");

/// The filter of a guest on this machine's architecture.
///
/// # Errors
/// The policy that is built in is not well-formed, which a test rules out.
pub fn program(io_uring: bool) -> Result<Vec<Instruction>, PolicyError> {
    let rules = policy::read(POLICY, NUMBERS, io_uring)?;
    compile::compile(&rules).ok_or(PolicyError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::compile::tests::run;
    use super::*;

    const ALLOW: u32 = 0x7fff_0000;
    const EPERM: u32 = 0x0005_0001;
    const ENOSYS: u32 = 0x0005_0026;

    fn verdict(io_uring: bool, number: i64, args: [u64; 6]) -> u32 {
        run(
            &program(io_uring).expect("the shipped policy compiles"),
            number as u32,
            args,
        )
    }

    #[test]
    fn the_shipped_policy_says_what_it_should() {
        let namespaces = [
            0x0002_0000,
            0x0200_0000,
            0x0400_0000,
            0x0800_0000,
            0x1000_0000,
            0x2000_0000,
            0x4000_0000,
        ];
        let plain = [
            libc::SYS_read,
            libc::SYS_execveat,
            libc::SYS_openat,
            libc::SYS_ptrace,
            libc::SYS_futex,
            libc::SYS_rseq,
        ];
        for number in plain {
            assert_eq!(verdict(false, number, [0; 6]), ALLOW, "{number}");
        }
        let refused = [
            libc::SYS_setns,
            libc::SYS_mount,
            libc::SYS_open_tree,
            libc::SYS_fsopen,
            libc::SYS_pivot_root,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_init_module,
            libc::SYS_kexec_load,
            libc::SYS_open_by_handle_at,
            libc::SYS_reboot,
            libc::SYS_swapon,
            libc::SYS_syslog,
            libc::SYS_quotactl,
        ];
        for number in refused {
            assert_eq!(verdict(true, number, [0; 6]), EPERM, "{number}");
        }
        for number in [
            libc::SYS_clone3,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            500,
            0x4000_0000,
            0xffff_ffff,
        ] {
            assert_eq!(verdict(false, number, [0; 6]), ENOSYS, "{number}");
        }
        assert_eq!(verdict(true, libc::SYS_io_uring_setup, [0; 6]), ALLOW);
        assert_eq!(
            verdict(false, libc::SYS_clone, [0x003d_0f00, 0, 0, 0, 0, 0]),
            ALLOW,
            "a thread"
        );
        for flag in namespaces {
            assert_eq!(
                verdict(false, libc::SYS_clone, [flag | 17, 0, 0, 0, 0, 0]),
                EPERM,
                "{flag:x}"
            );
            assert_eq!(
                verdict(false, libc::SYS_unshare, [flag, 0, 0, 0, 0, 0]),
                EPERM,
                "{flag:x}"
            );
        }
        assert_eq!(
            verdict(false, libc::SYS_unshare, [0x80, 0, 0, 0, 0, 0]),
            EPERM,
            "a time namespace"
        );
        assert_eq!(
            verdict(false, libc::SYS_unshare, [0x400, 0, 0, 0, 0, 0]),
            ALLOW,
            "its own descriptors"
        );
        for (family, protocol, answer) in [
            (1, 0, ALLOW),
            (2, 6, ALLOW),
            (10, 0, ALLOW),
            (16, 0, ALLOW),
            (16, 12, EPERM),
            (17, 0, EPERM),
            (38, 0, EPERM),
            (40, 0, EPERM),
        ] {
            assert_eq!(
                verdict(false, libc::SYS_socket, [family, 1, protocol, 0, 0, 0]),
                answer,
                "{family} {protocol}"
            );
        }
        assert_eq!(
            verdict(false, libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0]),
            EPERM,
            "TIOCSTI"
        );
        assert_eq!(
            verdict(false, libc::SYS_ioctl, [0, 0xdead_0000_5412, 0, 0, 0, 0]),
            EPERM,
            "the kernel looks at 32 bits"
        );
        assert_eq!(
            verdict(false, libc::SYS_ioctl, [0, 0x5413, 0, 0, 0, 0]),
            ALLOW,
            "TIOCGWINSZ"
        );
        assert_eq!(
            verdict(false, libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]),
            ALLOW
        );
        assert_eq!(
            verdict(false, libc::SYS_personality, [0x0400_0000, 0, 0, 0, 0, 0]),
            EPERM
        );
    }

    #[test]
    fn each_group_gives_its_reason() {
        for line in POLICY.lines().filter(|l| l.contains('[')) {
            let reason = line.split_once("] ").map_or("", |(_, reason)| reason);
            assert!(reason.len() > 20, "{line}");
        }
    }
}
