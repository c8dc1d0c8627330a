#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Row 37: the router under a memif peer dies and starts again; the peer comes back, and nothing is lost. And: kvroute-load says
with its exit status when something is.

  row37_peer.py KVROUTE KVROUTE_LOAD
"""
import json
import signal
import sys
import time

from scripts import PATIENT, Case

KVROUTE, LOAD = sys.argv[1:3]


def report(case, peer, what):
    """What kvroute-load has counted; {} when it reports nothing."""
    out, err = peer.communicate(timeout=120)
    try:
        return json.loads(out), err
    except ValueError:
        case.check(False, what, 'no report:', out[-300:], err[-300:])
        return {}, err


def kill(router):
    router.send_signal(signal.SIGKILL)
    router.wait()


def router_dies():
    case = Case('row37')
    router = case.start(KVROUTE, 'one')
    peer = case.load(LOAD, 200, 8, 4, *PATIENT)
    time.sleep(2.5)
    kill(router)
    time.sleep(0.5)
    router = case.start(KVROUTE, 'two')
    seen, err = report(case, peer, 'the peer of a restarted router:')
    case.check(peer.returncode == 0, 'the peer of a restarted router:', peer.returncode, err[-300:])
    # More than once: the new router listens before it is ready.
    case.check(seen.get('counters', {}).get('link_lost'), 'the link was never lost')
    # 500 are due before it dies; the engines need a moment to join the new one.
    case.check(seen.get('lost') == 0 and seen.get('completed', 0) >= 600, 'completed', seen.get('completed'), 'of',
               seen.get('requests'), 'lost', seen.get('lost'), seen.get('error_codes'))
    # A router that dies for good: what is lost is said.
    peer = case.load(LOAD, 200, 4, 4, '--drain', '1')
    time.sleep(2)
    kill(router)
    seen, err = report(case, peer, 'the peer of a dead router:')
    case.check(peer.returncode != 0, 'exit status 0 with', seen.get('lost'), 'lost')
    case.check('lost' in err and 'must be 0' in err, 'exit', peer.returncode, 'said:', err[-300:])
    return case.failures


sys.exit(bool(router_dies()))
