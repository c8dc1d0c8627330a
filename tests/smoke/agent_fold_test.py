# SPDX-License-Identifier: BSD-3-Clause
"""Answers that the client does not stream: kvroute-agent streams them from the engine and folds them. They equal the engine's own
answers, and book load and time to first token as streamed ones do.

protocol_test.sh starts it: agent_fold_test.py KVROUTE KVROUTE_AGENT
"""

import json
import sys
import urllib.error
import urllib.request

import kvrproto as p

from agent_lib import POOLS, Agent, Engine, Front, message
from protocol_router import ADDRESSES, Router, Tally

TALLY = Tally(150, patience=20.0)
MESSAGES = [{'role': 'user', 'content': 'the cache of the router'}]
EACH = 3  # tokens in one event

FORMS = {
    'completion': ('/v1/completions', {}),
    'completion with n and logprobs': ('/v1/completions', {'n': 3, 'logprobs': 1}),
    'chat': ('/v1/chat/completions', {'messages': MESSAGES}),
    'chat with n and logprobs': ('/v1/chat/completions', {'messages': MESSAGES, 'n': 2, 'logprobs': True}),
    'response': ('/v1/responses', {'input': 'the router', 'max_output_tokens': 7}),
}


def prompt(i, n=64):
    return [i * 1000 + k for k in range(n)]


def post(engine, path, body):
    """The engine's own answer."""
    request = urllib.request.Request(f'http://127.0.0.1:{engine.port}{path}', json.dumps(body).encode(), {'content-type': 'application/json'})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers['content-type'], answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers['content-type'], e.read()


def ordered(content):
    """JSON with members in their order, without what differs in each answer."""
    def without(pairs):
        return [(k, v) for k, v in pairs if k not in ('id', 'created', 'created_at')]
    return json.loads(content, object_pairs_hook=without)


