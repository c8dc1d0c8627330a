# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-gateway with two routers, one of which is killed: requests that wait there and later ones go to the other.

protocol_test.sh starts it: gateway_failover.py KVROUTE GATEWAY. The second router has a veth pair of its own.
"""

import contextlib
import http.client
import json
import subprocess
import sys
import threading

import kvrproto as p
from gateway_rig import Agents, Gateway, parse_message, response, wait_for
from protocol_router import ADDRESSES, Router, Tally

POOLS = '''[pool llama]
id = 3
block_size = 16
max_ranks = 4
max_blocks = 4096
'''
TALLY = Tally(150, patience=40.0)
check = TALLY.check
OTHER = ('10.9.1.1', 'fd0a::1')
TOLERANT = 'suspect_ms = 20000\ndead_ms = 40000'


def ip(*args):
    subprocess.run(['ip', *args], check=True)


def serve(agents, agent, job):
    """Answers with the worker's number; a request that should hang does so only at the first worker."""
    say = json.loads(parse_message(job.dispatch.body)[3])
    if say.get('x_hang') and agent.worker == 101:
        return
    if say.get('x_begin'):
        agent.item(job, response(body=b'{"work'), tokens=1)
        return
    agent.item(job, response(body=json.dumps({'worker': agent.worker}).encode()), tokens=1, fin=True, status=200)


def run(program):
    # Far from the index of the first pair: the driver names its fan-out group by pid ^ index, and a kernel rejects two groups of
    # one name on two interfaces.
    ip('link', 'add', 'kvr-peer2', 'index', '20001', 'type', 'veth', 'peer', 'name', 'kvr-router2', 'index', '20000')
    with open('/proc/sys/net/ipv6/conf/kvr-router2/disable_ipv6', 'w') as f:
        f.write('1')
    ip('address', 'add', '10.9.1.2/24', 'dev', 'kvr-peer2')
    ip('link', 'set', 'kvr-peer2', 'up')
    ip('link', 'set', 'kvr-router2', 'up')
    routers = [Router(sys.argv[1], POOLS, TOLERANT, memory_mb=512),
               Router(sys.argv[1], POOLS, TOLERANT, memory_mb=512, interface='kvr-router2', addresses=OTHER)]
    failed = True
    try:
        for r in routers:
            r.telemetry('/kvroute/balance')
        agents = Agents([p.Agent(ADDRESSES[0], 101, 'llama', 16), p.Agent(OTHER[0], 201, 'llama', 16)], serve)
        agents.start()
        check('agents are served', wait_for(lambda: all(a.state == 'SERVING' for a in agents.agents), 40))
        first_log = open(f'{routers[0].dir}/first.log', 'w+')
        gw = Gateway(program, '--router', f'{ADDRESSES[0]},{OTHER[0]}', '--router-ms', '1500', log=first_log)
        check('both routers are up', wait_for(lambda: gw.counters()['kvr_gateway_routers_up'] == 2, 40))

        def ask(**more):
            return gw.post('/v1/completions', {'model': 'llama', 'prompt': [1, 2], **more}, timeout=100)

        def begin():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                patient.post('/v1/completions', {'model': 'llama', 'prompt': [1, 2], 'x_begin': True}, timeout=100)

        check('the first router is used', ask().json() == {'worker': 101})
        moved = []
        waiting = threading.Thread(target=lambda: moved.append(ask(x_hang=True)))
        waiting.start()
        wait_for(lambda: len(agents.runs()) >= 2)
        routers[0].process.kill()
        waiting.join(60)
        check('what waited at the router that was killed is served by the other', moved and moved[0].json() == {'worker': 201}, moved)
        check('what comes later goes there', ask().json() == {'worker': 201})
        n = gw.counters()
        # A busy machine may deschedule the other router for 1.5 s: then it was lost, too, and is back.
        check('the counters show it', (n['kvr_gateway_resubmitted_total'], n['kvr_gateway_routers_up']) == (1, 1) and
              n['kvr_gateway_routers_lost_total'] >= 1, n)
        patient = Gateway(program, '--router', OTHER[0], log=open(f'{routers[0].dir}/gateway.log', 'w'))
        check('it is up', wait_for(lambda: patient.counters()['kvr_gateway_routers_up'] == 1, 40))
        waiting = threading.Thread(target=begin)
        waiting.start()
        wait_for(lambda: patient.counters()['kvr_gateway_items_total'] == 1)
        routers[1].process.kill()
        routers[1].process.wait()
        routers[1].start()
        waiting.join(90)
        check('one that had begun ends', not waiting.is_alive())

        def is_logged():
            """A router that is slow to return: the gateway reports that it was lost, with all its requests."""
            with open(f'{routers[0].dir}/gateway.log') as f:
                text = f.read()
            return 'the router lost 1 requests; 0 are sent again' in text or 'thread 0: the router does not answer' in text

        check('the log reports that it was lost', wait_for(is_logged, 40))
        check('the patient one ends', patient.stop() == 0)
        routers[1].process.kill()
        check('not ready without a router', wait_for(lambda: not gw.ready(), 40))
        r = ask()
        check('503 without a router', r.status == 503 and r.error()[1] == 'no_router' and r.headers.get('retry-after') == '1', r)
        check('the models are gone', gw.call('GET', '/v1/models').json()['data'] == [])
        r = gw.call('GET', '/v1/models/llama')
        check('one unready router gets its own error', r.status == 503 and r.error()[1] == 'no_router' and r.headers.get('retry-after') == '1', r)
        check('nothing is in flight', gw.counters()['kvr_gateway_requests_in_flight'] == 0)
        check('the gateway ends', gw.stop() == 0)
        first_log.seek(0)
        text = first_log.read()
        check('the log names both routers', f', routers {ADDRESSES[0]},{OTHER[0]}, tokenizer none"' in text, text)
        failed = bool(TALLY.failures)
    finally:
        for r in routers:
            if r.alive() or failed:
                r.finish(failed)
    return failed


status = run(sys.argv[2])
print(f'{TALLY.passed} passed, {len(TALLY.failures)} failed')
sys.exit(1 if status or TALLY.failures else 0)
