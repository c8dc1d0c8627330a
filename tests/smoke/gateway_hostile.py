# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-gateway with clients that flood, disconnect at once or never read, and engines whose answers cannot be relayed.

protocol_test.sh starts it: gateway_hostile.py KVROUTE GATEWAY.
"""

import contextlib
import itertools
import json
import socket
import struct
import sys
import threading
import time

import kvrproto as p
from gateway_rig import Gateway, Tokenizer, beside, parse_message, response, serving, wait_for
from protocol_router import Router, Tally

B = 16
POOL = f'''[pool llama]
id = 3
block_size = {B}
max_ranks = 16
max_blocks = 65536
'''
TALLY = Tally(200, patience=30.0)
check = TALLY.check
# HTTP/2 written by hand (RFC 9113): no client library opens and resets like this. The field block uses literals and the static
# table.
PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
DATA, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, UNKNOWN = 0, 1, 3, 4, 8, 0x20
END_STREAM, END_HEADERS, INITIAL_WINDOW, CANCEL = 1, 4, 4, 8


def frame(kind, flags, stream, payload):
    return struct.pack('>I', len(payload))[1:] + struct.pack('>BBI', kind, flags, stream) + payload


def literal(name, value):
    return b'\x00' + bytes([len(name)]) + name + bytes([len(value)]) + value


FIELDS = b'\x83\x86' + literal(b':path', b'/v1/completions') + literal(b':authority', b'x')


def post(stream, body):
    return frame(HEADERS, END_HEADERS, stream, FIELDS) + frame(DATA, END_STREAM, stream, body)


def ask(mode, **more):
    return json.dumps({'model': 'llama', 'prompt': 'x', 'x_mode': mode, **more}).encode()


def http1(body):
    return b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n' % len(body) + body


def serve(agents, agent, job):
    say = json.loads(parse_message(job.dispatch.body)[3])
    mode = say.get('x_mode', 'json')

    def item(*a, **k):
        if job.aborted is None and not job.fin:
            agent.item(job, *a, **k)

    if mode == 'json':
        item(response(body=b'{}'), tokens=1, fin=True, status=200)
    elif mode == 'status':
        item(response(say['code'], body=say['body'].encode(), more='date: long ago\r\nserver: engine\r\n'), tokens=1, fin=True, status=say['code'])
    elif mode == 'long':  # one read for libh2o
        item(response(), status=200)
        for i in range(100):
            item(b'x' * 1000, status=200, fin=i == 99)
    elif mode == 'flood':
        item(response(content_type='text/event-stream'), status=200)

        def more():
            if len(job.sent) - job.acked < 32:
                for _ in range(16):
                    item(b'data: ' + b'x' * 1000 + b'\n\n', status=200)
            if job.aborted is None:
                agents.at(0.002, more)
        more()
    # 'hang': nothing


def counter(gw, name):
    return gw.counters()[f'kvr_gateway_{name}']


def nothing_left(gw, agents, name):
    check(f'{name}: nothing is in flight', wait_for(lambda: counter(gw, 'requests_in_flight') == 0), gw.counters())
    check(f'{name}: engines have nothing left', wait_for(lambda: all(j.aborted is not None or j.fin for j in agents.runs())))
    check(f'{name}: connections are closed', wait_for(lambda: counter(gw, 'connections_open') <= 1), gw.counters())


def leavers(gw, agents):
    """Clients that disconnect before their request is read: the disconnect is reported only once."""
    for _ in range(20):
        with socket.create_connection(('127.0.0.1', gw.port)) as s:
            s.sendall(http1(ask('hang')))
    nothing_left(gw, agents, 'close at once')
    # The answer of an engine would be first when the client is held up between its two calls.
    for _ in range(20):
        got = gw.raw(http1(ask('hang')), half_close=True)
        check('a request and the end of the side at once: 499 always', got.startswith(b'HTTP/1.1 499 '), got[:100])
    nothing_left(gw, agents, 'end of the side at once')


def resets(gw, agents):
    """Rapid reset: requests that are opened and cancelled at once. Other clients must not notice."""
    lost = counter(gw, 'routers_lost_total')
    hang, stream, closed = ask('hang'), 1, False
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.sendall(PREFACE + frame(SETTINGS, 0, 0, b''))
        s.settimeout(30)
        try:
            while stream < 200000:
                s.sendall(b''.join(post(i, hang) + frame(RST_STREAM, 0, i, struct.pack('>I', CANCEL))
                                   for i in range(stream, stream + 200, 2)))
                stream += 200
        except (BrokenPipeError, ConnectionResetError):
            closed = True
    check('a connection of resets is closed', closed, stream)
    check('and counted', counter(gw, 'reset_floods_total') >= 1, gw.counters())
    r = gw.post('/v1/completions', {'model': 'llama', 'prompt': 'x'})
    check('others are served', r.status == 200, r)
    check('the router was not lost', counter(gw, 'routers_lost_total') == lost)
    nothing_left(gw, agents, 'resets')
    # A client that cancels now and then is no flood.
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.sendall(PREFACE + frame(SETTINGS, 0, 0, b'') + b''.join(
            post(i, hang) + frame(RST_STREAM, 0, i, struct.pack('>I', CANCEL)) for i in range(1, 401, 2)) + post(401, ask('json')))
        s.settimeout(20)
        got = b''
        while b'{}' not in got:
            part = s.recv(65536)
            if not part:
                break
            got += part
        check('200 cancelled ones, and the next is served', b'{}' in got, got[-200:])
    nothing_left(gw, agents, 'some resets')


def frames(data):
    """(kind, flags, stream, payload) of each complete frame."""
    while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], 'big'):
        n = int.from_bytes(data[:3], 'big')
        yield data[3], data[4], int.from_bytes(data[5:9], 'big'), data[9:9 + n]
        data = data[9 + n:]


def turns(s, seconds=60.0):
    """Reads all frames repeatedly: a reply of the event loop may take as long as the socket's timeout."""
    got, end = b'', time.monotonic() + seconds
    while time.monotonic() < end:
        yield list(frames(got))
        with contextlib.suppress(TimeoutError):
            while part := s.recv(65536):
                got += part
            return


