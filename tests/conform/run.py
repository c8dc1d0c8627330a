#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Run one conformance file through kvroute-explain.

Lines of a file: `#` comment; `{...}` (or anything else) an input line; `= {...}` the next output
line, given in part: every key named must be there and equal. Numbers match to 1e-9, "*" matches
anything, {"one_of": [...]} any of a list; arrays match element by element. Output lines with op
`state` are skipped unless the expectation is theirs. Nothing else may be written, and the exit
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


def main():
    program, name = sys.argv[1:3]
    feed, wants = [], []
    for number, line in enumerate(open(name, encoding="utf-8"), 1):
        line = line.rstrip("\n")
        if line.startswith("="):
            wants.append((number, json.loads(line[1:])))
        elif not line.startswith("#"):
            feed.append(line)
    run = subprocess.run([program, "-"], input="\n".join(feed) + "\n", text=True,
                         stdout=subprocess.PIPE, timeout=25, check=False)
    got = [json.loads(line) for line in run.stdout.splitlines()]
    at = 0
    for number, want in wants:
        while at < len(got) and got[at]["op"] == "state" and match(want, got[at], ""):
            at += 1
        if at == len(got):
            sys.exit(f"{name}:{number}: no output left for {want}")
        bad = match(want, got[at], "")
        if bad:
            sys.exit(f"{name}:{number}: {bad}\n  got {json.dumps(got[at])}")
        at += 1
    rest = [g for g in got[at:] if g["op"] != "state"]
    if rest:
        sys.exit(f"{name}: unexpected output {json.dumps(rest[0])}")
    status = 1 if any(w.get("error") == "BadOp" for _, w in wants) else 0
    if run.returncode != status:
        sys.exit(f"{name}: exit status {run.returncode}, wanted {status}")
    print(f"{len(wants)} expectations met")


main()
