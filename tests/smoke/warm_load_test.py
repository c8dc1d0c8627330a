# SPDX-License-Identifier: BSD-3-Clause
"""Restarts under load: real engines and clients (lib/agent, lib/client), a router that dies by SIGKILL and SIGTERM in turns, and every
second pair of times finds no snapshot.

protocol_test.sh starts it: warm_load_test.py KVROUTE ENGINE LOAD RESTARTS [defaults]

With `defaults` the time limits of workers are the defaults, and each router has a second more of load.

Each request has one outcome, each answer is right to the byte, what is on the direct path outlives the router, no client is without an answer, and
when all is quiet the index that the router writes is what the engines have, block for block. Times are printed, and decide nothing.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import child
import snapshot_file
from load_test import telemetry
from protocol_router import ADDRESSES, Router

KVROUTE, ENGINE, LOAD = sys.argv[1:4]
RESTARTS = int(sys.argv[4])
DEFAULTS = 'defaults' in sys.argv[5:]
LOAD_S = 1.0 if DEFAULTS else 0.4  # time that each incarnation serves; long answers take half a second
ENGINES, RANKS, RATE, CAPACITY = 3, 2, 100, 1000
PATIENCE = 60  # s: the machine may be busy


class World:
    def __init__(self, router, state):
        self.router, self.state, self.failures = router, state, []
        self.path = f'{state}/{router.prefix}.snapshot'
        self.engines = [child.start([ENGINE, '-r', ADDRESSES[0], '-w', str(1 + i), '-n', str(RANKS), '-c', str(CAPACITY), '-s', '32', '-o',
                                     f'{state}/cache{i}'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(ENGINES)]
        self.load = None
        self.lives = []  # duration of each restart

    def check(self, name, good, detail=''):
        if not good:
            self.failures.append(name)
            print(f'FAIL {name}: {detail}', flush=True)

    def ask(self, command):
        return telemetry(self.router.prefix, command)

    def until(self, name, condition):
        end = time.monotonic() + PATIENCE
        while not (good := condition()) and time.monotonic() < end:
            time.sleep(0.05)
        self.check(name, good)

    def serving(self):
        return sum(w['state'] == 'serving' for w in self.ask('/kvroute/workers')['workers'].values()) == ENGINES

    def begin(self):
        self.router.telemetry('/kvroute/balance')
        self.until('all serve', self.serving)
        self.log = open(f'{self.state}/load', 'w+')
        self.load = child.start([LOAD, '-r', ADDRESSES[0], '-n', str(RATE)], stdout=self.log)
        self.until('the load is connected', self.connected)
        self.until('a snapshot', lambda: self.ask('/kvroute/snapshot')['written'] > 0)

    def connected(self):
        with open(self.log.name) as f:
            return f.readline() == 'connected\n'

    def routed(self):
        with open(self.log.name) as f:
            return [int(line.split()[2]) for line in f if line.startswith('routed')]

    def snapshot(self, name):
        """A snapshot that began after this call: an earlier one may have been in progress."""
        for which in ('first', 'second'):
            before = self.ask('/kvroute/snapshot')['written']
            self.ask('/kvroute/snapshot,now')
            self.until(f'{name}: {which} snapshot', lambda: self.ask('/kvroute/snapshot')['written'] > before)

    def restart(self, life):
        cold = life % 4 > 1
        time.sleep(LOAD_S)  # the result does not depend on time
        if not cold:
            self.until(f'{life}: all serve', self.serving)  # a worker that is not back yet is in no snapshot
            self.snapshot(life)
        began = time.monotonic()
        if life % 2 == 0:
            self.router.process.kill()
            self.router.process.wait()
        else:
            self.check(f'{life}: ends well', self.router.stop() == 0)
        ended = time.monotonic()
        self.load.send_signal(signal.SIGUSR1)
        if cold:
            os.remove(self.path)
        self.router.start()
        ready = self.ready(life + 2)
        self.until(f'{life}: requests are routed', lambda: len(self.routed()) == life + 1)
        if len(self.routed()) <= life:
            raise RuntimeError('no request is routed')
        self.check(f'{life}: lives', self.router.alive())
        if not cold and not DEFAULTS:  # requests are routed when the first worker is back
            self.until(f'{life}: all are back', lambda: self.ask('/kvroute/snapshot')['workers_restored'] >= ENGINES)
        restored = self.ask('/kvroute/snapshot')['workers_restored']
        self.lives.append({'by': 'SIGTERM' if life % 2 else 'SIGKILL', 'cold': cold, 'restored': restored,
                           'end_ms': ms(ended - began), 'start_ms': ms(ready - ended),
                           'first_routed_ms': round(self.routed()[life] / 1000 - 1000 * began)})
        # A worker that is away for too long is dropped, and in no snapshot.
        self.check(f'{life}: warm', restored == 0 if cold else DEFAULTS or restored == ENGINES, restored)

    def ready(self, lives):
        """When the router says for the so-manieth time that it is."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with open(self.router.log.name) as f:
                if f.read().count('kvroute: ready') >= lives:
                    return time.monotonic()
            time.sleep(0.005)
        raise RuntimeError('the router is not ready')

    def quiet(self):
        balance = self.ask('/kvroute/balance')
        ranks = self.ask('/kvroute/events,default')['ranks'].values()
        return balance['balance'] == 'ok' and not balance['bookings'] and all(r['authoritative'] and not r['lag'] for r in ranks)

    def truth(self):
        """The blocks of the engines, as they report them."""
        caches = {}
        for i, engine in enumerate(self.engines):
            path = f'{self.state}/cache{i}'
            engine.send_signal(signal.SIGUSR1)
            self.until('a cache', lambda: os.path.exists(path))
            caches.update({(1 + i, rank): set() for rank in range(RANKS)})
            with open(path) as f:
                for line in f:
                    rank, block = line.split()
                    caches[(1 + i, int(rank))].add((0, int(block)))
        return caches

    def end(self):
        self.load.terminate()
        self.check('the load ends', self.load.wait(PATIENCE) == 0)
        with open(self.log.name) as f:
            result = json.loads(f.read().splitlines()[-1])
        self.until('nothing is left', self.quiet)
        self.snapshot('the end')
        caches = self.truth()
        differ = snapshot_file.differences(snapshot_file.read(self.path)[0], caches)
        self.check('the index is what engines have', differ == 0, differ)
        self.check('there is something to compare', sum(map(len, caches.values())) > 1000)
        outcomes = sum(result[k] for k in ('answered', 'wrong', 'refused', 'lost', 'silent', 'other'))
        self.check('each request has one outcome', outcomes == result['requests'] and result['twice'] == 0, result)
        self.check('no client is without an answer', result['silent'] == 0 and result['other'] == 0, result)
        self.check('direct answers go on', DEFAULTS or result['lost_direct'] == 0, result)
        self.check('answers are right', result['wrong'] == 0 and result['answered'] > 0, result)
        for life in self.lives:
            print(json.dumps(life))
        result.update(restarts=RESTARTS, routed_ms_after_kill=sorted(t['first_routed_ms'] for t in self.lives), index_blocks=sum(map(len, caches.values())),
                      index_differences=differ)
        print(json.dumps(result))


def ms(seconds):
    return round(1000 * seconds)


def main():
    liveness = '' if DEFAULTS else 'suspect_ms = 20000\ndead_ms = 60000\n'
    state = tempfile.mkdtemp(prefix='kvroute-warm-')
    router = Router(KVROUTE, '[pool default]\nblock_size = 16\nmax_ranks = 16\nmax_blocks = 65536\n',
                    f'state_dir = {state}\nsnapshot_s = 1\nstop_ms = 2000\n{liveness}', memory_mb=256)
    failed, world = True, World(router, state)
    try:
        world.begin()
        for life in range(RESTARTS):
            world.restart(life)
        world.end()
        failed = bool(world.failures)
    finally:
        for process in world.engines + [world.load]:
            if process is not None:
                process.kill()
                process.wait()
        failed = router.finish(failed)
        shutil.rmtree(state)
    sys.exit(failed)


main()
