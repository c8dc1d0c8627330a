# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-agent's reports about an engine: load and capacity at the router, a wrong block size, messages that are no batches.

protocol_test.sh starts it: agent_report_test.py KVROUTE KVROUTE_AGENT
"""

import contextlib
import ctypes
import errno
import os
import random
import re
import socket
import sys
import threading

import msgpack

from kvrproto import ROUTE_QUERY, run_until
from agent_lib import B, POOLS, Agent, Engine, Front, call
from protocol_router import ADDRESSES, Router, Tally

TALLY = Tally(120, patience=20.0)
PIDFD_GETFD, LIBC = 438, ctypes.CDLL(None, use_errno=True)


def prompts(n, first=0):
    return [[(first + i) * 1000 + k for k in range(4 * B)] for i in range(n)]


def read_values(router, command, worker, *keys):
    """The router's values for each rank of a worker."""
    ranks = router.telemetry(f'/kvroute/{command},llama')['ranks']
    return [[r.get(k) for k in keys] for name, r in sorted(ranks.items()) if name.startswith(f'{worker}/')]


def ask_past(engine, tokens):
    """A request past the agent; it is not answered before the engine ends."""
    with contextlib.suppress(OSError):
        call(engine.port, '/v1/completions', {'prompt': tokens, 'max_tokens': 1})


def load(router, program):
    """Blocks that the engine holds and has, and requests that reached it past the router."""
    front, worker = Front(TALLY, ADDRESSES[0]), 50
    engine = Engine('--type', 'vllm', '--blocks', '150')
    agent = Agent(program, engine, ADDRESSES[0], worker, '--load-ms', '100', log=f'{router.dir}/agent.log')

    def said(name, command, key, want):
        front.until(name, lambda: read_values(router, command, worker, key) == [[n] for n in want()],
                    lambda: (read_values(router, command, worker, key), want()))

    def running():
        return [r['running'] for r in engine.state()['ranks']]

    try:
        front.serving('load', router, worker)
        said('what it has', 'loads', 'kv_total_blocks', lambda: [150, 150])
        front.answers('load', [front.ask(t, pin=(worker, int(i < 2))) for i, t in enumerate(prompts(6))])
        held = [r['blocks'] for r in engine.state()['ranks']]
        front.check('the ranks differ', held[0] > held[1] > 0, held)
        said('what it holds', 'loads', 'kv_used_blocks', lambda: held)
        said('nothing runs', 'events', 'engine_requests', lambda: [0, 0])
        engine.test(hang=True)
        for t in prompts(3, 100):
            threading.Thread(target=ask_past, args=(engine, t), daemon=True).start()
        front.until('they run', lambda: sum(running()) == 3, engine.state)
        now = running()  # of three; they continue
        said('what came past the router', 'events', 'engine_requests', lambda: now)
        no_delay(front, engine, agent)
        # For an engine without such reports: what the agent itself has sent there.
        engine.test(garbage_metrics=True)
        said('no numbers', 'events', 'engine_requests', lambda: [0, 0])
        for t in prompts(2, 200):
            front.ask(t, pin=(worker, 1))
        said('its own count', 'events', 'engine_requests', lambda: [0, 2])
    finally:
        agent.kill()
        engine.kill()


