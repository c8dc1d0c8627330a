# SPDX-License-Identifier: BSD-3-Clause
"""Large bodies, which bypass the router: gateway and agent, and a client of PROTOCOL.md that misbehaves.

protocol_test.sh starts it: gateway_bodies.py KVROUTE KVROUTE_AGENT KVROUTE_GATEWAY
"""

import http.client
import json
import os
import socket
import subprocess
import sys

import kvrproto as p
from agent_lib import Agent, Answer, Engine, Front, message
from gateway_rig import Gateway, wait_for
from protocol_router import ADDRESSES, Router, Tally

B, POOL = 16, 3
POOLS = '''[pool llama]
id = 3
block_size = 16
seed = 1
max_ranks = 16
max_blocks = 65536
[pool frames]
id = 4
block_size = 16
max_ranks = 4
max_blocks = 4096
[pool near]
id = 5
block_size = 16
max_ranks = 4
max_blocks = 4096
[pool nowhere]
id = 6
block_size = 16
max_ranks = 4
max_blocks = 4096
[pool pair]
id = 7
model = pair
role = decode
enforce_disagg = on
block_size = 16
max_ranks = 4
max_blocks = 4096
max_requests = 256
max_jobs = 256
[pool pair-prefill]
id = 8
model = pair
role = prefill
block_size = 16
max_ranks = 4
max_blocks = 4096
max_requests = 256
max_jobs = 256
'''
NEAR = 5
TALLY = Tally(150, patience=20.0)
check = TALLY.check


def completion(size, model='llama'):
    """A body of @n bytes; the prompt is its end, and the engine reports its length."""
    body = {'model': model, 'max_tokens': 3, 'x_pad': '', 'prompt': 'abc ' * 25}
    body['x_pad'] = 'x' * (size - len(json.dumps(body)))
    text = json.dumps(body)
    assert len(text) == size
    return text


def put(address, token, body, length=None, path='/kvroute/body/'):
    """Status of a transfer."""
    host, _, port = address.rpartition(':')
    c = http.client.HTTPConnection(host.strip('[]'), int(port), timeout=10)
    try:
        c.putrequest('PUT', path + token.hex())
        c.putheader('content-length', str(len(body) if length is None else length))
        c.endheaders()
        c.send(body)
        return c.getresponse().status
    except ConnectionError:
        return 0
    finally:
        c.close()


