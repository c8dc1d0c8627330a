# SPDX-License-Identifier: BSD-3-Clause
"""Sessions of the running router by the document: opened, used, closed, released, expired, bound.

protocol_test.sh starts it: session_test.py KVROUTE
"""

import sys
import time

import kvrproto as p
from protocol_router import Peers, Router, Tally

POOL, TINY, BINDING, NONE, B = 3, 4, 5, 6, 16
POOLS = ''.join(f'''[pool {name}]
id = {number}
block_size = 16
seed = 1
max_ranks = 8
max_blocks = 16384
{option}
''' for name, number, option in (('llama', POOL, ''), ('tiny', TINY, 'max_sessions = 2'),
                                 ('binding', BINDING, 'session_affinity_ttl_secs = 60'),
                                 ('none', NONE, 'max_sessions = 0')))
TALLY = Tally(140, patience=20.0)  # the machine may be busy


class Family(Peers):
    """All tests over one version of IP."""

    def __init__(self, address):
        super().__init__(TALLY, address)
        self.client = p.Client(address)
        self.agents = [p.Agent(address, 100 + i, 'llama', B, ranks=2) for i in range(2)]
        self.tiny = p.Agent(address, 120, 'tiny', B)
        self.binders = [p.Agent(address, 130 + i, 'binding', B) for i in range(3)]
        self.none = p.Agent(address, 140, 'none', B)
        self.all_agents = [*self.agents, self.tiny, *self.binders, self.none]
        self.all = [self.client, *self.all_agents]
        self.count = 0

    def pause(self, seconds):
        p.run_until(self.all, lambda: False, seconds)

    def hashes(self, blocks=4):
        self.count += 1
        first = p.xxh3_64(f'{self.ip} {self.count}'.encode()) >> 34
        return p.sequence_hashes(list(range(first, first + blocks * B)), B)

    def route(self, session=None, action=p.USE, timeout=p.NONE32, pool=POOL, hashes=None, **how):
        hashes = hashes or self.hashes()
        hints = p.route_hints(session=(session, action, timeout) if session else None, **how)
        return self.client.route(pool, len(hashes) * B, hashes, hints=hints)

    def job(self, request):
        key = (self.client.source, request.id)
        return next(((a, a.jobs[key]) for a in self.all_agents if key in a.jobs), (None, None))

    def dispatched(self, name, request):
        if not self.until(name, lambda: self.job(request)[1], lambda: (request.rejected, request.answers)):
            raise RuntimeError(name)
        return self.job(request)

    def answer(self, name, request):
        agent, job = self.dispatched(name, request)
        agent.item(job, b'ok', tokens=1, fin=True)
        self.until(f'{name}: answered', lambda: request.ended and job.done)
        return agent

    def refused(self, name, request, code):
        self.until(f'{name}: ends', lambda: request.ended)
        return self.check(f'{name}: {code}', request.rejected and request.rejected.name == code,
                          request.rejected)

    def calls(self, agent, session):
        return [call[0] for call in agent.session_calls if call[1] == session]

    def other(self, agent):
        return self.agents[1] if agent is self.agents[0] else self.agents[0]

    def tempt(self, agent):
        """A prompt that `agent` has cached in all its ranks."""
        hashes = self.hashes(40)
        for dp_rank in agent.ranks:
            agent.stored(dp_rank, hashes)
        self.until('events acknowledged', lambda: all(r.acked == r.next for r in agent.ranks.values()))
        return hashes

    def run(self):
        for agent in self.all_agents:
            agent.hello()
        self.until('SERVING', lambda: all(a.state == 'SERVING' for a in self.all_agents))
        self.life()
        self.losses()
        self.no()
        self.release()
        self.expiry()
        self.limits()
        self.affinity()
        self.lost_worker()
        self.leave()

    def life(self):
        """OPEN before the request, the way back, CLOSE after it."""
        request = self.route('chat', p.OPEN, 60)
        agent, job = self.dispatched('opened', request)
        self.check('SESSION_OPEN', agent.session_calls == [('SESSION_OPEN', 'chat', 90)],
                   agent.session_calls)
        self.check('its pool', agent.session_pools == {POOL}, agent.session_pools)
        self.check('only there', not self.other(agent).session_calls)
        self.check('the engine may know', job.dispatch.session == b'chat')
        self.answer('opened', request)
        tempting = self.tempt(self.other(agent))
        request = self.route(hashes=tempting)
        self.check('without a session', self.answer('tempted', request) is self.other(agent))
        for i in range(4):
            request = self.route('chat', hashes=tempting)
            self.check('back to the session', self.answer('bound', request) is agent)
        request = self.route('chat', hashes=tempting, backend=self.other(agent).worker, dp_rank=1)
        self.check('a pin is stronger', self.answer('pinned', request) is self.other(agent))
        request = self.route('chat', p.OPEN, 70, hashes=tempting)
        self.check('opened again, there', self.answer('again', request) is agent)
        self.check('with its new timeout', agent.sessions == {'chat': 100}, agent.sessions)
        request = self.route('chat', p.CLOSE, hashes=tempting)
        where, job = self.dispatched('closing', request)
        self.check('CLOSE goes there', where is agent, where.worker)
        self.answer('closed at once: served', self.route('chat', p.CLOSE))
        self.check('but the worker gets no close', 'chat' in agent.sessions)
        where.item(job, b'bye', tokens=1, fin=True)
        self.until('SESSION_CLOSE after the end', lambda: 'chat' not in agent.sessions)
        self.until('closing: answered', lambda: request.ended)
        request = self.route('chat', hashes=tempting)
        self.check('not bound any more', self.answer('after', request) is not agent)
        request = self.route('gone', p.OPEN)
        agent, job = self.dispatched('to be cancelled', request)
        closing = self.route('gone', p.CLOSE)
        self.dispatched('closing, cancelled', closing)
        self.client.cancel(closing)
        self.until('SESSION_CLOSE after CANCEL', lambda: 'gone' not in agent.sessions)
        agent.item(job, fin=True)

    def losses(self):
        """Messages and answers are lost; each is retransmitted and done once."""
        for agent in self.agents:
            lost = []
            agent.drop = lambda h, lost=lost: (h.name.startswith('SESSION_') and len(lost) < 3
                                               and not lost.append(h.name))
        request = self.route('lossy', p.OPEN)
        agent = self.answer('lossy', request)
        self.check('opened once', self.calls(agent, 'lossy') == ['SESSION_OPEN'], agent.session_calls)
        for agent_ in self.agents:
            agent_.drop = lambda header: False
        sent, real = [], agent.send

        def mute(kind, *rest, **how):  # the first two answers are lost
            if kind == 'SESSION_CLOSED' and len(sent) < 2:
                sent.append(kind)
                return 0
            return real(kind, *rest, **how)

        agent.send = mute
        release = self.client.release(POOL, 'lossy')
        self.until('released', lambda: release.ended and len(sent) == 2)
        self.pause(0.3)
        agent.send = real
        self.check('closed once', self.calls(agent, 'lossy') == ['SESSION_OPEN', 'SESSION_CLOSE'],
                   agent.session_calls)

    def no(self):
        """A worker that rejects, and one that does not answer."""
        for agent in self.agents:
            agent.refuse_session = 7
        request = self.route('no', p.OPEN)
        self.refused('no', request, 'SessionOpenFailed')
        self.check('its number', request.rejected and request.rejected.detail[0] == 7
                   and not request.rejected.retryable, request.rejected)
        self.check('nothing was sent', self.job(request)[1] is None)
        closes = [call for a in self.agents for call in a.session_calls if call[0] == 'SESSION_CLOSE']
        self.answer('nothing is bound: served', self.route('no', p.CLOSE))
        self.check('and no worker gets a close', closes == [
            call for a in self.agents for call in a.session_calls if call[0] == 'SESSION_CLOSE'])
        for agent in self.agents:
            agent.refuse_session = 0
            agent.drop = lambda h: h.name == 'SESSION_OPEN'
        began = time.monotonic()
        request = self.route('silent', p.OPEN)
        self.until('silence: ACCEPTED QUEUED at most', lambda: request.ended)
        self.check('silence', request.rejected and request.rejected.name == 'SessionOpenFailed'
                   and request.rejected.detail[0] == 0 and set(request.answers) <= {
                       'QUEUED', 'SessionOpenFailed'}, (request.rejected, request.answers))
        self.check('5 s', time.monotonic() - began > 4.5, time.monotonic() - began)
        for agent in self.agents:
            agent.drop = lambda header: False
        self.until('nothing booked', lambda: all(a.bookings == 0 for a in self.agents))

    def release(self):
        c = self.client
        agent = self.answer('to be released', self.route('mine', p.OPEN))
        release = c.release(POOL, 'mine')
        self.until('RELEASED', lambda: release.ended)
        self.check('code 0', release.code == 0, (release.code, release.rejected))
        self.until('SESSION_CLOSE', lambda: 'mine' not in agent.sessions)
        for pool, session, code in ((POOL, 'mine', 82), (POOL, 'never', 82), (TINY, 'mine', 82)):
            release = c.release(pool, session)
            self.until('RELEASED of nothing', lambda: release.ended)
            self.check('UnknownSession', release.code == code, (release.code, release.rejected))
        for pool, code in ((999, 'UnknownPool'), (NONE, 'UnknownSession')):
            release = c.release(pool, 'mine')
            self.until('release refused', lambda: release.ended)
            self.check(code, release.rejected and release.rejected.name == code,
                       (release.code, release.rejected))
        for name, body, code in (('id_len', p.SESSION_BODY.pack(0, 9, POOL) + b'abcdefgh', 'BadLength'),
                                 ('timeout', p.SESSION_BODY.pack(1, 8, POOL) + b'abcdefgh', 'BadFlags'),
                                 ('id', p.SESSION_BODY.pack(0, 8, POOL) + b'abc\ndefg', 'InvalidSession')):
            before = len(c.refusals)
            c.send('SESSION_RELEASE', 7777, body)
            self.until(f'bad {name} refused', lambda: len(c.refusals) > before)
            self.check(f'bad {name}: {code}', c.refusals[-1][1].name == code, c.refusals[-1][1])

    def expiry(self):
        agent = self.answer('short', self.route('short', p.OPEN, 1))
        self.until('SESSION_CLOSE on expiry', lambda: 'short' not in agent.sessions)
        release = self.client.release(POOL, 'short')
        self.until('released after expiry', lambda: release.ended)
        self.check('nothing is left', release.code == 82, release.code)

    def limits(self):
        for name in ('one', 'two'):
            self.answer(name, self.route(name, p.OPEN, pool=TINY))
        request = self.route('three', p.OPEN, pool=TINY)
        self.refused('a third one', request, 'SessionLimit')
        self.check('later perhaps', request.rejected and request.rejected.retryable)
        self.check('the worker was not asked', not self.calls(self.tiny, 'three'))
        self.answer('closing two', self.route('two', p.CLOSE, pool=TINY))
        self.answer('room for three', self.route('three', p.OPEN, pool=TINY))
        self.refused('no sessions here', self.route('a', p.OPEN, pool=NONE), 'SessionLimit')
        self.answer('but requests', self.route('a', pool=NONE))

    def settled(self, session, pool, condition):
        """Queries where a session would go until the answer is as expected."""
        end = time.monotonic() + TALLY.patience
        while time.monotonic() < end:
            request = self.client.route(pool, B, self.hashes(1), flags=p.ROUTE_QUERY,
                                        hints=p.route_hints(session=(session, p.USE, p.NONE32)))
            self.until('query of a session', lambda: request.ended)
            got = request.accepted or {'refused': request.rejected and request.rejected.name}
            if condition(got):
                return
        self.check(f'settled {session}', False, got)

    def affinity(self):
        """Bound by use; no worker gets a message."""
        first = self.answer('first', self.route('bound', pool=BINDING))
        for _ in range(6):
            self.check('the same worker', self.answer('next', self.route('bound', pool=BINDING)) is first)
        self.check('SESSION_OPEN is not sent', not any(a.session_calls for a in self.binders))
        self.settled('bound', BINDING, lambda got: got.get('worker') == first.worker)
        first.goodbye()
        self.until('GOODBYE_ACK', lambda: first.gone)
        self.settled('bound', BINDING, lambda got: got.get('worker') not in (None, first.worker))
        second = self.answer('without its worker', self.route('bound', pool=BINDING))
        self.check('another worker', second is not first)
        for _ in range(4):
            self.check('bound anew', self.answer('next', self.route('bound', pool=BINDING)) is second)

    def lost_worker(self):
        """An opened session does not move by itself."""
        agent = self.answer('opened', self.route('stays', p.OPEN))
        agent.goodbye()
        self.until('GOODBYE_ACK', lambda: agent.gone)
        self.settled('stays', POOL, lambda got: got.get('refused') == 'SessionWorkerGone')
        self.refused('its worker is gone', self.route('stays'), 'SessionWorkerGone')
        release = self.client.release(POOL, 'stays')
        self.until('released without its worker', lambda: release.ended)
        self.check('code 0', release.code == 0, (release.code, release.rejected))
        self.answer('free again', self.route('stays'))

    def leave(self):
        staying = [a for a in self.all_agents if not a.gone]
        self.until('nothing booked', lambda: all(not a.bookings for a in staying))
        for session, pool in (('one', TINY), ('three', TINY)):
            release = self.client.release(pool, session)
            self.until('RELEASED', lambda: release.ended)
        for agent in staying:
            agent.goodbye()
        self.until('GOODBYE_ACK', lambda: all(a.gone for a in staying))
        for endpoint in self.all:
            endpoint.close()


def main():
    # A descheduled test has not lost its workers.
    TALLY.run(Router(sys.argv[1], POOLS, 'suspect_ms = 10000\ndead_ms = 20000\n'), Family)


main()
