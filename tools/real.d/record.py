# SPDX-License-Identifier: BSD-3-Clause
"""Responses of running engines as files of tests/data/engines/ENGINE-VERSION (tools/real --record)."""

import json
import os
import re

from stack import ROOT, request, wait_for

MESSAGES = [{'role': 'user', 'content': 'hello'}]
# Values that differ by run: replaced, so that a new recording changes only what the engine changed.
VOLATILE = {'created': 1, 'created_at': 1, 'completed_at': 1, 'instance_id': '0'}
IDENTIFIER = re.compile(r'\b(chatcmpl|cmpl|resp|msg|modelperm|call|item|vllm-[0-9.]+)([-_])[0-9a-f]{8,}(-[0-9a-f]{4,})*\b')
# Members of /server_info that describe the machine: only these of them are kept.
MACHINE = {'vllm_env': ('VLLM_SERVER_DEV_MODE',), 'system_env': ('vllm_version',)}
SCALARS = re.compile(r'\[\s+([^\[\]{}]*?)\s+\]')


def stable(value, name=''):
    if isinstance(value, dict):
        return {k: stable(v, k) for k, v in value.items() if k in MACHINE.get(name, value)}
    if isinstance(value, list):
        return [stable(v, name) for v in value]
    if isinstance(value, str):
        value = IDENTIFIER.sub(r'\1\g<2>0', re.sub(r'/\S*/model\b', 'model', value))
    return VOLATILE.get(name, value)


def as_text(value):
    """JSON with one member a line; lists of scalars stand on one line."""
    return SCALARS.sub(lambda m: '[' + re.sub(r',\s+', ', ', m[1]) + ']', json.dumps(stable(value), indent=1)) + '\n'


def write(folder, name, value):
    os.makedirs(folder, exist_ok=True)
    with open(f'{folder}/{name}', 'w') as f:
        f.write(value if isinstance(value, str) else as_text(value))


def metrics(text):
    """Metrics of the engine without help, buckets, creation times and its process."""
    out, kind = [], ''
    for line in text.decode().splitlines():
        if line.startswith('# TYPE'):
            kind = line
        elif line[0] != '#' and ':' in line.split('{')[0] and not re.match(r'\S*_(bucket|created)\b', line):
            if kind and not kind.endswith('_created gauge'):
                out.append(kind)
                kind = ''
            out.append(line)
    return '\n'.join(out) + '\n'


def last_event(body):
    """The last message of a stream, and the first that carries text."""
    events = [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith('data: {')]
    return events[-1], next((e for e in events if e.get('choices') and e['choices'][0]['delta'].get('content')), events[0])


def kv_events(endpoint, produce):
    """The first batch of KV events that arrives while produce() is called again and again, decoded."""
    import msgspec
    import zmq
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.connect(endpoint)
    socket.subscribe(b'')
    batches = []

    def received():
        produce()
        if socket.poll(500):
            topic, number, payload = socket.recv_multipart()
            batches.append(dict(topic=topic.decode(), number=int.from_bytes(number, 'big'), batch=msgspec.msgpack.decode(payload)))
        return batches
    wait_for(received, 20)
    socket.close(0)
    for batch in batches:
        batch['batch'][0] = 1.0
    return json.loads(json.dumps(batches[:1], default=lambda b: b.hex()))


def prompts(port):
    """A function that requests a completion of 70 tokens, different at each call."""
    numbers = iter(range(20, 800, 7))
    return lambda: request(port, 'POST', '/v1/completions', dict(model='llama', prompt=[next(numbers)] * 70, max_tokens=1))


def record_sglang(engine, produce):
    """SGLang's own publisher; the other pages of its folder are derived from sources."""
    version = engine.options.version
    write(f'{ROOT}/tests/data/engines/sglang-{version}', 'kv_events', kv_events(engine.options.events.replace('*', '127.0.0.1'), produce))


def record_mocker(port, endpoint, version):
    """The reference's front end before its mocker."""
    folder = f'{ROOT}/tests/data/engines/dynamo-{version}'
    post = lambda **body: request(port, 'POST', '/v1/completions', dict(dict(model='llama', max_tokens=2), **body))[2]
    write(folder, 'metrics', ''.join(f'{line}\n' for line in request(port, 'GET', '/metrics')[2].decode().splitlines()
                                     if not re.match(r'# HELP|\S*_(bucket|created|sum)\b', line)))
    write(folder, 'v1_models', request(port, 'GET', '/v1/models')[2])
    write(folder, 'v1_completions', post(prompt=list(range(100, 140))))
    write(folder, 'error', post(model='x', prompt=[100]))
    write(folder, 'kv_events', kv_events(endpoint, prompts(port)))


def record_vllm(stack, port, suffix='', pages=None):
    version = request(port, 'GET', '/version')[2]['version']
    folder = f'{ROOT}/tests/data/engines/vllm-{version}'
    get = lambda path: request(port, 'GET', path)[2]
    post = lambda path, **body: request(port, 'POST', path, dict(model='llama', **body))[2]
    found = {
        'metrics': lambda: metrics(get('/metrics')),
        'v1_models': lambda: get('/v1/models'),
        'kv_event_sources': lambda: get('/kv_event_sources'),
        'server_info': lambda: get('/server_info?config_format=json'),
        'is_paused': lambda: get('/is_paused'),
        'error-framework': lambda: get('/nothing'),
        'error': lambda: request(port, 'POST', '/v1/completions', dict(model='x', prompt=[5]))[2],
        'tokenize': lambda: post('/tokenize', prompt='hello'),
        'tokenize-chat': lambda: post('/tokenize', messages=MESSAGES),
        'v1_completions_render': lambda: post('/v1/completions/render', prompt='hello'),
        'v1_chat_completions_render': lambda: post('/v1/chat/completions/render', messages=MESSAGES),
        'v1_responses_render': lambda: post('/v1/responses/render', input='hello'),
        'v1_messages_render': lambda: post('/v1/messages/render', messages=MESSAGES, max_tokens=3),
        'v1_completions': lambda: post('/v1/completions', prompt=[5, 6, 7], max_tokens=2),
        'v1_chat_completions': lambda: post('/v1/chat/completions', messages=MESSAGES, max_tokens=2),
        'v1_chat_completions-chunk': lambda: last_event(post('/v1/chat/completions', messages=MESSAGES, max_tokens=2, stream=True))[1],
        'v1_responses-event': lambda: last_event(post('/v1/responses', input='hello', max_output_tokens=3, stream=True))[0],
        'v1_messages': lambda: post('/v1/messages', messages=MESSAGES, max_tokens=3),
        'kv_events': lambda: kv_events(f'tcp://127.0.0.1:{port + 909}', prompts(port)),
    }
    for name in pages or found:
        write(folder, name + suffix, found[name]())
    return folder
