# SPDX-License-Identifier: BSD-3-Clause
"""The openai package of npm -> kvroute-gateway -> kvroute -> an agent -> the stand-in engine.

gateway_openai_test.sh starts it: gateway_openai.py KVROUTE GATEWAY FOLDER, where node_modules of FOLDER has the package.
"""

import json
import os
import subprocess
import sys
import urllib.request

import kvrproto as p
from gateway_rig import Agents, Gateway, Tokenizer, bridge, wait_for
from protocol_router import Router, Tally

POOLS = '''[pool model]
id = 1
block_size = 16
max_ranks = 4
max_blocks = 65536
'''
TALLY = Tally(120, patience=30.0)
check = TALLY.check


def engine_says(port):
    with urllib.request.urlopen(f'http://127.0.0.1:{port}/_test') as r:
        return json.load(r)


router = Router(sys.argv[1], POOLS, 'suspect_ms = 20000\ndead_ms = 40000')
failed = True
try:
    router.telemetry('/kvroute/balance')
    engine = Tokenizer('model', '--decode-us', '3000')
    agents = Agents([p.Agent('10.9.0.1', 101, 'model', 16)], bridge(engine.port))
    agents.start()
    gateway = Gateway(sys.argv[2], '--router', '10.9.0.1', '--tokenize', engine.url, log=sys.stdout)
    check('the gateway is ready', wait_for(gateway.ready))
    here = os.path.dirname(os.path.abspath(__file__))
    status = subprocess.run(['node', f'{here}/gateway_openai.mjs', f'http://127.0.0.1:{gateway.port}/v1', sys.argv[3]],
                            timeout=100).returncode
    check('the openai package is content', status == 0, status)
    check('what was cancelled ended at the engine', wait_for(lambda: engine_says(engine.port)['count']['aborted'] >= 1),
          (engine_says(engine.port)['count'], gateway.counters(), [(j.aborted, j.fin) for j in agents.runs()]))
    check('nothing is in flight', wait_for(lambda: gateway.counters()['kvr_gateway_in_flight_requests'] == 0))
    n = gateway.counters()
    check('prompts that are text were tokenised', n['kvr_gateway_tokenized_prompts_total'] > 0, n)
    check('the gateway ends', gateway.stop() == 0)
    agents.leave()
    failed = bool(TALLY.failures)
finally:
    failed = router.finish(failed)
print(f'{TALLY.passed} passed, {len(TALLY.failures)} failed')
sys.exit(1 if failed or TALLY.failures else 0)
