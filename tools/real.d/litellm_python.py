# SPDX-License-Identifier: BSD-3-Clause
"""The litellm package for Python through gateway, router and agent to the stand-in engine."""

import asyncio
import os

os.environ['LITELLM_LOCAL_MODEL_COST_MAP'] = 'True'  # no download at import
import litellm  # noqa: E402
from stack import URL, Stack, attempt, check, equal  # noqa: E402

litellm.suppress_debug_info = True
HOW = dict(model='openai/llama', api_base=f'{URL}/v1', api_key='none', num_retries=0, messages=[{'role': 'user', 'content': 'Which block is cached? ' * 20}])


async def run_many():
    async def one():
        return [c async for c in await litellm.acompletion(**HOW, max_tokens=8, stream=True)]
    return await asyncio.gather(*(one() for _ in range(20)), return_exceptions=True)


with Stack({'llama': {}}) as stack:
    stack.stand_in(1, '--decode-us', 2000)
    stack.agent(1)
    stack.gateway('--tokenize', 'http://127.0.0.1:8101/tokenize')
    stack.require_workers(1)
    with attempt('chat'):
        answer = litellm.completion(**HOW, max_tokens=4)
        check('chat', answer.choices[0].message.content and answer.usage.completion_tokens == 4, answer)
    with attempt('streamed chat'):
        chunks = list(litellm.completion(**HOW, max_tokens=5, stream=True, stream_options={'include_usage': True}))
        check('streamed chat', ''.join(c.choices[0].delta.content or '' for c in chunks if c.choices), chunks[-1])
    with attempt('text completion'):
        answer = litellm.text_completion(model='text-completion-openai/llama', api_base=f'{URL}/v1', api_key='none', prompt='text', max_tokens=3)
        check('text completion', answer.choices[0].text, answer)
    with attempt('20 streams at once'):
        equal('20 streams at once', sum(isinstance(a, list) and len(a) >= 8 for a in asyncio.run(run_many())), 20)
    with attempt('error of an unknown model'):
        try:
            check('error of an unknown model', False, litellm.completion(**dict(HOW, model='openai/none')))
        except litellm.NotFoundError as e:
            check('error of an unknown model', 'none' in str(e), e)
