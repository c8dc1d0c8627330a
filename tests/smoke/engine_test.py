#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The stand-in engine alone: its HTTP, and a subscriber of its events that reconstructs its cache."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request

try:
    import msgpack
    import zmq
except ImportError as e:
    print(e)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
ENGINE = os.path.join(HERE, '..', 'lib', 'engine.py')
TALLY = [0, 0]


def check(what, ok, seen=''):
    TALLY[ok is False or not ok] += 1
    if not ok:
        print('FAILED:', what, seen)


def free_ports(n):
    held = [socket.socket() for _ in range(n)]
    for s in held:
        s.bind(('127.0.0.1', 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def call(port, path, body=None, headers={}):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f'http://127.0.0.1:{port}{path}', data, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def start(*args):
    engine = subprocess.Popen([sys.executable, ENGINE, *args], stdout=subprocess.PIPE, text=True)
    engine.stdout.readline()
    return engine


def believe(event, known, order=('type', 'block_hashes', 'parent_block_hash', 'token_ids')):
    """A subscriber's table: name of a block -> its parent's name and tokens."""
    e = event if isinstance(event, dict) else dict(zip(order, event))
    if e['type'] == 'AllBlocksCleared':
        known.clear()
    elif e['type'] == 'BlockRemoved':
        for h in e['block_hashes']:
            known.pop(h, None)
    elif e['type'] == 'BlockStored' and e['token_ids']:
        parent, n = e['parent_block_hash'], len(e['token_ids']) // len(e['block_hashes'])
        for i, h in enumerate(e['block_hashes']):
            known[h] = (parent, e['token_ids'][i * n:i * n + n])
            parent = h


def listen(*how):
    """Requests, evictions, losses and a replay; then the subscriber's table equals the engine's cache."""
    port, events, replay = free_ports(3)
    engine = start('--port', str(port), '--events', f'tcp://127.0.0.1:{events}', '--replay',
                   f'tcp://127.0.0.1:{replay}', '--blocks', '40', *how)
    try:
        context = zmq.Context.instance()
        sub = context.socket(zmq.SUB)
        sub.connect(f'tcp://127.0.0.1:{events}')
        sub.subscribe(b'')
        while not sub.poll(20):  # until the subscription has reached it
            call(port, '/_test', {'raw': msgpack.packb([0.0, [], 0]).hex()})
        known, next_seq = {}, int.from_bytes(sub.recv_multipart()[1], 'big') + 1
        name = f'{how}'
        for i in range(60):
            status, text = call(port, '/v1/completions', {
                'prompt': [i // 3 * 1000 + k for k in range(16 * (1 + i % 5))], 'max_tokens': 20})
            check(f'{name}: request', status == 200, text)
            if i == 30:
                call(port, '/_test', {'lose_events': 3})
        time.sleep(0.2)
        lost = []
        while sub.poll(300):
            _, seq, payload = sub.recv_multipart()
            seq = int.from_bytes(seq, 'big')
            if seq != next_seq:
                got, framing = replayed(context, replay, next_seq)
                lost.append(seq - next_seq)
                check(f'{name}: replay framing', framing == (3 if '--early' in how or 'old' in how else 4), framing)
                for s, p in got:
                    if next_seq <= s < seq:
                        for e in msgpack.unpackb(p)[1]:
                            believe(e, known)
            batch = msgpack.unpackb(payload)
            for e in batch[1]:
                believe(e, known)
            next_seq = seq + 1
        state = json.loads(call(port, '/_test')[1])
        check(f'{name}: three were lost', sum(lost) == 3, lost)
        check(f'{name}: blocks', len(known) == state['ranks'][0]['blocks'] > 10,
              (len(known), state['ranks']))
        check(f'{name}: numbered', next_seq == state['ranks'][0]['seq'])
    finally:
        engine.terminate()
        engine.wait()


def replayed(context, port, first):
    dealer = context.socket(zmq.DEALER)
    dealer.connect(f'tcp://127.0.0.1:{port}')
    dealer.send_multipart([b'', struct.pack('>Q', first)])
    out, framing = [], 0
    while dealer.poll(3000):
        frames = dealer.recv_multipart()
        framing = len(frames)
        if frames[-2] == struct.pack('>q', -1):
            break
        out.append((int.from_bytes(frames[-2], 'big'), frames[-1]))
    dealer.close(0)
    return out, framing


def http():
    port = free_ports(1)[0]
    engine = start('--port', str(port), '--lora', 'adapter', '--ranks', '2')
    try:
        check('health', call(port, '/health')[0] == 200)
        models = json.loads(call(port, '/v1/models')[1])['data']
        check('models', [m['id'] for m in models] == ['model', 'adapter'], models)
        tokens = json.loads(call(port, '/tokenize', {'prompt': 'abc'})[1])
        check('tokenize', tokens['tokens'] == [97, 98, 99] and tokens['count'] == 3, tokens)
        chat = {'model': 'model', 'messages': [{'role': 'user', 'content': 'x' * 100}], 'max_tokens': 4}
        whole = json.loads(call(port, '/v1/chat/completions', chat, {'X-data-parallel-rank': '1'})[1])
        check('chat', whole['choices'][0]['message']['content'] == ' 0 1 2 3', whole)
        check('usage', whole['usage']['completion_tokens'] == 4)
        status, text = call(port, '/v1/chat/completions', {
            **chat, 'stream': True, 'stream_options': {'include_usage': True}},
            {'X-data-parallel-rank': '1'})
        lines = [line for line in text.split('\n') if line]
        check('stream', len(lines) == 6 and lines[-1] == 'data: [DONE]', lines)
        usage = json.loads(lines[-2][6:])['usage']
        check('cached', usage['prompt_tokens_details']['cached_tokens'] >= 96, usage)
        check('metrics', 'vllm:num_requests_running{engine="1"' in call(port, '/metrics')[1])
        check('another model', call(port, '/v1/completions', {'model': 'x', 'prompt': 'a'})[0] == 404)
        check('no JSON', call(port, '/v1/completions', 'x')[0] == 400)
        check('a rank too many', call(port, '/v1/completions', {'prompt': 'a'},
                                      {'X-data-parallel-rank': '2'})[0] == 400)
    finally:
        engine.terminate()
        engine.wait()


http()
for how in (('--type', 'vllm'), ('--type', 'vllm', '--form', 'positional', '--hash', 'int'),
            ('--type', 'vllm', '--hash', 'bytes'), ('--type', 'sglang'),
            ('--type', 'sglang', '--form', 'positional')):
    listen(*how)
print(f'{TALLY[0]} checks, {TALLY[1]} failed')
sys.exit(TALLY[1] > 0 or TALLY[0] < 300)
