# SPDX-License-Identifier: BSD-3-Clause
"""A real vocabulary behind stand-in engines: later turns of conversations find in the engine the overlap that the gateway expected.

gateway_vocabulary_test.sh starts it: agent_vocabulary.py KVROUTE KVROUTE_AGENT GATEWAY FOLDER, where node_modules of FOLDER has gpt-tokenizer.
"""

import json
import sys

from agent_lib import B, POOLS, Agent, Engine, Front, call
from gateway_rig import Gateway, free_port, vocabulary
from protocol_router import ADDRESSES, Router, Tally

TALLY = Tally(150, patience=30.0)
TEXTS = ('Ein Wörterbuch, das niemand erfunden hat: ' * 20, '模型并不知道它不知道什么。' * 30, 'for (int i = 0; i < n; i++)\n\t\tsum += a[i];\n' * 20,
         '\U0001f680 naïve café — “quotes” … ½ ' * 25)
WORDS = 24  # of an answer


def events(reply):
    return [json.loads(e[6:]) for e in reply.body.decode().split('\n\n') if e.startswith('data: {')]


class Talk:
    """One conversation; no other begins alike."""

    def __init__(self, front, gw, engines, number):
        self.front, self.gw, self.engines, self.number, self.home, self.turn = front, gw, engines, number, None, 0
        self.messages = [{'role': 'system', 'content': f'{number}: {TEXTS[number]}'}]

    def ids(self):
        return call(self.engines[0].port, '/tokenize', {'messages': self.messages})['tokens']

    def query(self):
        q = self.gw.post('/v1/chat/completions', {'model': 'llama', 'messages': self.messages, 'nvext': {'annotations': ['query_instance_id:']}}).json()
        return q.get('worker_id'), q.get('overlap_blocks')

    def next(self):
        front, name, stream = self.front, f'conversation {self.number}, turn {self.turn}', self.turn % 2 == 1
        self.messages.append({'role': 'user', 'content': f'{self.turn}. {TEXTS[(self.number + self.turn) % len(TEXTS)]}'})
        ids = self.ids()
        there = 0
        if self.home is not None:  # the router learns what the engine has of it
            engine = self.engines[self.home - 90]
            front.until(f'{name}: the engine has put away the last one', lambda: engine.state()['ranks'][0]['running'] == 0)
            there = engine.test(overlap=ids)['overlap'][0]
            front.check(f'{name}: most of it is from earlier turns', there * B > len(ids) / 3, (there, len(ids)))
            front.until(f'{name}: that is known', lambda: self.query() == (self.home, there), lambda: (self.query(), self.home, there))
        body = {'model': 'llama', 'messages': self.messages, 'max_tokens': WORDS, 'stream': stream,
                **({'stream_options': {'include_usage': True}} if stream else {})}
        r = self.gw.post('/v1/chat/completions', body)
        got = events(r) if stream else [r.json()]
        text = ''.join(c['delta'].get('content') or '' for e in got for c in e['choices']) if stream else got[0]['choices'][0]['message']['content']
        usage, worker = got[-1]['usage'], int(r.headers['x-kvroute-worker'])
        front.check(f'{name}: whole', r.status == 200 and text == ''.join(f' {i % 10}' for i in range(WORDS)), (r.status, text))
        front.check(f'{name}: its ids are those of the vocabulary', usage['prompt_tokens'] == len(ids) and max(ids) > 100000, (usage, len(ids), max(ids)))
        cached, said = usage['prompt_tokens_details']['cached_tokens'], int(r.headers['x-kvroute-cached-tokens'])
        front.check(f'{name}: the engine has what was predicted', cached == said == there * B and worker == (self.home or worker),
                    (cached, said, there * B, worker, self.home))
        self.home, self.turn = worker, self.turn + 1
        self.messages.append({'role': 'assistant', 'content': text})


def run(router, agent, gateway, folder):
    front, log = Front(TALLY, ADDRESSES[0]), f'{router.dir}/agent.log'
    port, engines, agents = free_port(), [], []
    words = vocabulary(port, folder)
    try:
        for i, kind in enumerate(('vllm', 'sglang')):
            engines.append(Engine('--type', kind, '--model', 'llama', '--vocabulary', f'http://127.0.0.1:{port}/tokenize', ranks=1))
            agents.append(Agent(agent, engines[-1], ADDRESSES[0], 90 + i, '--type', kind, '--canary-s', '3600', log=log))
        for a in agents:
            front.serving('engines', router, a.worker)
        gw = Gateway(gateway, '--router', ADDRESSES[0], '--explain', '--tokenize', f'http://127.0.0.1:{engines[0].port}/tokenize',
                     '--tokenize-ms', '10000', log=open(log, 'ab'))
        front.until('ready', gw.ready)
        talks = [Talk(front, gw, engines, i) for i in range(len(TEXTS))]
        for _ in range(3):
            for talk in talks:
                talk.next()
        n = gw.counters()
        front.check('all by their ids', n['kvr_gateway_routed_by_load_total'] == 0, n)
        for i, a in enumerate(agents):
            front.same_table('all of it', engines[i], a.worker, [talk.ids() for talk in talks])
            front.until('the canary knows such blocks', lambda a=a: a.counters()['agent']['canaries'] == 1, a.counters)
            front.check('and is content', a.counters()['agent']['canaries_bad'] == 0, a.counters())
        front.check('the gateway ends', gw.stop() == 0)
        front.check('agents leave', [a.stop() for a in agents] == [0, 0])
    finally:
        for a in agents:
            a.kill()
        for engine in engines:
            engine.stop()
        words.kill()
        words.wait()


def main(kvroute, agent, gateway, folder):
    router = Router(kvroute, POOLS, 'suspect_ms = 20000\ndead_ms = 40000')

    def test():
        run(router, agent, gateway, folder)
        TALLY.balanced(router)
    TALLY.beside(router, test, f'{router.dir}/agent.log')


main(*sys.argv[1:])
