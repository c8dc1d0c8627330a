# SPDX-License-Identifier: BSD-3-Clause
"""KV events faster than the router accepts them: the agent holds them in bounded memory, and in the end the router's table equals the engine's
cache.

protocol_test.sh starts it: agent_flood_test.py KVROUTE KVROUTE_AGENT
"""

import http.server
import json
import re
import struct
import sys
import threading
import time

import msgpack
import zmq

import kvrproto as p
from agent_lib import B, POOL, PORTS, Agent, Front, cpu
from protocol_router import ADDRESSES, Router, Tally

TALLY = Tally(200, patience=60.0)
CHAINS, BLOCKS = 24, 1024  # prompts of 16,384 tokens: one batch each
MIB = 1 << 20
POOLS = f'''[pool llama]
id = {POOL}
block_size = {B}
max_ranks = 16
max_blocks = 262144
'''
BATCH = BLOCKS * (B * 5 + 9) + 256  # bytes of a stored chain
# app/agent: one batch in the SUB socket, one in libzmq's decoder, one in the agent; events in a ring that exists already. The rest
# belongs to libzmq and the allocator.
SOCKET, REST = 64, 4 * MIB
HELD = 1  # MiB of events handed on while the router accepts none
KEPT = 10000  # batches for replay, as in real engines
check = TALLY.check


def rss(process):
    with open(f'/proc/{process.pid}/smaps_rollup') as f:
        return int(re.search(r'^Rss:\s+(\d+)', f.read(), re.M).group(1)) * 1024


class Http(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b'{"data": [{"id": "m"}]}' if self.path == '/v1/models' else b'vllm:num_requests_running 0\n')

    def do_POST(self):
        body = self.rfile.read(int(self.headers['content-length']))
        if b'kvroute canary' not in body:
            self.answer(b'{"choices": []}')
            return
        tokens = list(json.loads(body)['prompt'].encode())
        if self.path == '/tokenize':
            self.answer(json.dumps({'tokens': tokens}).encode())
            return
        self.server.engine.canary(tokens)
        self.answer(b'{"choices": []}')

    def answer(self, body):
        self.send_response(200)
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Chain:
    """A prompt, and the batches that store and remove its blocks."""

    def __init__(self, number, blocks=BLOCKS):
        self.tokens = [(1 << 17) + number * blocks * B + i for i in range(blocks * B)]
        self.names = [(number << 32 | i) + (1 << 63) for i in range(blocks)]
        self.stores = {'type': 'BlockStored', 'block_hashes': self.names, 'parent_block_hash': None, 'token_ids': self.tokens,
                       'block_size': B, 'lora_id': None, 'medium': 'GPU'}
        self.removes = {'type': 'BlockRemoved', 'block_hashes': self.names, 'medium': 'GPU'}


def batch(events, rank=0):
    return zmq.Frame(msgpack.packb([0.0, events, rank]), copy=False)


class Stream:
    """Publisher and replay socket of a rank on one thread, as in real engines."""

    def __init__(self, context, events, replay, hwm):
        self.context, self.at, self.hwm = context, (events, replay), hwm
        self.asked = 0
        self.mute = False  # replay requests are read and not answered
        self.behind = []  # batches that are lost right after a replay
        self.open()

    def open(self):
        self.seq, self.kept, self.held = 0, {}, set()
        self.pub, self.router = self.context.socket(zmq.PUB), self.context.socket(zmq.ROUTER)
        self.pub.sndhwm = self.hwm
        for s, at in zip((self.pub, self.router), self.at):
            s.linger = 0
            while True:
                try:
                    s.bind(f'tcp://127.0.0.1:{at}')
                    break
                except zmq.ZMQError:  # closed, and gone a moment later
                    time.sleep(0.01)

    def restart(self):
        self.pub.close()
        self.router.close()
        self.open()

    def publish(self, frame, lost=False):
        number = struct.pack('>Q', self.seq)
        self.kept[self.seq] = frame
        self.kept.pop(self.seq - KEPT, None)
        if not lost:
            self.pub.send_multipart([b'', number, frame], copy=False)
        self.seq += 1

    def serve(self):
        """Answer the pending replay request."""
        while self.router.poll(0):
            who, _, start = self.router.recv_multipart()
            self.asked += 1
            if self.mute:
                continue
            first = max(int.from_bytes(start, 'big'), min(self.kept, default=0))
            for seq in range(first, self.seq):
                self.router.send_multipart([who, b'', struct.pack('>Q', seq), self.kept[seq]], copy=False)
            self.router.send_multipart([who, b'', struct.pack('>q', -1), b''])
            if first < self.seq and self.behind:
                self.publish(self.behind.pop(0), lost=True)


