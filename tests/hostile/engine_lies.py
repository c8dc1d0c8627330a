# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-agent beside an engine with invalid answers, an invalid replay socket, and unknown connections to its port for bodies.

protocol_test.sh starts it: engine_lies.py KVROUTE KVROUTE_AGENT
"""

import gzip
import json
import os
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'smoke'))
import kvrproto as p  # noqa: E402
from agent_lib import B, POOL, POOLS, Agent, Answer, Front, message  # noqa: E402
from protocol_router import ADDRESSES, Router, Tally  # noqa: E402

import msgpack  # noqa: E402
import zmq  # noqa: E402

TALLY = Tally(150, patience=20.0)
WORKER = 70
METRICS = (b'vllm:num_requests_running{engine="0"} 0\nvllm:num_requests_waiting{engine="0"} 0\nvllm:kv_cache_usage_perc{engine="0"} 0\n'
           b'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1\n')
OK = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n'


def whole(body, more=b''):
    return OK + more + b'content-length: %d\r\n\r\n' % len(body) + body


class Liar:
    """HTTP and ZMQ of an engine, written by hand: the field x_mode of a request selects the answer."""

    def __init__(self):
        self.ranks, self.live = 1, set()
        self.http = socket.create_server(('127.0.0.1', 0), backlog=64)
        self.port = self.http.getsockname()[1]
        context = zmq.Context()
        self.pub, self.router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
        self.events = self.pub.bind_to_random_port('tcp://127.0.0.1')
        self.replay = self.router.bind_to_random_port('tcp://127.0.0.1')
        self.lie, self.asked, self.kept = None, 0, []
        threading.Thread(target=self.serve, daemon=True).start()
        threading.Thread(target=self.answer_replay, daemon=True).start()

    def serve(self):
        while True:
            s, _ = self.http.accept()
            threading.Thread(target=self.talk, args=(s,), daemon=True).start()

    def talk(self, s):
        data = b''
        try:
            while True:
                while b'\r\n\r\n' not in data:
                    part = s.recv(65536)
                    if not part:
                        return
                    data += part
                head, _, data = data.partition(b'\r\n\r\n')
                length = [int(x.split(b':')[1]) for x in head.lower().split(b'\r\n') if x.startswith(b'content-length:')]
                while length and len(data) < length[0]:
                    data += s.recv(65536)
                body, data = (data[:length[0]], data[length[0]:]) if length else (b'', data)
                path = head.split()[1]
                if path == b'/health':
                    s.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')
                elif path == b'/metrics':
                    s.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n' % len(METRICS) + METRICS)
                elif not getattr(self, 'answer_' + json.loads(body or b'{}').get('x_mode', 'fine'))(s, head):
                    return
        except OSError:
            pass
        finally:
            s.close()

    def answer_fine(self, s, head):
        if head.startswith(b'HEAD '):
            s.sendall(OK + b'content-length: 2\r\n\r\n')
        else:
            s.sendall(whole(b'{}'))
        return True

    def answer_early(self, s, head):
        """Many informational heads before the answer."""
        s.sendall(b'HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n' * 500 + whole(b'{}'))
        return True

    def answer_switch(self, s, head):
        s.sendall(b'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n' + b'rubbish' * 100)

    def answer_line(self, s, head):
        s.sendall(b'HTTP/1.1 200 OK\r\nx: ')
        for _ in range(300):
            s.sendall(b'a' * 65536)

    def answer_fields(self, s, head):
        s.sendall(b'HTTP/1.1 200 OK\r\n')
        for _ in range(2000):
            s.sendall(b'x: y\r\n' * 1000)

    def answer_none(self, s, head):
        s.sendall(b'I am no HTTP at all\r\n\r\n' * 10)

    def answer_chunk(self, s, head):
        s.sendall(b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\nffffffffffffffffff\r\n')

    def answer_short(self, s, head):
        s.sendall(OK + b'content-length: 100\r\n\r\n{}')

    def answer_long(self, s, head):
        s.sendall(OK + b'content-length: 2\r\n\r\n{}' + whole(b'{"of": "no request"}'))
        return True

    def answer_gzip(self, s, head):
        s.sendall(whole(gzip.compress(b'{"usage": {"completion_tokens": 3}}'), b'content-encoding: gzip\r\n'))
        return True

    def answer_event(self, s, head):
        """One event of a stream without an end."""
        s.sendall(b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ')
        for _ in range(64):
            s.sendall(b'x' * 65536)

    # ---- events ----

    def publish(self, number, hashes):
        event = {'type': 'BlockStored', 'block_hashes': hashes, 'parent_block_hash': None, 'token_ids': list(range(16 * len(hashes))),
                 'block_size': 16, 'medium': 'GPU'}
        payload = msgpack.packb([time.time(), [event], 0])
        self.kept.append((number, payload))
        self.pub.send_multipart([b'', struct.pack('>Q', number), payload])

    def answer_replay(self):
        while True:
            who, *_, first = self.router.recv_multipart()
            self.asked += 1
            first = struct.unpack('>Q', first)[0]
            if self.lie is None:
                for number, payload in self.kept:
                    if number >= first:
                        self.router.send_multipart([who, b'', struct.pack('>Q', number), payload])
                self.router.send_multipart([who, b'', b'\xff' * 8, b''])
                continue
            end, lie = time.monotonic() + 15, self.lie
            while time.monotonic() < end and self.lie == lie:
                if lie == 'old':
                    self.router.send_multipart([who, b'', struct.pack('>Q', 0), self.kept[0][1]])
                elif lie == 'rubbish':
                    self.router.send_multipart([who, b'', os.urandom(8), os.urandom(64)])
                elif lie == 'parts':
                    self.router.send_multipart([who, b''])
                time.sleep(0.01)


def check_answers(front):
    """x_mode: (status of the answer, or 0 for an error from the agent; its text)."""
    expected = {'early': 200, 'gzip': 200, 'long': 200, 'switch': 502, 'line': 502, 'fields': 502, 'none': 502, 'chunk': 502, 'short': 502}
    for mode, want in expected.items():
        began = time.monotonic()
        r = front.ask(list(range(20)), x_mode=mode)
        front.until(f'{mode}: it ends', lambda r=r: r.ended)
        good = r.fin == (p.ITEM_FIN, 200) if want == 200 else r.fin is not None and r.fin[0] & p.ITEM_ERROR and r.fin[1] == want
        front.check(f'{mode}: {want}', good, (r.fin, r.rejected, r.data[:100], time.monotonic() - began))
        front.check(f'{mode}: the client gets an answer or nothing', not r.data or r.data.startswith(b'HTTP/1.1 200 '), r.data[:100])
        r = front.ask(list(range(20)))
        front.until(f'{mode}: the next one ends', lambda r=r: r.ended)
        front.check(f'{mode}: the next one is served', r.fin == (p.ITEM_FIN, 200) and Answer(r.data).content == b'{}', (r.fin, r.data[:100]))
    r = front.ask(list(range(20)), stream=True, x_mode='event')
    front.until('an event without an end: it ends', lambda: r.ended)
    front.check('an event without an end passes', len(r.data) > 64 * 65536, (len(r.data), r.fin))


def methods(front):
    """An answer to HEAD has no body, whatever its head states."""
    r = front.ask(list(range(20)), raw=b'HEAD /v1/completions HTTP/1.1\r\naccept: */*\r\n\r\n')
    front.until('HEAD ends', lambda: r.ended)
    a = Answer(r.data)
    front.check('HEAD: a head alone', a.status == 200 and a.content == b'' and r.fin == (p.ITEM_FIN, 200), (r.fin, r.data[:100]))


def replay(front, engine, router):
    """An invalid replay socket: its rank starts empty, and continues with live events."""
    number = 0

    def table(blocks):
        rank = router.telemetry('/kvroute/ranks')
        return rank, blocks
    for lie in (None, 'old', 'parts', 'rubbish'):
        hashes = [number * 100 + i + 1 for i in range(3)]
        engine.lie, asked = lie, engine.asked
        engine.publish(number, hashes)
        engine.pub.send_multipart([b'', struct.pack('>Q', number + 5), engine.kept[-1][1]])  # a gap
        end = time.monotonic() + 10
        while engine.asked == asked and time.monotonic() < end:
            p.run_until(front.all, lambda: False, 0.05)
        front.check(f'replay {lie}: the agent asks for a replay', engine.asked > asked, engine.asked)
        number += 6
        batches = front.agent.counters()['agent']['batches']

        def goes_on():
            nonlocal number
            engine.publish(number, [number * 100 + 1])
            number += 1
            p.run_until(front.all, lambda: False, 0.2)
            return front.agent.counters()['agent']['batches'] > batches + 3
        end = time.monotonic() + 12
        while not goes_on() and time.monotonic() < end:
            pass
        front.check(f'replay {lie}: live batches are read again', goes_on(), front.agent.counters()['agent'])
    engine.lie = None


def idle_connections(front):
    """Idle connections must not keep other bodies out."""
    def begin(size):
        token, tokens = os.urandom(16), list(range(2 * B))
        r = front.client.away(POOL, len(tokens), p.sequence_hashes(tokens, B), size, token)
        front.until('it is running', lambda: r.ended or r.accepted and r.accepted['body_addr'])
        return r, token, r.accepted['body_addr']

    content = message('/v1/completions', {'prompt': list(range(32)), 'max_tokens': 2})
    r, token, where = begin(len(content))
    host, _, port = where.rpartition(':')
    idle = [socket.create_connection((host.strip('[]'), int(port))) for _ in range(200)]
    for s in idle[::2]:
        s.sendall(b'PUT /kvroute/body/')
    p.run_until(front.all, lambda: False, 0.3)
    began = time.monotonic()
    with socket.create_connection((host.strip('[]'), int(port)), timeout=15) as s:
        s.sendall(f'PUT /kvroute/body/{token.hex()} HTTP/1.1\r\ncontent-length: {len(content)}\r\n\r\n'.encode() + content)
        try:
            said = s.recv(100)
        except TimeoutError:
            said = b'nothing'
    front.check('a body comes in beside 200 idle connections', said.startswith(b'HTTP/1.1 204 '), (said, time.monotonic() - began))
    front.until('and its request is answered', lambda: r.ended)
    front.check('by the engine', r.fin == (p.ITEM_FIN, 200), (r.fin, r.rejected))
    for s in idle:
        s.close()


def main(kvroute, program):
    router = Router(kvroute, POOLS, 'suspect_ms = 20000\ndead_ms = 40000')

    def test():
        front, engine = Front(TALLY, ADDRESSES[0]), Liar()
        agent = Agent(program, engine, ADDRESSES[0], WORKER, '--block-size', '16', log=f'{router.dir}/agent.log')
        front.agent = agent
        front.serving('it', router, WORKER)
        for part in sys.argv[3:] or ('check_answers', 'methods', 'idle_connections', 'replay'):
            if part == 'replay':
                replay(front, engine, router)
            else:
                globals()[part](front)
        front.check('the agent lives', agent.process.poll() is None)
        front.check('and leaves', agent.stop() == 0)
    TALLY.beside(router, test, f'{router.dir}/agent.log')


main(*sys.argv[1:3])
