# SPDX-License-Identifier: BSD-3-Clause
"""A rolling restart of workers over a full prefix table, with a running router; see README.md in this folder.

usage: restart.py KVROUTE [--workers N] [--blocks N]
"""

import argparse
import json
import os
import select
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '../../../tests/smoke'))

import kvrproto as p
from protocol_router import ADDRESSES, Router

CHAIN = 128  # blocks per event, one event per frame
WINDOW = 12  # unacknowledged frames
BEAT = 0.1
NEW_CHAINS = 16  # chains that a worker stores after its restart
SUSPECT, SERVING = 3, 2


class Worker:
    """One worker of one rank: HELLO, heartbeats, and chains of blocks that no other worker has."""

    def __init__(self, number):
        self.id, self.epoch, self.ready, self.state = number + 1, 1, False, None
        self.end = p.Endpoint(ADDRESSES[0], source=self.id, epoch=1)
        self.sent = self.acked = self.want = 0
        self.hello_due = self.beat_due = self.again_due = 0.0
        self.busy = self.suspected = 0
        self.body = p.HELLO_BODY.pack(16, 0, 1, 0, 1 << 22, 16, 1432, 0, 0, 0, 0) + p.hint(0x8020, b'llama')

    def begin_epoch(self, epoch, want):
        self.epoch = self.end.epoch = epoch
        self.ready, self.sent, self.acked, self.want, self.hello_due = False, 0, 0, want, 0.0

    def done(self):
        return self.ready and self.acked >= self.want

    def chain(self, number):
        """Distinct hashes: worker, epoch and chain in the high bits."""
        base = (self.id << 52) | ((self.epoch & 0xff) << 44) | (number + 1) << 20
        return struct.pack(f'<{CHAIN}Q', *range(base, base + CHAIN))

    def event(self, number):
        return p.EVENT.pack(p.STORED, 0, 0, CHAIN, 0) + self.chain(number)

    def send_events(self, now):
        if now >= self.again_due and self.sent > self.acked:
            self.sent = self.acked
        while self.sent < self.want and self.sent < self.acked + WINDOW and now >= self.again_due - 0.05:
            self.end.send('KV_EVENTS', 4, p.EVENTS_BODY.pack(self.sent, 0, 0, 1, 0, 0) + self.event(self.sent))
            self.sent += 1
            self.again_due = now + 0.05

    def turn(self, now):
        if not self.ready and now >= self.hello_due:
            self.hello_due = now + 0.2
            self.end.send('HELLO', 1, self.body)
        if self.ready and now >= self.beat_due:
            self.beat_due = now + BEAT
            self.end.send('HEARTBEAT', 3, struct.pack('<IIIIQQQ', 1, 0, 0, 0, p.M64, self.acked, 0))
        if self.ready:
            self.send_events(now)

    def receive(self, now):
        while True:
            try:
                data = self.end.sock.recv(2048)
            except BlockingIOError:
                return
            self.take(p.Header(data), data[p.HEADER.size:], now)

    def take(self, header, body, now):
        if header.name == 'WELCOME':
            self.ready, self.beat_due = True, 0.0
        elif header.name == 'HEARTBEAT_ACK':
            self.state, = struct.unpack_from('<H', body)
            self.suspected += self.state == SUSPECT
        elif header.name == 'KV_ACK':
            upto, _, _, code, _ = p.KV_ACK_BODY.unpack_from(body)
            if code == p.ACK_BUSY:
                self.busy += 1
                self.sent, self.again_due = self.acked, now + 0.07
            elif upto > self.acked:
                self.acked = upto
                self.sent = max(self.sent, upto)
        elif header.name == 'REJECTED':
            sys.exit(f'worker {self.id}: {p.Rejection(body)}')


class World:
    def __init__(self, workers):
        self.workers, self.stall, self.last = workers, 0.0, time.monotonic()
        self.by_fd = {w.end.sock: w for w in workers}

    def until(self, condition, seconds):
        end = time.monotonic() + seconds
        while not condition():
            now = time.monotonic()
            self.stall, self.last = max(self.stall, now - self.last), now
            if now > end:
                return False
            for worker in self.workers:
                worker.turn(now)
            for sock in select.select(list(self.by_fd), [], [], 0.001)[0]:
                self.by_fd[sock].receive(now)
        return True


def longest(router):
    """Longest turn of the polling lcore and longest poll of each stage so far, in microseconds."""
    stages = router.telemetry('/kvroute/stages')
    us = 1e6 / stages['tsc_hz']
    lcore = stages['lcore0']
    return {'turn': round(lcore['max_turn_cycles'] * us, 1),
            **{k: round(v['max_cycles'] * us, 1) for k, v in lcore.items() if isinstance(v, dict)}}


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument('kvroute')
    args.add_argument('--workers', type=int, default=64)
    args.add_argument('--blocks', type=int, default=1 << 22)
    args = args.parse_args()
    router = Router(args.kvroute, f'[pool llama]\nid = 3\nblock_size = 16\nmax_ranks = {max(64, args.workers)}\n'
                    f'max_blocks = {args.blocks}\n',
                    # Long enough that a busy machine does not make a worker suspect.
                    'suspect_ms = 2000\ndead_ms = 6000\n', memory_mb=1024)
    failed, result = [], {'workers': args.workers, 'blocks': args.blocks}
    try:
        router.telemetry('/kvroute/balance')
        world = World([Worker(n) for n in range(args.workers)])
        start = time.monotonic()
        for worker in world.workers:
            worker.begin_epoch(1, args.blocks // args.workers // CHAIN)
        if not world.until(lambda: all(w.done() for w in world.workers), 60):
            failed.append('the table was not filled')
        result.update(fill_s=round(time.monotonic() - start, 1), longest_us_filling=longest(router))
        start = world.last = time.monotonic()
        for worker in world.workers:
            worker.begin_epoch(2, NEW_CHAINS)
            if not world.until(lambda: worker.ready, 10):
                failed.append(f'no WELCOME for worker {worker.id}')
        if not world.until(lambda: all(w.done() and w.state == SERVING for w in world.workers), 20):
            failed.append('not all workers are serving')
        result.update(restart_s=round(time.monotonic() - start, 2), longest_us=longest(router),
                      busy=sum(w.busy for w in world.workers), suspected=sum(w.suspected for w in world.workers),
                      own_stall_ms=round(world.stall * 1e3))
        if result['suspected']:
            failed.append('a worker was SUSPECT')
        state = router.telemetry('/kvroute/workers')
        if state['total'] != args.workers:
            failed.append(f'{state["total"]} workers at the end, expected {args.workers}')
        router.log.flush()
        router.log.seek(0)
        if 'suspect' in router.log.read().lower():
            failed.append('the log mentions a suspect worker')
    finally:
        for why in failed:
            print('FAIL', why)
        print(json.dumps(result))
        bad = router.finish(bool(failed))
    sys.exit(1 if bad else 0)


if __name__ == '__main__':
    main()
