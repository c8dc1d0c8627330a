# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-agent's canary: checks that the KV events of an engine name the blocks of a prompt as its /tokenize does.

The agent reports a mismatch to the router, and kvroute-ctl doctor names the worker until it is over. protocol_test.sh starts it: agent_canary_test.py
KVROUTE KVROUTE_AGENT KVROUTE_CTL
"""

import json
import subprocess
import sys
import time

from agent_lib import POOLS, Agent, Engine, Front
from kvrproto import run_until
from protocol_router import ADDRESSES, Router, Tally

TALLY = Tally(120, patience=30.0)


def main(kvroute, program, ctl):
    router = Router(kvroute, POOLS, 'suspect_ms = 1000\ndead_ms = 2000')
    front = Front(TALLY, ADDRESSES[0])
    log = f'{router.dir}/agent.log'
    engines = [Engine('--type', 'vllm', ranks=2), Engine('--type', 'sglang', ranks=1), Engine('--event-block-size', '8', ranks=1)]
    agents = [Agent(program, engine, ADDRESSES[0], 50 + i, '--type', 'vllm', '--block-size', '16', '--canary-s', '1', log=log)
              for i, engine in enumerate(engines)]

    def counted(agent, name, least):
        end = time.monotonic() + TALLY.patience
        while time.monotonic() < end:
            got = agent.counters()['agent'][name]
            if got >= least:
                return got
            run_until(front.all, lambda: False, 0.1)
        return got

    def missed(worker):
        """The ranks of the worker as the router shows them."""
        ranks = router.telemetry('/kvroute/events,llama')['ranks']
        return [r['canaries_missed'] for key, r in ranks.items() if key.startswith(f'{worker}/')]

    def until(what, holds):
        end = time.monotonic() + TALLY.patience
        while not holds() and time.monotonic() < end:
            run_until(front.all, lambda: False, 0.2)
        front.check(what, holds(), router.telemetry('/kvroute/events,llama'))

    def doctor():
        """The canaries of a rank as the router shows them."""
        run = subprocess.run([ctl, '--router', router.prefix, '--json', '--seconds', '1', 'doctor'], capture_output=True, text=True)
        front.check('doctor has looked', run.returncode in (0, 1), run.stderr)
        return [f['cause'] for f in json.loads(run.stdout) if f['rule'] == 'canary-mismatch']

    def refused(log):
        """A worker that the router rejects: the agent sends no canary to its engine."""
        engine = Engine(ranks=1)
        engines.append(engine)
        agent = Agent(program, engine, ADDRESSES[0], 54, '--block-size', '32', '--canary-s', '1', log=log)
        agents.append(agent)

        def said():
            return any('the router rejects the worker' in line for line in agent.lines())
        until('the router refuses one', said)
        looks = engine.state()['count']['looks'] if said() else 0
        until('time goes by', lambda: engine.state()['count']['looks'] > looks + 10)
        front.check('nothing was asked of its engine', engine.state()['count']['requests'] == 0 and not engine.state()['asked'], engine.state())
        c = agent.counters()['agent']
        front.check('and no canary counted', c['canaries'] == c['canaries_bad'] == c['canaries_failed'] == 0, c)

    def late(log):
        """The answer to a canary arrives after its engine was given up and before the returned engine is known."""
        engine = Engine('--tokenize-hangs', ranks=1)
        engines.append(engine)
        agent = Agent(program, engine, ADDRESSES[0], 55, '--canary-s', '3600', log=log)
        agents.append(agent)

        def log_has(text):
            until(f'"{text}"', lambda: any(text in line for line in agent.lines() if 'worker=55' in line))
        front.serving('one whose /tokenize hangs', router, 55)
        until('it has a canary', lambda: engine.state()['asked'])
        engine.test(garbage_metrics=True, ill=True)
        log_has('the worker leaves until the engine recovers')
        engine.test(ill=False)
        log_has('give --block-size')
        engine.test(tokenize_hangs=False)
        until('the agent goes on looking', lambda: agent.counters()['agent']['health_failed'] >= 3)
        engine.test(garbage_metrics=False)
        front.serving('it comes again', router, 55)
        front.check('with a canary', counted(agent, 'canaries', 1) == 1, agent.counters())

    try:
        router.telemetry('/kvroute/balance')
        for agent in agents:
            front.serving('up', router, agent.worker)
        said = [line for line in agents[1].lines() if 'metrics are those of sglang, but --type is vllm' in line]
        front.check('a wrong --type is logged for that engine', len(said) == 1 and 'level=warning' in said[0] and 'worker=51' in said[0], agents[1].lines())
        for agent in agents[:2]:
            front.check('its blocks come back', counted(agent, 'canaries', 2) >= 2, agent.counters())
            front.check('under the same names', agent.counters()['agent']['canaries_bad'] == 0, agent.counters())
        front.check('other names are found out', counted(agents[2], 'canaries_bad', 2) >= 2, agents[2].counters())
        front.check('and those alone', agents[2].counters()['agent']['canaries'] == 0, agents[2].counters())
        with open(log) as f:
            front.check('the log reports it', 'requests cannot match its cache' in f.read())
        until('the router knows it', lambda: missed(52)[0] >= 2)
        said = doctor()
        front.check('doctor names that worker, and no other', len(said) == 1 and 'requests cannot find blocks of worker 52' in said[0], said)
        front.check('the others are fine', missed(50) == [0, 0] and missed(51) == [0], (missed(50), missed(51)))
        engines[2].test(event_block_size=0)
        until('it is fine again', lambda: missed(52) == [0])
        front.check('so it has no finding any more', doctor() == [])
        engines[1].test(events_late=7)  # later than a canary waits
        front.check('a slow engine: one is missed', counted(agents[1], 'canaries_bad', 1) >= 1, agents[1].counters())
        until('and told', lambda: missed(51) == [1])
        until('its event comes all the same', lambda: missed(51) == [0])
        front.check('a slow engine: the next is missed', counted(agents[1], 'canaries_bad', 2) >= 2, agents[1].counters())
        most = []
        until('and comes', lambda: (most.append(missed(51)[0]), most[-1] == 0)[1])
        front.check('never two in a row', max(most) < 2 and doctor() == [], most)
        with open(log) as f:
            front.check('the log names the possible cause', 'sending another one' in f.read())
        engines[1].test(events_late=0)
        engines[0].test(error=500)
        front.check('an engine that does not answer is no mismatch', counted(agents[0], 'canaries_failed', 1) >= 1)
        with open(log) as f:
            front.check('the log names the request and its status', 'of the engine: status 500' in f.read())
        front.check('none', agents[0].counters()['agent']['canaries_bad'] == 0, agents[0].counters())
        engines[0].test(error=0)
        engines.append(Engine(ranks=1))
        agents.append(Agent(program, engines[3], ADDRESSES[0], 53, '--block-size', '16', '--canary-s', '3600', log=log))
        front.serving('a fourth', router, 53)
        front.check('one when the worker is registered', counted(agents[3], 'canaries', 1) == 1)
        engines[3].kill()
        front.check('its end is seen', counted(agents[3], 'health_failed', 1) >= 1)
        engines[3].start()
        front.check('and one when it is again', counted(agents[3], 'canaries', 2) == 2, agents[3].counters())
        late(log)
        refused(log)
        front.check('agents leave', [a.stop() for a in agents] == [0] * len(agents))
    except Exception:
        TALLY.broke()
    for engine in engines:
        engine.stop()
    TALLY.finish(router, log)


main(*sys.argv[1:])
