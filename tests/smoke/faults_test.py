#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Once ready, no polling thread of the router takes page faults, neither for its own tables nor for the memory of a connecting memif peer.

faults_test.py KVROUTE KVROUTE_LOAD
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'hostile'))
from scripts import PATIENT, Case  # noqa: E402

KVROUTE, LOAD = sys.argv[1:3]
# Code that runs for the first time, and the stack: without the fix there are 2,200 per peer.
FEW = 100


def faults(process):
    """{thread: page faults without reading a file} of polling threads."""
    seen = {}
    for thread in os.listdir(f'/proc/{process.pid}/task'):
        with open(f'/proc/{process.pid}/task/{thread}/stat') as f:
            name, fields = f.read().split('(', 1)[1].rsplit(')', 1)
        if name.startswith('rte-worker') or name.startswith('lcore-worker'):
            seen[thread] = int(fields.split()[7])
    return seen


case = Case('faults')
router = case.start(KVROUTE, 'one')
case.check(router.poll() is None, 'the router does not start:', case.log('one'))
before = faults(router)
case.check(before, 'no polling thread is found')
for peer in ('first', 'second'):
    load = case.load(LOAD, 1000, 2, 8, *PATIENT)
    _, err = load.communicate(timeout=120)
    case.check(load.returncode == 0, peer, 'peer: exit', load.returncode, err[-300:])
    after = faults(router)
    grown = sum(after.values()) - sum(before.values())
    print(f'{peer} peer: {grown} page faults')
    case.check(grown <= FEW, peer, 'peer:', grown, 'page faults of polling threads')
    before = after
case.end(router)
sys.exit(bool(case.failures))
