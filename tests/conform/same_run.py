#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Random scenarios through both executors: same_run.py EXPLAIN FRAMES SCENARIOS [SEED].

kvroute-explain and the stages of the router (conform-frames) must write the same lines: decisions
in their order, `session`, `expired` and `state` anywhere among the lines of their input line. Left
out are texts for people, names drawn for transfers, and whether NoEndpoints is worth a retry: a
router reports retryable while a worker is expected.

What is not made, as the two are not the same there: a worker that becomes another one without a new
life. Workers with odd ids leave by silence in frames, the others say GOODBYE. At the end stands how often each operation and
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

from generate import Scenario, pools

POOLS = 5  # triples of pools of one process: a, d and p of each
BATCH = 125
SECONDS = 25  # to make what differs shorter
MARK = '{"op":"hash","tokens":[271828182],"block_size":1,"lora_name":"between the lines"}'
FLOATING = ('session', 'expired', 'state')
ENOUGH = 500  # scenarios in which every kind must be met
KINDS = [*('> ' + op for op in (
    'advance', 'cancel', 'clear', 'drain', 'fail', 'finish', 'load', 'loads', 'output', 'pool', 'prefill_done',
    'remove', 'resume', 'route', 'scores', 'session_ack', 'store', 'worker', 'session_release', 'worker_gone', 'with exec_isl',
    'with override', 'with shared_hits', 'with probe', 'with book')),
    'route routed', 'route queued', 'route query', 'route error', 'admitted routed', 'admitted error',
    'prefill bootstrap', 'prefill sync', 'prefill bypassed', 'expired', 'loads', 'scores',
    'session open_sent', 'session bound', 'session open_failed', 'session unbound', 'session expired',
    'session close_sent', 'state serving', 'state draining', 'state drained', 'state gone', 'state active',
    'state inactive', 'AllEligibleWorkersOverloaded', 'DpRankRequired', 'DuplicateRequest', 'InvalidOverride',
    'NoEndpoints', 'NotActivated', 'PinnedWorkerNotAllowed', 'PinnedWorkerOverloaded', 'QueueRejected',
    'SessionLimit', 'UnknownSession', 'WorkerIdRequired', 'session_release released', 'unanswered open',
    '> prefill pool by ttft']


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
    if op == 'pool' and line['role'] == 'prefill' and line['config'].get('router_mode') == 'ttft':
        yield 'prefill pool by ttft'
    if 'line' in line:
        yield f'{op} refused'
    elif 'result' in line:
        yield f'{op} {line["result"]}'
        if 'error' in line:
            yield line['error']
    else:
        yield ' '.join([op] + [str(line[k]) for k in ('path', 'event', 'to') if k in line])
    yield from (f'with {k}' for k in ('phase', 'override', 'exec_isl', 'shared_hits', 'probe', 'book') if k in line)


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
            # No worker has answered: time has passed, and the session was not opened.
            met['unanswered open'] += lines[i]['op'] == 'advance' and any(
                line.get('event') == 'open_failed' for line in x[1])
            met.update('> ' + k for k in kinds(lines[i]))
    return None


def shorter(programs, head, lines, seconds):
    """The lines without what is not needed to make the outputs differ."""
    end = time.monotonic() + seconds
    part = max(1, len(lines) // 2)
    while time.monotonic() < end:
        i = 0
        while i < len(lines) and time.monotonic() < end:
            less = lines[:i] + lines[i + part:]
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
    """Print the lines that differ, of a single scenario if it differs alone."""
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