class Fold:
    def __init__(self, router, program, kind, worker):
        self.router, self.kind, self.worker = router, kind, worker
        self.front = Front(TALLY, ADDRESSES[0])
        self.engine = Engine('--type', kind, '--event-tokens', str(EACH), ranks=1)
        self.agent = Agent(program, self.engine, ADDRESSES[0], worker, '--type', kind, log=f'{router.dir}/agent_fold.log')

    def check(self, name, *more):
        return self.front.check(f'{self.kind}: {name}', *more)

    def ask(self, tokens, n=7, path='/v1/completions', **more):
        return self.front.ask(tokens, n, pin=(self.worker, 0), path=path, **more)

    def rank(self):
        return self.router.telemetry('/kvroute/loads,llama')['ranks'][f'{self.worker}/0']

    def seen(self):
        return self.engine.state()['seen'][-1]['body']

    def equal_answers(self):
        for i, (name, (path, more)) in enumerate(FORMS.items()):
            body = {'prompt': prompt(i), 'max_tokens': 7, 'stream': False, **more}
            post(self.engine, path, body)  # the cache is warm for both
            status, kind, want = post(self.engine, path, body)
            r = self.ask(prompt(i), raw=message(path, body))
            a = self.front.answers(name, [r])[0]
            self.check(f'{name}: the engine streams', self.seen()['stream'] is True, self.seen())
            self.check(f'{name}: status and type', (a.status, a.fields.get('content-type')) == (status, kind), (a.status, a.fields))
            self.check(f'{name}: the same members and values', ordered(a.content) == ordered(want), (a.content, want))
            tokens = 7 * more.get('n', 1)
            self.check(f'{name}: tokens', r.generated == tokens, r.generated)

    def unfoldable(self):
        """The engine answers these as a whole; no time to first token is taken from them."""
        before = self.rank()
        r = self.ask(prompt(20), echo=True)
        a = self.front.answers('echo', [r])[0]
        self.check('echo: the engine does not stream', self.seen()['stream'] is False and a.status == 200, self.seen())
        self.check('echo: no tokens reported', r.generated == 0, r.generated)
        self.check('echo: no first token', self.rank()['last_ttft_ns'] == before['last_ttft_ns'], (before, self.rank()))

    def loads(self):
        """Load of a whole answer during its generation: prefill ends with the first token, blocks grow with the output."""
        self.engine.test(decode_us=10000)
        seen = {}
        for stream in (True, False):
            r = self.ask(prompt(30 + stream, 320), 400, stream=stream)
            self.front.until('it runs', lambda: self.rank()['active_requests'] == 1)
            self.front.until('prefill load ends', lambda: self.rank()['active_prefill_tokens'] == 0 or r.ended, self.rank)
            self.check(f'stream {stream}: prefill load ends before the answer', not r.ended and self.rank()['active_prefill_tokens'] == 0, self.rank())
            self.front.until('an item with tokens', lambda: r.next > 0 and r.generated > 0)
            seen[stream] = r.generated % EACH
            self.front.until('output blocks', lambda: self.rank()['active_blocks'] >= 24 or r.ended, self.rank)
            self.check(f'stream {stream}: output blocks are added', not r.ended and self.rank()['active_blocks'] >= 24, self.rank())
            self.check(f'stream {stream}: no data before the end' if not stream else 'data', bool(r.data) == stream)
            self.front.client.cancel(r)
            self.front.until('cancelled', lambda: r.ended)
            self.front.until('free', lambda: self.rank()['active_requests'] == 0)
        self.check('items count all tokens of an event', seen == {True: 0, False: 0}, seen)
        self.engine.test(decode_us=0)

    def errors(self):
        body = {'prompt': prompt(40), 'max_tokens': 20, 'stream': False}
        self.engine.test(error_after=6)
        status, _, want = post(self.engine, '/v1/completions', body)
        r = self.ask(prompt(40), 20)
        a = self.front.answers('error', [r])[0]
        self.check('an error after tokens: as the engine has it', (a.status, a.json()) == (status, json.loads(want)), (a.status, a.content))
        self.check('and it counts against the rank', r.fin == (0x11, 500), r.fin)
        self.engine.test(error_after=0, break_after=6)
        r = self.ask(prompt(40), 20)
        self.front.answers('broken', [r])
        self.check('a broken stream: an error, no data', r.fin and r.fin[0] & p.ITEM_ERROR and r.fin[1] == 502 and not r.data, (r.fin, r.data))
        self.engine.test(break_after=0, error=500, error_as='empty')
        r = self.ask(prompt(40), 20)
        self.front.answers('empty', [r])
        self.check('an empty stream: an error', r.fin and r.fin[0] & p.ITEM_ERROR and r.fin[1] == 502, (r.fin, r.data))
        self.engine.test(error=0, error_as='status')
        r = self.ask(prompt(40), 20, max_tokens=-1)
        a = self.front.answers('rejected', [r])[0]
        self.check('a rejected request: 400 as it came', a.status == 400 and 'max_tokens' in a.json()['error']['message'], a.content)

    def streams(self):
        """The client gets what it asked for, whatever the agent asks for."""
        for asked in (None, {'include_usage': True}, {'include_usage': True, 'continuous_usage_stats': True}):
            more = {} if asked is None else {'stream_options': asked}
            body = {'prompt': prompt(50), 'max_tokens': 8, 'stream': True, **more}
            post(self.engine, '/v1/completions', body)
            want = post(self.engine, '/v1/completions', body)[2].split(b'\n\n')
            r = self.ask(prompt(50), raw=message('/v1/completions', body))
            got = self.front.answers('stream', [r])[0].content.split(b'\n\n')
            same = [ordered(e[6:]) if e.startswith(b'data: {') else e for e in got] == [ordered(e[6:]) if e.startswith(b'data: {') else e for e in want]
            self.check(f'a stream with {asked}: as the engine has it', same, (got, want))
            self.check(f'a stream with {asked}: the agent asks for more', self.seen()['stream_options'] == {
                'include_usage': True, 'continuous_usage_stats': True}, self.seen())
            self.check(f'a stream with {asked}: tokens', r.generated == 8, r.generated)

    def run(self):
        try:
            self.front.serving('fold', self.router, self.worker)
            self.equal_answers()
            self.unfoldable()
            self.loads()
            self.errors()
            self.streams()
            n = self.agent.counters()['agent']
            self.check('nothing is left', n['running'] == 0 and n['bad_events'] == 0, n)
            self.check('exit status', self.agent.stop() == 0)
        finally:
            self.agent.kill()
            self.engine.stop()


def main(kvroute, agent):
    router = Router(kvroute, POOLS + 'router_track_output_blocks = true\n')

    def run():
        for worker, kind in enumerate(('vllm', 'sglang'), 70):
            Fold(router, agent, kind, worker).run()
        TALLY.balanced(router)
    TALLY.beside(router, run, f'{router.dir}/agent_fold.log')


main(*sys.argv[1:])
