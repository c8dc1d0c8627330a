# SPDX-License-Identifier: BSD-3-Clause
"""A prefill pool and a decode pool of one model behind the running router: legs as documented.

protocol_test.sh starts it: disagg_test.py KVROUTE
"""

import sys
import time

import kvrproto as p
from protocol_router import Peers, Router, Tally

DECODE, PREFILL, B = 3, 4, 16
POOLS = '''[pool llama]
id = 3
model = llama
role = decode
enforce_disagg = off
dispatch_ms = 20000
block_size = 16
seed = 1
max_ranks = 16
max_blocks = 65536
[pool llama-prefill]
id = 4
model = llama
role = prefill
dispatch_ms = 20000
block_size = 16
seed = 2
max_ranks = 16
max_blocks = 65536
'''
TALLY = Tally(140, patience=20.0)  # the machine may be busy


class Family(Peers):
    """All tests over one version of IP."""

    def __init__(self, address):
        super().__init__(TALLY, address)
        self.client = p.Client(address)
        self.decoder = p.Agent(address, 300, 'llama', B, ranks=2, role=2)
        self.prefillers = [p.Agent(address, 200 + i, 'llama-prefill', B, ranks=2, role=1)
                           for i in range(2)]
        self.meeting = p.Agent(address, 210, 'llama-prefill', B, ranks=4, dp_start=4, role=1,
                               hints=p.worker_hints(bootstrap=('10.0.0.7', 8998)))
        self.meeting2 = p.Agent(address, 211, 'llama-prefill', B, ranks=2, role=1,
                                hints=p.worker_hints(bootstrap=('10.0.0.8', 8999)))
        self.agents = [self.decoder, *self.prefillers, self.meeting, self.meeting2]
        self.all = [self.client, *self.agents]
        self.count = 0

    def pause(self, seconds):
        p.run_until(self.all, lambda: False, seconds)

    def prompt(self, tokens=40):
        self.count += 1
        first = p.xxh3_64(f'{self.ip} {self.count}'.encode()) >> 34
        return list(range(first, first + tokens))

    def route(self, tokens=40, **how):
        prompt = self.prompt(tokens)
        return self.client.route(DECODE, tokens, tokens=prompt, body=b'body', max_tokens=99, **how)

    def runs(self, request, *agents):
        """(agent, job) of every attempt of a request, oldest first for each agent."""
        return [(agent, job) for agent in agents or self.agents for job in agent.runs
                if (job.dispatch.source, job.dispatch.id) == (self.client.source, request.id)]

    def leg(self, name, request, *agents, nth=0):
        """Waits for the nth attempt of a request on one of the agents."""
        if not self.until(name, lambda: len(self.runs(request, *agents)) > nth):
            raise RuntimeError(name)
        return self.runs(request, *agents)[nth]

    def run(self):
        self.bypass()
        self.synchronous()
        self.synchronous_failures()
        self.bootstrap()
        self.bootstrap_failures()
        self.leave()

    def join(self, *agents):
        for agent in agents:
            agent.gone = False
            agent.hello()
        self.until('WELCOME', lambda: all(a.welcome for a in agents))
        self.until('SERVING', lambda: all(a.state == 'SERVING' for a in agents))
        for agent in agents:
            self.settled(agent, True)

    def part(self, *agents):
        for agent in agents:
            agent.goodbye()
        self.until('GOODBYE_ACK', lambda: all(a.gone for a in agents))
        for agent in agents:
            self.settled(agent, False)

    def settled(self, agent, there):
        """Waits until a new worker can be chosen, or one that left cannot."""
        rank, end = min(agent.ranks), time.monotonic() + TALLY.patience
        pin = (dict(decode_worker=agent.worker, dp_rank=rank) if agent is self.decoder else
               dict(prefill_worker=agent.worker, prefill_dp_rank=rank))
        while time.monotonic() < end:
            got = self.query(hints=p.route_hints(**pin))
            if (agent.worker in (got.get('worker'), got.get('prefill_worker'))) == there:
                return
        self.check('settled', False, (agent.worker, there, got))

    def query(self, **how):
        request = self.route(flags=p.ROUTE_QUERY, **how)
        self.until('query answered', lambda: request.ended)
        return request.accepted or {'refused': request.rejected}

    def answer(self, name, request, agent, job):
        """The decode worker generates, and the client receives only its items."""
        for i in range(20):
            agent.item(job, b'%02d' % i, tokens=1, fin=i == 19)
        if job.dispatch.flags & p.ROUTE_DIRECT:
            agent.progress(job, fin=True)
        self.until(f'{name}: answered', lambda: request.ended and job.done,
                   lambda: (request.state, request.next, request.rejected))
        self.check(f'{name}: only the items of the decode leg', request.data == b''.join(
            b'%02d' % i for i in range(20)) and request.generated == 20, request.data)

    # no prefill worker

    def bypass(self):
        self.client.connect()
        self.until('CONNECTED', lambda: self.client.limits)
        self.check('roles', {name: pool[:2] for name, pool in self.client.pools.items()} == {
            'llama': (DECODE, 2), 'llama-prefill': (PREFILL, 1)}, self.client.pools)
        self.join(self.decoder)
        got = self.query()
        self.check('query without prefill workers', (got.get('path'), got.get('worker')) == (
            'bypassed', 300) and got['prefill_dp_rank'] == p.NONE32, got)
        request = self.route()
        agent, job = self.leg('bypassed request', request)
        self.check('no leg', job.dispatch.leg == '' and job.dispatch.max_tokens == 99
                   and job.dispatch.prefill_worker is None)
        self.until('ACCEPTED', lambda: request.accepted)
        self.check('bypassed', request.accepted['path'] == 'bypassed'
                   and request.accepted['prefill_worker'] == 0, request.accepted)
        self.answer('bypassed', request, agent, job)

    # a prefill worker that gives its result

    def synchronous(self):
        self.join(self.prefillers[0])
        got = self.query()
        self.check('query, sync', (got.get('path'), got.get('worker'), got.get('prefill_worker'))
                   == ('sync', 300, 200), got)
        for flags in (0, p.ROUTE_DIRECT):
            self.whole_synchronous(f'sync{" direct" if flags else ""}', flags)
        self.fragmented_synchronous()

    def whole_synchronous(self, name, flags):
        c = self.client
        request = self.route(flags=flags, hints=p.route_hints(lora='adapter-a', session=('s', p.USE)))
        agent, job = self.leg(f'{name}: prefill leg', request, *self.prefillers)
        d = job.dispatch
        self.check(f'{name}: what the prefill leg has', (
            d.leg, d.phase, d.pool, d.max_tokens, d.flags & p.ROUTE_DIRECT, d.worker, d.prefill_worker,
            d.bootstrap, d.result, d.body) == ('prefill', 1, PREFILL, 1, 0, 200, 200, None, None, b'body'),
            vars(d))
        self.check(f'{name}: its frames are the router\'s',
                   d.client_frame == agent.welcome['max_frame'], d.client_frame)
        self.check(f'{name}: hints of the client', dict(p.read_hints(d.hints))[1] == b'adapter-a'
                   and d.session == b's')
        self.until(f'{name}: QUEUED', lambda: request.answers, lambda: request.answers)
        c.probe(request)
        self.until(f'{name}: PROBE', lambda: len(request.answers) > 1)
        self.pause(0.3)
        self.check(f'{name}: QUEUED while the prompt is computed', set(request.answers) == {'QUEUED'},
                   request.answers)
        self.check(f'{name}: the decode leg waits', not self.runs(request, self.decoder))
        agent.item(job, b'first token', tokens=1)
        self.until(f'{name}: the router acknowledges', lambda: job.acked == 1)
        result = bytes(range(256)) * 4
        agent.item(job, result, fin=True)
        self.until(f'{name}: FIN is acknowledged', lambda: job.done)
        decoder, second = self.leg(f'{name}: decode leg', request, self.decoder)
        d = second.dispatch
        self.check(f'{name}: what the decode leg has', (
            d.leg, d.phase, d.pool, d.max_tokens, d.flags & p.ROUTE_DIRECT, d.prefill_worker, d.bootstrap,
            d.body, d.tokens) == ('decode', 2, DECODE, 99, flags, 200, None, b'body', job.dispatch.tokens),
            vars(d))
        self.check(f'{name}: the result comes back', d.result == result, d.result)
        self.check(f'{name}: two handles', len({0, job.handle, second.handle}) == 3)
        self.until(f'{name}: sent', lambda: request.accepted['state'] != 'QUEUED')
        got = request.accepted
        self.check(f'{name}: ACCEPTED names both', (got['path'], got['worker'], got['prefill_worker'])
                   == ('sync', 300, 200) and got['prefill_dp_rank'] < 2, got)
        self.check(f'{name}: both overlaps', (got['prefill_overlap_blocks'], got['overlap_blocks'])
                   == (job.dispatch.overlap_blocks, second.dispatch.overlap_blocks), got)
        self.answer(name, request, decoder, second)

    def fragmented_synchronous(self):
        """A prompt of many frames is sent twice; the workers lose the first copies."""
        lost = {agent: 9 for agent in (self.prefillers[0], self.decoder)}

        def loses(agent):
            def drop(header):
                if header.name == 'DISPATCH' and lost[agent]:
                    lost[agent] -= 1
                    return True
                return False
            return drop

        for agent in lost:
            agent.drop = loses(agent)
        request = self.route(4000)
        agent, job = self.leg('long prompt: prefill leg', request, *self.prefillers)
        agent.item(job, b'r', fin=True)
        decoder, second = self.leg('long prompt: decode leg', request, self.decoder)
        self.check('long prompt: whole in both legs', job.dispatch.tokens == second.dispatch.tokens
                   and len(job.dispatch.tokens) == 4000)
        self.check('long prompt: the router repeats by itself', not any(lost.values()), list(lost.values()))
        self.answer('long prompt', request, decoder, second)
        for agent in lost:
            agent.drop = lambda header: False

    def synchronous_failures(self):
        """Errors, rejections, an end without a result: one further attempt on the other worker, then no more."""
        first, other = self.prefillers
        self.join(other)
        for name, fail in (
                ('error', lambda a, j: a.item(j, b'bad', fin=True, flags=p.ITEM_ERROR, status=5)),
                ('no result', lambda a, j: a.item(j, fin=True))):
            request = self.route()
            agent, job = self.leg(f'{name}: prefill leg', request, *self.prefillers)
            fail(agent, job)
            spare = other if agent is first else first
            again, second = self.leg(f'{name}: the other worker is tried', request, spare)
            again.item(second, b'result', fin=True)
            decoder, third = self.leg(f'{name}: decode leg', request, self.decoder)
            self.check(f'{name}: result of the second', third.dispatch.result == b'result'
                       and third.dispatch.prefill_worker == again.worker, vars(third.dispatch))
            self.answer(name, request, decoder, third)
        for agent in self.prefillers:
            agent.refuse = 9
        request = self.route()
        self.until('refused twice', lambda: request.ended)
        self.check('PrefillFailed', request.rejected and request.rejected.name == 'PrefillFailed'
                   and request.rejected.retryable and request.rejected.detail[0] == 9, request.rejected)
        for agent in self.prefillers:
            agent.refuse = 0
        request = self.route()
        agent, job = self.leg('lost: prefill leg', request, *self.prefillers)
        spare = other if agent is first else first
        self.part(agent)
        again, second = self.leg('lost: the other worker is tried', request, spare)
        self.client.cancel(request)
        self.until('CANCELLED in a prefill', lambda: request.cancelled)
        self.pause(0.1)
        self.check('the prefill goes on', second.aborted is None and not self.runs(
            request, self.decoder))
        again.item(second, b'result', fin=True)
        decoder, third = self.leg('the decode leg follows, for its blocks', request, self.decoder)
        self.until('and is aborted', lambda: third.aborted is not None)
        self.check('its result came along', third.dispatch.result == b'result')
        self.until('nothing booked', lambda: self.decoder.bookings == 0 and again.bookings == 0)
        self.part(spare)

    # a prefill worker that meets the decode worker

    def both(self, name, request, *agents, nth=0):
        agent, job = self.leg(f'{name}: prefill leg', request, *agents)
        decoder, second = self.leg(f'{name}: decode leg', request, self.decoder, nth=nth)
        room, port, host = job.dispatch.bootstrap
        size = len(agent.ranks)
        self.check(f'{name}: one meeting', second.dispatch.bootstrap == (room, port, host)
                   and room < 1 << 63 and room % size == job.dispatch.dp_rank % size,
                   (job.dispatch.bootstrap, second.dispatch.bootstrap, job.dispatch.dp_rank))
        self.check(f'{name}: no result', second.dispatch.result is None)
        self.check(f'{name}: who', second.dispatch.prefill_worker == agent.worker)
        return agent, job, decoder, second

    def bootstrap(self):
        self.join(self.meeting)
        got = self.query()
        self.check('query, bootstrap', (got.get('path'), got.get('prefill_worker')) == ('bootstrap', 210)
                   and 4 <= got['prefill_dp_rank'] < 8, got)
        rooms, ranks = set(), set()
        for flags in (0, p.ROUTE_DIRECT, 0, 0, 0):
            request = self.route(flags=flags)
            agent, job, decoder, second = self.both('bootstrap', request, self.meeting)
            self.check('address', job.dispatch.bootstrap[1:] == (8998, '10.0.0.7'), job.dispatch.bootstrap)
            rooms.add(job.dispatch.bootstrap[0])
            ranks.add(job.dispatch.dp_rank)
            self.until('ACCEPTED', lambda: request.accepted)
            self.check('never QUEUED', 'QUEUED' not in request.answers, request.answers)
            self.check('ACCEPTED, bootstrap', (request.accepted['path'], request.accepted['prefill_worker'],
                       request.accepted['prefill_dp_rank']) == ('bootstrap', 210, job.dispatch.dp_rank),
                       request.accepted)
            agent.item(job, fin=True)
            self.answer('bootstrap', request, decoder, second)
            self.until('the prefill is acknowledged', lambda: job.done)
        self.check('rooms differ', len(rooms) == 5, rooms)
        self.check('ranks above dp_start', ranks <= {4, 5, 6, 7}, ranks)

    def bootstrap_failures(self):
        self.join(self.meeting2)
        agents = (self.meeting, self.meeting2)
        request = self.route()
        agent, job, decoder, second = self.both('failing', request, *agents)
        self.until('taken', lambda: request.accepted)
        agent.item(job, b'bad', fin=True, flags=p.ITEM_ERROR)
        self.until('the decode leg is aborted', lambda: second.aborted is not None)
        self.check('ABORT says why', p.CODES.get(second.aborted) == 'PrefillFailed', second.aborted)
        spare = self.meeting2 if agent is self.meeting else self.meeting
        again, third, decoder, fourth = self.both('started over', request, spare, nth=1)
        self.check('another handle', fourth.handle != second.handle)
        again.item(third, fin=True)
        self.answer('started over', request, decoder, fourth)

        request = self.route()
        agent, job, decoder, second = self.both('late failure', request, *agents)
        decoder.item(second, b'00', tokens=1)
        self.until('first token', lambda: request.next == 1)
        agent.item(job, b'bad', fin=True, flags=p.ITEM_ERROR)
        self.until('acknowledged all the same', lambda: job.done)
        self.pause(0.2)
        self.check('nothing follows', second.aborted is None and len(self.runs(request)) == 2)
        decoder.item(second, b'01', tokens=1, fin=True)
        self.until('late failure: answered', lambda: request.ended and request.data == b'0001')

        request = self.route()
        agent, job, decoder, second = self.both('cancelled', request, *agents)
        self.client.cancel(request)
        self.until('CANCELLED', lambda: request.cancelled)
        self.until('cancelled: the decode leg is aborted', lambda: second.aborted == 0)
        self.pause(0.2)
        self.check('cancelled: the prefill goes on', job.aborted is None)
        agent.item(job, fin=True)
        self.until('cancelled: and ends', lambda: job.done)

    def leave(self):
        self.until('nothing booked', lambda: all(a.gone or not a.bookings for a in self.agents),
                   lambda: [(a.gone, a.bookings) for a in self.agents])
        self.part(self.decoder, self.meeting, self.meeting2)
        for endpoint in self.all:
            endpoint.close()


def main():
    # A descheduled test has not lost its workers; nor is one unresponsive, by dispatch_ms above.
    router = Router(sys.argv[1], POOLS, 'suspect_ms = 10000\ndead_ms = 20000\n')

    def pools_are_named():
        """Keys of telemetry contain no '-' and no '.'; names that cannot be keys must not be omitted, nor leak."""
        for command in ('/kvroute/pools', '/kvroute/sessions'):
            pools = router.telemetry(command)
            pools = pools.get('pools', pools)
            TALLY.check(command, set(pools) == {'llama', 'llama_prefill'}, list(pools))
        TALLY.check('name', router.telemetry('/kvroute/pools')['pools'].get('llama_prefill', {}).get('name') == 'llama-prefill')
        # A peer is forgotten after ten seconds of silence, and a family may take longer.
        client = p.Client('10.9.0.1')
        asked = client.route(DECODE, 1)
        p.run_until([client], lambda: asked.ended, TALLY.patience)
        sources = router.telemetry('/kvroute/sources')
        TALLY.check('sources', 'pool_llama_prefill' in sources, list(sources))
        TALLY.check('addresses', any('10_9_0_2' in part for part in sources.values()), sources)

    TALLY.run(router, Family, pools_are_named)


main()
