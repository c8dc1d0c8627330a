# SPDX-License-Identifier: BSD-3-Clause
"""SGLang's RadixCache, recorder and publisher: the router's overlap of a prompt is the length that match_prefix finds.

sglang_cache.py, with the torch of the environment `vllm`. The sha256 chain that SGLang computes in C++ is computed here.
"""

import hashlib
import random
from array import array
from types import SimpleNamespace

import packages
import record
from sglang_parts import Engine, load
from stack import RECORD, Stack, check, equal, wait_for

events = load(packages.folder('sglang'))
import torch  # noqa: E402
from sglang.srt.mem_cache import utils  # noqa: E402
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams  # noqa: E402
from sglang.srt.mem_cache.events import KvEventLoraNames  # noqa: E402
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey  # noqa: E402

POOLS = {'page16': dict(block_size=16), 'page1': dict(block_size=1), 'page64': dict(block_size=64), 'ranks': dict(block_size=16),
         'bigrams': dict(block_size=16, eagle='on')}


def hash_chain(key, prior=None, page=None):
    tokens, out, prior = list(key), [], prior or b''
    for at in range(0, len(tokens), page or len(tokens) or 1):
        prior = hashlib.sha256(prior + repr(tokens[at:at + page]).encode()).digest()
        out.append(prior.hex())
    return out


utils.get_native_hash = hash_chain


class Cached:
    """An engine with a RadixCache for each rank, behind agent @number in pool @pool."""

    marks = 0

    def __init__(self, stack, number, pool, page, ranks=1, bigrams=False):
        self.stack, self.number, self.pool, self.page, self.adapters = stack, number, pool, page, KvEventLoraNames()
        self.engine = Engine(events, 8200 + 10 * number, page, ranks, pool)
        allocator = SimpleNamespace(free_segment=lambda *args, **more: None, device='cpu')
        self.caches = []
        for _ in range(ranks):
            cache = RadixCache.create_simulated(mock_allocator=allocator, page_size=page, enable_kv_cache_events=True, dynamo_kv_event_format=False,
                                                kv_event_lora_names=self.adapters)
            cache.is_eagle, cache.update_eviction_metrics = bigrams, lambda *args: None
            self.caches.append(cache)
        stack.agent(number, '--canary-s', 0, pool=pool, port=self.engine.port)
        stack.require_workers(number)

    def insert(self, tokens, rank=0, **more):
        cache = self.caches[rank]
        count = len(tokens) - (1 if cache.is_eagle else 0)
        cache.insert(InsertParams(key=RadixKey(array('q', tokens), **more), value=torch.arange(max(count, 0) + 1)))

    def match(self, tokens, rank=0, **more):
        """Blocks."""
        return self.caches[rank].match_prefix(MatchPrefixParams(key=RadixKey(array('q', tokens), **more))).device_prefix_len // self.page

    def publish(self, rank=0):
        self.engine.publish(self.caches[rank].take_events(), rank)

    def settle(self, rank=0):
        """Wait until the router has all events: a prompt of its own, published last, is found there."""
        Cached.marks += 1
        mark = [900000 + 1000 * Cached.marks + i for i in range(self.page + 1)]
        self.insert(mark, rank)
        self.publish(rank)
        return wait_for(lambda: self.overlap(mark + [1]) == self.match(mark, rank), 15)

    def overlap(self, tokens, headers=None, **more):
        return self.stack.overlap(tokens, self.pool, headers, **more)


def check_sequences(name, cached, count, longest, seed):
    """Insert, evict and reset at random; compare prompts that share prefixes of all lengths."""
    seeded, known, wrong, probes, found = random.Random(seed), [[5]], [], 0, 0
    cache = cached.caches[0]
    for i in range(count):
        base = seeded.choice(known)
        tokens = base[:seeded.randrange(len(base) + 1)] + [seeded.randrange(30000) for _ in range(seeded.randrange(1, longest))]
        known.append(tokens)
        cached.insert(tokens)
        if seeded.random() < 0.08:
            cache.evict(EvictParams(num_tokens=seeded.randrange(1, longest * 3)))
        if seeded.random() < 0.01:
            cache.reset()
        if seeded.random() < 0.3:
            cached.publish()
        if i % 50 != 49 and i != count - 1:
            continue
        cached.publish()
        if not cached.settle():
            wrong.append(f'events after sequence {i} do not arrive')
        for tokens in seeded.sample(known, min(50, len(known))):
            tokens = tokens[:seeded.randrange(1, len(tokens) + 1)] + seeded.choice([[], [7], [1, 2, 3]])
            want, got = cached.match(tokens), cached.overlap(tokens)
            probes, found = probes + 1, found + want
            if got != want:
                wrong.append(f'{len(tokens)} tokens after sequence {i}: overlap {got}, match_prefix {want}')
    check(f'{name}: {count} sequences, overlaps are those of match_prefix', not wrong and found, f'{len(wrong)} of {probes} differ, {found} blocks: {wrong[:3]}')


