# SPDX-License-Identifier: BSD-3-Clause
"""Still more faults for doctor_test.py: events that never come, load that outweighs what is cached, sizes that are reached, a link."""
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
    """To be mixed into a Rig that has Faults, too."""

    def lag(self):
        """Heartbeats tell of 100 events that never come, and the agent does not hear that they are wanted."""
        heard, self.agent.kv_ack = self.agent.kv_ack, lambda *_: None
        self.silent_about(100)
        self.says(self.doctor(['event-lag', 'not-authoritative']), 'rank 100/0')
        self.agent.kv_ack = heard
        self.said('llama', '100/0', 'authoritative', 1)

    def astray(self):
        """A pool that looks at load alone, and an engine with the prompt that has something else to do."""
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
        self.says(self.doctor(['far-from-best'], fault), 'pool blind: 0 % of the prompts')
        self.let_go(knows, held)
        self.part(knows)
        self.part(other)

    def unheard(self):
        """An agent whose heartbeats come, and that does not hear what it is sent."""
        deaf, other = self.new_agent(118, 'deaf'), self.new_agent(119, 'deaf')
        for agent in (deaf, other):
            agent.stored(0, p.sequence_hashes(range(10 ** 6, 10 ** 6 + B), B))
            self.until('events are taken', lambda: agent.ranks[0].acked == agent.ranks[0].next)
        deaf.dispatch = lambda header, body: None
        self.says(self.doctor(['unheard'], lambda: self.ask(4, pool=DEAF)), 'pool deaf: rank 118/0 is not silent, but has not acknowledged ')
        self.part(deaf)
        self.part(other)

    # ---- sizes that are reached ----

    def slots(self):
        agent = self.new_agent(120, 'small')
        held = self.hold(agent, 15, SMALL, blocks=1)
        self.says(self.doctor(['slots-full']), 'pool small: 15 of 16 places')
        self.let_go(agent, held)
        self.part(agent)

    def jobs(self):
        """Of a pool that lets one in after the other; who waits keeps what was read of it."""
        agent = self.new_agent(121, 'waiting')
        agent.stored(0, p.sequence_hashes(range(6 * 10 ** 6, 6 * 10 ** 6 + B), B))
        held = self.hold(agent, 1, WAITING, blocks=40)
        hashes = p.sequence_hashes(range(5 * 10 ** 6, 5 * 10 ** 6 + B), B)

        def fault():
            for n in range(10, 61, 10):
                held.extend(self.client.route(WAITING, B, hashes) for _ in range(10))
                self.until('they wait', self.asked('/kvroute/queue,waiting', lambda a, n=n: a['waiting'] == n))
        # Copies of what waits need one, too, for a moment; those that find none left are refused, which is counted.
        self.says(self.doctor(['memory-low'], fault, ignored=('cpu-shared', 'stall', 'drops')), 'jobs_waiting: 60 of 64')
        agent.answer = lambda job: agent.item(job, b'x', tokens=1, fin=True, cached=0)
        self.let_go(agent, held)
        self.part(agent)

    def lease(self):
        """Its client runs it, and says no more."""
        other = p.Client(self.ip)
        self.all.append(other)
        other.connect()
        self.until('limits are known', lambda: other.limits)
        booked = other.book(self.pool, 4 * B, p.sequence_hashes(range(7 * 10 ** 6, 7 * 10 ** 6 + 4 * B), B))
        self.until('it is booked', lambda: booked.accepted)
        self.all.remove(other)
        was = self.router.telemetry('/kvroute/pools')['llama']['requests']['expired']
        self.says(self.doctor(['expired'], lambda: self.until('it is over', self.asked(
            '/kvroute/pools', lambda a: a['llama']['requests']['expired'] > was))), 'pool llama: 1 request was in flight until')
        other.close()

    def link(self):
        """The other end of the cable; nobody sends meanwhile."""
        everybody, self.all = self.all, []

        def fault():
            subprocess.run(['ip', 'link', 'set', 'kvr-peer', 'down'], check=True)
            self.until('it is seen', self.asked('/kvroute/ports', lambda a: a['p0']['link_up'] == 0))
        self.says(self.doctor(['link-down'], fault, ignored=('cpu-shared', 'stall', 'suspect')), 'port p0 has no link')
        subprocess.run(['ip', 'link', 'set', 'kvr-peer', 'up'], check=True)
        self.until('it is back', self.asked('/kvroute/ports', lambda a: a['p0']['link_up'] == 1))
        self.all = everybody
        self.until('agents are', self.asked('/kvroute/workers', lambda a: all(w['state'] == 'serving' for w in a['workers'].values())))

    def more(self):
        self.astray()
        self.lag()
        self.unheard()
        self.slots()
        self.jobs()
        self.lease()
        self.link()
