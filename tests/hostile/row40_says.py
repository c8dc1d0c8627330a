# SPDX-License-Identifier: BSD-3-Clause
"""Row 40: a worker that does not fit is refused with field, value and what the pool has, in REJECTED and in the log.

protocol_test.sh of tests/smoke starts it: row40_says.py KVROUTE
"""

import sys

from scripts import Peers, Router, Tally, conclude, proto, router_log

B = 16
TALLY = Tally(60, patience=20.0)
CASES = (('block_size: got 32, pool llama has 16', 'WorkerConfig', (32, 16), 'llama', 32, 1),
         ('pool: got "lama", this router has llama', 'UnknownPool', None, 'lama', 16, 1))


class Says(Peers):
    def __init__(self, address):
        super().__init__(TALLY, address)

    def run(self, router):
        for n, (text, code, detail, pool, block_size, ranks) in enumerate(CASES):
            agent = proto.Agent(self.ip, 100 + n, pool, block_size, ranks=ranks)
            self.all = [agent]
            agent.hello()
            self.until(f'{code} comes', lambda: agent.refused)
            said = agent.refused
            if not self.check(f'{code}', said and said.name == code, said):
                continue
            # An address that has proven nothing gets no more bytes than it sent: the text may be cut, the numbers come.
            self.check(f'{code}: text', text.startswith(said.text), said)
            if detail:
                self.check(f'{code}: detail', tuple(said.detail[:2]) == detail, said)
            line = f'worker {100 + n} refused ({code}): {text}'
            # It is in the log's ring before the answer leaves, and the first lines about a worker are never limited: what is
            # waited for is the log's thread alone, for as long as a busy machine keeps it from its CPU.
            self.until(f'{code}: log', lambda: line in router_log(router), lambda: router_log(router)[-500:])


router = Router(sys.argv[1], f'''[pool llama]
id = 3
block_size = {B}
max_ranks = 8
max_blocks = 16384
''')
router.telemetry('/kvroute/info')
Says('10.9.0.1').run(router)
conclude(TALLY, router.finish(bool(TALLY.failures)))
