# SPDX-License-Identifier: BSD-3-Clause
"""An engine for coding agents: it answers the first request with a call of the client's shell tool, and the request with the result of that call
with text. Chat completions, responses and Anthropic's messages, streamed or not.

tool_engine.py PORT COMMAND         COMMAND: what the shell tool shall run
"""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tests/lib'))
import engine_shapes  # noqa: E402

TEXT = 'The command has run, kvroute relayed this answer.'
# Parameter of the command by name of the tool; the first tool that the client offers is called.
SHELLS = {'exec_command': 'cmd', 'shell_command': 'command', 'shell': 'command', 'Bash': 'command', 'bash': 'command', 'run_shell_command': 'command'}
OPTIONS = SimpleNamespace(type='vllm', version=engine_shapes.versions('vllm')[0], model='llama', lora=[], max_model_len=131072, ranks=1, events=None, replay=None,
                          topic='', block_size=16, blocks=4096, metric_block_size=0, batched_tokens=8192, dev=False)
RANK = SimpleNamespace(number=0, waiting=0, running=0, cache=SimpleNamespace(blocks=()))
USAGE = {'prompt_tokens': 100, 'completion_tokens': 9, 'total_tokens': 109, 'prompt_tokens_details': {'cached_tokens': 0}}


def tool_call(tools, command):
    """(name, arguments) for the client's shell tool, or None."""
    for tool in tools or ():
        tool = tool.get('function') or tool
        argument = SHELLS.get(tool.get('name'))
        if argument:
            schema = (tool.get('parameters') or tool.get('input_schema') or {}).get('properties', {})
            value = ['bash', '-lc', command] if schema.get(argument, {}).get('type') == 'array' else command
            more = {k: v for k, v in (('description', 'run it'), ('is_background', False)) if k in schema}
            return tool['name'], {argument: value, **more}
    return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    shell_line, lock, seen = '', threading.Lock(), []

    def log_message(self, *args):
        pass

    def reply(self, value, status=200):
        body = (value if isinstance(value, str) else json.dumps(value)).encode()
        self.send_response(status)
        self.send_header('content-type', 'text/plain' if isinstance(value, str) else 'application/json')
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, events, named=False, done=False):
        self.send_response(200)
        self.send_header('content-type', 'text/event-stream')
        self.send_header('transfer-encoding', 'chunked')
        self.end_headers()
        for event in events + (['[DONE]'] if done else []):
            data = f'data: {event if isinstance(event, str) else json.dumps(event)}\n\n'
            data = (f'event: {event["type"]}\n' if named else '') + data
            self.wfile.write(b'%x\r\n%b\r\n' % (len(data.encode()), data.encode()))
        self.wfile.write(b'0\r\n\r\n')

    def do_GET(self):
        page = {'/health': lambda: '', '/metrics': lambda: engine_shapes.metrics(OPTIONS, [RANK]), '/v1/models': lambda: engine_shapes.models(OPTIONS),
                '/_seen': lambda: self.seen}.get(self.path.partition('?')[0])
        self.reply(page() if page else {'detail': 'Not Found'}, 200 if page else 404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['content-length'])))
        path = self.path.partition('?')[0]
        answer = {'/v1/chat/completions': self.answer_chat, '/v1/responses': self.answer_responses, '/v1/messages': self.answer_messages, '/tokenize': self.answer_tokenize,
                  '/v1/messages/count_tokens': lambda b: self.reply({'input_tokens': 100})}.get(path)
        if not answer:
            return self.reply({'detail': 'Not Found'}, 404)
        if body.get('model', 'llama') != 'llama':
            return self.reply(engine_shapes.shape(OPTIONS, 'error'), 404)
        with self.lock:
            self.seen.append({'path': path, 'tools': len(body.get('tools') or ()), 'headers': sorted(k.lower() for k in self.headers)})
        return answer(body)

    def answer_tokenize(self, body):
        text = json.dumps(body.get('messages', body.get('prompt'))).encode()
        self.reply(dict(engine_shapes.shape(OPTIONS, 'tokenize'), count=len(text), tokens=list(text)))

    def answer_chat(self, body):
        call = None if any(m['role'] == 'tool' for m in body['messages']) else tool_call(body.get('tools'), self.shell_line)
        message = {'role': 'assistant', 'content': None if call else TEXT}
        if call:
            message['tool_calls'] = [{'id': 'call_1', 'type': 'function', 'index': 0, 'function': {'name': call[0], 'arguments': json.dumps(call[1])}}]
        reason = 'tool_calls' if call else 'stop'
        head = {'id': 'chatcmpl-1', 'created': 1, 'model': 'llama'}
        if not body.get('stream'):
            return self.reply({**head, 'object': 'chat.completion', 'choices': [{'index': 0, 'message': message, 'finish_reason': reason}], 'usage': USAGE})
        chunk = lambda delta, end=None: {**head, 'object': 'chat.completion.chunk', 'choices': [{'index': 0, 'delta': delta, 'finish_reason': end}]}
        return self.stream([chunk(message), chunk({}, reason), {**head, 'object': 'chat.completion.chunk', 'choices': [], 'usage': USAGE}], done=True)

    def answer_responses(self, body):
        items = body['input'] if isinstance(body['input'], list) else []
        call = None if any(i.get('type', '').endswith('_output') for i in items) else tool_call(body.get('tools'), self.shell_line)
        if call:
            item = {'type': 'function_call', 'id': 'fc_1', 'call_id': 'call_1', 'name': call[0], 'arguments': json.dumps(call[1]), 'status': 'completed'}
        else:
            item = {'type': 'message', 'id': 'msg_1', 'role': 'assistant', 'status': 'completed',
                    'content': [{'type': 'output_text', 'text': TEXT, 'annotations': []}]}
        whole = {'id': 'resp_1', 'object': 'response', 'created_at': 1, 'model': 'llama', 'status': 'completed', 'output': [item], 'parallel_tool_calls': True,
                 'tool_choice': 'auto', 'tools': [], 'usage': {'input_tokens': 100, 'input_tokens_details': {'cached_tokens': 0}, 'output_tokens': 9,
                                                               'output_tokens_details': {'reasoning_tokens': 0}, 'total_tokens': 109}}
        if not body.get('stream'):
            return self.reply(whole)
        empty = dict(whole, status='in_progress', output=[], usage=None)
        events = [{'type': 'response.created', 'response': empty}, {'type': 'response.output_item.added', 'output_index': 0, 'item': dict(item, status='in_progress')}]
        if not call:
            events.append({'type': 'response.output_text.delta', 'item_id': 'msg_1', 'output_index': 0, 'content_index': 0, 'delta': TEXT})
        events += [{'type': 'response.output_item.done', 'output_index': 0, 'item': item}, {'type': 'response.completed', 'response': whole}]
        return self.stream([dict(e, sequence_number=i) for i, e in enumerate(events)], named=True)

    def answer_messages(self, body):
        results = any(isinstance(m['content'], list) and any(p.get('type') == 'tool_result' for p in m['content']) for m in body['messages'])
        call = None if results else tool_call(body.get('tools'), self.shell_line)
        block = {'type': 'tool_use', 'id': 'toolu_1', 'name': call[0], 'input': call[1]} if call else {'type': 'text', 'text': TEXT}
        reason = 'tool_use' if call else 'end_turn'
        whole = {'id': 'msg_1', 'type': 'message', 'role': 'assistant', 'model': 'llama', 'content': [block], 'stop_reason': reason, 'stop_sequence': None,
                 'usage': {'input_tokens': 100, 'output_tokens': 9}}
        if not body.get('stream'):
            return self.reply(whole)
        delta = {'type': 'input_json_delta', 'partial_json': json.dumps(call[1])} if call else {'type': 'text_delta', 'text': TEXT}
        return self.stream([
            {'type': 'message_start', 'message': dict(whole, content=[], stop_reason=None)},
            {'type': 'content_block_start', 'index': 0, 'content_block': dict(block, input={}) if call else dict(block, text='')},
            {'type': 'content_block_delta', 'index': 0, 'delta': delta}, {'type': 'content_block_stop', 'index': 0},
            {'type': 'message_delta', 'delta': {'stop_reason': reason, 'stop_sequence': None}, 'usage': {'output_tokens': 9}}, {'type': 'message_stop'}], named=True)


if __name__ == '__main__':
    Handler.shell_line = sys.argv[2]
    ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
