#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A router with two ingress CPUs on AF_XDP, a queue for each, woken by its socket; clients and an agent behind a tap with two queues.

    xdp_queues_test.py KVROUTE CHANNELS

See tap_cable.py. Exit status 77: no root, no tap or no XDP here, or one CPU.
"""

import json
import os
import socket
import sys
import time

import kvrproto as p
from child import die_with_parent
from flows import POOLS, POOL, Flows
from protocol_router import Router, Tally
from tap_cable import BY_FLOW, IN_TURN, QUEUES, in_namespaces, run, skip

TOKENS = 100000  # a message of 290 frames
CLIENTS = 16
TALLY = Tally(150, patience=40.0)
ADDRESSES = ('10.9.0.1', 'fd09::1')
HOSTILE, OTHERS = ('10.9.0.3', 'fd09::3'), '10.9.0.2 fd09::2'


def lcores():
    port = ROUTER.telemetry('/kvroute/ports')['p0']
    return port, [port[f'lcore{i}'] for i in range(QUEUES)]


class Family(Flows):
    def __init__(self, address):
        super().__init__(TALLY, address, CLIENTS)

    def small(self):
        """Each on the queue of its client; no CPU hands frames to another one."""
        before = CABLE.to()
        for turn in range(4):
            self.ask(turn)
        grown = [now - then for now, then in zip(CABLE.to(), before)]
        self.check('both queues have had some', min(grown) > 0, grown)
        ingress = ROUTER.telemetry('/kvroute/ingress')
        if not self.v6:  # the other family has reassembled messages
            self.check('nothing was handed on', ingress['fragments_forwarded'] == 0, ingress)

    def large(self):
        """A message whose fragments arrive on both queues is reassembled by one CPU."""
        before = ROUTER.telemetry('/kvroute/ingress')
        CABLE.choose(IN_TURN)
        request = self.clients[0].route(POOL, TOKENS, tokens=range(TOKENS))
        self.answered(request, TOKENS)
        CABLE.choose(BY_FLOW)
        after = ROUTER.telemetry('/kvroute/ingress')
        self.check('fragments were handed on', after['fragments_forwarded'] > before['fragments_forwarded'] + 50, after)
        self.check('it was joined', after['reassembled'] > before['reassembled'], after)


def counted():
    """The counters of the device's queues, the lcores and the program equal those of the cable."""
    end = time.monotonic() + TALLY.patience
    while True:
        port, each = lcores()
        xdp = ROUTER.telemetry('/kvroute/xdp')['p0']
        seen = [q['rx_frames'] for q in each], [q['tx_sent'] for q in each], xdp['redirected']
        want = CABLE.to(), CABLE.back(), sum(CABLE.to())
        if seen == want or time.monotonic() > end:
            break
        time.sleep(0.05)
    TALLY.check('counters of every queue', seen == want, f'{seen}, the cable {want}')
    TALLY.check('every queue has an lcore', (port['lcores'], port['queues'], port['rx_queues']) == (QUEUES,) * 3, port)
    TALLY.check('no spreading', not any(q[k] for q in each for k in ('spread_in', 'spread_out', 'tx_passed')), each)
    TALLY.check('nothing dropped by the program', not any(xdp[k] for k in ('no_socket', 'denied', 'limited', 'off')), xdp)


def hears(seconds):
    """The number of @n new clients that are accepted."""
    clients = [p.Client(ADDRESSES[0]) for _ in range(CLIENTS)]
    before = CABLE.to()
    for client in clients:
        client.connect()
    p.run_until(clients, lambda: all(c.limits for c in clients), seconds)
    grown = [now - then for now, then in zip(CABLE.to(), before)]
    TALLY.check('frames for both queues', min(grown) > 0, grown)
    for client in clients:
        client.close()
    return sum(1 for c in clients if c.limits)


def switch():
    """The kill switch applies to all queues."""
    ROUTER.telemetry('/kvroute/xdp/redirect,p0,off')
    before, sent = lcores()[1], sum(CABLE.to())
    TALLY.check('off: no client is answered', hears(0.5) == 0)
    sent = sum(CABLE.to()) - sent
    xdp = ROUTER.telemetry('/kvroute/xdp')['p0']
    TALLY.check('off: no queue gets any', [q['rx_frames'] for q in before] == [q['rx_frames'] for q in lcores()[1]])
    TALLY.check('off: all counted', xdp['off'] >= sent, xdp)
    ROUTER.telemetry('/kvroute/xdp/redirect,p0,on')
    TALLY.check('on: all clients are answered', hears(TALLY.patience) == CLIENTS)


