# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-gateway at its limits: descriptors, and bytes of all waiting data.

protocol_test.sh starts it: gateway_limits.py KVROUTE GATEWAY UNWATCHED CLOCK
"""

import http.client
import os
import resource
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import kvrproto as p
from gateway_rig import Gateway, beside, parse_message, response, serving, wait_for
from protocol_router import ADDRESSES, Router, Tally

POOLS = '''[pool llama]
id = 3
block_size = 16
max_ranks = 4
max_blocks = 4096
'''
TALLY = Tally(100, patience=30.0)
check = TALLY.check


def serve(agents, agent, job):
    job.body = parse_message(job.dispatch.body)[3]
    if b'x_hang' not in job.body:
        agent.item(job, response(body=b'{}'), tokens=1, fin=True, status=200)


def start(program):
    """The limit of descriptors is checked before any client connects."""
    limit = 'ulimit -n "$1"; shift; exec "$0" --router 10.9.0.1 --listen 127.0.0.1:0 "$@"'

    def refused(what, files, *args, advice):
        done = subprocess.run(['bash', '-c', limit, program, files, *args], capture_output=True, text=True, timeout=30)
        check(what, done.returncode == 1 and done.stderr.count('\n') == 1 and f'the limit is {files}:' in done.stderr and advice in done.stderr, done)

    refused('too many connections for its descriptors', '256', '--max-connections', '300', advice='(ulimit -n 414), or use --max-connections 142')
    refused('no descriptor for a client of a thread', '256', '--threads', '16', advice='or use fewer --threads')
    # Defaults are made to fit: (1024 - 32) / 8 threads - 82 of each.
    process = subprocess.Popen(['bash', '-c', limit, program, '1024', '--threads', '8'], stderr=subprocess.PIPE, text=True)
    try:
        said = process.stderr.readline()
        check('as many connections as it has descriptors', 'ready, 8 threads, 42 connections each' in said, said)
    finally:
        process.terminate()
        check('and ends', process.wait(30) == 0)
        process.stderr.close()


def descriptors(gw):
    pid = gw.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    keep = http.client.HTTPConnection('127.0.0.1', gw.port, timeout=30)

    def counter(name):
        keep.request('GET', '/metrics')
        text = keep.getresponse().read().decode()
        return int(next(line for line in text.splitlines() if line.startswith(name)).split()[1])

    rests = counter('kvr_gateway_accept_pauses_total')
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(map(int, os.listdir(f'/proc/{pid}/fd'))) + 1, before[1]))
    # Free descriptors below the limit are used first.
    idle = [socket.create_connection(('127.0.0.1', gw.port)) for _ in range(16)]
    answers = []
    late = threading.Thread(target=lambda: answers.append(gw.call('GET', '/health').status))
    late.start()
    check('without descriptors it rests', wait_for(lambda: counter('kvr_gateway_accept_pauses_total') >= rests + 2))
    at, used = time.monotonic(), cpu(pid)
    time.sleep(1)
    used, passed = cpu(pid) - used, time.monotonic() - at
    check('and does not turn round and round', used < 0.5 * passed, (used, passed))
    check('the connected client is served', counter('kvr_gateway_connections_open') >= 1 and not answers)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    late.join(30)
    check('the waiting client is served then', answers == [200], answers)
    keep.close()
    for s in idle:
        s.close()


def cpu(pid):
    """CPU seconds of a process."""
    with open(f'/proc/{pid}/stat') as f:
        fields = f.read().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def total(gw):
    """1 MiB in all: a second large request does not fit while the first one waits."""
    body = '{"model": "llama", "prompt": [1], "x_hang": 1, "x_pad": "%s"}' % ('x' * 300000)
    first = threading.Thread(target=lambda: gw.post('/v1/completions', body, timeout=60), daemon=True)
    first.start()
    check('one waits', wait_for(lambda: gw.counters()['kvr_gateway_requests_in_flight'] == 1), gw.counters())
    r = gw.post('/v1/completions', body)
    check('a second one is refused', r.status == 503 and r.error()[1] == 'gateway_full' and r.headers.get('retry-after') == '1', r)
    check('a small one is not', gw.post('/v1/completions', {'model': 'llama', 'prompt': [1]}).status == 200)
    check('counted', gw.counters()['kvr_gateway_rejections_total{reason="buffer_limit"}'] == 1, gw.counters())


def resident(gw):
    """MiB."""
    with open(f'/proc/{gw.process.pid}/status') as f:
        return next(int(line.split()[1]) >> 10 for line in f if line.startswith('VmRSS:'))


def bodies(program):
    """Bodies that begin and do not end, in streams of one connection and in connections: they use at most --total-mb of memory."""
    def frame(kind, flags, stream, payload):
        return struct.pack('>I', len(payload))[1:] + struct.pack('>BBI', kind, flags, stream) + payload

    gw = Gateway(program, '--router', ADDRESSES[0], '--total-mb', '2', '--max-body', '1048576')
    check('another gateway', wait_for(gw.ready))
    before, streams = resident(gw), range(1, 401, 2)
    path = b'\x00\x05:path\x0f/v1/completions\x00\x0a:authority\x01x'
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        try:
            s.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0, b'') + b''.join(frame(1, 4, i, b'\x83\x86' + path) for i in streams))
            for _ in range(60):
                s.sendall(b''.join(frame(0, 0, i, b'x' * 16384) for i in streams))
        except OSError:
            pass
        check('streams are cut off', wait_for(lambda: gw.counters()['kvr_gateway_bodies_cut_total'] >= 1), gw.counters())
        check('and take no more than they may', resident(gw) < before + 60, (before, resident(gw)))
        check('others are served', gw.post('/v1/completions', {'model': 'llama', 'prompt': [1]}).status == 200)
    cut = gw.counters()['kvr_gateway_bodies_cut_total']
    some = [socket.create_connection(('127.0.0.1', gw.port)) for _ in range(64)]
    for s in some:
        try:
            s.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n' + b'x' * 900000)
        except OSError:
            pass
    check('connections, too', wait_for(lambda: gw.counters()['kvr_gateway_bodies_cut_total'] > cut), gw.counters())
    check('and take no more', resident(gw) < before + 60, (before, resident(gw)))
    check('others are served still', gw.post('/v1/completions', {'model': 'llama', 'prompt': [1]}).status == 200)
    for s in some:
        s.close()
    body = '{"model": "llama", "prompt": [1], "x_pad": "%s"}' % ('x' * 900000)
    check('then there is room again', wait_for(lambda: gw.post('/v1/completions', body).status == 200), gw.counters())
    check('the gateway ends, too', gw.stop() == 0)


OTHER = '127.0.0.2'
HEAD = b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n'


def greedy(program):
    """One address uses as much of --total-mb as it can, by waiting requests and by endless bodies: other addresses are served."""
    gw = Gateway(program, '--router', ADDRESSES[0], '--total-mb', '4', '--max-body', '1048576')
    check('a gateway to fill', wait_for(gw.ready))
    large = '{"model": "llama", "prompt": [1], "x_pad": "%s"}' % ('x' * 300000)
    hang = large.replace('"prompt"', '"x_hang": 1, "prompt"').encode()
    held = []

    def refused():
        return select.select(held, [], [], 0)[0]
    for n in range(1, 9):
        held.append(socket.create_connection(('127.0.0.1', gw.port), source_address=(OTHER, 0)))
        held[-1].sendall(HEAD % len(hang) + hang)
        wait_for(lambda: len(refused()) + gw.counters()['kvr_gateway_requests_in_flight'] == n)
    check('it gets some', len(refused()) == 3 and gw.counters()['kvr_gateway_requests_in_flight'] == 5, gw.counters())
    said = [x.recv(4096) for x in refused()]
    check('and gets 429 for its quota', all(x.startswith(b'HTTP/1.1 429 ') and b'retry-after: 1\r\n' in x.lower() and
                                                  b'"code":"too_many_from_address"' in x for x in said), said)
    check('counted as its own', gw.counters()['kvr_gateway_rejections_total{reason="source_buffer_limit"}'] == 3, gw.counters())
    check('another address has room', gw.post('/v1/completions', large).status == 200)
    for s in held:
        s.close()
    check('they end', wait_for(lambda: gw.counters()['kvr_gateway_requests_in_flight'] == 0), gw.counters())
    cut, held = gw.counters()['kvr_gateway_bodies_cut_total'], []
    for _ in range(12):
        held.append(socket.create_connection(('127.0.0.1', gw.port), source_address=(OTHER, 0)))
        try:
            held[-1].sendall(HEAD % 1000000 + b'x' * 900000)
        except OSError:
            pass
    check('bodies are cut off', wait_for(lambda: gw.counters()['kvr_gateway_bodies_cut_total'] > cut), gw.counters())
    body = '{"model": "llama", "prompt": [1], "x_pad": "%s"}' % ('x' * 900000)
    check('not those of another address', wait_for(lambda: gw.post('/v1/completions', body).status == 200, 5), gw.counters())
    for s in held:
        s.close()
    check('a greedy one leaves nothing behind', gw.stop() == 0)


def flood(program):
    """One address: limits of connections and of requests per second; other addresses are not affected."""
    gw = Gateway(program, '--router', ADDRESSES[0], '--source-connections', '4', '--source-rate', '1')
    check('a gateway with shares', wait_for(gw.ready))
    held = []

    def hold():  # connections of the rig may still be closing
        held.append(socket.create_connection(('127.0.0.1', gw.port)))
        held[-1].settimeout(0.2)
        try:
            said = held[-1].recv(4096)
        except TimeoutError:
            return False
        held.pop().close()
        return said
    said = [hold() for _ in range(20)]
    check('four stay', len(held) == 4 and said.count(False) == 4, said)
    check('the others hear why', all(s.startswith(b'HTTP/1.1 429 ') and b'retry-after: 1' in s and b'"code":"too_many_from_address"' in s
                                     for s in said if s), said)
    with socket.create_connection(('127.0.0.1', gw.port), source_address=('127.0.0.2', 0)) as s:
        s.settimeout(20)
        s.sendall(b'GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n' * 5 + b'GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n')
        out = b''
        while part := s.recv(65536):
            out += part
    check('another address is served', out.startswith(b'HTTP/1.1 200 '), out[:100])
    check('and not faster than it may', 1 <= out.count(b'HTTP/1.1 429 ') <= 4 and b'retry-after: 1\r\n' in out.lower(), out[:900])
    check('who looks is served', b'kvr_gateway_connections_closed_total{reason="source_limit"} 16\n' in out, [x for x in out.split(b'\n') if b'_source_' in x])
    check('counted', b'kvr_gateway_rejections_total{reason="source_rate"} %d\n' % out.count(b'HTTP/1.1 429 ') in out)
    for s in held:
        s.close()
    check('places become free', wait_for(lambda: gw.call('GET', '/health').status == 200))
    check('it ends', gw.stop() == 0)


def traded(program):
    """At the limit of connections an idle connection makes room for a new one; one in use does not."""
    gw = Gateway(program, '--router', ADDRESSES[0], '--max-connections', '4', '--source-connections', '8')
    check('a gateway for four', wait_for(gw.ready))
    check('those that have asked have left', wait_for(lambda: gw.counters()['kvr_gateway_connections_open'] == 1))
    held, ask = [], b'GET /health HTTP/1.1\r\nhost: x\r\n\r\n'
    hang = b'{"model": "llama", "prompt": [1], "x_hang": 1}'
    for i in range(4):
        held.append(socket.create_connection(('127.0.0.1', gw.port)))
        held[-1].settimeout(20)
        held[-1].sendall(ask if i > 0 else HEAD % len(hang) + hang)
        if i > 0:
            check('answered', held[-1].recv(4096).startswith(b'HTTP/1.1 200 '))
    check('a fifth is served', gw.call('GET', '/health').status == 200)
    check('the one that was idle for longest has gone', held[1].recv(1) == b'')
    held[3].sendall(ask)
    check('and no other', held[3].recv(4096).startswith(b'HTTP/1.1 200 '))
    n = gw.counters()
    check('counted', n['kvr_gateway_connections_closed_total{reason="idle"}'] >= 1 and n['kvr_gateway_connections_closed_total{reason="limit"}'] == 0 and
          n['kvr_gateway_requests_in_flight'] == 1, n)
    for s in held:
        s.close()
    check('it ends', gw.stop() == 0)
    gw = Gateway(program, '--router', ADDRESSES[0], '--max-connections', '8')
    check('a gateway for eight, six of one address', wait_for(gw.ready))
    check('those that have asked have left', wait_for(lambda: gw.counters()['kvr_gateway_connections_open'] == 1))
    others = [socket.create_connection(('127.0.0.1', gw.port), source_address=('127.0.0.2', 0)) for _ in range(2)]
    held = []
    for i in range(8):
        held.append(others[i] if i < 2 else socket.create_connection(('127.0.0.1', gw.port)))
        held[-1].settimeout(20)
        held[-1].sendall(ask)
        check('answered', held[-1].recv(4096).startswith(b'HTTP/1.1 200 '))
    for _ in range(2):
        with socket.create_connection(('127.0.0.1', gw.port)) as s:
            s.settimeout(20)
            check('an address above its quota is rejected', s.recv(4096).startswith(b'HTTP/1.1 429 '))
    for s in others:
        s.sendall(ask)
        check('and no connection closed for that', s.recv(4096).startswith(b'HTTP/1.1 200 '))
    for s in held:
        s.close()
    check('it ends', gw.stop() == 0)


def unwatched(program, preload):
    """The kernel watches no further connection, so a client's disconnect would go unnoticed."""
    with tempfile.TemporaryDirectory() as d:
        os.environ['LD_PRELOAD'], os.environ['KVR_UNWATCHED'] = preload, f'{d}/refuse'
        gw = Gateway(program, '--router', ADDRESSES[0])
        del os.environ['LD_PRELOAD'], os.environ['KVR_UNWATCHED']
        check('a gateway that watches', wait_for(gw.ready))
        keep = http.client.HTTPConnection('127.0.0.1', gw.port, timeout=30)

        def counter(name):
            keep.request('GET', '/metrics')
            return next(int(line.split()[1]) for line in keep.getresponse().read().decode().splitlines() if line.startswith(name))
        before = counter('kvr_gateway_connections_open')
        with open(f'{d}/refuse', 'w') as f:
            f.write('0')  # the kind: here the number of a descriptor, and nothing in the upper half
        for _ in range(3):
            with socket.create_connection(('127.0.0.1', gw.port)) as s:
                s.settimeout(20)
                check('one is hung up on', s.recv(1) == b'')
        check('each is counted', counter('kvr_gateway_connections_closed_total{reason="unwatched"}') == 3)
        check('and open no more', wait_for(lambda: counter('kvr_gateway_connections_open') <= before))
        os.unlink(f'{d}/refuse')
        check('then it goes on', gw.post('/v1/completions', {'model': 'llama', 'prompt': [1]}).status == 200)
        keep.close()
        check('it ends with 0', gw.stop() == 0)


