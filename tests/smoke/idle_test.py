#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A router whose idle lcores sleep: everything is still answered, the lcores have slept, engines stay, and a peer that connects, disconnects and
reconnects finds the router awake. Without sleep (poll) no lcore sleeps.

usage: idle_test.py KVROUTE KVROUTE_LOAD
"""
import json
import os
import subprocess
import sys

from load_test import Failed, a_router, in_directory, telemetry

CONF = """[router]
ingress = {cpus[0]}
idle = {idle}
hugepages = off
memory_mb = 256
large_buffers = 4
file_prefix = {prefix}
suspect_ms = 20000
dead_ms = 40000
[port p0]
device = net_memif0,role=server,socket={directory}/memif.sock,socket-abstract=no,rsize=10,bsize=2048
ipv4 = 10.77.0.1
[pool default]
max_ranks = 16
max_requests = 1024
max_jobs = 256
max_blocks = 64K
scheduler_cpu = {cpus[1]}
"""
REQUESTS = 60
LOAD = ["--engines", "2", "--ranks", "2", "--turns", "2", "--blocks-per-rank", "512", "--prefill-us-per-token", "1",
        "--decode-us-per-token", "100", "--repeat-ms", "200", "--max-tries", "200", "--drain", "40", "--memory", "128", "--json",
        "--quiet", "--rate", "100", "--content-memory", "16", "--requests", str(REQUESTS)]


def load(program, directory, cpu, base):
    run = subprocess.run([program, "--socket", f"{directory}/memif.sock", "--core", str(cpu), "--worker-base", str(base), *LOAD],
                         stdout=subprocess.PIPE, text=True, timeout=100)
    result = json.loads(run.stdout)
    if run.returncode != 0 or result["completed"] != REQUESTS or result["lost"] or result["violations"]:
        raise Failed(f"kvroute-load ended with {run.returncode}: {result}")


def sleeps(prefix, lcores):
    return [telemetry(prefix, f"/kvroute/counters,lcore,lcore{i}")["sleeps"] for i in range(lcores)]


def one(directory, idle, cpus):
    """With two CPUs the scheduler has one of its own: a thread that gives it work wakes it."""
    prefix, lcores = f"kvr-idle-{os.getpid()}", len(set(cpus))
    text = CONF.format(idle=idle, cpus=cpus, prefix=prefix, directory=directory)
    with a_router(KVROUTE, text, prefix, directory):
        for base in (1, 101):
            load(KVROUTE_LOAD, directory, cpus[-1], base)
        slept = sleeps(prefix, lcores)
        if (idle == "poll" and any(slept)) or (idle != "poll" and not all(slept)):
            raise Failed(f"idle = {idle}: lcores have slept {slept} times")
        counters = telemetry(prefix, "/kvroute/balance")
        if counters["balance"] != "ok":
            raise Failed(f"balance: {counters}")
        print(idle, slept)


def all_of_them(directory):
    cpus = sorted(os.sched_getaffinity(0))
    for idle, two in (("sleep", [cpus[0], cpus[0]]), ("interrupt", [cpus[0], cpus[-1]]), ("poll", [cpus[0], cpus[0]])):
        one(directory, idle, two)


if __name__ == "__main__":
    KVROUTE, KVROUTE_LOAD = sys.argv[1:3]
    in_directory("idle", all_of_them)
