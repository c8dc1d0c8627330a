# SPDX-License-Identifier: BSD-3-Clause
"""End to end: HTTP to kvroute-gateway, the router, kvroute-agent, two stand-in engines, and back.

protocol_test.sh starts it: http_test.py KVROUTE KVROUTE_AGENT KVROUTE_GATEWAY
"""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import child
import kvrproto as p
from agent_lib import Agent, Engine, Front
from protocol_router import ADDRESSES, Router, Tally

POOLS = '''[pool llama]
id = 3
block_size = 16
seed = 1
max_ranks = 16
max_blocks = 65536
[pool pairs]
id = 4
block_size = 16
max_ranks = 4
max_blocks = 4096
eagle = on
'''
TALLY = Tally(110, patience=20.0)
GATEWAY = 19000


def ask(path, body, stream=False):
    """(status, fields, JSON or the events' JSON)."""
    connection = http.client.HTTPConnection('127.0.0.1', GATEWAY, timeout=30)
    try:
        if body is None:
            connection.request('GET', path)
        else:
            connection.request('POST', path, json.dumps({**body, 'stream': stream}), {'content-type': 'application/json'})
        answer = connection.getresponse()
        data = answer.read().decode()
    finally:
        connection.close()
    fields = {k.lower(): v for k, v in answer.getheaders()}
    if stream and answer.status == 200:
        return answer.status, fields, [json.loads(e[6:]) for e in data.split('\n\n') if e.startswith('data: {')]
    return answer.status, fields, json.loads(data) if data else None


def read_gateway_metric(name):
    with urllib.request.urlopen(f'http://127.0.0.1:{GATEWAY}/metrics') as answer:
        return next(int(line.split()[1]) for line in answer.read().decode().splitlines() if line.startswith(f'kvr_gateway_{name} '))


def text_of(n):
    return ''.join(f' {i % 10}' for i in range(n))


def conversations(front, engines):
    """Concurrent turns of several conversations: each returns to the rank that caches its beginning."""
    wrong, cached, less = [], [], []

    def one(number):
        messages = [{'role': 'system', 'content': f'You are number {number}. ' * 20}]
        for turn in range(4):
            messages.append({'role': 'user', 'content': f'turn {turn} of {number} ' * 5})
            stream = turn % 2 == 1
            body = {'model': 'llama', 'messages': messages, 'max_tokens': 8}
            if stream:
                body['stream_options'] = {'include_usage': True}
            status, fields, got = ask('/v1/chat/completions', body, stream)
            if status != 200:
                wrong.append((status, got))
                return
            if stream:
                text = ''.join(c['delta'].get('content') or '' for e in got for c in e['choices'])
                usage = got[-1]['usage']
            else:
                text, usage = got['choices'][0]['message']['content'], got['usage']
            if text != text_of(8):
                wrong.append((text, got))
            there, said = usage['prompt_tokens_details']['cached_tokens'], int(fields['x-kvroute-cached-tokens'])
            if there < said:
                less.append((there, said))
            if turn > 0:
                cached.append(there / usage['prompt_tokens'])
            messages.append({'role': 'assistant', 'content': text})
            time.sleep(0.3)  # lets the events of this turn reach the router
    threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    front.check('every answer is whole', not wrong, wrong[:2])
    front.check('36 later turns', len(cached) == 36, len(cached))
    front.check('no engine has less than the router said', not less, less)
    # Not all: a busy rank loses some to an idle one.
    front.check('they find their beginning', sum(c > 0.5 for c in cached) >= 20, sorted(cached))
    requests = [e.state()['count']['requests'] for e in engines]
    front.check('both engines work', min(requests) >= 4 and sum(requests) == 48, requests)


