# SPDX-License-Identifier: BSD-3-Clause
"""A router's tap with two queues in a network namespace of its own, a tap for its peers, and a cable between them, which chooses the
queue of a frame as a NIC does, by addresses and ports, or otherwise. See tests/eal/channels.c about CHANNELS."""

import ctypes
import fcntl
import mmap
import os
import select
import shutil
import struct
import subprocess
import sys

import kvrproto as p
from child import die_with_parent

CLONE_NEWNET = 0x40000000
QUEUES = 2
PORT = struct.pack('!H', p.PORT)
BY_FLOW, IN_TURN, ONLY = 0, 1, 2


def skip(why):
    print(why)
    sys.exit(77)


def run(command, check=True):
    return subprocess.run(command.split(), check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


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
        self.shared = memoryview(mmap.mmap(-1, 4096)).cast('Q')  # how a queue is chosen, frames to each queue, from each
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

    def choose(self, how):
        """BY_FLOW, IN_TURN, or ONLY + queue."""
        self.shared[0] = how

    def queue(self, udp, frame):
        how = self.shared[0]
        if how >= ONLY or udp is None:
            return max(0, how - ONLY)
        if how == IN_TURN:
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


def namespaces(channels):
    """This process moves from the router's namespace, which has its tap, to the peers'. @return what a command begins with to
    run there; the same for a router, which may need the preloaded number of queues; the cable."""
    run('mount -t tmpfs tmpfs /run')
    run('mount -t sysfs sysfs /sys')
    run('ip link set lo up')
    router = tap('kvr-router', QUEUES)
    run('ip link set kvr-router addrgenmode none up')
    run('ip address add 10.9.0.1/24 dev kvr-router')
    run('ip -6 address add fd09::1/64 dev kvr-router nodad')
    tells = shutil.which('ethtool') and f'Combined:\t{QUEUES}\n' in run('ethtool -l kvr-router', check=False)
    inside = ['nsenter', f'--net=/proc/{os.getpid()}/fd/{os.open("/proc/self/ns/net", os.O_RDONLY)}']
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), 'unshare')
    run('ip link set lo up')
    peers = tap('kvr-peer', 1)
    run('ip link set kvr-peer addrgenmode none up txqueuelen 10000')
    run('ip address add 10.9.0.2/24 dev kvr-peer')
    run('ip -6 address add fd09::2/64 dev kvr-peer nodad')
    return inside, inside if tells else [*inside, 'env', f'LD_PRELOAD={channels}', f'KVR_CHANNELS={QUEUES}'], Cable(router, peers[0])


def in_namespaces(channels):
    """The same for a test that has just been started; it ends with 77 where there is no root, no namespace or no tap."""
    if os.environ.get('KVR_IN_NS') is None:
        if subprocess.run(['unshare', '-nm', 'true'], check=False, stderr=subprocess.DEVNULL).returncode != 0:
            skip('no namespaces')
        os.execvpe('unshare', ['unshare', '-nm', sys.executable, *sys.argv], dict(os.environ, KVR_IN_NS='1'))
    try:
        return namespaces(channels)
    except OSError as e:
        skip(f'no tap with several queues: {e}')
    except subprocess.CalledProcessError as e:
        skip(f'{e}: {e.stdout}')
