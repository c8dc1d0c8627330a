# SPDX-License-Identifier: BSD-3-Clause
"""Thousands of streams at once through one agent and one gateway, and the memory of both while router or engine stands still.

protocol_test.sh starts it: agent_crowd_test.py KVROUTE KVROUTE_AGENT KVROUTE_GATEWAY
"""

import re
import resource
import sys

from agent_lib import Agent, PORTS
from crowd import Crowd, Client
from gateway_rig import Gateway
from protocol_router import ADDRESSES, Router, Tally, telemetry

TALLY = Tally(200, patience=60.0)
POOLS = '''[pool llama]
id = 3
block_size = 16
max_ranks = 4
max_blocks = 4096
max_requests = 16384
'''
STREAMS, ROUNDS = 2000, 6
BIG, TOKENS = 32, 20000  # streams and their tokens when the router stands still
KIB, MIB = 1024, 1 << 20
SOCKET = 512 * KIB  # of one connection, either way, in the kernel
REQUEST_BYTES, BODIES_BYTES, BODY = 128 * KIB, 24 * MIB, 4 * MIB
# app/agent: the bytes of one read precede OUT_MOST; then an incomplete event (EVENT_USUAL), and what the router has not
# acknowledged. Memory that is reserved and never written does not count.
OF_A_STREAM = (64 + 64) * KIB + 16 * KIB + REQUEST_BYTES
check = TALLY.check


def memory(process, what='VmRSS'):
    with open(f'/proc/{process.pid}/status') as f:
        return int(re.search(rf'{what}:\s+(\d+)', f.read()).group(1)) * KIB


