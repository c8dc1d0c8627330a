# SPDX-License-Identifier: BSD-3-Clause
"""The anthropic package for Python through gateway, router and agent to an engine that has /v1/messages (tool_engine.py)."""

import anthropic
import packages
import tool_engine
from stack import HERE, URL, Stack, attempt, check, request

MESSAGES = [{'role': 'user', 'content': 'Which block is cached? ' * 20}]
TOOLS = [{'name': 'bash', 'description': 'run a command', 'input_schema': {'type': 'object', 'properties': {'command': {'type': 'string'}}}}]

with Stack({'llama': {}}) as stack:
    stack.start('engine1', packages.python('quick'), f'{HERE}/tool_engine.py', 8101, 'true')
    stack.require('no engine', lambda: request(8101, 'GET', '/health')[0] == 200)
    stack.agent(1, '--events', '', '--paths', '/v1/*,/tokenize')
    stack.gateway('--tokenize', 'http://127.0.0.1:8101/tokenize')
    stack.require_workers(1)
    client = anthropic.Anthropic(base_url=URL, api_key='none', max_retries=0)
    with attempt('models'):
        check('models', [m.id for m in client.models.list()] == ['llama'])
    with attempt('message'):
        answer = client.messages.create(model='llama', max_tokens=20, messages=MESSAGES)
        check('message', answer.content[0].text == tool_engine.TEXT and answer.usage.output_tokens == 9, answer)
    with attempt('streamed message'):
        with client.messages.stream(model='llama', max_tokens=20, messages=MESSAGES) as stream:
            check('streamed message', ''.join(stream.text_stream) == tool_engine.TEXT)
    with attempt('tool call'):
        answer = client.messages.create(model='llama', max_tokens=20, messages=MESSAGES, tools=TOOLS)
        check('tool call', answer.stop_reason == 'tool_use' and answer.content[0].input == {'command': 'true'}, answer)
    with attempt('count_tokens'):
        check('count_tokens', client.messages.count_tokens(model='llama', messages=MESSAGES).input_tokens > 0)
    with attempt('error of an unknown model'):
        try:
            check('error of an unknown model', False, client.messages.create(model='none', max_tokens=4, messages=MESSAGES))
        except anthropic.NotFoundError as e:
            check('error of an unknown model', isinstance(e.body, dict) and e.body.get('type') == 'error', repr(e))