class Engine:
    """The engine interface of the agent's tests; a thread does its work."""

    def __init__(self, context, ranks=2, hwm=0):
        self.port, self.ranks = next(PORTS), ranks
        self.events, self.replay = self.port + 1, self.port + 10
        self.http = http.server.ThreadingHTTPServer(('127.0.0.1', self.port), Http)
        self.http.engine, self.canaries = self, 0
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.rank = [Stream(context, self.events + i, self.replay + i, hwm) for i in range(ranks)]
        self.chains = [Chain(i) for i in range(CHAINS)]
        self.store = [batch([c.stores]) for c in self.chains]
        self.remove = [batch([c.removes]) for c in self.chains]
        self.lock, self.over = threading.Lock(), False
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while not self.over:
            with self.lock:
                for s in self.rank:
                    s.serve()
            time.sleep(0.001)

    def publish(self, rank, frames, lost=False):
        for f in frames:
            with self.lock:
                self.rank[rank].publish(f, lost)

    def flood(self, passes):
        """Removes the cached blocks; stores and removes everything @n times; then stores it."""
        self.drop(sorted(self.rank[0].held))
        for _ in range(passes):
            self.publish(0, self.store)
            self.publish(0, self.remove)
        self.publish(0, self.store)
        self.rank[0].held = set(range(CHAINS))

    def drop(self, numbers):
        self.publish(0, [self.remove[i] for i in numbers])
        self.rank[0].held -= set(numbers)

    def fill(self):
        """Stores only missing blocks: a second store would be a second copy."""
        self.publish(0, [f for i, f in enumerate(self.store) if i not in self.rank[0].held])
        self.rank[0].held = set(range(CHAINS))

    def canary(self, tokens):
        """A prompt of the agent itself is in the cache."""
        self.canaries += 1
        n = len(tokens) // B
        names = [self.canaries << 48 | i for i in range(n)]
        self.publish(0, [batch([{'type': 'BlockStored', 'block_hashes': names, 'parent_block_hash': None, 'token_ids': tokens[:n * B],
                                 'block_size': B, 'lora_id': None, 'medium': 'GPU'}])])

    def test(self, overlap):
        """Answers like the stand-in engine: blocks of a prompt that each rank holds."""
        return {'overlap': [next((len(overlap) // B for i in s.held if self.chains[i].tokens[:len(overlap)] == overlap), 0)
                            for s in self.rank]}

    def prompts(self):
        return [c.tokens for c in self.chains[::5]] + [self.chains[1].tokens[:B * 7]]

    def stop(self):
        self.over = True
        self.thread.join()
        self.http.shutdown()


class Test:
    def __init__(self, kvroute, program, worker, router, hwm=0, audit_s=3600, canary_s=0):
        self.kvroute, self.worker = kvroute, worker
        self.router = router
        self.front = Front(TALLY, ADDRESSES[0])
        self.engine = Engine(zmq.Context.instance(), hwm=hwm)
        self.log = f'{router.dir}/agent.log'
        self.agent = Agent(program, self.engine, ADDRESSES[0], worker, '--block-size', f'{B}', '--kv-blocks', f'{4 * CHAINS * BLOCKS}',
                           '--silent-ms', '60000', '--audit-s', f'{audit_s}', '--canary-s', f'{canary_s}',
                           '--drain-s', '2', log=self.log)
        self.front.serving('at first', router, worker)
        self.engine.publish(1, [batch([self.engine.chains[3].stores], 1)])
        self.engine.rank[1].held = {3}
        self.engine.flood(1)
        self.same('at first')

    def same(self, name):
        self.front.same_table(name, self.engine, self.worker, self.engine.prompts())

    def counted(self, name):
        return self.agent.counters()['agent'][name]

    def dumps(self):
        self.agent.counters()
        with open(self.log) as f:
            return int(re.findall(r'(\d+) dumps', f.read())[-1])

    def until(self, name, condition, detail=lambda: ''):
        self.front.until(name, condition, detail)

    def stuck(self, name):
        """Waits until the agent reads no more."""
        seen = [0, 1]

        def rests():
            c = self.agent.counters()['agent']
            seen.append(c['batches'])
            return c['events_wait'] == 1 and len(set(seen[-3:])) == 1
        self.until(f'{name}: the events wait', rests, self.agent.counters)

    def sleeps(self, name):
        busy = cpu(self.agent.process)
        time.sleep(1)
        busy = cpu(self.agent.process) - busy
        check(f'{name}: it sleeps', busy < 0.3, busy)

    def lossless(self, name, before):
        self.until(f'{name}: none waits any more', lambda: self.counted('events_wait') == 0, self.agent.counters)
        now = self.agent.counters()['agent']
        check(f'{name}: no batch was missed', all(now[k] == before[k] for k in ('gaps', 'replays', 'clean_starts', 'regressions', 'batches_bad')),
              (before, now))

    def never_pauses(self):
        """A publisher too fast for the router; requests and the other rank are served meanwhile."""
        before, dumps = self.agent.counters()['agent'], self.dumps()
        self.engine.drop(range(CHAINS))
        flood = threading.Thread(target=self.engine.flood, args=(100,))
        flood.start()
        asked = 0
        while flood.is_alive() or asked < 3:
            self.front.answers('beside the flood', [self.front.ask([asked] * 40, pin=(self.worker, asked % 2))])
            asked += 1
            self.engine.publish(1, [batch([self.engine.chains[c].removes if c in self.engine.rank[1].held else self.engine.chains[c].stores], 1)
                                    for c in (4, 3)])
            self.engine.rank[1].held ^= {3, 4}
            check('one of them', len(self.engine.rank[1].held) == 1)
        flood.join()
        self.same('never pauses')
        self.lossless('never pauses', before)
        check('never pauses: they had to wait', self.counted('events_held') > before['events_held'], (before, self.agent.counters()))
        check('never pauses: no dump', self.dumps() == dumps, (dumps, self.dumps()))
        print(f'never pauses: {asked} requests, held {self.counted("events_held") - before["events_held"]} times, rss {rss(self.agent.process) // 1024} KiB', flush=True)

    def stands_still(self, name, publish, bound):
        """The router is stopped: later batches stay outside the agent."""
        before, dumps, was = self.agent.counters()['agent'], self.dumps(), rss(self.agent.process)
        self.router.hold()
        publish()
        self.stuck(name)
        now = rss(self.agent.process)
        check(f'{name}: what it holds', now - was < bound, ((now - was) // 1024, bound // 1024))
        self.sleeps(name)
        self.router.go_on()
        self.same(name)
        self.lossless(name, before)
        check(f'{name}: no dump', self.dumps() == dumps, (dumps, self.dumps()))
        print(f'{name}: agent {was // 1024} -> {now // 1024} KiB, bound {bound // 1024} more', flush=True)

    def large_batches(self):
        e = self.engine
        store, remove = batch([c.stores for c in e.chains]), batch([c.removes for c in e.chains])
        e.publish(0, [remove, store])
        self.same('a large one')
        self.stands_still('large batches', lambda: e.publish(0, [remove, store] * 150), (SOCKET + 2) * CHAINS * BATCH + REST)

    def lost_behind_a_replay(self):
        """The last batch is lost while the agent reads a replay, and so is one behind the next: no later batch would reveal them."""
        e = self.engine
        with e.lock:
            e.rank[0].behind = [e.remove[5], e.remove[10]]
        e.publish(0, [e.remove[0]], lost=True)
        e.publish(0, [e.remove[1]])
        e.rank[0].held -= {0, 1, 5, 10}
        self.same('lost behind a replay')
        e.publish(0, [e.store[i] for i in (0, 1, 5, 10)])
        e.rank[0].held |= {0, 1, 5, 10}
        self.same('found again')

    def ends(self):
        """SIGTERM while events wait."""
        self.router.hold()
        self.engine.flood(150)
        self.stuck('the end')
        check('it leaves', self.agent.stop() == 0)
        self.router.go_on()

    def engine_restarts(self):
        """Another engine replaces one whose batches wait."""
        self.router.hold()
        self.engine.flood(100)
        self.stuck('the engine restarts')
        with self.engine.lock:
            self.engine.rank[0].restart()
        self.engine.publish(0, self.engine.store[:7])
        self.engine.rank[0].held = set(range(7))
        self.router.go_on()
        self.same('the engine restarts')

    def restarted(self, name, n):
        """Another engine with `n` chains from before the agent's start, and no further events; the agent has noticed."""
        cleans = self.counted('clean_starts')
        with self.engine.lock:
            self.engine.rank[0].restart()
        self.engine.publish(0, self.engine.store[:n])
        self.engine.rank[0].held = set(range(n))
        self.until(f'{name}: the agent sees it', lambda: self.counted('clean_starts') > cleans, self.agent.counters)

    def some_wait(self, name):
        """The router stands still, and more batches arrive than are handed on; they fill a part of the socket."""
        self.router.hold()
        n = HELD * MIB // (BLOCKS * 8) + SOCKET // 4
        self.engine.publish(0, [(self.engine.remove, self.engine.store)[i // CHAINS % 2][i % CHAINS] for i in range(n)])
        for i in range(n):
            (self.engine.rank[0].held.discard, self.engine.rank[0].held.add)[i // CHAINS % 2](i % CHAINS)
        self.stuck(name)

    def canaries(self):
        """An event that waits for the router does not count as evidence about the names in it."""
        self.until('a canary', lambda: self.counted('canaries') > 0, self.agent.counters)
        self.some_wait('canaries')
        fine, end = self.counted('canaries'), time.monotonic() + 8  # one a second, whose event has 5 s
        self.until('and one whose event waits', lambda: self.engine.canaries > fine and time.monotonic() > end)
        self.router.go_on()
        self.until('it has come', lambda: self.counted('canaries') > fine, self.agent.counters)
        now = self.agent.counters()['agent']
        check('no canary is missed', now['canaries_bad'] == now['canaries_failed'] == 0, now)
        self.engine.fill()
        self.same('canaries')

    def engine_restarts_behind_some(self):
        """Another engine replaces one whose batches lie in the agent's socket: these must be dropped."""
        self.some_wait('an engine restarts behind some')
        self.restarted('an engine restarts behind some', 7)
        self.router.go_on()
        self.same('an engine restarts behind some')

    def engine_restarts_in_a_replay(self):
        """An engine that gets a replay request and dies before it answers."""
        stream = self.engine.rank[0]
        stream.mute = True

        def asked(why, then):
            self.until(f'{why}: it is asked', lambda: stream.asked > then)
        asked('an audit', stream.asked)
        self.engine.publish(0, self.engine.remove[3:5])  # these wait meanwhile
        self.sleeps('while it waits for a replay')
        then = stream.asked
        self.engine.publish(0, [self.engine.remove[0]], lost=True)
        self.engine.publish(0, self.engine.remove[1:3])
        asked('a gap', then)
        self.restarted('an engine restarts in a replay', 9)
        stream.mute = False
        self.same('an engine restarts in a replay')

    def restarts_while_asked(self):
        """Another engine starts while the old one has not answered the replay request, and some of its batches lie in the socket: the numbers of the
        new engine are below all of these."""
        e, s = self.engine, self.engine.rank[0]
        with e.lock:
            s.publish(e.remove[0], lost=True)
            for frame in e.remove[1:20]:
                s.publish(frame)
            self.until('it has asked for what was missed', lambda: s.router.poll(0))
            s.restart()
        e.publish(0, e.store[:9])
        s.held = set(range(9))
        self.same('another engine while it waits for an answer')
        e.publish(0, e.store[9:11])
        s.held |= {9, 10}
        self.same('and its next batches')

    def one_stream_of_two_ranks(self):
        """A stream that also carries another rank, and has lost something that no replay has: neither rank is authoritative any more."""
        e, s = self.engine, self.engine.rank[0]
        e.publish(0, [batch([e.chains[20].stores], 1)])
        e.rank[1].held |= {20}
        self.same('of another rank')
        with e.lock:
            s.publish(batch([e.chains[20].removes], 1), lost=True)
            s.kept.clear()
            s.publish(e.store[10])
        s.held, e.rank[1].held = {10}, set()
        self.same('lost, of whatever rank')
        e.publish(1, [batch([e.chains[15].stores], 1)])
        e.rank[1].held = {15}
        self.same('and what comes then')

    def router_restarts(self):
        """The router is killed while events wait for it."""
        self.router.hold()
        self.engine.flood(100)
        self.stuck('the router restarts')
        self.router.process.kill()
        self.router.process.wait()
        self.router.start()
        self.router.telemetry('/kvroute/balance')
        self.front.serving('the router restarts', self.router, self.worker)
        self.engine.drop([5])
        self.same('the router restarts')

    def close(self):
        self.agent.kill()
        self.engine.stop()


def first(kvroute, program, router):
    t = Test(kvroute, program, 7, router)
    try:
        t.never_pauses()
        t.stands_still('stands still', lambda: t.engine.flood(150), (SOCKET + 2) * BATCH + REST)
        t.large_batches()
        t.lost_behind_a_replay()
        t.ends()
    finally:
        t.close()


def second(kvroute, program, router):
    # This engine drops batches, even the last ones, while it answers a replay: an audit finds them.
    t = Test(kvroute, program, 8, router, hwm=100, audit_s=2, canary_s=1)
    try:
        t.canaries()
        t.engine_restarts()
        t.engine_restarts_behind_some()
        t.engine_restarts_in_a_replay()
        t.restarts_while_asked()
        t.one_stream_of_two_ranks()
        t.router_restarts()
        check('it leaves', t.agent.stop() == 0)
    finally:
        t.close()


def main(kvroute, program):
    router = Router(kvroute, POOLS, 'suspect_ms = 30000\ndead_ms = 60000\nsource_share = 0')
    try:
        router.telemetry('/kvroute/balance')
        first(kvroute, program, router)
        second(kvroute, program, router)
        answer = router.telemetry('/kvroute/balance')
        check('balance', answer['balance'] == 'ok', answer)
    except Exception:
        TALLY.broke()
    TALLY.finish(router, f'{router.dir}/agent.log')


main(*sys.argv[1:])
