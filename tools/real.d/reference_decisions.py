# SPDX-License-Identifier: BSD-3-Clause
"""Decisions of the reference's SelectionService or KvRouter beside kvroute-explain and the running router: reference_decisions.py service|router

reference_script.py carries out each case on the reference. kvroute-explain gets the same lines: a query, whose cheapest ranks must include the
reference's choice with the bits of its logit, then the booking, pinned to that choice, so that both sides continue from the same state. Compared for
each request: potential loads of all ranks, overlap of all ranks and tiers, sequence hashes, cost, choice and overlap of the choice. The running router
must decide every query and booking as kvroute-explain does, ties included.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter

import packages
from stack import BUILD, CACHE, HERE, ROOT, VERBOSE, attempt, check, skip

sys.path.insert(0, f'{ROOT}/tests/smoke')
import kvrproto as p  # noqa: E402
import reference_script  # noqa: E402
import same_decision_test as same  # noqa: E402
from protocol_router import ADDRESSES, Router  # noqa: E402

PYTHON = packages.python('reference')
MODEL = f'{CACHE}/tiny-reference'
REQUESTS, SEED = 300, 1
# The KvRouter binding has no taints, no lower tiers and no output blocks.
CASES = {'service': list(reference_script.CASES), 'router': [c for c in reference_script.CASES if c not in ('constraints', 'tiers', 'output', 'approximate')]}


def compare(case, answers, logits, explained):
    """Yield (request, subject, the reference's value, ours)."""
    asked, before, number = {}, {}, None
    for answer in explained:
        if answer.get('op') in ('loads', 'scores', 'hash'):
            before[answer['op']] = answer
        elif answer.get('op') == 'route' and answer['id'][0] == 'q':
            asked[answer['id'][1:]] = dict(before, query=answer)
            before = {}
        elif answer.get('op') == 'route':
            asked[answer['id'][1:]]['booked'] = answer
        elif answer.get('result') == 'error' or 'error' in answer:
            yield number, 'line', None, answer
    for number, theirs in answers.items():
        ours = asked.get(number)
        if ours is None:
            yield number, 'missing', theirs['got'], None
            continue
        got, query = theirs['got'], ours['query']
        if 'error' in got or query.get('result') != 'query':
            if ('error' in got) != (query.get('result') != 'query'):
                yield number, 'error', got, query
            continue
        yield from compare_state(number, theirs, ours)
        costs = {rank_of(x): x['cost'] for x in query['costs']}
        low = min(costs.values())
        if costs.get(rank_of(got)) != low:
            yield number, 'choice', (rank_of(got), logits.get(number)), (costs.get(rank_of(got)), rank_of(query), low)
        if number in logits and logits[number] != low:
            yield number, 'cost', logits[number], low
        if ours.get('booked', {}).get('overlap_blocks') != got['overlap_blocks']:
            yield number, 'overlap of the choice', got['overlap_blocks'], ours.get('booked', {}).get('overlap_blocks')


def rank_of(x):
    return x.get('worker', x.get('worker_id')), x['dp_rank']


def compare_state(number, theirs, ours):
    """Loads, overlaps and hashes before a decision."""
    if 'loads' in ours:
        fields = ('potential_prefill_tokens', 'potential_decode_blocks', 'active_requests')
        mine = {rank_of(x): tuple(x[f] for f in fields) for x in ours['loads']['loads']}
        for x in theirs['loads']:
            if tuple(x[f] for f in fields) != mine.get(rank_of(x)):
                yield number, 'loads', (rank_of(x), *(x[f] for f in fields)), mine.get(rank_of(x))
        mine = {rank_of(x): (x['device'], x['host'], x['disk']) for x in ours['scores']['scores']}
        for x in theirs['scores']:
            blocks = x['device_blocks'], x['host_pinned_extension_blocks'], x['disk_extension_blocks']
            if blocks != mine.get(rank_of(x), (0, 0, 0)):
                yield number, 'overlap', (rank_of(x), *blocks), mine.get(rank_of(x))
    elif 'hash' in ours and 'sequence_hashes' in theirs['got']:
        hashes = [h % (1 << 64) for h in theirs['got']['sequence_hashes']]
        if hashes != ours['hash']['sequence_hashes']:
            yield number, 'hashes', hashes[:2], ours['hash']['sequence_hashes'][:2]


class Play(same.Play):
    """Carries out the lines of a case on the running router."""

    def __init__(self, block, role):
        super().__init__(ADDRESSES[0])
        self.block, self.role, self.first = block, role, set()

    def worker(self, line):
        hints = b''.join(p.hint(0x0021, taint.encode()) for taint in line.get('taints', ()))
        agent = p.Agent(self.address, line['worker'], 'm', self.block, line.get('dp_size', 1), 0, hints, line.get('max_num_batched_tokens', 0),
                        line.get('total_kv_blocks', 0), role=self.role)
        self.agents[line['worker']] = agent
        agent.hello()
        self.wait(lambda: agent.state == 'SERVING')

    def named(self, line):
        """The line with sequence_hashes for its tokens."""
        seed = p.hash_seed(line.get('lora_name') or '', line.get('cache_namespace') or '')
        return dict(line, sequence_hashes=p.sequence_hashes(line['tokens'], self.block, seed=seed))

    def store(self, line):
        super().store(self.named(line))

    def remove(self, line):
        line = self.named(line)
        if 'count' in line:
            line['sequence_hashes'] = line['sequence_hashes'][:line['from'] + line['count']]
        super().remove(line)

    def route(self, line):
        routing = line.get('routing') or {}
        taints = routing.get('routing_constraints', {})
        hints = p.route_hints(lora=routing.get('lora_name'), namespace=routing.get('cache_namespace'), backend=routing.get('backend_instance_id'),
                              dp_rank=routing.get('dp_rank'), allowed=routing.get('allowed_worker_ids'), required_taints=taints.get('required_taints', ()),
                              preferred_taints=taints.get('preferred_taints'), override=line.get('override'))
        query = line['id'][0] == 'q'
        request = self.client.route(0, len(line['tokens']), (), line['tokens'], hints=hints, flags=p.ROUTE_QUERY if query else 0,
                                    expected=routing.get('expected_output_tokens', p.NONE32))
        key = (self.client.source, request.id)
        self.wait(lambda: request.rejected or request.accepted and (query or key in self.agents[request.accepted['worker']].jobs))
        self.answers[line['id']] = request.rejected.name if request.rejected else tuple(request.accepted[field] for field in same.COMPARED)
        if not request.rejected and not query:
            agent = self.agents[request.accepted['worker']]
            self.requests[line['id']] = (request, agent, agent.jobs[key])

    def prefill_done(self, line):
        """The first token ends prefill; the line of its output follows."""
        self.item(line, tokens=1)
        self.first.add(line['id'])

    def output(self, line):
        if line['id'] in self.first:
            self.first.remove(line['id'])
        else:
            super().output(line)

    def play(self, line):
        if line['op'] not in ('loads', 'scores', 'hash'):
            super().play(line)


def play_on_router(case, lines, explained):
    """Decisions of the running router that differ from those of kvroute-explain."""
    block, _, _, _, keys, _ = reference_script.CASES[case]
    options = dict({'block_size': block, 'seed': SEED, 'id': 0, 'max_ranks': 64, 'max_blocks': 65536}, **keys)
    role = options.get('role')
    router = Router(f'{BUILD}/app/router/kvroute', '[pool m]\n' + ''.join(f'{k} = {str(v).lower()}\n' for k, v in options.items()),
                    'suspect_ms = 20000\ndead_ms = 40000')
    try:
        router.telemetry('/kvroute/balance')
        same.END = time.monotonic() + 240
        player = Play(block, dict(decode=2).get(role, 0))
        for line in lines:
            player.play(line)
        wanted = {a['id']: a['error'] if a['result'] == 'error' else tuple(a[field] for field in same.COMPARED) for a in explained if a['op'] == 'route'}
        return [(id, answer, player.answers.get(id)) for id, answer in wanted.items() if player.answers.get(id) != answer], len(wanted)
    finally:
        router.finish(False)


def run_case(case, surface, folder):
    path = f'{folder}/{case}'
    env = dict({k: v for k, v in os.environ.items() if not k.startswith('DYN_')}, **reference_script.CASES[case][3], DYN_LOG='info', DYN_SDK_DISABLE_ANSI_LOGGING='1',
               DYN_DISCOVERY_BACKEND='file', DYN_FILE_KV=tempfile.mkdtemp(dir=folder), DYN_SELF_HOST_METADATA='0', HF_HUB_OFFLINE='1')
    with open(path + '.log', 'w') as log:
        done = subprocess.run([PYTHON, f'{HERE}/reference_script.py', case, str(SEED), str(REQUESTS), surface, path + '.json', MODEL], env=env, stdout=log,
                              stderr=log, timeout=300)
    with open(path + '.log') as f:
        text = re.sub(r'\x1b\[[0-9;]*m', '', f.read())
    if done.returncode != 0:
        return check(case, False, f'the reference ended with {done.returncode}: {text[-300:]}')
    with open(path + '.json') as f:
        made = json.load(f)
    logits = {m[1]: float(m[2]) for m in re.finditer(r'Selected worker .*?request_id="r(\d+)".*?logit=(\S+)', text)}
    with open(path + '.jsonl', 'w') as f:
        f.writelines(json.dumps(line) + '\n' for line in made['lines'])
    run = subprocess.run([f'{BUILD}/app/explain/kvroute-explain', path + '.jsonl'], capture_output=True, text=True, timeout=120)
    explained = [json.loads(line) for line in run.stdout.splitlines()]
    differ = list(compare(case, made['answers'], logits, explained))
    enough = len(made['answers']) == REQUESTS and run.returncode == 0
    check(f'{case}: kvroute-explain decides as the reference', enough and not differ,
          f'{len(made["answers"])} requests, {len(logits)} logits, differ {dict(Counter(d[1] for d in differ))}, first {differ[:1]} {run.stderr[-100:]}')
    if surface == 'service':
        with attempt(f'{case}: the running router decides as kvroute-explain'):
            differ, count = play_on_router(case, made['lines'], explained)
            check(f'{case}: the running router decides as kvroute-explain', not differ and count >= REQUESTS, f'{len(differ)} of {count} differ, first {differ[:2]}')


def main(surface, *cases):
    if not os.path.exists(f'{MODEL}/tokenizer_config.json'):
        subprocess.run([PYTHON, f'{HERE}/tiny_model.py', 'reference', MODEL], check=True)
    if subprocess.run([PYTHON, '-c', 'import dynamo.llm'], capture_output=True).returncode != 0:
        return skip('all', 'the reference does not import here')
    with tempfile.TemporaryDirectory(prefix='kvr-reference.') as folder:
        for case in cases or CASES[surface]:
            with attempt(case):
                run_case(case, surface, folder)
            if VERBOSE:
                print(f'{case} done', flush=True)


main(*sys.argv[1:])
