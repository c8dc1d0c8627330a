# SPDX-License-Identifier: BSD-3-Clause
"""The terms of mode ttft as the running router reports them: /kvroute/decisions and /kvroute/explain.

protocol_test.sh starts it: ttft_terms_test.py KVROUTE KVROUTE-EXPLAIN

Before any prefill has ended nothing depends on time: every term of every decision equals that of kvroute-explain. Afterwards the speed is known, and
the reported terms must add up to the cost.
"""

import concurrent.futures
import json
import subprocess
import sys

from kvrproto import run_until
from protocol_router import ADDRESSES, LONGEST, Router
from same_decision_test import B, Play

TERMS = ('wait_tokens', 'left_tokens', 'decode_weight', 'rho', 'us_token', 'cost')
COUNTS = ('prefill_tokens', 'decode_blocks', 'active_requests')


def blocks(first, n):
    return [first * 1000 + i for i in range(n)]


def route(id, hashes, more=0, **routing):
    return dict(op='route', id=id, sequence_hashes=hashes, isl=len(hashes) * B + more, **routing)


def scenario():
    """Three ranks: prompts cached, in flight, both, neither, and one that others wait behind."""
    one, two = blocks(1, 12), blocks(2, 20)
    yield dict(op='pool', name='m', block_size=B, seed=7, config=dict(router_mode='ttft'))
    for worker in (5, 6, 9):
        yield dict(op='worker', worker=worker, dp_size=1, total_kv_blocks=5000, max_num_batched_tokens=8192)
    yield dict(op='store', worker=6, dp_rank=0, tier='device', sequence_hashes=one)
    yield route('cached', one + blocks(3, 4), 3)
    yield route('in flight', one + blocks(3, 4) + blocks(4, 2), 1)
    yield route('named', two, 0, routing=dict(backend_instance_id=9))
    yield route('both', two[:8] + blocks(5, 30))
    yield route('beside', one[:2] + blocks(6, 3), 5, override=dict(overlap_score_credit=0.5))
    yield route('new', blocks(7, 40))
    yield route('again', blocks(7, 40) + blocks(8, 1))


def explained(program, path):
    """id -> (worker, {worker: terms}) of kvroute-explain."""
    run = subprocess.run([program, path], capture_output=True, text=True, timeout=20, check=True)
    lines = [line for line in map(json.loads, run.stdout.splitlines()) if line['op'] == 'route']
    return {line['id']: (line['worker'], {c['worker']: c for c in line['costs']}) for line in lines}


def ask(router, play, command):
    """The answer of telemetry. Each question starts a program, which may take long: meanwhile the client probes its requests, or it would give them
    up after 15 s of silence."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(router.telemetry, command)
        run_until([play.client, *play.agents.values()], answer.done, LONGEST)
        return answer.result()


def read_terms(router, play, id):
    """The same from the running router, found by the request's id; once more by its number."""
    request = play.requests[id][0]
    answer = ask(router, play, f'/kvroute/explain,{request.id},{play.client.source}')
    one = answer['decisions']['0']
    log = ask(router, play, '/kvroute/decisions,m')['decisions']
    number = next(n for n, d in log.items() if int(d['id'], 16) == request.id)
    same = ask(router, play, f'/kvroute/decisions,m,{number}')
    if same['terms'] != one['terms']:
        raise RuntimeError(f'{id}: {same["terms"]} is not {one["terms"]}')
    return one['worker'], {t['worker']: t for t in one['terms'].values()}


def near(a, b):
    return abs(float(a) - float(b)) <= 0.002  # three digits are reported


def differences(id, want, got):
    if want[0] != got[0] or want[1].keys() != got[1].keys():
        yield f'{id}: explain {want}, router {got}'
        return
    for worker, terms in want[1].items():
        terms['device'] = terms['overlap_blocks']['device']
        for key in (*TERMS, *COUNTS, 'device'):
            if not near(terms[key], got[1][worker][key]):
                yield f'{id}: {key} of worker {worker}: explain {terms[key]}, router {got[1][worker][key]}'


def sums(id, terms, fresh):
    """`fresh` blocks are in flight nowhere."""
    for worker, t in terms.items():
        v = {key: float(t[key]) for key in TERMS + COUNTS}
        cost = v['wait_tokens'] + v['left_tokens'] / (1 - v['rho'])
        cost += v['decode_weight'] * B * (v['decode_blocks'] - fresh)
        if not 0 < v['us_token'] or not 0 <= v['rho'] <= 0.95 or v['left_tokens'] != fresh * B:
            yield f'{id}: worker {worker}: {t}'
        elif abs(cost - v['cost']) > 0.01 + cost * 0.01:  # rho and the rest are rounded
            yield f'{id}: worker {worker}: the terms are {cost} together: {t}'


def compare(router, lines, want):
    """The differences."""
    play = Play(ADDRESSES[0])
    for line in lines:
        play.play(line)
    for id, decided in want.items():
        yield from differences(id, decided, read_terms(router, play, id))
    play.play(dict(op='prefill_done', id='new'))
    play.play(route('timed', blocks(9, 6)))
    worker, terms = read_terms(router, play, 'timed')
    yield from sums('timed', terms, 6)
    if float(terms[worker]['cost']) != min(float(t['cost']) for t in terms.values()):
        yield f'timed: worker {worker} is not the cheapest of {terms}'
    for id in (*want, 'timed'):
        play.play(dict(op='finish', id=id))


def main():
    lines = list(scenario())
    router = Router(sys.argv[1], f'[pool m]\nid = 0\nblock_size = {B}\nseed = {lines[0]["seed"]}\nmax_ranks = 64\n'
                    'max_blocks = 65536\nrouter_mode = ttft\ndecision_sample = 1\n',
                    # Programs that are started deschedule this one.
                    'suspect_ms = 60000\ndead_ms = 120000')
    differ, want = ['not compared'], {}
    try:
        path = f'{router.dir}/scenario.jsonl'
        with open(path, 'w') as out:
            out.writelines(json.dumps(line) + '\n' for line in lines)
        want = explained(sys.argv[2], path)
        router.telemetry('/kvroute/balance')
        differ = list(compare(router, lines, want))
    except Exception:  # the router's log is wanted then, too
        import traceback
        traceback.print_exc()
    for what in differ:
        print(f'FAIL {what}')
    failed = router.finish(bool(differ) or len(want) != 7)
    print(f'{len(want) + 1} decisions, {len(differ)} differences')
    sys.exit(1 if failed else 0)


main()
