# SPDX-License-Identifier: BSD-3-Clause
"""A real vocabulary behind the gateway's --tokenize: the worker gets the hashes of the ids that it gives the prompt.

gateway_vocabulary_test.sh starts it: gateway_vocabulary.py KVROUTE GATEWAY FOLDER, where node_modules of FOLDER has gpt-tokenizer.
"""

import json
import sys
import urllib.request

import kvrproto as p
from gateway_rig import beside, free_port, response, serving, vocabulary
from protocol_router import ADDRESSES, Router, Tally

B = 16
POOLS = f'''[pool llama]
id = 3
block_size = {B}
max_ranks = 4
max_blocks = 4096
'''
TALLY = Tally(100, patience=30.0)
check = TALLY.check
TEXTS = ('Ein Wörterbuch, das niemand erfunden hat: ' * 20, '模型并不知道它不知道什么。' * 30, 'for (int i = 0; i < n; i++)\n\t\tsum += a[i];\n' * 20,
         '\U0001f680 naïve café — “quotes” … ½ ' * 25, 'x')


def serve(agents, agent, job):
    agent.item(job, response(body=b'{}'), tokens=1, fin=True, status=200)


def run(log):
    port = free_port()
    url = f'http://127.0.0.1:{port}/tokenize'

    def ids(**what):
        with urllib.request.urlopen(url, json.dumps(what).encode()) as answer:
            return json.load(answer)['tokens']

    vocabulary(port, sys.argv[3])
    with serving(TALLY, [p.Agent(ADDRESSES[0], 101, 'llama', B)], serve, sys.argv[2], '--router', ADDRESSES[0], '--tokenize', url,
                 '--tokenize-ms', '5000', log=log) as (gw, agents):

        def sent(path, **body):
            r = gw.post(path, {'model': 'llama', **body})
            d = agents.runs()[-1].dispatch
            return r.status, d.isl, list(d.hashes)

        for text in TEXTS:
            want = ids(prompt=text)
            check('a prompt', sent('/v1/completions', prompt=text) == (200, len(want), p.sequence_hashes(want, B)), (text[:20], len(want)))
        talk, before = [{'role': 'system', 'content': TEXTS[0] * 8}], []
        for i, text in enumerate(TEXTS[1:4] * 3):
            talk.append({'role': 'user', 'content': f'{i}. {text}'})
            want = ids(messages=talk)
            status, isl, hashes = sent('/v1/chat/completions', messages=talk)
            check('a turn of a conversation', (status, isl, hashes) == (200, len(want), p.sequence_hashes(want, B)), (i, isl, len(want)))
            check('begins like the one before', hashes[:max(0, len(before) - 1)] == before[:-1] and len(hashes) > len(before), (i, len(hashes)))
            before = hashes
            talk.append({'role': 'assistant', 'content': 'Yes.'})
        n = gw.counters()
        # The first turn complete; four both ways, three questions each; four by their new part, two each.
        check('new parts add up', (n['kvr_gateway_turns_checked_total{result="match"}'], n['kvr_gateway_turns_checked_total{result="mismatch"}'], n['kvr_gateway_turns_total']) == (4, 0, 4), n)
        check('each was asked for once', n['kvr_gateway_tokenizer_queries_total{result="answered"}'] == 5 + 1 + 4 * 3 + 4 * 2 and n['kvr_gateway_routed_by_load_total'] == 0, n)


beside(TALLY, Router(sys.argv[1], POOLS, 'suspect_ms = 20000\ndead_ms = 40000'), run)
