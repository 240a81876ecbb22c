"""What is checked inside the machine. Says it as verdict.rs reads it."""

import subprocess


def main():
    kind = subprocess.run(["stat", "-fc", "%T", "/sys/fs/cgroup"], capture_output=True, text=True).stdout.strip()
    print("PASS cgroup v2 alone" if kind == "cgroup2fs" else f"FAIL cgroup v2 alone: {kind}")
    print("END", flush=True)


main()
