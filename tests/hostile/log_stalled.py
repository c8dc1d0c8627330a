#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Standard error is a full pipe without a reader. The router keeps working and writes the log lines afterwards. Telemetry counts lines that
were written, dropped and limited, and these equal the lines read.

log_stalled.py KVROUTE KVROUTE_LOAD
"""
import fcntl
import os
import re
import sys
import time

from scripts import PATIENT, Case, telemetry

KVROUTE, LOAD = sys.argv[1:3]


def full_pipe():
    rd, wr = os.pipe()
    fcntl.fcntl(wr, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(wr, False)
    try:
        while True:
            os.write(wr, b'x' * 64)
    except BlockingIOError:
        pass
    os.set_blocking(wr, True)
    return rd, wr


case = Case('log_stalled')
rd, wr = full_pipe()
router = case.start(KVROUTE, 'one', stderr=wr)
os.close(wr)
if 'kvroute: ready' not in case.log('one'):
    sys.exit('FAILED: the router did not become ready')
# Engines die and return: log lines about them.
load = case.load(LOAD, 200, 3, 4, '--kill-every', '0.1', '--kill-down', '0.05', *PATIENT)
_, err = load.communicate(timeout=120)
case.check(load.returncode == 0, 'no routing without a reader of the log:', err[-300:])
# More engines than the pool accepts: there is no space left for their log lines.
for _ in range(20):
    if telemetry(case, 'one', '/kvroute/log')['buffer_full']:
        break
    load = case.load(LOAD, 1, 1, 1000, '--block-size', '32')
    load.communicate(timeout=120)
counts = telemetry(case, 'one', '/kvroute/log')
drops = telemetry(case, 'one', '/kvroute/drops')
case.check(counts['buffer_full'] > 0 and counts['rate_limited'] > 0, 'nothing was dropped or limited:', counts)
case.check(drops.get('log_buffer_full') == counts['buffer_full'] and drops.get('log_rate_limited') == counts['rate_limited'],
           'reported drops differ from the log:', drops, counts)
# Now the test reads: all kept lines are there.
os.set_blocking(rd, False)
text = b''


def read(seconds, enough):
    """Read until @count lines are there."""
    global text
    until = time.monotonic() + seconds
    while time.monotonic() < until and not enough():
        try:
            text += os.read(rd, 65536)
        except BlockingIOError:
            time.sleep(0.05)


def lines():
    return [x for x in text.decode(errors='replace').lstrip('x').split('\n')[:-1] if 'log lines dropped' not in x]


def counted():
    """Lines about engines that have gone since may have been added."""
    return telemetry(case, 'one', '/kvroute/log')['lines']


read(20, lambda: len(lines()) == counted())
case.check(len(lines()) == counted(), 'lines counted and lines read:', counts, counted(), len(lines()))
case.check(any('worker 1 joining -> serving' in x for x in lines()), 'the log lost lines that it had space for:', lines()[-5:])
case.check(all(x.startswith('time=') for x in lines()), 'lines beyond the log:', lines()[:3])
case.check(any(' left_out=' in x for x in lines()), 'no line reports the limited lines')
# The next line reports exactly how many were dropped before it.
load = case.load(LOAD, 50, 1, 1, '--worker-base', '5000', *PATIENT)
load.communicate(timeout=120)
counts = telemetry(case, 'one', '/kvroute/log')
read(20, lambda: b'log lines dropped' in text and len(lines()) >= counts['lines'])
told = sum(int(n) for n in re.findall(rb'log lines dropped.* dropped=([0-9]+)\n', text))
case.check(told == counts['buffer_full'] and len(lines()) == counts['lines'], 'dropped, reported, lines read:', counts, told, len(lines()))
case.end(router)
sys.exit(bool(case.failures))