def errors(front, engines, agents):
    status, _, got = ask('/v1/completions', {'model': 'llama', 'prompt': 'a', 'max_tokens': -1})
    front.check('400 of the engine', status == 400 and 'max_tokens' in got['error']['message'], (status, got))
    for engine in engines:
        engine.test(error=500)
    status, _, got = ask('/v1/completions', {'model': 'llama', 'prompt': 'a', 'max_tokens': 3})
    front.check('500 of the engine', status == 500 and 'error' in got, (status, got))
    for engine in engines:
        engine.test(error=0, break_after=2)
    status, _, got = ask('/v1/completions', {'model': 'llama', 'prompt': 'a', 'max_tokens': 9})
    front.check('an engine that breaks off', status >= 500 and 'error' in got, (status, got))
    for engine in engines:
        engine.test(break_after=0, hang=True)
    connection = http.client.HTTPConnection('127.0.0.1', GATEWAY, timeout=30)
    connection.request('POST', '/v1/completions', json.dumps({'model': 'llama', 'prompt': 'b'}),
                       {'content-type': 'application/json'})
    running = lambda: sum(r['running'] for e in engines for r in e.state()['ranks'])  # noqa: E731
    front.until('it runs', lambda: running() == 1)
    connection.close()
    front.until('a client that goes stops the engine', lambda: running() == 0)
    for engine in engines:
        engine.test(hang=False)
    status, _, got = ask('/v1/completions', {'model': 'llama', 'prompt': [1, 2, 3] * 40, 'max_tokens': 3})
    front.check('and it goes on', status == 200 and got['choices'][0]['text'] == text_of(3), (status, got))


def eagle(front, router, agent, log):
    """A pool whose engine names blocks by windows of 17 tokens, and reports them as pairs."""
    engine = Engine('--model', 'pairs', '--eagle', ranks=1)
    a = Agent(agent, engine, ADDRESSES[0], 95, '--canary-s', '1', pool='pairs', log=log)
    try:
        front.pool = 4
        front.serving('eagle', router, a.worker)
        front.pool = 3
        for tokens, blocks in ((list(range(1000, 1064)), 3), (list(range(2000, 2065)), 4)):
            body = {'model': 'pairs', 'prompt': tokens, 'max_tokens': 1}
            got = ask('/v1/completions', body)
            front.check('answered', got[0] == 200, got)
            said = []

            def overlap():
                said[:] = [ask('/v1/completions', {**body, 'nvext': {'annotations': ['query_instance_id:']}})]
                return said[0][2]['overlap_blocks'] == blocks
            end = time.monotonic() + TALLY.patience
            while not overlap() and time.monotonic() < end:
                time.sleep(0.05)
            front.check(f'{len(tokens)} tokens are {blocks} windows, all of them known', said[0][2]['overlap_blocks'] == blocks, said)
            r = front.client.route(4, len(tokens), tokens=tokens, flags=p.ROUTE_QUERY)
            front.until('a query', lambda: r.ended)
            front.check('the router makes windows of tokens by itself', r.accepted and r.accepted['overlap_blocks'] == blocks, r.accepted)
        front.until('the canary knows such blocks', lambda: a.counters()['agent']['canaries'] > 0)
        front.check('and is content', a.counters()['agent']['canaries_bad'] == 0, a.counters()['agent'])
        front.until('/v1/models shows it', lambda: [m.get('eagle') for m in ask('/v1/models', None)[2]['data']] == [None, True],
                    lambda: ask('/v1/models', None))
        front.check('the agent leaves', a.stop() == 0)
    finally:
        a.kill()
        engine.stop()


