# SPDX-License-Identifier: BSD-3-Clause
"""SIGTERM with live requests, a second SIGTERM, SIGHUP, SIGUSR1.

protocol_test.sh of tests/smoke starts it: shutdown.py KVROUTE
"""

import ctypes
import os
import signal
import sys
import time

from scripts import Peers, Router, Tally, conclude, proto, router_log as log

POOL, B = 3, 16
POOLS = f'''[pool llama]
id = {POOL}
block_size = {B}
seed = 1
max_ranks = 8
max_blocks = 16384
'''
PAIR_POOLS = f'''[pool llama]
id = {POOL}
model = llama
role = decode
block_size = {B}
max_ranks = 8
max_blocks = 16384
[pool llama-prefill]
id = {POOL + 1}
model = llama
role = prefill
block_size = {B}
max_ranks = 8
max_blocks = 16384
'''
TALLY = Tally(100, patience=20.0)


class Stop(Peers):
    def __init__(self, address):
        super().__init__(TALLY, address)
        self.client = proto.Client(address)
        self.agent = proto.Agent(address, 100, 'llama', B, ranks=2)
        self.all = [self.client, self.agent]
        self.count = 0

    def route(self):
        self.count += 1
        first = proto.xxh3_64(f'{self.ip} {self.count}'.encode()) >> 34
        hashes = proto.sequence_hashes(list(range(first, first + 4 * B)), B)
        return self.client.route(POOL, 4 * B, hashes)

    def job(self, request):
        return self.agent.jobs.get((self.client.source, request.id))

    def begin(self):
        self.client.connect()
        self.agent.hello()
        self.until('they are accepted', lambda: self.client.pools and self.agent.welcome)

    def live(self, n):
        requests = [self.route() for _ in range(n)]
        self.until('requests are with the worker', lambda: all(self.job(r) for r in requests))
        return requests


def start(program, peers, pools, options):
    """A router and peers that it has accepted."""
    router = Router(program, pools, options + '\nsuspect_ms = 5000\ndead_ms = 10000')  # silence must not count here
    router.telemetry('/kvroute/info')
    s = peers('10.9.0.1')
    s.begin()
    return router, s


def stop(router, s, says):
    """SIGTERM; the router logs that it stops."""
    router.process.terminate()
    s.until('said', lambda: 'stopping: ' + says in log(router), lambda: log(router)[-400:])


def over(router, s, left=''):
    """It ends in an orderly way and logs what was left."""
    s.until('the router ends', lambda: not router.alive())
    s.check('exit 0', router.process.poll() == 0, router.process.poll())
    s.check('remaining requests are logged', left in log(router), log(router)[-300:])


def in_order(program):
    router, s = start(program, Stop, POOLS, 'stop_ms = 5000')
    requests = s.live(6)
    router.process.send_signal(signal.SIGUSR1)
    s.until('SIGUSR1 does no harm', router.alive)
    begin = time.monotonic()
    stop(router, s, '6 requests in flight')
    late = s.route()
    s.until('a new request is rejected', lambda: late.rejected)
    s.check('with Shutdown', late.rejected and late.rejected.name == 'Shutdown' and late.rejected.retryable, late.rejected)
    done = requests[0]
    s.agent.item(s.job(done), b'ok', tokens=1, fin=True)
    s.until('a live request ends well', lambda: done.ended and not done.rejected, lambda: done.rejected)
    rest = requests[1:]
    s.until('the other clients are notified', lambda: all(r.rejected for r in rest), lambda: [r.rejected for r in rest])
    s.check('the rest: Shutdown', all(r.rejected and r.rejected.name == 'Shutdown' for r in rest))
    s.check('they had stop_ms', time.monotonic() - begin > 4.9, time.monotonic() - begin)
    s.until('workers get ABORT', lambda: all(s.job(r) is None or s.job(r).aborted for r in rest))
    s.until('workers are notified of the stop', lambda: s.agent.shutdown)
    s.check('and end their requests', all(s.job(r).gone for r in rest))
    over(router, s, 'of 6 requests, 5 ended early')
    # Ended requests are kept for another 17 s: the stop does not wait for that.
    took = int(log(router).partition('stopped after ')[2].split()[0])
    s.check('within stop_ms', 5000 <= took < 12000, took)
    return router


