"""What is checked on the machine with cgroup v2. Says it as verdict.rs reads it.

Without an argument, as root: all of it. With `suite`: what whoever runs it can see. With `make NAME` or `see NAME`: one
end of the check of what a logout leaves.
"""

import json
import os
import pathlib
import pwd
import signal
import subprocess
import sys
import time

COSM = "/proof/cosm"
CGROUPS = pathlib.Path("/sys/fs/cgroup")
# Software emulation on a busy machine.
PATIENCE = 120

FORKS = """
import os, time
forks = 0
try:
    while forks < 500:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        forks += 1
except OSError as error:
    print(forks, error.errno)
"""


class Ended:
    """How a command ended, and all that it wrote."""

    def __init__(self, arguments):
        ran = subprocess.run(
            arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
        )
        self.code, self.out, self.err = ran.returncode, ran.stdout, ran.stderr

    def __str__(self):
        return f"code {self.code}, stdout {self.out!r}, stderr {self.err!r}"


def cosm(*arguments, code=0):
    ended = Ended([COSM, *arguments])
    if code is not None and ended.code != code:
        raise AssertionError(f"cosm {' '.join(arguments)}: {ended}, not code {code}")
    return ended


def shown(*arguments):
    return json.loads(cosm(*arguments, "--json").out)


def expect(holds, seen):
    if not holds:
        raise AssertionError(seen)


def who():
    return "root" if os.geteuid() == 0 else "user"


def check(name, trial):
    try:
        trial()
    except Exception as error:  # Whatever it is, it is what was seen.
        print(f"FAIL {name}: {type(error).__name__}: {error}", flush=True)
    else:
        print(f"PASS {name}", flush=True)


def cgroups():
    """The cgroups that are cosm's, by their names."""
    return {folder for folder, _, _ in os.walk(CGROUPS) if "cosm" in os.path.basename(folder)}


def gone(look, within=10):
    end = time.monotonic() + within
    while look() and time.monotonic() < end:
        time.sleep(0.1)
    expect(not look(), f"still there: {look()}")


def limits(name):
    """Each limit file in the cgroups of the only sandbox, with its value, and the folder of the guest's processes."""
    values = {}
    for folder in cgroups():
        for below, _, files in os.walk(folder):
            for file in {"memory.max", "memory.swap.max", "pids.max", "cpu.max"} & set(files):
                values.setdefault(file, set()).add(pathlib.Path(below, file).read_text().strip())
    return values


def doctor():
    found = shown("doctor")
    print(f"NOTE {who()}: doctor: {json.dumps(found)}")


def runs():
    expect(cosm("run", "--", "echo", "inside").out == "inside\n", "no echo")
    gone(cgroups)


def memory_bomb():
    ended = cosm("run", "--memory", "64m", "--", "tail", "/dev/zero", code=137)
    expect("memory" in ended.err, f"no word of memory: {ended}")
    gone(cgroups)


def memory_bomb_in_a_sandbox_that_goes_on():
    cosm("create", "--name", "bomb", "--memory", "64m")
    try:
        values = limits("bomb")
        expect(str(64 << 20) in values["memory.max"], values)
        expect("0" in values.get("memory.swap.max", {"0"}), values)
        ended = cosm("exec", "bomb", "--", "tail", "/dev/zero", code=137)
        expect("memory" in ended.err, f"no word of memory: {ended}")
        cosm("exec", "bomb", "--", "true")
    finally:
        cosm("rm", "--force", "bomb")
    gone(cgroups)


def fork_bomb():
    ended = cosm("run", "--pids", "32", "--", "python3", "-c", FORKS)
    forks, errno = map(int, ended.out.split())
    expect(0 < forks < 32 and errno == 11, ended)
    gone(cgroups)


def fork_bomb_in_a_cgroup():
    cosm("create", "--name", "forks", "--pids", "32")
    try:
        values = limits("forks")
        expect("32" in values["pids.max"], values)
    finally:
        cosm("rm", "--force", "forks")
    gone(cgroups)


def processors():
    cosm("create", "--name", "half", "--cpus", "0.5")
    try:
        values = limits("half")
        expect("50000 100000" in values["cpu.max"], values)
    finally:
        cosm("rm", "--force", "half")
    gone(cgroups)


