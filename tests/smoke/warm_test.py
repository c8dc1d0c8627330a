# SPDX-License-Identifier: BSD-3-Clause
"""Restarts by SIGKILL and SIGTERM in turns: each router starts with the state of the one before, and soon has the current one.

protocol_test.sh starts it: warm_test.py KVROUTE [RESTARTS]
"""

import os
import sys
import tempfile
import time

import kvrproto as p
import snapshot_file
from load_test import telemetry
from protocol_router import ADDRESSES, Peers, Router, Tally

POOL, B, AGENTS, BLOCKS = 3, 16, 3, 400
RESTARTS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
DEVICE = p.TIERS['device']
TALLY = Tally(170, patience=40.0)  # the machine may be busy


class Cluster(Peers):
    def __init__(self, router, path):
        super().__init__(TALLY, ADDRESSES[0])
        self.router, self.path = router, path
        self.client = p.Client(ADDRESSES[0])
        self.agents = [p.Agent(ADDRESSES[0], 100 + i, 'llama', B, ranks=2) for i in range(AGENTS)]
        self.all = [self.client, *self.agents]
        self.cache = {}  # (worker, rank): its prefixes
        for agent in self.agents:
            agent.dump_blocks = lambda rank, worker=agent.worker: [('device', h) for h in self.cache[(worker, rank)]]
        self.prompts = {}  # (worker, rank): hashes that only it has
        self.routed = self.answered = self.differences = 0
        self.times = []

    def prompt(self, name, blocks):
        first = p.xxh3_64(name.encode()) >> 34
        return p.sequence_hashes(list(range(first, first + blocks * B)), B)

    def serving(self):
        return all(a.state == 'SERVING' for a in self.agents)

    def telemetry(self, command):
        return telemetry(self.router.prefix, command)

    def seen(self, name, condition):
        """The peers continue between the questions."""
        end = time.monotonic() + min(self.tally.patience, self.tally.left())
        while not (good := condition()) and time.monotonic() < end:
            p.run_until(self.all, lambda: False, 0.05)
        self.check(name, good)

    def sure(self):
        ranks = self.telemetry('/kvroute/events,llama')['ranks'].values()
        return len(ranks) == 2 * AGENTS and all(r['authoritative'] for r in ranks)

    def ask(self, name, where, hashes):
        """A request goes to the rank with its blocks, and is answered."""
        request = self.client.route(POOL, len(hashes) * B, hashes)
        job = lambda: next(((a, a.jobs[(self.client.source, request.id)]) for a in self.agents
                            if (self.client.source, request.id) in a.jobs), None)
        if not self.until(f'{name}: dispatched', job, lambda: (request.rejected, request.answers)):
            raise RuntimeError(name)
        self.routed += 1
        at = time.monotonic()
        agent, work = job()
        self.check(f'{name}: where its blocks are', (agent.worker, work.dispatch.dp_rank) == where,
                   (agent.worker, work.dispatch.dp_rank, where))
        self.check(f'{name}: overlap', work.dispatch.overlap_blocks == len(hashes),
                   (work.dispatch.overlap_blocks, len(hashes)))
        agent.item(work, b'ok', tokens=1, fin=True)
        self.until(f'{name}: answered', lambda: request.ended and work.done)
        self.answered += request.rejected is None
        return at

    def settle(self, name):
        """Nothing is in progress any more: the router's index equals its engines' caches, block for block."""
        self.seen(f'{name}: confirmed', self.sure)
        before = self.telemetry('/kvroute/snapshot')['written']
        self.telemetry('/kvroute/snapshot,now')
        self.seen(f'{name}: written', lambda: self.telemetry('/kvroute/snapshot')['written'] > before)
        index, kinds = snapshot_file.read(self.path)
        truth = {rank: {(DEVICE, h) for prefix in prefixes for h in prefix} for rank, prefixes in self.cache.items()}
        differ = snapshot_file.differences(index, truth)
        self.differences += differ
        self.check(f'{name}: the index is what engines have', differ == 0, (differ, kinds))
        # A difference would be a block missing in the index, or one too many.
        rank = next(iter(truth))
        truth[rank] = set(list(truth[rank])[1:]) | {(DEVICE, 1)}
        self.check(f'{name}: two differences are seen', snapshot_file.differences(index, truth) == differ + 2)

    def grow(self, life):
        """One more prefix in every rank, and only the first half of an older one."""
        for agent in self.agents:
            for rank in agent.ranks:
                key = (agent.worker, rank)
                hashes = self.prompt(f'{key} {life}', BLOCKS)
                mine = self.cache.setdefault(key, [])
                if mine:
                    agent.event(rank, p.REMOVED, hashes=mine[0][len(mine[0]) // 2:])
                    mine[0] = mine[0][:len(mine[0]) // 2]
                agent.stored(rank, hashes)
                self.prompts[key] = hashes
                mine.append(hashes)
        self.until('events acknowledged',
                   lambda: all(r.acked == r.next for a in self.agents for r in a.ranks.values()))

    def end(self, life, kill):
        if kill:
            self.router.process.kill()
            self.router.process.wait()
            return
        # Frames of the stop arrive at the agents while the router ends.
        self.router.process.terminate()
        p.run_until(self.all, lambda: self.router.process.poll() is not None, 60)
        self.check(f'{life}: ends well', self.router.process.returncode == 0, self.router.process.returncode)

    def replace(self, old):
        """Another process with the epoch of an earlier one: the router's stored state is not its own."""
        new = p.Agent(ADDRESSES[0], old.worker, 'llama', B, ranks=2)
        new.epoch = old.epoch
        for rank in new.ranks:
            hashes = self.prompt(f'replaced {rank}', BLOCKS)
            self.cache[(new.worker, rank)] = [hashes]
            self.prompts[(new.worker, rank)] = hashes
            new.ranks[rank].next = old.ranks[rank].next  # as many events as the router knows
        new.dump_blocks = old.dump_blocks
        self.agents[self.agents.index(old)] = self.all[self.all.index(old)] = new
        old.sock.close()
        new.hello()

    def restart(self, life):
        last = life == RESTARTS - 1
        where = list(self.prompts)[life % (len(self.prompts) - 2)]  # not of the last agent
        kill, older = life % 2 == 0, life % 4 == 0
        if older:
            self.grow(life)  # the snapshot lacks it: it is retransmitted
        epoch = self.agents[0].router_epoch
        dumps = sum(r.dumps for a in self.agents[:-1] for r in a.ranks.values())
        began = time.monotonic()
        self.end(life, kill)
        ended = time.monotonic()
        if last:
            self.replace(self.agents[-1])
        self.router.start()
        self.until(f'{life}: all serve again', lambda: self.serving() and all(
            a.router_epoch not in (None, epoch) and a.welcome for a in self.agents))
        back = time.monotonic()
        self.check(f'{life}: warm', all(a.welcome['warm'] for a in self.agents))
        if older:
            self.seen(f'{life}: what happened since is there', self.sure)
        at = self.ask(f'life {life}', where, self.prompts[where])
        self.times.append((back - ended, at - began))
        restored = self.telemetry('/kvroute/snapshot')['workers_restored']
        self.check(f'{life}: from the snapshot', restored == AGENTS, restored)
        self.settle(life)
        after = sum(r.dumps for a in self.agents[:-1] for r in a.ranks.values())
        self.check(f'{life}: another process tells all', not last or all(r.dumps for r in self.agents[-1].ranks.values()))
        # These agents keep no acknowledged events: they send a dump for what the snapshot lacks.
        self.check(f'{life}: no agent had to send a dump', older or after == dumps, (dumps, after))

    def run(self):
        for agent in self.agents:
            agent.hello()
        self.until('SERVING', self.serving)
        self.grow('first')
        self.grow('second')
        for where, hashes in self.prompts.items():
            self.ask('at first', where, hashes)
        self.settle('at first')
        mode = os.stat(self.path).st_mode & 0o777
        self.check('no other user can read it', mode == 0o600, oct(mode))
        for life in range(RESTARTS):
            self.restart(life)
        for name, i in (('start to all agents back', 0), ('kill to first routed request', 1)):
            times = sorted(t[i] for t in self.times)
            print(f'{name}: {times[0]:.2f} to {times[-1]:.2f} s, median {times[len(times) // 2]:.2f} s')
        blocks = sum(len(h) for prefixes in self.cache.values() for h in prefixes)
        print(f'{RESTARTS} restarts, {self.routed} requests, {self.answered} answered, {blocks} blocks, '
              f'index differences {self.differences}')


def main():
    state = tempfile.mkdtemp(prefix='kvroute-warm-')
    router = Router(sys.argv[1], f'''[pool llama]
id = {POOL}
block_size = {B}
seed = 1
max_ranks = 8
max_blocks = 65536
''', f'state_dir = {state}\nsnapshot_s = 0\nsuspect_ms = 20000\ndead_ms = 60000\n', memory_mb=256)
    failed = True
    path = f'{state}/{router.prefix}.snapshot'
    try:
        router.telemetry('/kvroute/balance')
        Cluster(router, path).run()
        failed = bool(TALLY.failures)
    finally:
        failed = router.finish(failed)
        if os.path.exists(path):
            os.unlink(path)
        os.rmdir(state)
    sys.exit(failed)


main()
