#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A router with two ingress CPUs on AF_XDP, a queue for each, woken by its socket; clients and an agent behind a tap with two queues.

    xdp_queues_test.py KVROUTE CHANNELS

The router and its tap have a network namespace of their own, this program and its peers another; a child is the cable between, and
chooses the queue of a frame as a NIC does, by addresses and ports, or gives every frame to the next one. CHANNELS: see
tests/eal/channels.c. Exit status 77: no root, no tap or no XDP here, or one CPU.
"""

import ctypes
import fcntl
import json
import mmap
import os
import select
import struct
import subprocess
import sys
import time

import kvrproto as p
from child import die_with_parent
from protocol_router import Peers, Router, Tally

CLONE_NEWNET = 0x40000000
POOLS = '''[pool llama]
id = 3
block_size = 16
seed = 1
max_ranks = 16
max_blocks = 65536
dispatch_ms = 0
'''
POOL, B, QUEUES = 3, 16, 2
TOKENS = 100000  # a message of 290 frames
CLIENTS = 16
TALLY = Tally(150, patience=40.0)
ADDRESSES = ('10.9.0.1', 'fd09::1')


def skip(why):
    print(why)
    sys.exit(77)


def run(command):
    return subprocess.run(command.split(), check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def tap(name, queues):
    fds = [os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK) for _ in range(queues)]
    for fd in fds:
        # IFF_TAP | IFF_NO_PI, and IFF_MULTI_QUEUE
        fcntl.ioctl(fd, 0x400454ca, struct.pack('16sH22x', name.encode(), 0x1002 | (0x0100 if queues > 1 else 0)))
    return fds


class Cable:
    """Between the queues of the router's tap and the peers' one. What is counted: UDP to and from the router's port."""

    def __init__(self, router, peers):
        self.router, self.peers, self.turn = router, peers, 0
        self.shared = memoryview(mmap.mmap(-1, 4096)).cast('Q')  # every frame in turn, frames to each queue, from each
        if os.fork() == 0:
            die_with_parent()
            while True:
                self.carry()

    def each(self, way):
        return list(self.shared[1 + QUEUES * way:1 + QUEUES * (way + 1)])

    def to(self):
        return self.each(0)

    def back(self):
        return self.each(1)

    def in_turn(self, on):
        self.shared[0] = on

    def queue(self, udp, frame):
        if udp is None:
            return 0
        if self.shared[0]:
            self.turn += 1
        else:  # what RSS is made of
            self.turn = sum(frame[udp - (32 if frame[12] == 0x86 else 8):udp + 4])
        return self.turn % QUEUES

    def carry(self):
        for fd in select.select([*self.router, self.peers], [], [])[0]:
            frame = os.read(fd, 65536)
            v6 = frame[12:14] == b'\x86\xdd'
            udp = 54 if v6 and frame[20] == 17 else 34 if frame[12:14] == b'\x08\0' and frame[23] == 17 else None
            if fd == self.peers:
                queue = self.queue(udp, frame)
                out, at = self.router[queue], 1 + queue if udp and frame[udp + 2:udp + 4] == PORT else None
            else:
                out = self.peers
                at = 1 + QUEUES + self.router.index(fd) if udp and frame[udp:udp + 2] == PORT else None
            if at:
                self.shared[at] += 1
            os.write(out, frame)


PORT = struct.pack('!H', p.PORT)


def lcores():
    port = ROUTER.telemetry('/kvroute/ports')['p0']
    return port, [port[f'lcore{i}'] for i in range(QUEUES)]