def clock(program, preload):
    """The wall clock is set back while one connection is idle, another one is in the middle of its request, and one waits for a tokenizer."""
    ask, answers = b'GET /health HTTP/1.1\r\nhost: x\r\n\r\n', []
    with tempfile.TemporaryDirectory() as d, socket.create_server(('127.0.0.1', 0)) as silent:
        os.environ['LD_PRELOAD'], os.environ['KVR_CLOCK'] = preload, f'{d}/clock'
        gw = Gateway(program, '--router', ADDRESSES[0], '--tokenize', f'http://127.0.0.1:{silent.getsockname()[1]}/tokenize', '--tokenize-ms', '3000')
        del os.environ['LD_PRELOAD'], os.environ['KVR_CLOCK']
        check('a gateway with a clock of its own', wait_for(gw.ready))
        with socket.create_connection(('127.0.0.1', gw.port)) as idle, socket.create_connection(('127.0.0.1', gw.port)) as comes:
            for s in (idle, comes):
                s.settimeout(20)
            idle.sendall(ask)
            check('one is answered', idle.recv(4096).startswith(b'HTTP/1.1 200 '))
            comes.sendall(ask[:-2])
            waits = threading.Thread(target=lambda: answers.append(gw.post('/v1/completions', {'model': 'llama', 'prompt': 'x'}).status))
            waits.start()
            silent.settimeout(20)
            question = silent.accept()
            check('it has its turns', gw.call('GET', '/health').status == 200)
            with open(f'{d}/new', 'w') as f:
                f.write('-3600')
            os.rename(f'{d}/new', f'{d}/clock')
            for _ in range(3):
                check('others come', gw.call('GET', '/health').status == 200)
            for what, s, rest in (('idle', idle, ask), ('in the midst of its request', comes, ask[-2:])):
                try:
                    s.sendall(rest)
                    out = s.recv(4096)
                except ConnectionError as e:
                    out = str(e).encode()
                check(f'the one that was {what} is served', out.startswith(b'HTTP/1.1 200 '), out)
        waits.join(20)
        check('the one that had no ids is served without', answers == [200], answers)
        question[0].close()
        check('it ends', gw.stop() == 0)


def run(log):
    program = sys.argv[2]
    start(program)
    with serving(TALLY, [p.Agent(ADDRESSES[0], 101, 'llama', 16)], serve, program, '--router', ADDRESSES[0], '--total-mb', '1', log=log) as (gw, _):
        unwatched(program, sys.argv[3])
        clock(program, sys.argv[4])
        traded(program)
        flood(program)
        greedy(program)
        bodies(program)
        descriptors(gw)
        total(gw)


beside(TALLY, Router(sys.argv[1], POOLS, 'suspect_ms = 20000\ndead_ms = 40000'), run)
