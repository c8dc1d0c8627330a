#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A router and kvroute-load joined by memif, while engines die and return: nothing may be lost, misplaced or left behind.

usage: load_test.py KVROUTE KVROUTE_LOAD PROFILE CASE [--seconds S] [--keep]

The load plays both ends and checks its counters (violations, misplaced, lost, ...); after its end, the router's telemetry must show that nothing is
left. Exit status 77: no telemetry socket available.
"""
import argparse
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

import child

# Pauses between turns are at most half of --session-timeout (2 s by default): far below the expiry of a session. Engines are killed
# with GOODBYE, so that loss by silence does not matter on a busy machine.
PATIENT = {"suspect_ms": 5000, "dead_ms": 10000}
SESSIONS = ["--sessions", "60", "--turns", "4", "--abandon-share", "0.2", "--release-share", "0.2", "--session-timeout", "4"]
KILLS = ["--kill-every", "0.7", "--kill-down", "0.4"]
CASES = {
    "disagg": dict(load=["--disagg", "3:3", *KILLS], router=PATIENT, lingering=True),
    "disagg-silent": dict(load=["--disagg", "3:3", "--kill-every", "2.2", "--kill-down", "2", "--kill-mode", "silent"],
                          router={"suspect_ms": 300, "dead_ms": 1000}),
    "disagg-direct": dict(load=["--disagg", "2:2", "--direct", "--cancel-share", "0.1", *KILLS], router=PATIENT,
                          pool={"enforce_disagg": "false"}),
    "sessions": dict(load=[*SESSIONS, *KILLS, "--open-fail-share", "0.05"], router=PATIENT),
    "affinity": dict(load=["--sessions", "60", "--turns", "4", "--affinity", *KILLS], router=PATIENT,
                     pool={"session_affinity_ttl_secs": 8}),
    "disagg-sessions": dict(load=["--disagg", "3:3", *SESSIONS, *KILLS], router=PATIENT),
    "disagg-affinity": dict(load=["--disagg", "3:3", "--sessions", "60", "--turns", "4", "--affinity", *KILLS], router=PATIENT,
                            pool={"session_affinity_ttl_secs": 8}),
}
# A busy machine deschedules programs for longer than the default retransmission; a request lost with these limits is really lost.
PATIENCE = ["--repeat-ms", "200", "--max-tries", "200", "--drain", "60"]
COMMON = ["--idle", "sleep", "--ranks", "2", "--rate", "200", "--blocks-per-rank", "2048", "--prefill-us-per-token", "5",
          "--decode-us-per-token", "500", "--json", "--quiet", *PATIENCE]


class Failed(Exception):
    pass


def configuration(profile, case, directory, prefix, cpu):
    """The profile with a socket and a file prefix of this test, and the keys of the case."""
    with open(profile) as f:
        text = f.read()
    for key, value in (("ingress", cpu), ("file_prefix", prefix), ("hugepages", "off")):
        text = re.sub(rf"^{key} *=.*$", f"{key} = {value}", text, flags=re.M)
    text = re.sub(r"socket=[^,]*", f"socket={directory}/memif.sock", text)
    for section, extra in ((r"\[router\]", {"idle": "sleep", **case.get("router", {})}), (r"\[pool [^]]*\]", case.get("pool", {}))):
        lines = "".join(f"\n{key} = {value}" for key, value in extra.items())
        text = re.sub(rf"^({section})$", rf"\1{lines}", text, flags=re.M)
    path = os.path.join(directory, "router.conf")
    with open(path, "w") as f:
        f.write(text)
    return path


def telemetry(prefix, command):
    base = os.environ.get("RUNTIME_DIRECTORY") or ("/var/run" if os.geteuid() == 0 else
                                                   os.environ.get("XDG_RUNTIME_DIR", "/tmp"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(10)
        s.connect(f"{base}/dpdk/{prefix}/dpdk_telemetry.v2")
        limit = json.loads(s.recv(1024))["max_output_len"]
        s.send(command.encode())
        return json.loads(s.recv(limit))[command.split(",")[0]]


@contextlib.contextmanager
def a_router(kvroute, conf_text, prefix, directory):
    """A router that is ready, in @directory; it must run to the end and then stop in an orderly way. Exit 77: no telemetry."""
    conf, log_path = f"{directory}/router.conf", f"{directory}/router.log"
    with open(conf, "w") as f:
        f.write(conf_text)
    with open(log_path, "w") as log:
        router = child.start([kvroute, "--config", conf], stdout=log, stderr=log)
    try:
        for _ in range(600):
            with open(log_path) as f:
                if "kvroute: ready" in f.read():
                    break
            if router.poll() is not None:
                raise Failed("the router did not start")
            time.sleep(0.1)
        try:
            telemetry(prefix, "/kvroute/info")
        except OSError as e:
            print(f"no telemetry socket: {e}")
            sys.exit(77)
        yield router
        router.terminate()
        if router.wait(20) != 0:
            raise Failed(f"the router ended with {router.returncode}")
    finally:
        if router.poll() is None:
            router.kill()
            router.wait()


def in_directory(name, job):
    """Runs job(directory) in a folder of its own; prints the end of the router's log if it fails. Ends the program."""
    with tempfile.TemporaryDirectory(prefix=f"kvr-{name}.") as directory:
        try:
            job(directory)
        except (Failed, subprocess.TimeoutExpired) as e:
            with open(f"{directory}/router.log") as f:
                print("".join(f.readlines()[-20:]))
            print(f"FAILED: {e}")
            sys.exit(1)
    print("ok")


