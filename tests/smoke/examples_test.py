#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The examples of app/examples against a router: the second time the prompt is cached.

protocol_test.sh starts it: examples_test.py KVROUTE CLIENT ENGINE
"""
import subprocess
import sys
import time

import child
from protocol_router import ADDRESSES, Router

POOLS = """[pool llama]
id = 3
block_size = 16
max_ranks = 16
max_blocks = 65536
"""


def client(*args):
    return subprocess.run([sys.argv[2], *args], capture_output=True, text=True, timeout=60)


def main():
    router, failed = Router(sys.argv[1], POOLS), True
    router.telemetry("/kvroute/balance")
    with child.start([sys.argv[3], ADDRESSES[0], "llama", "17", "16"]) as engine:
        end = time.monotonic() + 30
        while (first := client(ADDRESSES[0], "llama", "100")).returncode and time.monotonic() < end:
            time.sleep(0.1)
        while "6 blocks" not in (again := client(ADDRESSES[0], "llama", "100")).stdout and time.monotonic() < end:
            time.sleep(0.1)
        refused = client(ADDRESSES[0], "unknown", "100")
        failed = (first.stdout != "worker 17, 0 blocks cached: 100 tokens\n" or again.stdout != "worker 17, 6 blocks cached: 100 tokens\n"
                  or refused.returncode == 0 or not refused.stderr)
        print(first, again, refused, sep="\n")
        engine.terminate()
    sys.exit(1 if router.finish(failed) else 0)


if __name__ == "__main__":
    main()
