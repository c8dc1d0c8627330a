#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Faults injected into a running router, one by one: kvroute-ctl doctor reports each in one line, and nothing else.

protocol_test.sh starts it: doctor_test.py KVROUTE KVROUTE_CTL. The fault happens between the two samples of doctor.
"""
import re
import socket
import subprocess
import sys
from pathlib import Path

import kvrproto as p
from doctor_faults import Faults, POOLS as FAULTS_POOLS
from doctor_more import More, POOLS as MORE_POOLS
from doctor_rig import Failed, Rig, run
from protocol_router import ADDRESSES, Router

POOL, QUIET, B = 3, 4, 16
POOLS = f'''[pool llama]
id = {POOL}
block_size = {B}
seed = 1
max_ranks = 4
max_jobs = 64
max_blocks = 65536
max_requests = 256
max_sessions = 0
decision_sample = 1
[pool quiet]
id = {QUIET}
block_size = {B}
seed = 1
max_ranks = 4
max_jobs = 64
max_blocks = 65536
max_requests = 256
max_sessions = 0
[pool empty]
id = 5
block_size = {B}
max_ranks = 4
max_jobs = 64
max_blocks = 65536
max_requests = 256
max_sessions = 0
'''
IP = ADDRESSES[0]


class Doctor(Rig, Faults, More):
    pool = POOL

    def __init__(self, router):
        super().__init__(router, sys.argv[2], IP)
        self.agent = p.Agent(IP, 100, 'llama', B)
        self.quiet = p.Agent(IP, 101, 'quiet', B)
        self.all += [self.agent, self.quiet]
        self.cached = 2 * B
        self.agent.answer = lambda job: self.agent.item(job, b'x', tokens=1, fin=True, cached=self.cached)
        self.quiet.answer = lambda job: self.quiet.item(job, b'x', tokens=1, fin=True)  # without a report of cached tokens

    # ---- the faults ----

    def gap(self):
        """The first of two frames of events is lost; the agent repairs the gap on request."""
        rank = self.agent.ranks[0]
        for tokens in (range(50000, 50016), range(60000, 60016)):
            self.agent.event(0, p.STORED, hashes=p.sequence_hashes(tokens, B))
        number, event = rank.ring[-1]
        self.agent.send('KV_EVENTS', 4, p.EVENTS_BODY.pack(number, 0, 0, 1, 0, 0) + event)
        self.until('the gap is repaired', lambda: rank.acked == rank.next)

    def orphan(self):
        self.agent.event(0, p.STORED, hashes=p.sequence_hashes(range(70000, 70000 + 3 * B), B)[2:], parent=0x1234567)
        self.agent.flush(0)
        rank = self.agent.ranks[0]
        self.until('the orphan is taken', lambda: rank.acked == rank.next)

    def wrong_block_size(self):
        wrong = p.Agent(IP, 102, 'llama', 2 * B)
        self.all.append(wrong)
        wrong.hello()
        self.until('it is refused', lambda: wrong.refused is not None)
        self.all.remove(wrong)
        wrong.close()

    def twin(self, worker):
        """Another agent with the same number."""
        twin = p.Agent(IP, worker, 'llama', B)
        self.all.append(twin)
        twin.hello()
        self.until('it is refused', self.asked('/kvroute/refused', lambda a: a['total'] == 1))
        self.all.remove(twin)
        twin.close()

    def engine_fails(self):
        answer = self.agent.answer
        self.agent.answer = lambda job: self.agent.item(job, b'no', fin=True, flags=p.ITEM_ERROR, status=502)
        self.ask(8)
        self.agent.answer = answer

    def drained(self, agent):
        """A worker that drains before it leaves is not lost."""
        self.router.telemetry(f'/kvroute/drain,{agent.worker}')
        self.until('it is drained', lambda: agent.state == 'DRAINED')
        self.part(agent)

    def garbage(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            before = self.router.telemetry('/kvroute/ingress')['bad_magic']
            for _ in range(8):
                s.sendto(b'GET / HTTP/1.1\r\n\r\n' + bytes(100), (IP, p.PORT))
            self.until('garbage is counted', self.asked('/kvroute/ingress', lambda a: a['bad_magic'] >= before + 8))

    def stop_heartbeats(self):
        """An agent without heartbeats for longer than suspect_ms, until after the second sample."""
        self.all.remove(self.quiet)
        self.until('it is suspect', self.asked('/kvroute/workers', lambda a: a['workers']['101']['state'] == 'suspect'))

    def route_to_empty_pool(self, pool=5):
        request = self.client.route(pool, 4 * B, p.sequence_hashes(range(4 * B), B))
        self.until('it is refused', lambda: request.ended)

    def empty(self):
        """A pool without an agent, as a new user has: the finding names the command to run, and the exit status is 1."""
        self.until('it is up for five seconds', self.asked('/kvroute/info', lambda a: a['uptime_ms'] >= 5000))
        self.doctor([])
        if 'empty' not in self.vacant:
            raise Failed(f'pool empty has no worker, but these have none: {self.vacant}')
        run = subprocess.run([self.ctl, 'doctor', '--seconds', '0.1'], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        line = 'empty-pool: pool empty has no worker: no kvroute-agent --pool empty is attached. Start kvroute-agent --engine '
        if run.returncode != 1 or line not in run.stdout or 'pool llama has' in run.stdout:
            raise Failed(f'status {run.returncode}: {run.stdout}{run.stderr}')

    def every_rule(self):
        """Each rule has a test in one of the files doctor_*.py."""
        here = Path(__file__).resolve().parent
        rules = re.findall(r'^\t{"([a-z-]+)", "', (here / '../../app/ctl/rules.c').read_text(), re.M)
        tests = ''.join(f.read_text() for f in here.glob('doctor_*.py'))
        wanted = {name for names in re.findall(r'doctor\(\[([^]]+)\]', tests) for name in re.findall(r"'([a-z-]+)'", names)}
        if wanted != set(rules) or len(rules) < 45:
            raise Failed(f'{wanted ^ set(rules)} of {len(rules)} rules: no test, or no rule')

    def run(self):
        self.every_rule()
        self.agent.hello()
        self.quiet.hello()
        self.client.connect()
        self.until('agents serve', lambda: self.agent.state == self.quiet.state == 'SERVING' and self.client.limits)
        self.until('lcores know them', lambda: not self.ask(1)[0].rejected)
        self.new_agent(107, 'prefill', role=1)  # a pool without workers is inactive
        self.agent.stored(0, p.sequence_hashes(range(4 * B), B))
        self.until('events are taken', lambda: self.agent.ranks[0].acked == self.agent.ranks[0].next)
        self.doctor([], lambda: self.ask(3))
        self.check_cause(self.doctor(['kv-event-gap'], self.gap), '1 frame of KV events arrived after a gap (rank 100/0)')
        self.check_cause(self.doctor(['orphan-blocks'], self.orphan), 'pool llama: 1 block was stored with an unknown parent')
        found = self.doctor(['rejected-worker'], self.wrong_block_size)
        if 'worker 102 at' not in found[0]['cause'] or 'block_size: got 32, pool llama has 16' not in found[0]['cause']:
            raise Failed(f'the block size is not in the finding: {found}')
        self.agent_comes_well()
        self.doctor(['frame-drops'], self.garbage)
        self.check_cause(self.doctor(['failing-requests'], self.engine_fails), 'pool llama: 8 of 8 requests failed at rank 100/0')
        leaver = self.new_agent(103, 'llama')
        self.check_cause(self.doctor(['lost-worker'], lambda: self.part(leaver)), '1 worker was lost', 'still missing: worker 103')
        leaver = self.new_agent(103, 'llama')
        self.doctor([], lambda: self.drained(leaver))
        self.doctor(['requests-without-hashes'], lambda: self.ask(33, blocks=0))
        self.ask(32, first=10 ** 6)  # the short prompts are no longer among the newest
        self.doctor(['empty-pool'], self.route_to_empty_pool)
        self.router.telemetry(f'/kvroute/drain,{self.quiet.worker}')
        self.check_cause(self.doctor(['empty-pool'], lambda: self.route_to_empty_pool(QUIET)), 'pool quiet: 1 request arrived, but no worker serves the pool; draining or drained: 1')
        self.router.telemetry(f'/kvroute/resume,{self.quiet.worker}')
        self.empty()
        self.ask(2, pool=QUIET)
        found = self.doctor(['no-kv-events'])
        if 'pool quiet: 2 requests have ended' not in found[0]['cause']:
            raise Failed(f'{found}')
        self.quiet.stored(0, p.sequence_hashes(range(4 * B), B))
        self.until('events are taken', lambda: self.quiet.ranks[0].acked == self.quiet.ranks[0].next)
        self.doctor([])
        self.ask(1, pool=QUIET)
        self.check_cause(self.doctor(['no-cached-token-reports'], lambda: self.ask(9, pool=QUIET)), 'cached tokens were predicted, but no engine has reported')
        self.cached = 0
        self.doctor(['overprediction'], lambda: self.predicted(20))
        self.cached = 4 * B
        self.doctor(['suspect-worker'], self.stop_heartbeats)
        self.all.append(self.quiet)
        self.until('it is back', lambda: self.quiet.state == 'SERVING')
        self.doctor([])
        self.engines()
        self.caches()
        self.requests()
        self.queue()
        self.host()
        self.more()
        self.doctor([])

    def predicted(self, n, found=1):
        """Requests for the prompt that the agent has stored."""
        requests = [self.client.route(POOL, 4 * B + 5, p.sequence_hashes(range(4 * B), B)) for _ in range(n)]
        self.cached = found
        self.until('requests end', lambda: all(r.ended for r in requests))

    def agent_comes_well(self):
        """A rejection is forgotten once the worker is accepted."""
        well = p.Agent(IP, 102, 'llama', B)
        self.all.append(well)
        well.hello()
        self.until('it is welcome', lambda: well.state == 'SERVING')
        self.check_cause(self.doctor(['rejected-worker'], lambda: self.twin(102)), 'this worker is registered from another address', 'this number is also used by 10.9.0.2:')
        well.hello()
        self.until('that is forgotten', self.asked('/kvroute/refused', lambda a: a['total'] == 0))
        well.goodbye()
        self.until('it goes', lambda: well.gone)
        self.all.remove(well)
        well.close()
        self.doctor([])


if __name__ == '__main__':
    run(Router(sys.argv[1], POOLS + FAULTS_POOLS + MORE_POOLS, 'suspect_ms = 4000\ndead_ms = 60000\nheartbeat_ms = 100\nsource_share = 0\nclient_timeout_ms = 5000', memory_mb=768), Doctor)
