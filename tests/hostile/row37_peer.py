#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Row 37: the router under a memif peer dies and starts again; the peer comes back, and nothing is lost. And: kvroute-load says
with its exit status when something is.

  row37_peer.py KVROUTE KVROUTE_LOAD
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

KVROUTE, LOAD = sys.argv[1:3]
tmp = tempfile.mkdtemp(prefix='kvr-row37.')
sock = os.path.join(tmp, 'm.sock')
with open(os.path.join(tmp, 'r.conf'), 'w') as f:
    f.write(f'''[router]
file_prefix = kvr-row37-{os.getpid()}
hugepages = off
memory_mb = 256
[port p]
device = net_memif0,role=server,id=0,socket={sock},socket-abstract=no
ipv4 = 10.0.0.1
[pool default]
max_requests = 4096
max_blocks = 65536
max_active_blocks = 65536
max_ranks = 64
''')
bad = 0


def fail(*what):
    global bad
    print('FAILED:', *what)
    bad = 1


def start(name):
    log = open(os.path.join(tmp, name + '.log'), 'w+')
    p = subprocess.Popen([KVROUTE, '--config', os.path.join(tmp, 'r.conf')], stdout=log, stderr=log)
    for _ in range(300):
        log.seek(0)
        if 'kvroute: ready' in log.read():
            return p
        if p.poll() is not None:
            break
        time.sleep(0.1)
    log.seek(0)
    sys.exit(f'FAILED: no start: {log.read()}')


def load(seconds, *more):
    return subprocess.Popen([LOAD, '--socket', sock, '--router', '10.0.0.1', '--rate', '200', '--seconds', str(seconds),
                             '--engines', '4', '--json', '--quiet', *more],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


router = start('one')
peer = load(8, '--drain', '20', '--max-tries', '60')
time.sleep(2.5)
router.send_signal(signal.SIGKILL)
router.wait()
time.sleep(0.5)
router = start('two')
out, err = peer.communicate(timeout=90)
if peer.returncode != 0:
    fail('the peer of a restarted router:', peer.returncode, err[-300:])
try:
    seen = json.loads(out)
    counters = seen['counters']
    if counters['link_lost'] == 0:  # more than once: the new router listens before it is ready
        fail('the link was never lost')
    # 500 are due before it dies; the engines need a moment to join the new one.
    if seen['lost'] != 0 or seen['completed'] < 600:
        fail('completed', seen['completed'], 'of', seen['requests'], 'lost', seen['lost'], seen.get('error_codes'))
except ValueError:
    fail('no report:', out[-300:])

# A router that dies for good: what is lost is said.
peer = load(4, '--drain', '1')
time.sleep(2)
router.send_signal(signal.SIGKILL)
router.wait()
out, err = peer.communicate(timeout=90)
if peer.returncode == 0:
    fail('exit status 0 with', json.loads(out)['lost'], 'lost')
elif 'lost' not in err or 'must be 0' not in err:
    fail('exit', peer.returncode, 'said:', err[-300:])
sys.exit(bad)
