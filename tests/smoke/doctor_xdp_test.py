#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Findings of kvroute-ctl doctor about an XDP program that is switched off, and about a queue that no lcore polls.

    doctor_xdp_test.py KVROUTE KVROUTE_CTL CHANNELS

See tap_cable.py. Exit status 77: no root, no tap or no XDP here.
"""

import sys

from doctor_rig import Rig, run
from protocol_router import Router
from tap_cable import ONLY, in_namespaces

POOLS = '''[pool llama]
id = 3
block_size = 16
seed = 1
max_ranks = 16
max_blocks = 65536
'''
# A queue without an lcore loses many frames, which is a further finding.
IGNORED = ('shared-cpu', 'lcore-stall', 'frame-drops')


class Xdp(Rig):
    def not_polled(self):
        before = self.router.telemetry('/kvroute/xdp')['p0']['no_socket']
        CABLE.choose(ONLY + 1)
        self.until('frames are lost', self.asked('/kvroute/xdp', lambda a: a['p0']['no_socket'] > before))
        CABLE.choose(ONLY + 0)

    def off(self):
        self.router.telemetry('/kvroute/xdp/redirect,p0,off')

    def run(self):
        self.new_agent(100, 'llama')
        self.client.connect()
        self.until('CONNECTED', lambda: self.client.limits)
        self.doctor([], ignored=IGNORED)
        self.check_cause(self.doctor(['xdp-queue-without-socket'], self.not_polled, ignored=IGNORED), 'arrived on queues that no lcore polls')
        self.check_cause(self.doctor(['xdp-redirect-off'], self.off, ignored=IGNORED), 'port p0 receives nothing')
        self.router.telemetry('/kvroute/xdp/redirect,p0,on')
        self.doctor([], ignored=IGNORED)


_, BEFORE, CABLE = in_namespaces(sys.argv[3])
CABLE.choose(ONLY + 0)
ROUTER = Router(sys.argv[1], POOLS, 'suspect_ms = 20000\ndead_ms = 40000', before=BEFORE,
                device='net_af_xdp0,iface=kvr-router,start_queue=0,queue_count=1')
run(ROUTER, lambda router: Xdp(router, sys.argv[2], '10.9.0.1'))
