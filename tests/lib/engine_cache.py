# SPDX-License-Identifier: BSD-3-Clause
"""The prefix cache of the stand-in engine, and how engines tell the world about it.

A cache of whole blocks for each rank, least recently used first to go; the hash of a block is
SHA-256 of its parent's and what is in it. Each change becomes an event in the form that is asked
for, numbered, kept for replay, and published by ZMQ.
"""

import asyncio
import hashlib
import struct
import time
from collections import Counter, OrderedDict, deque

import msgpack
import zmq
import zmq.asyncio

REPLAY_BATCHES = 10000  # as engines keep


class Events:
    """The stream of one rank: PUB, and ROUTER for replay."""

    def __init__(self, o, rank):
        self.o, self.rank, self.seq = o, rank, 0
        self.kept = deque(maxlen=REPLAY_BATCHES)
        self.drop = 0  # batches that are not to be published: the network lost them
        self.published = self.dropped = self.replayed = 0
        self.pub = self.router = None
        if o.events:
            context = zmq.asyncio.Context.instance()
            self.pub = context.socket(zmq.PUB)
            self.pub.set_hwm(100000)
            self.pub.linger = 0
            self.pub.bind(shift(o.events, rank))
            if o.replay:
                self.router = context.socket(zmq.ROUTER)
                self.router.linger = 0
                self.router.bind(shift(o.replay, rank))

    async def serve(self):
        """Answer replay requests: everything kept from a number on, then the end marker."""
        while self.router:
            frames = await self.router.recv_multipart()
            if len(frames) != 3 or frames[1] or len(frames[2]) != 8:
                continue
            start = int.from_bytes(frames[2], 'big')
            for seq, payload in list(self.kept):
                if seq >= start:
                    self.replayed += 1
                    await self.answer(frames[0], self.o.topic, struct.pack('>Q', seq), payload)
            await self.answer(frames[0], '', struct.pack('>q', -1), b'')

    async def answer(self, who, topic, seq, payload):
        middle = [topic.encode()] if self.o.replay_framing == 'new' else []
        await self.router.send_multipart([who, b'', *middle, seq, payload])

    async def publish(self, events):
        if not self.pub or not events:
            return
        batch = [time.time(), events, self.rank]
        if self.o.batch_form == 'map':
            batch = {'ts': batch[0], 'events': events, 'data_parallel_rank': self.rank}
        elif self.o.no_rank:
            batch.pop()
        await self.raw(msgpack.packb(batch))

    async def raw(self, payload):
        seq, self.seq = self.seq, self.seq + 1
        self.kept.append((seq, payload))
        if self.drop > 0:
            self.drop -= 1
            self.dropped += 1
            return
        self.published += 1
        message = [self.o.topic.encode(), struct.pack('>Q', seq), payload]
        if self.o.events_late:
            asyncio.get_running_loop().call_later(self.o.events_late, self.pub.send_multipart, message)
        else:
            await self.pub.send_multipart(message)


def shift(endpoint, rank):
    """tcp://*:5557 of rank 2 is tcp://*:5559."""
    base, _, port = endpoint.rpartition(':')
    return f'{base}:{int(port) + rank}' if port.isdigit() else f'{endpoint}.{rank}'


class Block:
    __slots__ = ('digest', 'parent', 'tokens', 'keys', 'lora', 'salt')

    def __init__(self, digest, parent, tokens, keys, lora, salt):
        self.digest, self.parent, self.tokens = digest, parent, tokens
        self.keys, self.lora, self.salt = keys, lora, salt