class Family(Peers):
    def __init__(self, address):
        super().__init__(TALLY, address)
        self.agent = p.Agent(address, 100, 'llama', B, ranks=2)
        self.agent.answer = lambda job: self.agent.item(job, b'answer', tokens=1, fin=True)
        self.clients = [p.Client(address) for _ in range(CLIENTS)]
        self.all = [self.agent, *self.clients]

    def run(self):
        self.agent.hello()
        self.until('SERVING', lambda: self.agent.state == 'SERVING')
        for client in self.clients:
            client.connect()
        self.until('CONNECTED', lambda: all(c.limits for c in self.clients))
        self.small()
        self.large()
        self.agent.goodbye()
        self.until('the agent leaves', lambda: self.agent.gone)
        for endpoint in self.all:
            endpoint.close()

    def small(self):
        """Each on the queue of its client; no CPU gives anything to another one."""
        before = CABLE.to()
        for turn in range(4):
            requests = [c.route(POOL, B, p.sequence_hashes(range(i + turn, i + turn + B), B)) for i, c in enumerate(self.clients)]
            self.until('requests end', lambda r=requests: all(r.ended for r in r))
            self.check('they are answered', all(r.data == b'answer' for r in requests), [r.rejected for r in requests])
        grown = [now - then for now, then in zip(CABLE.to(), before)]
        self.check('both queues have had some', min(grown) > 0, grown)
        ingress = ROUTER.telemetry('/kvroute/ingress')
        if not self.v6:  # the other family has joined messages
            self.check('nothing was handed on', ingress['handed'] == 0, ingress)

    def large(self):
        """A message whose fragments come by both queues is joined by one CPU."""
        before = ROUTER.telemetry('/kvroute/ingress')
        CABLE.in_turn(True)
        request = self.clients[0].route(POOL, TOKENS, tokens=range(TOKENS))
        self.until('a large request ends', lambda: request.ended, lambda: request.answers)
        CABLE.in_turn(False)
        self.check('it is answered', request.data == b'answer', request.rejected)
        job = self.agent.jobs.get((self.clients[0].source, request.id))
        self.check('its tokens are those that were sent', job and list(job.dispatch.tokens) == list(range(TOKENS)))
        after = ROUTER.telemetry('/kvroute/ingress')
        self.check('fragments were handed on', after['handed'] > before['handed'] + 50, after)
        self.check('it was joined', after['messages'] > before['messages'], after)


def counted():
    """The device's queues, the lcores and the program have counted what the cable did."""
    end = time.monotonic() + TALLY.patience
    while True:
        port, each = lcores()
        xdp = ROUTER.telemetry('/kvroute/xdp')['p0']
        seen = [q['rx_frames'] for q in each], [q['tx_sent'] for q in each], xdp['redirected']
        want = CABLE.to(), CABLE.back(), sum(CABLE.to())
        if seen == want or time.monotonic() > end:
            break
        time.sleep(0.05)
    TALLY.check('counters of every queue', seen == want, f'{seen}, the cable {want}')
    TALLY.check('every queue has an lcore', (port['lcores'], port['queues'], port['rx_queues']) == (QUEUES,) * 3, port)
    TALLY.check('no spreading', not any(q[k] for q in each for k in ('spread_in', 'spread_out', 'tx_passed')), each)
    TALLY.check('nothing dropped by the program', not any(xdp[k] for k in ('no_socket', 'denied', 'limited', 'off')), xdp)


def hears(seconds):
    """How many of so many new clients are greeted."""
    clients = [p.Client(ADDRESSES[0]) for _ in range(CLIENTS)]
    before = CABLE.to()
    for client in clients:
        client.connect()
    p.run_until(clients, lambda: all(c.limits for c in clients), seconds)
    grown = [now - then for now, then in zip(CABLE.to(), before)]
    TALLY.check('frames for both queues', min(grown) > 0, grown)
    for client in clients:
        client.close()
    return sum(1 for c in clients if c.limits)


def switch():
    """The kill switch is one for all queues."""
    ROUTER.telemetry('/kvroute/xdp/redirect,p0,off')
    before, sent = lcores()[1], sum(CABLE.to())
    TALLY.check('off: nobody is heard', hears(0.5) == 0)
    sent = sum(CABLE.to()) - sent
    xdp = ROUTER.telemetry('/kvroute/xdp')['p0']
    TALLY.check('off: no queue gets any', [q['rx_frames'] for q in before] == [q['rx_frames'] for q in lcores()[1]])
    TALLY.check('off: all counted', xdp['off'] >= sent, xdp)
    ROUTER.telemetry('/kvroute/xdp/redirect,p0,on')
    TALLY.check('on: all are heard', hears(TALLY.patience) == CLIENTS)


