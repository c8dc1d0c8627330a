# SPDX-License-Identifier: BSD-3-Clause
"""Failing engines: by a status, an error in an answer, an empty stream, a broken connection, by hanging, by rejecting.

protocol_test.sh starts it: failing_test.py KVROUTE KVROUTE_AGENT KVROUTE_GATEWAY KVROUTE_CTL Counts decide. Waits have generous limits.
"""

import collections
import http.client
import itertools
import json
import subprocess
import sys
import threading
import time

import child
from agent_lib import Agent, Engine, Front
from protocol_router import ADDRESSES, Router, Tally

POOLS = '''[pool llama]
id = 3
block_size = 16
seed = 1
max_ranks = 16
max_blocks = 65536
'''
TALLY = Tally(280, patience=20.0)
GATEWAY = 19000
PROMPT = itertools.count(1)


def post(stream=False, timeout=20, n=2):
    """One request with a prompt of its own -> (status, fields, body); status 0: it timed out or broke."""
    k = next(PROMPT)
    connection = http.client.HTTPConnection('127.0.0.1', GATEWAY, timeout=timeout)
    try:
        connection.request('POST', '/v1/completions', json.dumps(
            {'model': 'llama', 'prompt': [k * 50 + j for j in range(48)], 'max_tokens': n, 'stream': stream}), {'content-type': 'application/json'})
        r = connection.getresponse()
        return r.status, {a.lower(): b for a, b in r.getheaders()}, r.read().decode()
    except (OSError, http.client.HTTPException) as e:
        return 0, {}, repr(e)
    finally:
        connection.close()


def many(n, clients, **how):
    """n requests of a number of clients, each sequential."""
    out, numbers = [None] * n, itertools.count()

    def client():
        while (i := next(numbers)) < n:
            out[i] = post(**how)
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def bad(out):
    """Requests without a complete answer."""
    return [x for x in out if x[0] != 200 or '"error"' in x[2] or '"text"' not in x[2]]


def read_gateway_metric(name):
    connection = http.client.HTTPConnection('127.0.0.1', GATEWAY, timeout=20)
    try:
        connection.request('GET', '/metrics')
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f'kvr_gateway_{name} '))


