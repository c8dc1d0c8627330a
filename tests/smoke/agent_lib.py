# SPDX-License-Identifier: BSD-3-Clause
"""Helpers of the tests of kvroute-agent: engines, agents, and a client that speaks HTTP in requests."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

try:  # for the stand-in engine
    import msgpack  # noqa: F401
    import zmq  # noqa: F401
except ImportError as e:
    print(e)
    sys.exit(77)
import child
import kvrproto as p
from protocol_router import Peers

ENGINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib', 'engine.py')
POOL, B = 3, 16
POOLS = f'''[pool llama]
id = {POOL}
block_size = {B}
seed = 1
max_ranks = 16
max_blocks = 65536
'''
PORTS = iter(range(20000, 30000, 20))


def call(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(f'http://127.0.0.1:{port}{path}', data, timeout=10) as answer:
            return json.loads(answer.read() or b'null')
    except urllib.error.HTTPError as e:
        return e.code


def cpu(process):
    """CPU seconds used so far."""
    with open(f'/proc/{process.pid}/stat') as f:
        return sum(int(w) for w in f.read().rsplit(')', 1)[1].split()[11:13]) / 100


class Engine:
    """The stand-in engine on ports of its own; it may be killed and restarted."""

    def __init__(self, *how, ranks=2, bare=False):
        """bare: without KV events."""
        self.port = next(PORTS)
        self.events, self.replay, self.ranks = self.port + 1, self.port + 10, ranks
        self.how = [*how, '--ranks', str(ranks)]
        if not bare:
            self.how += ['--events', f'tcp://*:{self.events}', '--replay', f'tcp://*:{self.replay}']
        self.start()

    def start(self):
        self.process = child.start(
            [sys.executable, ENGINE, '--port', str(self.port), *self.how], stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def test(self, **switches):
        return call(self.port, '/_test', switches)

    def state(self):
        return call(self.port, '/_test')

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Agent:
    """kvroute-agent beside an engine."""

    def __init__(self, program, engine, router, worker, *how, pool='llama', log=None, how_all=None):
        """how_all: all options except engine, router and pool."""
        self.args = [program, '--engine', f'http://127.0.0.1:{engine.port}', '--router', router, '--pool', pool, *(how_all or (
                     '--worker', str(worker), '--ranks', str(engine.ranks), '--events',
                     f'tcp://127.0.0.1:{engine.events}', '--replay', f'tcp://127.0.0.1:{engine.replay}',
                     '--health-ms', '200', '--canary-s', '0', *how))]
        self.ranks = engine.ranks
        self.worker, self.log = worker, open(log, 'ab')
        self.start()

    def start(self):
        self.process = child.start(self.args, stderr=self.log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def counters(self):
        """The output of SIGUSR1 as {'agent': {...}, 'rank 0': {...}}."""
        self.log.flush()
        at = os.path.getsize(self.log.name)
        self.process.send_signal(signal.SIGUSR1)
        for _ in range(100):
            time.sleep(0.05)
            with open(self.log.name) as f:
                f.seek(at)
                text = f.read()
            if f'rank {self.ranks - 1}: held' in text:
                break
        out = {}
        for line in text.splitlines():
            words = line.split()
            if line.startswith('agent: '):
                out.setdefault('agent', {})[words[1]] = int(words[2])
            elif line.startswith('rank '):
                out.setdefault(line.split(':')[0], {})[words[2]] = int(words[3])
        return out

    def stop(self):
        self.process.terminate()
        return self.process.wait(30)

    def lines(self):
        """Lines of the log without those of its counters."""
        with open(self.log.name) as f:
            return [line for line in f if line.startswith('time=')]


def message(path, body, **fields):
    """An HTTP request message."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f'POST {path} HTTP/1.1', 'content-type: application/json',
             *(f'{k.replace("_", "-")}: {v}' for k, v in fields.items())]
    return '\r\n'.join(lines).encode() + b'\r\n\r\n' + content


