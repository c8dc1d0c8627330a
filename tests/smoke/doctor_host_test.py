#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Faults of CPU, clock, buffers, devices, memory and log of a router. See doctor_test.py.

protocol_test.sh starts it: doctor_host_test.py KVROUTE KVROUTE_CTL. The router polls; the device of its second port loses frames.
"""
import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading
import time

import child
import kvrproto as p
from doctor_rig import B, Failed, Rig, run
from load_test import telemetry
from protocol_router import ADDRESSES, Router

POOL, WAITING = 3, 4
COMMON = f'block_size = {B}\nmax_ranks = 4\nmax_jobs = 64\nmax_blocks = 4096\nmax_requests = 256\nmax_sessions = 0\n'
FEW = 'rx_descriptors = 64\ntx_descriptors = 64\n'
CONF = f'''[port p1]
device = net_pcap0,iface=kvr-loss
ipv4 = 10.9.1.1
rx_checksum = trust
{FEW}[pool llama]
id = {POOL}
{COMMON}active_request_expiry_secs = 0.5
[pool waiting]
id = {WAITING}
{COMMON}router_queue_threshold = 0
'''
# Nearly all buffers are for reassembly, 256 messages of a source; two pools share those for waiting requests.
HELD = 400
ROUTER = ('idle = poll\nsuspect_ms = 30000\ndead_ms = 60000\nheartbeat_ms = 100\nsource_share = 0\nring_size = 64\n'
          f'reassembly_frames = 36000\nreassembly_source_frames = 36000\nreassembly_ms = 60000\nwaiting_frames = {2 * HELD}\n')
PIPE = 4096


class Unread(Router):
    """A router with its log in a pipe; the test reads it or not."""

    def start(self):
        self.end, into = os.pipe()
        fcntl.fcntl(self.end, fcntl.F_SETPIPE_SZ, PIPE)
        self.process = child.start(self.command, stdin=subprocess.DEVNULL, stdout=into, stderr=into)
        os.close(into)
        self.reads = threading.Event()
        self.reads.set()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while self.reads.wait():
            data = os.read(self.end, PIPE)
            if not data:
                return
            os.write(self.log.fileno(), data)


class Memory:
    """Memory of a running program, in words."""

    def __init__(self, pid):
        self.pid, self.file = pid, os.open(f'/proc/{pid}/mem', os.O_RDWR)

    def areas(self):
        with open(f'/proc/{self.pid}/maps') as maps:
            for line in maps:
                where, rights = line.split()[:2]
                if rights.startswith('rw') and '[v' not in line:
                    yield [int(x, 16) for x in where.split('-')]

    def find(self, words):
        """Address of consecutive @words; small areas first."""
        want = struct.pack(f'<{len(words)}Q', *words)
        for start, end in sorted(self.areas(), key=lambda a: a[1] - a[0]):
            for at in range(start, end, 1 << 24):
                try:
                    here = os.pread(self.file, min((1 << 24) + len(want), end - at), at).find(want)
                except OSError:  # memory of a device
                    continue
                if here >= 0:
                    return at + here
        raise Failed(f'{words} are not in memory')

    def get(self, at):
        return struct.unpack('<Q', os.pread(self.file, 8, at))[0]

    def put(self, at, word):
        os.pwrite(self.file, struct.pack('<Q', word), at)


class Host(Rig):
    pool = POOL

    def __init__(self, router):
        super().__init__(router, sys.argv[2], ADDRESSES[0])
        self.memory = None
        self.hoarder = p.Client(self.ip)

    def ask_router(self, command):
        """Faster than Router.telemetry(), which starts a program per command."""
        return telemetry(self.router.prefix, command)

    # ---- CPU ----

    def polling(self, name):
        """Text of a file of the polling thread in /proc."""
        tasks = f'/proc/{self.router.process.pid}/task'
        for task in os.listdir(tasks):
            with open(f'{tasks}/{task}/comm') as f:
                if 'worker' in f.read():
                    with open(f'{tasks}/{task}/{name}') as wanted:
                        return wanted.read()
        raise Failed('no thread polls')

    def burn(self):
        """Run another program on the CPU of the polling thread until the thread has waited for half a second."""
        cpu = next(line.split()[1] for line in self.polling('status').splitlines() if line.startswith('Cpus_allowed_list'))
        end = int(self.polling('schedstat').split()[1]) + 500_000_000
        with child.start(['taskset', '-c', cpu, sys.executable, '-c', 'while True: pass']) as burner:
            try:
                self.until('it waits', lambda: int(self.polling('schedstat').split()[1]) > end)
            finally:
                burner.kill()

    def stall(self):
        """Stop the router for longer than its longest turn."""
        stages = self.ask_router('/kvroute/stages')
        self.router.hold()
        time.sleep(1.2 * stages['lcore0']['max_turn_cycles'] / stages['tsc_hz'] + 0.1)
        self.router.go_on()

    # ---- device ----

    def lose(self):
        """The device receives frames while the router is stopped."""
        frame = bytes.fromhex('ffffffffffff020000000001') + b'\x88\xb5' + bytes(1400)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
            s.bind(('kvr-loss-peer', 0))
            self.router.hold()
            for _ in range(5000):  # 7 MB; libpcap has room for two
                s.send(frame)
            self.router.go_on()
        self.until('it is seen', self.asked('/kvroute/ports', lambda a: a['p1']['device']['imissed'] > 0))
        self.losses()

    def losses(self):
        """Losses of the devices are terms of the balance."""
        self.until('nothing moves', lambda: self.device('p1') == self.device('p1'))
        balance, total = self.ask_router('/kvroute/balance'), 0
        for name in ('p0', 'p1'):
            losses = balance[f'losses_{name}']
            before = losses['imissed'] + losses['ierrors'] + losses['rx_nombuf']
            total += before + losses['spread_full'] + losses['tx_dropped'] + losses['oerrors']
            if losses['rx_offered'] != losses['rx_frames'] + before:
                raise Failed(f'{name}: {losses}')
        losses, device = balance['losses_p1'], self.device('p1')
        lost = {k: losses[k] for k in ('imissed', 'ierrors', 'rx_nombuf', 'rx_frames')}
        if lost != device or not lost['imissed']:
            raise Failed(f'the device has {device}, the balance {losses}')
        if balance['lost'] != total or balance['balance'] != 'ok':
            raise Failed(f'{total} lost, the balance is {balance}')

    def device(self, name):
        port = self.ask_router('/kvroute/ports')[name]
        return {**{k: port['device'][k] for k in ('imissed', 'ierrors', 'rx_nombuf')}, 'rx_frames': port['rx_frames']}

    # ---- buffers ----

    def wait(self):
        """Requests of many frames wait for their engine; two of them hold most of the frames that the pool may hold."""
        hashes = p.sequence_hashes(range(B), B)
        for n in range(1, 3):
            self.waiting.append(self.client.route(WAITING, B, hashes, body=bytes(HELD // 2 * 1300)))
            self.until('it waits', self.asked('/kvroute/queue,waiting', lambda a, n=n: a['waiting'] == n))

    def held(self):
        agent = self.new_agent(101, 'waiting')
        agent.stored(0, p.sequence_hashes(range(B), B))
        self.waiting = self.hold(agent, 1, WAITING, blocks=40)
        self.check_cause(self.doctor(['held-frames-limit'], self.wait), f'of at most {HELD} packet buffers')
        agent.answer = lambda job: agent.item(job, b'x', tokens=1, fin=True, cached=0)
        self.let_go(agent, self.waiting)
        self.part(agent)
        self.doctor([])

    def hoard(self):
        """Messages without their last frame: the router holds the other frames."""
        body = p.route_body(POOL, 0, body=bytes(HELD // 2 * 1300))
        for id in range(1, 256):
            frames = p.fragments('ROUTE', body, self.hoarder.router_frame, source=self.hoarder.source, id=id, handle=0,
                                 epoch=self.hoarder.epoch, seq=id)[:-1]
            for n, frame in enumerate(frames):
                self.hoarder.put(self.hoarder.proven(frame))
                if n % 64 == 63:
                    time.sleep(0.001)
            port = self.ask_router('/kvroute/ports')['p0']
            if port['mbufs_free'] < 0.098 * port['mbufs']:
                return
        raise Failed(f'buffers are left: {port}')

    # ---- log ----

    def fill_log(self):
        """The log is not read while telemetry commands fill it."""
        self.router.reads.clear()
        try:
            for _ in range(40):
                for _ in range(50):
                    self.ask_router('/kvroute/set,router_temperature=' + 'x' * 180)
                if self.ask_router('/kvroute/log')['buffer_full']:
                    return
                time.sleep(0.2)  # the log limits lines per second
        finally:
            self.router.reads.set()
        raise Failed('no line is lost')

    # ---- memory ----

    def advance_clock(self, seconds):
        """The router's clock jumps ahead, as after a change of the TSC."""
        hz = self.ask_router('/kvroute/info')['tsc_hz']
        offset = self.memory.find([hz, (10 ** 9 << 32) // hz]) + 16  # struct router: tsc_hz, ns_per_tsc, ns_offset
        end = time.monotonic() + 1.1  # doctor compares clocks after one second
        self.memory.put(offset, self.memory.get(offset) + seconds * 10 ** 9)
        self.until('one second has passed', lambda: time.monotonic() > end)

    def release(self):
        """The load of a request without progress is released. The router checks once a minute, so the clock jumps by a minute. The
        limit, 0.5 s, must pass in real time: a jump of the clock counts as a pause of the router, not as silence of the agent."""
        agent = next(e for e in self.all if isinstance(e, p.Agent))
        held = self.hold(agent, 1, POOL)
        end = time.monotonic() + 3
        self.until('the request is silent', lambda: time.monotonic() > end)
        found = self.doctor(['clock-drift', 'released-bookings'], lambda: self.advance_clock(61))
        found.sort(key=lambda f: f['rule'])
        self.check_cause(found, "the router's clock advanced by ")
        self.check_cause(found[1:], 'pool llama: the load of 1 request was released')
        self.let_go(agent, held)
        self.doctor([])

    def miscount(self):
        """Corrupt one counter."""
        counts = list(self.ask_router('/kvroute/counters,pool,llama').values())
        place = self.memory.find(counts)
        self.memory.put(place, counts[0] + 1)
        self.check_cause(self.doctor(['counter-mismatch']), f'routes = queries + duplicates + rejected + routed + queued + disagg, but {counts[0] + 1} != ')
        self.memory.put(place, counts[0])
        self.doctor([])

    def run(self):
        self.all.append(self.hoarder)
        self.client.connect()
        self.hoarder.connect()
        agent = self.new_agent(100, 'llama')
        self.until('limits are known', lambda: self.client.limits and self.hoarder.limits)
        self.all.remove(self.hoarder)
        self.until('lcores know it', lambda: not self.ask(1)[0].rejected)
        agent.stored(0, p.sequence_hashes(range(B), B))
        self.doctor([], lambda: self.ask(3))
        try:
            self.memory = Memory(self.router.process.pid)
        except OSError as e:
            print(f'clock-drift, released-bookings, counter-mismatch: skipped, {e}')
        else:
            self.release()
            self.miscount()
        self.check_cause(self.doctor(['shared-cpu'], self.burn, ignored=('lcore-stall',)), '(rte-worker-1) waited')
        self.check_cause(self.doctor(['lcore-stall'], self.stall, ignored=('shared-cpu',)), 'lcore0 (CPU ')
        self.check_cause(self.doctor(['device-frame-loss'], self.lose), 'port p1: the device lost ')
        self.check_cause(self.doctor(['log-line-loss'], self.fill_log), ' log lines were dropped')
        self.held()
        self.check_cause(self.doctor(['packet-buffer-shortage'], self.hoard), 'port p0: ')


def main():
    for command in ('link add kvr-loss-peer type veth peer name kvr-loss', 'link set kvr-loss-peer up', 'link set kvr-loss up'):
        subprocess.run(['ip', *command.split()], check=True)
    run(Unread(sys.argv[1], CONF, ROUTER, memory_mb=768, port=FEW), Host)


if __name__ == '__main__':
    main()
