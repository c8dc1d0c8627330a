# SPDX-License-Identifier: BSD-3-Clause
"""The reference's mocker behind its own front end as an engine of kvroute: two of each, with events and replay over ZMQ."""

import os
import random
import subprocess

import packages
import record
from stack import CACHE, HERE, RECORD, Stack, attempt, check, equal, in_parallel, request, wait_for

PYTHON, MODEL = packages.python('reference'), f'{CACHE}/tiny-reference'
BLOCK, BLOCKS = 16, 400
SEEDED = random.Random(5)


def ids(count):
    return [SEEDED.randrange(100, 900) for _ in range(count)]


def start_engine(stack, number):
    folder = f'{stack.dir}/store{number}'
    os.makedirs(folder, exist_ok=True)
    env = dict(HF_HUB_OFFLINE='1', DYN_DISCOVERY_BACKEND='file', DYN_FILE_KV=folder, DYN_LOG='error', DYN_TCP_RPC_HOST='127.0.0.1')
    stack.start(f'mocker{number}', PYTHON, '-m', 'dynamo.mocker', '--model-path', MODEL, '--model-name', 'llama', '--speedup-ratio', 10, '--block-size', BLOCK,
                '--num-gpu-blocks-override', BLOCKS, '--max-num-batched-tokens', 2048, '--zmq-kv-events-ports', 9000 + 10 * number,
                '--zmq-replay-ports', 9500 + 10 * number, env=env, cwd=stack.dir)
    stack.start(f'frontend{number}', PYTHON, '-m', 'dynamo.frontend', '--router-mode', 'round-robin', '--http-host', '127.0.0.1', '--http-port', 8100 + number,
                env=env, cwd=stack.dir)


def start_agent(stack, number):
    stack.agent(number, '--block-size', BLOCK, '--events', f'tcp://127.0.0.1:{9000 + 10 * number}', '--replay', f'tcp://127.0.0.1:{9500 + 10 * number}',
                '--canary-s', 0)


def answers(number):
    return lambda: request(8100 + number, 'POST', '/v1/completions', dict(model='llama', prompt=[101, 102], max_tokens=1))[0] == 200


def ask(stack, prompt):
    """(worker, predicted, cached), after the router has the blocks of the prompt."""
    status, fields, body = stack.complete(prompt)
    if status != 200:
        raise RuntimeError(f'{status} {body}')
    worker = fields['x-kvroute-worker']
    usage = body['usage'].get('prompt_tokens_details') or {}
    wait_for(lambda: stack.overlap(prompt + [950] * BLOCK, headers={'x-kvroute-worker': worker}) == len(prompt) // BLOCK, 3)
    return worker, int(fields['x-kvroute-overlap-blocks']) * BLOCK, usage.get('cached_tokens') or 0


def check_hits(stack, name, count):
    known, wrong, hits, used = [ids(BLOCK * SEEDED.randrange(2, 12)) for _ in range(6)], [], 0, set()
    for _ in range(count):
        prompt = SEEDED.choice(known)
        prompt = prompt[:SEEDED.randrange(1, len(prompt) + 1)] + ids(SEEDED.randrange(1, 5 * BLOCK))
        known = (known + [prompt])[-20:]
        worker, predicted, cached = ask(stack, prompt)
        hits += cached
        used.add(worker)
        if predicted != cached:
            wrong.append((worker, len(prompt), predicted, cached))
    check(name, not wrong and hits and len(used) == 2, f'{len(wrong)} of {count} differ, {hits} tokens hit, workers {used}: {wrong[:3]}')


with Stack({'llama': dict(block_size=BLOCK, max_ranks=8)}) as stack:
    if not os.path.exists(f'{MODEL}/tokenizer_config.json'):
        subprocess.run([PYTHON, f'{HERE}/tiny_model.py', 'reference', MODEL], check=True)
    for number in (1, 2):
        start_engine(stack, number)
    for number in (1, 2):
        stack.require(f'front end {number} does not answer', answers(number), 120)
        start_agent(stack, number)
    if RECORD:
        version = next(package for _, package in packages.pins('reference') if package.startswith('ai-dynamo==')).partition('==')[2]
        record.record_mocker(8101, 'tcp://127.0.0.1:9010', version)
    stack.gateway()
    stack.require_workers(1, 2)
    with attempt('predicted hits are cached_tokens'):
        check_hits(stack, '120 prompts: predicted hits are cached_tokens', 120)
    with attempt('conversations'):
        prompts = [ids(800) for _ in range(40)]
        done = in_parallel(160, 16, lambda i: stack.complete(prompts[i % 40] + [101] * (i // 40), max_tokens=8)[0])
        equal('160 requests at once', sum(x == 200 for x in done), 160)
    with attempt('SIGKILL of an agent'):
        prompt = ids(10 * BLOCK)
        worker, _, _ = ask(stack, prompt)
        stack.restart_agent(int(worker), lambda n: start_agent(stack, n))
        check('a new agent receives events of its absence', wait_for(lambda: stack.overlap(prompt + [1], headers={'x-kvroute-worker': worker}) == 10, 20),
              stack.warnings(f'agent{worker}')[-2:])
    with attempt('SIGKILL of an engine'):
        stack.kill('frontend1')
        stack.kill('mocker1')
        check('a killed engine leaves', wait_for(lambda: stack.serving() == {'2'}, 20), stack.serving())
        refused = [a for a in (stack.complete(ids(50)) for _ in range(10)) if a[0] != 200]
        check('requests go to the other engine', not refused, refused[:1])
        subprocess.run(['rm', '-rf', f'{stack.dir}/store1'], check=False)
        start_engine(stack, 1)
        stack.require('front end 1 does not answer again', answers(1), 120)
        stack.require_workers(1, 2)
        check_hits(stack, 'after the restart, 40 prompts: predicted hits are cached_tokens', 40)
