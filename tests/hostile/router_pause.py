# SPDX-License-Identifier: BSD-3-Clause
"""The router is stopped and continues (SIGSTOP, SIGCONT; a pause of the virtual machine looks the same) for longer than dead_ms. Its own
stall is not silence of workers: the backlog is read before any worker is judged.

protocol_test.sh of tests/smoke starts it: router_pause.py KVROUTE
"""

import signal
import sys
import threading

from scripts import Peers, Router, Tally, conclude, proto, router_log

B, WORKERS = 16, 16
STALLS = (1.3, 2.5, 1.6, 2.2)  # s, all longer than dead_ms
# A busy machine deschedules the agents of this test for some 100 ms: that must not count as silence either.
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
        """Heartbeats sent, and heartbeats that the router has read."""
        beat, life = agent.heartbeat, agent.life

        def heartbeat(now):
            self.beats += 1
            beat(now)

        def answered(header, body):
            self.answers += header.name == 'HEARTBEAT_ACK'
            life(header, body)
        agent.heartbeat, agent.life = heartbeat, answered

    def states(self, router):
        """{worker: (state, ms in it)}; the agents continue meanwhile."""
        told = []
        ask = threading.Thread(target=lambda: told.append(router.telemetry('/kvroute/workers')['workers']))
        ask.start()
        proto.run_until(self.all, lambda: not ask.is_alive(), 30)
        ask.join()
        return {i: (w['state'], w['state_ms']) for i, w in told[0].items()}

    def passes(self, seconds):
        """The agents continue for @seconds."""
        proto.run_until(self.all, lambda: False, seconds)

    def stop(self, router, seconds):
        what = f'stopped for {seconds} s:'
        before = self.states(router)
        router.process.send_signal(signal.SIGSTOP)
        sent = self.beats
        self.passes(seconds)
        # They send heartbeats meanwhile into the device's ring: this is the backlog.
        self.check(f'{what} heartbeats pile up', self.beats - sent >= WORKERS * (seconds * 10 - 3), self.beats - sent)
        router.process.send_signal(signal.SIGCONT)
        # A round of control is 1 ms, a tick 10 ms: a wrong judgement happens now.
        self.passes(0.5)
        self.until(f'{what} the backlog is read', lambda: self.answers >= self.beats - WORKERS,
                   lambda: (self.beats, self.answers))
        after = self.states(router)
        self.check(f'{what} no worker is or was suspect or lost',
                   len(after) == WORKERS and all(s == 'serving' and ms >= before[i][1] + 1000 * seconds
                                                 for i, (s, ms) in after.items()), (before, after))
        lines = [x for x in router_log(router).split('\n') if 'suspect' in x or 'gone' in x]
        self.check(f'{what} the log has no line about it', not lines, lines[:3])

    def run(self, router):
        for agent in self.all:
            agent.hello()
        self.until('they are accepted', lambda: all(a.welcome for a in self.all))
        self.passes(0.5)
        for seconds in STALLS:
            self.stop(router, seconds)
        # Real silence still counts.
        quiet = self.all.pop()
        for _ in range(20):  # less time passes for a router with little CPU time
            self.passes(1.5)
            if str(quiet.worker) not in self.states(router):
                break
        self.check('a silent worker is lost', str(quiet.worker) not in self.states(router))
        self.check('no other worker is lost', len(self.states(router)) == WORKERS - 1, self.states(router))


router = Router(sys.argv[1], f'''[pool llama]
id = 3
block_size = {B}
max_ranks = 64
max_blocks = 16384
''', PATIENCE + '\nidle = poll')
router.telemetry('/kvroute/info')
Stall('10.9.0.1').run(router)
conclude(TALLY, router.finish(bool(TALLY.failures)))
