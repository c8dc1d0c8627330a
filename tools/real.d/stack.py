# SPDX-License-Identifier: BSD-3-Clause
"""Router, agents and gateway of this checkout for the checks of tools/real, which starts each program in namespaces of its own.

A program prints its results with passed(), failed(), skipped() or check(): `pass NAME -- DETAIL`, one line each.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, f'{ROOT}/tests/smoke']
import child  # noqa: E402
import packages  # noqa: E402
from protocol_router import Router  # noqa: E402

BUILD = os.environ['KVR_REAL_BUILD']
CACHE = os.environ['KVR_REAL_CACHE']
RECORD = bool(os.environ.get('KVR_REAL_RECORD'))
VERBOSE = bool(os.environ.get('KVR_REAL_VERBOSE'))
ADDRESS = '10.9.0.1'
PORT = 8000
URL = f'http://127.0.0.1:{PORT}'


def report(result, name, detail=''):
    detail = ' '.join(str(detail).split())[:300]
    print(f'{result} {name}' + (f' -- {detail}' if detail else ''), flush=True)


def check(name, good, detail=''):
    """Report a check; return whether it holds. @detail is shown when it fails, or always with --verbose."""
    report('pass' if good else 'FAIL', name, '' if good and not VERBOSE else detail)
    return bool(good)


def equal(name, got, want):
    return check(name, got == want, f'got {got}, expected {want}')


def skip(name, reason):
    report('skip', name, reason)


@contextlib.contextmanager
def attempt(name):
    """Report an exception of the block as the failure of check @name."""
    try:
        yield
    except Exception as e:  # noqa: BLE001: reported
        report('FAIL', name, f'{type(e).__name__}: {e}')


def wait_for(condition, seconds=30.0):
    """The first true value of condition(), or its last value. A refused connection counts as false."""
    end, value = time.monotonic() + seconds, None
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError):
            value = condition()
            if value:
                return value
        if time.monotonic() > end:
            return value
        time.sleep(0.1)


def request(port, method, path, body=None, headers=None, timeout=120):
    """(status, headers in lower case, body: parsed JSON, or bytes)"""
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=timeout)
    try:
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, data, {'content-type': 'application/json', **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
        with contextlib.suppress(ValueError):
            text = json.loads(text)
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text
    finally:
        connection.close()


class NotReady(Exception):
    """A part of the stack does not start."""


class Stack:
    """One router with @pools, {name: {key: value}}, and the processes beside it. Use it as a context manager."""

    def __init__(self, pools, router_options='', memory_mb=640):
        text = ''
        for number, (name, keys) in enumerate(pools.items(), 1):
            keys = dict(dict(id=number, block_size=16, max_ranks=4, max_blocks='64K'), **keys)
            text += f'[pool {name}]\n' + ''.join(f'{k} = {v}\n' for k, v in keys.items())
        self.processes = {}
        self.dir = tempfile.mkdtemp(prefix='kvr-real.')
        self.router = Router(f'{BUILD}/app/router/kvroute', text, router_options or 'suspect_ms = 5000\ndead_ms = 10000', memory_mb=memory_mb)

    def __enter__(self):
        try:
            self.router.telemetry('/kvroute/balance')
        except RuntimeError as e:
            with open(f'{self.router.dir}/router.log') as f:
                raise NotReady(f'{e}: {f.read()[-1000:]}') from e
        return self

    def __exit__(self, kind, error, trace):
        for name in reversed(list(self.processes)):
            self.kill(name)
        if VERBOSE or kind is not None:
            for name in sorted(os.listdir(self.dir)):
                if name.endswith('.log'):
                    print(f'--- {name}\n' + self.log(name[:-4])[-3000:], flush=True)
        status = self.router.stop()
        if status != 0:
            report('FAIL', 'the router ends with status 0', status)
        subprocess.run(['rm', '-rf', self.dir, self.router.dir], check=False)

    # ---- processes ----

    def start(self, name, *command, env=None, cwd=None):
        with open(f'{self.dir}/{name}.log', 'a') as log:
            self.processes[name] = child.start([str(x) for x in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cwd or ROOT,
                                               env=dict(os.environ, **(env or {})), start_new_session=True)

    def kill(self, name, number=signal.SIGKILL):
        """Signal the process and its children."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        return process.wait(60)

    def log(self, name):
        with open(f'{self.dir}/{name}.log', errors='replace') as f:
            return f.read()

    def warnings(self, name):
        return [line[line.index('level='):] for line in self.log(name).splitlines() if 'level=error' in line or 'level=warn' in line]

    def require(self, what, condition, seconds=30.0, process=None):
        """Wait for condition(); NotReady with @what when the time or the process named @process ends before."""
        ended = lambda: process and self.processes[process].poll() is not None
        value = wait_for(lambda: ended() or condition(), seconds)
        if ended() or not value:
            logs = {n: self.log(n)[-300:] for n in ([process] if process else self.processes)}
            raise NotReady(f'{what} after {seconds:.0f} s; {logs}')
        return value

    def stand_in(self, number, *args, model='llama'):
        """The stand-in engine of tests/lib at port 8100 + @number."""
        self.start(f'engine{number}', packages.python('quick'), 'tests/lib/engine.py', '--port', 8100 + number, '--model', model,
                   '--events', f'tcp://127.0.0.1:{9000 + 10 * number}', '--replay', f'tcp://127.0.0.1:{9500 + 10 * number}', *args)
        self.require(f'no stand-in engine {number}', lambda: request(8100 + number, 'GET', '/health')[0] == 200)

    def agent(self, number, *args, pool='llama', port=None):
        """An agent of the engine at @port, default 8100 + @number."""
        self.start(f'agent{number}', f'{BUILD}/app/agent/kvroute-agent', '--engine', f'http://127.0.0.1:{port or 8100 + number}', '--router', ADDRESS,
                   '--pool', pool, '--worker', number, *args)

    def restart_agent(self, number, start):
        """SIGKILL the agent, call @start, and wait until the router has accepted the new agent."""
        epoch = lambda: self.telemetry('/kvroute/workers')['workers'].get(str(number), {}).get('epoch')
        before = epoch()
        self.kill(f'agent{number}')
        start(number)
        self.require(f'new agent {number} not accepted', lambda: epoch() not in (None, before), 60)
        self.require_workers(number)

    def gateway(self, *args):
        self.start('gateway', f'{BUILD}/app/gateway/kvroute-gateway', '--router', ADDRESS, '--listen', f'127.0.0.1:{PORT}', '--explain', '--router-ms', 10000,
                   *args)
        self.require('no gateway', lambda: request(PORT, 'GET', '/health')[0] == 200)

    def serving(self):
        return {n for n, w in self.telemetry('/kvroute/workers')['workers'].items() if w['state'] == 'serving'}

    def require_workers(self, *numbers, seconds=60.0):
        self.require(f'workers {numbers} do not serve', lambda: {str(n) for n in numbers} <= self.serving(), seconds)
        self.require('gateway not ready', lambda: 'gateway' not in self.processes or request(PORT, 'GET', '/ready')[0] == 200)

    # ---- requests ----

    def telemetry(self, command):
        return self.router.telemetry(command)

    def ctl(self, *args, timeout=60):
        done = subprocess.run([f'{BUILD}/app/ctl/kvroute-ctl', '--router', self.router.prefix, *map(str, args)], capture_output=True, text=True, timeout=timeout)
        return done.stdout + done.stderr

    def post(self, path, body, headers=None, timeout=120):
        return request(PORT, 'POST', path, body, headers, timeout)

    def complete(self, ids, model='llama', headers=None, **more):
        return self.post('/v1/completions', dict(dict(model=model, prompt=ids, max_tokens=1), **more), headers)

    def predict(self, ids, model='llama', headers=None, **more):
        """(worker, overlap in blocks) of a prompt that no engine receives."""
        status, fields, body = self.complete(ids, model, {'x-kvroute-query': 'true', **(headers or {})}, **more)
        if status != 200:
            return None, f'{status} {body}'
        return fields.get('x-kvroute-worker'), int(fields.get('x-kvroute-overlap-blocks', -1))

    def overlap(self, ids, model='llama', headers=None, **more):
        return self.predict(ids, model, headers, **more)[1]

    def agent_counters(self, number):
        """Counters that the agent prints on SIGUSR1, summed over its ranks."""
        before = len(self.log(f'agent{number}'))
        self.processes[f'agent{number}'].send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        total = {}
        for name, value in re.findall(r'^(?:agent|rank \d+): (\w+) +(\d+) ', self.log(f'agent{number}')[before:], re.M):
            total[name] = total.get(name, 0) + int(value)
        return total


def in_parallel(count, width, function):
    """[function(i) for i in range(count)] on @width threads; an exception is a result."""
    results, numbers, lock = [None] * count, iter(range(count)), threading.Lock()

    def work():
        while True:
            with lock:
                i = next(numbers, None)
            if i is None:
                return
            try:
                results[i] = function(i)
            except Exception as e:  # noqa: BLE001: a result
                results[i] = e
    threads = [threading.Thread(target=work, daemon=True) for _ in range(width)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results
