#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-load, interrupted in the middle of a run, sends no new requests, waits for those in flight, and reports as usual. If a counter
that must be 0 is not, it reports that and fails. A second signal ends the wait.

load_interrupted.py KVROUTE KVROUTE_LOAD
"""
import json
import re
import signal
import subprocess
import sys
import time

from scripts import PATIENT, Case, child

KVROUTE, LOAD = sys.argv[1:3]
# Answers take 2 s: many requests are in flight at any time.
SLOW = ('--decode-us-per-token', '20000', '--osl', '100')
case = Case('load_interrupted')
router = case.start(KVROUTE, 'one')
if 'kvroute: ready' not in case.log('one'):
    sys.exit('FAILED: the router did not become ready: ' + case.log('one'))


def begin(*more):
    """Start a load with requests in flight; it reports them once a second."""
    load = child.start([LOAD, '--socket', case.socket, '--router', '10.0.0.1', '--rate', '100', '--seconds', '600', '--engines', '2',
                        '--idle', 'sleep', '--json', *SLOW, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in load.stderr:
        live = re.search(r' run .*in flight +([0-9]+)', line)
        if live and int(live[1]) > 50:
            return load
    raise SystemExit(f'FAILED: no load: exit {load.wait()}')


def end(load, limit):
    out, err = load.communicate(timeout=limit)
    return json.loads(out)['counters'] if out else None, err


load = begin(*PATIENT)
load.send_signal(signal.SIGINT)
c, err = end(load, 100)
case.check(load.returncode == 0 and c, 'interrupted: exit', load.returncode, err[-300:])
if c:
    case.check(c['completed'] == c['sent'] and c['sent'] > 50 and c['lost'] == 0 and c['in_flight'] == 0,
               'requests in flight were not awaited:', {k: v for k, v in c.items() if v})
    case.check(c['requests'] == c['sent'] + c['not_sent'], 'counters do not balance:', c)

# The engines no longer answer: requests in flight are lost, which is a failure.
load = begin('--drain', '2', '--repeat-ms', '200', '--max-tries', '200')
router.send_signal(signal.SIGSTOP)
load.send_signal(signal.SIGINT)
c, err = end(load, 100)
case.check(load.returncode == 1 and c and c['lost'] > 50 and c['in_flight'] == 0, 'lost requests with exit status',
           load.returncode, c)
case.check('lost' in err and 'must be 0' in err, 'the failure is not reported:', err[-300:])
router.send_signal(signal.SIGCONT)

# The drain would last an hour.
load = begin('--drain', '3600', '--repeat-ms', '200', '--max-tries', '200')
router.send_signal(signal.SIGSTOP)
load.send_signal(signal.SIGINT)
time.sleep(0.5)
case.check(load.poll() is None, 'requests in flight were not awaited')
load.send_signal(signal.SIGTERM)
c, err = end(load, 100)
case.check(load.returncode == 1 and c and c['lost'] > 50, 'a second signal: exit', load.returncode, c)
router.send_signal(signal.SIGCONT)
case.end(router)
sys.exit(bool(case.failures))