class Answer:
    """An HTTP response message."""

    def __init__(self, data):
        head, _, self.content = data.partition(b'\r\n\r\n')
        lines = head.decode().split('\r\n')
        self.status = int(lines[0].split()[1]) if data else 0
        self.fields = dict(line.lower().split(': ', 1) for line in lines[1:])

    def json(self):
        return json.loads(self.content)

    def events(self):
        return [json.loads(e[6:]) for e in self.content.decode().split('\n\n') if e.startswith('data: {')]

    def text(self):
        if self.fields.get('content-type', '').startswith('text/event-stream'):
            return ''.join(c['text'] for e in self.events() for c in e['choices'])
        return self.json()['choices'][0]['text']


class Front(Peers):
    """A client of one pool."""

    def __init__(self, tally, address, pool=POOL):
        super().__init__(tally, address)
        self.client, self.pool = p.Client(address, max_frame=1432), pool
        self.all = [self.client]

    def ask(self, tokens, n=4, stream=False, pin=None, flags=0, path='/v1/completions', raw=None, **more):
        body = {'prompt': tokens, 'max_tokens': n, 'stream': stream, **more}
        if stream:
            body['stream_options'] = {'include_usage': True}
        hints = p.route_hints(backend=pin[0], dp_rank=pin[1]) if pin else b''
        return self.client.route(self.pool, len(tokens), p.sequence_hashes(tokens, B), hints=hints, flags=flags,
                                 max_tokens=n, body=raw if raw is not None else message(path, body))

    def answers(self, name, requests):
        self.until(f'{name}: all end', lambda: all(r.ended for r in requests),
                   lambda: [(r.state, r.answers) for r in requests if not r.ended][:3])
        return [Answer(r.data) for r in requests]

    def overlap(self, tokens, worker, ranks):
        """Blocks of each rank in the router's table."""
        asked = [self.ask(tokens, pin=(worker, i), flags=p.ROUTE_QUERY, raw=b'') for i in range(ranks)]
        p.run_until(self.all, lambda: all(r.ended for r in asked), 10)
        return [r.accepted['overlap_blocks'] if r.accepted else repr(r.rejected) for r in asked]

    def held(self, engine, tokens):
        """Blocks that each rank of an engine has."""
        return engine.test(overlap=tokens)['overlap']

    def same_table(self, name, engine, worker, prompts):
        """The router's table equals the engine's cache for every prefix of these prompts."""
        wrong = []

        def equal():
            wrong.clear()
            for tokens in prompts:
                known, held = self.overlap(tokens, worker, engine.ranks), self.held(engine, tokens)
                if known != held:
                    wrong.append((known, held))
                    return False
            return True
        end = time.monotonic() + self.tally.patience
        while not equal() and time.monotonic() < end:
            p.run_until(self.all, lambda: False, 0.05)
        return self.check(f'{name}: the same table', not wrong, wrong)

    def serving(self, name, router, worker, other_than=None):
        """Waits until the router reports another incarnation. @return its epoch."""
        seen = {}

        def now():
            seen.update(router.telemetry('/kvroute/workers')['workers'].get(f'{worker}') or {'state': 'none'})
            return seen['state'] == 'serving' and seen['epoch'] != other_than
        end = time.monotonic() + self.tally.patience
        while not (good := now()) and time.monotonic() < end:
            p.run_until(self.all, lambda: False, 0.05)
        self.check(f'{name}: serving', good, seen)
        # Telemetry shows the state of control; the lcores get it a moment later.
        end = time.monotonic() + 3
        while time.monotonic() < end:
            asked = self.ask([1], pin=(worker, 0), flags=p.ROUTE_QUERY, raw=b'')
            p.run_until(self.all, lambda: asked.ended, 3)
            if asked.accepted:
                break
            p.run_until(self.all, lambda: False, 0.02)
        return seen.get('epoch')
