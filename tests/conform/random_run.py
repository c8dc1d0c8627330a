#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Random scenarios through kvroute-explain: random_run.py PROGRAM SEED...

Each seed is one run of SCENARIOS scenarios, one after the other in pools of their own.

Aggregated pools and pairs, sessions, classes, queues, cancels, workers that drain, leave and come
back. Whatever happens: no line is refused, the same input gives the same output, a request that
was routed or refused is not answered again unless it has started over, one that waits is admitted
or refused at most once, sessions that are closed were bound, and when all requests have ended
nothing is booked or waits.
"""
import json
import random
import subprocess
import sys

SCENARIOS = 7


class Scenario:
    """One list of input lines, and what is known while it is made."""

    def __init__(self, rng, number):
        self.rng = rng
        self.number = number
        at = 100 * number
        self.members = {f'a{number}': [at + 1, at + 2, at + 3], f'd{number}': [at + 11, at + 12],
                        f'p{number}': [at + 21, at + 22]}
        self.lines = []
        self.here = {}
        self.ids = []
        self.next_id = 0

    def say(self, **line):
        self.lines.append(line)

    def pools(self):
        """The pools; config of a pair's halves is drawn apart."""
        for name, role in (('a', 'aggregated'), ('d', 'decode'), ('p', 'prefill')):
            config = {'max_sessions': self.rng.choice([0, 2, 50])}
            if self.rng.random() < 0.5:
                config['router_queue_threshold'] = self.rng.choice([0, 0.1, 1])
            if self.rng.random() < 0.4:
                config['session_affinity_ttl_secs'] = self.rng.choice([1, 30])
            if self.rng.random() < 0.3:
                config['router_mode'] = self.rng.choice(
                    ['round-robin', 'random', 'least-loaded', 'ttft'])
            if self.rng.random() < 0.3:
                config['router_policy_config'] = {'policy_classes': [
                    {'name': 'x', 'request_queue_limit_per_worker': 2}, {'name': 'y'}]}
            if name == 'd':
                config['enforce_disagg'] = self.rng.random() < 0.5
            self.say(op='pool', name=f'{name}{self.number}', role=role,
                     model=f'{"a" if name == "a" else "pair"}{self.number}',
                     block_size=4, config=config)

    def worker(self):
        pool = self.rng.choice(list(self.members))
        worker = self.rng.choice(self.members[pool])
        what = self.rng.random()
        if worker not in self.here or what < 0.3:
            line = {'op': 'worker', 'worker': worker, 'pool': pool,
                    'max_num_batched_tokens': 64, 'dp_size': self.rng.choice([1, 1, 2])}
            if self.rng.random() < 0.5:
                line['bootstrap'] = {'host': 'h', 'port': 1}
            if self.rng.random() < 0.3:
                line['topology'] = {'zone': self.rng.choice('uv')}
                line['kv_transfer'] = {'domain': 'zone', 'enforcement':
                                       self.rng.choice(['required', 'preferred'])}
            self.say(**line)
            self.here[worker] = pool
        elif what < 0.6:
            self.say(op='worker_gone', worker=worker)
            del self.here[worker]
        else:
            self.say(op=self.rng.choice(['drain', 'resume']), worker=worker)

    def route(self):
        pool = self.rng.choice('add') + str(self.number)
        routing = {}
        if self.rng.random() < 0.4:
            routing['session_control'] = {'session_id': f'{self.rng.choice("stu")}{self.number}'}
            if self.rng.random() < 0.6:
                routing['session_control']['action'] = self.rng.choice(['open', 'close'])
                routing['session_control']['timeout'] = self.rng.choice([1, 60])
        if self.rng.random() < 0.2:
            routing['backend_instance_id'] = self.rng.choice(self.members[pool])
        if self.rng.random() < 0.2:
            routing['dp_rank'] = self.rng.choice([0, 1])
        if self.rng.random() < 0.2:
            routing['policy_class'] = self.rng.choice('xyz')
        self.next_id += 1
        line = {'op': 'route', 'id': f'r{self.number}.{self.next_id}', 'pool': pool, 'routing': routing,
                'sequence_hashes': [self.rng.randrange(9) for _ in range(8)], 'isl': 32}
        if self.rng.random() < 0.1:
            line['annotations'] = ['query_instance_id:']
        self.say(**line)
        self.ids.append(line['id'])

    def request(self):
        if not self.ids:
            return
        name = self.rng.choice(self.ids[-12:])
        what = self.rng.choice(['prefill_done', 'output', 'output', 'finish', 'cancel', 'fail'])
        line = {'op': what, 'id': name}
        if what == 'output':
            line['tokens'] = self.rng.choice([0, 1, 9])
        self.say(**line)

    def make(self):
        self.pools()
        for _ in range(8):
            self.worker()
        for _ in range(150):
            kind = self.rng.random()
            if kind < 0.1:
                self.worker()
            elif kind < 0.5:
                self.route()
            elif kind < 0.95:
                self.request()
            else:
                self.say(op='advance', ms=self.rng.choice([1, 700, 31000, 400000]))
        for name in self.ids:
            self.say(op='cancel', id=name)
        self.say(op='advance', ms=400000)
        for pool in self.members:
            self.say(op='loads', pool=pool, sequence_hashes=[])
        return self.lines


