# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-agent's canary: whether an engine's events name the blocks of a prompt as its /tokenize does.

protocol_test.sh starts it: agent_canary_test.py KVROUTE KVROUTE_AGENT
"""

import sys
import time

from agent_lib import POOLS, Agent, Engine, Front
from kvrproto import run_until
from protocol_router import ADDRESSES, Router, Tally

TALLY = Tally(90, patience=30.0)


def main(kvroute, program):
    router = Router(kvroute, POOLS, 'suspect_ms = 1000\ndead_ms = 2000')
    front = Front(TALLY, ADDRESSES[0])
    log = f'{router.dir}/agent.log'
    engines = [Engine('--type', 'vllm', ranks=2), Engine('--type', 'sglang', ranks=1), Engine('--event-block-size', '8', ranks=1)]
    agents = [Agent(program, engine, ADDRESSES[0], 50 + i, '--block-size', '16', '--canary-s', '1', log=log)
              for i, engine in enumerate(engines)]

    def counted(agent, name, least):
        end = time.monotonic() + TALLY.patience
        while time.monotonic() < end:
            got = agent.counters()['agent'][name]
            if got >= least:
                return got
            run_until(front.all, lambda: False, 0.1)
        return got

    try:
        router.telemetry('/kvroute/balance')
        for agent in agents:
            front.serving('up', router, agent.worker)
        for agent in agents[:2]:
            front.check('its blocks come back', counted(agent, 'canaries', 2) >= 2, agent.counters())
            front.check('under the same names', agent.counters()['agent']['canaries_bad'] == 0, agent.counters())
        front.check('other names are found out', counted(agents[2], 'canaries_bad', 1) >= 1, agents[2].counters())
        front.check('and those alone', agents[2].counters()['agent']['canaries'] == 0, agents[2].counters())
        with open(log) as f:
            front.check('the log says so', 'requests find no cache here' in f.read())
        engines[0].test(error=500)
        front.check('an engine that does not answer is no mismatch', counted(agents[0], 'canaries_failed', 1) >= 1)
        front.check('none', agents[0].counters()['agent']['canaries_bad'] == 0, agents[0].counters())
        engines[0].test(error=0)
        front.check('agents leave', [a.stop() for a in agents] == [0, 0, 0])
    except Exception:
        TALLY.broke()
    for engine in engines:
        engine.stop()
    TALLY.finish(router, log)


main(*sys.argv[1:])
