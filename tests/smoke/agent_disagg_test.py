# SPDX-License-Identifier: BSD-3-Clause
"""Disaggregated prefill and decode, with agents and stand-in engines: vLLM by results, SGLang by bootstrap.

protocol_test.sh starts it: agent_disagg_test.py KVROUTE KVROUTE_AGENT
"""

import contextlib
import http.client
import os
import sys

import kvrproto as p

from agent_lib import B, Agent, Answer, Engine, Front, message
from protocol_router import ADDRESSES, Router, Tally

POOLS = ''.join(f'''[pool {name}]
id = {number}
model = {model}
role = {role}
{'enforce_disagg = on' if role == 'decode' else ''}
block_size = 16
seed = {number}
max_ranks = 16
max_blocks = 65536
''' for name, number, model, role in (('v', 3, 'v', 'decode'), ('v-prefill', 4, 'v', 'prefill'),
                                      ('s', 5, 's', 'decode'), ('s-prefill', 6, 's', 'prefill')))
TALLY = Tally(160, patience=20.0)
TEXT = ''.join(f' {i % 10}' for i in range(7))


def prompt(i, blocks=4):
    return [i * 1000 + k for k in range(blocks * B + 3)]


def last(engine):
    return engine.state()['seen'][-1]


def delivered(front, kind, pool, prefill, decode):
    """A body that does not pass through the router is sent to both agents, each when its leg has been dispatched."""
    tokens, token, given = prompt(70), os.urandom(16), []
    content = message('/v1/completions', {'prompt': tokens, 'max_tokens': 7, 'pad': 'x' * 100000})
    r = front.client.away(pool, len(tokens), p.sequence_hashes(tokens, B), len(content), token)

    def deliver():
        for name in ('prefill_body_addr', 'body_addr'):
            where = (r.accepted or {}).get(name)
            if where and where not in given:
                host, _, port = where.rpartition(':')
                c = http.client.HTTPConnection(host, int(port), timeout=10)
                status = 404  # the same: the connection was closed during the transfer
                with contextlib.suppress(ConnectionError):
                    c.request('PUT', f'/kvroute/body/{token.hex()}', content)
                    status = c.getresponse().status
                c.close()
                if status == 404:
                    continue  # its DISPATCH is still on the way
                given.append(where)
                front.check(f'{kind}: {name} takes it', status == 204, status)
        return r.ended
    front.until(f'{kind}: bodies of both legs', deliver, lambda: (r.answers, r.rejected, given))
    a = Answer(r.data)
    front.check(f'{kind}: two agents', len(given) == 2, given)
    front.check(f'{kind}: answered', a.status == 200 and a.text() == TEXT and r.fin == (1, 200), (a.content[:200], r.rejected, r.fin))
    front.check(f'{kind}: whole at both engines', all(len(last(e)['body']['pad']) == 100000 for e in (prefill, decode)))
    front.check(f'{kind}: as legs', last(decode)['body']['max_tokens'] == 7 and
                (kind == 'sglang' or last(prefill)['body']['max_tokens'] == 1), last(prefill)['body'].keys())


def legs(router, program, kind, pool, numbers):
    """Two prefill engines' ranks, one decode engine, requests through both."""
    front = Front(TALLY, ADDRESSES[0], pool)
    sglang = kind == 'sglang'
    prefill = Engine('--type', kind, '--role', 'prefill')
    decode = Engine('--type', kind, '--role', 'decode')
    how = ('--type', kind, *(('--canary-s', '1') if sglang else ()))
    agents = [Agent(program, prefill, ADDRESSES[0], numbers, *how, '--role', 'prefill', pool=f'{kind[0]}-prefill',
                    log=f'{router.dir}/agent.log',
                    *(('--bootstrap', f'127.0.0.1:{prefill.port}') if sglang else ())),
              Agent(program, decode, ADDRESSES[0], numbers + 1, *how, '--role', 'decode', pool=kind[0],
                    log=f'{router.dir}/agent.log', *(('--prefill-ranks', '2') if sglang else ()))]
    try:
        for agent in agents:
            front.serving(kind, router, agent.worker)
        for stream in (False, True):
            requests = [front.ask(prompt(10 * stream + i), 7, stream=stream, min_tokens=3) for i in range(10)]
            for r, a in zip(requests, front.answers(f'{kind}', requests)):
                front.check(f'{kind}: answer', a.status == 200 and a.text() == TEXT and r.fin == (1, 200),
                            (a.status, a.content[:200], r.rejected, r.fin))
        seen = decode.state()
        front.check(f'{kind}: all were fetched', seen['count']['fetched'] == 20 and seen['count']['kv_lost'] == 0,
                    seen['count'])
        front.check(f'{kind}: nothing is held', prefill.state()['held'] == 0, prefill.state())
        first, second = last(prefill), last(decode)
        front.check(f'{kind}: the client\'s own limit', second['body']['max_tokens'] == 7 and second['body']['stream']
                    and second['body']['min_tokens'] == 3, second)
        if sglang:
            room = first['body']['bootstrap_room']
            front.check('sglang: the same room', second['body']['bootstrap_room'] == room, (first, second))
            front.check('sglang: of the rank', room % 2 == int(first['headers']['x-data-parallel-rank'])
                        == second['body']['disagg_prefill_dp_rank'], (first, second))
        else:
            front.check('vllm: one token', first['body']['max_tokens'] == 1 and first['body']['stream'] is False
                        and 'stream_options' not in first['body'] and 'min_tokens' not in first['body'], first)
            unfit(front, prefill, decode)
            results(front, router, prefill, decode, agents)
        delivered(front, kind, pool, prefill, decode)
        if sglang:  # such an engine rejects a request without a room
            c = [agent.counters()['agent'] for agent in agents]
            front.check('sglang: no canary for half of an engine', all(n['canaries_failed'] == 0 for n in c) and
                        prefill.state()['count']['refused'] == decode.state()['count']['refused'] == 0, c)
        front.check(f'{kind}: leave', [agent.stop() for agent in agents] == [0, 0])
    finally:
        for agent in agents:
            agent.kill()
        prefill.stop()
        decode.stop()