class Cache:
    """What one rank holds."""

    def __init__(self, o, events):
        self.o, self.events = o, events
        self.blocks = OrderedDict()  # digest -> Block, the least recently used first
        self.copies = Counter()      # digest -> copies beyond the first
        self.lower = OrderedDict()   # digest -> Block: pushed out to the host's memory

    def chain(self, tokens, lora=None, salt=None, mm=()):
        """Blocks of a prompt, whether they are cached or not. mm: (first token, n, hash) each."""
        size, parent, out = self.o.block_size, None, []
        window = size + self.o.eagle
        for at in range(0, len(tokens) - window + 1, size):
            keys = [h for first, n, h in mm if first < at + size and first + n > at]
            piece = tuple(tokens[at:at + window])
            digest = hashlib.sha256(repr((parent, piece, keys, lora, salt if at == 0 else None))
                                    .encode()).digest()
            out.append(Block(digest, parent, piece, keys, lora, salt))
            parent = digest
        return out

    def cached(self, chain):
        n = 0
        while n < len(chain) and chain[n].digest in self.blocks:
            n += 1
        return n

    async def add(self, chain):
        """Hold these blocks; publish events of stored and removed ones."""
        new = [b for b in chain if b.digest not in self.blocks]
        again = chain[-1:] if self.o.copies and not new else []  # its last token is computed again, into another block
        events, went = [], []
        for b in new:
            self.blocks[b.digest] = b
            self.lower.pop(b.digest, None)
        for b in reversed(chain):  # the end of a prompt goes first
            self.blocks.move_to_end(b.digest)
        self.copies.update(b.digest for b in again)
        while len(self.blocks) + self.copies.total() > self.o.blocks:
            went.append(self.evict())
        if went:
            events.append(self.removed(went))
            if self.o.offload:
                events.append(self.stored(went, 'CPU', with_tokens=False))
        for run in runs(new):
            events.append(self.stored(run, 'GPU', **self.unknown_key()))
        if again:
            events.append(self.stored(again, 'GPU'))
        if self.o.repeat_stores and chain:  # reused blocks are announced again
            events.append(self.stored(chain, 'GPU', origin='REUSED'))
        events += self.oddities(chain)
        if events:
            await self.events.publish(events)

    def evict(self):
        """One block leaves; its hash stays cached while there are copies of it."""
        digest, block = self.blocks.popitem(last=False)
        if self.copies[digest] > 0:
            self.copies[digest] -= 1
            self.blocks[digest] = block
        return block

    async def clear(self):
        self.blocks.clear()
        self.copies.clear()
        await self.events.publish([{'type': 'AllBlocksCleared'} if self.o.form == 'map'
                                   else ['AllBlocksCleared']])

    async def drop(self, n):
        """n blocks leave, the least recently used first."""
        went = [self.evict() for _ in range(min(n, len(self.blocks) + self.copies.total()))]
        if went:
            await self.events.publish([self.removed(went)])

    def name(self, digest):
        """A digest as the stream has it."""
        if digest is None or self.o.hash == 'bytes':
            return digest
        part = digest[:8] if self.o.type == 'sglang' else digest[-8:]
        return int.from_bytes(part, 'big', signed=self.o.hash == 'int')

    def tokens(self, run):
        if self.o.eagle:
            return [pair for b in run for pair in zip(b.tokens, b.tokens[1:])]
        return [t for b in run for t in b.tokens]

    def keys(self, block):
        """What vLLM names in a block besides its tokens: adapter, pictures, in the first one the salt."""
        pictures = [[h, i] for i, h in enumerate(block.keys)] if self.o.key_offsets else block.keys
        salt = [block.salt] if block.salt and block.parent is None else []
        return [*([block.lora] if block.lora else []), *pictures, *salt]

    def stored(self, run, medium, with_tokens=True, **more):
        first = run[0]
        sglang = self.o.type == 'sglang'
        if sglang:
            medium = {'CPU': 'CPU_PINNED'}.get(medium, medium)
        keys = None if sglang else [self.keys(b) or None for b in run]
        keys = keys if keys and any(keys) else None
        event = {
            'type': 'BlockStored',
            'block_hashes': [self.name(b.digest) for b in run],
            'parent_block_hash': self.name(first.parent),
            'token_ids': self.tokens(run) if with_tokens else [],
            'block_size': self.o.event_block_size or self.o.block_size,
            'lora_id': 1 if first.lora else None,
            'medium': medium,
        }
        if sglang:
            if first.salt:
                event['metadata' if self.o.form == 'positional' else 'cache_salt'] = \
                    {'cache_salt': first.salt} if self.o.form == 'positional' else first.salt
            elif self.o.form == 'map':
                if medium == 'GPU':
                    del event['medium']
            elif self.o.early:
                del event['medium']
        else:
            event['lora_name'] = first.lora
            event['extra_keys'] = keys
            event['group_idx'] = 0
            event['kv_cache_spec_kind'] = 'full_attention'
        event.update(more)
        return self.form(event)

    def removed(self, run, **more):
        event = {'type': 'BlockRemoved', 'block_hashes': [self.name(b.digest) for b in run],
                 'medium': 'GPU'}
        if self.o.type == 'vllm':
            event['group_idx'] = 0
        elif self.o.early or self.o.form == 'map':
            del event['medium']
        event.update(more)
        return self.form(event)

    def form(self, event):
        return event if self.o.form == 'map' else list(event.values())

    def oddities(self, chain):
        """What else a stream of today may have, and no index should believe."""
        out = []
        if not chain or self.o.type != 'vllm' or not self.o.odd:
            return out
        strange = [Block(hashlib.sha256(b.digest + b'strange').digest(), b.parent, b.tokens, [],
                         None, None) for b in chain[:2]]
        out.append(self.form({'type': 'BlockInactive', 'block_hashes': [1, 2]}))
        out.append(self.stored(strange, 'GPU', group_idx=1, kv_cache_spec_kind='sliding_window',
                               kv_cache_spec_sliding_window=1024))
        if self.o.form == 'map':
            out.append(self.stored(strange, 'STORAGE', locality='REMOTE'))
            out.append(self.stored(strange, 'GPU', ownership='another-owner', session_id='s'))
        return out

    def unknown_key(self):
        return {'some_new_key': {'a': [1, None, 2.5]}} if self.o.odd and self.o.form == 'map' else {}


def runs(blocks):
    """Cut where a block does not follow the one before, or is of another adapter."""
    run = []
    for b in blocks:
        if run and (b.parent != run[-1].digest):
            yield run
            run = []
        run.append(b)
    if run:
        yield run