def check_keys(cached):
    """Salt, adapter and the host tier, with the events of SGLang's recorder."""
    prompts = [list(range(50000 + 1000 * i, 50064 + 1000 * i)) for i in range(5)]
    cached.insert(prompts[0], cache_salt='tenant')
    cached.settle()
    equal('cache_salt: request with the salt', cached.overlap(prompts[0] + [1], cache_salt='tenant'), 4)
    equal('cache_salt: request without it', cached.overlap(prompts[0] + [1]), 0)
    cached.adapters.register(SimpleNamespace(lora_id='f' * 32, extra_key='f' * 32), 'ad1')
    cached.insert(prompts[1], extra_key='f' * 32)
    cached.settle()
    equal('adapter: request with it', cached.overlap(prompts[1] + [1], {'x-kvroute-lora': 'ad1'}), 4)
    equal('adapter: request without it', cached.overlap(prompts[1] + [1]), 0)
    cached.insert(prompts[2])
    cached.publish()
    cache = cached.caches[0]
    node = cache.match_prefix(MatchPrefixParams(key=RadixKey(array('q', prompts[2])))).last_device_node
    for record in (lambda: cache.kv_events.record_store(node, events.StorageMedium.CPU), lambda: cache.kv_events.record_remove(node)):
        record()
        cached.publish()
    cached.settle()
    equal('HiCache: 4 blocks of host memory weigh 3', cached.overlap(prompts[2] + [1]), 3)
    cache.kv_events.record_remove(node, events.StorageMedium.CPU)
    cached.settle()
    equal('HiCache: removed from host memory', cached.overlap(prompts[2] + [1]), 0)
    counters = cached.stack.agent_counters(cached.number)
    check('the agent understood all events', not any(counters.get(name) for name in ('medium', 'unknown', 'bad')), counters)


def check_replay(cached):
    prompt = list(range(60000, 60064))

    def start_agent(number):
        cached.insert(prompt)
        cached.publish()
        cached.stack.agent(number, '--canary-s', 0, pool=cached.pool, port=cached.engine.port)
    cached.stack.restart_agent(cached.number, start_agent)
    wait_for(lambda: cached.overlap(prompt + [1]) == 4, 30)
    equal('replay: a new agent receives all batches', cached.overlap(prompt + [1]), 4)
    cached.caches[0].reset()
    cached.settle()
    equal('reset: no block is left', cached.overlap(prompt + [1]), 0)


with Stack(POOLS, memory_mb=1024) as stack:
    stack.gateway()
    page16 = Cached(stack, 1, 'page16', 16)
    if RECORD:
        numbers = iter(range(80000, 90000, 100))

        def produce():
            first = next(numbers)
            page16.insert(list(range(first, first + 36)), cache_salt='salt')
            page16.publish()
        record.record_sglang(page16.engine, produce)
    check_sequences('page 16', page16, 500, 300, 1)
    check_keys(page16)
    check_replay(page16)
    check_sequences('page 64', Cached(stack, 2, 'page64', 64), 100, 900, 2)
    check_sequences('page 1', Cached(stack, 3, 'page1', 1), 100, 60, 3)
    check_sequences('bigrams of EAGLE', Cached(stack, 4, 'bigrams', 16, bigrams=True), 100, 300, 6)
    two = Cached(stack, 5, 'ranks', 16, ranks=2)
    for rank in (0, 1):
        two.insert(list(range(70000 + rank * 1000, 70064 + rank * 1000)), rank)
        two.publish(rank)

    def place(first):
        _, fields, _ = stack.complete(list(range(first, first + 64)) + [1], 'ranks', {'x-kvroute-query': 'true'})
        return int(fields.get('x-kvroute-dp-rank', -1)), int(fields.get('x-kvroute-overlap-blocks', -1))
    wait_for(lambda: place(70000) == (0, 4) and place(71000) == (1, 4), 15)
    equal('two ranks', (place(70000), place(71000)), ((0, 4), (1, 4)))
