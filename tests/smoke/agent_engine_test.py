# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-agent's connections to its engine: every framing of an answer, kept connections, and engines without HTTP.

protocol_test.sh starts it: agent_engine_test.py KVROUTE KVROUTE_AGENT
"""

import contextlib
import json
import socket
import struct
import sys
import threading
import time

import kvrproto as p

from agent_lib import POOLS, PORTS, Agent, Front, message
from protocol_router import ADDRESSES, Router, Tally

TALLY = Tally(90, patience=20.0)
WORKER = 7
# The agent adds nothing to a request that asks for all of this.
OPTIONS = {'stream': True, 'stream_options': {'include_usage': True, 'continuous_usage_stats': True}}
BODY = json.dumps({'prompt': [1], **OPTIONS}).encode()
JSON = b'{"choices": [{"text": " 0"}], "usage": {"completion_tokens": 1}}'
HEAD = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n'
LENGTH = b'content-length: %d\r\n' % len(JSON)
WHOLE = HEAD + LENGTH + b'\r\n' + JSON
CHUNKED = HEAD + b'transfer-encoding: chunked\r\n\r\n7;x=y\r\n' + JSON[:7] + b'\r\n%x\r\n' % len(JSON[7:]) + JSON[7:] + b'\r\n0\r\na: b\r\n\r\n'


class Gone(Exception):
    pass


class Connection:
    """A connection of the agent, on a thread of its own."""

    def __init__(self, engine, sock):
        self.engine, self.sock, self.data, self.answered, self.asked = engine, sock, b'', 0, False
        engine.conns.append(self)
        threading.Thread(target=self.run, daemon=True).start()

    def more(self):
        data = self.sock.recv(4096)
        if not data:
            raise Gone
        self.data += data

    def request(self):
        while b'\r\n\r\n' not in self.data:
            self.more()
        head, _, self.data = self.data.partition(b'\r\n\r\n')
        lines = head.decode().split('\r\n')
        fields = [line.split(': ', 1) for line in lines[1:]]
        return lines[0], {k.lower(): v for k, v in fields}, len(fields)

    def body(self, fields):
        n = int(fields.get('content-length', 0))
        while len(self.data) < n:
            self.more()
        body, self.data = self.data[:n], self.data[n:]
        return body

    def send(self, data, step=None):
        for i in range(0, len(data), step or len(data)):
            self.sock.sendall(data[i:i + (step or len(data))])

    def run(self):
        try:
            while True:
                line, fields, _ = self.request()
                self.asked = True
                if line.startswith('GET'):
                    self.send(b'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')
                    continue
                self.engine.lines.append((line, fields))
                self.engine.script(self, fields)
                self.answered += 1
        except (Gone, OSError):
            self.engine.gone += 1
        finally:
            self.sock.close()


class Engine:
    """Handles a request as its script defines."""

    ranks = 1

    def __init__(self):
        self.port = next(PORTS)
        self.events, self.replay = self.port + 1, self.port + 10
        self.lines, self.gone, self.script, self.socks, self.conns = [], 0, None, [], []
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.listener.bind(('127.0.0.1', self.port))
        self.listener.listen(256)  # more than arrive at once: a full backlog would delay a connection by 3 and 6.2 s, above --timeout-s
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock = self.listener.accept()[0]
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socks.append(sock)
            Connection(self, sock)

    def asked(self):
        """Connections that have had a request; others may have been opened in advance."""
        return sum(c.asked for c in self.conns)

    def die(self):
        for sock in [self.listener, *self.socks]:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:  # already closed
                pass
        self.listener.close()


def send_data(data, step=None, close=False):
    """Reads the body and answers with @data."""
    def script(c, fields):
        c.body(fields)
        c.send(data, step)
        if close:
            raise Gone
    return script


def silent(c, fields):
    c.body(fields)
    c.more()


class Test:
    def __init__(self, program, router):
        self.program, self.router, self.front, self.n = program, router, Front(TALLY, ADDRESSES[0]), 0
        self.agent = self.another(WORKER, 'agent.log')

    def another(self, worker, log):
        self.engine = Engine()
        agent = Agent(self.program, self.engine, ADDRESSES[0], worker, '--block-size', '16', '--inactivity-s', '6',
                      '--connect-ms', '2000', '--health-ms', '60000', log=f'{self.router.dir}/{log}')
        self.front.serving('engine', self.router, worker)
        return agent

    def ask(self, name, script, body=BODY, wait=True):
        self.engine.script = script
        self.engine.lines.clear()
        r = self.front.ask([1], raw=message('/v1/completions', body))
        return (r, self.front.answers(name, [r])[0]) if wait else r

    def whole(self, name, script, body=BODY):
        r, a = self.ask(name, script, body)
        self.front.check(f'{name}: whole', r.fin == (p.ITEM_FIN, 200) and a.content == JSON, (r.fin, r.rejected, r.data))
        hop = {'content-length', 'transfer-encoding', 'connection'} & set(a.fields)
        self.front.check(f'{name}: nothing of its connection', not hop, a.fields)

    def fails(self, name, script, status=502, words='', body=BODY, asked=1):
        r, _ = self.ask(name, script, body)
        self.front.check(f'{name}: error', r.fin and r.fin[0] & p.ITEM_ERROR and r.fin[1] == status, (r.fin, r.rejected, r.data))
        self.front.check(f'{name}: its words', words in (r.words or ''), r.words)
        self.front.check(f'{name}: asked {asked} times', len(self.engine.lines) == asked, self.engine.lines)

    def ahead(self):
        """Connections opened before a request needs them: one for each four in progress."""
        front, engine, done = self.front, self.engine, threading.Event()

        def held(c, fields):
            c.body(fields)
            done.wait(20)
            c.send(WHOLE)
            raise Gone  # later requests find no idle connection

        def unasked():
            return [c for c in engine.conns if not c.asked]
        few = [self.ask('few', send_data(WHOLE, 1), wait=False) for _ in range(3)]
        front.answers('few', few)
        front.check('few: none ahead', not unasked())
        engine.lines.clear()
        engine.script = held
        many = [front.ask([1], raw=message('/v1/completions', b'{"prompt": [1]}')) for _ in range(8)]
        front.until('eight under way', lambda: len(engine.lines) == 8)
        front.until('two ahead', lambda: len(unasked()) == 2)
        ready = unasked()
        many += [front.ask([1], raw=message('/v1/completions', b'{"prompt": [1]}')) for _ in range(2)]
        front.until('those are asked next', lambda: all(c.asked for c in ready))
        front.until('two more ahead', lambda: len(unasked()) == 2)
        front.check('ten under way', len(engine.lines) == 10, engine.lines)
        for c in unasked():  # the engine closes them
            c.sock.shutdown(socket.SHUT_RDWR)
        many.append(front.ask([1], raw=message('/v1/completions', b'{"prompt": [1]}')))
        front.until('asked all the same', lambda: len(engine.lines) == 11)
        done.set()
        front.check('ahead: all whole', all(a.content == JSON for a in front.answers('ahead', many)))

    def framings(self):
        self.whole('length', send_data(WHOLE))
        line, fields = self.engine.lines[0]
        self.front.check('the request', line == 'POST /v1/completions HTTP/1.1' and fields ==
                         {'host': f'127.0.0.1:{self.engine.port}', 'content-type': 'application/json', 'content-length': f'{len(BODY)}'},
                         (line, fields))
        asked = self.engine.asked()
        for name, data in (('length', WHOLE), ('chunks', CHUNKED), ('line feeds', WHOLE.replace(b'\r\n', b'\n')),
                           ('informational', b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n' + WHOLE)):
            for step in (None, 1, 7):
                self.whole(f'{name}, {step}', send_data(data, step))
        self.front.check('one connection', self.engine.asked() == asked, (asked, self.engine.asked()))
        self.whole('until it closes', send_data(HEAD + b'\r\n' + JSON, 11, close=True))
        self.whole('HTTP/1.0', send_data(WHOLE.replace(b'/1.1', b'/1.0'), close=True))
        self.whole('closes, with a header', send_data(HEAD + b'connection: close\r\n' + LENGTH + b'\r\n' + JSON, close=True))
        self.whole('more than an answer', send_data(WHOLE + b'HTTP/1.1 200 OK\r\n\r\n'))
        self.whole('after it', send_data(WHOLE))
        big = json.dumps({'prompt': [1], **OPTIONS, 'x': 'y' * 200000}).encode()

        def slow(c, fields):
            c.sock.settimeout(10)
            TALLY.check('a large body: as it was', c.body(fields) == big)
            c.send(WHOLE)
        self.whole('a large body', slow, big)

    def kept(self):
        """A connection that the engine closes while idle is replaced. A request that may have begun is never sent again."""
        self.whole('kept', send_data(WHOLE))
        asked = self.engine.asked()
        for c in self.engine.conns:
            with contextlib.suppress(OSError):
                c.sock.shutdown(socket.SHUT_RDWR)
        self.whole('closed while idle', send_data(WHOLE))
        self.front.check('another connection', self.engine.asked() == asked + 1, (asked, self.engine.asked()))

        def begins(c, fields):
            c.body(fields)
            raise Gone

        def resets(c, fields):
            c.body(fields)
            c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            c.sock.close()
            raise Gone
        self.fails('closed with a request', begins, words='connection closed without an answer')
        self.whole('after that', send_data(WHOLE))
        self.fails('reset with a request', resets, words='connection closed without an answer')
        self.whole('after that, too', send_data(WHOLE))

    def failures(self):
        def close(c, fields):
            raise Gone

        def early(c, fields):
            c.send(b'HTTP/1.1 413 Content Too Large\r\ncontent-length: 4\r\nconnection: close\r\n\r\nmuch')
            c.sock.shutdown(socket.SHUT_WR)
            while True:
                c.more()
        self.fails('no HTTP', send_data(b'SSH-2.0-OpenSSH\r\n\r\n'), words='not HTTP')
        self.fails('no answer', close, words='connection closed without an answer')
        self.fails('half a head', send_data(WHOLE[:30], close=True), words='the answer was truncated')
        self.fails('a head without an end', send_data(b'HTTP/1.1 200 OK\r\na: ' + b'b' * 20000), words='too long')
        self.fails('half an answer', send_data(WHOLE[:-10], close=True), words='the answer was truncated')
        self.fails('half a chunk', send_data(CHUNKED[:-40], close=True), words='the answer was truncated')
        self.fails('no chunk', send_data(HEAD + b'transfer-encoding: chunked\r\n\r\nxyz\r\n'), words='not HTTP')
        self.fails('two lengths', send_data(HEAD + LENGTH + b'content-length: 3\r\n\r\n' + JSON), words='not HTTP')
        self.fails('another protocol', send_data(b'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n'), words='another protocol')
        line = b'data: {"choices": [{"text": " 0"}]}\n\ndata: {"choices": [{"text": " 1'

        def half(c, fields):
            c.body(fields)
            c.send(b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n'
                   b'%x\r\n%b\r\n' % (len(line), line))
            c.more()
        r = self.ask('half a line, and silence', half, wait=False)
        self.front.until('half a line: it is there', lambda: r.data.endswith(line), lambda: r.data)
        self.fails('silence', silent, 504, 'no data for 6 s')
        self.front.until('half a line: it ends', lambda: r.ended, lambda: r.data)
        self.front.check('half a line: an error behind it', r.fin and r.fin[0] & p.ITEM_ERROR and r.fin[1] == 502 and 'no data for 6 s' in r.words,
                         (r.fin, r.rejected, r.words))
        r, a = self.ask('an early answer', early, json.dumps({'x': 'y' * 200000}).encode())
        self.front.check('an early answer: as it came', r.fin == (p.ITEM_FIN, 413) and a.content == b'much', (r.fin, r.data))
        self.engine.lines.clear()
        r = self.front.ask([1], raw=b'CONNECT /v1/completions HTTP/1.1\r\n\r\n')
        self.front.until('a tunnel is refused', lambda: r.rejected and r.rejected.detail[0] == 400 and not self.engine.lines, lambda: r.fin)
        gone = self.engine.gone
        r = self.ask('cancelled', silent, wait=False)
        self.front.until('cancelled: it runs', lambda: self.engine.lines)
        self.front.client.cancel(r)
        self.front.until('cancelled: the engine knows', lambda: self.engine.gone > gone)
        self.front.until('cancelled: over', lambda: r.ended)
        self.whole('after all that', send_data(WHOLE))
        many = [self.ask('many', send_data(CHUNKED, 5), wait=False) for _ in range(100)]
        answers = self.front.answers('many', many)
        self.front.check('many: all whole', all(a.content == JSON for a in answers),
                         [(r.fin, r.rejected, r.words) for r, a in zip(many, answers) if a.content != JSON])

    def bare(self):
        """Answers without a body, whatever their heads state, end with their heads."""
        for status, fields in ((204, b''), (304, b'content-length: 5\r\n'), (304, b'transfer-encoding: chunked\r\n')):
            asked = self.engine.asked()
            r, a = self.ask(f'{status}', send_data(b'HTTP/1.1 %d x\r\n%s\r\n' % (status, fields)))
            self.front.check(f'{status}: a head alone', r.fin == (p.ITEM_FIN, status) and a.content == b'', (r.fin, r.data))
            self.whole(f'after {status}', send_data(WHOLE))
            self.front.check(f'{status}: one connection', self.engine.asked() == asked, (asked, self.engine.asked()))

    def heads(self):
        """An engine that has sent only a head: the client already gets it."""
        more, (head, _, content) = threading.Event(), WHOLE.partition(b'\r\n\r\n')

        def late(c, fields):
            c.body(fields)
            c.send(head + b'\r\n\r\n')
            more.wait(60)
            c.send(content)
        r = self.ask('a late content', late, wait=False)
        self.front.until('a head alone', lambda: r.next == 1, lambda: (r.next, r.data))
        self.front.check('as it came', r.data.endswith(b'\r\n\r\n') and not r.ended, r.data)
        more.set()
        a = self.front.answers('a late content', [r])[0]
        self.front.check('and then the rest', r.next == 2 and a.content == JSON, (r.next, r.data))

    def large_event(self):
        """A stream of /v1/responses, whose last event contains the whole answer, the request and the usage."""
        usage = {'input_tokens': 40, 'output_tokens': 2, 'input_tokens_details': {'cached_tokens': 32}}
        events = [{'type': 'response.output_text.delta', 'delta': 'x'},
                  {'type': 'response.completed', 'response': {'instructions': 'y' * 200000, 'output': ['x'], 'usage': usage}}]
        data = b''.join(b'event: %b\ndata: %b\n\n' % (e['type'].encode(), json.dumps(e).encode()) for e in events)
        head = b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n' % len(data)
        bad = self.agent.counters()['agent']['bad_events']
        r, a = self.ask('a large event', send_data(head + data))
        self.front.check('a large event: whole', r.fin == (p.ITEM_FIN, 200) and a.content == data, (r.fin, len(a.content)))
        self.front.check('a large event: what it send_data', (r.generated, r.cached_tokens) == (2, 32), (r.generated, r.cached_tokens))
        self.front.check('a large event: is none too many', self.agent.counters()['agent']['bad_events'] == bad)

    def death(self):
        """The engine cannot be reached: a request does not wait for /health, which is polled once a minute here."""
        self.engine.die()
        self.fails('no listener', None, words='Connection refused', asked=0)
        self.front.until('it leaves at once', lambda: any(
            '/health failed (1 in a row)' in line and '"Connection refused"' in line for line in self.agent.lines()), self.agent.lines)
        agent = self.another(WORKER + 1, 'another.log')
        r = self.ask('under way', silent, wait=False)
        self.front.until('it is there', lambda: self.engine.lines)
        self.engine.die()
        self.front.answers('under way', [r])
        self.front.check('an engine that dies with a request', r.fin and r.fin[0] & p.ITEM_ERROR and 'connection closed' in (r.words or ''), (r.fin, r.words))
        self.front.until('that agent leaves at once, too', lambda: any(
            '/health failed (1 in a row)' in line and '"Connection refused"' in line for line in agent.lines()), agent.lines)
        self.front.check('and ends', agent.stop() == 0)


def main(kvroute, program):
    router = Router(kvroute, POOLS, 'suspect_ms = 5000\ndead_ms = 15000')

    def run():
        test = Test(program, router)
        test.ahead()
        test.framings()
        test.kept()
        test.failures()
        test.bare()
        test.heads()
        test.large_event()
        test.death()
        counters = test.agent.counters()['agent']
        TALLY.check('counters', counters['running'] == 0 and counters['failed'] == 14 and counters['aborted'] == 1, counters)
        TALLY.check('leaves', test.agent.stop() == 0)
        TALLY.balanced(router)
    TALLY.beside(router, run, f'{router.dir}/agent.log')


main(*sys.argv[1:])
