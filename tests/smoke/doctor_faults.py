# SPDX-License-Identifier: BSD-3-Clause
"""More faults for doctor_test.py: reports of agents about their engines, ranks, stuck requests, limits."""
import struct
import time

import kvrproto as p

SMALL, PREFILL, DECODE, WAITING = 6, 8, 9, 10
B = 16
POOLS = f'''[pool small]
id = {SMALL}
block_size = {B}
max_ranks = 4
max_jobs = 64
max_sessions = 0
max_blocks = 1024
max_requests = 16
[pool prefill]
id = {PREFILL}
model = pair
role = prefill
block_size = {B}
max_ranks = 4
max_jobs = 64
max_blocks = 65536
max_requests = 256
max_sessions = 0
[pool decode]
id = {DECODE}
model = pair
role = decode
block_size = {B}
max_ranks = 4
max_jobs = 64
max_blocks = 65536
max_requests = 256
max_sessions = 0
[pool waiting]
id = {WAITING}
block_size = {B}
max_ranks = 4
max_jobs = 64
max_blocks = 65536
max_requests = 256
max_sessions = 0
router_queue_threshold = 0
'''


def first_of(oldest):
    return next(iter(oldest['requests'].values()))


class Faults:
    """Mixin for a Rig with an agent of pool llama."""

    # ---- reports of agents ----

    def unread(self):
        self.agent.unread += 3
        self.reported('llama', '100/0', 'unread', self.agent.unread)

    def unknown_rank(self):
        before = self.router.telemetry('/kvroute/ingress')['unknown_rank']
        self.agent.send('HEARTBEAT', 3, struct.pack('<IIIIQQII', 1, 0, 7, 0, p.M64, 0, 0, 0))
        self.until('it is refused', self.asked('/kvroute/ingress', lambda a: a['unknown_rank'] > before))

    def stale_epoch(self):
        before = self.router.telemetry('/kvroute/ingress')['stale_epoch']
        epoch, self.agent.epoch = self.agent.epoch, self.agent.epoch - 1
        for _ in range(8):
            self.agent.send('KV_EVENTS', 4, p.EVENTS_BODY.pack(0, 0, 0, 1, 0, 0) + p.EVENT.pack(p.CLEARED, 0, 0, 0, 0))
        self.agent.epoch = epoch
        self.until('they are counted', self.asked('/kvroute/ingress', lambda a: a['stale_epoch'] >= before + 8))

    def repeat_events(self):
        """The same events, many times."""
        rank = self.agent.ranks[0]
        self.agent.stored(0, p.sequence_hashes(range(80000, 80016), B))
        self.until('they are taken', lambda: rank.acked == rank.next)
        event = p.EVENT.pack(p.STORED, 0, 0, 1, 0) + struct.pack('<Q', 5)
        before = self.router.telemetry('/kvroute/pools')['pools']['llama']['events']['already_applied']
        for i in range(150):
            self.agent.send('KV_EVENTS', 4, p.EVENTS_BODY.pack(rank.next - 1, 0, 0, 1, 0, 0) + event)
            if i % 32 == 0:
                p.run_until(self.all, lambda: True)
        self.until('they are counted', self.asked('/kvroute/pools', lambda a: a['pools']['llama']['events']['already_applied'] >= before + 120))

    def phantoms(self):
        rank = self.agent.ranks[0]
        for i in range(4):
            self.agent.event(0, p.REMOVED, hashes=[10 ** 15 + i * 100 + k for k in range(50)])
        self.agent.flush(0)
        self.until('they are taken', lambda: rank.acked == rank.next)

    def announce_events(self, number):
        """Heartbeats announce events that never arrive."""
        rank = self.agent.ranks[0]
        rank.next += number
        self.reported('llama', '100/0', 'lag', number)
        self.reported('llama', '100/0', 'authoritative', 0)

    def engines(self):
        self.check_cause(self.doctor(['unreadable-kv-events'], self.unread), '3 KV events', 'rank 100/0')
        self.agent.event_block_size = 2 * B
        self.reported('llama', '100/0', 'block_size', 2 * B)
        self.check_cause(self.doctor(['block-size-mismatch']), f'blocks of {2 * B} tokens, but block_size is {B}')
        self.agent.event_block_size, self.agent.event_form = B, 2
        self.reported('llama', '100/0', 'pairs', 1)
        self.check_cause(self.doctor(['eagle-mismatch']), 'rank 100/0 hash pairs of tokens (EAGLE), but the pool has eagle = false')
        self.agent.event_form = 1
        self.reported('llama', '100/0', 'pairs', 0)
        self.agent.canaries_missed = 1  # an event may be late
        self.reported('llama', '100/0', 'canaries_missed', 1)
        self.doctor([])
        self.agent.canaries_missed = 2
        self.reported('llama', '100/0', 'canaries_missed', 2)
        self.check_cause(self.doctor(['canary-mismatch']), 'requests cannot find blocks of worker 100: 2 canary prompts in a row')
        self.agent.canaries_missed = 0
        self.reported('llama', '100/0', 'canaries_missed', 0)
        self.doctor([])
        self.doctor(['unknown-rank'], self.unknown_rank)
        self.doctor(['stale-epoch'], self.stale_epoch)
        self.doctor(['repeated-kv-events'], self.repeat_events)
        self.doctor(['unknown-block-removals'], self.phantoms)

    # ---- caches ----

    def caches(self):
        self.router.telemetry('/kvroute/set,active_prefill_tokens_threshold_frac=1000,llama')
        self.check_cause(self.doctor(['unknown-batch-budget']), 'the batch budget of rank 100/0 is unknown, so active_prefill_tokens_threshold_frac')
        self.router.telemetry('/kvroute/set,active_prefill_tokens_threshold_frac=none,llama')
        self.check_cause(self.doctor(['no-cache-hits'], lambda: self.ask(25, first=3 * 10 ** 6)), 'rank 100/0 holds')
        self.cached = 0
        self.doctor(['hash-mismatch'], lambda: self.predicted(20, 0))
        other = self.new_agent(103, 'llama')
        here = p.route_hints(allowed=[103])
        self.until('one ends there', lambda: self.ask_at(here, 1)[0].ended)
        self.check_cause(self.doctor(['rank-without-kv-events']), 'rank 103/0 finished 1 request without')
        other.event_block_size = 2 * B  # its events arrive, so rank-without-kv-events does not apply
        self.reported('llama', '103/0', 'block_size', 2 * B)
        self.check_cause(self.doctor(['block-size-mismatch']), 'rank 103/0 have blocks of')
        other.event_block_size = B
        self.reported('llama', '103/0', 'block_size', B)
        other.stored(0, p.sequence_hashes(range(90000, 90016), B))
        self.until('events are taken', lambda: other.ranks[0].acked == other.ranks[0].next)
        self.check_cause(self.doctor(['idle-rank', 'no-cache-hits'], lambda: self.ask_at(here, 110)), 'rank 10')
        self.part(other)

    def ask_at(self, hints, n):
        requests = [self.client.route(3, 4 * B + 5, p.sequence_hashes(range(4 * 10 ** 6 + i * 1000, 4 * 10 ** 6 + i * 1000 + 4 * B), B),
                                      hints=hints) for i in range(n)]
        self.until('requests end', lambda: all(r.ended for r in requests))
        return requests

    # ---- requests ----

    def requests(self):
        agent = self.new_agent(105, 'small')
        held = self.hold(agent, 1, SMALL)
        agent.active = 0
        self.reported('small', '105/0', 'engine_requests', 0)
        self.until('it is old', self.asked('/kvroute/oldest,small', lambda a: first_of(a)['age_ms'] > 50))
        key = f'0x{held[0].id:x}'
        self.check_cause(self.doctor(['request-unknown-to-engine'], patience=0.05), f'request {key} has been at rank 105/0', 'the engine has no requests')
        agent.active = None
        self.reported('small', '105/0', 'engine_requests', 1)
        self.check_cause(self.doctor(['stuck-request'], patience=0.05), f'request {key} at rank 105/0 has been in flight', 'without progress')
        self.router.telemetry('/kvroute/drain,105')
        self.until('it drains', lambda: agent.state == 'DRAINING')
        found = self.doctor(['stuck-drain'], lambda: self.token(agent), patience=0.05)
        self.check_cause(found, 'worker 105 has been draining for', f'1 request is left, {key} for')
        self.let_go(agent, held)
        self.router.telemetry('/kvroute/resume,105')
        self.until('it serves', lambda: agent.state == 'SERVING')
        self.doctor(['prefix-table-full'], lambda: self.fill(agent))
        self.part(agent)

    def token(self, agent):
        job = next(j for j in agent.jobs.values() if not j.fin)
        agent.item(job, b'y', tokens=B)
        self.until('it is counted', self.asked('/kvroute/oldest,small', lambda a: first_of(a)['tokens'] > 0))

    def fill(self, agent):
        """More blocks than the table can hold."""
        rank = agent.ranks[0]
        for i in range(60):
            agent.stored(0, p.sequence_hashes(range(10 ** 7 + i * 10 ** 4, 10 ** 7 + i * 10 ** 4 + 100 * B), B))
            self.until('events are taken', lambda: rank.acked == rank.next)

    def queue(self):
        agent = self.new_agent(106, 'waiting')
        agent.stored(0, p.sequence_hashes(range(6 * 10 ** 6, 6 * 10 ** 6 + B), B))
        held = self.hold(agent, 1, WAITING, blocks=40)
        first = self.client.route(WAITING, 40 * B, p.sequence_hashes(range(5 * 10 ** 6, 5 * 10 ** 6 + 40 * B), B))
        self.until('one waits', self.asked('/kvroute/queue,waiting', lambda a: a['waiting'] == 1))
        end = time.monotonic() + 1.1
        self.check_cause(self.doctor(['stuck-queue'], lambda: self.until('a second is over', lambda: time.monotonic() > end)), '1 request waits, ')
        agent.answer = lambda job: agent.item(job, b'x', tokens=1, fin=True, cached=0)
        self.let_go(agent, held + [first])
        self.part(agent)

    # ---- pools ----

    def host(self):
        self.router.telemetry('/kvroute/deactivate,prefill')
        self.doctor(['inactive-prefill-pool'])
        self.router.telemetry('/kvroute/reactivate,prefill')
