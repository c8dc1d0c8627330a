# SPDX-License-Identifier: BSD-3-Clause
"""The reference's side of reference_decisions.py: seeded requests, KV events and completions, carried out on its selection core.

reference_script.py CASE SEED REQUESTS SURFACE OUTPUT MODEL      in the Python that has ai-dynamo-runtime
SURFACE: `service` is SelectionService, `router` is the KvRouter binding. OUTPUT receives the lines of a scenario for kvroute-explain, in which each
booking is pinned to the rank that the reference chose, and the reference's answers.
"""

import asyncio
import hashlib
import json
import os
import random
import sys
import time
from collections import Counter

E = 'DYN_ROUTER_'

# Case: (block size, workers, ranks of each, environment of the reference, keys of our pool, kinds of steps)
CASES = {
    'default16': (16, 4, 1, {}, {}, ''),
    'default128': (128, 4, 1, {}, {}, ''),
    'default64': (64, 4, 2, {}, {}, ''),
    'ranks64': (16, 8, 8, {}, {}, ''),
    'weights': (16, 4, 2, {E + 'KV_OVERLAP_SCORE_CREDIT': '0.7', E + 'PREFILL_LOAD_SCALE': '2.5'},
                dict(overlap_score_credit=0.7, prefill_load_scale=2.5), ''),
    'credit3': (16, 4, 2, {E + 'KV_OVERLAP_SCORE_CREDIT': '3', E + 'PREFILL_LOAD_SCALE': '20'},
                dict(overlap_score_credit=3, prefill_load_scale=20), ''),
    'decay': (16, 4, 2, {E + 'KV_OVERLAP_SCORE_CREDIT_DECAY': '0.8'}, dict(overlap_score_credit_decay=0.8), ''),
    'requestweight': (16, 4, 2, {E + 'DECODE_ACTIVE_REQUEST_WEIGHT': '1.5'}, dict(decode_active_request_weight=1.5), ''),
    'noactive': (16, 4, 2, {E + 'TRACK_ACTIVE_BLOCKS': 'false'}, dict(router_track_active_blocks=False), ''),
    'noprefill': (16, 4, 2, {E + 'TRACK_PREFILL_TOKENS': 'false'}, dict(router_track_prefill_tokens=False), ''),
    'noreuse': (16, 4, 2, {E + 'ASSUME_KV_REUSE': 'false'}, dict(router_assume_kv_reuse=False), ''),
    'output': (16, 4, 2, {E + 'TRACK_OUTPUT_BLOCKS': 'true'}, dict(router_track_output_blocks=True), 'output'),
    'override': (16, 4, 2, {}, {}, 'override'),
    'constraints': (16, 4, 2, {}, {}, 'constraints'),
    'adapters': (16, 4, 2, {}, {}, 'adapters'),
    'decodepool': (16, 4, 2, {E + 'TRACK_PREFILL_TOKENS': 'false'}, dict(router_track_prefill_tokens=False, role='decode'), ''),
    'tiers': (16, 4, 2, {E + 'HOST_CACHE_HIT_WEIGHT': '0.7', E + 'DISK_CACHE_HIT_WEIGHT': '0.3'},
              dict(host_cache_hit_weight=0.7, disk_cache_hit_weight=0.3), 'tiers'),
    'holes': (16, 4, 2, {}, {}, 'holes'),
    'twice': (16, 4, 2, {}, {}, 'twice'),
    'approximate': (16, 4, 2, {E + 'USE_KV_EVENTS': 'false'}, dict(use_kv_events=False), 'noevents'),
    'predicted': (16, 4, 2, {E + 'PREDICTED_TTL_SECS': '600'}, dict(router_predicted_ttl_secs=600), ''),
}
MEDIUM = {'device': 'GPU', 'host': 'CPU', 'disk': 'DISK'}


class Prompts:
    """Conversations over shared system prompts, with lengths below, at and between block boundaries."""

    def __init__(self, rand, block):
        self.rand, self.block = rand, block
        self.system = [self.fresh(block * rand.randrange(4, 20)) for _ in range(6)]
        self.talks = []

    def fresh(self, n):
        return [self.rand.randrange(1, 1 << 17) for _ in range(n)]

    def next(self):
        rand, b = self.rand, self.block
        kind = rand.random()
        if kind < 0.05:
            return self.fresh(rand.randrange(1, b + 2))
        if kind < 0.5 and self.talks:
            text = rand.choice(self.talks) + self.fresh(rand.randrange(1, 6 * b))
        else:
            text = rand.choice(self.system) + self.fresh(rand.randrange(1, 10 * b))
        self.talks = (self.talks + [text])[-24:]
        return text


