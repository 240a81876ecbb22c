//! Rules to a BPF program: a binary search over ranges of numbers, so that a call that the kernel's own cache of verdicts
//! does not cover takes eight comparisons, and installing the filter (which tries every number) stays cheap.

use cosm_sys::seccomp::Instruction;

use super::policy::{Action, ENOSYS, EPERM, Rule};

const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// Offset of the low half of argument `n` on a little-endian machine.
const fn argument(n: u32) -> u32 {
    16 + 8 * n
}

const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ERRNO: u32 = 0x0005_0000;

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;

const fn plain(code: u16, value: u32) -> Instruction {
    Instruction {
        code,
        jump_true: 0,
        jump_false: 0,
        value,
    }
}
const fn jump(code: u16, value: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction {
        code,
        jump_true,
        jump_false,
        value,
    }
}
const fn fail(errno: u16) -> Instruction {
    plain(RETURN, RET_ERRNO | errno as u32)
}
const fn allow() -> Instruction {
    plain(RETURN, RET_ALLOW)
}

/// Compiles rules that are sorted by number. `None` where a jump would be too far.
pub(super) fn compile(rules: &[Rule]) -> Option<Vec<Instruction>> {
    // Programs for another architecture that this kernel also runs number their calls differently.
    let mut program = vec![
        plain(LOAD, ARCHITECTURE),
        jump(JUMP_EQUAL, NATIVE, 1, 0),
        fail(ENOSYS),
        plain(LOAD, NUMBER),
    ];
    program.extend(search(&segments(rules))?);
    Some(program)
}

/// The whole range of numbers as segments of one action each: where it starts, and what happens from there on.
fn segments(rules: &[Rule]) -> Vec<(u32, Action)> {
    let mut segments: Vec<(u32, Action)> = Vec::new();
    let mut next = 0;
    let mut add = |start: u32, action: Action| {
        if segments.last().is_none_or(|(_, last)| *last != action) {
            segments.push((start, action));
        }
    };
    for rule in rules {
        if rule.number > next {
            add(next, Action::Fail(EPERM));
        }
        add(rule.number, rule.action);
        next = rule.number + 1;
    }
    // What this policy does not know yet, the x32 numbers among it.
    add(next, Action::Fail(ENOSYS));
    segments
}

fn search(segments: &[(u32, Action)]) -> Option<Vec<Instruction>> {
    match segments {
        [] => None,
        [(_, action)] => Some(leaf(*action)),
        _ => {
            let (low, high) = segments.split_at(segments.len() / 2);
            let (below, above) = (search(low)?, search(high)?);
            let mut code = vec![jump(
                JUMP_AT_LEAST,
                high.first()?.0,
                u8::try_from(below.len()).ok()?,
                0,
            )];
            code.extend(below);
            code.extend(above);
            Some(code)
        }
    }
}

fn leaf(action: Action) -> Vec<Instruction> {
    match action {
        Action::Allow => vec![allow()],
        Action::Fail(errno) => vec![fail(errno)],
        Action::UnlessFlags(flags) => vec![
            plain(LOAD, argument(0)),
            jump(JUMP_ANY_BIT, flags, 0, 1),
            fail(EPERM),
            allow(),
        ],
        Action::OneOf(values) => one_of(argument(0), values, allow(), fail(EPERM)),
        Action::NoneOf(values) => one_of(argument(1), values, fail(EPERM), allow()),
        Action::Socket => socket(),
    }
}

fn one_of(
    argument: u32,
    values: &[u32],
    found: Instruction,
    other: Instruction,
) -> Vec<Instruction> {
    let mut code = vec![plain(LOAD, argument)];
    for (index, value) in values.iter().enumerate() {
        code.push(jump(JUMP_EQUAL, *value, (values.len() - index) as u8, 0));
    }
    code.extend([other, found]);
    code
}

/// AF_UNIX, AF_INET, AF_INET6; AF_NETLINK for NETLINK_ROUTE, NETLINK_SOCK_DIAG and NETLINK_KOBJECT_UEVENT.
fn socket() -> Vec<Instruction> {
    let mut code = vec![
        plain(LOAD, argument(0)),
        jump(JUMP_EQUAL, 1, 4, 0),
        jump(JUMP_EQUAL, 2, 3, 0),
        jump(JUMP_EQUAL, 10, 2, 0),
        jump(JUMP_EQUAL, 16, 2, 0),
        fail(EPERM),
        allow(),
    ];
    code.extend(one_of(argument(2), &[0, 4, 15], allow(), fail(EPERM)));
    code
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Runs a filter as the kernel would, on the native architecture.
    pub(in super::super) fn run(program: &[Instruction], number: u32, args: [u64; 6]) -> u32 {
        run_on(program, NATIVE, number, args)
    }

    fn run_on(program: &[Instruction], architecture: u32, number: u32, args: [u64; 6]) -> u32 {
        let (mut at, mut accumulator) = (0, 0_u32);
        loop {
            let step = program[at];
            at += 1;
            let mut branch = |taken: bool| {
                at += usize::from(if taken {
                    step.jump_true
                } else {
                    step.jump_false
                })
            };
            match step.code {
                LOAD => {
                    accumulator = match step.value {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        offset => args[(offset as usize - 16) / 8] as u32,
                    };
                }
                JUMP_EQUAL => branch(accumulator == step.value),
                JUMP_AT_LEAST => branch(accumulator >= step.value),
                JUMP_ANY_BIT => branch(accumulator & step.value != 0),
                RETURN => return step.value,
                code => panic!("unknown code {code:x}"),
            }
        }
    }

    #[test]
    fn every_number_gets_its_rule() {
        let rules: Vec<Rule> = [3, 4, 5, 9, 200, 201]
            .map(|number| Rule {
                number,
                action: if number == 9 {
                    Action::Fail(ENOSYS)
                } else {
                    Action::Allow
                },
            })
            .to_vec();
        let program = compile(&rules).expect("compiles");
        for number in 0..1000 {
            let wanted = match rules.iter().find(|r| r.number == number).map(|r| r.action) {
                Some(Action::Allow) => RET_ALLOW,
                Some(_) => RET_ERRNO | u32::from(ENOSYS),
                None if number > 201 => RET_ERRNO | u32::from(ENOSYS),
                None => RET_ERRNO | u32::from(EPERM),
            };
            assert_eq!(run(&program, number, [0; 6]), wanted, "{number}");
        }
        assert_eq!(
            run_on(&program, 0x4000_0003, 3, [0; 6]),
            RET_ERRNO | u32::from(ENOSYS),
            "a 32-bit program"
        );
    }
}
