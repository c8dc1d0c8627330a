# SPDX-License-Identifier: BSD-3-Clause
"""The running router against the client and the agents of kvrproto.py, over IPv4 and IPv6.

protocol_test.sh starts it: protocol_test.py KVROUTE
"""

import struct
import sys

import kvrproto as p
from protocol_router import Peers, Router, Tally

POOLS = '''[pool llama]
id = 3
block_size = 16
seed = 1
max_ranks = 16
max_blocks = 65536
'''
POOL, B = 3, 16
TALLY = Tally(600, patience=60.0)  # only a hanging test takes that long


def tokens_of(name, count):
    """Tokens that no other name of this test uses."""
    first = p.xxh3_64(name.encode()) >> 34
    return list(range(first, first + count))


class Family(Peers):
    """All tests over one version of IP."""

    def __init__(self, address):
        super().__init__(TALLY, address)
        self.client = p.Client(address)
        self.agents = [p.Agent(address, 100 + i, 'llama', B, ranks=2) for i in range(2)]
        self.all = [self.client, *self.agents]

    def prompt(self, name, count):
        return tokens_of(self.ip + name, count)

    def jobs(self):
        return [(a, j) for a in self.agents for j in a.jobs.values()]

    def job(self, request):
        key = (self.client.source, request.id)
        return next(((a, a.jobs[key]) for a in self.agents if key in a.jobs), (None, None))

    def run(self):
        self.connect()
        self.overlap()
        self.loads()
        self.answer()
        self.direct()
        self.cancel()
        self.repeats()
        self.fragments()
        self.missing()
        self.repair()
        self.refusals()
        self.refused_dispatch()
        self.leave()

    def connect(self):
        c = self.client
        c.connect('no-such-pool')
        self.until('CONNECT to an unknown pool lists none', lambda: c.limits and not c.pools)
        c.connect()
        self.until('CONNECTED', lambda: c.limits)
        self.check('pool', c.pools.get('llama', ())[:3] == (POOL, 0, B), c.pools)
        self.check('limits', c.limits['max_tokens'] == 1 << 20 and c.limits['max_hashes'] == 65536
                   and c.limits['total_pools'] == 1, c.limits)
        request = c.route(POOL, B, p.sequence_hashes(self.prompt('early', B), B))
        self.until('ROUTE without workers ends', lambda: request.ended)
        # Retryable or not: agents may still send HELLO to a router that has just started.
        self.check('NoEndpoints', request.rejected and request.rejected.name == 'NoEndpoints',
                   request.rejected)
        for agent in self.agents:
            agent.hello()
        self.until('WELCOME', lambda: all(a.welcome for a in self.agents))
        self.until('SERVING', lambda: all(a.state == 'SERVING' for a in self.agents))
        c.connect('llama')
        self.until('ranks in CONNECTED', lambda: c.limits and c.pools['llama'][3] == 4, lambda: c.pools)

    def query(self, hashes, isl=None, **how):
        how.setdefault('flags', p.ROUTE_QUERY)
        request = self.client.route(POOL, isl or len(hashes) * B, hashes, **how)
        self.until('query answered', lambda: request.ended)
        return request.accepted or {'refused': request.rejected}

    def overlap(self):
        """Events of one rank are seen by the next decision, tier by tier; REMOVED and CLEARED."""
        prompt = p.sequence_hashes(self.prompt('overlap', 400 * B), B)
        agent = self.agents[1]
        agent.stored(1, prompt[:300])
        agent.stored(1, prompt[:320], 'host', first=300)
        agent.stored(1, prompt[:340], 'disk', first=320)
        self.until('events acknowledged', lambda: agent.ranks[1].acked == agent.ranks[1].next)
        got = self.query(prompt, 400 * B + 5)
        want = dict(worker=101, dp_rank=1, overlap_blocks=300 + 15 + 5, required_blocks=401,
                    cached_tokens=320 * B, state='QUERY')
        self.check('overlap', want.items() <= got.items(), got)
        agent.event(1, p.REMOVED, 'device', prompt[200:300])
        agent.event(1, p.REMOVED, 'host', prompt[300:320])
        agent.flush(1)
        self.until('removes acknowledged', lambda: agent.ranks[1].acked == agent.ranks[1].next)
        got = self.query(prompt)
        self.check('overlap after REMOVED', got.get('overlap_blocks') == 200, got)
        agent.event(1, p.CLEARED)
        agent.flush(1)
        self.until('CLEARED acknowledged', lambda: agent.ranks[1].acked == agent.ranks[1].next)
        got = self.query(prompt)
        self.check('overlap after CLEARED', got.get('overlap_blocks') == 0, got)
        self.check('a query is not dispatched', not self.jobs(), len(self.jobs()))

    def loads(self):
        """The load that every rank would have; long queries, and rejections."""
        tokens = self.prompt('loads', 4000)
        agent = self.agents[0]
        agent.stored(1, p.sequence_hashes(tokens, B)[:100])
        self.until('events acknowledged', lambda: agent.ranks[1].acked == agent.ranks[1].next)
        loads = self.client.loads(POOL, len(tokens), tokens=tokens)
        self.until('LOADS', lambda: loads.ended, lambda: loads.rejected)
        ranks = loads.ranks or []
        self.check('every rank in order', [(r['worker'], r['dp_rank']) for r in ranks] == [
            (100, 0), (100, 1), (101, 0), (101, 1)], ranks)
        self.check('tokens to compute', [r['prefill_tokens'] for r in ranks] == [
            4000, 2400, 4000, 4000], ranks)
        self.check('nothing booked or sent', not any(r['active_requests'] for r in ranks)
                   and not self.jobs(), ranks)
        loads = self.client.loads(999, 4, tokens=[1, 2, 3, 4])
        self.until('LOADS of no pool', lambda: loads.ended)
        self.check('UnknownPool', loads.rejected and loads.rejected.name == 'UnknownPool', loads.rejected)

    def answer(self):
        """A complete answer: hashes of tokens by the router, LoRA, 100 items, and loss of items."""
        tokens = self.prompt('answer', 10 * B + 3)
        seed = p.hash_seed('adapter-a', 'tenant-a')
        hashes = p.sequence_hashes(tokens, B, seed=seed)
        agent = self.agents[0]
        agent.stored(0, hashes)
        self.until('events acknowledged', lambda: agent.ranks[0].acked == agent.ranks[0].next)
        hints = p.route_hints(lora='adapter-a', namespace='tenant-a') + p.hint(0x0015, b'trace')
        c = self.client
        request = c.route(POOL, len(tokens), tokens=tokens, hints=hints, body=b'hello', max_tokens=99)
        self.until('dispatched', lambda: self.job(request)[1])
        agent, job = self.job(request)
        d = job.dispatch
        self.check('tokens are hashed as in section 13', (d.worker, d.dp_rank, d.overlap_blocks) ==
                   (100, 0, 10), (d.worker, d.dp_rank, d.overlap_blocks))
        self.check('DISPATCH is the ROUTE', (d.tokens, d.hints, d.body, d.max_tokens, d.isl) ==
                   (tuple(tokens), hints, b'hello', 99, len(tokens)))
        mine = c.sock.getsockname()
        self.check('address of the client', (d.client_port, d.client_frame) == (mine[1], c.max_frame)
                   and d.client == ('fd09::2' if self.v6 else '10.9.0.2'), (d.client, d.client_port))
        self.until('ACCEPTED', lambda: request.accepted)
        self.check('handle', d.handle != 0 and request.handle == d.handle, (request.handle, d.handle))
        c.probe(request)
        self.until('PROBE answered RUNNING', lambda: 'RUNNING' in request.answers, lambda: request.answers)
        self.until('heartbeats are answered with the bookings', lambda: agent.bookings == 1, lambda: agent.bookings)
        lost = [3, 17, 40]  # the client loses these items once
        c.drop = lambda h: h.name == 'RESPONSE' and bool(lost) and request.next == lost[0] and (
            lost.pop(0) or True)
        for i in range(100):
            agent.item(job, b'%03d' % i, tokens=1, cached=160, fin=i == 99)
        self.until('whole answer', lambda: request.ended, lambda: (request.next, request.state))
        c.drop = lambda header: False
        self.check('items in order', request.data == b''.join(b'%03d' % i for i in range(100)),
                   request.data[:60])
        self.check('counts of the answer', (request.generated, request.cached_tokens) == (100, 160))
        self.until('FIN acknowledged', lambda: job.done)
        before = len(c.refusals)
        c.send('PROBE', request.id, p.PROBE_ROOM, handle=request.handle)
        self.until('PROBE after the end', lambda: len(c.refusals) > before)
        self.check('Ended', c.refusals[-1][1].name == 'Ended', c.refusals[-1][1])

    def direct(self):
        """DIRECT: items bypass the router, PROGRESS goes to it."""
        request = self.client.route(POOL, 40, flags=p.ROUTE_DIRECT)
        self.until('direct dispatched', lambda: self.job(request)[1])
        agent, job = self.job(request)
        agent.item(job, b'one', tokens=1)
        agent.progress(job)
        self.until('direct item', lambda: request.next == 1)
        self.check('from the agent itself', request.peer[1] == agent.sock.getsockname()[1], request.peer)
        agent.item(job, b'two', tokens=1, fin=True)
        agent.progress(job, fin=True)
        self.until('direct answer', lambda: request.ended and job.done)
        self.until('PROGRESS_ACK', lambda: getattr(job, 'progress_done', False))

    def cancel(self):
        request = self.client.route(POOL, 3 * B, p.sequence_hashes(self.prompt('cancel', 3 * B), B))
        self.until('dispatched', lambda: self.job(request)[1] and request.accepted)
        agent, job = self.job(request)
        agent.item(job, b'begin', tokens=1)
        self.until('first item', lambda: request.next == 1)
        self.client.cancel(request)
        self.until('CANCELLED', lambda: request.cancelled)
        self.until('ABORT reaches the agent', lambda: job.aborted is not None)
        self.check('ABORT of a client is code 0', job.aborted == 0, job.aborted)
        self.until('nothing booked', lambda: all(a.bookings == 0 for a in self.agents))
        request = p.Request(self.client.last_id + 1000, b'')
        self.client.requests[request.id] = request
        self.client.cancel(request)
        self.until('CANCELLED of an unknown id', lambda: request.cancelled)

    def repeats(self):
        """The router decides once for (source, id)."""
        c = self.client
        hashes = p.sequence_hashes(self.prompt('repeats', 4 * B), B)
        request = c.route(POOL, 4 * B, hashes)
        self.until('dispatched', lambda: self.job(request)[1] and request.accepted)
        agent, job = self.job(request)
        c.probe(request)
        self.until('RUNNING', lambda: 'RUNNING' in request.answers)
        c.send_route(request)
        count = len(request.answers)
        self.until('a copy is answered', lambda: len(request.answers) > count)
        self.check('and not run twice', len(self.jobs()) == len({id(j) for _, j in self.jobs()})
                   and request.answers[-1] == 'RUNNING', request.answers)
        other = p.route_body(POOL, 5 * B, hashes + [77], client_frame=c.max_frame)
        before = len(c.refusals)
        state = request.state
        c.send('ROUTE', request.id, other[:40] + struct.pack('<Q', c.cookie) + other[48:])
        self.until('other contents refused', lambda: len(c.refusals) > before)
        self.check('DuplicateRequest', c.refusals[-1][1].name == 'DuplicateRequest', c.refusals[-1][1])
        request.state = state
        agent.item(job, b'x', fin=True)
        self.until('the first goes on', lambda: request.ended and job.done)
        request.route_sends, before = 1, len(c.refusals)
        c.send_route(request)
        self.until('a copy after the end', lambda: len(c.refusals) > before)
        self.check('Ended', c.refusals[-1][1].name == 'Ended', c.refusals[-1][1])

    def fragments(self):
        """40,000 tokens: in order, with some lost in either direction, and in another unit."""
        c = self.client
        tokens = self.prompt('fragments', 40000)
        for name, unit, lose in (('default', None, None), ('one lost', None, 50), ('units of 512', 512, None)):
            real = c.send_route
            if lose is not None:  # of every complete copy, so that only an answer to MISSING can bring it
                c.send_route = lambda r, lose=lose: real(r, lambda n: n != lose)
            request = c.route(POOL, 40000, tokens=tokens, unit=unit)
            self.until(f'40,000 tokens, {name}', lambda: self.job(request)[1])
            c.send_route = real
            agent, job = self.job(request)
            if job is None:
                continue
            self.check(f'40,000 tokens arrive, {name}', job.dispatch.tokens == tuple(tokens))
            # And others with it if either side was descheduled meanwhile.
            self.check(f'what was lost was asked for, {name}', lose is None or lose in request.out.again,
                       (request.out.again, request.route_sends))
            self.until('ACCEPTED', lambda: request.accepted)
            self.check('required blocks', request.accepted['required_blocks'] == 2500, request.accepted)
            agent.item(job, b'ok', tokens=1, fin=True)
            self.until(f'40,000 tokens answered, {name}', lambda: request.ended and job.done)

    def missing(self):
        """The agent loses a part of a DISPATCH, the router one of POTENTIAL_LOADS: just that is retransmitted."""
        c, lost = self.client, []
        tokens = self.prompt('missing', 40000)
        for agent in self.agents:
            agent.drop = lambda h: h.name == 'DISPATCH' and h.frag_off // 1384 in (3, 70, 115) and (
                len(lost) < 3 and not lost.append(h.frag_off))
        request = c.route(POOL, 40000, tokens=tokens)
        self.until('lost parts of a DISPATCH', lambda: self.job(request)[1])
        for agent in self.agents:
            agent.drop = lambda header: False
        agent, job = self.job(request)
        self.check('three were lost', len(lost) == 3, lost)
        if job is not None:
            self.check('the tokens arrive', job.dispatch.tokens == tuple(tokens))
            agent.item(job, b'ok', tokens=1, fin=True)
            self.until('answered after a loss', lambda: request.ended and job.done)
        real, c.send_loads = c.send_loads, lambda loads: real(loads, lambda n: n != 7)
        loads = c.loads(POOL, 40000, tokens=tokens)
        self.until('LOADS after a loss', lambda: loads.ended)
        c.send_loads = real
        self.check('the lost part of the question was asked for', loads.ranks and 7 in loads.out.again, loads.out.again)

    def repair(self):
        """A gap in the events is detected and repaired; a dump replaces; HELLO again with the same epoch."""
        hashes = p.sequence_hashes(self.prompt('repair', 40 * B), B)
        agent, rank = self.agents[0], self.agents[0].ranks[1]
        agent.event(1, p.STORED, 'device', hashes[:20])
        agent.event(1, p.STORED, 'device', hashes[20:30], hashes[19])
        held, rank.ring = rank.ring, rank.ring[1:]
        agent.flush(1)
        rank.ring = held
        self.until('the gap is repaired', lambda: rank.acked == rank.next, lambda: rank.acked)
        self.check('GAP told', rank.gaps > 0)
        got = self.query(hashes)
        self.check('all events applied', got.get('overlap_blocks') == 30, got)
        agent.dump_blocks = lambda dp_rank: [('device', hashes[:40])]
        agent.start_dump(1)
        self.until('dump acknowledged', lambda: rank.dump is None)
        got = self.query(hashes)
        self.check('the dump replaces', (got.get('worker'), got.get('overlap_blocks')) == (100, 40), got)
        agent.event(1, p.REMOVED, 'device', hashes[35:])
        agent.flush(1)
        self.until('live events after the dump', lambda: rank.acked == rank.next)
        agent.hello()
        self.until('HELLO again', lambda: agent.welcome)
        got = self.query(hashes)
        self.check('blocks outlive a HELLO of one life', got.get('overlap_blocks') == 35, got)

    def refusals(self):
        """Malformed frames, each rejected with the documented code."""
        c, agent = self.client, self.agents[0]
        made = list(route_faults()) + list(worker_faults(agent.epoch))
        for number, (name, want, frames) in enumerate(made):
            id = 10_000 + number
            before = len(c.refusals)
            for data in frames(dict(source=c.source, id=id, epoch=c.epoch, seq=c.next_seq())):
                c.put(data if name == 'cookie of another' else c.proven(data))
            # Each of several frames may be rejected: late answers belong to others.
            p.run_until(self.all, lambda: any(h.id == id for h, _ in c.refusals[before:]), TALLY.patience)
            new = [r for h, r in c.refusals[before:] if h.id == id]
            self.check(f'refused: {name}', new and new[0].name in want,
                       f'want {"/".join(want)}, got {new or c.refusals[before:]}')
        # Frames without an answer; a CONNECT behind them proves that they have been read.
        before = len(c.refusals)
        for data in (b'KV', p.frame('ROUTE', bytes(88), magic=0x1234), p.frame('ACCEPTED', bytes(40)),
                     p.frame('REJECTED', bytes(8)), p.frame('DISPATCH_ACK', bytes(16))):
            c.put(data)
        c.connect()
        self.until('CONNECTED', lambda: c.limits)
        self.check('not answered', len(c.refusals) == before, c.refusals[before:])
        stranger = p.Agent(self.ip, 555, 'llama', B)
        self.all.append(stranger)
        stranger.welcome = dict(heartbeat_ms=100)
        acks = []
        stranger.kv_ack = lambda id, body: acks.append(p.KV_ACK_BODY.unpack_from(body)[3])
        stranger.event(0, p.STORED, 'device', [1, 2])
        stranger.flush(0)
        self.until('KV_ACK to a stranger', lambda: acks)
        self.check('says HELLO', acks and acks[0] == p.ACK_HELLO, acks)
        stranger.ranks[0].ring = []
        stranger.goodbye()
        self.until('GOODBYE_ACK to a stranger', lambda: stranger.gone)
        self.all.remove(stranger)

    def refused_dispatch(self):
        for agent in self.agents:
            agent.refuse = 7
        request = self.client.route(POOL, 20)
        self.until('refused by the agent', lambda: request.ended)
        r = request.rejected
        self.check('DispatchFailed', r and r.name == 'DispatchFailed' and r.detail[0] == 7, r)
        for agent in self.agents:
            agent.refuse = 0

    def leave(self):
        """GOODBYE ends live requests with WorkerLost; a new epoch forgets the blocks."""
        agent = self.agents[0]
        request = self.client.route(POOL, 20, hints=p.route_hints(backend=100, dp_rank=1))
        self.until('pinned request', lambda: self.job(request)[1] and request.accepted)
        self.check('on the pinned rank', (request.accepted['worker'], request.accepted['dp_rank'])
                   == (100, 1), request.accepted)
        agent.goodbye()
        self.until('GOODBYE_ACK', lambda: agent.gone)
        self.until('WorkerLost', lambda: request.rejected and request.rejected.name == 'WorkerLost',
                   lambda: request.rejected or request.state)
        other = self.agents[1]
        hashes = p.sequence_hashes(self.prompt('leave', 8 * B), B)
        other.stored(0, hashes)
        self.until('events acknowledged', lambda: other.ranks[0].acked == other.ranks[0].next)
        self.check('known before', self.query(hashes).get('overlap_blocks') == 8)
        request = self.client.route(POOL, 8 * B, hashes)
        self.until('booked', lambda: self.job(request)[1])
        other.epoch, other.ranks = other.epoch + 1, {0: p.Rank(), 1: p.Rank()}
        other.hello()
        self.until('WELCOME to a new epoch', lambda: other.welcome)
        self.until('WorkerLost of the old epoch', lambda: request.rejected
                   and request.rejected.name == 'WorkerLost', lambda: request.rejected or request.state)
        self.until('SERVING', lambda: other.state == 'SERVING')
        got = self.query(hashes)
        self.check('blocks of the old epoch are forgotten', got.get('overlap_blocks') == 0, got)
        other.goodbye()
        self.until('GOODBYE_ACK', lambda: other.gone)
        for endpoint in self.all:
            endpoint.close()


