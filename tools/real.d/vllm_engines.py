# SPDX-License-Identifier: BSD-3-Clause
"""Unmodified vLLM engines on CPU behind kvroute: vllm_engines.py two|ranks

two: two engines; ranks: one engine with two data-parallel ranks. Prompts are token ids, drawn from a seed.
"""

import json
import os
import random
import signal
import subprocess
import sys

import packages
import record
from stack import CACHE, RECORD, Stack, attempt, check, equal, in_parallel, request, skip, wait_for

BLOCK, BLOCKS = 32, 300
LIMIT = 1200  # seconds to start an engine: about 100 s of CPU
PYTHON = packages.python('vllm')
MODEL = f'{CACHE}/tiny-{os.path.basename(packages.folder("vllm"))}/model'
ENVIRONMENT = dict(VLLM_CPU_KVCACHE_SPACE='1', VLLM_ENABLE_V1_MULTIPROCESSING='0', HF_HUB_OFFLINE='1', VLLM_SERVER_DEV_MODE='1', VLLM_NO_USAGE_STATS='1',
                   VLLM_LOGGING_LEVEL='WARNING', OMP_NUM_THREADS='1', HOME=CACHE)
SEEDED = random.Random(7)


def ids(count):
    return [SEEDED.randrange(10, 500) for _ in range(count)]


def start_engine(stack, number, *args, **env):
    events = dict(enable_kv_cache_events=True, publisher='zmq', endpoint=f'tcp://*:{9000 + 10 * number}', replay_endpoint=f'tcp://*:{9500 + 10 * number}')
    stack.start(f'engine{number}', PYTHON, '-m', 'vllm.entrypoints.openai.api_server', '--host', '127.0.0.1', '--port', 8100 + number, '--model', MODEL,
                '--served-model-name', 'llama', '--block-size', BLOCK, '--enforce-eager', '--dtype', 'float32', '--max-model-len', 8192,
                '--num-gpu-blocks-override', BLOCKS, '--enable-prompt-tokens-details', '--kv-events-config', json.dumps(events), '--enable-scale-out', *args,
                env=dict(ENVIRONMENT, **env), cwd=stack.dir)


ONE = ('--distributed-executor-backend', 'uni', '--enable-lora', '--max-lora-rank', 8, '--lora-modules', f'ad1={MODEL}-lora')


def engine_is_up(number):
    return lambda: request(8100 + number, 'GET', '/health')[0] == 200


class Caches:
    """Requests whose predicted overlap is compared with `cached_tokens` of the engine."""

    def __init__(self, stack):
        self.stack, self.wrong, self.count, self.hits = stack, [], 0, 0

    def settle(self, prompt, worker, **more):
        """Wait until the router has the blocks that the engine has stored for @prompt."""
        want = len(prompt) // BLOCK
        headers = {'x-kvroute-worker': str(worker), **more.pop('headers', {})}
        return wait_for(lambda: self.stack.overlap(prompt + [501] * BLOCK, headers=headers, **more) == want, 5)

    def ask(self, prompt, worker=None, settle=True, **more):
        """(worker, predicted tokens, cached tokens)"""
        headers = dict(more.pop('headers', {}), **({'x-kvroute-worker': str(worker)} if worker else {}))
        status, fields, body = self.stack.complete(prompt, headers=headers, temperature=0, **more)
        if status != 200:
            self.wrong.append(f'{status} {body}')
            return None, -1, -2
        predicted = int(fields['x-kvroute-overlap-blocks']) * BLOCK
        cached = body['usage']['prompt_tokens_details']['cached_tokens']
        worker = int(fields['x-kvroute-worker'])
        self.count, self.hits = self.count + 1, self.hits + cached
        last = BLOCK if predicted == len(prompt) else 0  # vLLM computes the last token, hence the last block, of each prompt
        if predicted - last != cached:
            self.wrong.append(f'{len(prompt)} tokens at {worker}: predicted {predicted}, cached {cached}')
        if settle:
            self.settle(prompt, worker, headers={k: v for k, v in headers.items() if k != 'x-kvroute-worker'}, **more)
        return worker, predicted, cached

    def report(self, name):
        check(name, not self.wrong and self.hits, f'{len(self.wrong)} of {self.count} differ, {self.hits} tokens hit: {self.wrong[:3]}')
        self.wrong, self.count, self.hits = [], 0, 0


