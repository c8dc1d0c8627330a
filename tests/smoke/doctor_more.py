# SPDX-License-Identifier: BSD-3-Clause
"""Still more faults for doctor_test.py: events that never come, load that outweighs what is cached, a link."""
import subprocess

import kvrproto as p

B = 16
BLIND = 13
COMMON = f'block_size = {B}\nmax_ranks = 4\nmax_sessions = 0\nmax_blocks = 4096\n'
POOLS = f'''[pool blind]
id = {BLIND}
{COMMON}max_jobs = 64
max_requests = 64
overlap_score_credit = 0
'''


class More:
    """To be mixed into a class that has Faults, too."""

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
        self.link()
