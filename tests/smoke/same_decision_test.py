# SPDX-License-Identifier: BSD-3-Clause
"""One scenario through kvroute-explain and through the running router: the same decisions?

protocol_test.sh starts it: same_decision_test.py KVROUTE KVROUTE-EXPLAIN [SCENARIO]

Without SCENARIO one is made from a fixed seed. The router gets the pool of its first line (same options
and seed), agents for its workers, and every later line in turn, each awaited before the next.
"""

import json
import random
import subprocess
import sys
import time

import kvrproto as p
from protocol_router import ADDRESSES, Router

COMPARED = ('worker', 'dp_rank', 'overlap_blocks', 'required_blocks', 'cached_tokens')
B = 16
END = time.monotonic() + 150


def scenario(seed=20240607, routes=64):
    """The lines of a scenario: six ranks, three tiers, routes of many kinds, restarts in between."""
    rand = random.Random(seed)
    config = dict(router_temperature=0.4, overlap_score_credit=0.9, decode_active_request_weight=0.5,
                  host_cache_hit_weight=0.7, disk_cache_hit_weight=0.3)
    yield dict(op='pool', name='m', block_size=B, seed=seed, config=config)
    for i in range(3):
        yield dict(op='worker', worker=1000 + 7 * i, dp_size=2, total_kv_blocks=5000 + 100 * i,
                   max_num_batched_tokens=8192, taints=[f'kind={i % 2}', 'all'])
    workers = [1000, 1007, 1014]
    texts = [[rand.randrange(1 << 20) for _ in range(B * rand.randrange(12, 40))] for _ in range(8)]
    names = [p.sequence_hashes(text, B) for text in texts]
    for name in names:
        for _ in range(3):
            device = rand.randrange(2, len(name))
            where = dict(worker=rand.choice(workers), dp_rank=rand.randrange(2))
            yield dict(op='store', **where, tier='device', sequence_hashes=name[:device])
            host = rand.randrange(device, len(name) + 1)
            if host > device:
                yield dict(op='store', **where, tier='host', sequence_hashes=name[:host],
                           **{'from': device})
            if host > device and host < len(name):
                yield dict(op='store', **where, tier='disk', sequence_hashes=name, **{'from': host})
    live = []
    for number in range(routes):
        which = rand.randrange(len(texts))
        cut = rand.randrange(1, len(texts[which]))
        own = [rand.randrange(1 << 20) for _ in range(rand.randrange(0, 200))]
        route = dict(op='route', id=f'r{number}')
        if rand.random() < 0.3:
            route['tokens'] = texts[which][:cut] + own
        else:
            route['sequence_hashes'] = p.sequence_hashes(texts[which][:cut] + own, B)
            route['isl'] = cut + len(own)
        routing = routing_of(rand, workers)
        if routing:
            route['routing'] = routing
        if rand.random() < 0.5:
            route['override'] = rand.choice((
                dict(router_temperature=0), dict(router_temperature=0, overlap_score_credit=0.2),
                dict(router_temperature=2.5), dict(prefill_load_scale=3, router_temperature=0),
                dict(assume_kv_reuse=False), dict(track_prefill_tokens=False)))
        yield route
        live.append(route['id'])
        yield from lives(rand, live, workers, names)
    for id in live:
        yield dict(op='finish', id=id)


def routing_of(rand, workers):
    kind = rand.randrange(12)
    if kind == 0:
        return dict(backend_instance_id=rand.choice(workers), dp_rank=rand.randrange(2))
    if kind == 1:
        return dict(allowed_worker_ids=rand.sample(workers, 2))
    if kind == 2:
        return rand.choice((dict(allowed_worker_ids=[]), dict(backend_instance_id=1000),
                            dict(backend_instance_id=1000, dp_rank=1, allowed_worker_ids=[1007]),
                            dict(backend_instance_id=4242, dp_rank=0)))
    if kind == 3:
        return dict(routing_constraints=dict(required_taints=['kind=1'] if rand.random() < 0.7 else ['none']))
    if kind == 4:
        return dict(routing_constraints=dict(preferred_taints={'kind=0': 0.4}))
    return None


def lives(rand, live, workers, names):
    """Events between two routes."""
    for _ in range(rand.randrange(3)):
        if not live:
            return
        what, id = rand.randrange(5), rand.choice(live)
        if what == 0:
            yield dict(op='prefill_done', id=id)
        elif what == 1:
            yield dict(op='output', id=id, tokens=rand.randrange(1, 40))
        elif what == 2:
            live.remove(id)
            yield dict(op=rand.choice(('finish', 'cancel', 'fail')), id=id)
        elif what == 3:
            name = rand.choice(names)
            yield dict(op='store', worker=rand.choice(workers), dp_rank=rand.randrange(2), tier='device',
                       sequence_hashes=name[:rand.randrange(1, len(name))])
        elif rand.random() < 0.4:
            name = rand.choice(names)
            yield dict(op='remove', worker=rand.choice(workers), dp_rank=rand.randrange(2), tier='device',
                       sequence_hashes=name, **{'from': rand.randrange(len(name))})
        elif rand.random() < 0.3:
            yield dict(op='clear', worker=rand.choice(workers), dp_rank=rand.randrange(2))


def explained(program, path):
    """id -> decision of kvroute-explain."""
    run = subprocess.run([program, path], capture_output=True, text=True, timeout=20)
    if run.returncode:
        bad = [line for line in run.stdout.splitlines() if 'BadOp' in line]
        raise RuntimeError(f'kvroute-explain: {run.returncode} {bad[:3]} {run.stderr}')
    answers = {}
    for line in map(json.loads, run.stdout.splitlines()):
        if line['op'] == 'route':
            answers[line['id']] = (line['error'] if line['result'] == 'error'
                                   else tuple(line[field] for field in COMPARED))
    return answers