def engine_hash(tokens, how):
    return int.from_bytes(hashlib.blake2b(repr((how, tokens)).encode(), digest_size=8).digest(), 'little') >> 1


class Dynamo:
    """SelectionService, its workers and their KV events."""

    def __init__(self, block, events=True):
        import msgpack
        import zmq
        from dynamo.llm import SelectionService
        self.msgpack, self.zmq, self.block, self.events = msgpack, zmq, block, events
        self.service = SelectionService(indexer_threads=2)
        self.context, self.ranks, self.fresh = zmq.Context(), {}, 1 << 40

    async def worker(self, worker, ranks, taints, kv, batch):
        where = {}
        for r in range(ranks):
            s = self.context.socket(self.zmq.PUB)
            s.set_hwm(0)
            where[r] = f'tcp://127.0.0.1:{s.bind_to_random_port("tcp://127.0.0.1")}'
            self.ranks[worker, r] = [s, 0]
        await self.service.upsert_worker(dict(
            worker_id=worker, endpoint=f'http://w{worker}', block_size=self.block, data_parallel_size=ranks, taints=taints,
            total_kv_blocks=kv, max_num_batched_tokens=batch, **(dict(kv_events_endpoints=where) if self.events else {})))
        return worker

    def publish(self, rank, *events):
        s = self.ranks[rank]
        s[0].send_multipart([b'', s[1].to_bytes(8, 'big'), self.msgpack.packb([time.time(), list(events), rank[1]])])
        s[1] += 1

    async def seen(self, rank):
        """Wait until the rank's events are applied: a block of our own, published last, is found."""
        self.fresh += 1
        own = [self.fresh % (1 << 31) + i for i in range(self.block)]
        end = time.monotonic() + 20
        again = 0
        while time.monotonic() < end:
            if time.monotonic() > again:
                self.publish(rank, ['BlockStored', [self.fresh], None, own, self.block, None, 'GPU', None])
                again = time.monotonic() + 0.3
            got = await self.service.overlap_scores(dict(token_ids=own))
            if any(w['worker_id'] == rank[0] and w['dp_rank'] == rank[1] and w['device_blocks'] for w in got['workers']):
                self.publish(rank, ['BlockRemoved', [self.fresh], 'GPU'])
                return
            await asyncio.sleep(0.0005)
        raise RuntimeError(f'events of {rank} are not applied')

    async def store(self, rank, tokens, first, tier, lora, salt):
        b = self.block
        names = [engine_hash(tokens[:(i + 1) * b], (lora, salt)) for i in range(len(tokens) // b)]
        event = ['BlockStored', names[first:], names[first - 1] if first else None, tokens[first * b:len(names) * b], b, None, MEDIUM[tier], lora]
        if salt:
            event.append([['dynamo-cache-salt:' + salt] if i == 0 and not first else None for i in range(len(names) - first)])
        self.publish(rank, event)
        await self.seen(rank)

    async def remove(self, rank, names, tier):
        self.publish(rank, ['BlockRemoved', names, MEDIUM[tier]])
        await self.seen(rank)

    async def ready(self, ranks):
        if self.events:
            for rank in self.ranks:
                await self.seen(rank)

    async def ask(self, body):
        return await self.service.potential_loads(body), (await self.service.overlap_scores(body))['workers']

    async def book(self, body, id):
        got = await self.service.select_and_reserve(dict(body, selection_id=id))
        return dict(got, overlap_blocks=got['overlap']['dp'][str(got['dp_rank'])] // self.block)

    async def begun(self, id):
        await self.service.prefill_complete(id)

    async def free(self, id):
        await self.service.free_reservation(id)


class Binding:
    """The same on KvRouter, the binding that dynamo.router uses; workers and publishers are made here."""

    def __init__(self, block, keys, events=True):
        from dynamo import llm
        from dynamo.runtime import DistributedRuntime
        self.llm, self.runtime, self.block, self.events, self.keys = llm, DistributedRuntime, block, events, keys
        self.publishers, self.names, self.router, self.keep, self.fresh = {}, {}, None, [], 1 << 40

    async def worker(self, worker, ranks, taints, kv, batch):
        loop = asyncio.get_running_loop()
        runtime = self.runtime(loop, 'file', 'tcp')
        end = runtime.endpoint('n.c.generate')
        c = self.llm.ModelRuntimeConfig()
        c.total_kv_blocks, c.max_num_batched_tokens, c.data_parallel_start_rank, c.data_parallel_size = kv, batch, 0, ranks
        c.enable_local_indexer = False

        async def nothing(request, context=None):
            yield {}
        self.keep.append((runtime, end, end.serve_endpoint(nothing)))
        await self.llm.register_model(self.llm.ModelInput.Tokens, self.llm.ModelType.Chat, end, MODEL, 'tiny', worker_type=self.llm.WorkerType.Aggregated,
                                      kv_cache_block_size=self.block, runtime_config=c, self_host_metadata=False)
        name = end.connection_id()
        for r in range(ranks):
            self.publishers[name, r] = self.llm.KvEventPublisher(end, kv_block_size=self.block, dp_rank=r)
        return name

    async def ready(self, ranks):
        runtime = self.runtime(asyncio.get_running_loop(), 'file', 'tcp')
        end = runtime.endpoint('n.c.generate')
        self.keep.append((runtime, end))
        self.router = self.llm.KvRouter(endpoint=end, block_size=self.block, kv_router_config=self.llm.KvRouterConfig(**self.keys))
        finish = time.monotonic() + 20
        while len(await self.router.get_potential_loads([1] * self.block)) < ranks and time.monotonic() < finish:
            await asyncio.sleep(0.1)
        if self.events:
            for rank in self.publishers:
                await self.seen(rank)

    async def seen(self, rank):
        self.fresh += 1
        own = [self.fresh % (1 << 31) + i for i in range(self.block)]
        end, again, p = time.monotonic() + 20, 0, self.publishers[rank]
        while time.monotonic() < end:
            if time.monotonic() > again:
                p.publish_stored(own, [self.block], [self.fresh])
                again = time.monotonic() + 0.3
            got = await self.router.get_overlap_scores(own)
            if any((w['worker_id'], w['dp_rank']) == rank and w['device_blocks'] for w in got['workers']):
                p.publish_removed([self.fresh])
                return
            await asyncio.sleep(0.0005)
        raise RuntimeError(f'events of {rank} are not applied')

    async def store(self, rank, tokens, first, tier, lora, salt):
        b = self.block
        names = [engine_hash(tokens[:(i + 1) * b], (lora, salt)) for i in range(len(tokens) // b)]
        self.publishers[rank].publish_stored(tokens[first * b:len(names) * b], [b] * (len(names) - first), names[first:],
                                             parent_hash=names[first - 1] if first else None, lora_name=lora, cache_salt=salt)
        await self.seen(rank)

    async def remove(self, rank, names, tier):
        self.publishers[rank].publish_removed(names)
        await self.seen(rank)

    async def ask(self, body):
        how = dict(lora_name=body.get('lora_name'), cache_namespace=body.get('cache_salt'))
        return await self.router.get_potential_loads(body['token_ids'], **how), (await self.router.get_overlap_scores(body['token_ids'], **how))['workers']

    async def book(self, body, id):
        w, r, overlap = await self.router.best_worker(body['token_ids'], request_id=id, lora_name=body.get('lora_name'), cache_namespace=body.get('cache_salt'),
                                                      router_config_override=body.get('router_config_override'), update_indexer=not self.events or 'router_predicted_ttl_secs' in self.keys)
        return dict(worker_id=w, dp_rank=r, overlap_blocks=overlap)

    async def begun(self, id):
        await self.router.mark_prefill_complete(id)

    async def free(self, id):
        await self.router.free(id)


class Script:
    """Makes the steps, carries them out on the reference, collects our lines and its answers."""

    def __init__(self, case, seed, requests, surface):
        self.block, workers, self.dp, _, keys, self.kinds = CASES[case]
        self.rand, self.requests = random.Random(f'{case} {seed}'), requests
        self.lines, self.answers, self.live, self.have, self.content = [], {}, [], {}, {}
        self.prompts = Prompts(self.rand, self.block)
        self.workers = [11 + 7 * i for i in range(workers)]
        self.line(op='pool', name='m', block_size=self.block, seed=seed, config={k: v for k, v in keys.items() if k != 'role'}, role=keys.get('role'))
        events = 'noevents' not in self.kinds
        self.copies, self.counted = Counter(), surface == 'router'
        self.d = Dynamo(self.block, events) if surface == 'service' else Binding(self.block, {k: v for k, v in keys.items() if k != 'role'}, events)

    def line(self, **fields):
        self.lines.append({k: v for k, v in fields.items() if v is not None})

    async def run(self):
        for i, w in enumerate(self.workers):
            taints = [f'kind={i % 2}', 'all'] if 'constraints' in self.kinds else []
            w = self.workers[i] = await self.d.worker(w, self.dp, taints, 4000 + 500 * i, 8192)
            self.line(op='worker', worker=w, dp_size=self.dp, total_kv_blocks=4000 + 500 * i, max_num_batched_tokens=8192, taints=taints)
            self.have.update({(w, r): [] for r in range(self.dp)})
        await self.d.ready(len(self.have))
        for n in range(self.requests):
            await self.route(n)
            for _ in range(self.rand.randrange(4)):
                await self.step()

    def hints(self):
        """Hints of one request: for the reference, for `routing` of our line, for the line itself."""
        rand, dynamo, routing, line = self.rand, {}, {}, {}
        if 'override' in self.kinds and rand.random() < 0.7:
            line['override'] = dynamo['router_config_override'] = rand.choice((
                dict(overlap_score_credit=0.3), dict(prefill_load_scale=3.0), dict(overlap_score_credit=0.0),
                dict(overlap_score_credit=2.0, prefill_load_scale=0.5), dict(assume_kv_reuse=False), dict(track_prefill_tokens=False),
                dict(overlap_score_weight=2.0), dict(overlap_score_weight=0.0)))
        if 'constraints' in self.kinds:
            k = rand.randrange(5)
            if k == 0:
                routing['allowed_worker_ids'] = dynamo['allowed_worker_ids'] = rand.sample(self.workers, 2)
            elif k == 1:
                routing['routing_constraints'] = dynamo['routing_constraints'] = dict(required_taints=['kind=1'])
            elif k == 2:
                routing['routing_constraints'] = dynamo['routing_constraints'] = dict(preferred_taints={'kind=0': rand.choice((0.4, -0.7, 2.0)), 'all': 0.1})
        if 'adapters' in self.kinds:
            lora, salt = rand.choice((None, 'one', 'two')), rand.choice((None, None, 'salt'))
            if lora:
                routing['lora_name'] = dynamo['lora_name'] = lora
            if salt:
                routing['cache_namespace'] = dynamo['cache_salt'] = salt
        if 'output' in self.kinds and rand.random() < 0.7:
            routing['expected_output_tokens'] = dynamo['expected_output_tokens'] = rand.randrange(1, 400)
        return dynamo, routing, line

    async def route(self, n):
        tokens = self.prompts.next()
        dynamo, routing, line = self.hints()
        body = dict(token_ids=tokens, **dynamo)
        asking = {k: v for k, v in body.items() if k in ('token_ids', 'lora_name', 'cache_salt')}
        loads, scores = await self.d.ask(asking)
        try:
            got = await self.d.book(body, f'r{n}')
        except Exception as e:  # noqa: BLE001: an answer
            got = dict(error=str(e))
        self.answers[f'{n}'] = dict(loads=loads, scores=scores, got=got)
        plain = not {'lora_name', 'cache_namespace'} & set(routing)
        if plain:  # `loads` and `scores` of kvroute-explain have no adapters
            self.line(op='loads', tokens=tokens)
            self.line(op='scores', tokens=tokens)
        else:
            self.line(op='hash', tokens=tokens, lora_name=routing.get('lora_name'), cache_namespace=routing.get('cache_namespace'))
        self.line(op='route', id=f'q{n}', tokens=tokens, routing=routing or None, annotations=['query_instance_id:'], **line)
        if 'error' in got:
            return
        rank = got['worker_id'], got['dp_rank']
        keep = {k: v for k, v in routing.items() if k in ('lora_name', 'cache_namespace', 'expected_output_tokens')}
        self.line(op='route', id=f'r{n}', tokens=tokens, routing=dict(keep, backend_instance_id=rank[0], dp_rank=rank[1]), **line)
        self.live.append(dict(id=f'r{n}', rank=rank, tokens=tokens, lora=routing.get('lora_name'), salt=routing.get('cache_namespace'),
                              osl=routing.get('expected_output_tokens'), made=0, blocks=-(-len(tokens) // self.block), begun=False))

    async def step(self):
        if not self.live:
            return
        rand = self.rand
        r = rand.choice(self.live)
        what = rand.random()
        if what < 0.35 and not r['begun']:
            r['begun'] = True
            await self.d.begun(r['id'])
            self.line(op='prefill_done', id=r['id'])
            if 'output' in self.kinds:
                await self.output(r, 1)
            if self.d.events:
                await self.store(r['rank'], r['tokens'], r['lora'], r['salt'], 'device')
        elif what < 0.55 and 'output' in self.kinds and r['begun']:
            await self.output(r, rand.randrange(1, 40))
        elif what < 0.75 and r['begun']:
            self.live.remove(r)
            await self.d.free(r['id'])
            self.line(op='finish', id=r['id'])
        elif self.d.events and what < 0.9:
            rank = rand.choice(list(self.have))
            if self.have[rank] and rand.random() < 0.6:
                await self.evict(rank)
            elif self.prompts.talks:
                text = rand.choice(self.prompts.talks)
                await self.store(rank, text, None, None, rand.choice(('device', 'host', 'disk')) if 'tiers' in self.kinds else 'device')

    async def output(self, r, tokens):
        """RequestGuard of KvPushRouter counts a block for each boundary that an item crosses."""
        for _ in range(tokens):
            r['made'] += 1
            total = -(-(len(r['tokens']) + r['made']) // self.block)
            if total > r['blocks']:
                decay = max(0.0, 1 - r['made'] / max(r['osl'], 1)) if r['osl'] else None
                self.d.service.add_output_block(r['id'], decay_fraction=decay)
                r['blocks'] = total
            self.line(op='output', id=r['id'], tokens=1)

    async def store(self, rank, tokens, lora, salt, tier):
        blocks = len(tokens) // self.block
        if blocks == 0:
            return
        names, there = self.names(tokens, lora, salt), self.content.setdefault((rank, tier), {})
        if tier != 'device':  # blocks that left the device
            first = self.rand.randrange(0, blocks)
        else:  # an engine publishes new blocks
            first = 0
            while 'twice' not in self.kinds and first < blocks and names[first] in there:
                first += 1
        if first == blocks:
            return
        await self.d.store(rank, tokens[:blocks * self.block], first, tier, lora, salt)
        self.copies.update((rank, tier, name) for name in names[first:])
        self.line(op='store', worker=rank[0], dp_rank=rank[1], tier=tier, tokens=tokens[:blocks * self.block], lora_name=lora, cache_namespace=salt,
                  **({'from': first} if first else {}))
        self.have[rank].append((tokens[:blocks * self.block], first, tier, lora, salt))
        for k in range(first, blocks):
            there[names[k]] = names[k - 1] if k else None

    def names(self, tokens, lora, salt):
        return [engine_hash(tokens[:(i + 1) * self.block], (lora, salt)) for i in range(len(tokens) // self.block)]

    async def evict(self, rank):
        """Remove the last blocks of a text that no other text continues; with `holes` any blocks."""
        tokens, first, tier, lora, salt = self.have[rank].pop(self.rand.randrange(len(self.have[rank])))
        names, there = self.names(tokens, lora, salt), self.content[rank, tier]
        at = end = len(names)
        if 'holes' in self.kinds:
            at = self.rand.randrange(first, end)
            end = self.rand.randrange(at + 1, end + 1)
        else:
            least = self.rand.randrange(first, end)
            parents = {}
            for p in there.values():
                parents[p] = parents.get(p, 0) + 1
            while at > least and names[at - 1] in there and parents.get(names[at - 1], 0) <= (at < end and names[at] in there):
                at -= 1
        if at == end:
            return
        await self.d.remove(rank, names[at:end], tier)
        gone = [i for i in range(at, end) if self.release_copy((rank, tier, names[i]))]
        for i in gone:
            there.pop(names[i], None)
        runs = [(at, end)] if len(gone) == end - at else [(i, i + 1) for i in gone]
        for first, last in runs:
            self.line(op='remove', worker=rank[0], dp_rank=rank[1], tier=tier, tokens=tokens, lora_name=lora, cache_namespace=salt, count=last - first,
                      **{'from': first})

    def release_copy(self, block):
        """Return true if the block has left its rank. KvEventPublisher counts copies, as kvroute-agent does; SelectionService does not."""
        self.copies[block] -= 1
        return self.counted is False or self.copies[block] <= 0


def main(case, seed, requests, surface, output):
    script = Script(case, int(seed), int(requests), surface)
    asyncio.run(script.run())
    with open(output, 'w') as f:
        json.dump(dict(lines=script.lines, answers=script.answers), f)
    sys.stdout.flush()
    os._exit(0)  # threads of the runtime do not end


if __name__ == '__main__':
    *ARGUMENTS, MODEL = sys.argv[1:]
    main(*ARGUMENTS)