def ended(all_of):
    """Streams whose answer has arrived, and its bytes."""
    return {n: b''.join(t for kind, _, m, t in all_of if kind == DATA and m == n) for kind, flags, n, _ in all_of if kind == DATA and flags & END_STREAM}


def stalled(gw, agents):
    """A window that is never opened: TCP sees nothing wrong, and the stream would last forever."""
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack('>HI', INITIAL_WINDOW, 0)) + post(1, ask('flood')) + post(3, ask('json')))
        s.settimeout(30)
        got = b'.'
        try:
            while got:
                got = s.recv(65536)
        except ConnectionResetError:
            got = b''
        except TimeoutError:
            pass
        check('a client that takes nothing is closed', got == b'', got[:100])
    check('and counted', counter(gw, 'requests_cut_total{reason="stalled"}') >= 1, gw.counters())
    nothing_left(gw, agents, 'stalled')
    # Behind a proxy, other streams of its connection belong to other users.
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.sendall(PREFACE + frame(SETTINGS, 0, 0, b'') + frame(WINDOW_UPDATE, 0, 0, struct.pack('>I', 1 << 30)) + post(1, ask('flood')))
        s.settimeout(0.2)
        stream, come = 3, turns(s)
        for all_of in come:
            if any(kind == RST_STREAM for kind, *_ in all_of):
                break
            s.sendall(post(stream, ask('json')))
            stream += 2
        s.sendall(post(stream, ask('json')))
        for all_of in come:
            if stream in ended(all_of):
                break
        check('one that takes nothing is reset alone', [n for kind, _, n, _ in all_of if kind == RST_STREAM] == [1], [f[:3] for f in all_of[-9:]])
        check('those beside it and after it are served', ended(all_of) == {n: b'{}' for n in range(3, stream + 2, 2)}, [f[:3] for f in all_of[-9:]])
    nothing_left(gw, agents, 'stalled alone')
    # --idle-ms is 2000: a client that reads a little now and then is slow, and has not stopped.
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack('>HI', INITIAL_WINDOW, 0)) + frame(WINDOW_UPDATE, 0, 0, struct.pack('>I', 1 << 30)) +
                  post(1, ask('long')))
        s.settimeout(0.3)
        for all_of in turns(s):
            if 1 in ended(all_of) or any(kind == RST_STREAM for kind, *_ in all_of):
                break
            s.sendall(frame(WINDOW_UPDATE, 0, 1, struct.pack('>I', 8000)))
        check('a slow reader is served', ended(all_of) == {1: b'x' * 100000}, [f[:3] for f in all_of[-9:]])
    nothing_left(gw, agents, 'slow reader')


