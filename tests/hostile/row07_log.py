#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Row 7: standard error is a pipe that is full and nobody reads. The router works, and says afterwards what it had to say.

  row07_log.py KVROUTE KVROUTE_LOAD
"""
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time

KVROUTE, LOAD = sys.argv[1:3]
tmp = tempfile.mkdtemp(prefix='kvr-row07.')
sock = os.path.join(tmp, 'm.sock')
with open(os.path.join(tmp, 'r.conf'), 'w') as f:
    f.write(f'''[router]
file_prefix = kvr-row07-{os.getpid()}
hugepages = off
memory_mb = 256
[port p]
device = net_memif0,role=server,id=0,socket={sock},socket-abstract=no
ipv4 = 10.0.0.1
[pool default]
max_requests = 1024
max_blocks = 65536
max_active_blocks = 65536
max_ranks = 64
''')
rd, wr = os.pipe()
fcntl.fcntl(wr, fcntl.F_SETPIPE_SZ, 4096)
os.set_blocking(wr, False)
try:
    while True:
        os.write(wr, b'x' * 64)
except BlockingIOError:
    pass
os.set_blocking(wr, True)
out = open(os.path.join(tmp, 'out'), 'w+')
router = subprocess.Popen([KVROUTE, '--config', os.path.join(tmp, 'r.conf')], stdout=out, stderr=wr)
os.close(wr)
for _ in range(300):
    out.seek(0)
    if 'kvroute: ready' in out.read():
        break
    time.sleep(0.1)
else:
    sys.exit('FAILED: the router did not become ready')
bad = 0
# Engines die and return: lines about them.
load = subprocess.run([LOAD, '--socket', sock, '--router', '10.0.0.1', '--rate', '200', '--seconds', '3', '--engines', '4',
                       '--kill-every', '0.1', '--kill-down', '0.05', '--drain', '5', '--json', '--quiet'],
                      capture_output=True, text=True, timeout=60)
if load.returncode != 0:
    print('FAILED: no routing while nobody reads the log:', load.stderr[-300:])
    bad = 1
# Now somebody reads: all that was kept is there.
os.set_blocking(rd, False)
text = b''
until = time.monotonic() + 5
while time.monotonic() < until:
    try:
        text += os.read(rd, 65536)
    except BlockingIOError:
        time.sleep(0.05)
    if b'left out' in text:
        break
lines = text.decode(errors='replace').split('\n')
if not any('worker 1 joining -> serving' in x for x in lines):
    print('FAILED: the log has lost what it had room for:', lines[-5:])
    bad = 1
if any(x.startswith('USER1') for x in lines):
    print('FAILED: lines past the log')
    bad = 1
router.send_signal(signal.SIGTERM)
try:
    if router.wait(20) != 0:
        print('FAILED: end:', router.returncode)
        bad = 1
except subprocess.TimeoutExpired:
    print('FAILED: does not end')
    router.kill()
    bad = 1
sys.exit(bad)
