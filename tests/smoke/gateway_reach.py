# SPDX-License-Identifier: BSD-3-Clause
"""Effect of a client's hints at the router and its workers, and of the router's rejections at the client.

protocol_test.sh starts it: gateway_reach.py KVROUTE GATEWAY.
"""

import ctypes
import errno
import json
import os
import socket
import struct
import sys

import kvrproto as p
from gateway_rig import beside, parse_message, response, serving, wait_for
from protocol_router import Router, Tally

B, BURST = 16, 100
POOLS = f'''[pool llama]
id = 3
block_size = {B}
max_ranks = 16
max_blocks = 65536
[pool prompts]
id = 5
block_size = {B}
role = prefill
model = pair
max_ranks = 8
max_blocks = 4096
max_requests = 1024
[pool answers]
id = 6
block_size = {B}
role = decode
model = pair
max_ranks = 8
max_blocks = 4096
max_requests = 1024
[pool small]
id = 7
block_size = {B}
max_ranks = 4
max_blocks = 4096
max_requests = 1024
active_prefill_tokens_threshold = 20
'''
TALLY = Tally(120, patience=20.0)
check = TALLY.check
EVENTS = [b'event: response.created\ndata: {"type":"response.created","n":1}\n\n',
          b'event: response.output_text.delta\ndata: {"delta":"\xc3\xa4"}\n\n', b'event: response.completed\ndata: {"b":  2}\n\n']
PIDFD_GETFD, LIBC = 438, ctypes.CDLL(None, use_errno=True)


def serve(agents, agent, job):
    body = parse_message(job.dispatch.body)[3]
    if b'x_hang' in body:
        return
    if b'"stream": true' in body:
        agent.item(job, response(content_type='text/event-stream'), status=200)
        for i, event in enumerate(EVENTS):
            agent.item(job, event, tokens=1, fin=i + 1 == len(EVENTS), status=200)
        return
    agent.item(job, response(body=b'{}'), tokens=1, fin=True, status=200)


def hints(gw, agents):
    """Each hint alone, from a header and from the body, and as defined in PROTOCOL.md 8."""
    def send_and_read(headers=None, **more):
        n = len(agents.runs())
        r = gw.post('/v1/completions', {'model': 'llama', 'prompt': [1, 2, 3], **more}, headers)
        jobs = agents.runs()[n:]
        if check(f'answered: {headers} {more}', r.status == 200 and len(jobs) == 1, r):
            return jobs[0].dispatch
        return None

    d = send_and_read()
    check('none without any', d and d.expected == p.NONE32 and not list(p.read_hints(d.hints)), d and d.hints)
    for name, text, value, kind, want in (
            ('priority', '-4', -4, 0x000D, struct.pack('<i', -4)),
            ('strict_priority', '3', 3, 0x000C, struct.pack('<I', 3)),
            ('priority_jump', '2.5', 2.5, 0x000B, struct.pack('<d', 2.5)),
            ('policy_class', 'gold', 'gold', 0x000E, b'gold'),
            ('preferred_taints', 'gpu=b=0.5', {'gpu=b': 0.5}, 0x000A, struct.pack('<d', 0.5) + b'gpu=b')):
        for d in send_and_read({'x-kvroute-' + name.replace('_', '-'): text}), send_and_read(nvext={name: value}):
            check(f'{name} reaches the router', d and list(p.read_hints(d.hints)) == [(kind, want)], d and d.hints)
    for d in send_and_read({'x-kvroute-expected-output-tokens': '55'}), send_and_read(nvext={'expected_output_tokens': 55}):
        check('expected output reaches the router', d and d.expected == 55, d and d.expected)


def pins(gw, agents):
    """Pins of a pair: the workers of both legs. Two workers each, so that one of two reveals a lost pin."""
    def legs(headers, nvext=None):
        n = len(agents.runs())
        r = gw.post('/v1/completions', {'model': 'answers', 'prompt': list(range(4 * B)), **({'nvext': nvext} if nvext else {})}, headers)
        jobs = agents.runs()[n:]
        return r, {j.dispatch.leg: (j.dispatch.worker, j.dispatch.dp_rank) for j in jobs}

    for prefill in 201, 202:
        for rank in 0, 1:
            r, to = legs({'x-kvroute-prefill-worker': f'{prefill}', 'x-kvroute-prefill-dp-rank': f'{rank}'})
            check(f'prefill worker {prefill}/{rank}', r.status == 200 and to.get('prefill') == (prefill, rank), (r, to))
            r, to = legs({}, {'prefill_worker_id': prefill, 'prefill_dp_rank': rank})
            check(f'prefill worker {prefill}/{rank} of nvext', r.status == 200 and to.get('prefill') == (prefill, rank), (r, to))
            decode = prefill + 100
            r, to = legs({'x-kvroute-decode-worker': f'{decode}', 'x-kvroute-dp-rank': f'{rank}'})
            check(f'decode worker {decode}/{rank}', r.status == 200 and to.get('decode') == (decode, rank), (r, to))
            r, to = legs({}, {'decode_worker_id': decode, 'dp_rank': rank})
            check(f'decode worker {decode}/{rank} of nvext', r.status == 200 and to.get('decode') == (decode, rank), (r, to))