def unfit(front, prefill, decode):
    """Requests that would end the engine core of a decode engine reach no engine."""
    before = [len(e.state()['seen']) for e in (prefill, decode)]
    for more in ({'prompt_logprobs': 0}, {'echo': True, 'logprobs': 1}, {'best_of': 2}):
        r = front.ask(prompt(60), 7, **more)
        front.until(f'vllm: {more} ends', lambda r=r: r.ended or r.rejected, lambda r=r: r.answers)
        text = r.rejected.text if r.rejected else ''
        front.check(f'vllm: {more} is rejected by name', 'code 400' in text and 'prompt_logprobs, echo with logprobs' in text, (r.rejected, r.fin))
    after = [len(e.state()['seen']) for e in (prefill, decode)]
    front.check('vllm: no engine gets them', before == after, (before, after))


def results(front, router, prefill, decode, agents):
    """Results of up to 1 MiB are relayed unchanged, larger ones compressed; beyond that the request is rejected with a reason."""
    r = front.ask(prompt(60), 7, flags=p.ROUTE_TRACK | p.ROUTE_DIRECT)
    a = front.answers('a tracked request', [r])[0]
    t = r.tracker or {}
    front.check('a tracked request: the workers', (t.get('worker'), t.get('prefill_worker')) ==
                (r.accepted['worker'], r.accepted['prefill_worker']), t)
    front.check('a tracked request: counts', t.get('osl') == 7 and t.get('required_blocks') == r.accepted['required_blocks']
                and t.get('isl') == len(prompt(60)), t)
    front.check('a tracked request: times', 0 < t.get('prefill_us', 0) < t.get('ttft_us', 0) < 60e6, t)
    front.check('a tracked request: what the prefill engine said', r.details and b'cached_tokens' in r.details, r.details)
    front.check('a tracked request: the answer', a.status == 200 and a.text() == TEXT, a.content[:200])
    # Block numbers of NIXL: 128 k tokens, then 300 KB and the limit of a message, compressed, and too many.
    for i, (name, blocks) in enumerate((('of 128 k tokens', 8192), ('of 300 KB', 48000), ('of a few bytes less than 1 MiB', 144523), ('packed', 300000))):
        prefill.test(result_blocks=blocks)
        r = front.ask(prompt(54 + i), 7)
        a = front.answers(f'a result {name}', [r])[0]
        front.check(f'a result {name}: answer', a.status == 200 and a.text() == TEXT, (a.content[:200], r.rejected))
        seen = last(decode)
        front.check(f'a result {name}: whole', len(seen['body']['kv_transfer_params']['remote_block_ids'][0]) == blocks)
        front.check(f'a result {name}: byte for byte', seen['kv'] == prefill.state()['gave'], seen['kv'])
    prefill.test(result_blocks=48000)
    requests = [front.ask(prompt(80 + i), 7) for i in range(8)]
    answers = front.answers('eight results at once', requests)
    front.check('eight results at once', all(a.status == 200 and a.text() == TEXT for a in answers), [r.rejected for r in requests])
    prefill.test(result_blocks=600000)
    r = front.ask(prompt(51), 7)
    front.answers('a result that is too large', [r])
    front.check('a result that is too large: refused', r.rejected and r.rejected.name == 'PrefillFailed', (r.rejected, r.fin))
    front.check('a result that is too large: the rejection has a reason', r.rejected and r.rejected.text, r.rejected)
    prefill.test(result_blocks=0, eos_first=True)
    for how in ({}, {'stop_token_ids': [ord('0')]}):
        r = front.ask(prompt(90), 7, **how)
        a = front.answers('a first token that ends it', [r])[0]
        front.check(f'a first token that ends it, {how}: answered', a.status == 200 and a.text() == TEXT, (a.content[:200], r.rejected))
        front.check(f'a first token that ends it, {how}: as its client has requested', {k: last(decode)['body'].get(k) for k in how} == how and
                    'ignore_eos' not in last(decode)['body'], last(decode))
    prefill.test(eos_first=False, error=500)
    r = front.ask(prompt(52), 7)
    front.answers('a prefill that fails', [r])
    front.check('a prefill that fails: refused', r.rejected and r.rejected.name == 'PrefillFailed', (r.rejected, r.fin))
    front.check('a prefill that fails: the engine is quoted', 'code 500, engine: as the switch says' in r.rejected.text, r.rejected)
    prefill.test(error=0)
    front.check('and again', front.answers('again', [front.ask(prompt(53), 7)])[0].text() == TEXT)


def main(kvroute, program):
    # A descheduled agent on a busy machine has not died.
    router = Router(kvroute, POOLS, 'suspect_ms = 4000\ndead_ms = 8000', memory_mb=768)

    def test():
        legs(router, program, 'vllm', 3, 70)
        legs(router, program, 'sglang', 5, 80)
        TALLY.balanced(router)
    TALLY.beside(router, test, f'{router.dir}/agent.log')


main(*sys.argv[1:])