def route_faults():
    """(name, codes the document allows, what makes the frames out of source, id, ...)."""
    fixed = p.route_body(POOL, 100)

    def body(data, kind='ROUTE', **forged):
        return lambda who: [p.frame(kind, data, **who, **forged)]

    def poked(at, form, value, data=fixed):
        changed = bytearray(data)
        struct.pack_into(form, changed, at, value)
        return body(bytes(changed))

    def hinted(hints):
        return body(p.route_body(POOL, 100, hints=hints))

    def parts(*cuts, msg_len=2048):
        return lambda who: [p.frame('ROUTE', bytes(size), msg_len=length or msg_len, frag_off=at, **who)
                            for at, size, length in cuts]

    yield 'version', ('UnknownVersion',), body(fixed, version=2)
    yield 'kind 99', ('UnknownKind',), body(fixed, kind=99)
    yield 'flag 1', ('BadFlags',), body(fixed, flags=1)
    yield 'flag 0x8000', ('BadFlags',), body(fixed, flags=0x8000)
    yield 'version before kind and flags', ('UnknownVersion',), body(fixed, kind=99, flags=1, version=9)
    yield 'frag_len too small', ('BadLength',), body(fixed, frag_len=80)
    yield 'frag_len too large', ('BadLength',), body(fixed, frag_len=96)
    yield 'length not of 8', ('BadLength',), body(fixed + b'1234')
    yield 'msg_len below the least', ('BadLength',), body(fixed[:80])
    yield 'msg_len above the most', ('TooLarge',), body(fixed, msg_len=5832800)
    yield 'CANCEL with a body', ('TooLarge',), body(bytes(8), kind='CANCEL')
    yield 'fragment of CONNECT', ('BadFragment',), body(bytes(8), kind='CONNECT', msg_len=16)
    yield 'frag_off of a whole message', ('BadFragment',), body(fixed, frag_off=88)
    yield 'fragment below 512', ('BadFragment',), parts((0, 504, 0))
    yield 'fragment leaves the message', ('BadFragment',), parts((2048, 512, 0))
    yield 'frag_off not of the unit', ('BadFragment',), parts((520, 512, 0))
    yield 'unit changes', ('BadFragment',), parts((0, 512, 0), (1024, 1024, 0), (512, 520, 0))
    yield 'msg_len changes', ('BadFragment',), parts((0, 512, 0), (512, 512, 4096))
    yield 'too many hashes', ('TooLarge',), poked(12, '<I', 65537)
    yield 'too many tokens', ('TooLarge',), poked(16, '<I', (1 << 20) + 1)
    yield 'isl too large', ('TooLarge',), poked(8, '<I', (1 << 20) + 1)
    yield 'hints too large', ('TooLarge',), poked(20, '<I', 65544)
    yield 'body too large', ('TooLarge',), poked(24, '<I', (1 << 20) + 1)
    yield 'parts do not add up', ('BadLength',), poked(12, '<I', 3)
    yield 'hints_len not of 8', ('BadLength',), poked(20, '<I', 4)
    yield 'flag of the router', ('BadFlags',), poked(4, '<I', 0x10)
    yield 'unknown flag', ('BadFlags',), poked(4, '<I', 0x10000)
    yield 'cookie of another', ('CookieRequired',), poked(40, '<Q', 12345)
    for at, field in ((3, 'reserved0'), (48, 'dp_rank'), (52, 'overlap'),
                      (56, 'cached'), (60, 'attempt'), (64, 'client_ip'), (80, 'client_port'),
                      (84, 'reserved1')):
        yield f'{field} not 0', ('BadFlags',), poked(at, '<B', 1)
    odd = p.route_body(POOL, 3, tokens=[1, 2, 3])
    yield 'padding of tokens not 0', ('BadFlags',), poked(len(odd) - 1, '<B', 1, odd)
    odd = p.route_body(POOL, 3, body=b'abc')
    yield 'padding of body not 0', ('BadFlags',), poked(len(odd) - 1, '<B', 1, odd)
    yield 'phase', ('InvalidRequest',), poked(2, '<B', 3)
    yield 'client_frame', ('InvalidRequest',), poked(82, '<H', 559)
    yield 'client_frame above', ('InvalidRequest',), poked(82, '<H', 8953)
    yield 'empty prompt', ('EmptyPrompt',), poked(8, '<I', 0)
    yield 'isl below the hashes', ('InvalidRequest',), body(p.route_body(POOL, 2 * B - 1, [1, 2]))
    yield 'isl is not the tokens', ('InvalidRequest',), body(p.route_body(POOL, 4, tokens=[1, 2, 3]))
    yield 'pool', ('UnknownPool',), poked(0, '<H', 999)
    yield 'unknown critical hint', ('BadHint',), hinted(p.hint(0x8FFF, b'x'))
    yield 'hint twice', ('BadHint',), hinted(p.route_hints(lora='a') * 2)
    yield 'hint leaves the hints', ('BadHint',), hinted(struct.pack('<HHI', 1, 40, 0))
    yield 'control byte in a string', ('BadHint',), hinted(p.route_hints(lora='a\nb'))
    yield 'wrong length of a number', ('BadHint',), hinted(p.hint(0x8003, b'1234'))
    yield 'BOOTSTRAP', ('BadHint',), hinted(p.hint(0x13, bytes(16) + b'host'))
    yield 'PREFILL_RESULT', ('BadHint',), hinted(p.hint(0x14, b'x'))
    yield 'overlapping SHARED_HITS', ('BadHint',), hinted(p.route_hints(shared_hits=[(0, 4), (3, 6)]))
    yield 'infinite weight', ('InvalidWeight',), hinted(p.route_hints(preferred_taints={'a': float('inf')}))
    yield 'unknown override', ('InvalidOverride',), hinted(p.route_hints(override={99: 0}))
    yield 'negative override', ('InvalidOverride',), hinted(
        p.route_hints(override={'router_temperature': -1}))
    yield 'override not a truth', ('InvalidOverride',), hinted(
        p.route_hints(override={'assume_kv_reuse': 0.5}))
    yield 'session, timeout 0', ('InvalidSession',), hinted(p.session_hint('a', p.OPEN, 0))
    yield 'session, timeout above a year', ('InvalidSession',), hinted(
        p.session_hint('a', p.USE, 31536001))
    yield 'session, action', ('InvalidSession',), hinted(p.session_hint('a', 3))
    yield 'session, empty id', ('InvalidSession',), hinted(p.session_hint(''))
    yield 'session, long id', ('InvalidSession',), hinted(p.session_hint('a' * 257))
    yield 'session, id is no text', ('InvalidSession',), hinted(p.session_hint(b'\xff'))
    yield 'infinite override', ('InvalidOverride', 'BadHint'), hinted(
        p.route_hints(override={'prefill_load_scale': float('inf')}))
    yield 'pin without rank', ('DpRankRequired',), hinted(p.route_hints(backend=100))
    yield 'pin to an unknown worker', ('NoEndpoints', 'DpRankRequired'), hinted(p.route_hints(backend=999, dp_rank=0))
    yield 'pin not allowed', ('PinnedWorkerNotAllowed',), hinted(
        p.route_hints(backend=100, dp_rank=0, allowed=[101]))
    yield 'no worker allowed', ('NoEndpoints',), hinted(p.route_hints(allowed=[]))
    yield 'missing taint', ('NoEndpoints',), hinted(p.route_hints(required_taints=['gpu=none']))
    yield 'PROBE of nothing', ('UnknownRequest',), body(p.PROBE_ROOM, kind='PROBE')
    yield 'RESPONSE of nothing', ('UnknownRequest',), body(
        p.RESPONSE_BODY.pack(0, 1, 0, 0, 0, 0, 0, 0), kind='RESPONSE', handle=0x123456)


