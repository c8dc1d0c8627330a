#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Random scenarios: what same_run.py and random_run.py play.

Aggregated pools and pairs in every routing mode, sessions that are opened, closed, released, or
whose worker never answers, classes, queues, cancels, overrides, KV events, workers that drain,
leave and come back.
"""
MODES = ['kv', 'round-robin', 'random', 'power-of-two', 'least-loaded', 'device-aware-weighted', 'direct', 'ttft']


def pools(rng, k):
    """Pool lines: one aggregated pool, one pair; config of a pair's halves is drawn apart."""
    for name, role in (('a', 'aggregated'), ('d', 'decode'), ('p', 'prefill')):
        config = {'max_sessions': rng.choice([0, 2, 50])}
        if rng.random() < 0.5:
            config['router_queue_threshold'] = rng.choice([0, 0.1, 1])
        if rng.random() < 0.4:
            config['session_affinity_ttl_secs'] = rng.choice([1, 30])
        if rng.random() < 0.4:
            config['router_mode'] = rng.choice(MODES)
        if name == 'p' and rng.random() < 0.2:
            config['router_mode'] = 'ttft'
        if config.get('router_mode') == 'ttft' and rng.random() < 0.6:
            config.update(ttft_late_binding=True, ttft_late_tokens=rng.choice([1, 20]), ttft_late_ms=rng.choice([500, 10000]))
        if rng.random() < 0.3:
            config['router_policy_config'] = {'policy_classes': [
                {'name': 'x', 'request_queue_limit_per_worker': 1, 'prefill_busy_threshold': rng.choice([0, 20]),
                 'queue_policy': rng.choice(['fcfs', 'lcfs', 'wspt'])},
                {'name': 'y', 'quantum': rng.choice([1, 100]), 'prefill_busy_threshold_frac': 0.5,
                 'raw_isl_token_queue_limit_per_worker': rng.choice([0, 30])}]}
        if rng.random() < 0.4:
            config['router_predicted_ttl_secs'] = 20
        if rng.random() < 0.2:
            config['use_kv_events'] = False
        if rng.random() < 0.3:
            config['router_track_output_blocks'] = True
        if rng.random() < 0.3:
            config['router_temperature'] = 0.5
        if rng.random() < 0.2:
            config['active_prefill_tokens_threshold'] = 100
        if rng.random() < 0.2:
            config['active_decode_blocks_threshold'] = 0.4
        if rng.random() < 0.2:
            config['overlap_score_credit_decay'] = 0.5
        if name == 'd':
            config['enforce_disagg'] = rng.random() < 0.5
            if rng.random() < 0.5:
                config['conditional_disagg_policy'] = rng.choice(['isl_bounding', 'prefill_load', 'isl_or_load'])
                config['conditional_disagg_eff_isl_threshold'] = 20
                config['conditional_disagg_prefill_busy_threshold'] = 0.3
                config['conditional_disagg_decode_busy_threshold'] = 0.9
        yield {'op': 'pool', 'name': f'{name}{k}', 'role': role, 'block_size': 4, 'config': config,
               'seed': rng.randrange(1, 1 << 62), 'model': f'{"a" if name == "a" else "pair"}{k}'}


