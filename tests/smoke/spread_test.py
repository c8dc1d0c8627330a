# SPDX-License-Identifier: BSD-3-Clause
"""A router with 1, 2 or 4 ingress lcores behind packet sockets among which the kernel spreads what comes (fan-out), IPv4 and IPv6.

A flow goes to one socket, and to another when that one is almost full. The router is stopped while a ROUTE of megabytes is sent, so
that its fragments fill one and go on in the others. protocol_test.sh starts it: spread_test.py KVROUTE LCORES.
"""

import sys
import time

import kvrproto as p
from flows import POOLS, POOL, Flows, under_way
from protocol_router import Router, Tally

LCORES = int(sys.argv[2])
# Of a prompt; and frames of a packet socket, three quarters of which are filled before the next one gets any.
TOKENS, FRAMES = {1: (600000, 2048), 2: (1000000, 2048), 4: (440000, 384)}[LCORES]
LEAST = 200  # fragments that each socket gets
SMALL = 40 + 10 * LCORES  # clients with a request of one frame
TALLY = Tally(110, patience=40.0)


def received():
    """Datagrams that each lcore has had from its queue."""
    port = ROUTER.telemetry('/kvroute/ports')['p0']
    return [port[f'lcore{i}']['rx_udp'] for i in range(LCORES)]


class Family(Flows):
    """Everything that is tried over one version of IP."""

    def __init__(self, address):
        super().__init__(TALLY, address, SMALL)

    def small(self):
        """Flows go to all sockets."""
        self.ask(0)
        stages = ROUTER.telemetry('/kvroute/stages')
        items = [stages[f'lcore{i}']['ingress']['items'] for i in range(LCORES)]
        self.check('all lcores have received frames', min(items) > 0, items)

    def large(self):
        """All fragments are present when the router continues, a part of them on each queue."""
        client = self.clients[0]
        self.check('it is not too large', client.limits['max_message'] > TOKENS * 4 + 1000, client.limits)
        before, was = ROUTER.telemetry('/kvroute/ingress'), received()
        ROUTER.hold()
        try:
            request = client.route(POOL, TOKENS, tokens=range(TOKENS))
            request.timer = p.Backoff(30000, 30000)
            # At the pace of the peer and the kernel.
            while under_way(client.sock) or not request.out.go() or under_way(client.sock):
                time.sleep(0.0005)
        finally:
            ROUTER.go_on()
        self.answered(request, TOKENS)
        self.check('it was sent once', request.route_sends == 1, request.route_sends)
        after = ROUTER.telemetry('/kvroute/ingress')
        grown = {k: after[k] - before[k] for k in after}
        self.check('it was joined once', grown['reassembled'] == 1, grown)
        frames = [now - then for now, then in zip(received(), was)]
        self.check('fragments came to all queues', min(frames) > LEAST, frames)
        self.check('one lcore joined them', LEAST * (LCORES - 1) <= grown['fragments_forwarded'] <= grown['fragments'] * (LCORES > 1), grown)
        self.check('none was dropped', grown['ring_full'] == 0, grown)


# Silence of the peers is not tested.
ROUTER = Router(sys.argv[1], POOLS, 'suspect_ms = 20000\ndead_ms = 40000', ingress=LCORES, memory_mb=1536, frames=FRAMES)
TALLY.run(ROUTER, Family)