def tuned():
    """Allow-list and rate change under way, in the program's maps."""
    def tell(setting):
        return ROUTER.telemetry(f'/kvroute/set,{setting},p0')

    def xdp(counter):
        return ROUTER.telemetry('/kvroute/xdp')['p0'][counter]

    TALLY.check('another list is taken', tell('allow=10.9.0.9 fd09::/64').get('set') == {'p0': '10.9.0.9 fd09::/64'})
    denied, sent = xdp('denied'), sum(CABLE.to())
    TALLY.check('who is not in it is not heard', hears(0.5) == 0)
    TALLY.check('and counted', xdp('denied') - denied >= sum(CABLE.to()) - sent > 0, xdp('denied'))
    TALLY.check('a mistake is refused', 'bits beyond its length' in tell('allow=10.9.0.2/24').get('message', ''))
    TALLY.check('and changes nothing', hears(0.5) == 0)
    tell('allow=10.9.0.2')
    TALLY.check('who is in it is heard', hears(TALLY.patience) == CLIENTS)
    tell('xdp_burst=1')
    tell('xdp_rate=1')
    tell('allow=')
    limited = xdp('limited')
    TALLY.check('a rate for all queues', hears(0.5) <= 3)
    TALLY.check('above it is counted', xdp('limited') > limited)
    tell('xdp_rate=0')
    TALLY.check('no rate, no list', hears(TALLY.patience) == CLIENTS)


def interface():
    return json.loads(run(f'{" ".join(INSIDE)} ip -j link show kvr-router'))[0]


def detached():
    TALLY.check('the program is gone', 'xdp' not in interface(), interface())


def killed():
    """The next start cleans up, and serves both queues."""
    ROUTER.process.kill()
    ROUTER.process.wait()
    TALLY.check('the program of a dead one stays', 'xdp' in interface(), interface())
    ROUTER.start()
    ROUTER.telemetry('/kvroute/balance')
    TALLY.check('after a kill all are heard', hears(TALLY.patience) == CLIENTS)


def last():
    counted()
    switch()
    tuned()
    killed()
    TALLY.check('it ends', ROUTER.stop() == 0)
    detached()


def namespaces():
    """This process goes from the router's, which has its tap, to the peers'. @return command that goes back, and the cable."""
    run('mount -t tmpfs tmpfs /run')
    run('mount -t sysfs sysfs /sys')
    run('ip link set lo up')
    router = tap('kvr-router', QUEUES)
    run('ip link set kvr-router addrgenmode none up')
    run('ip address add 10.9.0.1/24 dev kvr-router')
    run('ip -6 address add fd09::1/64 dev kvr-router nodad')
    tells = f'Combined:\t{QUEUES}\n' in subprocess.run(['ethtool', '-l', 'kvr-router'], check=False, stdout=subprocess.PIPE, text=True).stdout
    inside = ['nsenter', f'--net=/proc/{os.getpid()}/fd/{os.open("/proc/self/ns/net", os.O_RDONLY)}']
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), 'unshare')
    run('ip link set lo up')
    peers = tap('kvr-peer', 1)
    run('ip link set kvr-peer addrgenmode none up txqueuelen 10000')
    run('ip address add 10.9.0.2/24 dev kvr-peer')
    run('ip -6 address add fd09::2/64 dev kvr-peer nodad')
    return inside, inside if tells else [*inside, 'env', f'LD_PRELOAD={sys.argv[2]}', f'KVR_CHANNELS={QUEUES}'], Cable(router, peers[0])


if len(os.sched_getaffinity(0)) < 2:
    skip('one CPU')
if os.environ.get('KVR_IN_NS') is None:
    if subprocess.run(['unshare', '-nm', 'true'], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        skip('no namespaces')
    os.execvpe('unshare', ['unshare', '-nm', sys.executable, *sys.argv], dict(os.environ, KVR_IN_NS='1'))
try:
    INSIDE, BEFORE, CABLE = namespaces()
except OSError as e:
    skip(f'no tap with several queues: {e}')
except subprocess.CalledProcessError as e:
    skip(f'{e}: {e.stdout}')
# Silence of the peers is not what is tried.
ROUTER = Router(sys.argv[1], POOLS, 'idle = interrupt\nsuspect_ms = 20000\ndead_ms = 40000', ingress=QUEUES, memory_mb=1024,
                port='queues = 2', device=f'net_af_xdp0,iface=kvr-router,start_queue=0,queue_count={QUEUES}', before=BEFORE)
TALLY.run(ROUTER, Family, last)
