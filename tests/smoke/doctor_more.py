# SPDX-License-Identifier: BSD-3-Clause
"""More faults for doctor_test.py: events that never arrive, load that outweighs the cache, limits, leases, a link."""
import subprocess

import kvrproto as p

B = 16
BLIND, DEAF = 13, 14
SMALL, WAITING = 6, 10  # of doctor_faults.py
COMMON = f'block_size = {B}\nmax_ranks = 4\nmax_sessions = 0\nmax_blocks = 4096\n'
POOLS = f'''[pool blind]
id = {BLIND}
{COMMON}max_jobs = 64
max_requests = 64
overlap_score_credit = 0
[pool deaf]
id = {DEAF}
{COMMON}max_jobs = 64
max_requests = 64
dispatch_ms = 100
'''


class More:
    """Mixin for a Rig with Faults."""

    def lag(self):
        """Heartbeats announce 100 events that never arrive, and the agent ignores the requests for them."""
        heard, self.agent.kv_ack = self.agent.kv_ack, lambda *_: None
        self.announce_events(100)
        self.check_cause(self.doctor(['kv-event-lag', 'missing-kv-events']), 'rank 100/0')
        self.agent.kv_ack = heard
        self.reported('llama', '100/0', 'authoritative', 1)

    def astray(self):
        """A pool that routes by load alone, and a busy engine with the prompt in its cache."""
        knows, other = self.new_agent(116, 'blind'), self.new_agent(117, 'blind')
        prompt = p.sequence_hashes(range(64 * B), B)
        for agent, hashes in ((knows, prompt), (other, p.sequence_hashes(range(10 ** 6, 10 ** 6 + B), B))):
            agent.stored(0, hashes)
            self.until('events are taken', lambda: agent.ranks[0].acked == agent.ranks[0].next)
        held = self.hold(knows, 1, BLIND, blocks=200, hints=p.route_hints(allowed=[116]))

        def fault():
            for _ in range(19):
                request = self.client.route(BLIND, 64 * B + 5, prompt)
                self.until('it ends', lambda: request.ended)
        self.check_cause(self.doctor(['missed-cache'], fault), 'pool blind: 0 % of the prompt tokens')
        self.let_go(knows, held)
        self.part(knows)
        self.part(other)

    def unacknowledged(self):
        """An agent that sends heartbeats but ignores DISPATCH."""
        deaf, other = self.new_agent(118, 'deaf'), self.new_agent(119, 'deaf')
        for agent in (deaf, other):
            agent.stored(0, p.sequence_hashes(range(10 ** 6, 10 ** 6 + B), B))
            self.until('events are taken', lambda: agent.ranks[0].acked == agent.ranks[0].next)
        deaf.dispatch = lambda header, body: None
        self.check_cause(self.doctor(['unacknowledged-dispatch'], lambda: self.ask(4, pool=DEAF)), 'pool deaf: rank 118/0 sends heartbeats, but did not acknowledge ')
        self.part(deaf)
        self.part(other)

    # ---- limits ----

    def slots(self):
        agent = self.new_agent(120, 'small')
        held = self.hold(agent, 15, SMALL, blocks=1)
        self.check_cause(self.doctor(['request-slot-shortage']), 'pool small: 15 of 16 request slots')
        self.let_go(agent, held)
        self.part(agent)

    def jobs(self):
        """In a pool that admits one request at a time, waiting requests hold their jobs."""
        agent = self.new_agent(121, 'waiting')
        agent.stored(0, p.sequence_hashes(range(6 * 10 ** 6, 6 * 10 ** 6 + B), B))
        held = self.hold(agent, 1, WAITING, blocks=40)
        hashes = p.sequence_hashes(range(5 * 10 ** 6, 5 * 10 ** 6 + B), B)

        def fault():
            for n in range(10, 61, 10):
                held.extend(self.client.route(WAITING, B, hashes) for _ in range(10))
                self.until('they wait', self.asked('/kvroute/queue,waiting', lambda a, n=n: a['waiting'] == n))
        # Retransmitted ROUTE messages need a job for a moment. Without a free one they are rejected and counted.
        self.check_cause(self.doctor(['buffer-shortage'], fault, ignored=('shared-cpu', 'lcore-stall', 'frame-drops')), 'jobs_waiting: 60 of 64')
        agent.answer = lambda job: agent.item(job, b'x', tokens=1, fin=True, cached=0)
        self.let_go(agent, held)
        self.part(agent)

    def lease(self):
        """The client of a booking falls silent."""
        other = p.Client(self.ip)
        self.all.append(other)
        other.connect()
        self.until('limits are known', lambda: other.limits)
        booked = other.book(self.pool, 4 * B, p.sequence_hashes(range(7 * 10 ** 6, 7 * 10 ** 6 + 4 * B), B))
        self.until('it is booked', lambda: booked.accepted)
        self.all.remove(other)
        was = self.router.telemetry('/kvroute/pools')['pools']['llama']['requests']['expired']
        self.check_cause(self.doctor(['expired-requests'], lambda: self.until('it is over', self.asked(
            '/kvroute/pools', lambda a: a['pools']['llama']['requests']['expired'] > was))), 'pool llama: 1 request ended because the client was silent')
        other.close()

    def link(self):
        """The other end of the cable goes down; no endpoint sends."""
        endpoints, self.all = self.all, []

        def fault():
            subprocess.run(['ip', 'link', 'set', 'kvr-peer', 'down'], check=True)
            self.until('it is seen', self.asked('/kvroute/ports', lambda a: a['p0']['link_up'] == 0))
        self.check_cause(self.doctor(['link-down'], fault, ignored=('shared-cpu', 'lcore-stall', 'suspect-worker')), 'port p0 has no link')
        subprocess.run(['ip', 'link', 'set', 'kvr-peer', 'up'], check=True)
        self.until('it is back', self.asked('/kvroute/ports', lambda a: a['p0']['link_up'] == 1))
        self.all = endpoints
        self.until('agents are', self.asked('/kvroute/workers', lambda a: all(w['state'] == 'serving' for w in a['workers'].values())))

    def more(self):
        self.astray()
        self.lag()
        self.unacknowledged()
        self.slots()
        self.jobs()
        self.lease()
        self.link()
