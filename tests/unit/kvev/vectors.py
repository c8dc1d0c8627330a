#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes vectors.h: event streams of engines, encoded by Python's msgpack, and the changes they cause.

The changes come from this file and the hashes of tests/smoke/kvrproto.py, independent of the code
under test. One line per change: "S0 parent first ..." stored in tier 0, "R0 ..." removed, "C" cleared.
    vectors.py OUTPUT
"""

import hashlib
import os
import sys

import msgpack

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'smoke'))
import kvrproto as p  # noqa: E402

B = 4
SCENES = []


def engine_hashes(n, salt=b''):
    """Block digests of an engine."""
    return [hashlib.sha256(salt + bytes([i])).digest() for i in range(n)]


def last8(d):
    return int.from_bytes(d[-8:], 'big')


def first8(d):
    return int.from_bytes(d[:8], 'big', signed=True)


def signed(n):
    return n - (1 << 64) if n >> 63 else n


def sh(tokens, lora='', namespace='', **how):
    return p.sequence_hashes(tokens, B, seed=p.hash_seed(lora, namespace), **how)


def S(tier, hashes, parent=None):
    return f"S{tier} {'-' if parent is None else format(parent, 'x')} " + ' '.join(f'{h:x}' for h in hashes)


def R(tier, hashes):
    return f'R{tier} ' + ' '.join(f'{h:x}' for h in hashes)


def scene(name, batches, want, first_bytes=False, blocks=64, **counters):
    """batches: payloads, or lists of events; want: expected lines; counters: expected values above zero
    except stored and removed."""
    payloads = [b if isinstance(b, bytes) else msgpack.packb([1.5, b, 0]) for b in batches]
    SCENES.append((name, payloads, want, first_bytes, blocks, counters))


D = engine_hashes(8)
T = list(range(100, 100 + 8 * B))
SH = sh(T)
U = [last8(d) for d in D]
FIELDS = ('type', 'block_hashes', 'parent_block_hash', 'token_ids', 'block_size', 'lora_id', 'medium',
          'lora_name', 'extra_keys', 'group_idx', 'kv_cache_spec_kind', 'kv_cache_spec_sliding_window')


def stored(hashes, parent=None, tokens=None, size=B, **more):
    n = len(hashes)
    return {'type': 'BlockStored', 'block_hashes': hashes, 'parent_block_hash': parent,
            'token_ids': T[:n * B] if tokens is None else tokens, 'block_size': size, 'lora_id': None,
            'medium': 'GPU', **more}


def removed(hashes, **more):
    return {'type': 'BlockRemoved', 'block_hashes': hashes, 'medium': 'GPU', **more}


CLEARED = {'type': 'AllBlocksCleared'}


def flat(event):
    return list(event.values())


VLLM = {'lora_name': None, 'extra_keys': None, 'group_idx': 0, 'kv_cache_spec_kind': 'full_attention',
        'kv_cache_spec_sliding_window': None}
LIFE = [S(0, SH[:3]), S(0, SH[3:5], SH[2]), R(0, [SH[4], SH[1]]), 'C']


def life(f, names, **more):
    """Store three blocks, store two behind them, remove two, clear all."""
    return [[f(stored(names[:3], None, **more))], [f(stored(names[3:5], names[2], T[3 * B:5 * B], **more)),
                                                   f(removed([names[4], names[1]]))], [f(CLEARED)]]


def same(e):
    return e


scene('vLLM, maps', life(same, U, **VLLM), LIFE, cleared=1)
scene('vLLM, positional', life(flat, U, **VLLM), LIFE, cleared=1)
scene('vLLM, positional up to the medium', life(flat, U), LIFE, cleared=1)
scene('vLLM, positional up to lora_id', life(lambda e: flat(e)[:6] if len(e) > 6 else flat(e), U), LIFE, cleared=1)
scene('vLLM, signed', life(same, [signed(u) for u in U], **VLLM), LIFE, cleared=1)
scene('vLLM, digests', life(same, D, **VLLM), LIFE, cleared=1)
scene('vLLM, digests, then numbers', [life(same, D, **VLLM)[0], life(same, U, **VLLM)[1], [CLEARED]], LIFE, cleared=1)
scene('SGLang, maps', life(same, [first8(d) for d in D]), LIFE, first_bytes=True, cleared=1)
scene('SGLang, digests', life(same, D)[:1] + life(same, [first8(d) for d in D])[1:], LIFE, first_bytes=True, cleared=1)
scene('SGLang, positional', life(flat, [first8(d) for d in D]), LIFE, first_bytes=True, cleared=1)
scene('SGLang, no medium', [[{k: v for k, v in e.items() if k != 'medium'} for e in b]
                            for b in life(same, [first8(d) for d in D])], LIFE, first_bytes=True, cleared=1)
scene('a batch as a map', [msgpack.packb({'ts': 1.5, 'events': b, 'data_parallel_rank': 0})
                           for b in life(same, U)], LIFE, cleared=1)
scene('a batch as a map, rank first', [msgpack.packb({'attn_dp_rank': 3, 'new': [1, {}], 'events': b})
                                       for b in life(flat, U)], LIFE, cleared=1)
scene('a batch without rank', [msgpack.packb([2, b]) for b in life(flat, U)], LIFE, cleared=1)
scene('a batch with nil for a rank', [msgpack.packb([2.5, b, None]) for b in life(flat, U)], LIFE, cleared=1)
scene('a batch of a rank above 127', [msgpack.packb([2.5, b, 300]) for b in life(flat, U)], LIFE, cleared=1)
scene('a batch with more behind its rank', [msgpack.packb([2.5, b, 7, 'more', {}]) for b in life(flat, U)], LIFE, cleared=1)
scene('fields in another order', [[dict(reversed(list(stored(U[:3], **VLLM).items())))]], [S(0, SH[:3])])
scene('unknown fields', [[stored(U[:2], session_id='s', later={'a': [1, None, 2.5, -7, b'x']}, **VLLM)]],
      [S(0, SH[:2])])

wide = [0, 127, 128, 255, 256, 65535, 65536, (1 << 32) - 1] * 2
scene('tokens of every width', [[stored(U[:4], tokens=wide)]], [S(0, sh(wide))])
scene('a token too wide', [[stored(U[:2], tokens=[1, 2, 3, 1 << 32, 5, 6, 7, 8])]], [], bad=1)
scene('a token below zero', [[stored(U[:2], tokens=[1, 2, 3, 4, -5, 6, 7, 8])]], [], bad=1)

lora = sh(T, lora='adapter-a')
scene('LoRA', [[stored(U[:2], lora_name='adapter-a', extra_keys=[['adapter-a'], ['adapter-a']])],
               [stored(U[2:3], U[1], T[2 * B:3 * B], lora_name='adapter-a')]],
      [S(0, lora[:2]), S(0, lora[2:3], lora[1])])
scene('LoRA by number alone', [[stored(U[:2], lora_id=1)], [stored(U[2:4], U[1], T[2 * B:4 * B], lora_id=1, lora_name=None)],
                               [flat(stored(U[:1], lora_id=7))[:6]], [stored(U[:2], lora_id=0)], [removed(U[:2])],
                               [stored(U[:2], lora_id=1, lora_name='adapter-a')]],
      [S(0, SH[:2]), R(0, SH[:2]), S(0, lora[:2])], strange=5)
salt = sh(T, namespace='tenant-a')
for name, key in (('plain', 'tenant-a'), ('with prefix', 'dynamo-cache-salt:tenant-a')):
    scene(f'salt in the first block, {name}',
          [[stored(U[:2], extra_keys=[[key], None])], [stored(U[2:3], U[1], T[2 * B:3 * B])]],
          [S(0, salt[:2]), S(0, salt[2:3], salt[1])])
both = sh(T, lora='adapter-a', namespace='tenant-a')
scene('LoRA and salt', [[stored(U[:2], lora_name='adapter-a', extra_keys=[['adapter-a', 'tenant-a'], ['adapter-a']])]],
      [S(0, both[:2])])
scene('salt, SGLang maps', [[stored(U[:2], cache_salt='tenant-a')], [stored(U[2:3], U[1], T[2 * B:3 * B], cache_salt='tenant-a')]],
      [S(0, salt[:2]), S(0, salt[2:3], salt[1])], first_bytes=True)
scene('salt, SGLang positional', [[[*flat(stored(U[:2])), {'cache_salt': 'tenant-a', 'x': 1}]]], [S(0, salt[:2])], first_bytes=True)

image = hashlib.sha256(b'image').hexdigest()
other = hashlib.sha256(b'other').hexdigest()
a, b = int(image[:16], 16), int(other[:16], 16)
mm = sh(T[:4 * B], mm={1: [a], 2: [a, b]})
scene('multimodal', [[stored(U[:4], extra_keys=[None, [image], [[image, 0], (other, 5)], None])]], [S(0, mm)])
scene('multimodal, positional', [[flat(stored(U[:4], lora_name=None, extra_keys=[None, [image], [other, image], []]))]], [S(0, mm)])
digits = 'A0' * 32  # a salt that looks like an image: in maps, where images are pairs
tenant = sh(T, namespace=digits)
scene('salt of 64 digits', [[stored(U[:2], extra_keys=[[digits], None])], [stored(U[2:3], U[1], T[2 * B:3 * B])]],
      [S(0, tenant[:2]), S(0, tenant[2:3], tenant[1])])
scene('salt of 64 digits, adapter, image', [[stored(U[:2], lora_name='adapter-a', extra_keys=[
    ['adapter-a', [image, 2], digits], ['adapter-a', [image, -2], [other, 1]]])]],
      [S(0, sh(T[:2 * B], lora='adapter-a', namespace=digits, mm={0: [a], 1: [a, b]}))])
scene('salt of 64 digits with its tag', [[flat(stored(U[:2], lora_name=None, extra_keys=[['dynamo-cache-salt:' + digits], None]))]],
      [S(0, tenant[:2])])
first = sh(T, mm={0: [a]})
both_blocks = sh(T, mm={0: [a], 1: [a]})
scene('a image in the first block', [[stored(U[:2], extra_keys=[[[image, 1]], [[image, -3]]])]], [S(0, both_blocks[:2])])
scene('a image in the first block, positional', [[flat(stored(U[:2], lora_name=None, extra_keys=[[image], None]))]], [S(0, first[:2])])
scene('a image that goes on', [[stored(U[:2], extra_keys=[[image], [image]])]], [S(0, both_blocks[:2])])
scene('a image behind a parent', [[stored(U[:1])], [dict(reversed(list(stored(U[1:2], U[0], T[B:2 * B], extra_keys=[[image]]).items())))]],
      [S(0, SH[:1]), S(0, sh(T, mm={1: [a]})[1:2], SH[0])])
scene('LoRA of 64 digits', [[stored(U[:2], lora_name=image, extra_keys=[[image], [image]])]], [S(0, sh(T, lora=image)[:2])])
tagged = {'cache_salt': 'dynamo-cache-salt:tenant-a'}
scene('salt with its tag, SGLang maps', [[stored(U[:2], **tagged)]], [S(0, salt[:2])], first_bytes=True)
scene('salt with its tag, SGLang positional', [[[*flat(stored(U[:2])), tagged]]], [S(0, salt[:2])], first_bytes=True)
for name, key, plain in (('', 'tenant-a', 'tenant-a'), (', once with its tag', 'dynamo-cache-salt:tenant-a', 'tenant-a'), (' of 64 digits', digits, digits)):
    twice = stored(U[:2], extra_keys=[[key], None], cache_salt=plain)
    for order, event in (('', twice), (', the field first', {'type': 'BlockStored', 'cache_salt': plain, **twice})):
        scene(f'a salt said twice{name}{order}', [[event]], [S(0, sh(T, namespace=plain)[:2])])
scene('a salt that is no more than its tag', [[stored(U[:2], extra_keys=[['dynamo-cache-salt:'], None])]], [S(0, sh(T, namespace='dynamo-cache-salt:')[:2])])
scene('a image, positional, and then a map without any', [[flat(stored(U[:2], lora_name=None, extra_keys=[[image], None])), stored(U[2:3], tokens=T[2 * B:3 * B])]],
      [S(0, first[:2]), S(0, sh(T[2 * B:3 * B]))])
scene('two salts', [[stored(U[:2], extra_keys=[['tenant-a'], None], cache_salt='tenant-b')]], [], strange=2)
scene('two salts, the field first', [[{'type': 'BlockStored', 'cache_salt': 'tenant-b', **stored(U[:2], extra_keys=[['tenant-a'], None])}]], [], strange=2)
scene('two salts, one of 64 digits', [[stored(U[:2], extra_keys=[[digits, 'tenant-a'], None])]],
      [S(0, sh(T, namespace='tenant-a', mm={0: [int(digits[:16], 16)]})[:2])])
scene('embeddings', [[stored(U[:2], extra_keys=[[b'\x01' * 32], [b'\x02' * 32]])]], [], strange=2)
scene('embeddings in the second block, behind a salt', [[stored(U[:3], extra_keys=[['tenant-a'], [b'\x02' * 32], None])]], [S(0, salt[:1])], strange=2)
scene('embeddings of hexadecimal digits', [[stored(U[:2], extra_keys=[[image.encode()], None])]], [], strange=2)
scene('multimodal as objects', [[stored(U[:4], block_mm_infos=[None, {'mm_objects': [{'mm_hash': a, 'offsets': [[0, 1]]}]},
                                                              {'mm_objects': [{'mm_hash': a}, {'offsets': [], 'mm_hash': b}]}, {}])]],
      [S(0, mm)])
scene('a key that has no name here', [[stored(U[:4], extra_keys=[None, None, ['my-image'], None])]], [S(0, SH[:2])], strange=2)

pairs = [[T[i], T[i + 1]] for i in range(3 * B)]
eagle = sh(T[:3 * B + 1], eagle=True)
scene('pairs of tokens', [[stored(U[:3], tokens=pairs)]], [S(0, eagle)])

scene('moved to the host and back', [[stored(U[:2]), stored(U[:2], tokens=[], medium='CPU'), removed(U[:2])],
                                     [removed(U[1:2], medium='CPU'), removed(U[:1], medium='CPU')],
                                     [stored(U[:1], tokens=[], medium='CPU')]],
      [S(0, SH[:2]), S(1, SH[:1]), S(1, SH[1:2], SH[0]), R(0, SH[:2]), R(1, SH[1:2]), R(1, SH[:1])], orphans=1)
scene('the host without keys', [[stored(U[:2], lora_name='adapter-a', extra_keys=[['adapter-a', 'tenant-a'], ['adapter-a']])],
                                [stored(U[:3], tokens=T[:3 * B], medium='CPU'), stored(U[3:4], U[2], T[3 * B:4 * B], medium='CPU')],
                                [removed(U[:2]), removed(U[1:4], medium='CPU')]],
      [S(0, both[:2]), S(1, both[:1]), S(1, both[1:2], both[0]), S(1, both[2:3], both[1]), S(1, both[3:4], both[2]), R(0, both[:2]), R(1, both[1:4])])
scene('the host without keys, a image', [[stored(U[:3], extra_keys=[[[image, 1]], [[image, -3]], None])], [stored(U[:3], medium='CPU')] * 2,
                                           [removed(U[:3], medium='CPU')] * 2],
      [S(0, sh(T[:3 * B], mm={0: [a], 1: [a]})), S(1, both_blocks[:1]), S(1, both_blocks[1:2], both_blocks[0]),
       S(1, sh(T[:3 * B], mm={0: [a], 1: [a]})[2:], both_blocks[1]), R(1, sh(T[:3 * B], mm={0: [a], 1: [a]}))], again=3, kept=3)
scene('the host with keys', [[stored(U[:2], extra_keys=[['tenant-a'], None], medium='CPU')], [stored(U[2:3], U[1], T[2 * B:3 * B], medium='CPU')]],
      [S(1, salt[:2]), S(1, salt[2:3], salt[1])])
scene('chunks of the host', [[stored(U[:1], tokens=T[:2 * B], size=2 * B, medium='CPU'), stored(U[1:3], U[0], T[2 * B:6 * B], size=2 * B, medium='CPU')],
                             [stored(U[3:5], tokens=T[:2 * B])], [removed(U[1:2], medium='CPU'), removed(U[5:6], medium='CPU')]],
      [S(1, SH[:2]), S(1, SH[2:6], SH[1]), S(0, SH[:2]), R(1, SH[3:4]), R(1, SH[2:3])], absent=1)
scene('a chunk stored twice', [[stored(U[:1], tokens=T[:3 * B], size=3 * B, medium='CPU')] * 2, [removed(U[:1], medium='CPU')] * 2],
      [S(1, SH[:3]), R(1, SH[2:3]), R(1, [SH[1], SH[0]])], again=3, kept=3)
scene('a chunk with keys', [[stored(U[:1], tokens=T[:2 * B], size=2 * B, medium='CPU', extra_keys=[['tenant-a']]),
                             stored(U[1:2], U[0], T[2 * B:4 * B], size=2 * B, medium='CPU', extra_keys=[[image]])]], [S(1, salt[:2])], strange=2)
scene('chunks of a wrong size', [[stored(U[:1], tokens=T[:B - 1], size=B - 1, medium='CPU'), stored(U[:1], tokens=T[:B + 1], size=B + 1, medium='CPU'),
                                  stored(U[:1], size=0, medium='CPU'), stored(U[:1], size=257 * B, tokens=T[:4], medium='CPU'),
                                  stored(U[:2], size=2 * B, tokens=T[:3 * B], medium='CPU')]], [S(1, SH[:2])], chunks=4, few_tokens=1)
AHEAD = {**VLLM, 'lookahead_token_ids': [[1]]}
scene('names of one block', [[stored(U[:2], **AHEAD)], [stored(U[2:3], U[0], T[B:2 * B], **AHEAD), stored(U[3:4], U[2], T[2 * B:3 * B], **AHEAD)],
                             [removed(U[2:3])], [removed(U[1:2])], [removed([U[0], U[3]])]],
      [S(0, SH[:2]), S(0, SH[2:3], SH[1]), R(0, SH[1:2]), R(0, [SH[0], SH[2]])], aliases=1, kept=1)
scene('names of one block in two tiers', [[stored(U[:1], **AHEAD), stored(U[1:2], **AHEAD)], [stored(U[:2], tokens=[], medium='CPU')],
                                          [removed(U[:1]), removed(U[1:2], medium='CPU'), removed(U[1:2]), removed(U[:1], medium='CPU')]],
      [S(0, SH[:1]), S(1, SH[:1]), R(0, SH[:1]), R(1, SH[:1])], aliases=1, kept=2)
scene('names of one block, and copies', [[stored(U[:1], **AHEAD)] * 2, [stored(U[1:2], **AHEAD)], [removed(U[:2])], [removed(U[:1])]],
      [S(0, SH[:1]), R(0, SH[:1])], aliases=1, again=1, kept=2)
MANY = list(range(1000, 1034))
scene('more names of a block than are known', [[stored([h], **AHEAD) for h in MANY], [removed(MANY[:2])], [stored(U[:1], MANY[0], T[B:2 * B])],
                                               [stored(U[:1], MANY[2], T[B:2 * B])], [removed(MANY[2:33])], [removed(MANY[33:])]],
      [S(0, SH[:1]), S(0, SH[1:2], SH[0]), R(0, SH[:1])], aliases=33, surplus=2, absent=2, kept=31, orphans=1)
scene('the oldest name of a block alone is in a tier', [[stored(MANY[:1], **AHEAD), stored(MANY[:1], tokens=[], medium='CPU')],
                                                        [stored([h], **AHEAD) for h in MANY[1:33]]],
      [S(0, SH[:1]), S(1, SH[:1]), R(1, SH[:1])], aliases=32, surplus=1)
scene('names before those that are linked', [[stored(U[:2], **VLLM)], [stored(U[2:3], **AHEAD), stored(U[3:4], **AHEAD)], [removed(U[:3])]],
      [S(0, SH[:2]), 'C', S(0, SH[:1])], aliases=1, absent=2, kept=1, cleared=1)
scene('an evicted name of a block', [[stored(U[:1], **AHEAD), stored(U[1:2], **AHEAD), stored(U[2:3], U[0], T[B:2 * B], **AHEAD)],
                                     [stored(U[3:4], tokens=T[2 * B:3 * B], **AHEAD)]],
      [S(0, SH[:1]), S(0, SH[1:2], SH[0]), R(0, SH[:1]), S(0, sh(T[2 * B:3 * B]))], blocks=2, aliases=1, evicted=2)
scene('no lookahead', [[stored(U[:1], lookahead_token_ids=None), stored(U[1:2], U[0], T[B:2 * B], lookahead_token_ids=[])]],
      [S(0, SH[:1]), S(0, SH[1:2], SH[0])])
scene('a parent of 0', [[flat(stored(U[:2], 0))], [stored([0], U[1], T[2 * B:3 * B])], [stored(U[3:4], 0, T[3 * B:4 * B])]],
      [S(0, SH[:2]), S(0, SH[2:3], SH[1]), S(0, SH[3:4], SH[2])])
for medium, tier in (('GPU', 0), ('CPU', 1), ('CPU_PINNED', 1), ('CPU_TIER1', 1), ('CPU_TIER2', 2), ('DISK', 2),
                     ('STORAGE', 2), ('EXTERNAL', 3), ('gpu', 0)):
    scene(f'medium {medium}', [[stored(U[:1], medium=medium), removed(U[:1], medium=medium)]],
          [S(tier, SH[:1]), R(tier, SH[:1])])
scene('an unknown medium', [[stored(U[:1], medium='TAPE'), removed(U[:1], medium='TAPE')]], [], medium=2)

scene('copies leave one by one', [[stored(U[:3])], [stored(U[:3])], [stored(U[:4])], [removed(U[:3]), removed(U[:1])], [removed(U[:3])],
                                  [removed(U[:4])]],
      [S(0, SH[:3]), S(0, SH[3:4], SH[2]), R(0, SH[:1]), R(0, SH[1:4])], again=6, kept=6, absent=1)
scene('copies of each tier', [[stored(U[:2]), stored(U[:2])], [stored(U[1:2], tokens=[], medium='CPU')] * 3,
                              [removed(U[1:2]), removed(U[1:2], medium='CPU'), removed(U[1:2], medium='CPU')], [removed(U[:2])],
                              [removed(U[:2])], [removed(U[1:2], medium='CPU'), removed(U[1:2], medium='CPU')]],
      [S(0, SH[:2]), S(1, SH[1:2], SH[0]), R(0, SH[1:2]), R(0, SH[:1]), R(1, SH[1:2])], again=4, kept=4, absent=2)
scene('a clear ends the counts', [[stored(U[:2])] * 3, [CLEARED], [stored(U[:2])], [removed(U[:2]), removed(U[:2])]],
      [S(0, SH[:2]), 'C', S(0, SH[:2]), R(0, SH[:2])], again=4, absent=2, cleared=1)
scene('another name for the content ends its counts', [[stored(U[:1])] * 3, [stored(U[:1], tokens=T[B:2 * B])], [removed(U[:1])]],
      [S(0, SH[:1]), R(0, SH[:1]), S(0, sh(T[B:2 * B])), R(0, sh(T[B:2 * B]))], again=2)
scene('blocks that are reused', [[stored(U[:2], origin='NEW')], [stored(U[:2], origin='REUSED'), stored(U[1:2], U[0], T[B:2 * B], origin='NEW')],
                                 [stored(U[2:3], U[1], T[2 * B:3 * B], origin='REUSED')], [removed(U[:3])]],
      [S(0, SH[:2]), S(0, SH[2:3], SH[1]), R(0, [SH[0], SH[2]])], again=3, kept=1)
scene('copies of an evicted block', [[stored(U[:2])] * 2, [stored(U[2:3], U[1], T[2 * B:3 * B])], [removed(U[:2])], [stored(U[:1])], [removed(U[:1])]],
      [S(0, SH[:2]), R(0, SH[:1]), S(0, SH[2:3], SH[1]), R(0, SH[1:2]), S(0, SH[:1]), R(0, SH[:1])],
      blocks=2, again=2, evicted=2, kept=1, absent=1)
scene('a hole that is filled', [[stored(U[:4])], [removed(U[1:2])], [stored(U[:4])]],
      [S(0, SH[:4]), R(0, SH[1:2]), S(0, SH[1:2], SH[0])], again=3)
scene('an unknown parent', [[stored(U[1:3], U[0], T[B:3 * B])]], [], orphans=2)
scene('not tokens enough', [[stored(U[:3], tokens=T[:2 * B + 1])]], [S(0, SH[:2])], few_tokens=1)
scene('another block size', [[stored(U[:2], tokens=T[:4 * B], size=2 * B)]], [], size=1)
scene('a name that means something else now', [[stored(U[:1])], [stored(U[:1], tokens=T[B:2 * B])]],
      [S(0, SH[:1]), R(0, SH[:1]), S(0, sh(T[B:2 * B]))])
scene('remote and others', [[stored(U[:1], locality='REMOTE'), stored(U[:1], locality='ELSEWHERE'),
                             stored(U[:1], ownership='kvcr'), removed(U[:1], locality='REMOTE'),
                             stored(U[:1], locality='LOCAL', ownership='self')]], [S(0, SH[:1])], foreign=4)
scene('groups of a hybrid model',
      [[stored(U[:2], **VLLM)], [stored(U[:2], **{**VLLM, 'group_idx': 1, 'kv_cache_spec_kind': 'sliding_window'}),
                                stored(U[:2], **{**VLLM, 'group_idx': 2, 'kv_cache_spec_kind': 'mamba'})],
       [removed(U[:2], group_idx=1), flat(removed(U[:2], group_idx=2)), flat(removed(U[:1], group_idx=0))],
       [flat(stored(U[:1], **{**VLLM, 'kv_cache_spec_kind': 'mla_attention'}))]],
      [S(0, SH[:2]), R(0, SH[:1]), S(0, SH[:1])], group=4)
scene('groups without a kind',
      [[flat(stored(U[:3], lora_name=None, extra_keys=None, group_idx=i)) for i in (0, 1)], [flat(removed(U[:2], group_idx=1))],
       [flat(removed(U[2:3], group_idx=0))]], [S(0, SH[:3]), R(0, SH[2:3])], group=2)
scene('a group that never stored', [[removed(U[:1], group_idx=0)], [stored(U[:2], **VLLM)], [removed(U[:2], group_idx=3)],
                                    [removed(U[:2], group_idx=0)]], [S(0, SH[:2]), R(0, SH[:2])], group=2)
scene('a group without a kind, then one of full attention',
      [[stored(U[:2], group_idx=1)], [stored(U[:2], **VLLM)], [removed(U[:1], group_idx=1)], [removed(U[:1], group_idx=0)]],
      [S(0, SH[:2]), 'C', S(0, SH[:2]), R(0, SH[:1])], group=1, cleared=1)
scene('two groups of full attention',
      [[stored(U[:2], **VLLM), stored(U[:2], **{**VLLM, 'group_idx': 1})], [removed(U[:1], group_idx=1), removed(U[1:2], group_idx=0)]],
      [S(0, SH[:2]), R(0, SH[1:2])], group=2)
scene('the first group of full attention has another block size',
      [[stored(U[4:5], tokens=T[:2 * B], size=2 * B, **VLLM), stored(U[:2], **{**VLLM, 'group_idx': 1})],
       [removed(U[4:5], group_idx=0), removed(U[1:2], group_idx=1)]], [S(0, SH[:2]), R(0, SH[1:2])], group=1, size=1)
scene('kinds of a hybrid model',
      [[stored(U[:1], **VLLM),
        stored(U[1:2], U[0], T[B:2 * B], **{**VLLM, 'kv_cache_spec_kind': 'sink_full_attention'})],
       [stored(U[:2], **{**VLLM, 'group_idx': i + 1, 'kv_cache_spec_kind': kind}) for i, kind in enumerate(
           ('chunked_local_attention', 'encoder_only_attention', 'cross_attention', 'sliding_window_mla'))],
       [removed(U[:2], group_idx=i + 1) for i in range(4)]],
      [S(0, SH[:1]), S(0, SH[1:2], SH[0])], group=8)
scene('unknown types', [[{'type': 'BlockInactive', 'block_hashes': [1]}, ['Snapshot', 1, {'a': 2}], {}, [], 7, 'x',
                              {'type': 5}, stored(U[:1])]], [S(0, SH[:1])], unknown=7)
scene('shapes that are wrong', [[stored('x'), stored([None]), stored([]), stored(U[:1], tokens='abc'), stored(U[:1], size='4'),
                                 stored(U[:1], parent=[1]), stored([b'1234567'])]], [], bad=7)
scene('more than there is room for', [[stored(U[:4])], [stored(U[4:8], U[3], T[4 * B:8 * B])]],
      [S(0, SH[:4]), R(0, SH[:1]), S(0, SH[4:5], SH[3]), R(0, SH[1:2]), S(0, SH[5:6], SH[4]), R(0, SH[2:3]),
       S(0, SH[6:7], SH[5]), R(0, SH[3:4]), S(0, SH[7:8], SH[6])], blocks=4, evicted=4)
scene('an event larger than the table', [[stored(U[:5])]],
      [S(0, SH[:2]), R(0, SH[:1]), S(0, SH[2:3], SH[1]), R(0, SH[1:2]), S(0, SH[3:4], SH[2]), R(0, SH[2:3]),
       S(0, SH[4:5], SH[3])], blocks=2, evicted=3)
scene('nothing at all', [[]], [])


def main(path):
    with open(path, 'w') as out:
        print('/* Made by vectors.py. */', file=out)
        for i, (_, payloads, *_) in enumerate(SCENES):
            for k, payload in enumerate(payloads):
                print(f'static const uint8_t payload_{i}_{k}[] = {{{", ".join(map(str, payload))}}};', file=out)
            print(f'static const struct payload payloads_{i}[] = {{', file=out)
            for k in range(len(payloads)):
                print(f'\t{{payload_{i}_{k}, sizeof(payload_{i}_{k})}},', file=out)
            print('};', file=out)
        print('static const struct scene scenes[] = {', file=out)
        for i, (name, payloads, want, first_bytes, blocks, counters) in enumerate(SCENES):
            text = ''.join(f'\n\t\t"{line}\\n"' for line in want) or '""'
            cells = ', '.join(f'{{"{k}", {v}}}' for k, v in counters.items())
            print(f'\t{{"{name}", payloads_{i}, {len(payloads)}, {str(first_bytes).lower()}, {blocks},'
                  f' {{{cells}}}, {text}}},', file=out)
        print('};', file=out)


main(sys.argv[1])