def play(program, text):
    run = subprocess.run([program, '-'], input=text, text=True, capture_output=True, timeout=60,
                         check=False)
    return run.returncode, run.stdout, run.stderr


def faults(code, out):
    """What is wrong with an output, as text; [] when nothing is."""
    bad = [] if code == 0 else [f'exit status {code}']
    answered, waits, prefilled, bound = {}, set(), {}, set()
    lines = [json.loads(x) for x in out.splitlines()]
    for x in lines:
        name = x.get('id')
        if x.get('error') == 'BadOp':
            bad.append(f'{x}')
            continue
        if x['op'] in ('route', 'admitted'):
            if x['op'] == 'admitted' and name not in waits:
                bad.append(f'{name} is admitted and did not wait')
            if x['op'] == 'route' and name in waits:
                bad.append(f'{name} waits and is routed')
            waits.discard(name)
            if x['result'] == 'queued':
                waits.add(name)
            elif name in answered and prefilled.get(name, 0) < 2:
                bad.append(f'{name} is answered twice')
            else:
                answered[name] = x['result']
        elif x['op'] == 'prefill':
            prefilled[name] = prefilled.get(name, 0) + 1
        elif x['op'] == 'session':
            key = (x['session_id'], x['worker'])
            if x['event'] == 'bound':
                bound.add(key)
            elif x['event'] in ('unbound', 'close_sent', 'expired') and key not in bound:
                bad.append(f'{x["event"]} of {key}, which was not bound')
    for x in lines:
        if x['op'] != 'loads' or 'error' in x:
            continue
        if x['pending_count'] != 0:
            bad.append(f'something waits at the end: {x}')
        for rank in x.get('loads', []):
            if rank['active_requests'] != 0:
                bad.append(f'something is booked at the end: {rank}')
    return bad


def main():
    program = sys.argv[1]
    for seed in sys.argv[2:]:
        rng = random.Random(int(seed))
        lines = [x for k in range(SCENARIOS) for x in Scenario(rng, k).make()]
        text = '\n'.join(json.dumps(x) for x in lines) + '\n'
        code, out, err = play(program, text)
        bad = faults(code, out) if 'ERROR' not in err else [err]
        if not bad and play(program, text)[1] != out:
            bad = ['the same input, another output']
        if bad:
            with open(f'random-{seed}.txt', 'w', encoding='utf-8') as f:
                f.write(text)
            sys.exit(f'seed {seed} (random-{seed}.txt): {bad[:5]}')
    print(f'{len(sys.argv[2:]) * SCENARIOS} scenarios')


main()
