# SPDX-License-Identifier: BSD-3-Clause
"""Helpers of the tests of several queues: a pool, an agent that answers at once, and clients with many flows."""

import fcntl
import struct
import termios

import kvrproto as p
from protocol_router import Peers

# The agent reads megabytes in thousands of frames and may acknowledge them late.
POOLS = '''[pool llama]
id = 3
block_size = 16
seed = 1
max_ranks = 16
max_blocks = 65536
dispatch_ms = 0
'''
POOL, B = 3, 16


def under_way(sock):
    """Bytes that the kernel has accepted and not yet put into a packet socket: beyond its limit frames would be lost."""
    return struct.unpack('i', fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0]


class Flows(Peers):
    """Over one version of IP; subclasses have small() and large()."""

    def __init__(self, tally, address, clients):
        super().__init__(tally, address)
        self.agent = p.Agent(address, 100, 'llama', B, ranks=2)
        self.agent.answer = lambda job: self.agent.item(job, b'answer', tokens=1, fin=True)
        self.clients = [p.Client(address) for _ in range(clients)]
        self.all = [self.agent, *self.clients]

    def run(self):
        self.agent.hello()
        self.until('SERVING', lambda: self.agent.state == 'SERVING')
        for client in self.clients:
            client.connect()
        self.until('CONNECTED', lambda: all(c.limits for c in self.clients))
        self.small()
        self.large()
        self.agent.goodbye()
        self.until('the agent leaves', lambda: self.agent.gone)
        for endpoint in self.all:
            endpoint.close()

    def ask(self, first):
        """A request of one block from each client; that of client i begins with token first + i."""
        requests = [c.route(POOL, B, p.sequence_hashes(range(first + i, first + i + B), B)) for i, c in enumerate(self.clients)]
        self.until('small requests end', lambda: all(r.ended for r in requests))
        self.check('small requests are answered', all(r.data == b'answer' for r in requests), [r.rejected for r in requests])

    def answered(self, request, tokens):
        """A large request ends, and its tokens arrived at the agent unchanged."""
        self.until('the large request ends', lambda: request.ended, lambda: request.answers)
        self.check('it is answered', request.data == b'answer', request.rejected)
        job = self.agent.jobs.get((self.clients[0].source, request.id))
        self.check('its tokens are those that were sent', job and list(job.dispatch.tokens) == list(range(tokens)))
