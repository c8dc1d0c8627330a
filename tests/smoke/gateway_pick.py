# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-gateway for deployments with their own proxy: /pick, the calls about a booking, leases, /loads.

protocol_test.sh starts it: gateway_pick.py KVROUTE GATEWAY.
"""

import signal
import sys
import time

import kvrproto as p
from gateway_rig import Gateway, beside, serving, wait_for
from protocol_router import Router, Tally

B = 16
POOLS = f'''[pool llama]
id = 3
block_size = {B}
max_ranks = 16
max_blocks = 65536
[pool prompts]
id = 5
block_size = {B}
role = prefill
model = pair
max_ranks = 4
max_blocks = 4096
[pool answers]
id = 6
block_size = {B}
role = decode
model = pair
max_ranks = 4
max_blocks = 4096
'''
TALLY = Tally(30, patience=30.0)
check = TALLY.check
IDS = list(range(100, 100 + 4 * B))


def never(agents, agent, job):
    """A booked request reaches no worker: see runs()."""


def booked(agents):
    """Bookings of each worker, as its agent learns from heartbeats."""
    with agents.lock:
        return [agent.bookings for agent in agents.agents]


def pick(gw, agents):
    a = agents.agents[0]
    r = gw.post('/pick', {'model': 'llama', 'prompt': IDS})
    check('/pick answers the engine of the worker it has chosen', r.status == 200 and r.json()['endpoint'] == '10.0.0.7:8000', r)
    check('and in the header', r.headers.get('x-gateway-destination-endpoint') == '10.0.0.7:8000', r.headers)
    say = r.json()
    check('with the choice', (say['worker_id'], say['dp_rank'], say['required_blocks'], say['way']) == (a.worker, 0, 4, 'aggregated'), say)
    check('it is booked', wait_for(lambda: booked(agents)[0] == 1), booked(agents))
    path = '/pick/' + say['booking']
    check('first token', gw.post(path + '/first_token', None).status == 200)
    check('progress', gw.post(path + '/progress', {'generated_tokens': 40}).status == 200)
    check('it is still booked', booked(agents)[0] == 1, booked(agents))
    check('end', gw.post(path + '/end', {'generated_tokens': 41, 'cached_tokens': 16}).status == 200)
    check('frees it', wait_for(lambda: booked(agents)[0] == 0), booked(agents))
    check('an end said twice is answered alike', gw.post(path + '/end', None).status == 200)
    r = gw.post(path + '/first_token', None)
    check('what comes later is too late', (r.status, r.error()[1]) == (410, 'booking_ended'), r)
    r = gw.post('/pick/0123456789abcdef/end', None)
    check('a name that was not given', (r.status, r.error()[1]) == (404, 'unknown_booking'), r)
    r = gw.post('/pick/0000000000000000/end', None)
    check('nor was that of none', (r.status, r.error()[1]) == (404, 'unknown_booking'), r)
    for bad in ('/pick/', '/pick/0123/end', '/pick/0123456789abcdeg/end', '/pick/0123456789abcdef/stop'):
        check('no such path ' + bad, gw.post(bad, None).status == 404)
    r = gw.post('/pick/0123456789abcdef/end', {'generated_tokens': -1})
    check('a wrong type', r.status == 400, r)
    check('GET is no call', gw.call('GET', '/pick').status == 405)
    check('an unknown model', gw.post('/pick', {'model': 'gpt', 'prompt': IDS}).status == 404)
    for body in ({'model': 'llama', 'messages': [{'role': 'user', 'content': 'x'}]}, {'model': 'llama', 'token_ids': IDS}):
        r = gw.post('/pick', body)
        check('any body of an engine', r.status == 200 and gw.post(f'/pick/{r.json()["booking"]}/end', None).status == 200, r)


def legs(gw, agents):
    r = gw.post('/pick', {'model': 'answers', 'prompt': IDS})
    say = r.json()
    check('both engines of a pair are returned', (say['endpoint'], say['prefill_endpoint']) == ('10.0.0.9:1', '[2001:db8::8]:8000'), say)
    check('in the headers', r.headers.get('x-prefiller-host-port') == '[2001:db8::8]:8000', r.headers)
    check('both are booked', wait_for(lambda: booked(agents)[1:] == [1, 1]), booked(agents))
    gw.post(f'/pick/{say["booking"]}/first_token', None)
    check('the first token ends the prefill leg', wait_for(lambda: booked(agents)[1:] == [0, 1]), booked(agents))
    gw.post(f'/pick/{say["booking"]}/end', None)
    check('and the end the other', wait_for(lambda: booked(agents)[1:] == [0, 0]), booked(agents))


def leases(gw, agents):
    r = gw.post('/pick', {'model': 'llama', 'prompt': IDS, 'nvext': {'lease_ms': 600}})
    check('a caller may ask for a shorter lease', r.json()['lease_ms'] == 600, r)
    path = '/pick/' + r.json()['booking']
    check('booked', wait_for(lambda: booked(agents)[0] == 1), booked(agents))
    for _ in range(4):
        time.sleep(0.3)
        gw.post(path + '/progress', None)
    check('a caller who speaks keeps it', booked(agents)[0] == 1, booked(agents))
    check('one that is not renewed is lost', wait_for(lambda: booked(agents)[0] == 0), booked(agents))
    r = gw.post(path + '/end', None)
    check('and is rejected', r.status in (200, 410), r)
    check('counted', gw.counters()['kvr_gateway_leases_ended_total{reason="expired"}'] == 1, gw.counters())


def threads(gw, agents):
    """Every call uses its own connection, and so any thread."""
    names = [gw.post('/pick', {'model': 'llama', 'prompt': IDS}).json()['booking'] for _ in range(24)]
    check('booked', wait_for(lambda: booked(agents)[0] == 24), booked(agents))
    check('first tokens', all(gw.post(f'/pick/{n}/first_token', None).status == 200 for n in names))
    check('ends', all(gw.post(f'/pick/{n}/end', None).status == 200 for n in names))
    check('none is left', wait_for(lambda: booked(agents)[0] == 0), booked(agents))


def bound(program, agents):
    """Bookings last for minutes: they leave half of --max-in-flight to requests."""
    gw = Gateway(program, '--router', '10.9.0.1', '--max-in-flight', '8')
    check('a small gateway', wait_for(gw.ready))
    names = [gw.post('/pick', {'model': 'llama', 'prompt': IDS}).json().get('booking') for _ in range(4)]
    check('four are booked', all(names) and wait_for(lambda: booked(agents)[0] == 4), (names, booked(agents)))
    r = gw.post('/pick', {'model': 'llama', 'prompt': IDS})
    check('a fifth is refused', r.status == 429 and r.error()[1] == 'too_many_requests' and r.headers.get('retry-after') == '1', r)
    check('requests are not', gw.post('/loads', {'model': 'llama', 'prompt': IDS}).status == 200)
    check('counted', gw.counters()['kvr_gateway_rejections_total{reason="overloaded"}'] == 1)
    check('one ends', gw.post(f'/pick/{names[0]}/end', None).status == 200)
    check('and leaves its place', wait_for(lambda: gw.post('/pick', {'model': 'llama', 'prompt': IDS}).status == 200))
    check('the small gateway ends', gw.stop() == 0)
    check('nothing is left of it', wait_for(lambda: booked(agents)[0] == 0), booked(agents))


def loads(gw, agents):
    a = agents.agents[0]
    with agents.lock:
        a.stored(0, p.sequence_hashes(IDS, B)[:2])

    def overlap():
        r = gw.post('/loads', {'model': 'llama', 'prompt': IDS})
        return r.status == 200 and r.json()
    check('/loads tells the overlap of every rank', wait_for(lambda: overlap()['ranks'][0]['overlap_blocks'] == 2), overlap())
    rank = overlap()['ranks'][0]
    check('and its work', (rank['worker_id'], rank['cached_tokens'], rank['prefill_tokens']) == (a.worker, 2 * B, 2 * B), rank)
    check('books nothing', booked(agents)[0] == 0, booked(agents))


def dead_gateway(program, agents):
    gw = Gateway(program, '--router', '10.9.0.1')
    check('another gateway', wait_for(gw.ready))
    gw.post('/pick', {'model': 'llama', 'prompt': IDS})
    check('booked', wait_for(lambda: booked(agents)[0] == 1), booked(agents))
    gw.process.send_signal(signal.SIGKILL)
    gw.process.wait()
    check('what a dead gateway has booked is freed', wait_for(lambda: booked(agents)[0] == 0), booked(agents))


def lost_worker(gw, agents):
    a = agents.agents[0]
    r = gw.post('/pick', {'model': 'llama', 'prompt': IDS})
    check('booked', wait_for(lambda: booked(agents)[0] == 1), booked(agents))
    with agents.lock:
        a.goodbye()
    check('the worker leaves', wait_for(lambda: a.gone))
    path = f'/pick/{r.json()["booking"]}/first_token'
    check('its caller gets 410', wait_for(lambda: gw.post(path, None).status == 410), gw.post(path, None))


def run(log):
    program = sys.argv[2]
    peers = [p.Agent('10.9.0.1', 101, 'llama', B, hints=p.worker_hints(engine='10.0.0.7:8000')),
             p.Agent('10.9.0.1', 102, 'prompts', B, role=1, hints=p.worker_hints(engine='[2001:db8::8]:8000')),
             p.Agent('10.9.0.1', 103, 'answers', B, role=2, hints=p.worker_hints(engine='10.0.0.9:1'))]
    with serving(TALLY, peers, never, program, '--router', '10.9.0.1', '--threads', '3', log=log) as (gw, agents):
        check('with all its threads', gw.counters()['kvr_gateway_threads_ready'] == 3, gw.counters())
        for part in (pick, legs, leases, threads, loads):
            part(gw, agents)
        bound(program, agents)
        dead_gateway(program, agents)
        lost_worker(gw, agents)
        n = gw.counters()
        check('nothing is booked any more', (n['kvr_gateway_leases'], n['kvr_gateway_requests_in_flight']) == (0, 0), n)
        check('no worker received a frame', not agents.runs(), agents.runs())


beside(TALLY, Router(sys.argv[1], POOLS, 'client_timeout_ms = 3000\nsuspect_ms = 20000\ndead_ms = 40000'), run)
