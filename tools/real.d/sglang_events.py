# SPDX-License-Identifier: BSD-3-Clause
"""SGLang's event classes and publisher through an agent that has nothing but the engine's address: sglang_events.py (no torch)."""

import sys

import packages
from sglang_parts import Engine, load
from stack import Stack, check, equal, wait_for

events = load(packages.folder('sglang'))
POOLS = {'llama': dict(block_size=16), 'ranks': dict(block_size=16), 'page64': dict(block_size=64)}


def names(tokens, page, seed=''):
    """64-bit names, signed as SGLang publishes them."""
    out, parent = [], seed
    for i in range(0, len(tokens) - page + 1, page):
        parent = (hash((parent, tuple(tokens[i:i + page]))) & (1 << 64) - 1) - (1 << 63)
        out.append(parent)
    return out


def stored(tokens, page=16, seed='', **more):
    return events.BlockStored(block_hashes=names(tokens, page, seed), parent_block_hash=None, token_ids=list(tokens), block_size=page, lora_id=None,
                              medium=more.pop('medium', events.StorageMedium.GPU), **more)


def run(stack):
    engine = Engine(events, 8200, 16)
    stack.agent(1, '--canary-s', 0, port=8200)
    stack.require_workers(1)
    check('an agent with nothing but --engine serves', True)
    prompts = {n: list(range(n * 1000, n * 1000 + 64)) for n in range(1, 9)}
    overlap = lambda n, **more: stack.overlap(prompts[n] + [1], **more)
    wait = lambda n, blocks, **more: wait_for(lambda: overlap(n, **more) == blocks)

    engine.publish([stored(prompts[1])])
    wait(1, 4)
    equal('BlockStored', overlap(1), 4)
    engine.publish([events.BlockRemoved(block_hashes=names(prompts[1], 16)[2:], medium=events.StorageMedium.GPU)])
    wait(1, 2)
    equal('BlockRemoved', overlap(1), 2)
    engine.publish([stored(prompts[2], seed='tenant', cache_salt='tenant')])
    wait(2, 4, cache_salt='tenant')
    equal('cache_salt: request with the salt', overlap(2, cache_salt='tenant'), 4)
    equal('cache_salt: request without it', overlap(2), 0)
    engine.publish([stored(prompts[3], seed='adapter', lora_name='ad1')])
    wait(3, 4, headers={'x-kvroute-lora': 'ad1'})
    equal('lora_name: request with the adapter', overlap(3, headers={'x-kvroute-lora': 'ad1'}), 4)
    equal('lora_name: request without it', overlap(3), 0)
    engine.publish([stored(prompts[4]), stored(prompts[4], medium=events.StorageMedium.CPU),
                    events.BlockRemoved(block_hashes=names(prompts[4], 16), medium=events.StorageMedium.GPU)])
    wait(4, 3)
    equal('CPU_PINNED: 4 blocks of host memory weigh 3', overlap(4), 3)

    def start_agent(number):
        engine.publish([stored(prompts[5])])
        stack.agent(number, '--canary-s', 0, port=8200)
    stack.restart_agent(1, start_agent)
    wait(5, 4)
    equal('replay: a new agent receives all batches', (overlap(1), overlap(4), overlap(5)), (2, 3, 4))
    engine.publish([events.AllBlocksCleared()])
    wait(5, 0)
    equal('AllBlocksCleared', (overlap(1), overlap(4), overlap(5)), (0, 0, 0))

    two = Engine(events, 8210, 16, ranks=2, model='ranks')
    stack.agent(2, '--canary-s', 0, pool='ranks', port=8210)
    stack.require_workers(2)
    two.publish([stored(prompts[6])], 0)
    two.publish([stored(prompts[7])], 1)

    def rank(n):
        _, fields, _ = stack.complete(prompts[n] + [1], 'ranks', {'x-kvroute-query': 'true'})
        return int(fields.get('x-kvroute-dp-rank', -1)), int(fields.get('x-kvroute-overlap-blocks', -1))
    wait_for(lambda: rank(6) == (0, 4) and rank(7) == (1, 4))
    equal('two ranks', (rank(6), rank(7)), ((0, 4), (1, 4)))

    large = Engine(events, 8220, 64, model='page64')
    stack.agent(3, '--canary-s', 0, pool='page64', port=8220)
    stack.require_workers(3)
    large.publish([stored(range(64 * 5), 64)])
    wait_for(lambda: stack.overlap(list(range(64 * 5)) + [1], 'page64') == 5)
    equal('page size 64', stack.overlap(list(range(64 * 5)) + [1], 'page64'), 5)


with Stack(POOLS) as stack:
    stack.gateway()
    run(stack)
sys.stdout.flush()
