#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A router with 1, 2 or 4 ingress lcores and kvroute-load joined by a memif with one queue, then with one for each of them.

usage: lcores_test.py KVROUTE KVROUTE_LOAD LCORES

One queue is polled by one lcore, which gives frames to the lcore of their source. With several every frame leaves first through the
next queue, so that the fragments of each long prompt come to all ingress lcores; then each sender keeps its queue. All requests must be
answered, and nothing may be left in the router. The lcores take turns on the CPUs there are, as ID@CPU says, and share the last one with
the load: this is about what is done, not about how fast. Exit status 77: no telemetry.
"""
import contextlib
import json
import os
import subprocess
import sys
import time

from load_test import Failed, a_router, in_directory, left_behind, telemetry

CONF = """[router]
ingress = {lcores}
idle = {idle}
hugepages = off
memory_mb = {memory_mb}
file_prefix = {prefix}
; a machine that stalls is no silence
suspect_ms = 20000
dead_ms = 40000
[port p0]
device = net_memif0,role=server,socket={directory}/memif.sock,socket-abstract=no,rsize=12,bsize=2048
ipv4 = 10.77.0.1
tx_checksum = none
[pool default]
id = 0
block_size = 16
max_ranks = 64
max_blocks = 64K
"""
COMMON = ["--idle", "sleep", "--engines", "2", "--ranks", "2", "--turns", "1", "--blocks-per-rank", "0", "--prefill-us-per-token",
          "0", "--decode-us-per-token", "100", "--max-tries", "200", "--drain", "40", "--memory", "256", "--json", "--quiet"]
# 578 frames each.
PROMPTS, TOKENS = 20, 200000
LONG = ["--spread", "frame", "--tokens", "--system-prompts", "1", "--system-tokens", str(TOKENS), "--user-tokens", "64",
        "--conversations", "4", "--rate", "10", "--requests", str(PROMPTS), "--repeat-ms", "1000"]
SHORT = ["--spread", "flow", "--rate", "300", "--requests", "600", "--repeat-ms", "200"]
FRAMES = 600 * 4  # at least: ROUTE, DISPATCH_ACK, RESPONSE, its ACK
ONE = ["--spread", "flow", "--rate", "300", "--requests", "300", "--repeat-ms", "200"]
CLIENTS = 64


def load(program, directory, cpu, queues, arguments):
    """The account of a run in which every request was answered."""
    run = subprocess.run([program, "--socket", f"{directory}/memif.sock", "--core", str(cpu), "--queues", str(queues), *COMMON, *arguments],
                         stdout=subprocess.PIPE, text=True, timeout=100)
    if run.returncode != 0:
        raise Failed(f"kvroute-load {arguments[1]} ended with {run.returncode}")
    result = json.loads(run.stdout)
    counters = {k: v for k, v in result["counters"].items() if v}
    print(arguments[1], json.dumps(counters))
    if result["completed"] != counters["requests"]:
        raise Failed(f"of {counters['requests']} requests {result['completed']} were answered")
    return counters


def where_they_run(prefix, pid, cpus):
    """lcore i of telemetry is EAL's i + 1, and its thread has the CPU that the map says, alone or not."""
    stages = telemetry(prefix, "/kvroute/stages")
    threads = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):  # one of the start's that has ended
            with open(f"/proc/{pid}/task/{task}/comm") as f:
                threads[f.read().strip()] = os.sched_getaffinity(int(task))
    for i, cpu in enumerate(cpus):
        if stages[f"lcore{i}"]["cpu"] != cpu or threads[f"rte-worker-{i + 1}"] != {cpu}:
            raise Failed(f"lcore {i} is not on CPU {cpu}: {stages[f'lcore{i}']['cpu']}, {threads}")


def one_ring(prefix, directory, program, cpu, n):
    """The other queues have no ring: they would poll that of the first one."""
    load(program, directory, cpu, 1, ONE)
    port = telemetry(prefix, "/kvroute/ports")["p0"]
    lcores = [port[f"lcore{i}"] for i in range(n)]
    print("one ring", json.dumps(lcores))
    if (port["queues"], port["rx_queues"], port["tx_queues"]) != (n, 1, 1):
        raise Failed(f"queues {port['queues']}, used {port['rx_queues']} and {port['tx_queues']}")
    if any(lc["rx_frames"] or lc["tx_sent"] for lc in lcores[1:]) or not lcores[0]["rx_frames"]:
        raise Failed("a queue without a ring was used")
    if lcores[0]["spread_out"] != sum(lc["spread_in"] for lc in lcores[1:]):
        raise Failed("frames were lost between the lcores")
    if telemetry(prefix, "/kvroute/balance")["balance"] != "ok":
        raise Failed("the counters do not add up")


def items(prefix, n):
    stages = telemetry(prefix, "/kvroute/stages")
    return [stages[f"lcore{i}"]["ingress"]["items"] for i in range(n)]


def silence_is_explained(program, directory, cpu, n):
    """Engines with another block size are rejected: the load reports the rejection and its queue."""
    run = subprocess.run([program, "--socket", f"{directory}/memif.sock", "--core", str(cpu), "--queues", str(n), *COMMON, *SHORT,
                          "--block-size", "32"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=100)
    said = [f"greeted {CLIENTS} of {CLIENTS} clients and 0 of 2 engines", "frames received"]
    if n > 1:
        said += [f"queue {i}: {CLIENTS // n} of {CLIENTS // n} clients" for i in range(n)]
    if run.returncode != 1 or any(line not in run.stderr for line in said):
        raise Failed(f"{run.returncode}: {run.stderr}")


def check(prefix, directory, program, cpu, n):
    one_ring(prefix, directory, program, cpu, n)
    load(program, directory, cpu, n, LONG)
    seen = telemetry(prefix, "/kvroute/ingress")
    print("ingress", json.dumps({k: v for k, v in seen.items() if v}))
    if seen["reassembled"] < PROMPTS:
        raise Failed(f"{seen['reassembled']} messages were joined")
    # With n lcores one reassembles a message: (n - 1) / n of all its fragments arrive at others.
    if seen["fragments_forwarded"] < PROMPTS * TOKENS * 4 / 1432 * (n - 1) / n * 2 / 3:
        raise Failed(f"{seen['fragments_forwarded']} fragments changed lcores: they did not come to all")
    before = items(prefix, n)
    load(program, directory, cpu, n, SHORT)
    frames = [now - was for now, was in zip(items(prefix, n), before)]
    print("frames of each lcore", frames)
    if min(frames) < FRAMES / n / 2:
        raise Failed(f"the ingress lcores have had {frames} frames")
    end = time.monotonic() + 30
    while (left := left_behind(prefix)) and time.monotonic() < end:
        time.sleep(0.2)
    if left:
        raise Failed(f"the router still has {left}")
    silence_is_explained(program, directory, cpu, n)


def run(directory):
    kvroute, program, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    have = sorted(os.sched_getaffinity(0))
    cpus = [have[i % len(have)] for i in range(n)]
    prefix = f"kvr-lc{n}-{os.getpid()}"
    conf = CONF.format(lcores=",".join(f"{i}@{cpu}" for i, cpu in enumerate(cpus)), prefix=prefix, directory=directory,
                       memory_mb=512 + 256 * n,  # each reassembles messages of 578 frames
                       idle="poll" if n == 2 and len(have) > 1 else "interrupt")
    with a_router(kvroute, conf, prefix, directory) as router:
        where_they_run(prefix, router.pid, cpus)
        check(prefix, directory, program, have[-1], n)


if __name__ == "__main__":
    in_directory("lcores", run)
