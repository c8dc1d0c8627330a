# SPDX-License-Identifier: BSD-3-Clause
"""The openai package of npm -> kvroute-gateway -> kvroute -> kvroute-agent -> the stand-in engine.

gateway_openai_test.sh starts it: gateway_openai.py KVROUTE GATEWAY AGENT FOLDER, where node_modules of FOLDER has the package.
"""

import json
import os
import subprocess
import sys
import urllib.request

import child
from gateway_rig import Gateway, Tokenizer, free_port, wait_for
from protocol_router import Router, Tally

POOLS = '''[pool model]
id = 1
block_size = 16
max_ranks = 4
max_blocks = 65536
'''
TALLY = Tally(120, patience=30.0)
check = TALLY.check


def read_engine(port):
    with urllib.request.urlopen(f'http://127.0.0.1:{port}/_test') as r:
        return json.load(r)


router = Router(sys.argv[1], POOLS, 'suspect_ms = 20000\ndead_ms = 40000')
failed = True
try:
    router.telemetry('/kvroute/balance')
    events, replay = free_port(), free_port()
    engine = Tokenizer('model', '--decode-us', '3000', '--events', f'tcp://127.0.0.1:{events}', '--replay',
                       f'tcp://127.0.0.1:{replay}')
    agent = child.start([sys.argv[3], '--engine', f'http://127.0.0.1:{engine.port}', '--router', '10.9.0.1', '--pool', 'model',
                         '--worker', '101', '--events', f'tcp://127.0.0.1:{events}', '--replay', f'tcp://127.0.0.1:{replay}',
                         '--health-ms', '200'])
    gateway = Gateway(sys.argv[2], '--router', '10.9.0.1', '--tokenize', engine.url, log=sys.stdout)
    check('the gateway is ready', wait_for(gateway.ready))
    here = os.path.dirname(os.path.abspath(__file__))
    status = subprocess.run(['node', f'{here}/gateway_openai.mjs', f'http://127.0.0.1:{gateway.port}/v1', sys.argv[4]],
                            timeout=100).returncode
    check('the openai package is content', status == 0, status)
    check('what was cancelled ended at the engine', wait_for(lambda: read_engine(engine.port)['count']['aborted'] >= 1),
          read_engine(engine.port)['count'])
    # The engine reports its cache, and the tokenizer returns the prompt: the next turn is expected at the rank with its blocks.
    turn = {'model': 'model', 'max_tokens': 4, 'messages': [{'role': 'user', 'content': 'a long question ' * 20}]}

    def overlap():
        r = gateway.post('/v1/chat/completions', turn, {'x-kvroute-explain': '1'})
        return int(r.headers['x-kvroute-overlap-blocks']), int(r.headers['x-kvroute-required-blocks']), r.json()

    check('a conversation comes back to its blocks', wait_for(lambda: overlap()[0] >= 20), overlap())
    held, needed, answer = overlap()
    cached = answer['usage']['prompt_tokens_details']['cached_tokens']
    check('as many as the engine found', held * 16 == cached, (held, needed, cached))
    check('nothing is in flight', wait_for(lambda: gateway.counters()['kvr_gateway_requests_in_flight'] == 0))
    n = gateway.counters()
    check('prompts that are text were tokenised', n['kvr_gateway_tokenizer_queries_total{result="answered"}'] > 0, n)
    check('the gateway ends', gateway.stop() == 0)
    agent.terminate()
    check('the agent leaves', agent.wait(30) == 0, agent.returncode)
    failed = bool(TALLY.failures)
finally:
    failed = router.finish(failed)
print(f'{TALLY.passed} passed, {len(TALLY.failures)} failed')
sys.exit(1 if failed or TALLY.failures else 0)
