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


class Answer:
    """The JSON of one answer, as a whole or in chunks."""

    def __init__(self, engine, body, chat, prompt, cached):
        self.chat, self.prompt, self.cached, self.kv = chat, prompt, cached, None
        self.model = body.get('model') or engine.o.model
        self.id = ('chatcmpl-' if chat else 'cmpl-') + uuid.uuid4().hex
        self.details = not engine.o.no_details

    def head(self, kind):
        return {'id': self.id, 'object': kind, 'created': int(time.time()), 'model': self.model}

    def usage(self, n):
        usage = {'prompt_tokens': self.prompt, 'completion_tokens': n, 'total_tokens': self.prompt + n}
        if self.details:
            usage['prompt_tokens_details'] = {'cached_tokens': self.cached}
        return usage

    def text(self, i):
        return f' {i % 10}'

    def chunk(self, i, n):
        finish = 'length' if i + 1 == n else None
        if self.chat:
            delta = {'content': self.text(i)} if i else {'role': 'assistant', 'content': self.text(i)}
            out = self.head('chat.completion.chunk')
            out['choices'] = [{'index': 0, 'delta': delta, 'logprobs': None, 'finish_reason': finish}]
        else:
            out = self.head('text_completion')
            out['choices'] = [{'index': 0, 'text': self.text(i), 'logprobs': None, 'finish_reason': finish}]
        return b'data: ' + json.dumps(out).encode() + b'\n\n'

    def last(self, n):
        out = self.head('chat.completion.chunk' if self.chat else 'text_completion')
        out.update(choices=[], usage=self.usage(n))
        return b'data: ' + json.dumps(out).encode() + b'\n\n'

    def whole(self, n):
        text = ''.join(self.text(i) for i in range(n))
        out = self.head('chat.completion' if self.chat else 'text_completion')
        what = {'message': {'role': 'assistant', 'content': text}} if self.chat else {'text': text}
        out['choices'] = [{'index': 0, **what, 'logprobs': None, 'finish_reason': 'length'}]
        out['usage'] = self.usage(n)
        if self.kv is not None:
            out['kv_transfer_params'] = self.kv
        return out


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