class Play:
    """Carries out the lines of a scenario on the running router."""

    def __init__(self, address):
        self.address, self.client = address, p.Client(address)
        self.agents, self.requests, self.answers, self.line = {}, {}, {}, 0

    def wait(self, condition):
        left = max(0.0, min(20.0, END - time.monotonic()))
        if not p.run_until([self.client, *self.agents.values()], condition, left):
            raise RuntimeError(f'line {self.line} has no effect')

    def play(self, line):
        self.line += 1
        getattr(self, line['op'])(line)

    def pool(self, line):
        pass

    def worker(self, line):
        hints = b''.join(p.hint(0x0021, taint.encode()) for taint in line.get('taints', ()))
        agent = p.Agent(self.address, line['worker'], 'm', B, line.get('dp_size', 1),
                        line.get('dp_start', 0), hints, line.get('max_num_batched_tokens', 0),
                        line.get('total_kv_blocks', 0))
        self.agents[line['worker']] = agent
        agent.hello()
        self.wait(lambda: agent.state == 'SERVING')

    def rank(self, line):
        agent = self.agents[line['worker']]
        return agent, line.get('dp_rank', 0), agent.ranks[line.get('dp_rank', 0)]

    def store(self, line):
        agent, number, rank = self.rank(line)
        agent.stored(number, line['sequence_hashes'], line.get('tier', 'device'), line.get('from', 0))
        self.wait(lambda: rank.acked == rank.next)

    def remove(self, line):
        agent, number, rank = self.rank(line)
        agent.event(number, p.REMOVED, line.get('tier', 'device'), line['sequence_hashes'][line['from']:])
        agent.flush(number)
        self.wait(lambda: rank.acked == rank.next)

    def clear(self, line):
        agent, number, rank = self.rank(line)
        agent.event(number, p.CLEARED)
        agent.flush(number)
        self.wait(lambda: rank.acked == rank.next)

    def route(self, line):
        routing = line.get('routing', {})
        taints = routing.get('routing_constraints', {})
        hints = p.route_hints(backend=routing.get('backend_instance_id'), dp_rank=routing.get('dp_rank'),
                              allowed=routing.get('allowed_worker_ids'),
                              required_taints=taints.get('required_taints', ()),
                              preferred_taints=taints.get('preferred_taints'),
                              override=line.get('override'))
        tokens = line.get('tokens', ())
        request = self.client.route(0, line.get('isl', len(tokens)), line.get('sequence_hashes', ()), tokens,
                                    hints=hints)
        key = (self.client.source, request.id)
        self.wait(lambda: request.rejected or request.accepted
                  and key in self.agents[request.accepted['worker']].jobs)
        self.answers[line['id']] = (request.rejected.name if request.rejected
                                    else tuple(request.accepted[field] for field in COMPARED))
        if not request.rejected:
            agent = self.agents[request.accepted['worker']]
            self.requests[line['id']] = (request, agent, agent.jobs[key])

    def item(self, line, **how):
        if line['id'] not in self.requests:
            return  # it was rejected
        request, agent, job = self.requests[line['id']]
        agent.item(job, b'x', **how)
        self.wait(lambda: request.next == len(job.sent) and job.acked == len(job.sent))
        if how.get('fin'):
            self.wait(lambda: job.done)

    def prefill_done(self, line):
        self.item(line, tokens=1)

    def output(self, line):
        self.item(line, tokens=line['tokens'])

    def finish(self, line):
        self.item(line, fin=True)

    def fail(self, line):
        self.item(line, fin=True, flags=p.ITEM_ERROR, status=1)

    def cancel(self, line):
        if line['id'] in self.requests:
            request = self.requests[line['id']][0]
            self.client.cancel(request)
            self.wait(lambda: request.cancelled)


def play(router, lines, want):
    """The answers that differ."""
    router.telemetry('/kvroute/balance')
    player = Play(ADDRESSES[0])
    for line in lines:
        player.play(line)
    differ = 0
    for id, decided in want.items():
        if player.answers.get(id) != decided:
            differ += 1
            print(f'FAIL {id}: explain {decided}, router {player.answers.get(id)}')
    balance = router.telemetry('/kvroute/balance')
    if balance['balance'] != 'ok' or balance['bookings']:
        differ += 1
        print(f'FAIL balance: {balance}')
    return differ


def main():
    if len(sys.argv) > 3:
        with open(sys.argv[3]) as text:
            lines = [json.loads(line) for line in text if line.strip()]
    else:
        lines = list(scenario())
    config = ''.join(f'{key} = {str(value).lower()}\n' for key, value in lines[0].get('config', {}).items())
    router = Router(sys.argv[1], f'[pool m]\nid = 0\nblock_size = {B}\nseed = {lines[0]["seed"]}\n'
                    f'max_ranks = 64\nmax_blocks = 65536\n{config}')
    differ, want = 1, {}
    try:
        path = f'{router.dir}/scenario.jsonl'
        with open(path, 'w') as out:
            out.writelines(json.dumps(line) + '\n' for line in lines)
        want = explained(sys.argv[2], path)
        differ = play(router, lines, want)
    except Exception:  # the router's log is wanted then, too
        import traceback
        traceback.print_exc()
    failed = router.finish(differ > 0 or len(want) < 1)
    used = {answer[:2] if isinstance(answer, tuple) else answer for answer in want.values()}
    print(f'{len(want)} decisions ({len(used)} ranks and errors), {differ} failed')
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
