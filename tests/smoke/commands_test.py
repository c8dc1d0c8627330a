#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""COMMANDS.md against a router with load, sessions, pairs and adapters: members of answers, and their documentation.

protocol_test.sh starts it: commands_test.py KVROUTE KVROUTE_CTL.
"""
import re
import sys
import tempfile
from pathlib import Path

import kvrproto as p
from doctor_rig import B, Failed, Rig, run
from load_test import telemetry
from protocol_router import ADDRESSES, Router

TEXT = (Path(__file__).resolve().parent / '../../app/router/telemetry/COMMANDS.md').read_text()
LLAMA, PREFILL, DECODE, SOON = 3, 4, 5, 6
COMMON = f'block_size = {B}\nmax_ranks = 64\nmax_jobs = 64\nmax_blocks = 4096\nmax_requests = 256\nmax_sessions = 16\ndecision_sample = 1\n'
POOLS = f'''[pool llama]
id = {LLAMA}
{COMMON}[pool prefill]
id = {PREFILL}
model = pair
role = prefill
{COMMON}[pool decode]
id = {DECODE}
model = pair
role = decode
{COMMON}[pool soon]
id = {SOON}
router_mode = ttft
{COMMON}'''
NAMES = {'llama', 'prefill', 'decode', 'soon', 'default', 'p0', 'lcore0'}  # names of this router, as keys
REASONS = r'(PORT|ingress|reject)_\w+'  # of /kvroute/drops: counters of their tables that are not 0
# Missing in this router: engines that report blocks or fail requests, a device with our XDP program, and reasons that are examples.
SELDOM = {'/kvroute/loads': {'kv_used_blocks', 'avoided'}, '/kvroute/drops': {'PORT_rx_other_mac', 'PORT_xdp_denied', 'ingress_bad_magic', 'reject_busy'},
          '/kvroute/xdp': {'PORT', 'redirect'}, '/kvroute/xdp/redirect': {'redirect'}}


def of_router(key):
    """A key with the names of this router as the document writes them; '' if it is only a name or number."""
    if key in ('p0', 'lcore0'):
        return {'p0': 'PORT', 'lcore0': 'LCORE'}[key]
    if key in NAMES or re.fullmatch(r'[0-9a-fx_/]*[0-9][0-9a-fx_/]*', key) or '/' in key:
        return ''
    key = re.sub(r'^(ring_\w+)_\d+$', r'\1_N', key)
    key = re.sub(r'(^|_)p0(?=_|$)', r'\1PORT', key)
    key = re.sub(r'(^|_)lcore0(?=_|$)', r'\1LCORE', key)
    return re.sub(r'_(llama|prefill|decode|soon)$', '_POOL', key)


def keys_of(value):
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield of_router(key)
        yield from keys_of(inner)


def sections():
    """By command: keys in its examples and tables; all names; tables of counters."""
    out = {}
    for part in re.split(r'^### ', TEXT, flags=re.M)[1:]:
        head, _, body = re.split(r'^## ', part, flags=re.M)[0].partition('\n')
        examples = '\n'.join(line for line in body.splitlines() if line.startswith('    '))
        must = set(re.findall(r'"([A-Za-z][A-Za-z0-9_]*)":', examples))
        for row in re.findall(r'^\| (`.*?) \|', body, re.M):
            must |= set(re.findall(r'`(\w+)`', row))
        must = {k for k in map(of_router, must) if k}
        named = must | {k for k in map(of_router, re.findall(r'`"?(\w+)"?`', body)) if k} | ({'next'} if 'FROM' in head else set())
        for command in re.findall(r'`(/kvroute/[a-z/]+)', head):
            out[command] = (must, named, re.findall(r'COUNTERS\((\w+)\)', body), re.findall(r'`(/kvroute/[a-z]+)`', body))
    return out


class Commands(Rig):
    pool = LLAMA

    def __init__(self, router):
        super().__init__(router, sys.argv[2], ADDRESSES[0])

    def ask_router(self, command):
        return telemetry(self.router.prefix, command)

    def load(self):
        """Requests that run, wait, were rejected; a session, a pair, an adapter; more workers than a page."""
        self.client.connect()
        agent = self.new_agent(100, 'llama')
        agent.event_form = 1
        for worker, pool, role in ((101, 'prefill', 1), (102, 'decode', 2), *((w, 'soon', 0) for w in range(200, 235))):
            self.new_agent(worker, pool, role)
        wrong = p.Agent(self.ip, 104, 'llama', 2 * B)
        self.all.append(wrong)
        wrong.hello()
        self.until('it is refused', lambda: wrong.refused is not None)
        self.until('limits are known', lambda: self.client.limits)
        self.until('lcores know them', lambda: not self.ask(1)[0].rejected)
        agent.stored(0, p.sequence_hashes(range(4 * B), B))
        self.reported('llama', '100/0', 'pairs', 0)
        self.ask(3)
        self.ask(3, pool=SOON)
        self.client.route(LLAMA, B, hints=p.route_hints(session=('mine', p.OPEN, 60)))
        self.held = self.hold(agent, 2, LLAMA, hints=p.route_hints(lora='tuned'))
        self.held += [self.client.route(DECODE, 4 * B, p.sequence_hashes(range(4 * B), B))]
        self.until('the pair runs', lambda: self.ask_router('/kvroute/oldest,prefill')['live'] > 0 or self.held[-1].ended)

    def questions(self):
        """Command and its parameters."""
        newest = next(iter(self.ask_router('/kvroute/decisions,soon')['decisions']))
        one = self.ask_router('/kvroute/decisions,llama')['decisions']
        for command in sections():
            yield command, ['', ',llama', ',prefill', ',decode', ',soon', ',200', ',100']
        yield '/kvroute/decisions', [f',soon,{newest}'] + [f',llama,{n}' for n in one]
        yield '/kvroute/explain', [f",{d['id']}" for d in one.values()]
        yield '/kvroute/set', [',router_temperature=0.5']
        yield '/kvroute/drain', [',201,30']
        yield '/kvroute/resume', [',201']
        yield '/kvroute/snapshot', ['']
        yield '/kvroute/sample', [',llama,1']
        yield '/kvroute/session/release', [',llama,mine']
        yield '/kvroute/counters', [',pool,llama']

    def run(self):
        self.load()
        self.ask_router('/kvroute/snapshot,now')
        self.until('it is written', self.asked('/kvroute/snapshot', lambda a: a['written'] > 0))
        known = {c for c in self.ask_router('/') if c.startswith('/kvroute/')}
        told, answers = sections(), {}
        if known != set(told):
            raise Failed(f'{known ^ set(told)}: not in the document, or not in the router')
        for command, params in self.questions():
            for more in params:
                answer = self.ask_router(command + more)
                if isinstance(answer, dict) and 'error' not in answer:
                    answers.setdefault(command, set()).update(k for k in keys_of(answer) if k)
        whose = self.ask_router('/kvroute/counters')
        wrong = []
        for command, (must, named, tables, others) in sorted(told.items()):
            has = answers.get(command, set())
            for table in tables:
                owner = next(iter(whose[table]), None)
                if owner is not None:
                    named = named | set(self.ask_router(f'/kvroute/counters,{table}' + (f',{owner}' if owner else '')))
            for other in others:
                named = named | told[other][1] if other in told else named
            if command == '/kvroute/drops':
                has = {k for k in has if not re.fullmatch(REASONS, k)}
            if command in ('/kvroute/counters', '/kvroute/config', '/kvroute/metrics', '/kvroute/set'):
                has = has & must  # tables, keys of the configuration
            wrong += [f'{command}: {k} is not documented' for k in sorted(has - named)]
            wrong += [f'{command}: {k} does not come' for k in sorted(must - has - SELDOM.get(command, set()))]
        print('\n'.join(wrong))
        if wrong:
            raise Failed(f'{len(wrong)} differences between answers and COMMANDS.md')
        print(f'{len(told)} commands')


if __name__ == '__main__':
    with tempfile.TemporaryDirectory(prefix='kvr-state.') as state:
        run(Router(sys.argv[1], POOLS, f'heartbeat_ms = 100\nsuspect_ms = 20000\ndead_ms = 60000\nstate_dir = {state}'), Commands)