def check_hits(stack, caches):
    known = [ids(BLOCK * SEEDED.randrange(2, 12)) for _ in range(6)]
    for _ in range(200):
        prompt = SEEDED.choice(known)
        prompt = prompt[:SEEDED.randrange(1, len(prompt) + 1)] + ids(SEEDED.randrange(1, 5 * BLOCK))
        known = (known + [prompt])[-30:]
        caches.ask(prompt)
    caches.report('200 prompts of ids: predicted hits are cached_tokens')
    system = 'You are a router of requests for language models. ' * 12
    for i in range(20):
        body = dict(model='llama', max_tokens=1, messages=[{'role': 'system', 'content': system}, {'role': 'user', 'content': f'question {i % 5}'}])
        _, fields, answer = stack.post('/v1/chat/completions', body)
        predicted, cached = int(fields.get('x-kvroute-overlap-blocks', -1)) * BLOCK, answer['usage']['prompt_tokens_details']['cached_tokens']
        caches.count, caches.hits = caches.count + 1, caches.hits + cached
        if predicted != cached:
            caches.wrong.append(f'chat {i}: predicted {predicted}, cached {cached}')
        wait_for(lambda: int(stack.post('/v1/chat/completions', body, {'x-kvroute-query': 'true', 'x-kvroute-worker': fields['x-kvroute-worker']})[1]
                             ['x-kvroute-overlap-blocks']) >= answer['usage']['prompt_tokens'] // BLOCK, 5)
    caches.report('20 chats: predicted hits are cached_tokens')


def check_copies_and_eviction(caches):
    """vLLM stores the last block of a whole-block prompt again at each request, so that it has copies."""
    first, rest = ids(10 * BLOCK), ids(5 * BLOCK)
    for _ in range(3):
        caches.ask(first, worker=1)
    caches.ask(first + rest, worker=1)
    evicted = 0
    for i in range(18):
        caches.ask(ids(40 * BLOCK), worker=1)
        if i % 9 == 8:
            evicted += caches.ask(first + rest + [502], worker=1)[2] < 15 * BLOCK
            caches.ask(first + ids(BLOCK), worker=1)
    check('the cache is smaller than the prompts', evicted, 'no block was evicted')
    caches.report('copies and eviction: predicted hits are cached_tokens')


def check_adapter_and_salt(caches):
    base = ids(6 * BLOCK)
    for more in (dict(), dict(model='ad1'), dict(cache_salt='one'), dict(cache_salt='two'), dict(model='ad1', cache_salt='one')):
        _, _, before = caches.ask(base + [503], worker=1, **more)
        _, _, after = caches.ask(base + [504], worker=1, **more)
        if (before, after) != (0, 6 * BLOCK):
            caches.wrong.append(f'{more}: cached {before}, then {after}')
    caches.report('adapter and salt: predicted hits are cached_tokens')


def check_rendering(stack):
    """Members that the chat route renders and /tokenize ignores."""
    text = 'Explain how a cache of blocks works. ' * 30
    for name, more in (('reasoning_effort', dict(reasoning_effort='high')), ('documents', dict(documents=[dict(title='a', text='b')])),
                       ('truncate_prompt_tokens', dict(truncate_prompt_tokens=200)), ('tools', dict(tools=[dict(type='function', function=dict(
                           name='look', description='d', parameters=dict(type='object', properties={})))], tool_choice='none'))):
        body = dict(model='llama', max_tokens=1, messages=[{'role': 'user', 'content': name + text}], **more)
        query = {'x-kvroute-query': 'true', 'x-kvroute-worker': '1'}
        predicted, cached = [], []
        for _ in range(3):
            status, fields, answer = stack.post('/v1/chat/completions', body, {'x-kvroute-worker': '1'})
            if status != 200:
                return check(name, False, f'{status} {answer}')
            predicted.append(int(fields.get('x-kvroute-overlap-blocks', -1)) * BLOCK)
            cached.append(answer['usage']['prompt_tokens_details']['cached_tokens'])
            wait_for(lambda: int(stack.post('/v1/chat/completions', body, query)[1].get('x-kvroute-overlap-blocks', 0)) > 0, 2)
        check(f'chat with {name}: predicted hits are cached_tokens', predicted == cached and cached[-1] > 0, f'predicted {predicted}, cached {cached}')


def check_resets(stack, caches):
    prompt = ids(8 * BLOCK)
    caches.ask(prompt, worker=1)
    status = request(8101, 'POST', '/reset_prefix_cache')[0]
    caches.ask(ids(2 * BLOCK), worker=1)  # vLLM publishes events when it computes
    check('/reset_prefix_cache: the router forgets the blocks', status == 200 and wait_for(
        lambda: stack.overlap(prompt + [1], headers={'x-kvroute-worker': '1'}) == 0, 10), f'{status}, {stack.overlap(prompt + [1])}')
    caches.ask(prompt + [2], worker=1)

    request(8101, 'POST', '/pause')
    wait_for(lambda: stack.serving() == {'2'}, 5)
    answers = in_parallel(6, 6, lambda i: stack.post('/v1/completions', dict(model='llama', prompt=ids(40), max_tokens=1), timeout=15))
    lost = sum(not (isinstance(a, tuple) and a[0] == 200) for a in answers)
    request(8101, 'POST', '/resume')
    check('/pause: a paused engine receives no requests', lost == 0, f'{lost} of 6 unanswered')
    check('/resume: the engine serves again', wait_for(lambda: '1' in stack.serving(), 20) and wait_for(
        lambda: stack.post('/v1/completions', dict(model='llama', prompt=[5], max_tokens=1), {'x-kvroute-worker': '1'}, timeout=20)[0] == 200, 20))


def check_kills(stack, caches):
    """SIGKILL of an agent, then of an engine."""
    prompt = ids(9 * BLOCK)
    caches.ask(prompt, worker=1)
    unseen = ids(5 * BLOCK)

    def start_agent(number):
        request(8101, 'POST', '/v1/completions', dict(model='llama', prompt=unseen, max_tokens=1))
        stack.agent(number)
    stack.restart_agent(1, start_agent)
    check('a new agent receives events of its absence', caches.settle(prompt, 1) and caches.settle(unseen, 1), stack.warnings('agent1')[-2:])
    caches.ask(prompt + [3], worker=1)
    caches.ask(unseen + [3], worker=1)

    stack.kill('engine1')
    check('a killed engine leaves', wait_for(lambda: stack.serving() == {'2'}, 20), stack.serving())
    refused = [a for a in (stack.complete(ids(50)) for _ in range(10)) if a[0] != 200]
    check('requests go to the other engine', not refused, refused[:1])
    start_engine(stack, 1, *ONE)
    stack.require('engine 1 does not start', engine_is_up(1), LIMIT, 'engine1')
    check('the engine returns', wait_for(lambda: stack.serving() == {'1', '2'}, 60), stack.serving())
    equal('the new engine has no blocks', stack.overlap(prompt + [1], headers={'x-kvroute-worker': '1'}), 0)
    for _ in range(2):
        caches.ask(prompt + [4], worker=1)
    caches.report('after reset, replay and restart: predicted hits are cached_tokens')


def check_cancel(stack):
    """A client that goes away ends the request in the engine."""
    import http.client
    connection = http.client.HTTPConnection('127.0.0.1', 8000)
    body = dict(model='llama', prompt=ids(20), max_tokens=4000, stream=True, ignore_eos=True)
    connection.request('POST', '/v1/completions', json.dumps(body), {'content-type': 'application/json', 'x-kvroute-worker': '2'})
    connection.getresponse().readline()
    running = lambda: [line for line in request(8102, 'GET', '/metrics')[2].decode().splitlines() if line.startswith('vllm:num_requests_running')][0].split()[1]
    began = running()
    connection.sock.shutdown(2)
    connection.close()
    check('a cancelled stream ends in the engine', began == '1.0' and wait_for(lambda: running() == '0.0', 10), f'{began}, then {running()} running')


def run_two_engines():
    with Stack({'llama': dict(block_size=BLOCK)}) as stack:
        for number in (1, 2):
            start_engine(stack, number, *ONE)
        for number in (1, 2):
            stack.require(f'engine {number} does not start', engine_is_up(number), LIMIT, f'engine{number}')
        if RECORD:
            record.record_vllm(stack, 8101)
        for number in (1, 2):
            stack.agent(number)
        stack.gateway('--tokenize', 'http://127.0.0.1:8101/tokenize', '--tokenize-ms', 5000, '--adapter', 'ad1=llama')
        stack.require_workers(1, 2)
        check('agents with nothing but --engine serve', True)
        caches = Caches(stack)
        for name, function, args in (('hits', check_hits, (stack, caches)), ('copies', check_copies_and_eviction, (caches,)),
                                     ('adapter and salt', check_adapter_and_salt, (caches,)), ('rendering', check_rendering, (stack,)),
                                     ('cancelled stream', check_cancel, (stack,)), ('resets', check_resets, (stack, caches)),
                                     ('kills', check_kills, (stack, caches))):
            with attempt(name):
                function(*args)
        counters = stack.agent_counters(2)
        bad = {k: v for k, v in counters.items() if v and k in ('bad', 'unknown', 'orphans', 'size', 'few_tokens', 'medium', 'gaps', 'canary_wrong')}
        check('the agent understood all events', counters.get('events') and not bad, f'{counters}')


def run_ranks():
    with Stack({'llama': dict(block_size=BLOCK)}) as stack:
        start_engine(stack, 1, '--data-parallel-size', 2, VLLM_ENABLE_V1_MULTIPROCESSING='1')
        stack.require('the engine of two ranks does not start', engine_is_up(1), LIMIT, 'engine1')
        if RECORD:
            record.record_vllm(stack, 8101, '-dp2', ('metrics', 'kv_event_sources'))
        stack.agent(1)
        stack.gateway()
        stack.require_workers(1)
        ranks = stack.telemetry('/kvroute/worker,1')
        blocks = {r: v.get('kv_total_blocks') for r, v in ranks.get('ranks', {}).items()}
        equal('two ranks: their number', len(blocks), 2)
        equal('two ranks: blocks of each', sorted(blocks.values(), key=str), [BLOCKS, BLOCKS])
        prompts, wrong, used = [ids(6 * BLOCK) for _ in range(10)], [], set()
        for prompt in prompts * 2:
            status, fields, body = stack.complete(prompt + ids(5))
            predicted = int(fields.get('x-kvroute-overlap-blocks', -1)) * BLOCK
            cached = body['usage']['prompt_tokens_details']['cached_tokens'] if status == 200 else body
            used.add(fields.get('x-kvroute-dp-rank'))
            if predicted != cached:
                wrong.append((fields.get('x-kvroute-dp-rank'), predicted, cached))
            wait_for(lambda: stack.overlap(prompt + [1]) == 6, 5)
        check('two ranks, 20 prompts: predicted hits are cached_tokens', not wrong and len(used) == 2, f'{wrong[:3]}, ranks {used}')


def make_model():
    if not os.path.exists(f'{MODEL}-lora/adapter_config.json'):
        os.makedirs(os.path.dirname(MODEL), exist_ok=True)
        subprocess.run([PYTHON, f'{os.path.dirname(os.path.abspath(__file__))}/tiny_model.py', 'vllm', MODEL], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, env=dict(os.environ, HF_HUB_OFFLINE='1'))


if __name__ == '__main__':
    signal.signal(signal.SIGTERM, lambda *_: exit(1))
    if 'avx2' not in open('/proc/cpuinfo').read():
        skip('all', 'this CPU has no AVX2')
    else:
        make_model()
        with attempt(sys.argv[1]):
            dict(two=run_two_engines, ranks=run_ranks)[sys.argv[1]]()