def usage_of_each_command():
    cosm("create", "--name", "used", "--memory", "256m")
    try:
        burn = "n = 0\nwhile n < 2000000: n += 1\nx = bytearray(50 << 20)"
        job = cosm("exec", "-d", "used", "--", "sh", "-c", '(setsid python3 -c "$0" & exit 0) | cat', burn).out.strip()
        idle = cosm("exec", "-d", "used", "--", "true").out.strip()
        busy, idle = (json.loads(cosm("jobs", "used", "--wait", "--json", one).out)["usage"] for one in (job, idle))
        print(f"NOTE {who()}: usage of a busy command {json.dumps(busy)}, of an idle one {json.dumps(idle)}")
        spent, little = (usage["user_us"] + usage["system_us"] for usage in (busy, idle))
        expect(spent > 50_000 and little < spent, (busy, idle))
        # All of it is a grandchild's, whose parent has gone.
        expect(50 << 20 <= busy["peak_memory"] < 256 << 20 and idle["peak_memory"] < 50 << 20, (busy, idle))
        whole = shown("metrics", "used")
        print(f"NOTE {who()}: metrics {json.dumps(whole)}")
        whole = (whole[0] if isinstance(whole, list) else whole)["usage"]
        # The guest's own group counts everything, also what has ended.
        expect(whole["cpu_us"] >= spent, whole)
        expect(whole["memory_limit"] == 256 << 20 and whole["oom_kills"] == 0 and whole["pids"] >= 1, whole)
    finally:
        cosm("rm", "--force", "used")
    gone(cgroups)


def killed_keeper():
    cosm("create", "--name", "orphan", "--memory", "64m")
    before = cgroups()
    expect(before, "no cgroup")
    keepers = [int(pid) for pid in Ended(["pgrep", "-f", "cosm __keeper"]).out.split()]
    expect(len(keepers) == 1, f"keepers: {keepers}")
    os.kill(keepers[0], signal.SIGKILL)
    time.sleep(0.5)
    cosm("ls")
    gone(cgroups)
    cosm("rm", "--force", "orphan")


def suite():
    for trial in (
        doctor, runs, memory_bomb, memory_bomb_in_a_sandbox_that_goes_on, fork_bomb, fork_bomb_in_a_cgroup, processors,
        usage_of_each_command, killed_keeper,
    ):
        check(f"{who()}: {trial.__name__.replace('_', ' ')}", trial)


def as_tester(*arguments):
    """Runs this in a login session of the ordinary user's, which is over when it returns."""
    session = ["systemd-run", "--quiet", "--wait", "--pipe", "--property=User=tester", "--property=PAMName=login"]
    ran = subprocess.run(
        [*session, "python3", __file__, *arguments], stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=4 * PATIENCE,
    )
    return ran.stdout


def testers_processes():
    return Ended(["pgrep", "-u", "tester", "-l"]).out.split("\n")[:-1]


def logout_ends_it():
    expect("made" in as_tester("make", "box"), "not made")
    # The user's manager goes 10 s after the last session, and all that is in its cgroup with it.
    gone(testers_processes, within=60)
    seen = as_tester("see", "box")
    # Its keeper was told to end, and has stopped it. It can be started again.
    expect("state is stopped" in seen and "stdout 'answers" in seen, seen)
    gone(cgroups)


def lingering_outlives_a_logout():
    Ended(["loginctl", "enable-linger", "tester"])
    expect("made" in as_tester("make", "box2"), "not made")
    time.sleep(15)
    seen = as_tester("see", "box2")
    expect("state is running" in seen and "stdout 'answers" in seen, seen)
    gone(cgroups)


def clock_jumps():
    # The only machine of the tests whose clock is nobody else's.
    ran = subprocess.run(
        ["/proof/attacks", "lifecycle::clock_jumps"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env={**os.environ, "COSM_BIN": COSM, "COSM_TEST_CLOCK": "1"}, timeout=5 * PATIENCE,
    )
    expect("1 passed; 0 failed; 0 skipped" in ran.stdout, repr(ran.stdout[-3000:] + ran.stderr))


def make(name):
    print("made" if cosm("create", "--name", name, "--memory", "64m").code == 0 else "")


def see(name):
    state = shown("inspect", name)["state"]
    print("state is", state)
    if state != "running":
        cosm("start", name)
    print(Ended([COSM, "exec", name, "--", "echo", "answers"]))
    cosm("rm", "--force", name)


def main():
    kind = Ended(["stat", "-fc", "%T", str(CGROUPS)]).out.strip()
    check("the machine has cgroup v2 alone", lambda: expect(kind == "cgroup2fs", kind))
    os.environ["HOME"] = pwd.getpwuid(os.geteuid()).pw_dir
    suite()
    print(as_tester("suite"), end="")
    check("user: logout ends it", logout_ends_it)
    check("user: lingering outlives a logout", lingering_outlives_a_logout)
    check("root: clock jumps", clock_jumps)
    print("END", flush=True)


if len(sys.argv) > 1:
    {"suite": suite, "make": make, "see": see}[sys.argv[1]](*sys.argv[2:])
else:
    main()
