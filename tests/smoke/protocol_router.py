# SPDX-License-Identifier: BSD-3-Clause
"""A running router for the tests that protocol_test.sh starts."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

ADDRESSES = ('10.9.0.1', 'fd09::1')


class Router:
    """Starts kvroute on the interface kvr-router; stops it, and shows its log when told so."""

    def __init__(self, program, pools, router_options=''):
        cpus = sorted(os.sched_getaffinity(0))[:2]
        self.prefix = f'kvr-proto-{os.getpid()}'
        self.dir = tempfile.mkdtemp(prefix='kvroute-protocol-')
        config = f'{self.dir}/router.conf'
        with open(config, 'w') as out:
            out.write(f'''[router]
ingress = {cpus[-1]}
hugepages = off
memory_mb = 512
file_prefix = {self.prefix}
{router_options}
[port p0]
device = net_af_packet0,iface=kvr-router,blocksz=16384,framesz=2048,framecnt=1024
ipv4 = {ADDRESSES[0]}
ipv6 = {ADDRESSES[1]}
rx_checksum = trust
answer_arp = auto
{pools}''')
        self.log = open(f'{self.dir}/router.log', 'w+')
        self.process = subprocess.Popen([program, '--config', config], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT)

    def alive(self):
        return self.process.poll() is None

    def telemetry(self, command, tries=100):
        """The answer of one telemetry command; waits for the socket to come up."""
        for _ in range(tries):
            answer = subprocess.run(['dpdk-telemetry.py', '-f', self.prefix], input=command + '\n',
                                    capture_output=True, text=True, timeout=10).stdout
            for line in answer.splitlines():
                if line.startswith('{"' + command.split(',')[0] + '"'):
                    value = json.loads(line)[command.split(',')[0]]
                    if value is not None:  # None: not ready yet
                        return value
            if not self.alive():
                raise RuntimeError('the router has ended')
            time.sleep(0.05)
        raise RuntimeError(f'no answer to {command}: {answer}')

    def stop(self):
        """Exit status of the router after SIGTERM."""
        self.process.terminate()
        try:
            return self.process.wait(10)
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
