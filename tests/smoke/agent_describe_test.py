# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-agent with only --engine, --router and --pool: what it reads from vLLM and SGLang, and from engines with invalid descriptions.

protocol_test.sh starts it: agent_describe_test.py KVROUTE KVROUTE_AGENT
"""

import json
import os
import re
import shlex
import sys

from agent_lib import B, POOLS, Agent, Engine, Front, message
from kvrproto import ROUTE_TRACK
from protocol_router import ADDRESSES, Router, Tally

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
TALLY = Tally(150, patience=20.0)
#            options of the engine                                   its start line has                              unknown
ENGINES = {
    'vLLM': (('--type', 'vllm'),
             ('type vllm (/v1/models)', 'model model (/v1/models)', 'adapters 0 (/v1/models)', 'block size 16 (/metrics)', 'blocks a rank 150 (/metrics)',
              'ranks 2 (/kv_event_sources)', 'events tcp://127.0.0.1:{events} (/kv_event_sources)', 'replay tcp://127.0.0.1:{replay} (/kv_event_sources)'),
             ('batch budget',)),
    'vLLM, development mode, adapters': (('--type', 'vllm', '--dev', '--batched-tokens', '2048', '--lora', 'a', 'b'),
                                         ('adapters 2 (/v1/models)', 'batch budget 2048 (/server_info)'), ()),
    'SGLang': (('--type', 'sglang', '--batched-tokens', '4096'),
               ('type sglang (/v1/models)', 'block size 16 (/server_info)', 'blocks a rank 150 (/server_info)', 'ranks 2 (/server_info)',
                'events tcp://127.0.0.1:{events} (/server_info)', 'replay tcp://127.0.0.1:{replay} (/server_info)', 'batch budget 4096 (/server_info)'), ()),
    'SGLang 0.5.13': (('--type', 'sglang', '--version', '0.5.13'), ('ranks 2 (/server_info)', 'replay tcp://127.0.0.1:{replay} (/server_info)'), ()),
    'SGLang 0.5.6': (('--type', 'sglang', '--version', '0.5.6'), ('ranks 2 (/server_info)', 'block size 16 (/server_info)', 'replay tcp://127.0.0.1:{replay} (/server_info)'), ()),
}


class Alone(Agent):
    """An agent with only the required options."""

    def __init__(self, program, engine, router, worker, *how, pool='llama', log=None):
        super().__init__(program, engine, router, worker, pool=pool, log=log, how_all=(
            '--health-ms', '200', '--canary-s', '0', *(('--worker', f'{worker}') if worker else ()), *how))

    def starts(self):
        return [line for line in self.lines() if 'msg="the engine: ' in line]


def prompts(n, first=0):
    return [[(first + i) * 1000 + k for k in range(4 * B)] for i in range(n)]


def engines(router, program):
    """Each kind and version: registers, lists values and sources, names flags for what is missing; its blocks reach the router."""
    front = Front(TALLY, ADDRESSES[0])
    for i, (name, (how, has, unknown)) in enumerate(ENGINES.items()):
        worker = 60 + i
        engine = Engine(*how, '--blocks', '150')
        agent = Alone(program, engine, ADDRESSES[0], worker, log=f'{router.dir}/agent_{worker}.log')
        try:
            front.serving(name, router, worker)
            line = ' '.join(agent.starts())
            for value in has:
                value = value.format(events=engine.events, replay=engine.replay)
                front.check(f'{name}: {value}', value in line, line)
            missing = [x for x in agent.lines() if 'level=warning msg="unknown: ' in x]
            front.check(f'{name}: missing values', len(missing) == len(unknown) and all(u in m for u, m in zip(unknown, missing)), missing)
            tokens = prompts(4, 10 * i)
            front.answers(name, [front.ask(t, pin=(worker, k % 2)) for k, t in enumerate(tokens)])
            front.same_table(name, engine, worker, tokens)
            ranks = router.telemetry('/kvroute/loads,llama')['ranks']
            seen = [(r['kv_total_blocks'], r['max_num_batched_tokens']) for key, r in ranks.items() if key.startswith(f'{worker}/')]
            budget = 0 if unknown else int(line.split('batch budget ')[1].split()[0])
            front.check(f'{name}: each rank has its share, and the budget', seen == [(150, budget)] * 2, seen)
            front.check(f'{name}: nothing bad', agent.counters()['agent']['pages_failed'] == agent.counters()['agent']['facts_bad'] == 0, agent.lines())
            front.check(f'{name}: exit status', agent.stop() == 0)
        finally:
            agent.kill()
            engine.stop()


def documents(router, program):
    """The two command lines of README and manual, engine and agent: the agent needs no more options for this engine."""
    front, worker = Front(TALLY, ADDRESSES[0]), 65
    for file in ('README.md', 'app/agent/manual.md'):
        text = open(os.path.join(ROOT, file)).read().replace('\\\n', ' ')
        agents = [shlex.split(line) for line in text.splitlines() if re.match(r' *kvroute-agent --engine ', line)]
        starts = {kind: shlex.split(line) for line in text.splitlines() for kind, pattern in (('vllm', r' *vllm serve MODEL '), ('sglang', r' *python -m sglang'))
                  if re.match(pattern, line)}
        front.check(f'{file}: two engines and their agents', len(starts) == 2 and agents, (starts, agents))
        for kind, words in starts.items():
            config = json.loads(words[words.index('--kv-events-config') + 1])
            size = words[words.index({'vllm': '--block-size', 'sglang': '--page-size'}[kind]) + 1]
            engine = Engine('--type', kind, '--block-size', size, bare=True, ranks=1)
            engine.kill()
            for key, option, port in (('endpoint', '--events', engine.events), ('replay_endpoint', '--replay', engine.replay)):
                engine.how += [option, config[key].rpartition(':')[0] + f':{port}']
            engine.start()
            front.check(f'{file}: nothing but three options', all(line[1::2] == ['--engine', '--router', '--pool'] for line in agents), agents)
            agent = Alone(program, engine, ADDRESSES[0], worker, log=f'{router.dir}/agent_{worker}.log')
            try:
                front.serving(f'{file}: {kind}', router, worker)
                tokens = prompts(2, 10 * worker)
                front.answers(file, [front.ask(t, pin=(worker, 0)) for t in tokens])
                front.same_table(f'{file}: {kind}', engine, worker, tokens)
                agent.stop()
            finally:
                agent.kill()
                engine.stop()
            worker += 1


def flags(router, program):
    """An engine without KV events: one line names the flag. An engine without a description: one line, and options replace it."""
    front, worker = Front(TALLY, ADDRESSES[0]), 70
    for kind in ('vllm', 'sglang'):
        engine = Engine('--type', kind, ranks=1, bare=True)
        agent = Alone(program, engine, ADDRESSES[0], worker, '--max-num-batched-tokens', '512', log=f'{router.dir}/agent_flags_{kind}.log')
        try:
            front.serving(f'{kind} without events', router, worker)
            said = [x for x in agent.lines() if 'msg="unknown: ' in x]
            front.check(f'{kind} without events: the flag', len(said) == 1 and '--kv-events-config' in said[0] and 'or give --events' in said[0], said)
            front.check(f'{kind} without events: exit status', agent.stop() == 0)
        finally:
            agent.kill()
            engine.stop()
        worker += 1
    engine = Engine('--type', 'sglang', ranks=1)
    engine.test(pages={path: {'text': 'no', 'status': 404} for path in ('/metrics', '/v1/models', '/server_info', '/get_server_info')})
    agent = Alone(program, engine, ADDRESSES[0], worker, '--type', 'sglang', log=f'{router.dir}/agent_none.log')
    try:
        front.until('no description: refused', lambda: any('the engine does not report its block size: give --block-size' in x for x in agent.lines()), agent.lines)
        agent.stop()
        agent.args += ['--block-size', f'{B}', '--events', f'tcp://127.0.0.1:{engine.events}']
        agent.start()
        front.serving('no description, options', router, worker)
        front.check('no description: exit status', agent.stop() == 0)
    finally:
        agent.kill()
        engine.stop()


def lies(router, program):
    """Invalid descriptions: one line and one count each, and the missing values stay unknown."""
    front, worker = Front(TALLY, ADDRESSES[0]), 80
    good = {'page_size': B, 'chunked_prefill_size': 512}
    bodies = 19800
    rows = {
        # /server_info: text, how many times            counter           the line
        '100 MB': (('x' * (1 << 20), 100), 'pages_failed', 'reason="the answer exceeds 4 MiB"'),
        'no JSON': (('<html>', 1), 'pages_failed', 'reason="not a JSON object"'),
        'an array': (('[]', 1), 'pages_failed', 'reason="not a JSON object"'),
        'negative ranks': ((json.dumps({**good, 'kv_events': {'dp_size': -3}}), 1), 'facts_bad', r'the value at \"kv_events.dp_size\" is ignored'),
        'a negative port': ((json.dumps({**good, 'kv_events': {'endpoint_host': '*', 'endpoint_port_base': -1}}), 1), 'facts_bad', r'\"kv_events.endpoint_port_base\"'),
        'itself': ((json.dumps({**good, 'kv_events': {'endpoint_host': '*', 'endpoint_port_base': bodies}}), 1), 'facts_bad', 'ignoring an endpoint of the engine'),
    }
    engine = Engine('--type', 'sglang', ranks=1)
    for name, ((text, times), counter, line) in rows.items():
        engine.test(pages={'/server_info': {'text': text, 'times': times}})
        agent = Alone(program, engine, ADDRESSES[0], worker, '--bodies', f'10.9.0.2:{bodies}', log=f'{router.dir}/agent_lie_{worker}.log')
        try:
            front.serving(name, router, worker)
            said = [x for x in agent.lines() if 'level=error' in x]
            front.check(f'{name}: one line', len(said) == 1 and line in said[0], said)
            c = agent.counters()['agent']
            front.check(f'{name}: counted', c[counter] == 1 and c['pages_failed'] + c['facts_bad'] == 1, c)
            front.check(f'{name}: no events', 'events unknown' in agent.starts()[0] or name == 'itself', agent.starts())
            front.check(f'{name}: exit status', agent.stop() == 0)
        finally:
            agent.kill()
        worker += 1
    engine.stop()


def numbers(router, program):
    """--worker auto: the same number after a restart, another one for another engine; a second agent of one engine is rejected, and the first one
    continues."""
    front = Front(TALLY, ADDRESSES[0])
    engines_ = [Engine('--type', 'vllm', ranks=1) for _ in range(2)]
    agents = [Alone(program, e, ADDRESSES[0], None, log=f'{router.dir}/agent_auto_{i}.log') for i, e in enumerate(engines_)]

    def number(agent):
        found = [x.split('msg="worker ')[1].split(':')[0] for x in agent.lines() if 'msg="worker ' in x]
        return int(found[-1]) if found else None
    second = None
    try:
        for i, agent in enumerate(agents):
            front.until(f'auto {i}: it has a number', lambda agent=agent: number(agent), agent.lines)
            front.serving(f'auto {i}', router, number(agent))
        first = number(agents[0])
        front.check('two engines, two numbers', first != number(agents[1]), first)
        second = Alone(program, engines_[0], ADDRESSES[0], None, log=f'{router.dir}/agent_auto_second.log')
        front.until('the second agent of an engine is refused', lambda: any('the router rejects the worker' in x and f'worker={first}' in x for x in second.lines()),
                    second.lines)
        front.check('one line of it', sum('the router rejects the worker' in x for x in second.lines()) <= 2, second.lines())
        answers = front.answers('the first goes on', [front.ask(t, pin=(first, 0)) for t in prompts(2, 900)])
        front.check('the first goes on: answers', all(a.status == 200 for a in answers), [a.status for a in answers])
        second.kill()
        front.check('auto: exit status', agents[0].stop() == 0)
        agents[0].start()
        front.serving('auto, again', router, first)
        front.check('the same number', number(agents[0]) == first, number(agents[0]))
    finally:
        for agent in [*agents, *([second] if second else [])]:
            agent.kill()
        for e in engines_:
            e.stop()


def tells_more(router, program):
    """Options for values that engines do not report: CPU, KV transfer, and a span for the trace."""
    front, worker = Front(TALLY, ADDRESSES[0]), 96
    engine = Engine('--type', 'vllm', ranks=1)
    agent = Alone(program, engine, ADDRESSES[0], worker, '--cpu', '--trace-span', log=f'{router.dir}/agent_more.log')
    trace, parent = '0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331'
    try:
        front.serving('more', router, worker)
        for tracked in (True, False):
            r = front.ask(prompts(1, 970)[0], pin=(worker, 0), flags=ROUTE_TRACK if tracked else 0, raw=message(
                '/v1/completions', {'prompt': 'x', 'max_tokens': 1}, traceparent=f'00-{trace}-{parent}-01'))
            front.answers('more', [r])
            sent = engine.state()['seen'][-1]['headers']['traceparent'].split('-')
            front.check('the engine is in the trace, below a span of the agent', sent[:2] == ['00', trace] and sent[2] != parent and sent[3] == '01', sent)
            link = getattr(r, 'link', None)
            front.check(f'tracked {tracked}: the link', (link and json.loads(link)) == ({'span_id': sent[2]} if tracked else None), link)
        front.answers('no trace', [front.ask(prompts(1, 971)[0], pin=(worker, 0), flags=ROUTE_TRACK, raw=message(
            '/v1/completions', {'prompt': 'x', 'max_tokens': 1}, traceparent='nonsense'))])
        front.check('another traceparent passes as it is', engine.state()['seen'][-1]['headers']['traceparent'] == 'nonsense')
        front.check('more: exit status', agent.stop() == 0)
    finally:
        agent.kill()
        engine.stop()


def changed(router, program):
    """An engine that returns with another number of ranks, unnoticed by /health, is read again."""
    front, worker = Front(TALLY, ADDRESSES[0]), 95
    engine = Engine('--type', 'vllm', ranks=1)
    agent = Alone(program, engine, ADDRESSES[0], worker, '--health-ms', '60000', log=f'{router.dir}/agent_changed.log')
    try:
        epoch = front.serving('one rank', router, worker)
        engine.kill()
        engine.how[engine.how.index('--ranks') + 1], engine.ranks = '2', 2
        engine.start()
        front.serving('two ranks', router, worker, other_than=epoch)
        tokens = prompts(4, 950)
        front.answers('two ranks', [front.ask(t, pin=(worker, k % 2)) for k, t in enumerate(tokens)])
        front.same_table('two ranks', engine, worker, tokens)
        front.check('two ranks: exit status', agent.stop() == 0)
    finally:
        agent.kill()
        engine.stop()


def main(kvroute, program):
    router = Router(kvroute, POOLS, 'suspect_ms = 2000\ndead_ms = 4000')

    def test():
        engines(router, program)
        documents(router, program)
        flags(router, program)
        lies(router, program)
        numbers(router, program)
        tells_more(router, program)
        changed(router, program)
        TALLY.balanced(router)
    TALLY.beside(router, test, f'{router.dir}/agent.log')


main(*sys.argv[1:])
