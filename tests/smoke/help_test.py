#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every program prints its name, version and options, and exits with 2 for unknown ones; the manual pages contain all of those options and every key
of the configuration.

usage: help_test.py ROOT PROGRAM...
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])


def output(*args):
    run = subprocess.run(args, capture_output=True, text=True, timeout=60)
    if run.returncode:
        sys.exit(f"FAILED {args}: {run.returncode} {run.stderr}")
    return run.stdout


def main():
    version = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())[1]
    for program in sys.argv[2:]:
        name = Path(program).name
        if output(program, "--version") != f"{name} {version}\n":
            sys.exit(f"FAILED {name} --version: {output(program, '--version')!r}")
        wrong = subprocess.run([program, "--no-such-option"], capture_output=True, text=True, timeout=60)
        if wrong.returncode != 2 or not wrong.stderr:
            sys.exit(f"FAILED {name} --no-such-option: {wrong.returncode}, {wrong.stderr!r}")
        if name == "kvroute-load":  # a line of ours, not DPDK's options
            wrong = subprocess.run([program, "--core", "1023"], capture_output=True, text=True, timeout=60)
            if wrong.returncode != 2 or not re.fullmatch(r"kvroute-load: --core: got 1023, allowed: a CPU .*: [0-9].*\n", wrong.stderr):
                sys.exit(f"FAILED {name} --core 1023: {wrong.returncode}, {wrong.stderr!r}")
        text = output(program, "--help")
        page = output(str(ROOT / "tools/man"), f"{name}.{8 if name == 'kvroute' else 1}", program).replace("\\", "")
        missing = [o for o in re.findall(r"^ +(?:-\w, )?(--[\w-]+)", text, re.M) if o not in page]
        commands = re.findall(r"^  ([a-z]+.*?)  +\S", text.split("\n\n")[2], re.M) if "COMMAND" in text else []
        missing += [c for c in commands if f"\n*{c}*\n" not in page]
        if name not in text or missing:
            sys.exit(f"FAILED {name}: {missing} of --help are not in the manual page")
    known = {Path(p).name for p in sys.argv[2:]}
    built = {m for f in ROOT.glob("app/*/meson.build") for m in re.findall(r"executable\('(kvroute[\w-]*)'", f.read_text())}
    if known != built:
        sys.exit(f"FAILED: {known ^ built} are programs without a manual page, or pages without a program")
    conf = str(ROOT / "drivers-cfg/profiles/memif.conf")
    page = output(str(ROOT / "tools/man"), "kvroute.conf.5", sys.argv[2]).replace("\\", "")
    keys = re.findall(r"^(\w+) = ", output(sys.argv[2], "--config", conf, "--dump-config"), re.M)
    missing = [k for k in keys if f"*{k}*" not in page]
    if missing or len(keys) < 80:
        sys.exit(f"FAILED kvroute.conf(5): {missing}, of {len(keys)} keys")
    print(f"{len(sys.argv) - 2} programs, {len(keys)} keys")


if __name__ == "__main__":
    main()
