# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-agent whose router is killed and restarted: its requests end, the worker returns, its cache is known.

protocol_test.sh starts it: agent_router_test.py KVROUTE KVROUTE_AGENT
"""

import contextlib
import shutil
import sys
import time

from agent_lib import POOLS, Agent, Engine, Front, cpu
from kvrproto import run_until
from protocol_router import ADDRESSES, Router, Tally

TALLY = Tally(100, patience=30.0)
WORKER = 50


def leave_without_ack(front, agent):
    """GOODBYE is not acknowledged: the agent waits for that asleep."""
    before = busy = cpu(agent.process)
    for _ in range(2):  # the second one: it waits for no request
        agent.process.terminate()
        run_until(front.all, lambda: False, 0.1)
    while agent.process.poll() is None:
        time.sleep(0.05)
        with contextlib.suppress(OSError):  # it has exited
            busy = cpu(agent.process)
    front.check('the agent leaves', agent.process.returncode == 0)
    front.check('and sleeps until then', busy - before < 0.5, busy - before)


def main(kvroute, program):
    routers = [Router(kvroute, POOLS, 'suspect_ms = 1000\ndead_ms = 2000')]
    front = Front(TALLY, ADDRESSES[0])
    engine = Engine('--type', 'vllm', '--blocks', '400', ranks=1)
    log = f'{routers[0].dir}/agent.log'
    agent = Agent(program, engine, ADDRESSES[0], WORKER, log=log)
    tokens = list(range(1000, 1000 + 16 * 20))
    try:
        routers[0].telemetry('/kvroute/balance')
        front.serving('at first', routers[0], WORKER)
        front.answers('before', [front.ask(tokens)])
        front.same_table('before', engine, WORKER, [tokens])
        engine.test(hang=True)
        hanging = [front.ask(tokens, 8) for _ in range(8)]
        front.until('they run', lambda: engine.state()['ranks'][0]['running'] == 8)
        routers[0].process.kill()
        routers[0].process.wait()
        front.client.requests.clear()  # a remaining client would retransmit them
        routers.append(Router(kvroute, POOLS, 'suspect_ms = 1000\ndead_ms = 2000'))
        routers[1].telemetry('/kvroute/balance')
        life = front.serving('another router', routers[1], WORKER)
        end = time.monotonic() + 20
        while engine.state()['ranks'][0]['running'] and time.monotonic() < end:
            run_until(front.all, lambda: False, 0.05)
        front.check('what ran for the router that was killed has ended at the engine', engine.state()['ranks'][0]['running'] == 0, engine.state())
        engine.test(hang=False)
        front.same_table('another router', engine, WORKER, [tokens])
        front.answers('after', [front.ask(tokens)])
        engine.kill()
        front.until('the worker leaves', lambda: f'{WORKER}' not in routers[1].telemetry('/kvroute/workers')['workers'])
        engine.start()
        front.serving('another engine', routers[1], WORKER, life)
        said = [line for line in agent.lines() if 'the router has a new epoch' in line or 'the router has an earlier epoch again' in line]
        front.check('another router is logged once', len(said) == 1, said)
        balance = routers[1].telemetry('/kvroute/balance')
        front.check('balance', balance['balance'] == 'ok', balance)
        routers[1].hold()
        leave_without_ack(front, agent)
        routers[1].go_on()
        del hanging
    except Exception:
        TALLY.broke()
    engine.stop()
    if not TALLY.failures:
        shutil.rmtree(routers[0].dir)
    TALLY.finish(routers[-1], log)


main(*sys.argv[1:])
