#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Start lines of a router with more polling lcores than its ports have queues: banner_test.py KVROUTE

Exit status 77: no telemetry.
"""
import os
import re
import sys

from load_test import Failed, a_router, in_directory, telemetry

CONF = """[router]
ingress = 0@{cpu},1@{cpu},2@{cpu}
idle = interrupt
hugepages = off
memory_mb = 448
file_prefix = {prefix}
[port p0]
device = net_memif0,role=server,id=0,socket={directory}/memif0.sock,socket-abstract=no,rsize=8,bsize=2048
ipv4 = 10.77.0.1
queues = 2
[port p1]
device = net_memif1,role=server,id=1,socket={directory}/memif1.sock,socket-abstract=no,rsize=8,bsize=2048
ipv4 = 10.78.0.1
queues = 1
[pool default]
id = 0
max_blocks = 64K
"""
SAID = ["lcore 0 on CPU {cpu}: ingress and egress (queue 0 of every port), events of default, scheduler of default",
        "lcore 1 on CPU {cpu}: ingress and egress (queue 1 of 1 of the 2 ports)",
        "lcore 2 on CPU {cpu}: ingress and egress (no queue: sends through lcores with a queue)"]


def run(directory):
    cpu = min(os.sched_getaffinity(0))
    prefix = f"kvr-banner-{os.getpid()}"
    with a_router(sys.argv[1], CONF.format(cpu=cpu, prefix=prefix, directory=directory), prefix, directory):
        telemetry(prefix, "/kvroute/info")
    with open(f"{directory}/router.log") as f:  # whole: the router has ended
        said = re.findall(r'msg="(lcore [^"]*)"', f.read())
    if said != [line.format(cpu=cpu) for line in SAID]:
        raise Failed(said)


if __name__ == "__main__":
    in_directory("banner", run)