def no_delay(front, engine, agent):
    """The socket option of the agent's connections to the engine: small writes must not wait for each other."""
    pidfd, seen = os.pidfd_open(agent.process.pid), []
    for name in os.listdir(f'/proc/{agent.process.pid}/fd'):
        fd = LIBC.syscall(PIDFD_GETFD, pidfd, int(name), 0)
        if fd < 0 and ctypes.get_errno() != errno.EBADF:  # EBADF: closed meanwhile
            print(f'a descriptor of a child cannot be had here: {os.strerror(ctypes.get_errno())}')
            return
        with contextlib.suppress(OSError):  # not connected
            with socket.socket(fileno=fd) as s:
                if s.getpeername() == ('127.0.0.1', engine.port):
                    seen.append(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    os.close(pidfd)
    front.check('TCP_NODELAY to the engine', seen and set(seen) == {1}, seen)


def block_size(router, program):
    """Blocks of another size than the pool's: logged as an error once per rank, and reported to the router."""
    front, worker = Front(TALLY, ADDRESSES[1]), 51
    engine = Engine('--type', 'vllm', '--event-block-size', '8')
    agent = Agent(program, engine, ADDRESSES[1], worker, '--block-size', f'{B}', log=f'{router.dir}/agent_size.log')
    words = (r'time=\S+ level=error msg="rank (\d) stores blocks of 8 tokens, but the pool has 16, so the router cannot use them; '
             r'start the engine with --block-size 16 \(SGLang: --page-size 16\), or set block_size = 8 for the pool and --block-size 8 for this agent".*\n')
    try:
        front.serving('size', router, worker)
        front.check('nothing yet', not any('stores blocks' in line for line in agent.lines()), agent.lines())
        tokens = prompts(4)
        front.answers('size', [front.ask(t, pin=(worker, 0)) for t in tokens])
        front.until('at the router', lambda: read_values(router, 'events', worker, 'block_size') == [[8], [0]],
                    lambda: read_values(router, 'events', worker, 'block_size'))
        front.answers('size of the other', [front.ask(t, pin=(worker, 1)) for t in tokens])
        front.until('of both', lambda: read_values(router, 'events', worker, 'block_size') == [[8], [8]],
                    lambda: read_values(router, 'events', worker, 'block_size'))
        front.check('said once a rank', [m[1] for m in map(re.compile(words).fullmatch, agent.lines()) if m] == ['0', '1'], agent.lines())
        front.check('none is known', [front.overlap(t, worker, 2) for t in tokens] == [[0, 0]] * 4)
    finally:
        agent.kill()
        engine.stop()


def block_size_later(router, program):
    """An engine that returns unnoticed with another block size: reported as if it had this size from the beginning."""
    front, worker = Front(TALLY, ADDRESSES[0]), 57
    engine = Engine('--type', 'vllm', ranks=1)
    agent = Agent(program, engine, ADDRESSES[0], worker, '--block-size', f'{B}', '--health-ms', '60000', log=f'{router.dir}/agent_later.log')

    def at_the_router(size):
        front.until(f'{size} tokens: at the router', lambda: read_values(router, 'events', worker, 'block_size') == [[size]],
                    lambda: read_values(router, 'events', worker, 'block_size'))
    try:
        front.serving('later', router, worker)
        front.answers('later', [front.ask(t, pin=(worker, 0)) for t in prompts(2)])
        at_the_router(B)
        engine.kill()
        engine.how += ['--event-block-size', '8']
        engine.start()
        front.answers('another engine', [front.ask(t, pin=(worker, 0)) for t in prompts(2)])
        at_the_router(8)
        front.check('said once', sum('rank 0 stores blocks of 8 tokens' in line for line in agent.lines()) == 1, agent.lines())
        front.check('later: exit status', agent.stop() == 0)
    finally:
        agent.kill()
        engine.stop()


def hybrid(router, program):
    """One of several nodes behind a hybrid load balancer: its engine numbers its ranks from 0, the router has them as 4 and 5. And a topology."""
    front, worker, first = Front(TALLY, ADDRESSES[0]), 55, 4
    engine = Engine('--type', 'vllm', '--blocks', '150', '--topic', 'kv@node')
    agent = Agent(program, engine, ADDRESSES[0], worker, '--first-rank', f'{first}', '--local-ranks', '--topic', 'kv@', '--load-ms', '100',
                  log=f'{router.dir}/agent_hybrid.log')
    tokens = prompts(6, 500)

    def known():
        asked = [[front.ask(t, pin=(worker, first + i), flags=ROUTE_QUERY, raw=b'') for i in range(2)] for t in tokens]
        run_until(front.all, lambda: all(r.ended for pair in asked for r in pair), 10)
        return [[r.accepted['overlap_blocks'] if r.accepted else repr(r.rejected) for r in pair] for pair in asked]

    try:
        front.serving('hybrid', router, worker)
        for i in range(2):
            answers = front.answers('hybrid', [front.ask(t, pin=(worker, first + i)) for t in tokens[:6 - 4 * i]])
            front.check(f'hybrid: rank {first + i} answers', all(a.status == 200 for a in answers), [a.status for a in answers])
            front.check(f'hybrid: rank {first + i} is {i} there', engine.state()['seen'][-1]['headers'].get('x-data-parallel-rank') == f'{i}', engine.state()['seen'][-1])
        want = [engine.test(overlap=t)['overlap'] for t in tokens]
        front.check('hybrid: the ranks differ', want[0] == [4, 4] and want[5] == [4, 0], want)
        front.until('hybrid: what each holds', lambda: known() == want, lambda: (known(), want))
        held = [r['blocks'] for r in engine.state()['ranks']]
        front.until('hybrid: load of each', lambda: read_values(router, 'loads', worker, 'kv_used_blocks') == [[n] for n in held],
                    lambda: (read_values(router, 'loads', worker, 'kv_used_blocks'), held))
        front.check('hybrid: exit status', agent.stop() == 0)
    finally:
        agent.kill()
        engine.stop()


def another_block_size(router, program):
    """An engine with a wrong block size restarts with the right one, without a change at the agent."""
    front, worker = Front(TALLY, ADDRESSES[0]), 53
    engine = Engine('--type', 'vllm', '--block-size', '8', ranks=1)
    agent = Agent(program, engine, ADDRESSES[0], worker, log=f'{router.dir}/agent_another.log')

    def again(size):
        engine.kill()
        engine.how[engine.how.index('--block-size') + 1] = f'{size}'
        engine.start()
    try:
        front.until('it is refused', lambda: any('the router rejects the worker' in line for line in agent.lines()), agent.lines)
        again(B)
        front.serving('with the right size', router, worker)
        front.check('exit status', agent.stop() == 0)
        agent.args += ['--health-ms', '60000']  # /health is not polled while the engine is away
        again(8)
        agent.start()
        refused = sum('the router rejects the worker' in line for line in agent.lines())
        front.until('it is refused again', lambda: sum('the router rejects the worker' in line for line in agent.lines()) > refused, agent.lines)
        again(B)
        front.serving('with the right size, unseen', router, worker)
        front.check('unseen: exit status', agent.stop() == 0)
    finally:
        agent.kill()
        engine.stop()


def no_replay(router, program):
    """A missing replay socket: logged once, and live events still count."""
    front, worker = Front(TALLY, ADDRESSES[0]), 54
    engine = Engine('--type', 'vllm', ranks=1)
    engine.replay += 5
    agent = Agent(program, engine, ADDRESSES[0], worker, '--audit-s', '1', log=f'{router.dir}/agent_no_replay.log')
    try:
        front.serving('no replay', router, worker)
        front.until('it is logged', lambda: any('no answer from the replay socket' in line for line in agent.lines()), agent.lines)
        tokens = prompts(4, 400)
        front.answers('no replay', [front.ask(t, pin=(worker, 0)) for t in tokens])
        front.same_table('no replay', engine, worker, tokens)
        lost, shows = prompts(2, 405)
        engine.test(lose_events=1)
        for t in (lost, shows):
            front.answers('no replay, lost', [front.ask(t, pin=(worker, 0))])
        front.until('a gap that no replay repairs', lambda: agent.counters()['agent']['clean_starts'] == 1, agent.counters)
        front.until('what has shown it counts', lambda: front.overlap(shows, worker, 1) == [4], lambda: front.overlap(shows, worker, 1))
        front.check('and what was before it does not', [front.overlap(t, worker, 1) for t in (lost, tokens[0])] == [[0], [0]])
        engine.test(clear=True)
        more = prompts(4, 410)
        front.answers('no replay, more', [front.ask(t, pin=(worker, 0)) for t in more])
        front.same_table('no replay, more', engine, worker, more)
        front.check('said once', sum('no answer from the replay socket' in line for line in agent.lines()) == 1, agent.lines())
        front.check('exit status', agent.stop() == 0)
    finally:
        agent.kill()
        engine.stop()


def goes_back(router, program):
    """Event numbers go back and no replay is available: one clean start, and nothing is missing."""
    front, worker = Front(TALLY, ADDRESSES[0]), 56
    engine = Engine('--type', 'vllm', ranks=1)
    agent = Agent(program, engine, ADDRESSES[0], worker, '--replay', '', log=f'{router.dir}/agent_back.log')
    try:
        front.serving('goes back', router, worker)
        tokens = prompts(4, 600)
        for t in tokens:
            front.answers('goes back', [front.ask(t, pin=(worker, 0))])
        front.same_table('goes back', engine, worker, tokens)
        engine.test(parts=['', f'{2:016x}', msgpack.packb([0.0, [], 0]).hex()])
        front.until('it is seen', lambda: agent.counters()['agent']['regressions'] == 1, agent.counters)
        c = agent.counters()['agent']
        front.check('once', c['clean_starts'] == 1 and c['gaps'] == 0, c)
        front.check('goes back: exit status', agent.stop() == 0)
    finally:
        agent.kill()
        engine.stop()


def strange(router, program):
    """Messages that are no batches: counted, logged, reported to the router; later ones are read."""
    front, worker = Front(TALLY, ADDRESSES[0]), 52
    engine = Engine('--type', 'vllm')
    agent = Agent(program, engine, ADDRESSES[0], worker, log=f'{router.dir}/agent_strange.log')
    r = random.Random(12)
    number = bytes(7) + b'\x01'
    messages = ([b'x'], [b'', number], [b'', b'short', b'\x90'], [b'', number + b'\0', b'\x90'], [b'', b'', b''], [b''] * 4, [b''] * 5,
                [r.randbytes(30), r.randbytes(7), r.randbytes(90)], [r.randbytes(5) for _ in range(200)])
    try:
        front.serving('strange', router, worker)
        tokens = prompts(4, 300)
        front.answers('before', [front.ask(t, pin=(worker, 0)) for t in tokens])
        front.same_table('before', engine, worker, tokens)
        for i, parts in enumerate(messages):
            engine.test(parts=[part.hex() for part in parts])
            more = prompts(1, 310 + i)
            front.answers(f'behind {len(parts)} parts', [front.ask(t, pin=(worker, 0)) for t in more])
            tokens += more
        front.same_table('behind all', engine, worker, tokens)
        c = agent.counters()['agent']
        front.check('counted', c['batches_bad'] == len(messages) and c['clean_starts'] == c['regressions'] == c['gaps'] == 0, c)
        said = [m[1] for m in (re.search(r'level=error msg="rank 0: a message of (\d+) parts is not a batch"', x) for x in agent.lines()) if m]
        front.check('said', said == [f'{len(m)}' for m in messages], said)
        front.until('read_values to the router', lambda: read_values(router, 'events', worker, 'unread') == [[len(messages)], [0]],
                    lambda: read_values(router, 'events', worker, 'unread'))
        samples(front, engine, agent)
        front.check('exit status', agent.stop() == 0)
    finally:
        agent.kill()
        engine.stop()


def samples(front, engine, agent):
    """Events that are not read: counted, and of each kind the beginning of one is in the log."""
    odd = {'an unknown type': {'type': 'BlockInactive', 'block_hashes': [1]},
           'a missing or invalid field': {'type': 'BlockStored', 'block_hashes': 'x'},
           'an unknown medium': ['BlockRemoved', [1], 'TAPE']}
    for _ in range(3):
        engine.test(raw=msgpack.packb([0.0, list(odd.values()), 0]).hex())
    for i, name in enumerate(('unknown', 'bad', 'medium')):
        front.until(f'{name}: counted', lambda name=name: agent.counters()['rank 0'][name] == 3, agent.counters)
    for what, event in odd.items():
        said = [line for line in agent.lines() if f'level=warning msg="rank 0: an event ' in line and f'{what}: ' in line]
        front.check(f'{what}: said once, with its beginning', len(said) == 1 and f'{what}: {msgpack.packb(event)[:48].hex()}...' in said[0], said)


def main(kvroute, program):
    router = Router(kvroute, POOLS, 'suspect_ms = 2000\ndead_ms = 4000')

    def test():
        load(router, program)
        block_size(router, program)
        block_size_later(router, program)
        hybrid(router, program)
        another_block_size(router, program)
        no_replay(router, program)
        goes_back(router, program)
        strange(router, program)
        TALLY.balanced(router)
    TALLY.beside(router, test, f'{router.dir}/agent.log')


main(*sys.argv[1:])