class Pair(Peers):
    """A prefill pool and a decode pool: one prefill worker for either path."""

    def __init__(self, address):
        super().__init__(TALLY, address)
        self.client = proto.Client(address)
        self.decoder = proto.Agent(address, 300, 'llama', B, role=2)
        self.sync = proto.Agent(address, 200, 'llama-prefill', B, role=1)
        self.meeting = proto.Agent(address, 210, 'llama-prefill', B, role=1,
                                   hints=proto.worker_hints(bootstrap=('10.0.0.7', 8998)))
        self.agents = [self.decoder, self.sync, self.meeting]
        self.all = [self.client, *self.agents]

    def begin(self):
        self.client.connect()
        for agent in self.agents:
            agent.hello()
        self.until('they are accepted', lambda: self.client.pools and all(a.state == 'SERVING' for a in self.agents))

    def route(self, prefill):
        first = proto.xxh3_64(f'{self.ip} {len(self.client.requests)}'.encode()) >> 34
        hints = proto.route_hints(prefill_worker=prefill.worker, prefill_dp_rank=0)
        return self.client.route(POOL, 4 * B, proto.sequence_hashes(list(range(first, first + 4 * B)), B), hints=hints)

    def job(self, agent, request):
        return agent.jobs.get((self.client.source, request.id))


def pair(program):
    """Legs in every stage when the router stops: only prefill, both, only decode."""
    router, s = start(program, Pair, PAIR_POOLS, 'stop_ms = 5000')
    early, both, late, last = s.route(s.sync), s.route(s.meeting), s.route(s.sync), s.route(s.sync)
    s.until('prefill legs are there', lambda: all(s.job(s.sync, r) for r in (early, late, last)) and s.job(s.meeting, both))
    for request in (late, last):
        s.sync.item(s.job(s.sync, request), b'result', tokens=1, fin=True)
    s.until('decode legs are there', lambda: all(s.job(s.decoder, r) for r in (both, late, last)))
    s.decoder.item(s.job(s.decoder, last), b'token', tokens=1)
    s.until('one streams', lambda: last.next == 1)
    stop(router, s, '4 requests in flight')
    s.decoder.item(s.job(s.decoder, late), b'ok', tokens=1, fin=True)
    s.until('a live request ends well', lambda: late.ended and not late.rejected, lambda: late.rejected)
    rest = (early, both, last)
    s.until('the other clients are notified', lambda: all(r.rejected for r in rest), lambda: [r.rejected for r in rest])
    s.check('the rest: Shutdown', all(r.rejected and r.rejected.name == 'Shutdown' for r in rest))
    legs = [(s.sync, early), (s.meeting, both), (s.decoder, both), (s.decoder, last)]
    s.until('every leg is stopped', lambda: all(proto.CODES.get(s.job(*leg).aborted) == 'Shutdown' for leg in legs),
            lambda: [s.job(*leg).aborted for leg in legs])
    s.check('no leg is dispatched only to be aborted', s.job(s.decoder, early) is None)
    s.until('workers are notified of the stop', lambda: all(a.shutdown for a in s.agents))
    over(router, s, 'of 4 requests, 3 ended early with a notice to their clients, 0 without')
    return router


def client_bookings(router, pool):
    return router.telemetry('/kvroute/pools')['pools'][pool]['requests']['client_bookings_live']


def booked(program):
    """Requests that clients run themselves do not delay the stop, are served while others are awaited, and end with them."""
    router, s = start(program, Stop, POOLS, 'stop_ms = 600000')
    running = s.live(1)[0]
    bookings = [s.client.book(POOL, 4 * B, proto.sequence_hashes(list(range(i << 20, (i << 20) + 4 * B)), B)) for i in range(1, 4)]
    s.until('they are booked', lambda: all(r.accepted and r.handle for r in bookings))
    s.until('three', lambda: client_bookings(router, 'llama') == 3, lambda: client_bookings(router, 'llama'))
    s.client.report(bookings[0], 3, fin=True)
    s.until('one has ended', lambda: client_bookings(router, 'llama') == 2, lambda: client_bookings(router, 'llama'))
    stop(router, s, '3 requests in flight; 1 at workers may finish within 600000 ms, 2 bookings of clients')
    s.client.report(bookings[1], 5)
    s.until('they are still served', lambda: bookings[1].report_acked)
    s.check('no request is cut off', not any(r.rejected for r in bookings))
    s.agent.item(s.job(running), b'ok', tokens=1, fin=True)
    s.until('the live request ends well', lambda: running.ended and not running.rejected, lambda: running.rejected)
    s.until('clients of bookings are notified', lambda: all(r.rejected for r in bookings[1:]), lambda: [r.rejected for r in bookings])
    s.check('with Shutdown', all(r.rejected.name == 'Shutdown' for r in bookings[1:]), [r.rejected for r in bookings])
    over(router, s, 'of 3 requests, 2 ended early with a notice to their clients, 0 without')
    return router


