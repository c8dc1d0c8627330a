# SPDX-License-Identifier: BSD-3-Clause
"""A router with two ingress CPUs behind packet sockets among which the kernel spreads what comes (fan-out), over IPv4 and IPv6.

A flow goes to one socket, and to the other when that one is almost full. The router is stopped while a ROUTE of 4 MB is sent, so
that its fragments fill one and go on in the other. protocol_test.sh starts it: spread_test.py KVROUTE. Exit status 77: one CPU.
"""

import os
import sys
import time

import kvrproto as p
from protocol_router import Peers, Router, Tally

# The agent, which reads 4 MB in 3,000 frames, may take its time to acknowledge them.
POOLS = '''[pool llama]
id = 3
block_size = 16
seed = 1
max_ranks = 16
max_blocks = 65536
dispatch_ms = 0
'''
POOL, B = 3, 16
TOKENS = 1000000  # 4 MB
FRAMES = 2048     # of a packet socket; the message has 2,891
SMALL = 40        # clients with a request of one frame
TALLY = Tally(110, patience=40.0)


class Family(Peers):
    """Everything that is tried over one version of IP."""

    def __init__(self, address):
        super().__init__(TALLY, address)
        self.agent = p.Agent(address, 100, 'llama', B, ranks=2)
        self.agent.answer = lambda job: self.agent.item(job, b'answer', tokens=1, fin=True)
        self.clients = [p.Client(address) for _ in range(SMALL)]
        self.all = [self.agent, *self.clients]

    def run(self):
        self.agent.hello()
        self.until('SERVING', lambda: self.agent.state == 'SERVING')
        for client in self.clients:
            client.connect()
        self.until('CONNECTED', lambda: all(c.limits for c in self.clients))
        limits = self.clients[0].limits
        self.check('4 MB are not too large', limits['max_message'] > TOKENS * 4 + 1000, limits)
        self.small()
        self.large()
        self.agent.goodbye()
        self.until('the agent leaves', lambda: self.agent.gone)
        for endpoint in self.all:
            endpoint.close()

    def small(self):
        """Flows go to both sockets."""
        requests = [c.route(POOL, B, p.sequence_hashes(range(i, i + B), B)) for i, c in enumerate(self.clients)]
        self.until('small requests end', lambda: all(r.ended for r in requests))
        self.check('small requests are answered', all(r.data == b'answer' for r in requests),
                   [r.rejected for r in requests])
        stages = ROUTER.telemetry('/kvroute/stages')
        items = [stages[f'lcore{i}']['ingress']['items'] for i in range(2)]
        self.check('both lcores have received frames', min(items) > 0, items)

    def large(self):
        """All fragments are there when the router goes on, half of them on either queue."""
        client = self.clients[0]
        before = ROUTER.telemetry('/kvroute/ingress')
        ROUTER.hold()
        try:
            request = client.route(POOL, TOKENS, tokens=range(TOKENS))
            request.timer = p.Backoff(30000, 30000)
            while not request.out.go():  # at the stranger's pace
                time.sleep(0.0005)
        finally:
            ROUTER.go_on()
        self.until('the large request ends', lambda: request.ended, lambda: request.answers)
        self.check('it is answered', request.data == b'answer', request.rejected)
        self.check('it was sent once', request.route_sends == 1, request.route_sends)
        job = self.agent.jobs.get((client.source, request.id))
        self.check('its tokens are those that were sent', job and list(job.dispatch.tokens) == list(range(TOKENS)))
        after = ROUTER.telemetry('/kvroute/ingress')
        grown = {k: after[k] - before[k] for k in after}
        self.check('it was joined once', grown['messages'] == 1, grown)
        self.check('fragments came to both queues', 500 < grown['handed'] < 2400, grown)
        self.check('none was dropped', grown['ring_full'] == 0, grown)


if len(os.sched_getaffinity(0)) < 2:
    print('one CPU')
    sys.exit(77)
# Silence of the peers is not what is tried.
ROUTER = Router(sys.argv[1], POOLS, 'suspect_ms = 20000\ndead_ms = 40000', ingress=2, memory_mb=1536, frames=FRAMES)
TALLY.run(ROUTER, Family)
