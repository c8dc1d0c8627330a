#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Random scenarios through kvroute-explain: random_run.py PROGRAM SEED...

Each seed is one run of SCENARIOS scenarios, one after the other in pools of their own (generate.py).

Whatever happens: no line is refused but an answer to an open that was abandoned, the same input
gives the same output, a request that was routed or refused is not answered again unless it has
started over, one that waits is admitted or refused at most once, sessions that are closed were
bound, and when all requests have ended nothing is booked or waits.
"""
import collections
import json
import random
import subprocess
import sys

from generate import Scenario, pools

SCENARIOS = 7


def play(program, text):
    run = subprocess.run([program, '-'], input=text, text=True, capture_output=True, timeout=60,
                         check=False)
    return run.returncode, run.stdout, run.stderr


def faults(code, lines, out):
    """What is wrong with the output of lines, as text; [] when nothing is."""
    bad = [] if code in (0, 1) else [f'exit status {code}']
    answered, waits, prefilled, bound = collections.Counter(), set(), collections.Counter(), set()
    asked = collections.Counter(x['id'] for x in lines if x['op'] == 'route')
    out = [json.loads(x) for x in out.splitlines()]
    for x in out:
        name = x.get('id')
        if x.get('error') == 'BadOp':
            if x['op'] != 'session_ack':
                bad.append(f'{x}')
        elif x['op'] in ('route', 'admitted'):
            if x['op'] == 'admitted' and name not in waits:
                bad.append(f'{name} is admitted and did not wait')
            if x.get('error') == 'DuplicateRequest':
                asked[name] -= 1
                continue
            if x['op'] == 'route' and name in waits:
                bad.append(f'{name} waits and is routed')
            waits.discard(name)
            if x['result'] == 'queued':
                waits.add(name)
                continue
            answered[name] += 1
            if answered[name] > asked[name] and prefilled[name] < 2:
                bad.append(f'{name} is answered twice')
        elif x['op'] == 'prefill':
            prefilled[name] += 1
        elif x['op'] == 'session':
            key = (x['session_id'], x['worker'])
            if x['event'] == 'bound':
                bound.add(key)
            elif x['event'] in ('unbound', 'close_sent', 'expired') and key not in bound:
                bad.append(f'{x["event"]} of {key}, which was not bound')
    loads = [x for x in out if x['op'] == 'loads']
    ends = [y for x, y in zip([x for x in lines if x['op'] == 'loads'], loads) if x['sequence_hashes'] == [1]]
    if len(ends) != 3 * SCENARIOS:
        bad.append(f'{len(ends)} pools at the end')
    for x in ends:
        if x['pending_count'] != 0:
            bad.append(f'something waits at the end: {x}')
        for rank in x['loads']:
            if rank['active_requests'] != 0:
                bad.append(f'something is booked at the end: {rank}')
    return bad


def main():
    program = sys.argv[1]
    for seed in sys.argv[2:]:
        rng = random.Random(int(seed))
        head = [x for k in range(SCENARIOS) for x in pools(rng, k)]
        lines = head + [x for k in range(SCENARIOS)
                        for x in Scenario(rng, k, k, head, becomes=True).make(leave=False)]
        text = '\n'.join(json.dumps(x) for x in lines) + '\n'
        code, out, err = play(program, text)
        bad = faults(code, lines, out) if 'ERROR' not in err else [err]
        if not bad and play(program, text)[1] != out:
            bad = ['the same input, another output']
        if bad:
            with open(f'random-{seed}.txt', 'w', encoding='utf-8') as f:
                f.write(text)
            sys.exit(f'seed {seed} (random-{seed}.txt): {bad[:5]}')
    print(f'{len(sys.argv[2:]) * SCENARIOS} scenarios')


main()
