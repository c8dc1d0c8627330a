# SPDX-License-Identifier: BSD-3-Clause
"""Row 6: the router is stopped and goes on (SIGSTOP, SIGCONT; a pause of the virtual machine looks the same), for longer than a
worker may be silent. Its own stall is nobody's silence: what has piled up is read before anybody is judged.

protocol_test.sh of tests/smoke starts it: router_pause.py KVROUTE
"""

import signal
import sys
import threading

from scripts import Peers, Router, Tally, conclude, proto, router_log

B, WORKERS = 16, 16
STALLS = (1.3, 2.5, 1.6, 2.2)  # s, all longer than dead_ms
# A busy machine keeps the agents of this test from their CPU for some 100 ms: not their silence either.
PATIENCE = 'suspect_ms = 1100\ndead_ms = 1200'
TALLY = Tally(150, patience=20.0)


class Stall(Peers):
    def __init__(self, address):
        super().__init__(TALLY, address)
        self.all = [proto.Agent(address, 100 + n, 'llama', B) for n in range(WORKERS)]
        self.beats = self.answers = 0
        for agent in self.all:
            self.count(agent)

    def count(self, agent):
        """Heartbeats sent, and those the router has read."""
        beat, life = agent.heartbeat, agent.life

        def heartbeat(now):
            self.beats += 1
            beat(now)

        def answered(header, body):
            self.answers += header.name == 'HEARTBEAT_ACK'
            life(header, body)
        agent.heartbeat, agent.life = heartbeat, answered

    def states(self, router):
        """{worker: (state, ms in it)}; the agents go on meanwhile."""
        told = []
        ask = threading.Thread(target=lambda: told.append(router.telemetry('/kvroute/workers')['workers']))
        ask.start()
        proto.run_until(self.all, lambda: not ask.is_alive(), 30)
        ask.join()
        return {i: (w['state'], w['state_ms']) for i, w in told[0].items()}

    def passes(self, seconds):
        """The agents go on for so long."""
        proto.run_until(self.all, lambda: False, seconds)

    def stop(self, router, seconds):
        what = f'stopped for {seconds} s:'
        before = self.states(router)
        router.process.send_signal(signal.SIGSTOP)
        sent = self.beats
        self.passes(seconds)
        # They beat meanwhile, into the device's ring: what is read there is the backlog.
        self.check(f'{what} heartbeats pile up', self.beats - sent >= WORKERS * (seconds * 10 - 3), self.beats - sent)
        router.process.send_signal(signal.SIGCONT)
        # A round of control is 1 ms, a tick 10: whoever is judged wrongly is judged now.
        self.passes(0.5)
        self.until(f'{what} the backlog is read', lambda: self.answers >= self.beats - WORKERS,
                   lambda: (self.beats, self.answers))
        after = self.states(router)
        self.check(f'{what} nobody is suspect or gone, or was',
                   len(after) == WORKERS and all(s == 'serving' and ms >= before[i][1] + 1000 * seconds
                                                 for i, (s, ms) in after.items()), (before, after))
        lines = [x for x in router_log(router).split('\n') if 'suspect' in x or 'gone' in x]
        self.check(f'{what} no word of it in the log', not lines, lines[:3])

    def run(self, router):
        for agent in self.all:
            agent.hello()
        self.until('they are let in', lambda: all(a.welcome for a in self.all))
        self.passes(0.5)
        for seconds in STALLS:
            self.stop(router, seconds)
        # And they can still be silent.
        quiet = self.all.pop()
        for _ in range(20):  # a router that has little of a CPU lets less time pass
            self.passes(1.5)
            if str(quiet.worker) not in self.states(router):
                break
        self.check('who says nothing is gone', str(quiet.worker) not in self.states(router))
        self.check('nobody else', len(self.states(router)) == WORKERS - 1, self.states(router))


router = Router(sys.argv[1], f'''[pool llama]
id = 3
block_size = {B}
max_ranks = 64
max_blocks = 16384
''', PATIENCE + '\nidle = poll')
router.telemetry('/kvroute/info')
Stall('10.9.0.1').run(router)
conclude(TALLY, router.finish(bool(TALLY.failures)))
