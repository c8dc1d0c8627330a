#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A small kvroute-sim --scale: table, plot, and rejected options."""
import json, os, subprocess, sys, tempfile
import xml.etree.ElementTree as xml

SIM = sys.argv[1]
RANKS = [8, 32]
SESSIONS = 1200


def run(*args):
    return subprocess.run([SIM, "--scale", *args], capture_output=True, text=True, timeout=240)


def rows(text):
    """(workload, ranks, policy) -> requests, hit share, busiest / mean, queue mean, p99, TTFT, us."""
    out = {}
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if len(cells) == 10 and cells[1].isdigit():
            out[cells[0], int(cells[1]), cells[3]] = [float(c.rstrip(" %")) for c in [cells[2], *cells[4:]]]
    return out


def check_plot(path, policies):
    lines = [e for e in xml.parse(path).iter() if e.tag.endswith("polyline")]
    assert len(lines) == 4 * len(policies), len(lines)
    for e in lines:
        assert len(e.get("points").split()) == len(RANKS), e.get("points")


with tempfile.TemporaryDirectory() as d:
    svg = os.path.join(d, "scale.svg")
    args = ["--ranks", ",".join(map(str, RANKS)), "--sessions", str(SESSIONS), "--svg", svg]
    first, second = run(*args), run(*args)
    assert first.returncode == 0, first.stderr
    a, b = rows(first.stdout), rows(second.stdout)
    policies = {k[2] for k in a}
    assert policies == {"kv", "round-robin", "least-loaded"}, policies
    assert len(a) == len(RANKS) * len(policies), first.stdout
    for key, v in a.items():
        assert v[0] == 3 * SESSIONS and v[2] >= 1 and 0 <= v[3] <= v[5], (key, v)
        assert v[:-1] == b[key][:-1], ("two runs differ", key, v, b[key])
    for n in RANKS:  # kv knows the caches, so it finds more blocks cached
        assert a["sessions", n, "kv"][1] > 1.2 * a["sessions", n, "round-robin"][1], first.stdout
    check_plot(svg, policies)
    wide = run("--ranks", "10000", "--sessions", "1500")
    assert wide.returncode == 0, wide.stderr
    assert {k: v[0] for k, v in rows(wide.stdout).items()} == {("sessions", 10000, p): 4500 for p in policies}, wide.stdout
    for args, says in ((("--ranks", "100000"), "ranks"), (("--data", d), f"--data {d}: neither mooncake_conversation_trace.jsonl nor"),
                       (("--sessions", "0"), "without --data")):
        bad = run(*args)
        assert bad.returncode == 2 and says in bad.stderr and bad.stdout == "", (args, bad)
    with open(os.path.join(d, "mooncake_synthetic_trace.jsonl"), "w") as f:  # one request per second, two turns per conversation
        for i in range(400):
            blocks = [10 ** 6 + i // 2 * 4 + k for k in range(2 + i % 2)]
            f.write(json.dumps({"timestamp": 1000 * i, "input_length": 512 * len(blocks), "output_length": 8, "hash_ids": blocks}) + "\n")
    traced = run("--ranks", "8,4", "--ranks", "8", "--sessions", "0", "--per-rank", "25", "--data", d)  # the last --ranks counts
    assert traced.returncode == 0 and traced.stdout.count("skipped") == 1, traced
    assert {k: v[0] for k, v in rows(traced.stdout).items()} == {("synthetic", 8, p): 400 for p in policies}, traced.stdout
print("fine")
