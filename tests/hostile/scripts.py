# SPDX-License-Identifier: BSD-3-Clause
"""Helpers of the scripted cases: a router on a memif socket with kvroute-load beside it, and the router of tests/smoke."""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'smoke'))
import child  # noqa: E402
import kvrproto as proto  # noqa: E402,F401
import protocol_router  # noqa: E402
from protocol_router import Peers, Router, Tally  # noqa: E402,F401

# A busy machine deschedules the engines: their silence must not count, except after a kill.
CONF = '''[router]
file_prefix = {prefix}
idle = sleep
suspect_ms = 5000
dead_ms = 10000
hugepages = off
memory_mb = 256
[port p]
device = net_memif0,role={role},id=0,socket={socket},socket-abstract=no
ipv4 = 10.0.0.1
[pool default]
max_requests = 4096
max_blocks = 65536
max_active_blocks = 65536
max_ranks = 64
'''

# By default kvroute-load gives up a request after 0.4 s (20 attempts, 20 ms apart): too short for a descheduled router. A request
# lost with these limits is really lost.
PATIENT = ('--repeat-ms', '200', '--max-tries', '200', '--drain', '60')


class Case:
    """A folder, a memif socket in it, the routers started there, and the failures found."""

    def __init__(self, name, role='server'):
        self.name, self.role, self.failures = name, role, []
        self.dir = tempfile.mkdtemp(prefix=f'kvr-{name}.')
        self.socket = f'{self.dir}/m.sock'
        atexit.register(self.tidy)

    def tidy(self):
        """Failures are diagnosed in the folder."""
        if not self.failures:
            shutil.rmtree(self.dir, ignore_errors=True)

    def check(self, good, *what):
        if not good:
            self.failures.append(what)
            print('FAILED:', *what, flush=True)
        return good

    def log(self, name):
        with open(f'{self.dir}/{name}.log') as f:
            return f.read()

    def prefix(self, name):
        """The file prefix of that router."""
        return f'kvr-{self.name}-{os.getpid()}-{name}'

    def start(self, program, name, stderr=None):
        """A router that is ready, or has ended. Its output goes to log(name), standard error to `stderr` if given."""
        conf = f'{self.dir}/{name}.conf'
        with open(conf, 'w') as f:
            f.write(CONF.format(prefix=self.prefix(name), role=self.role, socket=self.socket))
        with open(f'{self.dir}/{name}.log', 'w') as out:
            router = child.start([program, '--config', conf], stdout=out, stderr=out if stderr is None else stderr)
        end = time.monotonic() + 30
        while 'kvroute: ready' not in self.log(name) and router.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        return router

    def load(self, program, rate, seconds, engines, *more):
        """kvroute-load at the other end of the socket; it reports as JSON on standard output."""
        return child.start([program, '--socket', self.socket, '--router', '10.0.0.1', '--rate', str(rate), '--seconds',
                            str(seconds), '--engines', str(engines), '--idle', 'sleep', '--json', '--quiet', *more],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, router):
        """SIGTERM must end it in an orderly way."""
        if router.poll() is None:
            router.send_signal(signal.SIGTERM)
        try:
            self.check(router.wait(20) == 0, 'end:', router.returncode)
        except subprocess.TimeoutExpired:
            router.kill()
            router.wait()
            self.check(False, 'does not end')


def telemetry(case, name, command):
    """The answer of the router of that name."""
    return protocol_router.telemetry(case.prefix(name), command)


def router_log(router):
    """The log of a protocol_router.Router so far."""
    with open(router.log.name) as f:
        return f.read()


def conclude(tally, failed=False):
    print(f'{tally.passed} passed, {len(tally.failures)} failed')
    sys.exit(bool(tally.failures) or failed)
