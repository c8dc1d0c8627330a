# SPDX-License-Identifier: BSD-3-Clause
"""Clients that are gone: a DISPATCH of one frame was lost and nobody repeats it; an item was lost and its client has acknowledged it.

The router must free what such requests hold when no client can be waiting for them any more (18 s after it was heard last), not
when their bookings are as old as they may get (300 s).

protocol_test.sh of tests/smoke starts it: gone.py KVROUTE
"""

import struct
import sys

from scripts import Peers, Router, Tally, conclude, proto

B, POOL, N = 16, 3, 20
TALLY = Tally(150, patience=20.0)
FORGOTTEN = 30  # s: a client gives up after 15, a router remembers for 18


class Gone(Peers):
    def __init__(self, address):
        super().__init__(TALLY, address)
        self.agent = proto.Agent(address, 100, 'llama', B)
        self.client = proto.Client(address)
        self.all = [self.agent, self.client]

    def routes(self):
        return [self.client.route(POOL, 4 * B, [i * 4 + k + 1 for k in range(4)]) for i in range(N)]

    def leaves(self, what):
        """The client is gone; in the end nothing is booked for it."""
        for request in self.client.requests.values():
            request.state = 'END'
        self.all.remove(self.client)
        self.client.close()
        proto.run_until(self.all, lambda: self.agent.bookings == 0, FORGOTTEN)
        self.check(f'{what}: nothing is booked', self.agent.bookings == 0, self.agent.bookings)

    def begin(self):
        self.client.connect()
        self.agent.hello()
        self.until('they are let in', lambda: self.client.pools and self.agent.state == 'SERVING')

    def dispatch_lost(self):
        self.begin()
        self.agent.drop = lambda header: header.name == 'DISPATCH'
        requests = self.routes()
        self.until('they are booked', lambda: self.agent.bookings == N and all(r.accepted for r in requests),
                   lambda: self.agent.bookings)
        self.leaves('DISPATCH lost')

    def item_lost(self):
        """The last items do not reach the router; the client says that it has them."""
        self.begin()
        requests = self.routes()
        self.until('they run', lambda: all(r.running for r in requests))
        put, self.agent.put = self.agent.put, lambda data, to=None: None
        jobs = list(self.agent.jobs.values())
        for job in jobs:
            self.agent.item(job, b'all', tokens=1, fin=True)
        self.agent.put = put
        for request in requests:
            self.client.send('RESPONSE_ACK', request.id, struct.pack('<II', 1, 1), handle=request.handle)
        proto.run_until(self.all, lambda: False, 0.5)
        self.leaves('item lost')

    def end(self):
        self.agent.drop = lambda header: False
        self.agent.goodbye()
        self.until('the agent leaves', lambda: self.agent.gone)
        self.agent.close()


router = Router(sys.argv[1], f'''[pool llama]
id = {POOL}
block_size = {B}
max_ranks = 8
max_blocks = 16384
''', 'suspect_ms = 3000\ndead_ms = 60000')
router.telemetry('/kvroute/info')
for address, case in (('10.9.0.1', Gone.dispatch_lost), ('10.9.0.1', Gone.item_lost), ('fd09::1', Gone.dispatch_lost)):
    gone = Gone(address)
    case(gone)
    gone.end()
conclude(TALLY, router.finish(bool(TALLY.failures)))
