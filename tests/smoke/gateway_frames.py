# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-gateway with random HTTP/2 frames, most of them valid: it survives, and nothing is left. libh2o's assertions are enabled.

protocol_test.sh starts it: gateway_frames.py KVROUTE GATEWAY [FIRST LAST], seeds of 100 connections each.
"""

import contextlib
import json
import os
import random
import socket
import struct
import sys
import time

import kvrproto as p
from gateway_rig import beside, parse_message, response, serving, wait_for
from protocol_router import ADDRESSES, Router, Tally

POOL = '''[pool llama]
id = 3
block_size = 16
max_ranks = 4
max_blocks = 4096
'''
TALLY = Tally(80, patience=30.0)
check = TALLY.check
PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, PADDED, WITH_PRIORITY, INITIAL_WINDOW, CANCEL = 1, 4, 8, 0x20, 4, 8
MODES = 'json', 'hang', 'flood'
PATHS = [b'/v1/completions'] * 6 + [b'/health', b'/metrics', b'/nope', b'/pick', b'/v1/models']


def frame(kind, flags, stream, payload):
    return struct.pack('>I', len(payload))[1:] + struct.pack('>BBI', kind, flags, stream) + payload


def literal(name, value):
    return b'\x00' + bytes([len(name)]) + name + bytes([len(value)]) + value


def ask(mode):
    return json.dumps({'model': 'llama', 'prompt': [1, 2], 'x_mode': mode}).encode()


def serve(agents, agent, job):
    mode = json.loads(parse_message(job.dispatch.body)[3]).get('x_mode', 'json')
    if mode == 'json':
        agent.item(job, response(body=b'{}'), tokens=1, fin=True, status=200)
    elif mode == 'flood':
        agent.item(job, response(content_type='text/event-stream'), status=200)
        for i in range(40):
            agent.item(job, b'data: ' + b'x' * 1000 + b'\n\n', status=200, fin=i == 39)
    # 'hang': nothing


class Client:
    """The frames of one connection."""

    def __init__(self, rnd):
        self.rnd, self.next, self.open, self.done, self.evil = rnd, 1, [], [], rnd.random() < 0.3
        window = struct.pack('>HI', INITIAL_WINDOW, rnd.choice([0, 1, 10, 65535, 2**31 - 1]))
        self.data = PREFACE + frame(SETTINGS, 0, 0, window if rnd.random() < 0.5 else b'')
        for _ in range(rnd.randrange(1, 120)):
            rnd.choices((self.begin, self.body, self.cancel, self.window, self.priority, self.settings, self.ping, self.unknown, self.bad),
                        (35, 35, 10, 5, 5, 3, 2, 2, 3))[0]()

    def any(self, *more):
        return self.rnd.choice(self.open + self.done + list(more))

    def begin(self):
        rnd, body = self.rnd, self.rnd.random() < 0.8
        fields = (b'\x83' if body else b'\x82') + b'\x86' + literal(b':path', rnd.choice(PATHS)) + literal(b':authority', b'x')
        if rnd.random() < 0.1:
            fields += literal(b'content-length', rnd.choice([b'0', b'5', b'1000', b'x']))
        if rnd.random() < 0.05:
            fields += literal(b'bad', b'\x01')
        flags = END_HEADERS if body else END_HEADERS | END_STREAM
        if rnd.random() < 0.2:
            flags |= WITH_PRIORITY
            fields = struct.pack('>IB', self.any(0, 2**31), rnd.randrange(256)) + fields
        if rnd.random() < 0.1:
            flags |= PADDED
            fields = b'\x03' + fields + b'\0\0\0'
        if rnd.random() < 0.15:
            cut = rnd.randrange(len(fields) + 1)
            self.data += frame(HEADERS, flags & ~END_HEADERS, self.next, fields[:cut]) + frame(CONTINUATION, 0, self.next, b'')
            self.data += frame(CONTINUATION, END_HEADERS, self.next, fields[cut:])
        else:
            self.data += frame(HEADERS, flags, self.next, fields)
        (self.open if body else self.done).append(self.next)
        self.next += 2

    def body(self):
        if not self.open:
            return
        rnd, stream = self.rnd, self.rnd.choice(self.open)
        text = rnd.choice([b'', b'{}', b'x' * 16384, ask('json'), ask(rnd.choice(MODES))])
        if rnd.random() < 0.4:
            self.data += frame(DATA, 0, stream, text)
            return
        if rnd.random() < 0.1:
            self.data += frame(DATA, 0, stream, text) + frame(HEADERS, END_STREAM | END_HEADERS, stream, literal(b'trailer', b'x'))
        else:
            self.data += frame(DATA, END_STREAM, stream, text)
        self.end(stream)

    def end(self, stream):
        self.open.remove(stream)
        self.done.append(stream)

    def cancel(self):
        if self.open or self.done:
            stream = self.any()
            self.data += frame(RST_STREAM, 0, stream, struct.pack('>I', CANCEL))
            if stream in self.open:
                self.end(stream)

    def window(self):
        self.data += frame(WINDOW_UPDATE, 0, self.any(0), struct.pack('>I', self.rnd.choice([1, 100, 65535, 2**20])))

    def priority(self):
        self.data += frame(PRIORITY, 0, self.any(self.next, self.next + 20), struct.pack('>IB', self.any(0), self.rnd.randrange(256)))

    def settings(self):
        self.data += frame(SETTINGS, 0, 0, struct.pack('>HI', self.rnd.randrange(1, 7), self.rnd.choice([0, 1, 16384, 65535])))

    def ping(self):
        self.data += frame(PING, 0, 0, b'12345678')

    def unknown(self):
        self.data += frame(self.rnd.choice([0x0a, 0x10, 0xff]), 0, self.any(0), b'x' * 9)

    def bad(self):
        if self.evil:
            self.data += self.rnd.choice([
                frame(WINDOW_UPDATE, 0, self.any(0), struct.pack('>I', self.rnd.choice([0, 2**31 - 1]))), frame(DATA, 0, self.any(self.next, 0), b'abc'),
                frame(CONTINUATION, END_HEADERS, 1, b'x'), frame(GOAWAY, 0, 0, struct.pack('>II', 0, 0)), self.rnd.randbytes(9),
                frame(HEADERS, END_HEADERS, self.any(0, 2), b'\x82')])


def talk(gw, rnd, held):
    client = Client(rnd)
    s = socket.create_connection(('127.0.0.1', gw.port))
    with contextlib.suppress(OSError):
        s.settimeout(0.005)
        cuts = sorted(rnd.randrange(len(client.data) + 1) for _ in range(rnd.randrange(6)))
        for a, b in zip([0, *cuts], [*cuts, len(client.data)]):
            s.sendall(client.data[a:b])
            if rnd.random() < 0.4:
                with contextlib.suppress(TimeoutError):
                    s.recv(65536)
        if rnd.random() < 0.6:
            with contextlib.suppress(TimeoutError):
                while s.recv(65536):
                    pass
        if rnd.random() < 0.3:
            s.shutdown(socket.SHUT_WR)
        if rnd.random() < 0.3:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    if rnd.random() < 0.2:
        held.append(s)
    else:
        s.close()


def run(log):
    first, last = (int(x) for x in sys.argv[3:5]) if len(sys.argv) > 4 else (1, 3)
    with serving(TALLY, [p.Agent(ADDRESSES[0], 101, 'llama', 16)], serve, sys.argv[2], '--router', ADDRESSES[0], '--header-ms', '1000', '--idle-ms',
                 '1500', '--lease-ms', '500', log=log) as (gw, agents):
        for seed in range(first, last + 1):
            rnd, held = random.Random(seed), []
            for _ in range(100):
                talk(gw, rnd, held)
                if gw.process.poll() is not None:
                    break
            time.sleep(2.5)  # held connections time out by then and use no resources
            for s in held:
                s.close()
            if not check(f'seed {seed}: it lives', gw.process.poll() is None, gw.process.returncode):
                os._exit(1)
        check('streams were late', gw.counters()['kvr_gateway_requests_cut_total{reason="slow_request"}'] > 0, gw.counters())
        check('nothing is in flight', wait_for(lambda: gw.counters()['kvr_gateway_requests_in_flight'] == 0), gw.counters())
        check('no booking is left', wait_for(lambda: gw.counters()['kvr_gateway_leases'] == 0), gw.counters())
        check('no connection is left', wait_for(lambda: gw.counters()['kvr_gateway_connections_open'] <= 1), gw.counters())
        n = gw.counters()
        check('every request has one ending', n['kvr_gateway_requests_started_total'] == sum(
            n[f'kvr_gateway_requests_total{{outcome="{x}"}}'] for x in ('answered', 'failed', 'rejected', 'client_gone')), n)
        print({k: v for k, v in n.items() if v and 'requests' in k})
    log.seek(0)
    lines = [line for line in log.readlines() if not line.startswith('time=')]
    check('the log has nothing but its own lines', not lines, lines[:3])


beside(TALLY, Router(sys.argv[1], POOL, 'suspect_ms = 20000\ndead_ms = 40000'), run)