def booked_pair(program):
    """Both legs are booked and one request is counted; without other requests the router ends at once."""
    router, s = start(program, Pair, PAIR_POOLS, 'stop_ms = 600000')
    bookings = [s.client.book(POOL, 4 * B, proto.sequence_hashes(list(range(i << 20, (i << 20) + 4 * B)), B)) for i in range(1, 4)]
    s.until('they are booked', lambda: all(r.accepted and r.handle for r in bookings))
    s.until('three', lambda: client_bookings(router, 'llama') == 3, lambda: client_bookings(router, 'llama'))
    s.check('of the pool that clients ask', client_bookings(router, 'llama_prefill') == 0)
    s.client.cancel(bookings[0])
    s.until('two', lambda: client_bookings(router, 'llama') == 2, lambda: client_bookings(router, 'llama'))
    router.process.terminate()
    over(router, s, 'of 2 requests, 2 ended early with a notice to their clients, 0 without')
    return router


def in_haste(program):
    """A second signal ends the wait; all peers are still notified."""
    router, s = start(program, Stop, POOLS, 'stop_ms = 60000')
    requests = s.live(3)
    stop(router, s, '3 requests')
    begin = time.monotonic()
    router.process.terminate()
    s.until('clients are notified', lambda: all(r.rejected for r in requests), lambda: [r.rejected for r in requests])
    s.check('with Shutdown', all(r.rejected and r.rejected.name == 'Shutdown' and r.rejected.retryable for r in requests))
    s.until('workers get ABORT', lambda: all(s.job(r) is None or s.job(r).aborted for r in requests))
    s.until('workers are notified of the stop', lambda: s.agent.shutdown)
    over(router, s, 'of 3 requests, 3 ended early with a notice to their clients, 0 without')
    s.check('a second signal does not wait', time.monotonic() - begin < 20, time.monotonic() - begin)
    return router


def at_once(program):
    """The third signal ends the router at once, also with exit status 0."""
    router, s = start(program, Stop, POOLS, 'stop_ms = 60000')
    s.live(3)
    stop(router, s, '3 requests')
    begin = time.monotonic()
    router.hold()
    router.process.terminate()
    router.process.send_signal(signal.SIGINT)  # a second SIGTERM would be merged with the first
    router.go_on()
    over(router, s)
    s.check('a third signal ends at once', time.monotonic() - begin < 20, time.monotonic() - begin)
    return router


def reload(program):
    router = Router(program, POOLS, 'dead_ms = 3000')
    router.telemetry('/kvroute/info')
    s = Stop('10.9.0.1')
    config = f'{router.dir}/router.conf'
    with open(config) as f:
        text = f.read()
    with open(config, 'w') as f:
        f.write(text.replace('dead_ms = 3000', 'dead_ms = 4000\nstop_ms = 7').replace('max_ranks = 8', 'max_ranks = 9'))
    router.process.send_signal(signal.SIGHUP)
    s.until('a reload reports its changes', lambda: 'reload: changed: [router] dead_ms 3000 -> 4000, [router] stop_ms 5000 -> 7; '
            'need a restart: [pool llama] max_ranks' in log(router), lambda: log(router)[-400:])
    with open(config, 'w') as f:
        f.write(text.replace('dead_ms = 3000', 'dead_ms = never'))
    router.process.send_signal(signal.SIGHUP)
    s.until('an invalid file changes nothing', lambda: 'reload failed: configuration unchanged' in log(router) and 'dead_ms' in log(router),
            lambda: log(router)[-400:])
    s.begin()
    s.live(1)
    return router


