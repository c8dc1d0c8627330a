# SPDX-License-Identifier: BSD-3-Clause
"""A worker that does not fit is rejected with field, value and the pool's value, in REJECTED and in the log; a request for an unknown pool,
one that is too long, or one for a pool without workers is rejected with numbers.

protocol_test.sh of tests/smoke starts it: wrong_worker_config.py KVROUTE
"""

import sys

from scripts import Peers, Router, Tally, conclude, proto, router_log

B = 16
TALLY = Tally(60, patience=20.0)
CASES = (('block_size: got 32, pool llama has 16', 'WorkerConfig', (32, 16), 'llama', 32, 1),
         ('pool: got "lama", this router has llama, tiny', 'UnknownPool', None, 'lama', 16, 1),
         ('limit reached: [router] max_workers 10, registered 0; pool tiny: max_workers 2, registered 0, max_ranks 4, registered 0',
          'WorkerLimit', (0, 10), 'tiny', 16, 5))


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
            # An address without a cookie gets no more bytes than it sent: the text may be cut, the numbers are sent.
            self.check(f'{code}: text', text.startswith(said.text), said)
            if detail:
                self.check(f'{code}: detail', tuple(said.detail[:2]) == detail, said)
            words = text.replace('"', '\\"')
            line = f'msg="worker {100 + n} rejected: {words}" worker={100 + n} addr='
            # The line is in the log's ring before the answer is sent, and the first lines about a worker are never limited: wait
            # for the log thread as long as a busy machine may deschedule it.
            self.until(f'{code}: log', lambda: any(line in x and x.endswith(f' reason={code}')
                                                     for x in router_log(router).splitlines()), lambda: router_log(router)[-500:])

    def asked(self, code, text, detail, pool, blocks, **more):
        """A ROUTE that must be rejected with this text."""
        tokens = list(range(blocks * B))
        for _ in range(50):
            request = self.client.route(pool, len(tokens), proto.sequence_hashes(tokens, B), **more)
            self.until(f'{code}: answered', lambda: request.rejected or request.accepted)
            if request.rejected:
                break
            self.client.cancel(request)  # control has logged it, and the scheduler does not know yet
        said = request.rejected
        self.check(f'{code}: code', said and said.name == code, said)
        self.check(f'{code}: detail', said and tuple(said.detail[:3]) == detail, said and said.detail)
        # The text may be cut, because an answer is never longer than its question; these questions are long enough.
        self.check(f'{code}: text', said and said.text == text, said and said.text)

    def crowd(self, router):
        """More workers at once than a pool accepts: they keep no worker out of another pool."""
        crowd = [proto.Agent(self.ip, 500 + n, 'tiny', B) for n in range(30)]
        others = [proto.Agent(self.ip, 600 + n, 'llama', B) for n in range(8)]
        self.all = crowd + others
        router.hold()
        for agent in self.all:
            agent.hello()
        router.go_on()
        self.until('all are answered', lambda: all(a.welcome or a.refused for a in self.all))
        self.check('two of the crowd are accepted', sum(bool(a.welcome) for a in crowd) == 2, [a.refused for a in crowd][:3])
        self.check('the others: WorkerLimit', {a.refused.name for a in crowd if a.refused} == {'WorkerLimit'})
        numbers = {tuple(a.refused.detail) for a in crowd if a.refused}
        self.check('with the numbers of the pool', {n[2:] for n in numbers} == {(2, 2)}, numbers)
        self.check('the other pool accepts all of its workers', all(a.welcome for a in others), [a.refused for a in others])
        for agent in self.all:
            agent.goodbye()
        self.until('they leave', lambda: all(a.gone for a in self.all if a.welcome))

    def clients(self, router):
        self.client = proto.Client(self.ip)
        self.all = [self.client]
        self.client.connect()
        self.until('connected', lambda: self.client.pools)
        self.asked('UnknownPool', 'pool: unknown number; pools of this router: 3 (llama), 4 (tiny)', (9, 2, 0), 9, 8)
        self.asked('PromptTooLong', 'the prompt has 65 blocks of 16 tokens, the limit of the pool is 64', (65, 64, B), 3, 65)
        none = 'pool llama: no eligible rank; workers {}, ranks {}, open {}'
        self.asked('NoEndpoints', none.format(0, 0, 0), (0, 0, 0), 3, 8)
        agent = proto.Agent(self.ip, 7, 'llama', B, ranks=2)
        self.all.append(agent)
        agent.hello()
        self.until('a worker is accepted', lambda: agent.state == 'SERVING')
        other = proto.route_hints(allowed=[999])  # an unknown worker
        self.asked('NoEndpoints', none.format(1, 2, 2), (1, 2, 2), 3, 8, hints=other)
        self.all.remove(agent)  # silent from now on
        self.until('which is noticed', lambda: 'worker 7 serving -> suspect' in router_log(router))
        self.asked('NoEndpoints', none.format(1, 2, 0), (1, 2, 0), 3, 8)


router = Router(sys.argv[1], f'''[pool llama]
id = 3
block_size = {B}
max_ranks = 8
max_blocks = 16384
max_prompt_blocks = 64
[pool tiny]
id = 4
block_size = {B}
max_ranks = 4
max_workers = 2
max_blocks = 16384
''', 'suspect_ms = 350\ndead_ms = 60000')
router.telemetry('/kvroute/info')
says = Says('10.9.0.1')
says.run(router)
says.crowd(router)
says.clients(router)
conclude(TALLY, router.finish(bool(TALLY.failures)))
