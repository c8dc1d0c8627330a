# SPDX-License-Identifier: BSD-3-Clause
"""Helpers of the gateway's tests: agents of PROTOCOL.md whose engine is a function, a running gateway, HTTP."""

import contextlib
import http.client
import json
import os
import select
import socket
import subprocess
import threading
import time

import child
import kvrproto as p

HERE = os.path.dirname(os.path.abspath(__file__))
ENGINE = os.path.join(HERE, '..', 'lib', 'engine.py')


def parse_message(data):
    """Method, target, fields and body of an HTTP request message."""
    head, _, body = bytes(data).partition(b'\r\n\r\n')
    lines = head.decode('latin-1').split('\r\n')
    method, target, version = lines[0].split(' ')
    assert version == 'HTTP/1.1', lines[0]
    fields = {}
    for line in lines[1:]:
        name, _, value = line.partition(':')
        fields[name.lower()] = value.strip()
    return method, target, fields, body


def response(status=200, content_type='application/json', body=b'', more=''):
    return f'HTTP/1.1 {status} Reason\r\ncontent-type: {content_type}\r\n{more}\r\n'.encode() + body


class Agents(threading.Thread):
    """Drives agents in the background. `serve(agent, job)` is called for each new request; functions that it puts into `later` as (due, function)
    are called when due."""

    def __init__(self, agents, serve):
        super().__init__(daemon=True)
        self.agents, self.later, self.seen, self.lock, self.ended = agents, [], [], threading.Lock(), False
        self.serve = serve
        for agent in agents:
            self.begin(agent)

    def begin(self, agent):
        agent.answer = lambda job: (self.seen.append(job), self.serve(self, agent, job))
        agent.hello()

    def add(self, agent):
        """Adds an agent while they are driven."""
        with self.lock:
            self.begin(agent)
            self.agents.append(agent)
        wait_for(lambda: agent.state == 'SERVING')

    def remove(self, agent):
        with self.lock:
            agent.goodbye()
        wait_for(lambda: agent.gone)
        with self.lock:
            self.agents.remove(agent)

    def at(self, seconds, function):
        self.later.append((time.monotonic() + seconds, function))

    def run(self):
        while not self.ended:
            with self.lock:
                p.run_until(self.agents, lambda: True)
                now = time.monotonic()
                due = [f for t, f in self.later if t <= now]
                self.later = [x for x in self.later if x[0] > now]
                for function in due:
                    function()
            ready, _, _ = select.select([a.sock for a in self.agents], [], [], 0.002)
            with self.lock:
                for agent in self.agents:
                    if agent.sock in ready:
                        agent.receive()

    def runs(self):
        """Every request so far, in order of arrival."""
        with self.lock:
            return list(self.seen)

    def leave(self):
        with self.lock:
            for agent in self.agents:
                agent.goodbye()
        end = time.monotonic() + 5
        while time.monotonic() < end and not all(a.gone for a in self.agents):
            time.sleep(0.01)
        self.ended = True
        self.join()


def wait_for(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def error(self):
        """Type and code of an error in the form of the OpenAI API."""
        e = self.json()['error']
        assert set(e) == {'message', 'type', 'param', 'code'} and e['message'], e
        return e['type'], e['code']

    def __repr__(self):
        return f'{self.status} {self.headers} {self.body[:300]}'


class Gateway:
    def __init__(self, program, *options, log=None):
        self.port = free_port()
        self.log = log
        # Two busy CPUs may keep a router silent for longer than the gateway's default limit.
        patient = () if '--router-ms' in options else ('--router-ms', '10000')
        self.process = child.start([program, '--listen', f'127.0.0.1:{self.port}', *patient, *options],
                                   stderr=log or subprocess.DEVNULL)
        assert wait_for(self.alive), 'the gateway does not start'

    def alive(self):
        if self.process.poll() is not None:
            raise RuntimeError(f'the gateway ended with {self.process.returncode}')
        try:
            return self.call('GET', '/health').status == 200
        except OSError:
            return False

    def ready(self):
        return self.call('GET', '/ready').status == 200

    def call(self, method, path, body=None, headers=None, timeout=30):
        c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=timeout)
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            c.request(method, path, body, {'content-type': 'application/json', **(headers or {})})
            r = c.getresponse()
            return Reply(r.status, dict((k.lower(), v) for k, v in r.getheaders()), r.read())
        finally:
            c.close()

    def post(self, path, body, headers=None, timeout=30):
        return self.call('POST', path, body, headers, timeout)

    def raw(self, data, seconds=10.0, half_close=False, whole=lambda out: False):
        """Bytes in, bytes out until the gateway closes or is silent for @seconds; half a second once they are `whole`."""
        with socket.create_connection(('127.0.0.1', self.port)) as s:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            s.settimeout(seconds)
            out = b''
            try:
                while True:
                    part = s.recv(65536)
                    if not part:
                        return out
                    out += part
                    if whole(out):
                        s.settimeout(0.5)
            except TimeoutError:
                return out + b'<timeout>'

    def counters(self):
        out = {}
        for line in self.call('GET', '/metrics').body.decode().splitlines():
            if not line.startswith('#'):
                name, value = line.split()
                out[name] = float(value)
        return out

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return 'killed'


@contextlib.contextmanager
def serving(tally, agents, serve, program, *options, log=None):
    """A gateway with agents behind its router that answer as Agents(agents, serve) does; for a `with` block, which ends them."""
    driven = Agents(agents, serve)
    driven.start()
    tally.check('agents are served', wait_for(lambda: all(a.state == 'SERVING' for a in driven.agents)))
    gateway = Gateway(program, *options, log=log)
    tally.check('the gateway is ready', wait_for(gateway.ready))
    yield gateway, driven
    tally.check('the gateway ends by SIGTERM', gateway.stop() == 0)
    driven.leave()


def beside(tally, router, test):
    """test(log) beside a router that is ready and must have nothing left afterwards; then exit. `log` is the gateway's log."""
    path = f'{router.dir}/gateway.log'
    with open(path, 'w+') as log:
        tally.beside(router, lambda: (test(log), tally.balanced(router)), path)


def vocabulary(port, folder):
    """The process of a /tokenize on that port, with the ids of gpt-tokenizer in node_modules of `folder`."""
    process = child.start(['node', f'{HERE}/gateway_vocabulary.mjs', str(port), folder], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == 'ready\n', 'the vocabulary does not start'
    return process


class Tokenizer:
    """The stand-in engine's /tokenize: a byte is a token."""

    def __init__(self, model, *more):
        self.port = free_port()
        self.process = child.start(['/usr/bin/python3', ENGINE, '--port', str(self.port), '--model', model, *more],
                                   stdout=subprocess.DEVNULL)
        self.url = f'http://127.0.0.1:{self.port}/tokenize'
        assert wait_for(self.there), 'the engine does not start'

    def there(self):
        try:
            socket.create_connection(('127.0.0.1', self.port)).close()
            return True
        except OSError:
            return False

    def stop(self):
        self.process.kill()
        self.process.wait()