def slow(gw, agents):
    """Bodies of HTTP/2 that drip or stop: each gets an error, and other streams of its connection are served."""
    before = counter(gw, 'requests_cut_total{reason="slow_request"}')
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.sendall(PREFACE + frame(SETTINGS, 0, 0, b'') + b''.join(frame(HEADERS, END_HEADERS, i, FIELDS) + frame(DATA, 0, i, b'{') for i in (1, 3)))
        s.settimeout(0.1)
        at, stream, come = time.monotonic(), 5, turns(s)
        for all_of in come:
            text = ended(all_of)
            if {1, 3} <= set(text):
                break
            s.sendall((frame(DATA, 0, 1, b' ') if 1 not in text else b'') + post(stream, ask('json')))
            stream += 2
        check('dripping and stopped bodies get 408', all(b'"code":"request_timeout"' in text.get(n, b'') for n in (1, 3)), text)
        check('not before its time', time.monotonic() > at + 1.5)
        s.sendall(post(stream, ask('json')))
        for all_of in come:
            text = ended(all_of)
            if stream in text:
                break
        check('what the connection has beside is served, and after', all(text.get(n) == b'{}' for n in range(5, stream + 2, 2)), text)
    check('both are counted', counter(gw, 'requests_cut_total{reason="slow_request"}') == before + 2, gw.counters())
    body = ask('json', pad='x' * 1000000)
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.settimeout(20)
        s.sendall(PREFACE + frame(SETTINGS, 0, 0, b'') + frame(HEADERS, END_HEADERS, 1, FIELDS))
        got = b''
        for i in range(0, len(body), 16384):
            s.sendall(frame(DATA, END_STREAM if i + 16384 >= len(body) else 0, 1, body[i:i + 16384]))
            time.sleep(0.7 if i // 16384 % 13 == 12 else 0)
        while not any(n == 1 and flags & END_STREAM for _, flags, n, _ in frames(got)) and (part := s.recv(65536)):
            got += part
        check('a slow client that continues is served', (DATA, END_STREAM, 1, b'{}') in list(frames(got)), got[-200:])
    nothing_left(gw, agents, 'slow')


def unknown(gw, agents):
    """Frames of unknown kinds are ignored without an answer."""
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.sendall(PREFACE + frame(SETTINGS, 0, 0, b'') + b''.join(frame(UNKNOWN + i % 200, 0xff, i, b'x' * 20) for i in range(1000)) + post(1, ask('json')))
        s.settimeout(20)
        got = b''
        while b'{}' not in got and (part := s.recv(65536)):
            got += part
        check('unknown frames', b'{}' in got, got[-100:])


def statuses(gw, agents):
    """Heads that could make the client misread the answer."""
    for code, text, want in ((100, 'x', 502), (101, '', 502), (199, '', 502), (600, '', 502), (999, 'x', 502), (204, 'x', 502),
                             (304, 'x', 502), (204, '', 204), (200, 'x', 200), (418, 'x', 418)):
        got = gw.raw(http1(ask('status', code=code, body=text)) + http1(ask('json')), seconds=30,
                     whole=lambda out: out.count(b'HTTP/1.1 ') == 2 and out.endswith(b'{}'))
        check(f'an engine says {code} {text!r}: {want}', got.startswith(b'HTTP/1.1 %d ' % want) and got.count(b'HTTP/1.1 200 ') ==
              1 + (want == 200) and got.endswith(b'{}<timeout>'), got)
        first = got.split(b'\r\n\r\n')[0].lower()
        check(f'{code}: fields that are the gateway\'s own come once', first.count(b'\r\ndate:') == 1 and b'long ago' not in first and
              first.count(b'\r\nserver:') <= 1, first)
        check(f'{code}: what has no body has no length', (want == 204) != (b'\r\ncontent-length:' in first), first)


def heads(gw, agents):
    r = gw.post('/v1/completions', {'model': 'llama', 'prompt': 'x'}, {'authorization': 'k' * 17000})
    check('fields that no head can hold', r.status == 413 and r.error()[1] == 'request_too_large', r)
    # The end of the content is stated once; otherwise a proxy in front might take the next request for a part of this one.
    body, head, other = ask('json'), b'POST /v1/completions HTTP/1.1\r\nhost: x\r\n', b'GET /health HTTP/1.1\r\nhost: x\r\n\r\n'
    for fields, text in ((b'content-length: %d\r\ncontent-length: 0\r\n' % len(body), body),
                         (b'content-length: 0\r\nContent-Length: %d\r\n' % len(body), body),
                         (b'content-length: %d\r\ntransfer-encoding: chunked\r\n' % len(body), b'0\r\n\r\n'),
                         (b'Transfer-Encoding: chunked\r\ncontent-length: 3\r\n', b'%x\r\n' % len(body) + body + b'\r\n0\r\n\r\n'),
                         (b'transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n', b'0\r\n\r\n'),
                         (b'x: a\r\n b\r\ncontent-length: %d\r\n' % len(body), body)):
        got = gw.raw(head + fields + b'\r\n' + text + other)
        check(f'refused, and nothing behind it is read: {fields}', got.startswith(b'HTTP/1.1 400 ') and got.count(b'HTTP/1.1 ') == 1 and
              not got.endswith(b'<timeout>'), got)
    for name, text in (('a length that is none', b'0x%x\r\n%s\r\n0\r\n\r\n'), ('a line without its carriage return', b'%x;a\n%s\r\n0\r\n\r\n'),
                       ('one within', b'%x;a\rb\r\n%s\r\n0\r\n\r\n'), ('no end of the data', b'%x\r\n%s0\r\n\r\n'),
                       ('a trailer without carriage returns', b'%x\r\n%s\r\n0\r\na: b\n\n')):
        got = gw.raw(head + b'transfer-encoding: chunked\r\n\r\n' + text % (len(body), body) + other)
        check(f'chunks with {name} are refused, and nothing behind them is read', got.startswith(b'HTTP/1.1 400 ') and
              got.count(b'HTTP/1.1 ') == 1 and not got.endswith(b'<timeout>'), got)
    got = gw.raw(head + b'transfer-encoding: chunked\r\n\r\n' + b'1;a=b\r\n%s\r\n%x \r\n%s\r\n0\r\nx: y\r\n\r\n' % (body[:1], len(body) - 1, body[1:]) +
                 other, seconds=30, whole=lambda out: out.count(b'HTTP/1.1 200 ') == 2)
    check('chunks are served', got.count(b'HTTP/1.1 200 ') == 2, got)
    # An upgrade would pass a proxy that does not know it, and bypass the proxy's checks.
    got = gw.raw(head + b'connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\ncontent-length: %d\r\n\r\n' % len(body) +
                 body + other, whole=lambda out: out.count(b'HTTP/1.1 ') == 2)
    check('a connection of HTTP/1 stays one', b'HTTP/1.1 101 ' not in got and got.startswith(b'HTTP/1.1 200 '), got)
    got = gw.raw(head + b'Host: y\r\ncontent-length: %d\r\n\r\n' % len(body) + body + other)
    check('two hosts are refused', got.startswith(b'HTTP/1.1 400 ') and got.count(b'HTTP/1.1 ') == 1, got)
    # One field in the dynamic table, and one byte for each reference to it.
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.settimeout(20)
        s.sendall(PREFACE + frame(SETTINGS, 0, 0, b'') + frame(HEADERS, END_HEADERS, 1, FIELDS + b'\x40\x01a\x01b') +
                  b''.join(frame(HEADERS, END_HEADERS, i, FIELDS + b'\xbe' * 16000) for i in range(3, 11, 2)))
        got = b''
        try:
            while part := s.recv(65536):
                got += part
        except TimeoutError:
            got = b'<timeout>'
        except ConnectionResetError:
            pass
        check('16,000 fields: the connection ends', b'too many fields' in got, got[-100:])
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.settimeout(20)
        s.sendall(PREFACE + frame(SETTINGS, 0, 0, b'') + frame(HEADERS, END_HEADERS, 1, FIELDS + b'\x40\x01a\x01b' + b'\xbe' * 80) +
                  frame(DATA, END_STREAM, 1, body))
        got = b''
        while b'{}' not in got and (part := s.recv(65536)):
            got += part
        check('80 of them are served', b'{}' in got, got[-100:])


def bad_questions(gw, agents):
    """A rejection by the tokenizer is no failure of the tokenizer: other prompts keep their ids."""
    def hashes(i):
        gw.post('/v1/completions', {'model': 'llama', 'prompt': f'prompt number {i}, which is long enough to have blocks'})
        return len(list(agents.runs()[-1].dispatch.hashes))

    check('a prompt has its blocks', hashes(1) > 0)
    for i in range(5):
        r = gw.post('/v1/chat/completions', {'model': 'llama', 'messages': ['no message', i]})
        check('a bad question is served by load', r.status == 200, r)
    check('the next prompt has its blocks', hashes(2) > 0, gw.counters())


class Answers(threading.Thread):
    """A tokenizer that sends a scripted answer, and closes the connection after any but a good one."""
    good = b'{"tokens":%s}' % json.dumps(list(range(40))).encode()

    def __init__(self):
        super().__init__(daemon=True)
        self.socket, self.says = socket.create_server(('127.0.0.1', 0)), None
        self.url = f'http://127.0.0.1:{self.socket.getsockname()[1]}/tokenize'
        self.start()

    def run(self):
        while True:
            s, _ = self.socket.accept()
            with s, contextlib.suppress(OSError):
                while self.says is not None and b'}' in s.recv(65536):  # a question is small
                    s.sendall(self.says)
                    if not self.says.endswith(self.good):
                        break


def bad_tokenizers(program):
    """Invalid answers to a question: requests are routed by load, and the next good answer has ids again."""
    def head(*fields):
        return b'\r\n'.join([b'HTTP/1.1 200 OK', *fields, b'', b''])

    good, n = Answers.good, itertools.count()
    tokenizer = Answers()
    gw = Gateway(program, '--router', '10.9.0.1', '--tokenize', tokenizer.url, '--tokenize-ms', '1000')
    check('a gateway of its own', wait_for(gw.ready))
    length = b'content-length: %d' % len(good)

    def by_load():
        before = counter(gw, 'routed_by_load_total')
        r = gw.post('/v1/completions', {'model': 'llama', 'prompt': f'prompt {next(n)}'})
        return r.status, counter(gw, 'routed_by_load_total') - before

    for says in (b'SMTP ready\r\n\r\n', head(b'content-length: -5') + good, head(b'content-length: 5x') + good, head(b'content-length:') + good,
                 head(b'content-length: ' + b'9' * 30) + good, head(b'transfer-encoding: gzip, chunked') + good, head(b'a: b', b' c: d', length) + good[:5],
                 head(b'transfer-encoding: chunked') + b'zz\r\n' + good, head(length) + good[:-5], head(b'x: y\r\n' * 200) + good, b'HTTP/1.1 204 No\r\n\r\n',
                 head(b'content-length: 0'), head(b'content-length: 14') + b'{"tokens":[-1]', head(b'content-length: 13') + b'{"tokens":[]}',
                 b'HTTP/1.1 500 Oops\r\n' + length + b'\r\n\r\n' + good[:9]):
        tokenizer.says = says
        check(f'by load: {says[:60]}', by_load() == (200, 1))
        tokenizer.says = head(length) + good
        check('then with ids', wait_for(lambda: by_load() == (200, 0)))  # it may have paused for a second
    for says in (head(b'Transfer-Encoding: Chunked') + b'%x\r\n%s\r\n0\r\n\r\n' % (len(good), good), b'HTTP/1.1 100 Continue\r\n\r\n' + head(length) + good):
        tokenizer.says = says
        check(f'with ids: {says[:60]}', by_load() == (200, 0))
    check('that gateway ends', gw.stop() == 0)


def run(log):
    tokenizer = Tokenizer('llama')
    with serving(TALLY, [p.Agent('10.9.0.1', 101, 'llama', B, ranks=2)], serve, sys.argv[2], '--router', '10.9.0.1', '--tokenize', tokenizer.url,
                 '--idle-ms', '2000', '--header-ms', '2000', '--max-buffer', '262144', log=log) as (gw, agents):
        for part in (leavers, resets, stalled, slow, unknown, statuses, heads, bad_questions):
            part(gw, agents)
        bad_tokenizers(sys.argv[2])
        n = gw.counters()
        check('every request has one ending', n['kvr_gateway_requests_started_total'] == sum(
            n[f'kvr_gateway_requests_total{{outcome="{x}"}}'] for x in ('answered', 'failed', 'rejected', 'client_gone')), n)
    tokenizer.stop()
    log.seek(0)
    lines = [line for line in log.readlines() if not line.startswith('time=')]
    check('the log has nothing but its own lines', not lines, lines[:3])


beside(TALLY, Router(sys.argv[1], POOL, 'suspect_ms = 20000\ndead_ms = 40000'), run)
