# SPDX-License-Identifier: BSD-3-Clause
"""KV events of blocks that an engine holds more than once: hand-made batches of vLLM's form, sent by the stand-in engine."""

import msgpack
from stack import Stack, check, equal, request, wait_for


def stored(names, parent, tokens, **more):
    return dict(dict(type='BlockStored', block_hashes=names, parent_block_hash=parent, token_ids=list(tokens), block_size=16, lora_id=None, medium='GPU',
                     lora_name=None, extra_keys=None, group_idx=0, kv_cache_spec_kind='full_attention'), **more)


def removed(*names):
    return dict(type='BlockRemoved', block_hashes=list(names), medium='GPU', group_idx=0)


def publish(*events):
    request(8101, 'POST', '/_test', dict(raw=msgpack.packb([1.0, list(events), 0]).hex()))


with Stack({'llama': {}}) as stack:
    stack.stand_in(1)
    stack.agent(1, '--canary-s', 0)
    stack.gateway()
    stack.require_workers(1)
    marks = iter(range(1000, 9000, 100))

    def settle():
        """Wait until the events published so far are in the router: an own block, published last, is found there."""
        mark = next(marks)
        publish(stored([mark], None, range(mark, mark + 16)))
        return wait_for(lambda: stack.overlap([*range(mark, mark + 16), 1]) == 1)

    prompt = list(range(1, 49))
    publish(stored([11, 12], None, prompt[:32]), stored([13], 12, prompt[32:]), stored([12], 11, prompt[16:32]))
    settle()
    equal('three blocks, the second stored twice', stack.overlap(prompt + [5]), 3)
    publish(removed(12))
    settle()
    equal('one of two copies removed: three blocks', stack.overlap(prompt + [5]), 3)
    publish(removed(12))
    settle()
    equal('both copies removed: one block', stack.overlap(prompt + [5]), 1)
    publish(stored([12], 11, prompt[16:32]))
    settle()
    check('stored again: two blocks at least', stack.overlap(prompt + [5]) >= 2, stack.overlap(prompt + [5]))
