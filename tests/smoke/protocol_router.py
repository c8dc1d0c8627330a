# SPDX-License-Identifier: BSD-3-Clause
"""A running router for the tests that protocol_test.sh starts."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import child
from kvrproto import run_until

ADDRESSES = ('10.9.0.1', 'fd09::1')


LONGEST = 60  # s: a busy machine deschedules programs; only a hanging one takes longer


def telemetry(prefix, command):
    """The answer of the router with that file prefix. Starts no program: peers in this process would be silent meanwhile."""
    base = os.environ.get('RUNTIME_DIRECTORY') or ('/var/run' if os.geteuid() == 0 else os.environ.get('XDG_RUNTIME_DIR', '/tmp'))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(LONGEST)
        s.connect(f'{base}/dpdk/{prefix}/dpdk_telemetry.v2')
        limit = json.loads(s.recv(1024))['max_output_len']
        s.send(command.encode())
        return json.loads(s.recv(limit))[command.split(',')[0]]


class Router:
    """Starts kvroute on the interface kvr-router; stops it, and prints its log after a failure."""

    def __init__(self, program, pools, router_options='', ingress=1, memory_mb=640, frames=1024, interface='kvr-router',
                 addresses=ADDRESSES, mtu=0, port='', device='', before=()):
        """`ingress` lcores, spread over the CPUs, poll a packet socket each, with space for `frames`; `mtu` 0: the default; `port`: further keys of
        the port; `device`: instead of packet sockets; `before`: prefix of the command."""
        cpus = sorted(os.sched_getaffinity(0))
        # Concurrent tests must not all poll one CPU.
        polling = [f'{i}@{cpus[(i + (os.getpid() if ingress == 1 else 0)) % len(cpus)]}' for i in range(ingress)]
        # Lcores that share a CPU sleep and are woken.
        idle = {1: 'idle = sleep'}.get(ingress, 'idle = interrupt' if ingress > len(cpus) else '')
        self.prefix = f'kvr-proto-{os.getpid()}' + interface.removeprefix('kvr-router')
        self.dir = tempfile.mkdtemp(prefix='kvroute-protocol-')
        config = f'{self.dir}/router.conf'
        device = device or (f'net_af_packet0,iface={interface},blocksz=16384,framesz={16384 if mtu else 2048},'
                            f'framecnt={frames},qpairs={ingress}')
        with open(config, 'w') as out:
            out.write(f'''[router]
ingress = {','.join(polling)}
hugepages = {os.environ.get('KVR_HUGEPAGES', 'off')}
memory_mb = {memory_mb}
{'' if 'idle' in router_options else idle}
file_prefix = {self.prefix}
{router_options}
[port p0]
device = {device}
ipv4 = {addresses[0]}
ipv6 = {addresses[1]}
rx_checksum = trust
answer_arp = auto
{f'mtu = {mtu}' if mtu else ''}
{port}
{pools}''')
        self.log = open(f'{self.dir}/router.log', 'w+')
        self.command = [*before, program, '--config', config]
        self.start()

    def start(self):
        self.process = child.start(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)

    def alive(self):
        return self.process.poll() is None

    def telemetry(self, command):
        """The answer of one telemetry command; waits for the socket to come up."""
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                value = telemetry(self.prefix, command)
                if value is not None:  # None: not ready yet
                    return value
            if not self.alive():
                raise RuntimeError('the router has ended')
            time.sleep(0.05)
        raise RuntimeError(f'no answer to {command}')

    def state(self):
        with open(f'/proc/{self.process.pid}/stat') as f:
            return f.read().rsplit(')', 1)[1].split()[0]

    def hold(self):
        """The router is stopped until go_on()."""
        self.process.send_signal(signal.SIGSTOP)
        while self.state() != 'T':
            time.sleep(0.001)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        """Exit status of the router after SIGTERM."""
        self.process.terminate()
        try:
            return self.process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return 'killed'

    def finish(self, failed):
        """Stops the router; keeps its folder when the test failed."""
        status = self.stop()
        if status != 0:
            print(f'FAIL the router ended with {status}')
            failed = True
        if failed:
            self.log.seek(0)
            sys.stdout.write(self.log.read()[-4000:])
            print(f'kept {self.dir}')
        else:
            shutil.rmtree(self.dir)
        return failed


class Tally:
    """Results so far, and time limits of the test and of a step."""

    def __init__(self, seconds, patience):
        self.end, self.patience = time.monotonic() + seconds, patience
        self.passed, self.failures = 0, []

    def check(self, name, good, detail=''):
        if good:
            self.passed += 1
        else:
            self.failures.append(name)
            print(f'FAIL {name}: {detail}', flush=True)
        return good

    def left(self):
        return max(0.0, self.end - time.monotonic())

    def broke(self):
        """In an except clause: the test did not reach its end."""
        self.failures.append('exception')
        traceback.print_exc()

    def balanced(self, router):
        """The router's counters balance, and nothing is booked or waits."""
        end = time.monotonic() + self.left()
        while True:
            answer = router.telemetry('/kvroute/balance')
            good = answer['balance'] == 'ok' and not answer['bookings'] and not answer['waiting']
            if good or time.monotonic() > end:
                return self.check('balance', good, answer)
            time.sleep(0.05)

    def finish(self, router, log=None):
        """Print the end of the file `log`, if any, after a failure; stop the router and end the program."""
        if self.failures and log and os.path.exists(log):
            with open(log) as f:
                print(f.read()[-6000:])
        failed = router.finish(bool(self.failures))
        print(f'{self.passed} passed, {len(self.failures)} failed')
        sys.exit(1 if failed else 0)

    def beside(self, router, test, log=None):
        """test() beside a router that is ready; then finish()."""
        try:
            router.telemetry('/kvroute/balance')
            test()
        except Exception:  # the router's log is wanted then, too
            self.broke()
        self.finish(router, log)

    def run(self, router, family, last=lambda: None):
        """A family over each address, a router with nothing left, and `last`; then exit."""
        def families():
            for address in ADDRESSES:
                family(address).run()
            self.balanced(router)
            workers = router.telemetry('/kvroute/workers')
            self.check('no worker is left', workers['total'] == 0, workers)
            last()
        self.beside(router, families)


class Peers:
    """Endpoints over one version of IP; subclasses fill `all` with them."""

    def __init__(self, tally, address):
        self.tally, self.ip, self.v6, self.all = tally, address, ':' in address, []

    def check(self, name, good, detail=''):
        return self.tally.check(f'{"IPv6" if self.v6 else "IPv4"} {name}', good, detail)

    def until(self, name, condition, detail=lambda: ''):
        seconds = min(self.tally.patience, self.tally.left())
        return self.check(name, run_until(self.all, condition, seconds), detail())
