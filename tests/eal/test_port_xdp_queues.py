#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""net_af_xdp with two queues and our XDP program, on a tap with two queues in a network namespace of its own.

    test_port_xdp_queues.py PORT_ECHO CHANNELS native|skb|generic

This program is the wire: a frame written to descriptor i is received on queue i, and frames sent on queue i are read from it. A
non-blocking write runs the program in the driver (native), a blocking write runs it on an skb, like generic mode (skb); generic: the
interface is a macvlan on the tap, which supports generic XDP only. CHANNELS is the library to preload where the kernel
does not report the number of queues. Exit status 77: no root, no tap or no XDP.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'smoke'))
import child  # noqa: E402

ECHO, CHANNELS, MODE = sys.argv[1:4]
QUEUES = 2
ADDRESS = {4: '10.9.0.1', 6: 'fd09::1'}
PEERS = ['10.9.0.2', '10.9.0.3', 'fd09::2', 'fd09::3:1']
PORT, OTHER = 7650, 7651
LONGEST = 60.0  # s: enough on a busy machine; only a failure waits that long


def skip(why):
    print(why)
    sys.exit(77)


def run(*command, check=True):
    return subprocess.run(command, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def family(address):
    return 6 if ':' in address else 4


def packed(address):
    return socket.inet_pton(socket.AF_INET6 if ':' in address else socket.AF_INET, address)


def checksum(data):
    data += b'\0' * (len(data) % 2)
    total = sum(struct.unpack(f'!{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total ^ 0xffff


def pseudo(src, dst, udp):
    return src + dst + (struct.pack('!BBH', 0, 17, len(udp)) if len(src) == 4 else struct.pack('!II', len(udp), 17))


class Wire:
    """The tap; the MACs of the peers end like their addresses."""

    def __init__(self, name):
        wait = os.O_NONBLOCK if MODE == 'native' else 0
        self.fds = []
        for _ in range(QUEUES):
            fd = os.open('/dev/net/tun', os.O_RDWR | wait)
            # IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE
            fcntl.ioctl(fd, 0x400454ca, struct.pack('16sH22x', name.encode(), 0x0002 | 0x1000 | 0x0100))
            self.fds.append(fd)
        self.sent = 0

    def mac(self, address):
        return b'\x02\0\0\0\0' + packed(address)[-1:]

    def send(self, queue, source, port, payload):
        """@return the data that identifies the echo."""
        v, src, dst = family(source), packed(source), packed(ADDRESS[family(source)])
        self.sent += 1
        data = struct.pack('!I', self.sent) + payload
        udp = struct.pack('!HHHH', 20000 + self.sent, port, 8 + len(data), 0) + data
        udp = udp[:6] + struct.pack('!H', checksum(pseudo(src, dst, udp) + udp) or 0xffff) + udp[8:]
        if v == 4:
            ip = struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(udp), 0, 0x4000, 64, 17, 0) + src + dst
            ip = ip[:10] + struct.pack('!H', checksum(ip)) + ip[12:]
        else:
            ip = struct.pack('!IHBB', 6 << 28, len(udp), 17, 64) + src + dst
        os.write(self.fds[queue], self.target + self.mac(source) + (b'\x08\0' if v == 4 else b'\x86\xdd') + ip + udp)
        return data

    def receive(self, seconds):
        """The next answer: queue, "echo" or "refused", and the data of the datagram; None if none arrives."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for fd in select.select(self.fds, [], [], left)[0]:
                got = self.read(os.read(fd, 65536))
                if got:
                    return (self.fds.index(fd), *got)
        return None

    def read(self, frame):
        v4, ip = frame[12:14] == b'\x08\0', frame[14:]
        if not v4 and frame[12:14] != b'\x86\xdd':
            return None
        proto, rest = (ip[9], ip[(ip[0] & 15) * 4:]) if v4 else (ip[6], ip[40:])
        src, dst = (ip[12:16], ip[16:20]) if v4 else (ip[8:24], ip[24:40])
        if (proto, rest[0]) == (1, 3):
            return 'refused', rest[8 + 20 + 8:]
        if (proto, rest[0]) == (58, 1):
            return 'refused', rest[8 + 40 + 8:]
        if proto != 17 or rest[:2] != struct.pack('!H', PORT):
            return None
        check('the checksums of an answer', (not v4 or checksum(ip[:20]) == 0) and checksum(pseudo(src, dst, rest) + rest) == 0, frame)
        return 'echo', rest[8:]

    def ask(self, queue, source, port=PORT, size=1200, want='echo'):
        data = self.send(queue, source, port, bytes(i * 31 & 255 for i in range(size)))
        if want == 'nothing':
            return
        got = self.receive(LONGEST)
        # A macvlan sends on any queue of the lower device, and so does the kernel with ICMP errors.
        right = got and got[1] == want and (got[2] == data if want == 'echo' else data.startswith(got[2]))
        check(f'{source} on queue {queue} to port {port}: {want}', right, got)
        if want == 'echo' and MODE != 'generic':
            check(f'the answer of queue {queue} leaves there', got[0] == queue, got[0])


class Echo:
    """port_echo on the interface."""

    def __init__(self, count, *more, queues=QUEUES, first=0, polled=QUEUES):
        self.out = tempfile.TemporaryFile('w+')
        device = f'net_af_xdp0,iface={IFACE},start_queue={first},queue_count={queues}'
        self.process = child.start(
            [ECHO, device, ADDRESS[4], ADDRESS[6], '1500', str(count), 'mbufs=16383', f'queues={polled}', 'rx_checksum=verify', *more],
            stdout=self.out, stderr=subprocess.STDOUT, env=ENVIRONMENT)

    def text(self):
        self.out.seek(0)
        return self.out.read()

    def ready(self):
        end = time.monotonic() + LONGEST
        while 'ready' not in self.text():
            if 'Failed to configure xdp socket' in self.text():
                skip(self.text())
            check('port_echo starts', self.process.poll() is None and time.monotonic() < end, self.text())
            time.sleep(0.02)
        return self

    def end(self, status=0):
        check('exit status', self.process.wait(LONGEST) == status, self.text())
        return dict(line.split('=') for line in self.text().splitlines() if '=' in line and ' ' not in line)


def check(name, good, detail=''):
    if not good:
        print(f'FAILED: {name}: {detail}')
        sys.exit(1)


def same(name, got, **want):
    for key, value in want.items():
        key = key.replace('_rx', '.rx').replace('_tx', '.tx') if key.startswith('queue') else key
        check(f'{name}: {key} is {value}', got.get(key, '0') == str(value), got)


def program():
    """Name of the program at the interface and its mode (1: native, 2: generic), or None."""
    xdp = json.loads(run('ip', '-j', '-d', 'link', 'show', IFACE))[0].get('xdp')
    return xdp and (xdp['prog']['name'], xdp['mode'])


def attached():
    check('our program is attached', program() == ('kvroute_xdp', 2 if MODE == 'generic' else 1), program())


def left():
    check('the program is gone', program() is None, program())
    check('no pins stay', not os.path.exists(f'/sys/fs/bpf/kvroute-{IFACE}'))


def both_queues(*more):
    """Frames of every peer on every queue, more on the first one. Other frames go to the kernel."""
    echo = Echo(3 * 4 + 4, *more).ready()
    attached()
    for q in range(QUEUES):
        for peer in ('10.9.0.2', 'fd09::2'):
            WIRE.ask(q, peer, OTHER, 64, 'refused')
        for _ in range(3 if q == 0 else 1):
            for peer in PEERS:
                WIRE.ask(q, peer)
    got = echo.end()
    same('both queues', got, rx_frames=16, rx_udp=16, tx_sent=16, xdp_redirected=16, xdp_no_socket=0, queue0_rx_frames=12,
         queue0_tx_sent=12, queue1_rx_frames=4, queue1_tx_sent=4)
    check('other frames went to the kernel', int(got['xdp_kernel']) >= 4, got)
    left()
    return got


def rules():
    """Rules apply to the source, not to the queue."""
    echo = Echo(2, 'allow=10.9.0.2').ready()
    for q in range(QUEUES):
        WIRE.ask(q, '10.9.0.3', want='nothing')
        WIRE.ask(q, '10.9.0.2')
    same('the allow-list', echo.end(), xdp_denied=2, xdp_redirected=2, queue0_rx_frames=1, queue1_rx_frames=1)
    echo = Echo(3, 'xdp_rate=1', 'xdp_burst=2').ready()
    WIRE.ask(0, '10.9.0.2')
    WIRE.ask(1, '10.9.0.2')
    for q in range(QUEUES):
        WIRE.ask(q, '10.9.0.2', want='nothing')
    WIRE.ask(1, '10.9.0.3')
    same('a source has one rate', echo.end(), xdp_limited=2, xdp_redirected=3, queue0_rx_frames=1, queue1_rx_frames=2)


def without_socket(polled, idle):
    """The interface has one queue more than the port."""
    echo = Echo(2, queues=1, first=polled, polled=1).ready()
    for _ in range(3):
        WIRE.ask(idle, '10.9.0.2', want='nothing')
    WIRE.ask(idle, '10.9.0.2', OTHER, 64, 'refused')
    WIRE.ask(polled, '10.9.0.2')
    WIRE.ask(polled, 'fd09::2')
    same(f'queue {idle} has no socket', echo.end(), xdp_no_socket=3, xdp_redirected=2, rx_frames=2)
    left()


def refused():
    for arguments, words in (({'polled': 1}, 'queues: 1 are polled, but net_af_xdp was created with 2'),
                             ({'queues': 3, 'polled': 3}, 'rejected by its driver, or bad arguments')):
        echo = Echo(1, **arguments)
        echo.end(2)
        check(f'message: {words}', words in echo.text(), echo.text())
        left()


def killed():
    """The router's frames are dropped on every queue, others go to the kernel, and the next start cleans up."""
    echo = Echo(1000).ready()
    for q in range(QUEUES):
        WIRE.ask(q, '10.9.0.2')
    echo.process.kill()
    echo.end(-signal.SIGKILL)
    attached()
    for q in range(QUEUES):
        WIRE.ask(q, '10.9.0.2', want='nothing')
        WIRE.ask(q, 'fd09::2', OTHER, 64, 'refused')
    both_queues()


def gone():
    """The interface is removed."""
    echo = Echo(1000).ready()
    for q in range(QUEUES):
        WIRE.ask(q, '10.9.0.2')
    if MODE == 'generic':
        run('ip', 'link', 'del', IFACE)
    for fd in WIRE.fds:
        os.close(fd)
    end = time.monotonic() + LONGEST
    while 'link gone' not in echo.text():
        check('port_echo reports that its interface is gone', echo.process.poll() is None and time.monotonic() < end, echo.text())
        time.sleep(0.02)
    check('no pins stay', not os.path.exists(f'/sys/fs/bpf/kvroute-{IFACE}'))
    echo.process.kill()


def addresses():
    run('ip', 'link', 'set', 'va', 'addrgenmode', 'none', 'up')
    if MODE == 'generic':
        run('ip', 'link', 'add', 'link', 'va', 'name', 'mv', 'numtxqueues', str(QUEUES), 'numrxqueues', str(QUEUES), 'type', 'macvlan',
            'mode', 'bridge')
        run('ip', 'link', 'set', 'mv', 'addrgenmode', 'none', 'up')
    run('ip', 'address', 'add', '10.9.0.1/24', 'dev', IFACE)
    run('ip', '-6', 'address', 'add', 'fd09::1/64', 'dev', IFACE, 'nodad')
    for peer in PEERS:
        run('ip', 'neigh', 'replace', peer, 'lladdr', WIRE.mac(peer).hex(':'), 'dev', IFACE, 'nud', 'permanent')
    WIRE.target = bytes.fromhex(json.loads(run('ip', '-j', 'link', 'show', IFACE))[0]['address'].replace(':', ''))


def environment():
    """Preload CHANNELS where the kernel does not report the queues."""
    reported = shutil.which('ethtool') and f'Combined:\t{QUEUES}\n' in run('ethtool', '-l', IFACE, check=False)
    print('queues:', 'from the kernel' if reported else 'from CHANNELS')
    return dict(os.environ) if reported else dict(os.environ, LD_PRELOAD=CHANNELS, KVR_CHANNELS=str(QUEUES))


if os.environ.get('KVR_IN_NS') is None:
    if subprocess.run(['unshare', '-nm', 'true'], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        skip('no namespaces')
    os.execvpe('unshare', ['unshare', '-nm', sys.executable, *sys.argv], dict(os.environ, KVR_IN_NS='1'))
IFACE = 'mv' if MODE == 'generic' else 'va'
run('mount', '-t', 'sysfs', 'sysfs', '/sys', check=False)
run('mount', '-t', 'bpf', 'bpf', '/sys/fs/bpf', check=False)
run('ip', 'link', 'set', 'lo', 'up')
try:
    WIRE = Wire('va')
    addresses()
except OSError as e:
    skip(f'no tap with several queues: {e}')
except subprocess.CalledProcessError as e:
    skip(f'{e}: {e.stdout}')
ENVIRONMENT = environment()
both_queues()
woken = both_queues('sleep=on')
check('port_echo slept, and each queue was woken by its own socket', int(woken['woken']) >= 8, woken)
same('sleep', woken, misled=0, cannot=0)
rules()
without_socket(0, 1)
without_socket(1, 0)
refused()
killed()
gone()
print('ok')
