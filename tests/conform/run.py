#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Run one conformance file: run.py PROGRAM FILE [--frames].

PROGRAM is kvroute-explain, or conform-frames, which says the same in frames to the router.

Lines of a file: `#` comment; `{...}` (or anything else) an input line; `= {...}` the next output
line that it causes, given in part: every key named must be there and equal. Numbers match to 1e-9,
"*" matches anything, {"one_of": [...]} any of a list; arrays match element by element. Lines with
op `session`, `expired` and `state` may stand anywhere among those of their input line, and those
with `state` are skipped unless the expectation is theirs. Nothing else may be written, and the exit
status must say whether a BadOp was.
"""
import json
import subprocess
import sys


def match(want, got, path):
    if want == "*":
        return None
    if isinstance(want, dict) and set(want) == {"one_of"}:
        if any(match(w, got, path) is None for w in want["one_of"]):
            return None
        return f"{path}: {got!r} is none of {want['one_of']!r}"
    if isinstance(want, dict):
        if not isinstance(got, dict):
            return f"{path}: wanted an object, got {got!r}"
        for k, v in want.items():
            if k not in got:
                return f"{path}.{k}: missing"
            bad = match(v, got[k], f"{path}.{k}")
            if bad:
                return bad
        return None
    if isinstance(want, list):
        if not isinstance(got, list) or len(want) != len(got):
            return f"{path}: wanted {len(want)} elements, got {got!r}"
        for i, (w, g) in enumerate(zip(want, got)):
            bad = match(w, g, f"{path}[{i}]")
            if bad:
                return bad
        return None
    if isinstance(want, bool) or isinstance(got, bool) or isinstance(want, (str, type(None))):
        return None if want == got and type(want) is type(got) else f"{path}: {want!r} != {got!r}"
    if isinstance(want, int) and isinstance(got, int):
        return None if want == got else f"{path}: {want} != {got}"
    if isinstance(got, (int, float)) and abs(want - got) <= 1e-9 * max(1, abs(want)):
        return None
    return f"{path}: {want!r} != {got!r}"


# Lines that may stand anywhere among those of their input line (rule 1).
FLOATING = ('session', 'expired', 'state')
# Stands between the input lines, so that each one's output is known.
MARK = '{"op":"hash","tokens":[271828182],"block_size":1,"lora_name":"between the lines"}'


def play(program, feed):
    """Output lines by input line, and the exit status."""
    text = MARK + '\n' + ''.join(f'{line}\n{MARK}\n' for line in feed)
    run = subprocess.run([program, "-"], input=text, text=True, stdout=subprocess.PIPE, timeout=60,
                         check=False)
    lines = run.stdout.splitlines()
    groups = [[]]
    for line in lines[1:]:
        if line == lines[0]:
            groups.append([])
            continue
        got = json.loads(line)
        if 'line' in got:
            got['line'] //= 2
        groups[-1].append(got)
    return groups, run.returncode


def judge(wants, got, frames):
    """What is wrong with the output lines of one input line; None when nothing is."""
    left = list(got)
    for number, want in wants:
        if frames and want.get('error') == 'NoEndpoints':
            # A router tells those whom a worker may serve soon to come again.
            want = {k: v for k, v in want.items() if k != 'retryable'}
        floating = want.get('op') in FLOATING
        at = [x for x in left if (x['op'] in FLOATING) == floating]
        if not floating:
            at = at[:1]
        bad = [match(want, x, "") for x in at]
        if None not in bad:
            return f"{number}: {bad[0] if bad else f'no output left for {want}'}\n  got {json.dumps(got)}"
        left.remove(at[bad.index(None)])
    rest = [x for x in left if x["op"] != "state"]
    return f"unexpected output {json.dumps(rest[0])}" if rest else None


def main():
    program, name = sys.argv[1:3]
    feed, wants = [], [[]]
    for number, line in enumerate(open(name, encoding="utf-8"), 1):
        line = line.rstrip("\n")
        if line.startswith("="):
            wants[-1].append((number, json.loads(line[1:])))
        elif not line.startswith("#"):
            feed.append(line)
            wants.append([])
    groups, status = play(program, feed)
    if len(groups) != len(feed) + 1:
        sys.exit(f"{name}: ended after {len(groups) - 1} of {len(feed)} lines, exit status {status}")
    for k, line in enumerate(feed):
        bad = judge(wants[k + 1], groups[k], "--frames" in sys.argv)
        if bad:
            sys.exit(f"{name}:{bad}\n  after {line}")
    wanted = 1 if any(w.get("error") == "BadOp" for x in wants for _, w in x) else 0
    if status != wanted:
        sys.exit(f"{name}: exit status {status}, wanted {wanted}")
    print(f"{sum(len(x) for x in wants)} expectations met")


main()