def reload_live(program):
    """A file can change what kvroute-ctl can set: lists of prefixes, rates, the policy of a pool and its classes."""
    router = Router(program, POOLS + '[class llama interactive]\nquantum = 3\n', 'dead_ms = 20000\nsuspect_ms = 10000\nstop_ms = 7')
    router.telemetry('/kvroute/info')
    s = Stop('10.9.0.1')
    s.begin()
    config = f'{router.dir}/router.conf'
    with open(config) as f:
        text = f.read()
    turns = 0

    def again(port, pool='', own='', quantum=3):
        """The file with further lines. @return the report of the reload."""
        nonlocal turns
        with open(config, 'w') as f:
            f.write(text.replace('[port p0]\n', f'[port p0]\n{port}').replace('seed = 1\n', f'seed = 1\n{pool}')
                    .replace('quantum = 3', f'quantum = {quantum}') + own)
        turns += 1
        router.process.send_signal(signal.SIGHUP)
        s.until('a reload ends', lambda: log(router).count('msg="reload') == turns, lambda: log(router)[-600:])
        return [line for line in log(router).splitlines() if 'msg="reload' in line][-1]

    def is_accepted():
        """Return whether a new client is accepted: at once, or not at all."""
        before = router.telemetry('/kvroute/drops').get('p0_rx_denied', 0)
        client = proto.Client('10.9.0.1')
        client.connect()
        s.all.append(client)
        s.until('a frame has arrived', lambda: client.limits or router.telemetry('/kvroute/drops').get('p0_rx_denied', 0) > before)
        s.all.remove(client)
        client.close()
        return bool(client.limits)

    def reload_with(line, want, *words):
        s.check('it is reported', all(w in line for w in words), line)
        s.check('the list is in effect', is_accepted() == want, line)

    reload_with(again('allow = 10.8.0.0/16 fd00::/8\n'), False, 'changed: [port p0] allow;', 'need a restart: nothing')
    # All 64 prefixes are replaced: no step in between has 128. They are written in four lines of one key.
    many = [' '.join(f'10.8.{k}.{i}' for i in range(16)) for k in range(4)]
    reload_with(again(''.join(f'allow = {m}\n' for m in many)), False, '[port p0] allow;')
    reload_with(again(''.join(f'allow = {m}\n' for m in many).replace('10.8.', '10.9.')), True, '[port p0] allow;')
    reload_with(again('allow = 10.8.0.1\nallow = 10.9.0.1/8\n'), True, 'configuration unchanged')
    reload_with(again('udp_port = 9\n', 'router_temperature = 0.5\nrouter_queue_threshold = 3\ndecision_sample = 7\n',
              '[port p1]\ndevice = net_null0\nipv4 = 10.7.0.1\n', 5), True, '[port p0] allow', '[pool llama] router_temperature 0', '-> 0.5',
        '[pool llama] decision_sample 1024 -> 7', '[class interactive] quantum 3 -> 5',
        'need a restart: [port p0] udp_port, [port p1] (new)"')
    s.live(1)
    reload_with(again('source_rate = 9\nsource_burst = 9\nudp_port = 9\n'), True, 'source_rate 0 -> 9', 'quantum 5 -> 3', 'restart: [port p0] udp_port')
    # Values set by hand are replaced, too.
    router.telemetry('/kvroute/set,allow=10.8.0.1')
    s.check('a value set by hand is in effect', not is_accepted())
    reload_with(again(''), True, '[port p0] allow', 'restart: nothing"')
    text = text.replace('[class llama interactive]', '[class llama hurried]')
    reload_with(again(''), True, 'restart: [class llama interactive] (gone), [class llama hurried] (new)"')
    return router


def any_thread(program):
    """Any thread may take a signal: in a stopped process it is the first that wakes. The telemetry thread ends when its accept() does."""
    router, s = start(program, Stop, POOLS, 'stop_ms = 7')
    for thread in os.listdir(f'/proc/{router.process.pid}/task'):
        ctypes.CDLL(None).tgkill(router.process.pid, int(thread), signal.SIGHUP)
    s.until('a reload ends', lambda: 'msg="reload' in log(router), lambda: log(router)[-600:])
    s.check('telemetry answers', router.telemetry('/kvroute/info')['pools'] == 1)
    s.live(1)
    return router


failed = False
for case in (in_order, pair, booked, booked_pair, in_haste, at_once, reload, reload_live, any_thread):
    router = case(sys.argv[1])
    bad = len(TALLY.failures)
    if router.alive() and router.stop() != 0:
        failed = True
        print('FAIL end')
    if bad:
        print(log(router)[-3000:])
        break
conclude(TALLY, failed)