class Test:
    def __init__(self, router, program, gateway):
        self.router, self.ranks = router, 1
        self.port, self.events, self.replay = next(PORTS), 0, 0
        self.crowd = Crowd(self.port)
        self.agent = Agent(program, self, ADDRESSES[0], 7, '--events', '', '--replay', '', '--block-size', '16', '--health-ms', '2000',
                           '--silent-ms', '60000', '--request-bytes', f'{REQUEST_BYTES}', '--bodies-bytes', f'{BODIES_BYTES}', '--body-ms', '8000',
                           log=f'{router.dir}/agent.log')
        self.until('the worker serves', lambda: (self.workers().get('7') or {}).get('state') == 'serving')
        self.gateway = None
        # It starts beside the crowd, which need not run for that.
        self.gateway = Gateway(gateway, '--router', ADDRESSES[0], '--router-ms', '60000', log=open(f'{router.dir}/agent.log', 'ab'))
        self.until('the gateway is ready', self.gateway.ready)

    def workers(self):
        return telemetry(self.router.prefix, '/kvroute/workers')['workers']

    def until(self, name, condition, detail=lambda: ''):
        check(name, self.crowd.until(condition, min(TALLY.patience, TALLY.left())), detail())

    def counted(self, name):
        return self.agent.counters()['agent'][name]

    def ask(self, numbers, more=b''):
        clients = []
        for i in numbers:
            clients.append(Client(self.crowd, self.gateway.port, i, more))
            self.crowd.turn(0)
        return clients

    def nothing_left(self, name):
        self.until(f'{name}: nothing runs', lambda: self.counted('running') == 0, self.agent.counters)

    def thousands(self):
        """All requests reach the engine before one is answered, and each client gets a token before the next one of any."""
        before = memory(self.agent.process), memory(self.gateway.process)
        clients = self.ask(range(STREAMS), b'y' * 1000)
        asked = self.crowd.asked
        self.until('all have come to the engine', lambda: len(asked) == STREAMS, lambda: (len(asked), self.agent.counters()))
        check('all at once', self.counted('running') == STREAMS, self.agent.counters())
        check('as they were', all(asked[c.number].body == c.body for c in clients))
        # An engine that has not answered: the agent holds each request in at most two pages, plus one KiB.
        now = memory(self.agent.process), memory(self.gateway.process)
        check('what waits costs little', now[0] - before[0] < STREAMS * 12 * KIB and now[1] - before[1] < STREAMS * 80 * KIB, (before, now))
        for s in asked.values():
            s.begin()
        for n in range(ROUNDS):
            for s in asked.values():
                s.events(n, 1)
            self.until(f'token {n} of all', lambda: all(c.bytes == asked[c.number].bytes for c in clients),
                       lambda: [(c.number, c.bytes) for c in clients if c.bytes != asked[c.number].bytes][:5])
        for s in asked.values():
            s.finish()
        self.until('all end', lambda: all(c.over for c in clients), lambda: sum(c.over for c in clients))
        check('all are whole', not self.crowd.whole(clients), self.crowd.whole(clients)[:3])
        self.nothing_left('thousands')
        check('none failed', self.counted('answered') == STREAMS and self.counted('failed') == 0, self.agent.counters())
        asked.clear()

    def router_stands_still(self):
        """The engine writes as fast as it can."""
        clients = self.ask(range(10000, 10000 + BIG))
        asked = self.crowd.asked
        self.until('they have come', lambda: len(asked) == BIG, lambda: len(asked))
        for s in asked.values():
            s.begin()
            s.events(0, 1)
        self.until('they stream', lambda: all(c.bytes == asked[c.number].bytes for c in clients))
        before, paused = (memory(self.agent.process), memory(self.gateway.process)), self.counted('paused')
        self.router.hold()
        sent = {s: 1 for s in asked.values()}

        def write():
            for s, n in sent.items():
                if not s.pending and not s.closed and n < TOKENS:
                    k = min(2000, TOKENS - n)
                    s.events(n, k)
                    sent[s] = n + k
                    if sent[s] == TOKENS:
                        s.finish()
            return all(n == TOKENS and not s.pending for s, n in sent.items())

        # Memory is checked in a line of its own below, and that check does not wait for everything to be written.
        too_much = lambda: memory(self.agent.process) - before[0] >= BIG * OF_A_STREAM  # noqa: E731
        self.until('the engine waits, or has written all', lambda: write() or too_much() or self.counted('paused') - paused >= BIG,
                   lambda: (sorted(sent.values()), self.counted('paused')))
        self.until('and waits', lambda: write() or too_much() or all(s.pending for s in sent), lambda: sorted(sent.values()))
        now = memory(self.agent.process), memory(self.gateway.process)
        check('the agent has what its limits say', now[0] - before[0] < BIG * OF_A_STREAM, ((now[0] - before[0]) // KIB, BIG * OF_A_STREAM // KIB))
        check('it cannot write on', all(s.pending for s in sent), sorted(sent.values()))
        check('the gateway has nothing', now[1] - before[1] < MIB, (before, now))
        all_of_it = sum(s.bytes for s in sent) / sum(sent.values()) * TOKENS * BIG
        check('which is a part of the streams', BIG * OF_A_STREAM < all_of_it / 4, (BIG * OF_A_STREAM, all_of_it))
        self.router.go_on()
        self.until('all is written then', write, lambda: sorted(sent.values()))
        self.until('all end', lambda: all(c.over for c in clients), lambda: [(c.bytes, c.over, c.words[-80:]) for c in clients if not c.over][:3])
        check('every token of them', not self.crowd.whole(clients), self.crowd.whole(clients)[:3])
        after = memory(self.agent.process, 'VmHWM')
        check('never more', after - before[0] < BIG * OF_A_STREAM, ((after - before[0]) // KIB, BIG * OF_A_STREAM // KIB))
        self.nothing_left('the router')
        print(f'router stands still: agent {before[0] // KIB} -> {now[0] // KIB} KiB (most {after // KIB}), bound {BIG * OF_A_STREAM // KIB}, '
              f'gateway {before[1] // KIB} -> {now[1] // KIB}; streams of {all_of_it / KIB:.0f} KiB', flush=True)
        asked.clear()

    def engine_reads_nothing(self):
        """Bodies that the engine does not read: as many as --bodies-bytes allows; the others are rejected with a reason."""
        n, fit = 16, BODIES_BYTES // (BODY + 1000)
        before = memory(self.agent.process)
        self.crowd.reads_no_bodies = True
        clients = self.ask(range(20000, 20000 + n), b'z' * BODY)
        self.until('those that do not fit are refused', lambda: sum(c.over for c in clients) == n - fit,
                   lambda: [(c.status, c.over, c.words) for c in clients])
        refused = [c for c in clients if c.over]
        check('with words', all(c.status == 503 and b'"body_not_taken"' in c.words for c in refused), [(c.status, c.words) for c in refused])
        self.until('the others are at the engine', lambda: len(self.crowd.unread) == fit, lambda: len(self.crowd.unread))
        now = memory(self.agent.process)
        # A complete body is copied once; freed memory may not have been returned yet.
        check('the agent has those bodies', now - before < BODIES_BYTES + 2 * BODY, ((now - before) // KIB, BODIES_BYTES // KIB))
        check('and they wait', self.counted('running') == fit, self.agent.counters())
        self.crowd.read_on()
        rest = [c for c in clients if not c.over]
        self.until('the engine has them', lambda: len(self.crowd.asked) == fit, lambda: len(self.crowd.asked))
        check('as they were', all(self.crowd.asked[c.number].body == c.body for c in rest))
        for s in self.crowd.asked.values():
            s.whole(b'{"choices": []}')
        self.until('they end', lambda: all(c.over for c in rest))
        check('with their answers', not self.crowd.whole(rest), self.crowd.whole(rest)[:3])
        print(f'engine reads nothing: agent {before // KIB} -> {now // KIB} KiB', flush=True)
        self.nothing_left('the engine')

    def leaves(self):
        """SIGTERM while all of them stream: each stream runs to its end, new requests are rejected, and the agent exits."""
        asked = self.crowd.asked
        asked.clear()
        clients = self.ask(range(30000, 30000 + STREAMS))
        self.until('they have come before it leaves', lambda: len(asked) == STREAMS, lambda: len(asked))
        for s in asked.values():
            s.begin()
        self.agent.process.terminate()
        self.until('it drains', lambda: self.workers()['7']['state'] == 'draining', self.workers)
        late = self.ask([40000])[0]
        self.until('a late request is rejected', lambda: late.over and late.status == 503, lambda: (late.over, late.status, late.words))
        for n in range(ROUNDS):
            for s in asked.values():
                s.events(n, 1)
            self.until(f'token {n} of all while it leaves', lambda: all(c.bytes == asked[c.number].bytes for c in clients),
                       lambda: [(c.number, c.bytes) for c in clients if c.bytes != asked[c.number].bytes][:5])
        check('it waits for them', self.agent.process.poll() is None)
        for s in asked.values():
            s.finish()
        self.until('all end before it leaves', lambda: all(c.over for c in clients), lambda: sum(c.over for c in clients))
        check('and are whole', not self.crowd.whole(clients), self.crowd.whole(clients)[:3])
        self.until('the agent leaves', lambda: self.agent.process.poll() is not None)
        check('as it should', self.agent.process.returncode == 0)


def main(kvroute, program, gateway):
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files[1] < 6000:
        print(f'only {files[1]} files may be open: skipped')
        sys.exit(77)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    # Some hosts allow a connection 32 MiB: then a whole stream fits into the kernel's buffers, and no stream would have to wait.
    for name in 'tcp_rmem', 'tcp_wmem':
        with open(f'/proc/sys/net/ipv4/{name}', 'w') as f:
            f.write(f'4096 {64 * KIB} {SOCKET}')
    router = Router(kvroute, POOLS, 'suspect_ms = 30000\ndead_ms = 60000\nsource_share = 0')

    def run():
        test = Test(router, program, gateway)
        test.thousands()
        test.router_stands_still()
        test.engine_reads_nothing()
        test.leaves()
        check('the gateway ends', test.gateway.stop() == 0)
        TALLY.balanced(router)
    TALLY.beside(router, run, f'{router.dir}/agent.log')


main(*sys.argv[1:])
