#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Random scenarios through both executors: same_run.py EXPLAIN FRAMES SCENARIOS [SEED].

kvroute-explain and the stages of the router (conform-frames) must write the same lines: decisions
in their order, `session`, `expired` and `state` anywhere among the lines of their input line. Left
out are texts for people, names drawn for transfers, and whether NoEndpoints is worth a retry: a
router says so while a worker is expected.

What the generator does not make, as the two are not the same there: an open that its worker leaves
without an answer for 5 s; a worker that becomes another one without a new life. Workers with odd ids
leave by silence in frames, the others say GOODBYE. At the end stands how often each operation and
each answer was met; of those in KINDS each must be.

Without SEED one is drawn and printed. A batch of scenarios runs in one process, on the same few
pools, one after the other. What differs is written to same-SEED.txt, made as short as a minute
allows.
"""
import collections
import json
import random
import subprocess
import sys
import threading
import time

POOLS = 5  # triples of pools of one process: a, d and p of each
BATCH = 125
SECONDS = 25  # to make what differs shorter
MARK = '{"op":"hash","tokens":[271828182],"block_size":1,"lora_name":"between the lines"}'
FLOATING = ('session', 'expired', 'state')
MODES = ['kv', 'round-robin', 'random', 'power-of-two', 'least-loaded', 'device-aware-weighted', 'direct', 'ttft']
ENOUGH = 500  # scenarios in which every kind must be met
KINDS = [*('> ' + op for op in (
    'advance', 'cancel', 'clear', 'drain', 'fail', 'finish', 'load', 'loads', 'output', 'pool', 'prefill_done',
    'remove', 'resume', 'route', 'scores', 'session_ack', 'store', 'worker', 'worker_gone', 'with exec_isl',
    'with override', 'with shared_hits')),
    'route routed', 'route queued', 'route query', 'route error', 'admitted routed', 'admitted error',
    'prefill bootstrap', 'prefill sync', 'prefill bypassed', 'expired', 'loads', 'scores',
    'session open_sent', 'session bound', 'session open_failed', 'session unbound', 'session expired',
    'session close_sent', 'state serving', 'state draining', 'state drained', 'state gone', 'state active',
    'state inactive', 'AllEligibleWorkersOverloaded', 'DpRankRequired', 'DuplicateRequest', 'InvalidOverride',
    'NoEndpoints', 'NotActivated', 'PinnedWorkerNotAllowed', 'PinnedWorkerOverloaded', 'QueueRejected',
    'SessionLimit', 'WorkerIdRequired']


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
    """One list of input lines on the pools of triple `k`, and what is known while it is made."""

    def __init__(self, rng, number, k, head):
        # Who waits in a queue may be admitted while time passes; then nobody answers its open.
        queues = {x['name'] for x in head
                  if {'router_queue_threshold', 'router_policy_config'} & set(x['config'])}
        self.opening = {f'a{k}': f'a{k}' not in queues, f'd{k}': not {f'd{k}', f'p{k}'} & queues}
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
        self.opened = []

    def say(self, **line):
        self.lines.append(line)

    def worker(self):
        pool = self.rng.choice(list(self.members))
        worker = self.rng.choice(self.members[pool])
        what = self.rng.random()
        if worker not in self.here:
            self.comes(worker, pool)
        elif what < 0.2:  # a new life
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
                control['action'] = self.rng.choice(['open', 'close'] if self.opening[pool] else ['close'])
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
        if self.rng.random() < 0.1:
            line['annotations'] = ['query_instance_id:']
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
            self.opened.append(line['id'])
            if self.rng.random() < 0.5:
                self.ack()
        if self.rng.random() < 0.1:  # in the moment in which it waits, is held, or has been sent
            self.say(op=self.rng.choice(['cancel', 'prefill_done']), id=line['id'])

    def ack(self):
        """The oldest open is answered; a line of none that waits is refused by both."""
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
        self.say(**line)

    def advance(self, ms):
        """A worker that does not answer an open for 5 s has failed it: no scenario says so. One of
        a pair may have been sent long after its route, and after an answer that was too early."""
        if ms > 1000:
            self.opens = self.opened[:]
        while ms > 1000 and self.opens:
            self.ack()
        self.say(op='advance', ms=ms)
        if ms <= 1000:
            while self.opens:
                self.ack()

    def ask(self):
        pool = self.rng.choice(list(self.members))
        self.say(op=self.rng.choice(['loads', 'scores']), pool=pool, sequence_hashes=self.prompt())

    def make(self):
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
            elif kind < 0.92:
                self.ack()
            elif kind < 0.96:
                self.ask()
            else:
                self.advance(self.rng.choice([1, 700, 31000, 400000]))
        for name in dict.fromkeys(self.ids):
            self.say(op='cancel', id=name)
        self.advance(400000)
        for worker in self.here:
            self.say(op='worker_gone', worker=worker)
        for pool in self.members:
            self.say(op='loads', pool=pool, sequence_hashes=[1])
        return self.lines


# ---- both executors ----

def plain(line):
    """An output line without what may differ."""
    x = json.loads(line)
    x.pop('message', None)
    x.pop('bootstrap_room', None)
    if x.get('error') == 'NoEndpoints':
        x.pop('retryable')
    return x


def groups(out):
    """Output lines by input line: those in order, and those that may stand anywhere."""
    lines = out.splitlines()
    found = []
    fixed, floating = [], []
    for line in lines[1:]:
        if line != lines[0]:
            x = plain(line)
            # Of a request that waits no frame says that its pool serves it alone.
            loose = x['op'] in FLOATING or x.get('path') == 'bypassed'
            (floating if loose else fixed).append(x)
            continue
        found.append((fixed, sorted(floating, key=lambda x: json.dumps(x, sort_keys=True))))
        fixed, floating = [], []
    return found


def play(programs, lines):
    """What each program writes, by input line; None and a text when one does not come to its end."""
    text = MARK + '\n' + ''.join(f'{json.dumps(x)}\n{MARK}\n' for x in lines)
    runs = [subprocess.Popen([p, '-'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             stderr=subprocess.PIPE) for p in programs]
    outs = [None] * len(runs)

    def talk(i):
        outs[i] = runs[i].communicate(text)

    threads = [threading.Thread(target=talk, args=(i,)) for i in range(len(runs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return [(groups(outs[i][0]), runs[i].returncode, outs[i][1]) for i in range(len(runs))]


def kinds(line):
    """What an input or output line is an example of."""
    op = line['op']
    if 'line' in line:
        yield f'{op} refused'
    elif 'result' in line:
        yield f'{op} {line["result"]}'
        if 'error' in line:
            yield line['error']
    else:
        yield ' '.join([op] + [str(line[k]) for k in ('path', 'event', 'to') if k in line])
    yield from (f'with {k}' for k in ('phase', 'override', 'exec_isl', 'shared_hits') if k in line)


def differs(programs, lines, met=None):
    """Index of the first input line whose output differs, with both outputs; None: none does, or
    frames cannot say one of them."""
    (a, code_a, err_a), (b, code_b, err_b) = play(programs, lines)
    if 'becomes another one' in err_b:
        return None if met is None else (len(lines) - 1, '', err_b)
    for i in range(len(lines)):
        x = a[i] if i < len(a) else f'ended, {code_a}: {err_a[-300:]}'
        y = b[i] if i < len(b) else f'ended, {code_b}: {err_b[-300:]}'
        if x != y:
            return i, x, y
        if met is not None:
            met.update(k for line in x[0] + x[1] for k in kinds(line))
            met.update('> ' + k for k in kinds(lines[i]))
    return None


def shorter(programs, head, lines, seconds):
    """The lines without what is not needed to make the outputs differ."""
    end = time.monotonic() + seconds
    part = max(1, len(lines) // 2)
    while time.monotonic() < end:
        i = 0
        while i < len(lines) and time.monotonic() < end:
            # An open without its answer would be another difference.
            less = lines[:i] + [x for x in lines[i:i + part] if x['op'] == 'session_ack'] + lines[i + part:]
            if len(less) == len(lines):
                i += part
                continue
            bad = differs(programs, head + less)
            if bad:
                lines = less[:max(0, bad[0] - len(head) + 1)]
            else:
                i += part
        if part == 1:
            break
        part = max(1, part // 2)
    return lines


def report(programs, seed, head, scenarios, first):
    """Say which lines differ: of their scenario alone if they do so alone."""
    at, x, y = first
    whole = [line for s in scenarios for line in s][:at - len(head) + 1]
    start = 0
    for lines in scenarios:
        if start + len(lines) >= len(whole):
            break
        start += len(lines)
    few = whole[start:]
    if not differs(programs, head + few):
        few = whole
    few = shorter(programs, head, few, SECONDS)
    _, x, y = differs(programs, head + few) or first
    with open(f'same-{seed}.txt', 'w', encoding='utf-8') as f:
        f.writelines(json.dumps(line) + '\n' for line in head + few)
    sys.exit('\n'.join([f'seed {seed} (same-{seed}.txt):'] + [json.dumps(line) for line in few] +
                       [f'explain: {x}', f'frames:  {y}']))


def main():
    programs, total = sys.argv[1:3], int(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.SystemRandom().randrange(1 << 32)
    begin, done, lines = time.monotonic(), 0, 0
    met = collections.Counter()
    print(f'seed {seed}', flush=True)
    while done < total:
        rng = random.Random(f'{seed} {done}')
        head = [x for k in range(POOLS) for x in pools(rng, k)]
        n = min(BATCH, total - done)
        scenarios = [Scenario(rng, i, i % POOLS, head).make() for i in range(n)]
        whole = head + [x for s in scenarios for x in s]
        bad = differs(programs, whole, met)
        if bad:
            report(programs, seed, head, scenarios, bad)
        done += n
        lines += len(whole)
    for kind, n in sorted(met.items()):
        print(f'{n:8} {kind}')
    print(f'{done} scenarios, {lines} lines, {time.monotonic() - begin:.0f} s')
    missing = [k for k in KINDS if k not in met]
    if missing and done >= ENOUGH:
        sys.exit(f'never met: {missing}')


main()
