# SPDX-License-Identifier: BSD-3-Clause
"""A snapshot of a full prefix table beside events, SIGKILL, and a start from it; see README.md in this folder.

usage: snapshot.py KVROUTE [--workers N] [--blocks N] [--times N]
"""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '../restart'), os.path.join(HERE, '../../../tests/smoke')]

import kvrproto as p
from load_test import telemetry
from protocol_router import Router
from restart import CHAIN, Worker, World, longest


class Returning(Worker):
    """A worker that sends HELLO with the same epoch to a restarted router. Chains beyond its initial fill are stored and removed again."""

    warm, full, refused = False, 1 << 60, 0

    def event(self, number):
        if number > self.full and (number - self.full) % 2:
            return p.EVENT.pack(p.REMOVED, 0, 0, CHAIN, 0) + self.chain(number - 1)
        return super().event(number)

    def extend_want(self):
        self.want = self.full + (self.acked - self.full) // 2 * 2 + 2

    def reconnect(self):
        self.ready = self.warm = False
        self.state, self.hello_due = None, 0.0

    def take(self, header, body, now):
        if header.name == 'WELCOME':
            self.warm = body[2] & 1 != 0
        elif header.name == 'KV_ACK':
            upto, _, _, code, _ = p.KV_ACK_BODY.unpack_from(body)
            if code == p.ACK_GAP and upto < self.acked:  # acknowledged by the previous router after its snapshot
                self.acked = self.sent = upto
        elif header.name == 'REJECTED' and p.Rejection(body).retryable:
            self.refused += 1
            return  # the worker retries HELLO soon
        super().take(header, body, now)


class Measure:
    def __init__(self, router, world):
        self.router, self.world = router, world

    def ask(self, command):
        return telemetry(self.router.prefix, command)

    def work(self):
        """Counters of the polling lcore: (time stamp, cycles of calls, calls, cycles of the event stage, frames)."""
        row = self.ask('/kvroute/counters,lcore,lcore0')
        event = self.ask('/kvroute/stages')['lcore0']['event']
        return time.monotonic(), row['call_cycles'], row['calls'], event['cycles'], event['items']

    def events(self, seconds):
        """All workers store and remove chains, as fast as this script can."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.over():
            for worker in self.world.workers:
                worker.extend_want()
            self.world.until(self.over, 0.05)

    over = staticmethod(lambda: False)

    def snapshot(self):
        before = self.ask('/kvroute/snapshot')['written']
        calm, hz = self.work(), self.ask('/kvroute/stages')['tsc_hz']
        self.events(1.0)
        begin = self.work()
        self.ask('/kvroute/snapshot,now')
        due = [0.0]

        def over():
            if time.monotonic() < due[0]:
                return False
            due[0] = time.monotonic() + 0.02
            return self.ask('/kvroute/snapshot')['written'] > before

        self.over = over
        self.events(120)
        del self.over
        end = self.work()
        report = self.ask('/kvroute/snapshot')

        def each(a, b):
            return (b[3] - a[3]) / max(1, b[4] - a[4])

        return {'write_s': round(report['took_us'] / 1e6, 2), 'blocks': report['blocks'], 'bytes_per_block': round(report['bytes'] / report['blocks'], 1),
                'calls_percent': round(100 * (end[1] - begin[1]) / hz / (end[0] - begin[0]), 4), 'calls': end[2] - begin[2],
                'events': end[4] - begin[4], 'cycles_per_event_frame': round(each(begin, end)),
                'ratio_to_before': round(each(begin, end) / each(calm, begin), 3)}

    def restored(self):
        ranks, first = [], 0
        while True:
            page = self.ask(f'/kvroute/events,llama,{first}')
            ranks += page['ranks'].values()
            first += 16
            if first >= page['total']:
                return sum(r['restored'] for r in ranks), sum(r['held'] for r in ranks)

    def restart(self):
        self.router.process.kill()
        self.router.process.wait()
        begin = time.monotonic()
        for worker in self.world.workers:
            worker.reconnect()
        self.router.start()
        if not self.world.until(lambda: any(w.ready for w in self.world.workers), 60):
            raise RuntimeError('no worker received WELCOME')
        first = time.monotonic()
        if not self.world.until(lambda: all(w.ready for w in self.world.workers), 60):
            raise RuntimeError('not all workers received WELCOME')
        last = time.monotonic()
        self.world.until(lambda: False, 0.3)
        restored, held = self.restored()
        self.router.log.flush()
        with open(self.router.log.name) as log:
            read = re.findall(r'read in (\d+) ms', log.read())[-1]
        return {'read_s': int(read) / 1e3, 'start_to_first_s': round(first - begin, 2), 'first_to_last_s': round(last - first, 2), 'restored': restored,
                'held': held, 'hello_busy': sum(w.refused for w in self.world.workers), 'warm': sum(w.warm for w in self.world.workers), 'longest_us': longest(self.router)}


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument('kvroute')
    args.add_argument('--workers', type=int, default=64)
    args.add_argument('--blocks', type=int, default=10_000_000)
    args.add_argument('--times', type=int, default=3)
    args = args.parse_args()
    state = tempfile.mkdtemp(prefix='kvroute-snapshot-')
    router = Router(args.kvroute, f'[pool llama]\nid = 3\nblock_size = 16\nmax_ranks = {max(64, args.workers)}\n'
                    f'max_blocks = {args.blocks * 5 // 4}\n', f'suspect_ms = 5000\ndead_ms = 20000\nstate_dir = {state}\nsnapshot_s = 0\n',
                    memory_mb=max(256, 192 * args.blocks // 1_000_000))
    failed = True
    try:
        router.telemetry('/kvroute/balance')
        world = World([Returning(n) for n in range(args.workers)])
        for worker in world.workers:
            worker.begin_epoch(1, args.blocks // args.workers // CHAIN)
        if not world.until(lambda: all(w.done() for w in world.workers), 300):
            raise RuntimeError('the table was not filled')
        for worker in world.workers:
            worker.full = worker.acked
        announced = sum(w.full for w in world.workers) * CHAIN
        measure = Measure(router, world)
        for _ in range(args.times):
            print(json.dumps({'snapshot': measure.snapshot()}), flush=True)
            back = measure.restart()
            print(json.dumps({'restart': back}), flush=True)
            if back['warm'] != args.workers or back['restored'] == 0:
                raise RuntimeError('a worker is not warm, or nothing was restored')
            if not world.until(lambda: all(w.done() for w in world.workers), 60):
                raise RuntimeError('events do not continue')
            held = measure.restored()[1]
            if held != announced:
                raise RuntimeError(f'{held} blocks held, {announced} announced')
        failed = False
    finally:
        failed = router.finish(failed)
        shutil.rmtree(state)
    sys.exit(failed)


main()
