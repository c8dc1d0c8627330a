# SPDX-License-Identifier: BSD-3-Clause
"""A conversation behind kvroute-gateway's --tokenize: its next turn asks only for the new part, and gets the ids of the whole.

protocol_test.sh starts it: gateway_turns.py KVROUTE GATEWAY. The stand-in engine reports the questions to its /tokenize.
"""

import http.client
import json
import re
import socket
import sys
import urllib.request

import kvrproto as p
from gateway_rig import Tokenizer, beside, response, serving, wait_for
from protocol_router import ADDRESSES, Router, Tally

B = 16
POOLS = f'''[pool llama]
id = 3
block_size = {B}
max_ranks = 4
max_blocks = 4096
'''
TALLY = Tally(100, patience=30.0)
check = TALLY.check
SYSTEM = {'role': 'system', 'content': 'Answer as briefly as the question allows, and do not invent anything. ' * 30}
TURNS = 76  # 1 complete, 4 both ways, then 64 with one both ways, and 7 more
MATCH, MISMATCH = 'turns_checked_total{result="match"}', 'turns_checked_total{result="mismatch"}'
FAILED, GONE = 'tokenizer_queries_total{result="failed"}', 'requests_total{outcome="client_gone"}'


def serve(agents, agent, job):
    agent.item(job, response(body=b'{}'), tokens=1, fin=True, status=200)


def rendered(messages, numbered=False):
    """Like the stand-in engine: a byte is a token."""
    return ''.join(f"<|{m['role']}{i if numbered else ''}|>{m['content']}\n" for i, m in enumerate(messages)).encode() + b'<|assistant|>'


class Rig:
    def __init__(self, gw, agents, tokenizer):
        self.gw, self.agents = gw, agents
        self.test = tokenizer.url.replace('/tokenize', '/_test')

    def asked(self):
        """(messages, tokens) of all questions so far."""
        with urllib.request.urlopen(self.test) as answer:
            return [tuple(q) for q in json.load(answer)['asked']]

    def switch(self, **what):
        urllib.request.urlopen(self.test, json.dumps(what).encode()).close()

    def n(self, *names):
        counters = self.gw.counters()
        return tuple(int(counters[f'kvr_gateway_{x}']) for x in names)

    def send(self, messages, want, address='127.0.0.1', **more):
        """One request. @return its questions to the tokenizer."""
        before = len(self.asked())
        c = http.client.HTTPConnection('127.0.0.1', self.gw.port, timeout=30, source_address=(address, 0))
        c.request('POST', '/v1/chat/completions', json.dumps({'model': 'llama', 'messages': messages, **more}))
        status = c.getresponse().status
        c.close()
        d = self.agents.runs()[-1].dispatch
        check('the ids are those of the whole', (status, d.isl, list(d.hashes)) == (200, len(want), p.sequence_hashes(want, B)),
              (status, d.isl, len(want), len(messages)))
        return self.asked()[before:]


def conversation(rig):
    talk, whole, short = [SYSTEM], 0, []
    for i in range(TURNS):
        talk.append({'role': 'user', 'content': f'Question {i}?'})
        want = rendered(talk)
        asked = rig.send(talk, want)
        both = i in (1, 2, 3, 4, 4 + 64)
        kinds = sorted(n for n, _ in asked)
        check('what a turn is asked for', kinds == ([1, 3] if i > 0 else []) + ([len(talk)] if i == 0 or both else []), (i, asked))
        whole += len(want)
        short += [t for _, t in asked] if i > 0 and not both else []
        talk.append({'role': 'assistant', 'content': f'Answer {i}.'})
    check('tokens asked for are few', sum(short) < 200 * len(short) and sum(short) * 10 < whole, (sum(short), whole))
    check('counted', rig.n('turns_total', MATCH, MISMATCH) == (TURNS - 6, 5, 0), rig.gw.counters())
    print(f'{len(short)} questions of {sum(short)} tokens; {whole} tokens in all turns')
    return talk


