# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-agent where the kernel watches no further connection (fs.epoll.max_user_watches): an error at once, not silence for an hour.

protocol_test.sh starts it: agent_unwatched_test.py KVROUTE KVROUTE_AGENT PRELOAD
"""

import os
import re
import socket
import sys

import kvrproto as p

from agent_lib import POOLS, Agent, Engine, Front
from protocol_router import ADDRESSES, Router, Tally

TALLY = Tally(100, patience=20.0)
WORKER, ZMQ, BODY, ENGINE = 7, 3, 4, 5  # kinds as in app.h
N = 20000


def text(n):
    return ''.join(f' {i % 10}' for i in range(n))


def run(router, program, preload, front, engine):
    refuse, tokens = f'{router.dir}/refuse', list(range(40))
    os.environ['LD_PRELOAD'], os.environ['KVR_UNWATCHED'] = preload, refuse
    agent = Agent(program, engine, ADDRESSES[0], WORKER, '--health-ms', '60000', '--audit-s', '1', '--bodies', '10.9.0.2:19800', log=f'{router.dir}/agent.log')
    del os.environ['LD_PRELOAD'], os.environ['KVR_UNWATCHED']

    def none_of(kind):
        with open(refuse, 'w') as f:
            f.write(f'{kind}')

    def counted(name):
        return agent.counters()['agent'][name]

    def fails(name, r):
        front.until(f'{name}: it ends', lambda: r.ended, lambda: (r.state, r.answers))
        front.check(f'{name}: with words', r.fin and r.fin[0] & p.ITEM_ERROR and r.fin[1] == 502 and 'No space left on device' in (r.words or ''),
                    (r.fin, r.rejected, r.words))

    try:
        front.serving('up', router, WORKER)
        none_of(ENGINE)
        for i in range(3):
            fails(f'a new connection, {i}', front.ask(tokens))
        front.check('each is counted', counted('unwatched') == 3 and counted('failed') == 3, agent.counters())
        front.check('nothing runs', counted('running') == 0)
        front.check('and said', any('rejects a connection for epoll' in line and 'No space left' in line for line in agent.lines()), agent.lines())
        os.unlink(refuse)
        a = front.answers('a connection', [front.ask(tokens)])[0]
        front.check('then it goes on', a.status == 200 and a.text() == text(4), a.content[:200])

        # A connection that was paused for the router is watched again only when it continues.
        request = front.ask(tokens, N, stream=True)
        front.until('it streams', lambda: request.next > 2)
        before = counted('unwatched')
        while not counted('paused') and TALLY.left():  # no acknowledgements meanwhile
            pass
        front.check('the engine waits', counted('paused') >= 1)
        none_of(ENGINE)
        fails('a stream that was to go on', request)
        front.check('it is counted', counted('unwatched') == before + 1, agent.counters())
        got = re.findall(rb'"text": "( \d)"', request.data)
        front.check('what had come is right', 2 < len(got) < N and b''.join(got).decode() == text(len(got)), (len(got), request.data[-200:]))
        front.until('the engine knows', lambda: engine.state()['ranks'][0]['running'] == 0, engine.state)

        none_of(BODY)
        before = counted('bodies_refused')
        with socket.create_connection(('10.9.0.2', 19800)) as s:
            s.settimeout(10)
            front.check('who brings a body is hung up on', s.recv(1) == b'')
        front.check('and counted', counted('bodies_refused') == before + 1, agent.counters())
        os.unlink(refuse)
        with socket.create_connection(('10.9.0.2', 19800)) as s:
            s.settimeout(10)
            s.sendall(b'GET / HTTP/1.1\r\n\r\n')
            front.check('the next one is answered', s.recv(12) == b'HTTP/1.1 400')
        request = front.ask(tokens, 30, stream=True)
        a = front.answers('after all that', [request])[0]
        front.check('whole after all that', a.status == 200 and a.text() == text(30), a.content[:200])

        # Another engine and no replay until it can be reached.
        none_of(ZMQ)
        before = counted('unwatched')
        engine.kill()
        engine.start()
        front.until('the replay socket is not to be had', lambda: counted('unwatched') > before, agent.counters)
        os.unlink(refuse)
        before = counted('replays')
        front.until('it is had later', lambda: counted('replays') > before, agent.counters)
        front.answers('another engine', [front.ask(tokens)])
        front.same_table('another engine', engine, WORKER, [tokens])
        front.check('leaves', agent.stop() == 0)
    finally:
        agent.kill()


def main(kvroute, program, preload):
    router = Router(kvroute, POOLS, 'suspect_ms = 5000\ndead_ms = 15000')

    def test():
        engine = Engine('--output', f'{N}', ranks=1)
        run(router, program, preload, Front(TALLY, ADDRESSES[0]), engine)
        engine.stop()
        TALLY.balanced(router)
    TALLY.beside(router, test, f'{router.dir}/agent.log')


main(*sys.argv[1:])