class Test:
    def __init__(self, front, router, engines, agents, ctl):
        self.front, self.router, self.engines, self.agents, self.ctl = front, router, engines, agents, ctl
        self.check = front.check

    def rank(self, i):
        return self.router.telemetry('/kvroute/loads,llama')['ranks'][f'{self.agents[i].worker}/0']

    def asked(self, i):
        """Requests that an engine received, failed ones included."""
        count = self.engines[i].state()['count']
        return count['requests'] + count['refused']

    def until_well(self, name):
        """Send requests until no rank is avoided."""
        end = time.monotonic() + 30
        while any('avoided' in self.rank(i) for i in range(len(self.engines))) and time.monotonic() < end:
            many(8, 8)
        self.check(f'{name}: no rank is avoided any more', not any('avoided' in self.rank(i) for i in range(len(self.engines))),
                   [self.rank(i) for i in range(len(self.engines))])

    def one_of_four(self):
        """800 requests of 8 clients while one of four engines answers 500."""
        self.engines[0].test(error=500)
        before = self.asked(0)
        out = many(800, 8)
        self.check('one of four: at most 1 % fail', len(bad(out)) <= 8, (len(bad(out)), bad(out)[:1]))
        # Six open the breaker, eight more may be in progress; then one probe every 4 s.
        self.check('one of four: it gets few', self.asked(0) - before <= 40, self.asked(0) - before)
        self.check('one of four: it is avoided', self.rank(0)['why'] == 'failing' and 'of its last requests failed' in self.rank(0)['avoided'],
                   self.rank(0))
        said = subprocess.run([self.ctl, '--router', self.router.prefix, '--seconds', '1', 'doctor'], capture_output=True, text=True)
        self.check('one of four: the doctor names it', f'failing-requests: pool llama: rank {self.agents[0].worker}/0 is avoided' in said.stdout,
                   (said.stdout[:500], said.stderr[:200]))
        said = subprocess.run([self.ctl, '--router', self.router.prefix, 'why', str(self.agents[0].worker)], capture_output=True, text=True)
        self.check('one of four: why names the rank', 'rank 0 is avoided: ' in said.stdout, (said.stdout, said.stderr))
        self.engines[0].test(error=0)
        self.until_well('one of four')
        before = self.asked(0)
        many(80, 8)
        self.check('one of four: it has its part again', self.asked(0) - before >= 8, self.asked(0) - before)

    def forms(self):
        """Every form of an error is a failure, and none reaches the client while another engine is healthy."""
        for name, stream, switches in (
                ('status 404', False, {'error': 404}), ('an event', True, {'error': 500, 'error_as': 'event'}),
                ('a body', False, {'error': 500, 'error_as': 'body'}), ('an empty stream', True, {'error': 500, 'error_as': 'empty'}),
                ('a broken answer', False, {'break_after': 1}), ('status 503', False, {'error': 503}),
                ('status 429', False, {'error': 429}), ('status 503 with Retry-After', True, {'error': 503, 'retry_after': 1})):
            before = self.asked(0)
            self.engines[0].test(**switches)
            out = many(60, 8, stream=stream)
            self.check(f'{name}: all are answered', not bad(out), bad(out)[:2])
            self.check(f'{name}: it was tried, and then avoided', 1 <= self.asked(0) - before <= 30, self.asked(0) - before)
            refuses = '429' in name or 'Retry' in name
            self.check(f'{name}: as what it is', self.rank(0)['why'] == ('no room' if refuses else 'failing'), self.rank(0))
            self.engines[0].test(error=0, error_as='status', retry_after=0, break_after=0)
            self.until_well(name)

    def passed_on(self):
        """When every engine fails, the client gets an engine's own answer."""
        for code, after in ((500, 0), (429, 7), (503, 7)):
            for e in self.engines:
                e.test(error=code, retry_after=after)
            out = many(16, 8)
            self.check(f'all answer {code}: so does the gateway', {x[0] for x in out} == {code}, collections.Counter(x[0] for x in out))
            self.check(f'all answer {code}: in their words', all('as the switch says' in x[2] for x in out), out[0])
            self.check(f'all answer {code}: with their field', all(x[1].get('retry-after') == (str(after) if after else None) for x in out), out[0][1])
            for e in self.engines:
                e.test(error=0, retry_after=0)
            self.until_well(f'all answer {code}')
        before = self.asked(0) + self.asked(1) + self.asked(2) + self.asked(3)
        for e in self.engines:
            e.test(error=400)
        out = many(8, 4)
        self.check('a fault of the request: passed on', {x[0] for x in out} == {400}, out[0])
        self.check('a fault of the request: asked once', sum(self.asked(i) for i in range(4)) - before == 8)
        self.check('a fault of the request: no rank is avoided', not any('avoided' in self.rank(i) for i in range(4)))
        for e in self.engines:
            e.test(error=0)

    def few_retries(self):
        """An outage is not amplified: retries are limited to a fifth of the requests, and to 64 at once."""
        retries, n = read_gateway_metric('retries_total'), 200
        for e in self.engines:
            e.test(error=500)
        many(n, 8)
        more = read_gateway_metric('retries_total') - retries
        self.check('an outage: few retries', 0 < more <= 64 + n // 5, more)
        self.check('an outage: others were denied', read_gateway_metric('retries_denied_total') > 0)
        for e in self.engines:
            e.test(error=0)
        self.until_well('an outage')

    def hangs(self):
        """An engine that accepts requests and does not answer costs two time-outs."""
        self.engines[0].test(hang=True)
        out = []
        while self.rank(0).get('avoided') is None and len(out) < 40:
            out.append(post(timeout=2))
        self.check('a hang: at most two time-outs', 1 <= sum(x[0] == 0 for x in out) <= 2, [x[0] for x in out])
        probed = self.asked(0)
        end = time.monotonic() + 20
        while self.asked(0) == probed and time.monotonic() < end:
            out = [post(timeout=10)]
            self.check('a hang: no more of them', out[0][0] == 200, out) if out[0][0] != 200 else None
        self.check('a hang: a probe went there, and was answered elsewhere', self.asked(0) > probed and out[0][0] == 200, out)
        self.engines[0].test(hang=False)
        self.until_well('a hang')


def main(kvroute, agent, gateway, ctl):
    router = Router(kvroute, POOLS)
    front = Front(TALLY, ADDRESSES[0])
    engines, agents, log = [], [], f'{router.dir}/agent.log'

    def test():
        for i in range(4):
            engines.append(Engine('--model', 'llama', '--decode-us', '5000', ranks=1))
            agents.append(Agent(agent, engines[-1], ADDRESSES[0], 90 + i, log=log))
        for a in agents:
            front.serving('failing', router, a.worker)
        child.start([gateway, '--router', ADDRESSES[0], '--listen', f'127.0.0.1:{GATEWAY}', '--router-ms', '10000'],
                    stderr=open(log, 'ab'), stdin=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while post()[0] != 200 and time.monotonic() < end:
            time.sleep(0.1)
        t = Test(front, router, engines, agents, ctl)
        t.one_of_four()
        t.forms()
        t.passed_on()
        t.few_retries()
        t.hangs()
        front.check('agents leave', [a.stop() for a in agents] == [0, 0, 0, 0])
        for engine in engines:
            engine.stop()
    TALLY.beside(router, test, log)


main(*sys.argv[1:])