def tools(rig, talk):
    """Tools in the middle of a turn: only its user message is known then; the same turn again asks for nothing."""
    talk = talk + [{'role': 'user', 'content': 'Look it up.'}]
    check('a user speaks', sorted(n for n, _ in rig.send(talk, rendered(talk))) == [1, 3])
    for i in range(3):
        talk = talk + [{'role': 'assistant', 'content': 'I look.'}, {'role': 'tool', 'content': f'Found {i}.'}]
        asked = rig.send(talk, rendered(talk))
        check('a tool answers', sorted(n for n, _ in asked) == ([1, 3] if i == 0 else [3 + 2 * i]), asked)
    check('the same again', rig.send(talk, rendered(talk)) == [])
    other = rig.send(talk, rendered(talk), tools=[{'type': 'function', 'function': {'name': 'f'}}])
    check('with tools it is another question', other == [(len(talk), len(rendered(talk)))], other)
    again = talk[:3] + [{'role': 'user', 'content': 'Something else?'}]
    check('a branch goes on where it left', sorted(n for n, _ in rig.send(again, rendered(again))) == [3])


def numbered(rig):
    """A template that numbers its messages is not additive: the turns of that model are tokenized completely, others are not affected."""
    rig.switch(numbered=True)
    talk = [SYSTEM]
    for i in range(4):
        talk.append({'role': 'user', 'content': f'Number {i}?'})
        asked = rig.send(talk, rendered(talk, True), model='alias')
        check('asked whole', sorted(n for n, _ in asked) == ([1, 3, 4] if i == 1 else [len(talk)]), (i, asked))
        talk.append({'role': 'assistant', 'content': 'Yes.'})
    check('found out once', rig.n(MISMATCH) == (1,))
    rig.switch(numbered=False)
    # The client might have written the same.
    talk = [SYSTEM, {'role': 'user', 'content': 'Whose?'}]
    rig.send(talk, rendered(talk), model='alias', address='127.0.0.2')
    for address, kinds in (('127.0.0.1', [4]), ('127.0.0.2', [1, 3, 4])):
        again = talk + [{'role': 'assistant', 'content': 'Mine.'}, {'role': 'user', 'content': f'And of {address}?'}]
        asked = rig.send(again, rendered(again), model='alias', address=address)
        check('another address', sorted(n for n, _ in asked) == kinds, (address, asked))


def not_served(rig):
    """Requests without a model do not use the tokenizer's time."""
    before = rig.asked(), rig.n('routed_by_load_total')
    r = rig.gw.post('/v1/chat/completions', {'model': 'unknown-model', 'messages': [SYSTEM, {'role': 'user', 'content': 'Who?'}]})
    check('not served, nor asked for', r.status == 404 and (rig.asked(), rig.n('routed_by_load_total')) == before, r)


def refused(rig):
    """A template that needs more than one message: the whole is asked instead, and only the whole from then on."""
    rig.switch(refuse_one=True)
    talk = [SYSTEM]
    for i in range(3):
        talk.append({'role': 'user', 'content': f'Refused {i}?'})
        asked = rig.send(talk, rendered(talk), model='picky')
        check('asked whole', sorted(n for n, _ in asked) == ([1, 3, 4] if i == 1 else [len(talk)]), (i, asked))
        talk.append({'role': 'assistant', 'content': 'No.'})
    check('that is not wrong', rig.n(MISMATCH) == (1,))
    # A model that is trusted: the whole follows.
    talk = [SYSTEM, {'role': 'user', 'content': 'Question 0?'}, {'role': 'assistant', 'content': 'Answer 0.'},
            {'role': 'user', 'content': 'Question 1?'}, {'role': 'assistant', 'content': 'Another.'}, {'role': 'user', 'content': 'And now?'}]
    one = rendered(talk[3:4])
    rig.switch(refuse_one=False)
    check('that message was asked for', (1, len(one)) in rig.asked())
    rig.send(talk[:5], rendered(talk[:5]))
    rig.switch(refuse_one=True)
    talk[3] = {'role': 'user', 'content': 'Never asked before?'}
    asked = rig.send(talk[:4], rendered(talk[:4]))
    check('of known beginnings one message is known', sorted(n for n, _ in asked) == [3], asked)
    asked = rig.send(talk, rendered(talk))
    check('refused, then whole', sorted(n for n, _ in asked) == [1, 3, 6] and asked[-1][0] == 6, asked)
    check('nor is that', rig.n(MISMATCH) == (1,))
    rig.switch(refuse_one=False)


