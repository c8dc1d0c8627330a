#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A router with two ingress CPUs and kvroute-load joined by a memif with one queue, then with two.

usage: lcores_test.py KVROUTE KVROUTE_LOAD

One queue is polled by one lcore, which gives frames to the lcore of their source. With two every frame leaves first through the
next queue, so that the fragments of each long prompt come to both ingress lcores; then each sender keeps its queue. All requests must be answered, and nothing may be left in the router. Two polling lcores and the load
share two CPUs here: this is about what is done, not about how fast. Exit status 77: there are no two CPUs, or no telemetry.
"""
import json
import os
import subprocess
import sys
import time

from load_test import Failed, a_router, in_directory, left_behind, telemetry

CONF = """[router]
ingress = {cpus}
hugepages = off
memory_mb = 768
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
COMMON = ["--engines", "2", "--ranks", "2", "--turns", "1", "--blocks-per-rank", "0", "--prefill-us-per-token",
          "0", "--decode-us-per-token", "100", "--max-tries", "200", "--drain", "40", "--memory", "256", "--json", "--quiet"]
# 578 frames each.
PROMPTS, TOKENS = 20, 200000
LONG = ["--spread", "frame", "--queues", "2", "--tokens", "--system-prompts", "1", "--system-tokens", str(TOKENS), "--user-tokens", "64",
        "--conversations", "4", "--rate", "4", "--requests", str(PROMPTS), "--repeat-ms", "1000"]
SHORT = ["--spread", "flow", "--queues", "2", "--rate", "300", "--requests", "600", "--repeat-ms", "200"]


ONE = ["--spread", "flow", "--queues", "1", "--rate", "300", "--requests", "300", "--repeat-ms", "200"]


def load(program, directory, cpu, arguments):
    """The account of a run in which every request was answered."""
    run = subprocess.run([program, "--socket", f"{directory}/memif.sock", "--core", str(cpu), *COMMON, *arguments],
                         stdout=subprocess.PIPE, text=True, timeout=100)
    if run.returncode != 0:
        raise Failed(f"kvroute-load {arguments[1]} ended with {run.returncode}")
    result = json.loads(run.stdout)
    counters = {k: v for k, v in result["counters"].items() if v}
    print(arguments[1], json.dumps(counters))
    if result["completed"] != counters["requests"]:
        raise Failed(f"of {counters['requests']} requests {result['completed']} were answered")
    return counters


def one_ring(prefix, directory, program, cpu):
    """The second queue has no ring: it would poll the first one's, too."""
    load(program, directory, cpu, ONE)
    port = telemetry(prefix, "/kvroute/ports")["p0"]
    lcores = [port[f"lcore{i}"] for i in range(2)]
    print("one ring", json.dumps(lcores))
    if (port["queues"], port["rx_queues"], port["tx_queues"]) != (2, 1, 1):
        raise Failed(f"queues {port['queues']}, used {port['rx_queues']} and {port['tx_queues']}")
    if lcores[1]["rx_frames"] or lcores[1]["tx_sent"] or not lcores[0]["rx_frames"]:
        raise Failed("a queue without a ring was used")
    if lcores[0]["spread_out"] != lcores[1]["spread_in"]:
        raise Failed("frames were lost between the lcores")
    if telemetry(prefix, "/kvroute/balance")["balance"] != "ok":
        raise Failed("the counters do not add up")


def silence_is_explained(program, directory, cpu):
    """Engines of another block size are not greeted: the load says what it heard, and by which queue."""
    run = subprocess.run([program, "--socket", f"{directory}/memif.sock", "--core", str(cpu), *COMMON, *SHORT, "--block-size", "32"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=100)
    if run.returncode != 1 or any(line not in run.stderr for line in (
            "greeted 64 of 64 clients and 0 of 2 engines", "queue 0: 32 of 32 clients", "queue 1: 32 of 32 clients", "frames received")):
        raise Failed(f"{run.returncode}: {run.stderr}")


def check(prefix, directory, program, cpu):
    one_ring(prefix, directory, program, cpu)
    load(program, directory, cpu, LONG)
    seen = telemetry(prefix, "/kvroute/ingress")
    print("ingress", json.dumps({k: v for k, v in seen.items() if v}))
    if seen["messages"] < PROMPTS:
        raise Failed(f"{seen['messages']} messages were joined")
    # Half of all fragments come to the lcore that does not join them.
    if seen["handed"] < PROMPTS * TOKENS * 4 / 1432 / 3:
        raise Failed(f"{seen['handed']} fragments changed lcores: they did not come to both")
    load(program, directory, cpu, SHORT)
    stages = telemetry(prefix, "/kvroute/stages")
    items = [stages[f"lcore{i}"]["ingress"]["items"] for i in range(2)]
    if min(items) < 600:
        raise Failed(f"the ingress lcores have had {items} frames")
    end = time.monotonic() + 30
    while (left := left_behind(prefix)) and time.monotonic() < end:
        time.sleep(0.2)
    if left:
        raise Failed(f"the router still has {left}")
    silence_is_explained(program, directory, cpu)


def run(directory):
    kvroute, program = sys.argv[1:3]
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        print("one CPU")
        sys.exit(77)
    prefix = f"kvr-lc-{os.getpid()}"
    conf = CONF.format(cpus=f"{cpus[0]},{cpus[1]}", prefix=prefix, directory=directory)
    with a_router(kvroute, conf, prefix, directory):
        check(prefix, directory, program, cpus[1])


if __name__ == "__main__":
    in_directory("lcores", run)
