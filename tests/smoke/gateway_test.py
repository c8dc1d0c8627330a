# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-gateway between HTTP clients and agents of PROTOCOL.md: every endpoint, streams, hints, errors, invalid input.

protocol_test.sh starts it: gateway_test.py KVROUTE GATEWAY.
"""

import itertools
import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

import kvrproto as p
import metrics_test
from gateway_rig import Gateway, Tokenizer, beside, free_port, parse_message, response, serving, wait_for
from protocol_router import Router, Tally

B = 16
POOLS = f'''[pool llama]
id = 3
block_size = {B}
max_ranks = 16
max_blocks = 65536
[pool empty]
id = 4
block_size = {B}
max_ranks = 4
max_blocks = 4096
max_requests = 1024
[pool prompts]
id = 5
block_size = {B}
role = prefill
model = pair
max_ranks = 4
max_blocks = 4096
max_requests = 1024
[pool answers]
id = 6
block_size = {B}
role = decode
model = pair
max_ranks = 4
max_blocks = 4096
max_requests = 1024
'''
TALLY = Tally(200, patience=30.0)
check = TALLY.check
BODY = json.dumps({'model': 'llama', 'prompt': 'x', 'x_mode': 'split'}).encode()
EVENTS = [b'data: {"choices":[{"text":"a"}]}\n\n', b'data: {"choices":[{"text":"\xc3\xa4"}]}\n\n', b': a comment\r\n\r\n', b'data: [DONE]\n\n']


def serve(agents, agent, job):
    """The engine: acts on `x_mode` of the request."""
    job.method, job.target, job.fields, job.http_body = parse_message(job.dispatch.body)
    say = json.loads(job.http_body)
    mode = say.get('x_mode', 'stream' if say.get('stream') else 'json')

    def item(*a, **k):
        if job.aborted is None and not job.fin:
            agent.item(job, *a, **k)

    def events(i=0, gap=0.05):
        item(EVENTS[i], tokens=1, fin=i + 1 == len(EVENTS), status=200)
        if i + 1 < len(EVENTS):
            agents.at(gap, lambda: events(i + 1))

    if mode == 'json':
        echo = json.dumps({'target': job.target, 'body': job.http_body.decode(), 'fields': job.fields})
        item(response(body=echo.encode()), tokens=2, fin=True, status=200)
    elif mode == 'stream':
        item(response(content_type='text/event-stream'), status=200)
        events()
    elif mode == 'split':  # cut in the middle of the head
        whole = response(body=b'{"ok": true}')
        item(whole[:20], status=200)
        item(whole[20:], fin=True, status=200)
    elif mode == 'large':
        item(response(), status=200)
        for _ in range(400):
            item(b'x' * 1000, status=200)
        item(b'', fin=True, status=200)
    elif mode == 'flood':  # for a client that does not read
        item(response(content_type='text/event-stream'), status=200)

        def more():
            if len(job.sent) - job.acked < 32:
                for _ in range(16):
                    item(b'data: ' + b'x' * 1000 + b'\n\n', status=200)
            agents.at(0.002, more)
        more()
    elif mode == 'error':
        item(response(422, body=b'{"detail": "engine says no"}'), fin=True, status=422)
    elif mode == 'garbage':
        item(b'SMTP ready\r\n\r\n', fin=True, status=200)
    elif mode == 'nothing':
        item(b'', fin=True, status=200)
    elif mode == 'break':
        item(response(content_type='text/event-stream'), status=200)
        item(EVENTS[0] + b'data: {"half', tokens=1, status=200)
        agents.at(0.2, lambda: item(b'the engine fell over', fin=True, flags=2, status=500))
    elif mode == 'dies':  # a number of times, then another worker gets it
        if sum(job.http_body == j.http_body for j in agents.seen) <= say['times']:
            fails = p.ITEM_FAILED if say.get('status', 502) == 502 else 0
            item(b'the engine is gone', fin=True, flags=p.ITEM_ERROR | fails, status=say.get('status', 502), hints=p.rank_hint(agent.worker, 0))
        else:
            item(response(body=json.dumps({'worker': agent.worker}).encode()), tokens=1, fin=True, status=200)
    elif mode == 'ends':  # ends without a last item
        item(response(content_type='text/event-stream'), status=200)
        item(EVENTS[0], tokens=1, status=200)
        agents.at(0.2, lambda: item(b'', fin=True, status=200))
    elif mode == 'begin':
        item(response(content_type='text/event-stream'), status=200)
        item(EVENTS[0], tokens=1, status=200)
    # 'hang': nothing


def last(agents):
    return agents.runs()[-1]


def completions(gw, agents):
    body = '{"model": "llama",  "prompt":[1,2,3], "unknown": {"a": [1.0, null]}, "max_tokens":7 }'
    r = gw.post('/v1/completions', body, {'x-request-id': 'r-1', 'authorization': 'Bearer k', 'x-secret': 'no'})
    check('a completion is answered', r.status == 200 and r.headers['content-type'] == 'application/json', r)
    said = r.json()
    check('the body passes untouched', said['body'] == body, said)
    check('and its path', said['target'] == '/v1/completions', said)
    check('and the fields of the engine alone', said['fields'] == {
        'content-type': 'application/json', 'x-request-id': 'r-1', 'authorization': 'Bearer k'}, said['fields'])
    check('the answer has its length', r.headers.get('content-length') == str(len(r.body)), r.headers)
    job = last(agents)
    check('the router gets the length and the limit', (job.dispatch.isl, job.dispatch.max_tokens) == (3, 7), job.dispatch)
    ids = list(range(100, 100 + 3 * B + 5))
    gw.post('/v1/completions', {'model': 'llama', 'prompt': [ids]})
    check('ids become the hashes of their blocks', list(last(agents).dispatch.hashes) == p.sequence_hashes(ids, B))
    r = gw.post('/v1/completions', {'model': 'llama', 'prompt': 'x', 'x_mode': 'split'})
    check('an answer cut anywhere is one answer', (r.status, r.json()) == (200, {'ok': True}), r)
    r = gw.post('/v1/completions', {'model': 'llama', 'prompt': 'x', 'x_mode': 'large'})
    check('a large one is whole', (r.status, len(r.body)) == (200, 400000), r)
    r = gw.post('/v1/embeddings', {'model': 'llama', 'input': ['a', 'b']})
    check('embeddings', r.status == 200 and r.json()['target'] == '/v1/embeddings', r)
    r = gw.post('/v1/responses', {'model': 'llama', 'input': 'hello'})
    check('responses', r.status == 200 and r.json()['target'] == '/v1/responses', r)
    r = gw.post('/v1/completions', {'prompt': [1]})
    check('without a model and with two pools', r.status == 404, r)


def streams(gw, agents):
    r = gw.post('/v1/chat/completions', {'model': 'llama', 'stream': True, 'messages': [{'role': 'user', 'content': 'hi'}]})
    check('a stream passes byte for byte', r.body == b''.join(EVENTS) and r.headers['content-type'] == 'text/event-stream', r)
    # When each event arrives: the engine sends one every 50 ms.
    curl = subprocess.Popen(['curl', '-sN', '-H', 'content-type: application/json', '-d',
                             '{"model":"llama","stream":true,"prompt":"x"}', f'http://127.0.0.1:{gw.port}/v1/completions'],
                            stdout=subprocess.PIPE)
    first = curl.stdout.read(len(EVENTS[0]))
    rest = curl.stdout.read()
    check('the first event does not wait for the last', first == EVENTS[0] and rest == b''.join(EVENTS[1:]), (first, rest))
    curl.wait()
    # A client that offers an upgrade to HTTP/2 is served with HTTP/1.1.
    for flag, version in (('--http2-prior-knowledge', b'2'), ('--http2', b'1.1')):
        out = subprocess.run(['curl', '-sSN', flag, '-w', '%{http_version} %{http_code}', '-d',
                              '{"model":"llama","stream":true,"prompt":"x"}', f'http://127.0.0.1:{gw.port}/v1/completions'],
                             stdout=subprocess.PIPE, timeout=30).stdout
        check(f'HTTP/{version.decode()} with {flag}', out == b''.join(EVENTS) + version + b' 200', out)
    r = gw.post('/v1/completions', {'model': 'llama', 'stream': True, 'prompt': 'x', 'x_mode': 'break'})
    tail = r.body[len(EVENTS[0]):]
    check('a stream that breaks off ends with an error', r.body.startswith(EVENTS[0]) and b'\n\ndata: {"error":{' in tail and b'the engine fell over' in tail, r.body)


def old_http(gw, agents):
    """HTTP/1.0, the default of nginx: no chunks, so the connection ends with the answer, and a pipelined request with it."""
    def endings():
        n = gw.counters()
        return [n[f'kvr_gateway_requests_total{{outcome="{x}"}}'] for x in ('answered', 'failed', 'client_gone')]

    for mode, fields, want in (('ends', b'', EVENTS[0]), ('ends', b'connection: keep-alive\r\n', EVENTS[0]), ('stream', b'', b''.join(EVENTS)),
                               ('large', b'', b'x' * 400000)):
        before = endings()
        body = json.dumps({'model': 'llama', 'prompt': 'x', 'stream': True, 'x_mode': mode}).encode()
        head, _, out = gw.raw(b'POST /v1/completions HTTP/1.0\r\nhost: x\r\n%scontent-length: %d\r\n\r\n' % (fields, len(body)) + body,
                              seconds=20).partition(b'\r\n\r\n')
        check(f'HTTP/1.0: {mode}, {fields}', head.startswith(b'HTTP/1.1 200 ') and out == want, (head, out[-300:]))
        check('counted as answered', wait_for(lambda: endings() == [before[0] + 1, *before[1:]], 5), (before, endings()))


def gone(agents, job, name):
    check(name, wait_for(lambda: job.aborted is not None), (job.sent, job.aborted))


def cancels(gw, agents):
    """A client that disconnects, before and in the middle of its answer, with both versions of HTTP."""
    for mode in 'hang', 'stream':
        for flags in ([], ['--http2-prior-knowledge']):
            n = len(agents.runs())
            curl = subprocess.Popen(['curl', '-sN', *flags, '-d', json.dumps({'model': 'llama', 'prompt': 'x', 'stream': True,
                                                                            'x_mode': 'hang' if mode == 'hang' else 'flood'}),
                                     f'http://127.0.0.1:{gw.port}/v1/completions'], stdout=subprocess.PIPE)
            wait_for(lambda: len(agents.runs()) > n)
            if mode == 'stream':
                curl.stdout.read(100)
            job = last(agents)
            curl.kill()
            curl.stdout.close()
            curl.wait()
            gone(agents, job, f'closing cancels ({mode}, {flags})')
    body = json.dumps({'model': 'llama', 'prompt': 'x', 'x_mode': 'hang'}).encode()
    out = gw.raw(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n' % len(body) + body + b'', half_close=False,
                 seconds=0.5)
    gone(agents, last(agents), 'so does an abandoned connection')
    check('which had no answer', out == b'<timeout>', out)
    n = len(agents.runs())
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n' % len(body) + body)
        wait_for(lambda: len(agents.runs()) > n)
        s.shutdown(socket.SHUT_WR)
        got = s.recv(65536)
        check('a half-closed one gets 499', got.startswith(b'HTTP/1.1 499 '), got)
    gone(agents, last(agents), 'and its request is cancelled')
    before = gw.counters()['kvr_gateway_requests_cut_total{reason="slow_reader"}']
    # A client that does not read: its buffer is bounded, and no other client waits.
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        n = len(agents.runs())
        body = json.dumps({'model': 'llama', 'prompt': 'x', 'x_mode': 'flood', 'stream': True}).encode()
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n' % len(body) + body)
        wait_for(lambda: len(agents.runs()) > n)
        slow = last(agents)
        r = gw.post('/v1/completions', {'model': 'llama', 'prompt': 'x'})
        check('others are served beside a slow reader', r.status == 200, r)
        gone(agents, slow, 'a slow reader is cut off')
    check('and counted', gw.counters()['kvr_gateway_requests_cut_total{reason="slow_reader"}'] > before, before)


def hints(gw, agents):
    def said(headers=None, **more):
        r = gw.post('/v1/completions', {'model': 'llama', 'prompt': list(range(4 * B)), **more}, headers)
        return r, last(agents).dispatch

    r, d = said({'x-kvroute-worker': '102', 'x-kvroute-explain': '1', 'x-kvroute-dp-rank': '1'})
    check('a pin of a header', (d.worker, d.dp_rank) == (102, 1), (d.worker, d.dp_rank))
    check('the choice in the header', (r.headers.get('x-kvroute-worker'), r.headers.get('x-kvroute-dp-rank'),
                                       r.headers.get('x-kvroute-required-blocks')) == ('102', '1', '4'), r.headers)
    r, d = said({'x-kvroute-timing': '1'})
    t = json.loads(r.headers.get('x-kvroute-timing', '{}'))
    check('how it went', t.get('worker_id') == d.worker and t.get('isl') == 4 * B and t.get('required_blocks') == 4
          and t.get('ttft_us', 0) > 0, r.headers)
    r = gw.post('/v1/completions', {'model': 'llama', 'stream': True, 'prompt': [1, 2, 3], 'nvext': {'extra_fields': ['timing']}})
    tail = r.body[r.body.rindex(b'data: '):].split(b'\n\n')
    check('how a stream went', tail[1].startswith(b'\n: kvroute {') and json.loads(tail[1][11:])['isl'] == 3, r.body[-300:])
    r, d = said(nvext={'backend_instance_id': 101, 'dp_rank': 0, 'extra_fields': ['worker_id']})
    check('a pin of nvext', d.worker == 101 and r.headers.get('x-kvroute-worker') == '101', r)
    check('which stays in the body', '"nvext"' in r.json()['body'], r.body)
    r, d = said({'x-kvroute-allowed-workers': '102'})
    check('allowed workers', d.worker == 102, d.worker)
    r, d = said({'x-kvroute-required-taints': 'gpu=b'})
    check('a required taint', d.worker == 102, d.worker)
    r, d = said(nvext={'agent_hints': {'osl': 77, 'priority': 5}, 'strict_priority': 2})
    check('expected output', d.expected == 77, d)
    r, d = said(cache_salt='tenant')
    check('a salt changes the hashes', list(d.hashes) != p.sequence_hashes(range(4 * B), B), d.hashes)
    r = gw.post('/v1/completions', {'model': 'sql-adapter', 'prompt': list(range(4 * B))})
    d = last(agents).dispatch
    check('an adapter is a model', r.status == 200 and list(d.hashes) not in ([], p.sequence_hashes(range(4 * B), B)), r)
    r = gw.post('/v1/completions', {'model': 'alias', 'prompt': [1]})
    check('another name of a model', r.status == 200, r)
    n = len(agents.runs())
    r = gw.post('/v1/completions', {'model': 'llama', 'prompt': list(range(64))}, {'x-kvroute-query': 'true'})
    q = r.json()
    check('a query', r.status == 200 and q['worker_id'] in (101, 102) and q['required_blocks'] == 4, q)
    check('reaches no engine', len(agents.runs()) == n)
    for bad in ({'x-kvroute-worker': 'abc'}, {'x-kvroute-dp-rank': '-1'}, {'x-kvroute-preferred-taints': 'a'},
                {'x-kvroute-session': 's', 'x-kvroute-session-action': 'reopen'}):
        r, _ = said(bad)
        check(f'refused: {bad}', r.status == 400 and r.error()[0] == 'invalid_request_error', r)
    r, _ = said({'x-kvroute-worker': '999', 'x-kvroute-dp-rank': '0'})
    check('a pin to an unknown worker', r.status == 503, r)
    r, d = said({'x-kvroute-session': 'chat-1', 'x-kvroute-session-action': 'open', 'x-kvroute-session-timeout': '60'})
    check('a session is opened', r.status == 200 and any('chat-1' in str(a.sessions) for a in agents.agents), r)
    first = d.worker
    r, d = said({'x-kvroute-session': 'chat-1', 'x-kvroute-session-action': 'close'})
    check('used and closed', r.status == 200 and d.worker == first, r)


def route(gw, agents, router):
    """PreprocessedRequest."""
    ids = list(range(3 * B))
    r = gw.post('/v1/route', {'model': 'llama', 'token_ids': ids, 'stop_conditions': {'max_tokens': 9, 'stop': None},
                              'sampling_options': {'temperature': 0.5, 'seed': None}, 'strange': {'x': 1},
                              'routing': {'backend_instance_id': 101, 'dp_rank': 1, 'priority_jump': 0.5}})
    job = last(agents)
    sent = json.loads(job.http_body)
    check('a PreprocessedRequest is a stream', r.status == 200 and r.body == b''.join(EVENTS), r)
    check('with its pin', (job.dispatch.worker, job.dispatch.dp_rank, job.dispatch.max_tokens) == (101, 1, 9), job.dispatch)
    check('as a completion', job.target == '/v1/completions' and sent['prompt'] == ids and sent['stream'] is True
          and sent['max_tokens'] == 9 and sent['temperature'] == 0.5 and 'seed' not in sent, sent)
    check('with unknown fields', sent['strange'] == {'x': 1} and sent['token_ids'] == ids, sent)
    n = len(agents.runs())
    r = gw.post('/v1/route', {'model': 'llama', 'token_ids': ids, 'annotations': ['query_instance_id:']})
    q = r.json()
    check('query_instance_id answers the choice', r.status == 200 and q['worker_id'] in (101, 102) and q['token_ids'] == ids
          and q['prefill_worker_id'] is None, r)
    check('and reaches no engine', len(agents.runs()) == n)
    everything = {'model': 'llama', 'token_ids': [], 'prompt_embeds': None, 'multi_modal_data': None, 'mm_routing_info': None,
                  'stop_conditions': {}, 'sampling_options': {}, 'output_options': {}, 'eos_token_ids': [], 'mdc_sum': None,
                  'annotations': [], 'routing': None, 'router_config_override': None, 'prefill_result': None,
                  'migration_link': None, 'bootstrap_info': None, 'extra_args': None, 'router': None, 'agent_context': None,
                  'mm_processor_kwargs': None, 'request_timestamp_ms': None}
    r = gw.post('/v1/route', everything)
    check('all fields at their defaults', r.status == 200, r)
    r = gw.post('/v1/route', {'model': 'llama', 'token_ids': [1], 'mm_routing_info': {
        'routing_token_ids': ids, 'block_mm_infos': [None, {'mm_objects': [{'mm_hash': 77, 'offsets': [[0, 4]]}]}, None]}})
    check('a picture is part of its block', r.status == 200
          and list(last(agents).dispatch.hashes) == p.sequence_hashes(ids, B, mm={1: [77]}) != p.sequence_hashes(ids, B), r)
    r = gw.post('/v1/route', {'model': 'llama', 'token_ids': [5, 6], 'annotations': ['query_instance_id:'], 'mm_routing_info': {
        'routing_token_ids': ids, 'block_mm_infos': [None]}})
    check('the choice has the ids of the prompt, not those of the routing', r.status == 200 and r.json()['token_ids'] == [5, 6]
          and r.json()['required_blocks'] == 3, r)
    r = gw.post('/v1/route', {'model': 'llama', 'token_ids': [[1, 2], [3]], 'encoding_format': 'float'})
    job = last(agents)
    sent = json.loads(job.http_body)
    check('a PreprocessedEmbeddingRequest', r.status == 200 and job.target == '/v1/embeddings' and job.dispatch.isl == 3
          and sent['input'] == [[1, 2], [3]] and sent['encoding_format'] == 'float' and not list(job.dispatch.hashes), (r, sent))
    n = len(agents.runs())
    r = gw.post('/v1/route', {'model': 'llama', 'token_ids': ids, 'annotations': ['query_instance_id']})
    check('without its colon it is no query', r.status == 200 and len(agents.runs()) == n + 1, r)
    probes(gw, agents, router, ids)
    r = gw.post('/v1/route', {'model': 'llama', 'token_ids': [1, 2, 3], 'router_config_override': {'router_temperature': -1}})
    check('a bad override is refused', r.status == 400, r)


def probes(gw, agents, router, ids):
    """A health probe goes to its pinned worker, and only the probe counter counts it."""
    def counts():
        return {k: v for k, v in router.telemetry('/kvroute/pools')['pools']['llama']['requests'].items() if k != 'late_frame'}

    # A client has its answer before the router has counted all of it.
    check('what came before has ended', wait_for(lambda: counts()['live'] == 0), counts())
    before, sessions = counts(), router.telemetry('/kvroute/sessions')
    r = gw.post('/v1/route', {'model': 'llama', 'token_ids': ids, '_HEALTH_CHECK': True,
                              'routing': {'backend_instance_id': 102, 'dp_rank': 0}},
                {'x-kvroute-session': 'probe', 'x-kvroute-session-action': 'open', 'x-kvroute-session-timeout': '60'})
    d = last(agents).dispatch
    check('a probe goes where it is pinned, without hashes', r.status == 200 and d.worker == 102 and not list(d.hashes), r)
    check('the agent sees what it is', d.flags & p.ROUTE_HEALTH, d.flags)
    wait_for(lambda: counts()['health_probes'] > before['health_probes'] and counts()['live'] == 0)
    after = counts()
    check('a probe is counted as a probe', after.pop('health_probes') == before.pop('health_probes') + 1, after)
    check('no session knows it', router.telemetry('/kvroute/sessions') == sessions and not any('probe' in str(a.sessions) for a in agents.agents),
          router.telemetry('/kvroute/sessions'))
    check('and as nothing else', after == before, {k: (before[k], v) for k, v in after.items() if v != before[k]})


def errors(gw, agents):
    def refused(name, status, r, code=None):
        check(name, r.status == status and (code is None or r.error()[1] == code), r)

    refused('no JSON', 400, gw.post('/v1/completions', '{"model": "llama", '), 'invalid_request')
    refused('JSON and more', 400, gw.post('/v1/completions', '{} {}'))
    refused('no object', 400, gw.post('/v1/completions', '[]'))
    refused('no body', 400, gw.post('/v1/completions', ''))
    for field, value in (('model', 7), ('prompt', 7), ('prompt', {}), ('prompt', []), ('prompt', [1, 'a']), ('prompt', [-1]),
                         ('prompt', [True]), ('stream', 'yes'), ('max_tokens', -1), ('max_tokens', 'x'), ('nvext', 5),
                         ('nvext', {'annotations': 3}), ('cache_salt', 3), ('prompt', [1.5])):
        refused(f'{field} = {value}', 400, gw.post('/v1/completions', {'model': 'llama', 'prompt': 'x', field: value}))
    refused('messages are missing', 400, gw.post('/v1/chat/completions', {'model': 'llama'}))
    refused('deep JSON', 400, gw.post('/v1/completions', '{"a":' * 2000 + '1' + '}' * 2000))
    refused('no such model', 404, gw.post('/v1/completions', {'model': 'gpt-9', 'prompt': 'x'}), 'model_not_found')
    refused('no such path', 404, gw.post('/v2/completions', {}), 'unknown_url')
    refused('no such method', 405, gw.call('GET', '/v1/completions'))
    refused('a pool without workers', 503, gw.post('/v1/completions', {'model': 'empty', 'prompt': 'x'}), 'NoEndpoints')
    refused('engine: garbage', 502, gw.post('/v1/completions', {'model': 'llama', 'prompt': 'x', 'x_mode': 'garbage'}),
            'bad_gateway')
    refused('engine: nothing', 502, gw.post('/v1/completions', {'model': 'llama', 'prompt': 'x', 'x_mode': 'nothing'}))
    r = gw.post('/v1/completions', {'model': 'llama', 'prompt': 'x', 'x_mode': 'error'})
    check("the engine's own refusal passes", (r.status, r.body) == (422, b'{"detail": "engine says no"}'), r)
    with agents.lock:
        for agent in agents.agents:
            agent.refuse = 5
    refused('the worker refuses', 502, gw.post('/v1/completions', {'model': 'llama', 'prompt': 'x'}), 'DispatchFailed')
    with agents.lock:
        for agent in agents.agents:
            agent.refuse = 0
    n = gw.counters()
    check('bad JSON is counted', n['kvr_gateway_rejections_total{reason="bad_json"}'] >= 18, n)
    check('bad answers are counted', n['kvr_gateway_bad_answers_total'] == 2, n)


def drips(gw):
    """A body of which a byte arrives now and then."""
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{')
        s.settimeout(0.2)
        got = b''
        for _ in range(100):
            try:
                part = s.recv(65536)
                got += part
                if not part:
                    return got
            except TimeoutError:
                s.sendall(b' ')
        return got + b'<timeout>'


def late(gw):
    """--header-ms is 2000: a request that begins 1.7 s after the last answer has the full time."""
    body = json.dumps({'model': 'llama', 'prompt': 'x'}).encode()
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.settimeout(20)
        s.sendall(b'GET /health HTTP/1.1\r\nhost: x\r\n\r\n')
        s.recv(65536)
        time.sleep(1.7)
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n' % len(body))
        time.sleep(0.8)
        try:
            s.sendall(body)
            got = s.recv(65536)
        except ConnectionError as e:
            got = str(e).encode()
        check('a request that comes late in the pause is served', got.startswith(b'HTTP/1.1 200 '), got)


def grows(gw):
    """A body over a slow line: it takes longer than --header-ms, but grows."""
    body = json.dumps({'model': 'llama', 'prompt': 'x', 'x_mode': 'split', 'pad': 'x' * 1000000}).encode()
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.settimeout(20)
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n' % len(body))
        try:
            for i in range(5):
                s.sendall(body[i * 202000:(i + 1) * 202000])
                time.sleep(0.7 if i < 4 else 0)
            got = s.recv(65536)
        except ConnectionError as e:
            got = str(e).encode()
        check('a body that grows may take its time', got.startswith(b'HTTP/1.1 200 '), got[:100])


def parts(gw):
    """The time of a partial request that arrives together with the one before starts at that moment."""
    first, second = b'GET /health HTTP/1.1\r\nhost: x\r\n\r\n', b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n' % len(BODY) + BODY
    for n in (20, len(second) - 5):
        out = gw.raw(first + second[:n], seconds=20)
        check(f'{n} bytes that came with the request before: 408', out.startswith(b'HTTP/1.1 200 ') and out.count(b'HTTP/1.1 408 ') == 1 and
              b'"code":"request_timeout"' in out and not out.endswith(b'<timeout>'), out)
        with socket.create_connection(('127.0.0.1', gw.port)) as s:
            s.settimeout(20)
            s.sendall(first + second[:n])
            out = s.recv(65536)
            s.sendall(second[n:])
            while b'{"ok": true}' not in out and (part := s.recv(65536)):
                out += part
            check('with its rest it is served', out.count(b'HTTP/1.1 200 ') == 2 and b'{"ok": true}' in out, out)


def bad_http(gw, agents):
    big = 2000000
    r = gw.raw(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n{' % big)
    check('413 before the body', r.startswith(b'HTTP/1.1 413 ') and b'"code":"request_too_large"' in r, r)
    r = gw.raw(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n' + b'40000\r\n' + b'x' * 0x40000 + b'\r\n'
               + b'100000\r\n' + b'x' * 1000000)
    check('413 in the middle of a chunked one', b' 413 ' in r[:20], r[:200])
    r = gw.raw(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\n' + b'x-long: ' + b'y' * 100000 + b'\r\n\r\n')
    check('a header that is too long', b'200' not in r[:15], r[:200])
    bad = {'no HTTP': b'\x16\x03\x01\x02\x00\x01garbage\r\n\r\n', 'a blank in a name': b'GET / HTTP/1.1\r\na b: c\r\n\r\n',
           'another version': b'GET / HTTP/3.7\r\n\r\n', '200 fields': b'GET / HTTP/1.1\r\n' + b'x: y\r\n' * 200 + b'\r\n'}
    before = gw.counters()['kvr_gateway_http_errors_total']
    for name, head in bad.items():
        head, _, body = gw.raw(head, seconds=20).partition(b'\r\n\r\n')
        check(f'{name}: 400, JSON, and the end', head.startswith(b'HTTP/1.1 400 ') and b'application/json' in head
              and json.loads(body)['error']['code'] == 'invalid_request', (head, body))
    check('all counted', gw.counters()['kvr_gateway_http_errors_total'] == before + 4)
    r = gw.raw(b'\x16\x03\x01\x02\x00\x01garbage\r\n\r\n', seconds=5)
    check('no HTTP', b' 200 ' not in r and b'<timeout>' not in r, r[:200])
    start = time.monotonic()
    r = gw.raw(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-le', seconds=20)
    check('a slow head is cut off', b'<timeout>' not in r and time.monotonic() - start < 15, (r, time.monotonic() - start))
    slow = [r, gw.raw(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"model"', seconds=20), drips(gw)]
    check('and a slow body; all get 408', all(x.startswith(b'HTTP/1.1 408 ') and b'"code":"request_timeout"' in x and not
                                              x.endswith(b'<timeout>') for x in slow), slow)
    check('and counted', gw.counters()['kvr_gateway_requests_cut_total{reason="slow_request"}'] == 3, gw.counters())
    late(gw)
    grows(gw)
    check('a silent connection gets no answer', gw.raw(b'', seconds=20) == b'')
    check('nor counted', gw.counters()['kvr_gateway_requests_cut_total{reason="slow_request"}'] == 3, gw.counters())
    parts(gw)
    r = gw.post('/v1/completions', {'model': 'llama', 'prompt': 'x'})
    check('others are served', r.status == 200, r)
    check('errors of HTTP are counted', gw.counters()['kvr_gateway_http_errors_total'] >= 2, gw.counters())


def pages(gw, agents):
    r = gw.call('GET', '/v1/models')
    ids = {m['id']: m for m in r.json()['data']}
    check('models that are served', set(ids) == {'llama', 'alias', 'org/other', 'sql-adapter'}, r)
    check('with role and ranks', (ids['llama']['role'], ids['llama']['ranks'], ids['sql-adapter']['parent']) == ('aggregated', 4, 'llama'), r)
    for name, path in (('llama', 'llama'), ('alias', 'alias?x=y'), ('sql-adapter', 'sql-adapter'), ('org/other', 'org/other'), ('org/other', 'org%2Fother')):
        r = gw.call('GET', f'/v1/models/{path}')
        check(f'one model: {path}', r.status == 200 and r.json() == ids[name] and r.headers['content-type'] == 'application/json', r)
    for path in 'gpt-9', 'llam', 'llama2', 'llama/', 'org', 'empty', '%00', '%22':
        r = gw.call('GET', f'/v1/models/{path}')
        check(f'no model: {path}', r.status == 404 and r.error()[1] == 'model_not_found', r)
    r = gw.call('GET', '/v1/models/')
    check('no name', r.status == 404 and r.error()[1] == 'unknown_url', r)
    check('a model is read only', gw.call('DELETE', '/v1/models/llama').status == 405)

    def listed():
        return {m['id']: m['role'] for m in gw.call('GET', '/v1/models').json()['data']}

    pair = [p.Agent('10.9.0.1', 201, 'answers', B, role=2), p.Agent('10.9.0.1', 202, 'prompts', B, role=1)]
    agents.add(pair[0])
    time.sleep(2.2)  # it polls once a second
    r = gw.post('/v1/completions', {'model': 'answers', 'prompt': [1]})
    check('decode workers alone serve no request', r.status == 503 and 'answers' not in listed(), (r, listed()))
    agents.add(pair[1])
    check('with a prefill worker they do', wait_for(lambda: listed().get('answers') == 'decode') and 'prompts' not in listed(), listed())
    agents.remove(pair[1])
    check('and not any more', wait_for(lambda: 'answers' not in listed()), listed())
    agents.remove(pair[0])
    check('health', gw.call('GET', '/health').json() == {'status': 'ok'})
    check('ready', gw.call('GET', '/ready').json()['status'] == 'ready')
    r = gw.call('GET', '/metrics')
    check('metrics', b'# TYPE kvr_gateway_requests_total counter' in r.body and b'kvr_build_info{version="' in r.body
          and r.headers['content-type'] == 'text/plain; version=0.0.4; charset=utf-8', r)
    check('COMMANDS.md lists them', sorted(x for x in metrics_test.listed_metrics() if 'gateway' in x) ==
          sorted(re.findall(r'# TYPE (kvr_gateway_\w+) ', r.body.decode())), r.body)
    check('promtool check metrics', metrics_test.promtool_findings(r.body.decode()) in ([], None), metrics_test.promtool_findings(r.body.decode()))


def tokenizes(gw, agents, tokenizer):
    def n(name):
        return gw.counters()[f'kvr_gateway_{name}']

    text = 'What is the capital of the country in which this sentence was written?'
    before = n('tokenizer_queries_total{result="answered"}'), n('tokenizer_queries_total{result="cached"}')
    for _ in range(2):
        gw.post('/v1/completions', {'model': 'llama', 'prompt': text})
        check('text has the ids of the tokenizer', list(last(agents).dispatch.hashes) == p.sequence_hashes(text.encode(), B),
              (list(last(agents).dispatch.hashes), last(agents).dispatch.isl))
    check('asked once, then cached', (n('tokenizer_queries_total{result="answered"}'), n('tokenizer_queries_total{result="cached"}')) == (before[0] + 1, before[1] + 1))
    gw.post('/v1/chat/completions', {'model': 'llama', 'messages': [{'role': 'user', 'content': text}], 'temperature': 1})
    want = f'<|user|>{text}\n<|assistant|>'.encode()
    check('messages are rendered by the engine', list(last(agents).dispatch.hashes) == p.sequence_hashes(want, B))
    gw.post('/v1/chat/completions', {'model': 'llama', 'messages': [{'role': 'user', 'content': [
        {'type': 'image_url', 'image_url': {'url': 'data:,'}}]}]})
    check('media are routed by load', not list(last(agents).dispatch.hashes))
    by_load = n('routed_by_load_total')
    tokenizer.stop()
    r = gw.post('/v1/completions', {'model': 'llama', 'prompt': text + ' really'})
    check('without a tokenizer it is served', r.status == 200 and not list(last(agents).dispatch.hashes), r)
    check('by load', n('routed_by_load_total') == by_load + 1)


def lost(gw, agents):
    """Workers and engines that die with a request: it is sent once more while nothing of its answer has arrived."""
    def resubmitted():
        return gw.counters()['kvr_gateway_resubmitted_total']

    def ask(**more):
        return gw.post('/v1/completions', {'model': 'llama', 'prompt': 'x', 'user': str(next(numbers)), **more}, timeout=60)

    numbers, before, n = itertools.count(), resubmitted(), len(agents.runs())
    r = ask(x_mode='dies', times=1)
    check('an engine that is gone before it answers: another try', r.status == 200 and (len(agents.runs()), resubmitted()) == (n + 2, before + 1), r)
    r = ask(x_mode='dies', times=9)
    check('but one', r.status == 502 and r.error()[1] == 'engine_failed' and 'the engine is gone' in r.json()['error']['message'] and
          (len(agents.runs()), resubmitted()) == (n + 4, before + 2), r)
    short = Gateway(sys.argv[2], '--router', '10.9.0.1', '--request-ms', '200')
    check('one with a time limit', wait_for(short.ready))
    n = len(agents.runs())
    r = short.post('/v1/completions', {'model': 'llama', 'prompt': 'x', 'user': str(next(numbers)), 'x_mode': 'hang'})
    check('none beyond the limit of all tries', r.status == 503 and short.counters()['kvr_gateway_resubmitted_total'] == 0 and
          len(agents.runs()) <= n + 1, r)
    check('it ends', short.stop() == 0)
    r = ask(x_mode='dies', times=1, status=504)
    check('none for what its agent does not call a failure', r.status == 502 and resubmitted() == before + 2, r)
    r = ask(x_mode='dies', times=1, nvext={'backend_instance_id': 102, 'dp_rank': 0})
    check('nor for one that is pinned', r.status == 502 and resubmitted() == before + 2, r)
    with agents.lock:
        for agent in agents.agents:
            agent.refuse = 503
    r = ask()
    check('agents that are leaving: two more tries', r.status == 502 and r.error()[1] == 'DispatchFailed' and resubmitted() == before + 4, r)
    with agents.lock:
        for agent in agents.agents:
            agent.refuse = 0
    got, n = [], len(agents.runs())
    waiting = threading.Thread(target=lambda: got.append(ask(x_mode='hang')))
    waiting.start()
    for i in range(2):
        check('it is at a worker', wait_for(lambda: len(agents.runs()) == n + 1 + i), len(agents.runs()))
        worker = last(agents).dispatch.worker
        agents.remove(next(a for a in agents.agents if a.worker == worker))
    waiting.join(30)
    check('a worker that leaves: another try, and no more', got and got[0].status == 502 and got[0].error()[1] == 'WorkerLost' and
          (len(agents.runs()), resubmitted()) == (n + 2, before + 5), got)
    agents.add(p.Agent('10.9.0.1', 103, 'llama', B))
    waiting = threading.Thread(target=lambda: got.append(ask(x_mode='hang')))
    waiting.start()
    check('there is one worker', wait_for(lambda: len(agents.runs()) == n + 3))
    agents.remove(agents.agents[0])
    waiting.join(30)
    check('no worker is left: the reason of the loss is reported', got[1:] and got[1].status == 502 and got[1].error()[1] == 'WorkerLost', got[1:])
    agents.add(p.Agent('10.9.0.1', 104, 'llama', B))
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        body = json.dumps({'model': 'llama', 'prompt': 'x', 'stream': True, 'x_mode': 'begin'}).encode()
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n' % len(body) + body)
        out, s_n = s.recv(65536), resubmitted()
        agents.remove(agents.agents[0])
        agents.add(p.Agent('10.9.0.1', 105, 'llama', B))
        s.settimeout(20)
        while b'"error"' not in out and (part := s.recv(65536)):
            out += part
        check('what has begun ends with an error', EVENTS[0] in out and b'WorkerLost' in out and resubmitted() == s_n, out)


def stops(agents):
    """Requests in progress at SIGTERM: they have their time, and get an error when it is over."""
    def begin(gw, mode):
        n = len(agents.runs())
        body = json.dumps({'model': 'llama', 'prompt': 'x', 'stream': True, 'x_mode': mode}).encode()
        s = socket.create_connection(('127.0.0.1', gw.port))
        s.settimeout(20)
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n' % len(body) + body)
        check('it is under way', wait_for(lambda: len(agents.runs()) > n))
        return s, s.recv(65536) if mode == 'begin' else b''

    def comes(gw):
        """A request of which a part has been read."""
        s = socket.create_connection(('127.0.0.1', gw.port))
        s.settimeout(20)
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n' % len(BODY) + BODY[:5])
        check('there is a part', gw.call('GET', '/health').status == 200)  # which arrived later
        return s

    def refuses(gw):
        try:
            socket.create_connection(('127.0.0.1', gw.port), 5).close()
        except ConnectionRefusedError:
            return True
        return False

    def said(s, question):
        with s:
            try:
                s.sendall(question)
                return s.recv(4096)
            except ConnectionError:
                return b''
            except TimeoutError:
                return b'<timeout>'

    def rest(s, out):
        with s:
            try:
                while not out.endswith(b'\r\n0\r\n\r\n') and (part := s.recv(65536)):
                    out += part
            except ConnectionError:
                out += b'<reset>'
        return out

    gw = Gateway(sys.argv[2], '--router', '10.9.0.1', '--grace-s', '600')
    check('one with patience', wait_for(gw.ready))
    under_way = [begin(gw, mode) for mode in ('stream', 'hang', 'begin')]
    gw.process.terminate()
    whole = rest(*under_way[0])
    check('what ends by itself is whole', all(e.strip() in whole for e in EVENTS) and whole.endswith(b'0\r\n\r\n'), whole)
    check('the others have time', gw.process.poll() is None)
    gw.process.terminate()
    out = [rest(*x) for x in under_way[1:]]
    check('a second signal ends it', gw.process.wait(20) == 0)
    check('what had not begun is 503', out[0].startswith(b'HTTP/1.1 503 ') and b'"code":"stopping"' in out[0] and b'retry-after: 1' in out[0].lower(), out[0])
    check('a started answer gets the error in its stream, which ends', EVENTS[0] in out[1] and b'data: {"error":{' in out[1] and b'"code":"stopping"' in out[1] and
          out[1].endswith(b'0\r\n\r\n'), out[1])
    gw = Gateway(sys.argv[2], '--router', '10.9.0.1', '--grace-s', '0')
    check('one without', wait_for(gw.ready))
    s, half = begin(gw, 'hang'), comes(gw)
    check('ends', gw.stop() == 0)
    out = rest(*s)
    check('and the next one is rejected', out.startswith(b'HTTP/1.1 503 '), out)
    out = rest(half, b'')
    check('to whom a request comes from, too', out.startswith(b'HTTP/1.1 503 ') and b'"code":"stopping"' in out, out)
    gw = Gateway(sys.argv[2], '--router', '10.9.0.1', '--grace-s', '600')
    check('one to which a request comes', wait_for(gw.ready))
    half = comes(gw)
    gw.process.terminate()
    check('no new client is accepted', wait_for(lambda: refuses(gw)))
    half.sendall(BODY[5:])
    out = rest(half, b'')
    check('it is under way, and served', out.startswith(b'HTTP/1.1 200 ') and b'{"ok": true}' in out, out)
    check('that is all', gw.process.wait(20) == 0)
    gw = Gateway(sys.argv[2], '--router', '10.9.0.1', '--threads', '2', '--grace-s', '600')
    check('one of two threads', wait_for(gw.ready))
    ask, kept = b'GET /health HTTP/1.1\r\nhost: x\r\n\r\n', [socket.create_connection(('127.0.0.1', gw.port)) for _ in range(12)]
    for s in kept:
        s.settimeout(20)
        s.sendall(ask)
        check('it answers', s.recv(4096).startswith(b'HTTP/1.1 200 '))
    s = begin(gw, 'begin')
    gw.process.terminate()
    check('none of them takes a connection', wait_for(lambda: refuses(gw)))
    out = [said(x, ask) for x in kept]
    check('the ended one is not waited for', b'<timeout>' not in out, out)
    check('the other goes on', gw.process.poll() is None)
    gw.process.terminate()
    check('until it gets the error', b'"code":"stopping"' in rest(*s) and gw.process.wait(20) == 0)


def wrong_tokenizers(program, tokenizer):
    """A wrong URL is invisible to clients: the log reports it once, with the reason."""
    def log_of(url, prompts):
        with tempfile.TemporaryFile('w+') as log:
            gw = Gateway(program, '--router', '10.9.0.1', '--tokenize', url, log=log)
            check('it is ready', wait_for(gw.ready, 30))
            for i in range(prompts):
                r = gw.post('/v1/completions', {'model': 'llama', 'prompt': f'{i} of some prompts that are long enough for a block'})
                check('it is served', r.status == 200, r)
            gw.stop()
            log.seek(0)
            return log.read()

    line = 'thread 0: no token ids from the tokenizer; text prompts are routed by load'
    for url, reason in ((tokenizer.url[:-1], 'reason="status 404"'), (f'http://127.0.0.1:{free_port()}/tokenize', 'reason='),
                        (tokenizer.url.replace('tokenize', 'version'), 'reason=')):
        text = log_of(url, 5)
        check('the log says that there are no ids, once', text.count(line) == 1 and f'addr={url}' in text and reason in text, text)
    check('and nothing when there are', line not in log_of(tokenizer.url, 5))


def load(gw, agents):
    """Many at once, with both kinds of answers."""
    bad = []

    def one(i):
        for _ in range(10):
            r = gw.post('/v1/completions', {'model': 'llama', 'prompt': [i] * 40, 'stream': i % 2 == 0}, timeout=60)
            if r.status != 200 or (i % 2 == 0 and r.body != b''.join(EVENTS)):
                bad.append(r)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check('160 requests of 16 clients', not bad, bad[:2])


def run(log):
    tokenizer = Tokenizer('llama')
    peers = [p.Agent('10.9.0.1', 101, 'llama', B, ranks=2, hints=p.worker_hints(taints=['gpu=a'])),
             p.Agent('10.9.0.1', 102, 'llama', B, ranks=2, hints=p.worker_hints(taints=['gpu=b']))]
    with serving(TALLY, peers, serve, sys.argv[2], '--router', '10.9.0.1', '--model', 'alias=llama,org/other=llama', '--adapter', 'sql-adapter=llama',
                 '--tokenize', tokenizer.url, '--header-ms', '2000', '--max-buffer', '262144', '--max-body', '1032192', log=log) as (gw, agents):
        for part in (pages, completions, streams, old_http, cancels, hints, route, errors, bad_http, load, lost):
            part(gw, agents, *([ROUTER] if part is route else []))
        stops(agents)
        wrong_tokenizers(sys.argv[2], tokenizer)
        tokenizes(gw, agents, tokenizer)
        check('nothing is in flight', wait_for(lambda: gw.counters()['kvr_gateway_requests_in_flight'] == 0), gw.counters())
        n = gw.counters()
        check('every request has one ending', n['kvr_gateway_requests_started_total'] == sum(
            n[f'kvr_gateway_requests_total{{outcome="{x}"}}'] for x in ('answered', 'failed', 'rejected', 'client_gone')), n)
        check('no connection is left', wait_for(lambda: gw.counters()['kvr_gateway_connections_open'] <= 1), n)
    log.seek(0)
    lines = log.readlines()
    for what in (f'level=notice msg="kvroute-gateway .* runs as process [0-9]+: ready, 1 thread, 4096 connections each, routers 10.9.0.1, tokenizer .*" addr=127.0.0.1:{gw.port}',
                 'level=notice msg="thread 0: the router answers" addr=10.9.0.1',
                 'level=notice msg="stopping: active requests have 5 s to end" reason=TERM', 'level=notice msg=stopped'):
        check(f'the log says {what}', any(re.fullmatch(rf'time=\S+ {what}\n', line) for line in lines), lines)


ROUTER = Router(sys.argv[1], POOLS, 'suspect_ms = 20000\ndead_ms = 40000')
beside(TALLY, ROUTER, run)
