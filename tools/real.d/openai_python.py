# SPDX-License-Identifier: BSD-3-Clause
"""The openai package for Python through gateway, router and agent to the stand-in engine."""

import asyncio

import openai
from stack import URL, Stack, attempt, check, equal, request, wait_for

IDS = list(range(1, 97))
MESSAGES = [{'role': 'system', 'content': 'You answer briefly. ' * 8}, {'role': 'user', 'content': 'Which block is cached?'}]


def run(stack, client):
    with attempt('models'):
        equal('models', [m.id for m in client.models.list()], ['llama'])
    with attempt('chat'):
        answer = client.chat.completions.create(model='llama', messages=MESSAGES, max_tokens=4)
        check('chat', answer.choices[0].message.content and answer.usage.completion_tokens == 4, answer)
    with attempt('streamed chat'):
        chunks = list(client.chat.completions.create(model='llama', messages=MESSAGES, max_tokens=5, stream=True, stream_options={'include_usage': True}))
        text = ''.join(c.choices[0].delta.content or '' for c in chunks if c.choices)
        check('streamed chat', text and chunks[-1].usage.completion_tokens == 5, chunks[-1])
    with attempt('completion of ids'):
        client.completions.create(model='llama', prompt=IDS, max_tokens=1)
        wait_for(lambda: stack.overlap(IDS + [7]) == 6)
        raw = client.completions.with_raw_response.create(model='llama', prompt=IDS + [7], max_tokens=1)
        cached = raw.parse().usage.prompt_tokens_details.cached_tokens
        equal('predicted hits are cached_tokens', int(raw.headers['x-kvroute-overlap-blocks']) * 16, cached)
        equal('completion of ids', cached, 96)
    with attempt('embeddings'):
        check('embeddings', client.embeddings.create(model='llama', input='text').data, 'no data')
    for name, call, kind, status in (
            ('error of an unknown model', lambda: client.chat.completions.create(model='none', messages=MESSAGES), openai.NotFoundError, 404),
            ('error of a bad request', lambda: client.chat.completions.create(model='llama', messages=[]), openai.BadRequestError, 400)):
        with attempt(name):
            try:
                check(name, False, call())
            except openai.APIStatusError as e:
                check(name, isinstance(e, kind) and e.status_code == status and e.body.get('message'), repr(e))
    with attempt('cancelled stream'):
        before = request(8101, 'GET', '/_test')[2]['count']['aborted']
        with client.chat.completions.create(model='llama', messages=MESSAGES, max_tokens=1000, stream=True) as stream:
            next(iter(stream))
        check('cancelled stream', wait_for(lambda: request(8101, 'GET', '/_test')[2]['count']['aborted'] > before), 'the engine continues')


async def run_many(name, count):
    client = openai.AsyncOpenAI(base_url=f'{URL}/v1', api_key='none', max_retries=0)

    async def one(i):
        return [c async for c in await client.chat.completions.create(model='llama', messages=[{'role': 'user', 'content': f'{i} ' * 40}], max_tokens=8, stream=True)]
    answers = await asyncio.gather(*(one(i) for i in range(count)), return_exceptions=True)
    good = sum(isinstance(a, list) and sum(bool(c.choices and c.choices[0].delta.content) for c in a) == 8 for a in answers)
    equal(name, good, count)


with Stack({'llama': {}}) as stack:
    stack.stand_in(1, '--decode-us', 2000)
    stack.agent(1)
    stack.gateway('--tokenize', 'http://127.0.0.1:8101/tokenize')
    stack.require_workers(1)
    run(stack, openai.OpenAI(base_url=f'{URL}/v1', api_key='none', max_retries=0))
    with attempt('100 streams at once'):
        asyncio.run(run_many('100 streams at once', 100))