def worker_faults(epoch):
    """The same for the kinds of agents; `source` of the frames is replaced."""

    def sent(kind, data, source=777, epoch=5):
        return lambda who: [p.frame(kind, data, **{**who, 'source': source, 'epoch': epoch})]

    def hello(block_size=B, dp_size=1, max_frame=p.FRAME_USUAL, role=0, flags=0, pool='llama', dp_start=0,
              reserved=0):
        hints = p.hint(0x8020, pool.encode()) if pool else b''
        return sent('HELLO', p.HELLO_BODY.pack(block_size, dp_start, dp_size, 0, 0, len(hints), max_frame,
                                               role, flags, reserved, 0) + hints)

    yield 'HELLO, pool', ('UnknownPool',), hello(pool='other')
    yield 'HELLO, block size', ('WorkerConfig',), hello(block_size=32)
    yield 'HELLO, role', ('WorkerConfig',), hello(role=1)
    yield 'HELLO, too many ranks', ('WorkerLimit',), hello(dp_size=100)
    yield 'HEARTBEAT of a stranger', ('UnknownWorker',), sent('HEARTBEAT', bytes(8))
    yield 'HEARTBEAT of an older life', ('StaleEpoch',), sent('HEARTBEAT', bytes(8), 100, epoch - 1)
    yield 'HEARTBEAT, entries', ('BadLength',), sent('HEARTBEAT', struct.pack('<II', 2, 0), 100, epoch)


def main():
    router = Router(sys.argv[1], POOLS)

    def decisions():
        kept = router.telemetry('/kvroute/decisions,llama')
        newest = router.telemetry(f'/kvroute/decisions,llama,{kept["kept"] - 1}')
        TALLY.check('decisions are explained', kept['decisions'] and 'terms' in newest, kept)

    TALLY.run(router, Family, decisions)


main()