def tuned():
    """Allow-list and rate change at run time, in the program's maps."""
    def tell(setting):
        return ROUTER.telemetry(f'/kvroute/set,{setting},p0')

    def xdp(counter):
        return ROUTER.telemetry('/kvroute/xdp')['p0'][counter]

    TALLY.check('another list is taken', tell('allow=10.9.0.9 fd09::/64').get('set') == {'p0': '10.9.0.9 fd09::/64'})
    denied, sent = xdp('denied'), sum(CABLE.to())
    TALLY.check('a client outside the list is not answered', hears(0.5) == 0)
    TALLY.check('and counted', xdp('denied') - denied >= sum(CABLE.to()) - sent > 0, xdp('denied'))
    TALLY.check('among the drops', ROUTER.telemetry('/kvroute/drops').get('p0_xdp_denied', 0) > 0)
    TALLY.check('a mistake is refused', 'bits beyond its length' in tell('allow=10.9.0.2/24').get('message', ''))
    TALLY.check('and changes nothing', hears(0.5) == 0)
    tell('allow=10.9.0.2')
    TALLY.check('a client in the list is answered', hears(TALLY.patience) == CLIENTS)
    tell('xdp_burst=1')
    tell('xdp_rate=1')
    tell('allow=')
    limited = xdp('limited')
    TALLY.check('a rate for all queues', hears(0.5) <= 3)
    TALLY.check('above it is counted', xdp('limited') > limited)
    tell('xdp_rate=0')
    TALLY.check('no rate, no list', hears(TALLY.patience) == CLIENTS)


def flood():
    """Frames of another protocol version, which no other peer sends, from many ports of both addresses. @return pid"""
    run(f'ip address add {HOSTILE[0]}/24 dev kvr-peer')
    run(f'ip -6 address add {HOSTILE[1]}/64 dev kvr-peer nodad preferred_lft 0')  # other peers do not use it as source address
    pid = os.fork()
    if pid:
        return pid
    die_with_parent()
    all_, data = [], p.frame('PROBE', bytes(64), version=9)
    for address, router in zip(HOSTILE * 4, ADDRESSES * 4):
        all_.append(socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM))
        all_[-1].bind((address, 0))
        all_[-1].connect((router, p.PORT))
    while True:
        for s in all_:
            s.send(data)
        time.sleep(0.002)  # the cable is slow


def flooded():
    """Lists change during a flood: from the answer on none of its frames is accepted, or all are; other peers are served."""
    def taken():
        return ROUTER.telemetry('/kvroute/drops').get('reject_unknown_version', 0)

    def denied():
        return ROUTER.telemetry('/kvroute/xdp')['p0']['denied']

    def grows(what):
        end, before = time.monotonic() + TALLY.patience, what()
        while what() < before + 200 and time.monotonic() < end:
            time.sleep(0.01)
        return what() >= before + 200

    pid = flood()
    TALLY.check('the flood is taken', grows(taken))
    for _ in range(4):
        ROUTER.telemetry(f'/kvroute/set,allow={OTHERS},p0')
        before = taken()
        TALLY.check('he is refused', grows(denied))
        TALLY.check('other clients are answered', hears(TALLY.patience) == CLIENTS)
        TALLY.check('none of his frames is taken', taken() == before, (before, taken()))
        ROUTER.telemetry(f'/kvroute/set,allow={OTHERS} {" ".join(HOSTILE)},p0')
        before = denied()
        TALLY.check('he is let in', grows(taken))
        TALLY.check('none of his frames is refused', denied() == before, (before, denied()))
    for turn in range(40):  # both at once: no other peer is affected
        ROUTER.telemetry(f'/kvroute/set,allow={OTHERS}{"" if turn % 2 else " " + HOSTILE[0]},p0')
        TALLY.check('heard beside changes', turn % 8 or hears(TALLY.patience) == CLIENTS)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    ROUTER.telemetry('/kvroute/set,allow=,p0')


def interface():
    return json.loads(run(f'{" ".join(INSIDE)} ip -j link show kvr-router'))[0]


def detached():
    TALLY.check('the program is gone', 'xdp' not in interface(), interface())


def killed():
    """The next start cleans up, and serves both queues."""
    ROUTER.process.kill()
    ROUTER.process.wait()
    TALLY.check('the program of a dead one stays', 'xdp' in interface(), interface())
    ROUTER.start()
    ROUTER.telemetry('/kvroute/balance')
    TALLY.check('after a kill all clients are answered', hears(TALLY.patience) == CLIENTS)


def last():
    counted()
    switch()
    tuned()
    flooded()
    killed()
    TALLY.check('it ends', ROUTER.stop() == 0)
    detached()


if len(os.sched_getaffinity(0)) < 2:
    skip('one CPU')
INSIDE, BEFORE, CABLE = in_namespaces(sys.argv[2])
# Silence of the peers is not tested.
ROUTER = Router(sys.argv[1], POOLS, 'idle = interrupt\nsuspect_ms = 20000\ndead_ms = 40000', ingress=QUEUES, memory_mb=1024,
                port='queues = 2', device=f'net_af_xdp0,iface=kvr-router,start_queue=0,queue_count={QUEUES}', before=BEFORE)
TALLY.run(ROUTER, Family, last)
