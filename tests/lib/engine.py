#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for vLLM and SGLang: their HTTP and their KV events, a prefix cache, no model.

A token is a byte of UTF-8, or defined by --vocabulary. An answer consists of the prompt's length and numbers, so that it can be
checked. POST /_test changes switches while it runs; GET /_test returns its cache content and its counters.
    engine.py --port 8000 --type vllm --events 'tcp://*:5557' --replay 'tcp://*:5657'
"""

import argparse
import asyncio
import hashlib
import json
import os
import signal
import sys
import time
import uuid
from collections import deque

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import engine_shapes  # noqa: E402
from engine_cache import Cache, Events  # noqa: E402
from engine_http import Answer, Gone, Http, Refused, Response, get, post  # noqa: E402

LEASE_S = 30


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def text_of(body, name):
    """A field of a JSON object as it stands there; "" without one."""
    body, head = body.decode(), f'"{name}":'
    at = body.find(head) + len(head)
    if at < len(head):
        return ''
    at += len(body[at:]) - len(body[at:].lstrip())
    return body[at:json.JSONDecoder().raw_decode(body, at)[1]]


class Rank:
    def __init__(self, o, number):
        self.number, self.running, self.waiting = number, 0, 0
        self.events = Events(o, number)
        self.cache = Cache(o, self.events)
        self.slots = asyncio.Semaphore(o.slots)


class Engine:
    def __init__(self, o):
        self.o, self.ranks, self.turn = o, [Rank(o, i) for i in range(o.ranks)], 0
        self.id = uuid.uuid4().hex
        self.seen = deque(maxlen=64)    # requests, for tests
        self.asked = deque(maxlen=1024) # questions of /tokenize: their messages (0: a text) and tokens
        self.gave = None                # digest of the last kv_transfer_params
        self.count = {'requests': 0, 'finished': 0, 'aborted': 0, 'refused': 0, 'fetched': 0,
                      'kv_lost': 0, 'tokens': 0, 'looks': 0}
        self.held = {}                  # transfers that wait to be fetched: id -> (Event, since)

    # --- prompts -------------------------------------------------------------------------------

    def prompt(self, body, chat):
        """Token ids, images in them as (first token, n, hash): `pictures` of a completion contain them."""
        if not chat:
            prompt, mm = body.get('prompt'), [tuple(m) for m in body.get('pictures', ())]
            if isinstance(prompt, list) and prompt and isinstance(prompt[0], (list, str)):
                prompt = prompt[0]
            if isinstance(prompt, str):
                return list(prompt.encode()), mm
            if isinstance(prompt, list) and all(type(t) is int and t >= 0 for t in prompt):
                return prompt, mm
            raise Refused(400, 'prompt: a string or token ids')
        messages = body.get('messages')
        if not isinstance(messages, list) or not messages:
            raise Refused(400, 'messages: at least one')
        if not all(isinstance(m, dict) for m in messages):
            raise Refused(400, 'messages: objects')
        tokens, mm = [], []
        for i, m in enumerate(messages):
            tokens += f"<|{m.get('role', 'user')}{i if self.o.numbered else ''}|>".encode()
            content = m.get('content') or ''
            for part in [{'type': 'text', 'text': content}] if isinstance(content, str) else content:
                if part.get('type') == 'text':
                    tokens += part['text'].encode()
                else:
                    what = json.dumps(part, sort_keys=True).encode()
                    digest = hashlib.sha256(what).hexdigest()
                    mm.append((len(tokens), 20, digest))
                    pad = 1000000 + (int(digest[:16], 16) & (1 << 30) - 1)
                    tokens += [pad if self.o.type == 'sglang' else 151655] * 20
            tokens += b'\n'
        if body.get('add_generation_prompt', True):
            tokens += b'<|assistant|>'
        return tokens, mm

    async def ids(self, body, chat):
        """prompt(), where text and messages may be put into words of a real vocabulary."""
        what = {'messages': body.get('messages')} if chat else {'prompt': body.get('prompt')}
        if not self.o.vocabulary or not chat and not isinstance(what['prompt'], str):
            return self.prompt(body, chat)
        return (await asyncio.to_thread(post, self.o.vocabulary, what))['tokens'], []

    async def continued(self, tokens, answer, n):
        """A prompt and the n tokens of its answer."""
        if not self.o.vocabulary:
            return tokens + [ord('0') + i % 10 for i in range(n)]
        return tokens + (await self.ids({'prompt': ''.join(answer.text(i) for i in range(n))}, False))[0]

    def adapter(self, body):
        model = body.get('model') or self.o.model
        if model == self.o.model:
            return None
        if model in self.o.lora:
            return model
        raise Refused(404, f'The model `{model}` does not exist.')

    def rank(self, headers, body, room):
        n = len(self.ranks)
        want = headers.get('x-data-parallel-rank')
        if want is None:
            want = body.get('routed_dp_rank', body.get('data_parallel_rank'))
        if want is not None:
            try:
                want = int(want)
            except ValueError:
                raise Refused(400, 'data parallel rank: an integer')
            if not 0 <= want < n:
                raise Refused(400, f'data parallel rank {want}: 0 to {n - 1}')
            return self.ranks[want]
        if room is not None:
            return self.ranks[room % n]
        self.turn += 1
        return self.ranks[self.turn % n]

    # --- generation ----------------------------------------------------------------------------

    async def generate(self, http, body, api):
        """One request from prompt to answer."""
        o, headers, chat = self.o, http.headers, api == 'chat/completions'
        if api == 'responses':
            body = {**body, 'prompt': body.get('input'), 'max_tokens': body.get('max_output_tokens')}
        tokens, mm = await self.ids(body, chat)
        lora, salt = self.adapter(body), body.get('cache_salt')
        room, kv = body.get('bootstrap_room'), body.get('kv_transfer_params')
        if room is None and o.type == 'sglang' and o.role != 'aggregated':
            raise Refused(400, 'Disaggregated request received without bootstrap room id')
        rank = self.rank(headers, body, room)
        limit = body.get('max_completion_tokens') or body.get('max_tokens') or 16
        if type(limit) is not int or limit < 1:
            raise Refused(400, 'max_tokens: at least 1')
        if len(tokens) + limit > o.max_model_len:
            raise Refused(400, f'maximum context length is {o.max_model_len} tokens')
        n = min(limit, o.output)
        rank.waiting += 1
        try:
            await rank.slots.acquire()
        finally:
            rank.waiting -= 1
        rank.running += 1
        try:
            if o.hang:
                while True:
                    await self.wait(http, 0.05)
            chain = rank.cache.chain(tokens, lora, salt, mm)
            hit = rank.cache.cached(chain)
            if room is not None and o.role == 'prefill' and room % len(self.ranks) != rank.number:
                raise Refused(400, f'bootstrap_room {room} is not of rank {rank.number}')
            if kv and kv.get('do_remote_prefill'):
                await self.fetch(f"http://{kv['remote_host']}:{kv['remote_port']}", 'id',
                                 kv.get('remote_request_id'))
            elif room is not None and o.role == 'decode':
                await self.fetch(f"http://{body['bootstrap_host']}:{body['bootstrap_port']}", 'room', room)
            else:
                await self.wait(http, o.prefill_us * 1e-6 * (len(tokens) - hit * o.block_size))
            await rank.cache.add(chain)
            found = min(hit * o.block_size, len(tokens) - 1)
            answer = Answer(self, body, chat, len(tokens), found) if api != 'responses' else Response(self, body, len(tokens), found)
            if kv and kv.get('do_remote_decode') and not self.stops(body):  # vLLM keeps no blocks of what was stopped
                answer.kv = self.hold(chain, rank)
            if room is not None and o.role == 'prefill':
                n = 1
                await self.wait_fetched(http, room)
            await self.answer(http, answer, body, n)
            made = await self.continued(tokens, answer, n)
            await rank.cache.add(rank.cache.chain(made, lora, salt, mm))
        finally:
            rank.running -= 1
            rank.slots.release()

    def stops(self, body):
        """Whether the first token is one that ends the answer, for the engine's scheduler."""
        return self.o.eos_first and not body.get('ignore_eos') or ord('0') in (body.get('stop_token_ids') or ())

    async def answer(self, http, answer, body, n):
        o, stream = self.o, bool(body.get('stream'))
        if stream:
            http.begin(200, 'text/event-stream; charset=utf-8')
        done = 0
        while done < n:
            more = min(o.event_tokens, n - done, *(k - done for k in (o.break_after, o.error_after) if k > done))
            await self.wait(http, o.decode_us * 1e-6 * more)
            self.count['tokens'] += more * answer.choices
            for index in range(answer.choices if stream else 0):
                await http.write(answer.chunk(index, done, more, done + more == n))
            done += more
            if o.break_after and done == o.break_after:
                if stream:
                    await http.write(b'data: {"id": "half a li')
                http.writer.close()
                raise Gone
            if o.error_after and done == o.error_after:
                return await self.fail_late(http, stream)
        if stream:
            if answer.total:
                await http.write(answer.last(n))
            if answer.done:
                await http.write(b'data: [DONE]\n\n')
            await http.end()
        else:
            await http.reply(200, answer.whole(n))

    async def fail_late(self, http, stream):
        """An error after tokens, as the last event of a stream or as the whole answer."""
        error = {'error': {'message': 'Internal server error', 'type': 'InternalServerError', 'param': None, 'code': 500}}
        if not stream:
            return await http.reply(500, error)
        await http.write(b'data: ' + json.dumps(error).encode() + b'\n\ndata: [DONE]\n\n')
        await http.end()

    async def wait(self, http, seconds):
        """Sleep, or find the client gone."""
        if seconds > 0:
            await asyncio.sleep(seconds)
        if http.gone():
            raise Gone

    # --- prefill and decode apart ----------------------------------------------------------------

    def hold(self, chain, rank):
        key = uuid.uuid4().hex
        self.held[key] = (asyncio.Event(), time.monotonic())
        ids = list(range(1000, 1000 + max(len(chain), self.o.result_blocks)))
        kv = {'do_remote_prefill': True, 'do_remote_decode': False, 'remote_block_ids': [ids],
              'remote_engine_id': f'{self.id}_dp{rank.number}', 'remote_request_id': key,
              'remote_host': self.o.host, 'remote_port': self.o.port, 'tp_size': 1, 'dcp_size': 1,
              'pp_size': 1, 'remote_num_tokens': len(chain) * self.o.block_size,
              'remote_blocks_expiry_time': time.time() + LEASE_S, 'transfer_mode': 'pull'}
        self.gave = digest(json.dumps(kv))  # the text of it in the answer
        return kv

    async def wait_fetched(self, http, room):
        """A prefill engine keeps the blocks of a room until its decode engine has them."""
        done = asyncio.Event()
        self.held[str(room)] = (done, time.monotonic())
        until = time.monotonic() + LEASE_S
        while not done.is_set():
            try:
                await asyncio.wait_for(done.wait(), 0.05)
            except asyncio.TimeoutError:
                pass
            if time.monotonic() > until or http.gone():
                del self.held[str(room)]
                self.count['kv_lost'] += 1
                raise Refused(500, 'the blocks were not fetched')

    async def fetch(self, base, what, key):
        """A decode engine takes its blocks from the prefill engine, which may not have them yet."""
        for _ in range(200):
            if await asyncio.to_thread(get, f'{base}/_kv?{what}={key}') == 200:
                self.count['fetched'] += 1
                return
            if what == 'id':
                break
            await asyncio.sleep(0.02)
        self.count['kv_lost'] += 1
        raise Refused(500, f'no blocks for {key} at {base}')

    def given(self, key):
        held = self.held.pop(key, None)
        if held is None:
            return False
        held[0].set()
        return True

    # --- what others ask -------------------------------------------------------------------------

    def metrics(self):
        o = self.o
        if o.garbage_metrics:
            return 'vllm:num_requests_running{ 7\n\x00\xff nonsense NaN\n# TYPE\n'
        return engine_shapes.metrics(o, self.ranks)

    def state(self):
        return {'count': self.count, 'seen': list(self.seen), 'asked': list(self.asked), 'held': len(self.held), 'gave': self.gave, 'id': self.id,
                'ranks': [{'running': r.running, 'blocks': len(r.cache.blocks), 'seq': r.events.seq,
                           'published': r.events.published, 'dropped': r.events.dropped,
                           'replayed': r.events.replayed} for r in self.ranks]}

    async def test(self, body):
        """Change switches; clear, drop, forget events; overlap of prompts in every rank."""
        out = {}
        for key, value in body.items():
            rank = self.ranks[body.get('rank', 0)]
            if key == 'clear':
                await rank.cache.clear()
            elif key == 'drop_blocks':
                await rank.cache.drop(value)
            elif key == 'lose_events':
                rank.events.drop = value
            elif key == 'raw':
                await rank.events.raw(bytes.fromhex(value))
            elif key == 'parts':  # a message that has no number and is not kept
                await rank.events.pub.send_multipart([bytes.fromhex(part) for part in value])
            elif key == 'overlap':
                asked = value if isinstance(value, dict) else {'prompt': value}  # or the body of a completion
                tokens, mm = self.prompt(asked, False)
                out['overlap'] = [r.cache.cached(r.cache.chain(tokens, self.adapter(asked), asked.get('cache_salt'), mm))
                                  for r in self.ranks]
            elif key != 'rank':
                if not hasattr(self.o, key):
                    raise Refused(400, f'no switch {key}')
                setattr(self.o, key, value)
        return out

    async def fail(self, http):
        """--error, as --error-as says."""
        o = self.o
        self.count['refused'] += 1
        error = {'error': {'message': 'as the switch says', 'type': 'BadRequestError', 'param': None, 'code': o.error}}
        if o.error_as == 'status':
            extra = f'retry-after: {o.retry_after}\r\n' if o.retry_after else ''
            return await http.reply(o.error, error, extra=extra)
        if o.error_as == 'body':
            return await http.reply(200, error)
        http.begin(200, 'text/event-stream; charset=utf-8')
        if o.error_as == 'event':
            await http.write(b'data: ' + json.dumps(error).encode() + b'\n\n')
            await http.write(b'data: [DONE]\n\n')
        await http.end()

    async def serve(self, http):
        o, path, method = self.o, http.path.split('?')[0], http.method
        if path == '/_kv':
            key = http.path.rpartition('=')[2]
            return await http.reply(200 if self.given(key) else 404, {})
        if path == '/_test':
            return await http.reply(200, await self.test(http.json()) if method == 'POST' else self.state())
        if o.error and method == 'POST':
            return await self.fail(http)
        if path == '/health':
            self.count['looks'] += 1
            while o.health_hangs and not http.gone():
                await asyncio.sleep(0.05)
            return await http.reply(503 if o.ill else 200, b'', 'text/plain')
        if path in o.pages:  # a test's own
            page = o.pages[path]
            return await http.reply(page.get('status', 200), page['text'].encode('latin1') * page.get('times', 1))
        if path == '/metrics':
            return await http.reply(200, self.metrics().encode('latin1'), 'text/plain; version=0.0.4')
        described = {'/v1/models': engine_shapes.models, '/server_info': engine_shapes.server_info,
                     **({'/get_server_info': engine_shapes.server_info} if o.type == 'sglang' else {'/kv_event_sources': engine_shapes.event_sources})}
        if path in described and method == 'GET' and (page := described[path](o)) is not None:
            return await http.reply(200, page)
        if method != 'POST':
            raise Refused(404 if method == 'GET' else 405, 'Not Found')
        body = http.json()
        if path == '/tokenize':
            tokens, _ = await self.ids(body, 'messages' in body)
            self.asked.append((len(body.get('messages', ())), len(tokens)))
            if o.refuse_one and len(body.get('messages', ())) == 1:
                raise Refused(400, 'a conversation of one message is none')
            while o.tokenize_hangs and not http.gone():
                await asyncio.sleep(0.01)
            while o.hold and len(body.get('messages', ())) > 1 and not http.gone():
                await asyncio.sleep(0.01)
            return await http.reply(200, {'count': len(tokens), 'max_model_len': o.max_model_len, 'tokens': tokens})
        if path == '/v1/embeddings':
            return await http.reply(200, {'object': 'list', 'model': o.model, 'data': [
                {'object': 'embedding', 'index': 0, 'embedding': [0.5, -0.25, 0.125]}],
                'usage': {'prompt_tokens': 4, 'total_tokens': 4}})
        if path not in ('/v1/completions', '/v1/chat/completions', '/v1/responses'):
            raise Refused(404, 'Not Found')
        self.count['requests'] += 1
        self.seen.append({'path': path, 'headers': http.headers, 'kv': digest(text_of(http.body, 'kv_transfer_params')), 'body': {
            k: v for k, v in body.items() if k not in ('prompt', 'messages', 'input')}})
        await self.generate(http, body, path[len('/v1/'):])
        self.count['finished'] += 1