def taints(gw):
    """Of two equal workers, the preferred one is chosen."""
    for letter, worker in ('a', 101), ('b', 102):
        for _ in range(3):
            r = gw.post('/v1/completions', {'model': 'llama', 'prompt': [1]}, {'x-kvroute-preferred-taints': f'gpu={letter}=0.9', 'x-kvroute-query': '1'})
            check(f'preferred: gpu={letter}', r.status == 200 and r.json()['worker_id'] == worker, r)


def responses(gw, agents):
    r = gw.post('/v1/responses', {'model': 'llama', 'input': 'x', 'stream': True})
    check('a streamed /v1/responses passes byte for byte', r.status == 200 and r.body == b''.join(EVENTS)
          and r.headers['content-type'] == 'text/event-stream', r)
    _, target, _, body = parse_message(agents.runs()[-1].dispatch.body)
    check('and the request to the same path', (target, json.loads(body)) == (
        '/v1/responses', {'model': 'llama', 'input': 'x', 'stream': True}), (target, body))


def no_delay(gw):
    """The option of the socket that the gateway has accepted: small writes must not wait for each other."""
    pidfd = os.pidfd_open(gw.process.pid)
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.sendall(b'GET /health HTTP/1.1\r\nhost: x\r\n\r\n')
        s.recv(4096)
        seen = []
        for name in os.listdir(f'/proc/{gw.process.pid}/fd'):
            fd = LIBC.syscall(PIDFD_GETFD, pidfd, int(name), 0)
            if fd < 0 and ctypes.get_errno() != errno.EBADF:  # EBADF: closed meanwhile
                print(f'a descriptor of a child cannot be had here: {os.strerror(ctypes.get_errno())}')
                break
            try:
                with socket.socket(fileno=fd) as theirs:
                    if theirs.family == socket.AF_INET and theirs.type == socket.SOCK_STREAM and theirs.getpeername() == s.getsockname():
                        seen.append(theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            except OSError:  # not connected
                pass
        else:
            check('TCP_NODELAY of an accepted connection', seen == [1], seen)
    os.close(pidfd)


def refusals(gw, agents):
    """The router's rejections for overload and rate, as HTTP has them. Last of all: the source has used up its rate."""
    body = json.dumps({'model': 'small', 'prompt': list(range(200)), 'x_hang': 1}).encode()
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n' % len(body) + body)
        check('one takes the worker', wait_for(lambda: agents.runs()[-1].dispatch.isl == 200))
        r = gw.post('/v1/completions', {'model': 'small', 'prompt': list(range(1000, 1040))})
        check('529 with Retry-After', (r.status, r.headers.get('retry-after')) == (529, '1')
              and r.error() == ('overloaded_error', 'AllEligibleWorkersOverloaded'), r)
    for _ in range(3 * BURST):
        r = gw.post('/v1/completions', {'model': 'llama', 'prompt': [1]})
        if r.status != 200:
            break
    check('429 with Retry-After', (r.status, r.headers.get('retry-after')) == (429, '1')
          and r.error() == ('rate_limit_error', 'RateLimited'), r)


def run(log):
    pair = [p.Agent('10.9.0.1', first + i, pool, B, ranks=2, role=role)
            for first, pool, role in ((201, 'prompts', 1), (301, 'answers', 2)) for i in range(2)]
    peers = [*(p.Agent('10.9.0.1', w, 'llama', B, hints=p.worker_hints(taints=[taint])) for w, taint in ((101, 'gpu=a'), (102, 'gpu=b'))),
             p.Agent('10.9.0.1', 401, 'small', B), *pair]
    with serving(TALLY, peers, serve, sys.argv[2], '--router', '10.9.0.1', log=log) as (gw, agents):
        hints(gw, agents)
        pins(gw, agents)
        taints(gw)
        responses(gw, agents)
        no_delay(gw)
        refusals(gw, agents)


beside(TALLY, Router(sys.argv[1], POOLS, 'suspect_ms = 20000\ndead_ms = 40000', port=f'source_rate = 1\nsource_burst = {BURST}'), run)
