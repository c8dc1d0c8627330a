# SPDX-License-Identifier: BSD-3-Clause
"""Keys of blocks besides their tokens: adapter, salt and pictures, from engines' events into the router's table, and the hits of clients and gateway
there.

protocol_test.sh starts it: agent_keys_test.py KVROUTE KVROUTE_AGENT KVROUTE_GATEWAY
"""

import hashlib
import json
import sys

import kvrproto as p

from agent_lib import B, POOLS, Agent, Engine, Front, message
from gateway_rig import Gateway
from protocol_router import ADDRESSES, Router, Tally

TALLY = Tally(150, patience=20.0)
PREFIX = 'dynamo-cache-salt:'
FORMS = {
    'vLLM, maps, pairs of key and offset': ('--type', 'vllm', '--odd', '--key-offsets'),
    'vLLM, positional, signed': ('--type', 'vllm', '--form', 'positional', '--hash', 'int', '--odd'),
    'vLLM, digests, batch as a map': ('--type', 'vllm', '--hash', 'bytes', '--batch-form', 'map', '--repeat-stores'),
    'SGLang, maps': ('--type', 'sglang'),
    'SGLang, positional': ('--type', 'sglang', '--form', 'positional'),
}


class Prompt:
    """Tokens and the keys that make other blocks of them. Pictures: (first token, tokens, SHA-256)."""

    def __init__(self, tokens, lora='', salt='', pictures=(), prefix=''):
        self.lora, self.salt, self.pictures, self.prefix = lora, salt, pictures, prefix
        self.tokens = list(tokens)

    def as_sglang(self):
        """A picture consists of placeholder tokens; each is named by the picture's content."""
        tokens = list(self.tokens)
        for first, n, digest in self.pictures:
            tokens[first:first + n] = [1000000 + (int(digest[:16], 16) & (1 << 30) - 1)] * n
        return Prompt(tokens, self.lora, self.salt, prefix=self.prefix)

    def mm(self):
        """Block -> hashes of the pictures in it."""
        out = {}
        for first, n, digest in self.pictures:
            for block in range(first // B, (first + n - 1) // B + 1):
                out.setdefault(block, []).append(int(digest[:16], 16))
        return out

    def common(self, other):
        """Leading blocks that both have in common."""
        n = 0
        while (self.lora, self.salt) == (other.lora, other.salt) and n < len(self.tokens) // B and \
                self.tokens[n * B:n * B + B] == other.tokens[n * B:n * B + B] and self.mm().get(n) == other.mm().get(n):
            n += 1
        return n

    def hashes(self):
        return p.sequence_hashes(self.tokens, B, seed=p.hash_seed(self.lora, self.salt), mm=self.mm())

    def hints(self, **more):
        return p.route_hints(lora=self.lora or None, namespace=self.salt or None, mm=self.mm(), **more)

    def members(self):
        """A request in the form that the engine accepts."""
        return {**({'model': self.lora} if self.lora else {}), **({'cache_salt': self.prefix + self.salt} if self.salt else {}),
                **({'pictures': self.pictures} if self.pictures else {})}


def picture(first, n, what):
    return first, n, hashlib.sha256(what.encode()).hexdigest()


def kinds(tokens, i):
    """The same tokens with every key. No block before the second contains a picture."""
    one, other = picture(B + 3, 2 * B, f'one {i}'), picture(3 * B - 2, B, f'other {i}')
    return {
        'plain': Prompt(tokens),
        'adapter': Prompt(tokens, lora='adapter-a'),
        'another adapter': Prompt(tokens, lora='adapter-b'),
        'salt': Prompt(tokens, salt='tenant-a'),
        'another salt': Prompt(tokens, salt='tenant-b', prefix=PREFIX),
        'salt like a picture': Prompt(tokens, salt=picture(0, 0, f'tenant {i}')[2]),
        'adapter and salt': Prompt(tokens, lora='adapter-a', salt='tenant-a'),
        'a picture': Prompt(tokens, pictures=[one]),
        'two of them': Prompt(tokens, pictures=[one, other]),
        'all of it': Prompt(tokens, lora='adapter-b', salt='tenant-a', pictures=[one, other]),
    }


class Keys(Front):
    """A client with these prompts."""

    def send(self, prompt, pin=None, flags=0, raw=None, by_tokens=False):
        hints = prompt.hints(**({'backend': pin[0], 'dp_rank': pin[1]} if pin else {}))
        body = {'prompt': prompt.tokens, 'max_tokens': 2, **prompt.members()}
        return self.client.route(self.pool, len(prompt.tokens), [] if by_tokens else prompt.hashes(), hints=hints, flags=flags,
                                 tokens=prompt.tokens if by_tokens else (), max_tokens=2,
                                 body=message('/v1/completions', body) if raw is None else raw)

    def overlap(self, prompt, worker, ranks):
        asked = [self.send(prompt, (worker, i), p.ROUTE_QUERY, b'', by_tokens) for i in range(ranks) for by_tokens in (False, True)]
        p.run_until(self.all, lambda: all(r.ended for r in asked), 10)
        found = [r.accepted['overlap_blocks'] if r.accepted else repr(r.rejected) for r in asked]
        return found[::2] if found[::2] == found[1::2] else found  # by hashes, and by tokens with hints

    def held(self, engine, prompt):
        return engine.test(overlap={'prompt': prompt.tokens, **prompt.members()})['overlap']


def one_form(router, program, name, how, worker):
    front = Keys(TALLY, ADDRESSES[worker % 2])
    sglang = 'sglang' in how
    engine = Engine(*how, '--lora', 'adapter-a', 'adapter-b', '--blocks', '400')
    agent = Agent(program, engine, ADDRESSES[worker % 2], worker, '--type', 'sglang' if sglang else 'vllm', log=f'{router.dir}/agent.log')
    prompts, asked = [], []
    for i in range(9):
        every = kinds([(i + 1) * 1000 + k for k in range(5 * B + i)], i)
        if sglang:  # its events do not name adapters
            every = {what: prompt.as_sglang() for what, prompt in every.items() if not prompt.lora}
        elif 'positional' in how:  # pictures look the same in that form
            every['salt like a picture'].prefix = PREFIX
        some = sorted(every)[i % len(every)], sorted(every)[(i + 1 + i % 3) % len(every)]
        prompts += every.values()
        asked += [every[what] for what in some]

    def stored():
        answers = front.answers(name, [front.send(prompt, (worker, i % 2)) for i, prompt in enumerate(asked)])
        front.check(f'{name}: answered', all(a.status == 200 for a in answers), [a.content[:200] for a in answers if a.status != 200])

    try:
        front.serving(name, router, worker)
        stored()
        front.same_table(name, engine, worker, prompts)
        wanted = [[max(prompt.common(a) for a in asked[rank::2]) for rank in (0, 1)] for prompt in prompts]
        front.check(f'{name}: that and nothing else', [front.overlap(prompt, worker, 2) for prompt in prompts] == wanted and
                    sum(max(n) == 5 for n in wanted) == len(asked) and sum(max(n) == 0 for n in wanted) >= 9, wanted)
        engine.test(drop_blocks=30)
        engine.test(drop_blocks=20, rank=1)
        front.same_table(f'{name}, dropped', engine, worker, prompts)
        engine.test(lose_events=3)
        engine.test(lose_events=3, rank=1)
        stored()
        stored()
        front.same_table(f'{name}, events lost', engine, worker, prompts)
        counters = agent.counters()
        front.check(f'{name}: nothing is strange', counters['agent']['batches_bad'] == 0 and all(
            counters[f'rank {i}']['strange'] == 0 for i in range(2)), counters)
        if sglang:
            nameless(front, name, agent, worker)
        engine.test(clear=True)
        stored()
        life = front.serving(name, router, worker)
        agent.kill()
        agent.start()
        front.serving(f'{name}, another agent', router, worker, life)
        front.same_table(f'{name}, another agent', engine, worker, prompts)
        engine.test(clear=True)
        front.same_table(f'{name}, cleared', engine, worker, prompts)
        front.check(f'{name}: leaves', agent.stop() == 0)
    finally:
        agent.kill()
        engine.stop()


def nameless(front, name, agent, worker):
    """An adapter with a number and no name in the events: its blocks match no request."""
    prompt = Prompt(range(700000, 700000 + 4 * B), lora='adapter-a')
    a = front.answers(name, [front.send(prompt, (worker, 0))])[0]
    front.check(f'{name}: an adapter answers', a.status == 200, a.content[:200])
    front.until(f'{name}: it is counted', lambda: agent.counters()['rank 0']['strange'] >= 4, agent.counters)
    front.check(f'{name}: not as the model', front.overlap(Prompt(prompt.tokens), worker, 2) == [0, 0])
    front.check(f'{name}: nor as the adapter', front.overlap(prompt, worker, 2) == [0, 0])


def through_the_gateway(router, program, gateway):
    """Two engines: a request with the same adapter, salt or pictures is sent where they are cached, and gets their overlap; no other request is."""
    front, log = Keys(TALLY, ADDRESSES[0]), f'{router.dir}/agent.log'
    engines = [Engine('--model', 'llama', '--lora', 'adapter-a', 'adapter-b', '--key-offsets', ranks=1) for _ in range(2)]
    agents = [Agent(program, engine, ADDRESSES[0], 80 + i, log=log) for i, engine in enumerate(engines)]
    gw = None

    def routed(prompt, **more):
        """A PreprocessedRequest."""
        infos = [{'mm_objects': [{'mm_hash': h, 'offsets': []} for h in prompt.mm().get(b, ())]} for b in range(len(prompt.tokens) // B)]
        return gw.post('/v1/route', {'model': 'llama', 'token_ids': prompt.tokens, **more, 'routing': {
            'lora_name': prompt.lora or None, 'cache_namespace': prompt.salt or None}, 'mm_routing_info': {
            'routing_token_ids': prompt.tokens, 'block_mm_infos': infos} if prompt.pictures else None})

    def query(prompt):
        """The gateway's choice, and the overlap it expects there."""
        q = routed(prompt, annotations=['query_instance_id:']).json()
        return q.get('worker_id'), q.get('overlap_blocks')

    def ask(prompt):
        """(worker, tokens that the router knows there, tokens that the engine had)"""
        if prompt.pictures:  # a stream
            r = routed(prompt, stream_options={'include_usage': True}, **prompt.members())
            usage = [json.loads(e[6:])['usage'] for e in r.body.decode().split('\n\n') if '"usage"' in e]
        else:
            r = gw.post('/v1/completions', {'model': 'llama', 'max_tokens': 2, 'prompt': prompt.tokens, **prompt.members()})
            usage = [r.json().get('usage')]
        there = usage[0]['prompt_tokens_details']['cached_tokens'] if usage and usage[0] else r
        return int(r.headers.get('x-kvroute-worker', 0)), int(r.headers.get('x-kvroute-cached-tokens', -1)), there

    try:
        for a in agents:
            front.serving('two', router, a.worker)
        gw = Gateway(gateway, '--router', ADDRESSES[0], '--explain', '--adapter', 'adapter-a=llama,adapter-b=llama', log=open(log, 'ab'))
        front.until('ready', gw.ready)
        for i, what in enumerate(kinds([], 0)):
            every = kinds([(i + 50) * 1000 + k for k in range(5 * B + 1)], i)
            home, prompt = 80 + i % 2, every[what]
            a = front.answers(what, [front.send(prompt, (home, 0))])[0]
            front.check(f'{what}: stored', a.status == 200, a.content[:200])
            front.until(f'{what}: is known', lambda: query(prompt) == (home, 5), lambda: query(prompt))
            for other, same in every.items():
                n = same.common(prompt)
                front.check(f'{what}: of {other} {n} are there', query(same)[1] == n, query(same))
            worker, known, there = ask(prompt)
            front.check(f'{what}: goes there, and finds what is known', (worker, known, there) == (home, 5 * B, 5 * B), (worker, known, there))
        front.check('the gateway ends', gw.stop() == 0)
        front.check('agents leave', [a.stop() for a in agents] == [0, 0])
    finally:
        for a in agents:
            a.kill()
        for engine in engines:
            engine.stop()


def main(kvroute, program, gateway):
    # A descheduled agent on a busy machine has not died.
    router = Router(kvroute, POOLS, 'suspect_ms = 4000\ndead_ms = 8000')

    def test():
        for i, (name, how) in enumerate(FORMS.items()):
            one_form(router, program, name, how, 10 + i)
        through_the_gateway(router, program, gateway)
        TALLY.balanced(router)
    TALLY.beside(router, test, f'{router.dir}/agent.log')


main(*sys.argv[1:])