def held(rig):
    """A client that disconnects meanwhile, and a tokenizer too slow for the new part: the whole is not begun then."""
    talk = [SYSTEM, {'role': 'user', 'content': 'First?'}]
    rig.send(talk, rendered(talk), model='other')
    talk += [{'role': 'assistant', 'content': 'Yes.'}, {'role': 'user', 'content': 'Second?'}]
    body = json.dumps({'model': 'other', 'messages': talk}).encode()
    before, gone = len(rig.asked()), rig.n(GONE)[0]
    rig.switch(hold=True)
    with socket.create_connection(('127.0.0.1', rig.gw.port)) as s:
        s.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
        check('three questions', wait_for(lambda: len(rig.asked()) == before + 3), rig.asked()[before:])
    check('the client is gone', wait_for(lambda: rig.n(GONE)[0] == gone + 1))
    rig.switch(hold=False)
    for i in range(6):
        talk += [{'role': 'assistant', 'content': 'Yes.'}, {'role': 'user', 'content': f'Then {i}?'}]
        rig.send(talk, rendered(talk), model='other')
    talk += [{'role': 'assistant', 'content': 'Yes.'}, {'role': 'user', 'content': 'Still?'}]
    before, counts = len(rig.asked()), rig.n('routed_by_load_total', FAILED, MISMATCH)
    rig.switch(hold=True)
    r = rig.gw.post('/v1/chat/completions', {'model': 'other', 'messages': talk})
    check('served by load', r.status == 200 and not list(rig.agents.runs()[-1].dispatch.hashes), r)
    check('two questions', sorted(n for n, _ in rig.asked()[before:]) == [1, 3], rig.asked()[before:])
    after = rig.n('routed_by_load_total', FAILED, MISMATCH)
    check('too slow is not wrong', after == (counts[0] + 1, counts[1] + 1, counts[2]), (counts, after))
    rig.switch(hold=False)
    check('nothing is left', wait_for(lambda: rig.gw.counters()['kvr_gateway_requests_in_flight'] == 0))


def run(log):
    tokenizer = Tokenizer('llama')
    with serving(TALLY, [p.Agent(ADDRESSES[0], 101, 'llama', B)], serve, sys.argv[2], '--router', ADDRESSES[0], '--model',
                 'alias=llama,picky=llama,other=llama', '--tokenize', tokenizer.url, '--tokenize-ms', '2000', log=log) as (gw, agents):
        rig = Rig(gw, agents, tokenizer)
        talk = conversation(rig)
        tools(rig, talk)
        numbered(rig)
        check('nothing went by load', rig.n('routed_by_load_total', FAILED) == (0, 0))
        not_served(rig)
        held(rig)
        refused(rig)
        tokenizer.stop()
        talk.append({'role': 'user', 'content': 'Still there?'})
        r = gw.post('/v1/chat/completions', {'model': 'llama', 'messages': talk})
        check('without a tokenizer it is served, by load', r.status == 200 and not list(agents.runs()[-1].dispatch.hashes), r)
        check('and that does not count against the model', rig.n(MISMATCH, 'routed_by_load_total') == (1, 2))
    log.seek(0)
    lines = [x for x in log.readlines() if 'tokenised whole' in x and 'alias' in x]
    check('the log reports it once', len(lines) == 1 and re.search(
        'level=notice msg="conversations of model alias from one address are tokenised whole for 600 s" reason="results differ"', lines[0]), lines)


beside(TALLY, Router(sys.argv[1], POOLS, 'suspect_ms = 20000\ndead_ms = 40000'), run)