def through_the_gateway(gw, agents):
    before = agents[0].counters()['agent']['bodies']
    r = gw.post('/v1/completions', completion(60000))
    check('a small one passes the router', r.status == 200 and r.json()['usage']['prompt_tokens'] == 100, r)
    check('in frames', agents[0].counters()['agent']['bodies'] == before)
    for i, size in enumerate((66000, 300000, 2 << 20, 20 << 20, 64 << 20)):
        r = gw.post('/v1/completions', completion(size), timeout=60)
        check(f'{size} bytes arrive whole', r.status == 200 and r.json()['usage']['prompt_tokens'] == 100, r)
        check('past the router', agents[0].counters()['agent']['bodies'] == before + i + 1, agents[0].counters()['agent'])
    r = gw.raw(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n' % ((64 << 20) + 1), 5)
    check('one above 64 MiB is refused', r.startswith(b'HTTP/1.1 413 '), r)
    r = gw.post('/v1/completions', completion(300000, 'frames'))
    check('an agent that takes none gets it in frames', r.status == 200 and r.json()['usage']['prompt_tokens'] == 100, r)
    r = gw.post('/v1/completions', completion(2 << 20, 'frames'))
    check('as far as they take it', r.status == 413, r)
    n = gw.counters()
    check('both were sent once more', n['kvr_gateway_resubmitted_total'] == 2, n)


class Stranger(Front):
    def begin(self, size, token=None, pool=POOL):
        tokens = list(range(2 * B))
        token = token or os.urandom(16)
        r = self.client.away(pool, len(tokens), p.sequence_hashes(tokens, B), size, token)
        self.until('it is running', lambda: r.ended or r.accepted and r.accepted['body_addr'])
        return r, token, r.accepted['body_addr']  # a later ACCEPTED may lack it

    def ended(self, name, r):
        self.until(name, lambda: r.ended)
        return r


def tokens(front):
    content = message('/v1/completions', {'prompt': list(range(32)), 'max_tokens': 2})
    r, token, where = front.begin(len(content))
    check('an unknown token', put(where, os.urandom(16), b'x') == 404)
    check('another path', put(where, token, b'x', path='/v1/completions/') == 400)
    check('another length', put(where, token, content[:-1]) == 413)
    with socket.create_connection((where.rpartition(':')[0], int(where.rpartition(':')[2]))) as s:
        s.sendall(f'PUT /kvroute/body/{token.hex()} HTTP/1.1\r\ncontent-length: {len(content)}\r\n\r\n'.encode() + content[:10])
        check('the first part is there', wait_for(lambda: put(where, token, content) == 409))
    check('a connection that breaks may be replaced', wait_for(lambda: put(where, token, content) == 204))
    front.ended('it is answered', r)
    check('by the engine', Answer(r.data).status == 200 and r.rejected is None, (r.data, r.rejected))
    check('the token is of no use any more', put(where, token, content) in (404, 410))


def replay(front, engine):
    engine.test(hang=True)
    content = message('/v1/completions', {'prompt': list(range(32)), 'max_tokens': 2})
    r, token, where = front.begin(len(content))
    check('it is taken', put(where, token, content) == 204)
    check('once', put(where, token, content) == 410)
    front.client.cancel(r)
    front.ended('cancelled', r)
    check('and forgotten', wait_for(lambda: put(where, token, content) == 404))
    engine.test(hang=False)


def never(front):
    r, token, where = front.begin(1000)
    front.ended('a client that does not deliver', r)
    check('gets 408', r.fin is not None and r.fin[1] == 408 and not r.data, (r.fin, r.data, r.rejected))
    check('the token is over', wait_for(lambda: put(where, token, b'x' * 1000) in (404, 410)))


def rubbish(front):
    content = b'no HTTP at all, ' * 10
    r, token, where = front.begin(len(content))
    check('rubbish is taken', put(where, token, content) == 204)
    front.ended('and ends the request', r)
    check('with 400', r.fin is not None and r.fin[1] == 400, r.fin)
    socks = [socket.create_connection((where.rpartition(':')[0], int(where.rpartition(':')[2]))) for _ in range(80)]
    for s in socks[:40]:
        s.sendall(b'\x00\xff' * 700)
    for s in socks:
        s.close()
    content = message('/v1/completions', {'prompt': list(range(32)), 'max_tokens': 2})
    r, token, where = front.begin(len(content))
    check('it goes on', wait_for(lambda: put(where, token, content) == 204))
    front.ended('answered', r)
    check('with 200', Answer(r.data).status == 200, r.data)


def room(front, engine, agent):
    """Bytes of all bodies at one time, 65,536 at most: those being received, and those of running requests."""
    engine.test(hang=True)
    content = message('/v1/completions', {'prompt': list(range(32)), 'max_tokens': 2, 'pad': 'x' * 40000})
    r, token, where = front.begin(len(content), pool=NEAR)
    check('who listens everywhere is found where the router sees it', where.startswith('10.9.0.') and ':0' not in where[-3:], where)
    check('the first has room', put(where, token, content) == 204)
    second, other, where = front.begin(len(content), pool=NEAR)
    check('a second one has not, while the first runs', put(where, other, content) == 503)
    check('and is counted', agent.counters()['agent']['bodies_refused'] == 1)
    front.client.cancel(r)
    front.ended('the first ends', r)
    check('then there is room again', wait_for(lambda: put(where, other, content) == 204))
    front.client.cancel(second)
    front.ended('and the second', second)
    third, token, where = front.begin(len(content), pool=NEAR)
    host, _, port = where.rpartition(':')
    with socket.create_connection((host, int(port))) as s:
        s.sendall(f'PUT /kvroute/body/{token.hex()} HTTP/1.1\r\ncontent-length: {len(content)}\r\n\r\n'.encode() + content[:10])
        fourth, other, where = front.begin(len(content), pool=NEAR)
        check('one that comes in takes room, too', wait_for(lambda: put(where, other, content) == 503))
    check('until it breaks off', wait_for(lambda: put(where, other, content) == 204))
    for r in (third, fourth):
        front.client.cancel(r)
        front.ended('cancelled', r)
    r, token, where = front.begin(len(content), pool=NEAR)
    with socket.create_connection((host, int(port)), timeout=20) as s:
        s.sendall(f'PUT /kvroute/body/{token.hex()} HTTP/1.1\r\ncontent-length: {len(content)}\r\n\r\n'.encode() + content[:10])
        second, other, where = front.begin(len(content), pool=NEAR)
        check('it is coming in', wait_for(lambda: put(where, other, content) == 503))
        front.client.cancel(r)
        check('a body whose request ends meanwhile gets 404', s.recv(100).startswith(b'HTTP/1.1 404 '))
        check('and its room is free', wait_for(lambda: put(where, other, content) == 204))
    for r in (r, second):
        front.client.cancel(r)
        front.ended('cancelled meanwhile', r)
    engine.test(hang=False)


def nowhere(gw, agent):
    """An agent with an unreachable address ends the request with 408: then the body is sent in frames."""
    before = gw.counters()['kvr_gateway_resubmitted_total']
    r = gw.post('/v1/completions', completion(300000, 'nowhere'), timeout=60)
    check('it gets the body in frames then', r.status == 200 and r.json()['usage']['prompt_tokens'] == 100, r)
    n = agent.counters()['agent']
    check('after it has waited', (n['bodies_awaited'], n['bodies_missed'], n['bodies']) == (1, 1, 0), n)
    check('sent once more', gw.counters()['kvr_gateway_resubmitted_total'] == before + 1)


def pair(gw, prefill):
    """Two legs, and the prefill agent accepts no bodies; a rejection by the engine as the client's fault stays one."""
    r = gw.post('/v1/completions', completion(300000, 'pair'), timeout=60)
    check('a prefill agent without bodies: in frames then', r.status == 200 and r.json()['usage']['prompt_tokens'] == 100, r)
    prefill.test(max_model_len=50)
    r = gw.post('/v1/completions', completion(1000, 'pair'), timeout=60)
    check('what the prefill engine refuses: its status', r.status == 400, r)
    check('what the prefill engine refuses: its words', 'maximum context length is 50 tokens' in r.body.decode(), r)
    check('what the prefill engine refuses: once and for all', 'retry-after' not in {k.lower() for k in dict(r.headers)}, r)
    prefill.test(max_model_len=131072)
    check('and then it goes on', gw.post('/v1/completions', completion(1000, 'pair'), timeout=60).status == 200)


def addresses(program, engine):
    """Addresses that would send clients to their own machine, or to none, are rejected at the start."""
    base = [program, '--engine', f'http://127.0.0.1:{engine.port}', '--router', ADDRESSES[0], '--pool', 'near', '--worker', '99']
    for how in (['--bodies', '127.0.0.1:0'], ['--bodies', '[::1]:0'], ['--bodies-advertise', '127.0.0.1:80'],
                ['--bodies-advertise', '0.0.0.0:80'], ['--bodies-advertise', '169.254.1.1:80'], ['--bodies-advertise', 'name:80'],
                ['--bodies', 'here'], ['--advertise', 'localhost:8000'], ['--advertise', '0.0.0.0:8000'], ['--advertise', 'x']):
        done = subprocess.run([*base, *how], capture_output=True, text=True, timeout=30)
        check(f'refused: {how}', done.returncode == 1 and how[0] in done.stderr and done.stderr.count('\n') == 1, done)


def no_files(gw):
    """libh2o would keep a body above 32 MiB in a file in /tmp."""
    size = 60 << 20
    with socket.create_connection(('127.0.0.1', gw.port)) as s:
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n' % size + b'x' * (40 << 20))

        def resident():
            with open(f'/proc/{gw.process.pid}/status') as f:
                return next(int(line.split()[1]) for line in f if line.startswith('VmRSS')) << 10
        check('a large body is in memory', wait_for(lambda: resident() > 34 << 20), resident())
        with open(f'/proc/{gw.process.pid}/maps') as f:
            files = [line for line in f if '/h2o.' in line]
        check('and in no file', not files, files)


def death(front, agent, router):
    r, token, where = front.begin(1000)
    agent.kill()
    front.ended('an agent that dies with the body not there', r)
    check('is rejected', r.rejected is not None and r.rejected.name == 'WorkerLost', r.rejected)
    agent.start()
    front.serving('back', router, agent.worker)


def main(kvroute, agent, gateway):
    router = Router(kvroute, POOLS, 'heartbeat_ms = 100\nsuspect_ms = 2000\ndead_ms = 4000', memory_mb=1024)
    front = Stranger(TALLY, ADDRESSES[0])
    log = f'{router.dir}/agent.log'

    def test():
        engines = [Engine('--model', 'llama', ranks=1), Engine('--model', 'frames', '--lora', 'nowhere', ranks=1),
                   *(Engine('--model', 'pair', '--role', role, ranks=1) for role in ('prefill', 'decode'))]
        agents = [Agent(agent, engines[0], ADDRESSES[0], 90, '--body-ms', '1500', log=log),
                  Agent(agent, engines[1], ADDRESSES[0], 91, '--bodies', 'off', pool='frames', log=log),
                  Agent(agent, engines[1], ADDRESSES[0], 92, '--bodies', '0.0.0.0:0', '--bodies-bytes', '65536', '--body-ms', '60000',
                        pool='near', log=log),
                  Agent(agent, engines[1], ADDRESSES[0], 93, '--bodies-advertise', '192.0.2.1:9', '--body-ms', '300', pool='nowhere',
                        log=log),
                  Agent(agent, engines[2], ADDRESSES[0], 94, '--role', 'prefill', '--bodies', 'off', pool='pair-prefill', log=log),
                  Agent(agent, engines[3], ADDRESSES[0], 95, '--role', 'decode', pool='pair', log=log)]
        for a in agents:
            front.pool = {91: 4, 92: NEAR, 93: 6, 94: 7, 95: 7}.get(a.worker, POOL)
            front.serving('up', router, a.worker)
        front.pool = POOL
        gw = Gateway(gateway, '--router', ADDRESSES[0], '--max-body', str(64 << 20), log=open(log, 'ab'))
        check('ready', wait_for(gw.ready))
        through_the_gateway(gw, agents)
        tokens(front)
        replay(front, engines[0])
        never(front)
        rubbish(front)
        room(front, engines[1], agents[2])
        nowhere(gw, agents[3])
        pair(gw, engines[2])
        addresses(agent, engines[0])
        no_files(gw)
        death(front, agents[0], router)
        r = gw.post('/v1/completions', completion(300000), timeout=60)
        check('after all that', r.status == 200, r)
        check('the gateway ends', gw.stop() == 0)
        TALLY.balanced(router)
        check('agents leave', [a.stop() for a in agents] == [0] * 6)
        for engine in engines:
            engine.stop()
    TALLY.beside(router, test, log)


main(*sys.argv[1:])