def drains(front, router, engines, agents):
    """An agent drains itself, with and without an end: no request is lost."""
    over, wrong, n = threading.Event(), [], [0]
    for engine in engines:
        engine.test(decode_us=20000)

    def client(number):
        while not over.is_set():
            status, _, got = ask('/v1/completions', {'model': 'llama', 'prompt': [number] * 20, 'max_tokens': 8}, stream=True)
            n[0] += 1
            if status != 200 or ''.join(c['text'] for e in got for c in e.get('choices', [])) != text_of(8):
                wrong.append((status, got))

    def state(worker):
        return router.telemetry('/kvroute/workers')['workers'].get(f'{worker}', {}).get('state')

    def by():
        return router.telemetry('/kvroute/workers')['workers'][f'{first.worker}'].get('drained_by')

    def count():
        return engines[0].state()['count']['requests']
    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    first = agents[0]
    front.until('work', lambda: n[0] > 8)
    first.process.send_signal(signal.SIGUSR2)
    front.until('SIGUSR2 drains', lambda: state(first.worker) == 'drained')
    there, done = count(), n[0]
    front.until('the other one works', lambda: n[0] > done + 16)
    front.check('nothing comes', count() == there, (there, count()))
    front.check('the requester of the drain is shown', by() == 'agent', by())
    first.process.send_signal(signal.SIGUSR2)
    front.until('and resumes', lambda: state(first.worker) == 'serving' and count() > there)
    first.process.send_signal(signal.SIGUSR2)
    front.until('once more', lambda: state(first.worker) in ('draining', 'drained'))
    router.telemetry(f'/kvroute/resume,{first.worker}')
    there, done = count(), n[0]
    front.until("an operator's word after it counts", lambda: n[0] > done + 16)
    front.check('and stays', state(first.worker) == 'serving' and count() > there, (state(first.worker), there, count()))
    front.check('who drains it no more', by() is None, by())
    router.telemetry(f'/kvroute/drain,{first.worker}')
    front.check('now it is an operator', by() == 'operator', by())
    router.telemetry(f'/kvroute/resume,{first.worker}')
    front.check('SIGTERM ends it when nothing is left', first.stop() == 0)
    front.until('it has gone', lambda: state(first.worker) in (None, 'gone'))
    over.set()
    for t in threads:
        t.join()
    front.check('every stream was whole', not wrong and n[0] > 40, (n, wrong[:2]))
    for engine in engines:
        engine.test(decode_us=0)
    first.start()
    front.serving('back', router, first.worker)


def engine_dies(front, router, engines, agents):
    """An engine is killed with requests it has not begun to answer: the other one answers them."""
    got, before = [], read_gateway_metric('resubmitted_total')
    engines[0].test(hang=True)

    def client(number):
        got.append(ask('/v1/completions', {'model': 'llama', 'prompt': [number] * 20, 'max_tokens': 4}))
    threads, hung = [], lambda: sum(r['running'] for r in engines[0].state()['ranks'])
    while hung() < 2 and len(threads) < 60:
        threads.append(threading.Thread(target=client, args=(len(threads),)))
        threads[-1].start()
        time.sleep(0.05)
    n = hung()
    engines[0].kill()
    for t in threads:
        t.join()
    front.check('every request is answered', n >= 1 and [s for s, _, g in got if s != 200 or g['choices'][0]['text'] != text_of(4)] == [] and
                len(got) == len(threads), (n, [x for x in got if x[0] != 200]))
    front.check('those once more', read_gateway_metric('resubmitted_total') - before >= n, (before, n))
    engines[0].start()
    front.serving('back', router, agents[0].worker)


def main(kvroute, agent, gateway):
    router = Router(kvroute, POOLS)
    front = Front(TALLY, ADDRESSES[0])
    engines, agents, log = [], [], f'{router.dir}/agent.log'

    def test():
        for i, kind in enumerate(('vllm', 'sglang')):
            engines.append(Engine('--type', kind, '--model', 'llama'))
            agents.append(Agent(agent, engines[-1], ADDRESSES[0], 90 + i, '--type', kind, log=log))
        for a in agents:
            front.serving('http', router, a.worker)
        child.start([gateway, '--router', ADDRESSES[0], '--listen', f'127.0.0.1:{GATEWAY}', '--router-ms', '10000', '--explain', '--tokenize',
                     f'http://127.0.0.1:{engines[0].port}/tokenize'], stderr=open(log, 'ab'), stdin=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                if ask('/v1/models', None)[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        models = ask('/v1/models', None)[2]
        front.check('models', [m['id'] for m in models['data']] == ['llama'], models)
        conversations(front, engines)
        errors(front, engines, agents)
        eagle(front, router, agent, log)
        drains(front, router, engines, agents)
        engine_dies(front, router, engines, agents)
        TALLY.balanced(router)
        front.check('agents leave', [a.stop() for a in agents] == [0, 0])
        for engine in engines:
            engine.stop()
    TALLY.beside(router, test, log)


main(*sys.argv[1:])