def left_behind(prefix, lingering=False):
    """What the router still holds, as {name: count}; empty if nothing is left. @lingering: ended requests count, too."""
    balance, pools = telemetry(prefix, "/kvroute/balance"), telemetry(prefix, "/kvroute/pools")["pools"]
    left = {k: v for k, v in balance.items() if isinstance(v, int) and v != 0 and k != "lost"}
    if not lingering:
        left.pop("slots_used", None)  # of all pools: each of them tells how many linger
    if balance["balance"] != "ok":
        left["balance"] = balance["violation"]
    for name, pool in pools.items():
        held = {"slots": pool["slots_used"] - (0 if lingering else pool["slots_lingering"]), "legs": pool.get("legs", 0)}
        held.update({k: pool["requests"][k] for k in ("live", "waiting", "legs_pending") if k in pool["requests"]})
        left.update({f"{name} {k}": v for k, v in held.items() if v != 0})
    for name, sessions in (telemetry(prefix, "/kvroute/sessions") or {}).items():
        left.update({f"{name} sessions {k}": sessions["counters"][k] for k in ("live", "opening", "closing")
                     if sessions["counters"][k]})
    return left


def judge(result, case):
    """Reasons why the load's own results are not good."""
    c = result["counters"]
    zero = ["lost", "violations"]
    bad = [f"{k} = {result[k]}" for k in zero if result[k]]
    bad += [f"counter {k} = {c[k]}" for k in ("corrupt", "transfer_timeouts", "engine_gave_up") if c[k]]
    if result["completed"] == 0 or result["killed"]["kills"] == 0:
        bad.append("nothing was completed, or no engine was killed: nothing is tested")
    killed = result["killed"]
    if killed["requests"] != killed["completed"] + killed["refused"] + killed["other"]:
        bad.append(f"killed requests do not add up: {killed}")
    if "disagg" in result:
        d = result["disagg"]
        if d["path_bootstrap"] == 0 or d["path_sync"] == 0:
            bad.append(f"a path was not used: {d}")
    if "sessions" in result:
        s = result["sessions"]
        bad += [f"sessions {k} = {s[k]}" for k in ("misplaced", "closed_early", "closed_twice", "opened_twice", "unknown",
                                                   "release_lost", "still_open") if s[k]]
        explicit = "--affinity" not in case["load"]
        if s["turns_on_bound"] == 0 or (explicit and 0 in (s["closed"], s["released"], s["expired"])):
            bad.append(f"an end was not tried: {s}")
        if s["opened"] != s["closed"] + s["released"] + s["expired"] + s["closed_early"] + s["lost_with_worker"]:
            bad.append(f"sessions do not add up: {s}")
    return bad


def run(opt, case, directory):
    cpus = sorted(os.sched_getaffinity(0))
    prefix = f"kvr-lt-{os.getpid()}"
    conf = configuration(opt.profile, case, directory, prefix, cpus[0])
    log_path = os.path.join(directory, "router.log")
    with open(log_path, "w") as log:
        router = child.start([opt.kvroute, "--config", conf], stdout=log, stderr=log)
    try:
        for _ in range(300):
            with open(log_path) as f:
                if "kvroute: ready" in f.read():
                    break
            if router.poll() is not None:
                raise Failed("the router did not start")
            time.sleep(0.1)
        try:
            telemetry(prefix, "/kvroute/info")
        except OSError as e:
            print(f"no telemetry socket: {e}")
            sys.exit(77)
        load = subprocess.run([opt.load, "--socket", f"{directory}/memif.sock", "--core", str(cpus[-1]), "--seconds",
                               str(opt.seconds), *COMMON, *case["load"]], stdout=subprocess.PIPE, text=True, timeout=120)
        if load.returncode != 0 or router.poll() is not None:
            raise Failed(f"kvroute-load ended with {load.returncode}, the router with {router.poll()}")
        result = json.loads(load.stdout)
        counters = {k: v for k, v in result["counters"].items() if v}
        print(json.dumps({k: v for k, v in result.items() if k != "counters"}), json.dumps(counters), sep="\n")
        bad = judge(result, case)
        deadline = time.monotonic() + 30
        while (left := left_behind(prefix, case.get("lingering", False))) and time.monotonic() < deadline:
            time.sleep(0.2)
        if left:
            bad.append(f"the router still has {left}")
        if bad:
            raise Failed("; ".join(bad))
    finally:
        router.terminate()
        try:
            router.wait(10)
        except subprocess.TimeoutExpired:
            router.kill()
            router.wait()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("kvroute")
    p.add_argument("load")
    p.add_argument("profile")
    p.add_argument("case", choices=CASES)
    p.add_argument("--seconds", type=float, default=4)
    opt = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvr-load.") as directory:
        try:
            run(opt, CASES[opt.case], directory)
        except Failed as e:
            with open(os.path.join(directory, "router.log")) as f:
                print("".join(f.readlines()[-20:]))
            print(f"FAILED {opt.case}: {e}")
            sys.exit(1)
    print(f"{opt.case}: ok")


if __name__ == "__main__":
    main()