async def connection(engine, reader, writer):
    try:
        while True:
            http = Http(reader, writer)
            if not await http.read():
                break
            try:
                await engine.serve(http)
            except Refused as e:
                engine.count['refused'] += 1
                if http.streaming:
                    break
                await http.reply(e.status, {'error': {'message': str(e), 'type': 'BadRequestError',
                                                      'param': None, 'code': e.status}})
    except (Gone, ConnectionError):
        engine.count['aborted'] += 1
    finally:
        writer.close()


def options(argv):
    p = argparse.ArgumentParser(description='a stand-in for vLLM and SGLang')
    p.add_argument('--host', default='127.0.0.1')
    p.add_argument('--port', type=int, default=8000)
    p.add_argument('--type', choices=('vllm', 'sglang'), default='vllm')
    p.add_argument('--version', help='a folder of tests/data/engines; default the newest')
    p.add_argument('--dev', action='store_true', help='vLLM: VLLM_SERVER_DEV_MODE, which has /server_info')
    p.add_argument('--batched-tokens', type=int, default=8192, help='max_num_batched_tokens, chunked_prefill_size')
    p.add_argument('--model', default='model')
    p.add_argument('--lora', nargs='*', default=[], help='adapters it has')
    p.add_argument('--role', choices=('aggregated', 'prefill', 'decode'), default='aggregated')
    p.add_argument('--ranks', type=int, default=1)
    p.add_argument('--block-size', type=int, default=16)
    p.add_argument('--blocks', type=int, default=4096, help='of a rank')
    p.add_argument('--slots', type=int, default=256, help='requests of a rank at once')
    p.add_argument('--max-model-len', type=int, default=131072)
    p.add_argument('--output', type=int, default=1024, help='tokens of an answer at most')
    p.add_argument('--prefill-us', type=float, default=0, help='a token that is not cached')
    p.add_argument('--decode-us', type=float, default=0, help='a token of the answer')
    p.add_argument('--events', help='endpoint to bind, e.g. tcp://*:5557; the port + rank')
    p.add_argument('--replay', help='endpoint to bind for replay; the port + rank')
    p.add_argument('--topic', default='')
    p.add_argument('--form', choices=('map', 'positional'), default='map')
    p.add_argument('--batch-form', choices=('array', 'map'), default='array')
    p.add_argument('--hash', choices=('uint', 'int', 'bytes'))
    p.add_argument('--replay-framing', choices=('new', 'old'))
    p.add_argument('--key-offsets', action='store_true', help='a picture is named with where it starts')
    p.add_argument('--no-rank', action='store_true', help='batches do not name their rank')
    p.add_argument('--early', action='store_true', help='SGLang before it named the medium')
    p.add_argument('--offload', action='store_true', help='what leaves the device goes to the host')
    p.add_argument('--eagle', action='store_true', help='blocks are windows of one token more, told as pairs')
    p.add_argument('--odd', action='store_true', help='events that no index should believe')
    p.add_argument('--copies', action='store_true', help='the last block of a repeated prompt is stored again')
    p.add_argument('--repeat-stores', action='store_true', help='reused blocks are announced again')
    p.add_argument('--event-block-size', type=int, default=0, help='a wrong one in events')
    p.add_argument('--events-late', type=float, default=0, help='seconds from a change to its event')
    p.add_argument('--metric-block-size', type=int, default=0, help='a wrong one in /metrics')
    p.add_argument('--garbage-metrics', action='store_true')
    p.add_argument('--no-details', action='store_true', help='usage without cached tokens')
    p.add_argument('--result-blocks', type=int, default=0, help='block ids of a transfer result, at least')
    p.add_argument('--ill', action='store_true', help='/health is 503')
    p.add_argument('--error', type=int, default=0, help='status of all requests; /health stays fine')
    p.add_argument('--error-as', choices=('status', 'event', 'body', 'empty'), default='status',
                   help='the form of --error: event and empty are streams of status 200')
    p.add_argument('--retry-after', type=int, default=0, help='seconds, with --error')
    p.add_argument('--eos-first', action='store_true', help='the first token ends the answer, unless the request sets ignore_eos')
    p.add_argument('--health-hangs', action='store_true', help='/health never answers')
    p.add_argument('--tokenize-hangs', action='store_true', help='/tokenize never answers')
    p.add_argument('--hang', action='store_true', help='requests never end')
    p.add_argument('--refuse-one', action='store_true', help='/tokenize wants more than one message')
    p.add_argument('--hold', action='store_true', help='so long /tokenize answers nothing of more than one message')
    p.add_argument('--vocabulary', help='URL of a /tokenize whose ids are the tokens of text and messages')
    p.add_argument('--numbered', action='store_true', help='its template numbers the messages')
    p.add_argument('--event-tokens', type=int, default=1, help='tokens in one event of a stream, as with speculative decoding')
    p.add_argument('--error-after', type=int, default=0, help='tokens after which requests end with an error')
    p.add_argument('--break-after', type=int, default=0, help='tokens after which connections break')
    o = p.parse_args(argv)
    o.hash = o.hash or ('int' if o.type == 'sglang' else 'uint')
    o.replay_framing = o.replay_framing or ('old' if o.early else 'new')
    o.version = o.version or engine_shapes.versions(o.type)[0]
    o.pages = {}  # path -> {'text': ..., 'times': 1, 'status': 200}: instead of what it has there
    return o


async def main(argv):
    o = options(argv)
    engine = Engine(o)
    server = await asyncio.start_server(lambda r, w: connection(engine, r, w), o.host, o.port, backlog=4096)
    o.port = server.sockets[0].getsockname()[1]
    tasks = [asyncio.create_task(r.events.serve()) for r in engine.ranks]
    stop = asyncio.Event()
    for s in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(s, stop.set)
    print(f'engine {o.type} on {o.host}:{o.port}', flush=True)
    await stop.wait()
    for t in tasks:
        t.cancel()


if __name__ == '__main__':
    asyncio.run(main(sys.argv[1:]))
