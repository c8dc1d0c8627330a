# SPDX-License-Identifier: BSD-3-Clause
"""Concurrent opens of one source: opens without an answer of the worker count for the quota of the source; otherwise it could take all places.

protocol_test.sh of tests/smoke starts it: session_open_quota.py KVROUTE
"""

import sys

from scripts import Peers, Router, Tally, conclude, proto

B, POOL, SESSIONS, OPENS = 16, 3, 48, 120
TALLY = Tally(60, patience=20.0)


class Opens(Peers):
    def __init__(self, address):
        super().__init__(TALLY, address)
        self.agent = proto.Agent(address, 100, 'llama', B)
        self.agent.answer = lambda job: self.agent.item(job, b'ok', tokens=1, fin=True)
        self.client = proto.Client(address)
        self.all = [self.agent, self.client]

    def run(self, router):
        self.client.connect()
        self.agent.hello()
        self.until('they are accepted', lambda: self.client.pools and self.agent.state == 'SERVING')
        router.hold()  # all arrive before the worker can answer one
        requests = [self.client.route(POOL, 4 * B, [i * 4 + k + 1 for k in range(4)],
                                      hints=proto.session_hint(f's{i}', proto.OPEN, 60)) for i in range(OPENS)]
        router.go_on()
        self.until('all end', lambda: all(r.ended for r in requests))
        names = [r.rejected.name if r.rejected else 'bound' for r in requests]
        bound = names.count('bound')
        self.check('one source has two thirds at most', 0 < bound <= SESSIONS * 2 // 3 + 1, bound)
        self.check('and receives the reason', set(names) == {'bound', 'SourceLimit'}, {n: names.count(n) for n in names})


router = Router(sys.argv[1], f'''[pool llama]
id = {POOL}
block_size = {B}
max_ranks = 8
max_blocks = 16384
max_sessions = {SESSIONS}
''', 'suspect_ms = 3000\ndead_ms = 60000')
router.telemetry('/kvroute/info')
Opens('10.9.0.1').run(router)
conclude(TALLY, router.finish(bool(TALLY.failures)))