class Scenario:
    """One list of input lines on the pools of triple `k`, and what is known while it is made.

    With `becomes` a worker may become another one in the same incarnation.
    """

    def __init__(self, rng, number, k, head, becomes=False):
        self.becomes = becomes
        self.direct = {x['name'] for x in head if x['config'].get('router_mode') == 'direct'}
        self.rng = rng
        self.number = number
        at = 100 * (number + 1)
        self.members = {f'a{k}': [at + 1, at + 2, at + 3], f'd{k}': [at + 11, at + 12],
                        f'p{k}': [at + 21, at + 22]}
        self.k = k
        self.lines = []
        self.here = {}
        self.ids = []
        self.opens = []

    def say(self, **line):
        self.lines.append(line)

    def worker(self):
        pool = self.rng.choice(list(self.members))
        worker = self.rng.choice(self.members[pool])
        what = self.rng.random()
        if worker not in self.here or (self.becomes and what < 0.1):
            self.comes(worker, pool)
        elif what < 0.2:  # a new incarnation
            self.say(op='worker_gone', worker=worker)
            self.comes(worker, pool)
        elif what < 0.3:
            self.say(**self.here[worker])
        elif what < 0.5:
            self.say(op='worker_gone', worker=worker)
            del self.here[worker]
        else:
            self.say(op=self.rng.choice(['drain', 'resume']), worker=worker)

    def comes(self, worker, pool):
        line = {'op': 'worker', 'worker': worker, 'pool': pool, 'max_num_batched_tokens': 64,
                'total_kv_blocks': 40, 'dp_size': self.rng.choice([1, 1, 2, 3])}
        if self.rng.random() < 0.1:
            line['dp_start'] = 2
        if self.rng.random() < 0.5:
            line['bootstrap'] = {'host': 'h', 'port': 1}
        if self.rng.random() < 0.3:
            line['topology'] = {'zone': self.rng.choice('uv')}
            line['kv_transfer'] = {'domain': 'zone', 'enforcement':
                                   self.rng.choice(['required', 'preferred'])}
        elif self.rng.random() < 0.1:
            line['topology'] = {'device': 'cpu'}
        if self.rng.random() < 0.2:
            line['taints'] = ['t']
        self.say(**line)
        self.here[worker] = line

    def prompt(self):
        """Four families of prompts that share beginnings."""
        n = self.rng.choice([0, 1, 3, 6, 8])
        family = self.rng.randrange(4)
        return [1000 * family + i for i in range(n)]

    def burst(self):
        for _ in range(self.rng.choice([1, 1, 2, 8])):
            self.events()

    def events(self):
        if not self.here:
            return
        worker = self.rng.choice(list(self.here))
        rank = self.here[worker].get('dp_start', 0) + self.rng.choice([0, self.here[worker]['dp_size'] - 1])
        what = self.rng.random()
        if what < 0.7:
            self.say(op='store', worker=worker, dp_rank=rank, sequence_hashes=self.prompt(),
                     tier=self.rng.choice(['device', 'device', 'host', 'disk']))
        elif what < 0.85:
            self.say(op='remove', worker=worker, dp_rank=rank, sequence_hashes=self.prompt(),
                     **{'from': self.rng.choice([0, 2])})
        elif what < 0.9:
            self.say(op='clear', worker=worker, dp_rank=rank)
        else:
            self.say(op='load', worker=worker, dp_rank=rank, kv_used_blocks=self.rng.choice([0, 20, 40]))

    def routing(self, pool):
        routing = {}
        if self.rng.random() < 0.4:
            control = {'session_id': f'{self.rng.choice("stu")}{self.number}'}
            if self.rng.random() < 0.6:
                control['action'] = self.rng.choice(['open', 'close'])
                control['timeout'] = self.rng.choice([1, 60])
            routing['session_control'] = control
        if self.rng.random() < (0.8 if pool in self.direct else 0.2):
            routing[self.rng.choice(['backend_instance_id', 'decode_worker_id'])] = \
                self.rng.choice(self.members[pool])
        if self.rng.random() < 0.1:
            routing['prefill_worker_id'] = self.rng.choice(self.members[f'p{self.k}'])
        if self.rng.random() < 0.2:
            routing['dp_rank'] = self.rng.choice([0, 0, 1, 2])
        if self.rng.random() < 0.05:
            routing['prefill_dp_rank'] = self.rng.choice([0, 1])
        if self.rng.random() < 0.1:
            routing['expected_output_tokens'] = self.rng.choice([0, 10, 100])
        if self.rng.random() < 0.1:
            routing['lora_name'] = 'l'
        if self.rng.random() < 0.2:
            routing['policy_class'] = self.rng.choice('xyz')
        if self.rng.random() < 0.1:
            routing['allowed_worker_ids'] = self.rng.sample(self.members[pool], 1)
        if self.rng.random() < 0.1:
            routing['failed_at'] = [[w, self.rng.choice([0, 0, 1])] for w in self.rng.sample(self.members[pool], 1)]
        if self.rng.random() < 0.1:
            routing['priority_jump'] = self.rng.choice([0.5, 3])
        if self.rng.random() < 0.1:
            routing['strict_priority'] = 1
        if self.rng.random() < 0.1:
            routing['routing_constraints'] = {'preferred_taints': {'t': self.rng.choice([0.5, -1])}}
        elif self.rng.random() < 0.05:
            routing['routing_constraints'] = {'required_taints': ['t']}
        return routing

    def route(self):
        pool = self.rng.choice('add') + str(self.k)
        line = {'op': 'route', 'id': f'r{self.number}.{len(self.ids)}', 'pool': pool,
                'routing': self.routing(pool)}
        if self.rng.random() < 0.8:
            line['sequence_hashes'] = self.prompt()
            if self.rng.random() < 0.03:  # more than the blocks of a run
                line['sequence_hashes'] = list(range(1000, 1070))
            line['isl'] = 4 * len(line['sequence_hashes']) + self.rng.choice([1, 2, 3])
            if line['sequence_hashes'] and self.rng.random() < 0.1:
                line['exec_isl'] = self.rng.choice([1, 30])
        else:
            line['tokens'] = [self.rng.randrange(3) for _ in range(self.rng.choice([1, 4, 13]))]
        what = self.rng.random()
        if what < 0.1:
            line['annotations'] = ['query_instance_id:']
        elif what < 0.15:
            line['probe'] = True
        elif what < 0.2 and pool[0] == 'a':
            line['book'] = True
        if self.rng.random() < 0.1:
            line['override'] = self.rng.choice([
                {'overlap_score_credit': 0}, {'router_temperature': 1}, {'router_temperature': -1},
                {'assume_kv_reuse': False}, {'track_prefill_tokens': False}, {'shared_cache_multiplier': 1}])
        if self.rng.random() < 0.05:
            line['shared_hits'] = [[0, 2]]
        if self.ids and self.rng.random() < 0.05:
            line['id'] = self.rng.choice(self.ids[-4:])
        self.say(**line)
        self.ids.append(line['id'])
        if line['routing'].get('session_control', {}).get('action') == 'open':
            self.opens.append(line['id'])
            if self.rng.random() < 0.5:
                self.ack()
        if self.rng.random() < 0.1:  # in the moment in which it waits, is held, or has been sent
            self.say(op=self.rng.choice(['cancel', 'prefill_done']), id=line['id'])

    def ack(self):
        """The oldest open is answered; a line of none that waits is refused."""
        if self.opens:
            self.say(op='session_ack', id=self.opens.pop(0),
                     status=self.rng.choice(['ok', 'ok', 'ok', 'full']))

    def request(self):
        if not self.ids:
            return
        name = self.rng.choice(self.ids[-12:])
        what = self.rng.choice(['prefill_done', 'output', 'output', 'finish', 'cancel', 'fail'])
        line = {'op': what, 'id': name}
        if what == 'output':
            line['tokens'] = self.rng.choice([0, 1, 9])
        if what == 'fail' and self.rng.random() < 0.7:
            line['status'] = self.rng.choice(['failed', 'failed', 'refused'])
        self.say(**line)

    def release(self):
        """Its client ends a session, bound or not; prefill pools have some by affinity."""
        self.say(op='session_release', pool=self.rng.choice(list(self.members)),
                 session_id=f'{self.rng.choice("stu")}{self.number}')

    def advance(self, ms):
        """Of the opens that wait now some are never answered: after 5 s they have failed."""
        if self.rng.random() < 0.5:
            while self.opens:
                self.ack()
        self.say(op='advance', ms=ms)

    def ask(self):
        pool = self.rng.choice(list(self.members))
        self.say(op=self.rng.choice(['loads', 'scores']), pool=pool, sequence_hashes=self.prompt())

    def make(self, leave=True):
        """The lines; at the end nothing runs or waits, and with `leave` no worker is left."""
        for _ in range(6):
            self.worker()
        for _ in range(60):
            kind = self.rng.random()
            if kind < 0.08:
                self.worker()
            elif kind < 0.16:
                self.burst()
            elif kind < 0.5:
                self.route()
            elif kind < 0.88:
                self.request()
            elif kind < 0.91:
                self.ack()
            elif kind < 0.93:
                self.release()
            elif kind < 0.96:
                self.ask()
            else:
                self.advance(self.rng.choice([1, 700, 4000, 31000, 400000]))
        for name in dict.fromkeys(self.ids):
            self.say(op='cancel', id=name)
        self.say(op='advance', ms=400000)
        for worker in self.here if leave else []:
            self.say(op='worker_gone', worker=worker)
        for pool in self.members:
            self.say(op='loads', pool=pool, sequence_hashes=[1])
        return self.lines
