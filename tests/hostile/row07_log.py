#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Row 7: standard error is a pipe that is full and nobody reads. The router works, and says afterwards what it had to say.

  row07_log.py KVROUTE KVROUTE_LOAD
"""
import fcntl
import os
import sys
import time

from scripts import PATIENT, Case

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


case = Case('row07')
rd, wr = full_pipe()
router = case.start(KVROUTE, 'one', stderr=wr)
os.close(wr)
if 'kvroute: ready' not in case.log('one'):
    sys.exit('FAILED: the router did not become ready')
# Engines die and return: lines about them.
load = case.load(LOAD, 200, 3, 4, '--kill-every', '0.1', '--kill-down', '0.05', *PATIENT)
_, err = load.communicate(timeout=120)
case.check(load.returncode == 0, 'no routing while nobody reads the log:', err[-300:])
# Now somebody reads: all that was kept is there.
os.set_blocking(rd, False)
text = b''
until = time.monotonic() + 5
while time.monotonic() < until and b'left out' not in text:
    try:
        text += os.read(rd, 65536)
    except BlockingIOError:
        time.sleep(0.05)
lines = text.decode(errors='replace').split('\n')
case.check(any('worker 1 joining -> serving' in x for x in lines), 'the log has lost what it had room for:', lines[-5:])
case.check(not any(x.startswith('USER1') for x in lines), 'lines past the log')
case.end(router)
sys.exit(bool(case.failures))
