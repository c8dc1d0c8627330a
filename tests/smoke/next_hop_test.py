#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The next-hop MAC of workers and clients changes, as when a gateway fails over: everything continues, without another HELLO. protocol_test.sh
starts it.

protocol_test.sh KVROUTE next_hop_test.py
"""

import subprocess
import sys

import kvrproto as p
from protocol_router import Peers, Router, Tally

POOLS = '''[pool llama]
id = 3
block_size = 16
seed = 1
max_ranks = 16
max_blocks = 65536
'''
TALLY = Tally(90, patience=20)
MACS = iter(f'02:00:00:00:77:{n:02x}' for n in range(1, 100))


def finish(agent, job):
    agent.item(job, b'answer', tokens=1, fin=True)


class Family(Peers):
    def __init__(self, address):
        super().__init__(TALLY, address)
        self.agent = p.Agent(address, 100, 'llama', 16, ranks=1)
        self.agent.answer = lambda job: finish(self.agent, job)
        self.client = p.Client(address)
        self.all = [self.agent, self.client]

    def ask(self):
        return self.client.route(3, 16, p.sequence_hashes(range(16), 16))

    def answered(self, what, request):
        self.until(what, lambda: request.ended, lambda: (request.state, request.rejected))
        self.check(what + ': the answer', request.data == b'answer', (request.rejected, request.data))

    def other_mac(self):
        subprocess.run(['ip', 'link', 'set', 'kvr-peer', 'address', next(MACS)], check=True)

    def run(self):
        self.agent.hello()
        self.until('SERVING', lambda: self.agent.state == 'SERVING')
        self.client.connect()
        self.until('CONNECTED', lambda: self.client.limits)
        self.answered('before', self.ask())
        self.other_mac()
        for i in range(3):
            self.answered(f'after a change, {i}', self.ask())
        # Both are behind it: a request runs, and both send only their usual frames.
        held = []
        self.agent.answer = held.append
        request = self.ask()
        self.until('it runs', lambda: held)
        self.other_mac()
        finish(self.agent, held[0])
        self.answered('a request that ran', request)
        # Items have arrived already.
        self.agent.answer = held.append
        request = self.ask()
        self.until('it runs', lambda: len(held) == 2)
        self.agent.item(held[1], b'ans', tokens=1)
        self.until('an item', lambda: request.data == b'ans')
        self.other_mac()
        self.agent.item(held[1], b'wer', tokens=2, fin=True)
        self.answered('a stream', request)
        workers = ROUTER.telemetry('/kvroute/workers')['workers']
        self.check('it has served all the time', [w['state'] for w in workers.values()] == ['serving'], workers)
        self.agent.goodbye()
        self.until('the agent leaves', lambda: self.agent.gone)
        for e in self.all:
            e.close()


ROUTER = Router(sys.argv[1], POOLS)
TALLY.run(ROUTER, Family)
