# SPDX-License-Identifier: BSD-3-Clause
"""HTTP of the stand-in engine: connections, and answers in the shapes of OpenAI."""

import asyncio
import json
import time
import urllib.error
import urllib.request
import uuid

REASON = {200: 'OK', 400: 'Bad Request', 404: 'Not Found', 405: 'Method Not Allowed',
          500: 'Internal Server Error', 503: 'Service Unavailable', 429: 'Too Many Requests'}


class Refused(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Gone(Exception):
    """The client has closed the connection."""


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as e:
        return e.code
    except OSError:
        return 0


def post(url, body):
    """JSON for JSON."""
    try:
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        raise Refused(e.code, e.read().decode()) from e


# Members of a whole answer that are null: of the answer, a choice and a message (tests/data/engines/*/fold).
NULLS = {
    ('vllm', True): (('service_tier', 'system_fingerprint', 'prompt_logprobs', 'prompt_token_ids', 'prompt_text', 'kv_transfer_params',
                      'ec_transfer_params', 'metrics'), ('stop_reason', 'token_ids', 'routed_experts'),
                     ('refusal', 'annotations', 'audio', 'function_call', 'reasoning')),
    ('vllm', False): (('service_tier', 'system_fingerprint', 'kv_transfer_params', 'ec_transfer_params', 'metrics'),
                      ('stop_reason', 'token_ids', 'prompt_logprobs', 'prompt_token_ids', 'routed_experts'), ()),
    ('sglang', True): (('metadata',), ('matched_stop',), ('reasoning_content',)),
    ('sglang', False): (('metadata',), ('matched_stop',), ()),
}


class Answer:
    """The JSON of one answer to completions or chat completions, as a whole or in chunks."""

    done = True  # its stream ends with [DONE]

    def __init__(self, engine, body, chat, prompt, cached):
        self.chat, self.prompt, self.cached, self.kv = chat, prompt, cached, None
        self.model = body.get('model') or engine.o.model
        self.id = ('chatcmpl-' if chat else 'cmpl-') + uuid.uuid4().hex
        self.created = int(time.time())
        self.details = not engine.o.no_details
        self.type = engine.o.type
        self.choices = body.get('n') or 1
        self.logprobs = bool(body.get('logprobs'))
        self.token_ids = bool(body.get('return_token_ids'))
        options = body.get('stream_options') or {}
        self.total = bool(options.get('include_usage'))
        self.running = bool(options.get('continuous_usage_stats')) and (self.total or self.type == 'sglang')

    def head(self, kind):
        return {'id': self.id, 'object': kind, 'created': self.created, 'model': self.model}

    def usage(self, n, whole=True):
        usage = {'prompt_tokens': self.prompt, 'total_tokens': self.prompt + n, 'completion_tokens': n}
        if whole:
            usage['prompt_tokens_details'] = {'cached_tokens': self.cached} if self.details else None
        if self.type == 'sglang':
            usage['reasoning_tokens'] = 0
        return usage

    def text(self, i):
        return f' {i % 10}'

    def scores(self, first, n):
        """Logprobs of n tokens."""
        if not self.logprobs:
            return None
        texts = [self.text(i) for i in range(first, first + n)]
        if self.chat:
            return {'content': [{'token': t, 'logprob': -0.5, 'bytes': list(t.encode()), 'top_logprobs': []} for t in texts]}
        return {'text_offset': [2 * i for i in range(first, first + n)], 'token_logprobs': [-0.5] * n, 'tokens': texts,
                'top_logprobs': [{t: -0.5} for t in texts]}

    def ids(self, first, n):
        return [1000 + i for i in range(first, first + n)]

    def chunk(self, index, first, n, last):
        """n tokens of a choice, from the one numbered `first`."""
        text = ''.join(self.text(i) for i in range(first, first + n))
        out = self.head('chat.completion.chunk' if self.chat else 'text_completion')
        what = {'delta': {**({} if first else {'role': 'assistant'}), 'content': text}} if self.chat else {'text': text}
        choice = {'index': index, **what, 'logprobs': self.scores(first, n), 'finish_reason': 'length' if last else None}
        if self.token_ids:
            choice['token_ids'] = self.ids(first, n)
        out['choices'] = [choice]
        if self.running:
            out['usage'] = self.usage(first + n, False)
        elif self.type == 'sglang':
            out['usage'] = None
        return b'data: ' + json.dumps(out).encode() + b'\n\n'

    def last(self, n):
        out = self.head('chat.completion.chunk' if self.chat else 'text_completion')
        usage = {k: v for k, v in self.usage(n * self.choices).items() if v is not None}
        out.update(choices=[], usage=usage)
        return b'data: ' + json.dumps(out).encode() + b'\n\n'

    def whole(self, n):
        nulls = NULLS[self.type, self.chat]
        text = ''.join(self.text(i) for i in range(n))
        out = self.head('chat.completion' if self.chat else 'text_completion')
        message = {'role': 'assistant', 'content': text, **dict.fromkeys(nulls[2])}
        what = {'message': message} if self.chat else {'text': text}
        out['choices'] = [{'index': i, **what, 'logprobs': self.scores(0, n), 'finish_reason': 'length', **dict.fromkeys(nulls[1]),
                           **({'token_ids': self.ids(0, n)} if self.token_ids else {})} for i in range(self.choices)]
        at = 2 if self.type == 'vllm' else 0  # of usage among them
        out.update(dict.fromkeys(nulls[0][:at]), usage={**self.usage(n * self.choices), 'completion_tokens_details': None})
        out.update(dict.fromkeys(nulls[0][at:]))
        if self.type == 'vllm' and self.details:
            out['usage']['prompt_tokens_details'].update(created_cache_tokens=None, multimodal_tokens=None)
        if self.kv is not None:
            out['kv_transfer_params'] = self.kv
        return out


class Response(Answer):
    """The JSON of one answer to /v1/responses."""

    done = False

    def __init__(self, engine, body, prompt, cached):
        super().__init__(engine, body, True, prompt, cached)
        self.id, self.number, self.choices, self.total = f'resp_{uuid.uuid4().hex}', 0, 1, False

    def event(self, kind, **members):
        self.number += 1
        return f'event: {kind}\ndata: {json.dumps({"type": kind, "sequence_number": self.number, **members})}\n\n'.encode()

    def chunk(self, index, first, n, last):
        begin = b'' if first else self.event('response.created', response={'id': self.id, 'object': 'response', 'status': 'in_progress'})
        out = begin + self.event('response.output_text.delta', delta=''.join(self.text(i) for i in range(first, first + n)))
        return out + (self.event('response.completed', response=self.whole(first + n)) if last else b'')

    def whole(self, n):
        usage = {'input_tokens': self.prompt, 'input_tokens_details': {'cached_tokens': self.cached}, 'output_tokens': n,
                 'output_tokens_details': {'reasoning_tokens': 0}, 'total_tokens': self.prompt + n}
        text = ''.join(self.text(i) for i in range(n))
        return {'id': self.id, 'object': 'response', 'created_at': self.created, 'model': self.model, 'status': 'completed', 'output': [
            {'id': 'msg_1', 'type': 'message', 'role': 'assistant', 'status': 'completed',
             'content': [{'type': 'output_text', 'annotations': [], 'text': text}]}], 'usage': usage}


class Http:
    """One request of a connection, and its answer."""

    def __init__(self, reader, writer):
        self.reader, self.writer, self.streaming = reader, writer, False

    async def read(self):
        try:
            head = (await self.reader.readuntil(b'\r\n\r\n')).decode('latin1').split('\r\n')
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        self.method, self.path, _ = head[0].split(' ')
        self.headers = {k.lower(): v.strip() for k, _, v in (line.partition(':') for line in head[1:] if line)}
        if self.headers.get('expect'):
            self.writer.write(b'HTTP/1.1 100 Continue\r\n\r\n')
        if 'chunked' in self.headers.get('transfer-encoding', ''):
            self.body = b''
            while True:
                n = int(await self.reader.readline(), 16)
                self.body += (await self.reader.readexactly(n + 2))[:-2]
                if n == 0:
                    break
        else:
            self.body = await self.reader.readexactly(int(self.headers.get('content-length', 0)))
        return True

    def json(self):
        try:
            body = json.loads(self.body)
        except ValueError as e:
            raise Refused(400, f'not JSON: {e}')
        if not isinstance(body, dict):
            raise Refused(400, 'not an object')
        return body

    def gone(self):
        return self.writer.is_closing() or self.reader.at_eof()

    def begin(self, status, kind):
        self.streaming = True
        self.writer.write(f'HTTP/1.1 {status} {REASON[status]}\r\ncontent-type: {kind}\r\n'
                          'transfer-encoding: chunked\r\n\r\n'.encode())

    async def write(self, data):
        self.writer.write(b'%x\r\n%b\r\n' % (len(data), data))
        await self.writer.drain()

    async def end(self):
        self.writer.write(b'0\r\n\r\n')
        await self.writer.drain()

    async def reply(self, status, body, kind='application/json', extra=''):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.writer.write(f'HTTP/1.1 {status} {REASON.get(status, "?")}\r\ncontent-type: {kind}\r\n'
                          f'{extra}content-length: {len(body)}\r\n\r\n'.encode() + body)
        await self.writer.drain()
