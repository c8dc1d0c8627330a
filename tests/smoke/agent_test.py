# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-agent between the router and stand-in engines: requests, KV events of every form, and failures.

protocol_test.sh starts it: agent_test.py KVROUTE KVROUTE_AGENT
"""

import re
import signal
import sys
import time

import kvrproto as p

from agent_lib import B, POOLS, Agent, Engine, Front, message
from protocol_router import ADDRESSES, Router, Tally

TALLY = Tally(260, patience=20.0)
FORMS = {
    'vLLM, maps': ('--type', 'vllm', '--odd'),
    'vLLM, positional, signed': ('--type', 'vllm', '--form', 'positional', '--hash', 'int', '--odd'),
    'vLLM, copies': ('--type', 'vllm', '--copies'),
    'vLLM, digests, batch as a map': ('--type', 'vllm', '--hash', 'bytes', '--batch-form', 'map'),
    'vLLM, stored again, no rank, old replay': ('--type', 'vllm', '--repeat-stores', '--no-rank',
                                               '--replay-framing', 'old'),
    'SGLang, maps': ('--type', 'sglang'),
    'SGLang, positional, early': ('--type', 'sglang', '--form', 'positional', '--early'),
}


def prompts(n, first=0):
    """Prompts of 2 to 9 blocks, in groups of four with a common prefix."""
    return [[(first + i // 4) * 1000 + k for k in range(3 * B)]
            + [(first + i) * 1000 + 500 + k for k in range(B * (i % 7) + i % 16)] for i in range(n)]


def check_answers(front, name, requests, answers, tokens, n):
    text = ''.join(f' {i % 10}' for i in range(n))
    for r, a, t in zip(requests, answers, tokens):
        front.check(f'{name}: status', a.status == 200 and r.fin == (p.ITEM_FIN, 200), (a.status, r.fin, r.rejected))
        front.check(f'{name}: text', a.status == 200 and a.text() == text, a.content[:200])
        front.check(f'{name}: tokens', r.generated == n, r.generated)
        usage = a.events()[-1]['usage'] if 'event-stream' in a.fields['content-type'] else a.json()['usage']
        front.check(f'{name}: cached', r.cached_tokens == usage['prompt_tokens_details']['cached_tokens'],
                    (r.cached_tokens, usage))


def one_form(router, program, name, how, worker):
    """Requests, evictions, a gap, a clear: the router's table follows."""
    front = Front(TALLY, ADDRESSES[worker % 2])
    engine = Engine(*how, '--blocks', '150')
    kind = 'sglang' if 'sglang' in how else 'vllm'
    agent = Agent(program, engine, ADDRESSES[worker % 2], worker, '--type', kind, log=f'{router.dir}/agent.log')
    try:
        front.serving(name, router, worker)
        tokens = prompts(60)
        for stream in (False, True):
            requests = [front.ask(t, 5, stream=stream) for t in tokens]
            check_answers(front, name, requests, front.answers(name, requests), tokens, 5)
        front.same_table(name, engine, worker, tokens)
        engine.test(drop_blocks=40)
        engine.test(drop_blocks=40, rank=1)
        front.same_table(f'{name}, dropped', engine, worker, tokens)
        more = prompts(20, 100)
        for _ in range(2):
            engine.test(lose_events=5)
            engine.test(lose_events=4, rank=1)
            front.answers(name, [front.ask(t) for t in more])
        front.same_table(f'{name}, events lost', engine, worker, tokens + more)
        counters = agent.counters()
        front.check(f'{name}: replayed', counters['agent']['replayed'] >= 18, counters['agent'])
        front.check(f'{name}: never clean', counters['agent']['clean_starts'] == 0, counters['agent'])
        state = engine.state()
        for i in range(2):
            held = counters[f'rank {i}']['held']
            kept = counters[f'rank {i}']['kept']
            front.check(f'{name}: copies of rank {i}', (kept > 0) == ('--copies' in how), kept)
            front.check(f'{name}: blocks of rank {i}', held == state['ranks'][i]['blocks'], (held, state['ranks']))
        engine.test(clear=True)
        front.same_table(f'{name}, cleared', engine, worker, tokens)
        front.check(f'{name}: leaves', agent.stop() == 0)
        fields = f'worker={worker} pool=llama addr={ADDRESSES[worker % 2]}'
        for what in (f'level=info msg="kvroute-agent .* runs as process [0-9]+: engine http://127.0.0.1:{engine.port}.*" {fields}',
                     f'level=info msg="the worker is serving" {fields}', f'level=info msg="stopped: requests [0-9]+, answered [0-9]+, .*batches [0-9]+.*" worker={worker} pool=llama reason=signal'):
            front.check(f'{name}: the log says {what}', any(re.fullmatch(rf'time=\S+ {what}\n', line) for line in agent.lines()), agent.lines())
    finally:
        agent.kill()
        engine.stop()


def deaths(router, program):
    """Engine and agent are killed and restarted."""
    front, worker = Front(TALLY, ADDRESSES[0]), 50
    engine = Engine('--type', 'vllm', '--blocks', '400')
    agent = Agent(program, engine, ADDRESSES[0], worker, '--health-ms', '2000', log=f'{router.dir}/agent.log')
    tokens = prompts(40)
    try:
        life = front.serving('deaths', router, worker)
        front.answers('before', [front.ask(t) for t in tokens])
        front.same_table('before', engine, worker, tokens)
        agent.kill()
        agent.start()
        life = front.serving('another agent', router, worker, life)
        front.same_table('another agent', engine, worker, tokens)
        held = engine.state()['ranks']
        front.check('it has much', sum(r['blocks'] for r in held) > 100, held)
        engine.test(hang=True)
        hanging = [front.ask(t) for t in tokens[:8]]
        front.until('they run', lambda: sum(r['running'] for r in engine.state()['ranks']) == 8)
        engine.kill()
        front.until('they end', lambda: all(r.ended for r in hanging), lambda: [r.answers for r in hanging])
        front.check('with an error', all(r.rejected or r.fin and r.fin[0] & p.ITEM_ERROR for r in hanging),
                    [(r.rejected, r.fin) for r in hanging])
        front.until('the worker leaves', lambda: f'{worker}' not in router.telemetry('/kvroute/workers')['workers'])
        engine.start()
        life = front.serving('another engine', router, worker, life)
        front.same_table('another engine', engine, worker, tokens)
        front.answers('after', [front.ask(t) for t in tokens])
        front.same_table('after', engine, worker, tokens)
        engine.kill()  # shorter than the interval of /health: its event numbers go back
        engine.start()
        end = time.monotonic() + 20
        while time.monotonic() < end:
            a = [front.ask(t) for t in tokens[:3]]
            front.client.last_id += 1
            p.run_until(front.all, lambda: all(r.ended for r in a), 5)
            if all(r.fin and not r.fin[0] & p.ITEM_ERROR for r in a):
                break
        front.same_table('a quick one', engine, worker, tokens)
        front.check('it leaves, so that it gets no more requests', agent.stop() == 0)
    finally:
        agent.kill()
        engine.stop()


def looks_failed(agent):
    """Failed polls of /health, as SIGUSR1 prints them."""
    agent.process.send_signal(signal.SIGUSR1)
    with open(agent.log.name) as f:
        told = re.findall(r'^agent: health_failed +(\d+)', f.read(), re.M)
    return int(told[-1]) if told else 0


def waits(router, program):
    """An engine that is absent, one that is unhealthy, and one that becomes unhealthy: the log reports each once."""
    front, worker = Front(TALLY, ADDRESSES[0]), 55
    engine = Engine('--type', 'vllm', '--ill', ranks=1)
    engine.kill()
    agent = Agent(program, engine, ADDRESSES[0], worker, log=f'{router.dir}/agent_waits.log')

    def said(what, reason):
        return len([line for line in agent.lines() if what in line and f'reason={reason}' in line])

    try:
        front.until('it speaks', agent.lines)
        front.until('it has looked five times', lambda: looks_failed(agent) >= 5)
        front.check('the engine is named', any(f'engine http://127.0.0.1:{engine.port}"' in line for line in agent.lines()), agent.lines())
        front.check('refused, once', said('waiting for the engine', '"Connection refused"') == 1, agent.lines())
        engine.start()
        front.until('ill', lambda: said('waiting for the engine', '"status 503"') == 1, agent.lines)
        before = looks_failed(agent)
        front.until('it has looked five times more', lambda: looks_failed(agent) >= before + 5)
        front.check('503, once', said('waiting for the engine', '"status 503"') == 1, agent.lines())
        engine.test(ill=False)
        life = front.serving('well', router, worker)
        engine.test(ill=True)
        front.until('it leaves', lambda: said('/health failed (3 in a row); the worker leaves', '"status 503"') == 1, agent.lines)
        engine.test(ill=False)
        front.serving('well again', router, worker, life)  # the agent announces its leave before the router receives it
        engine.kill()
        front.until('it leaves at once', lambda: said('/health failed (1 in a row); the worker leaves', '"Connection refused"') == 1, agent.lines)
        front.check('exit status', agent.stop() == 0)
        front.check('no counters that are 0 at the end', ' 0' not in agent.lines()[-1].partition('stopped:')[2], agent.lines()[-1])
    finally:
        agent.kill()
        engine.stop()


def stands_still(router, program):
    """An engine that accepts connections and never answers: its requests end long before three polls of /health."""
    front, worker = Front(TALLY, ADDRESSES[0]), 56
    engine = Engine('--type', 'vllm', ranks=1)
    agent = Agent(program, engine, ADDRESSES[0], worker, '--silent-ms', '1500', log=f'{router.dir}/agent_still.log')
    try:
        front.serving('still', router, worker)
        engine.test(hang=True)
        hanging = [front.ask(t) for t in prompts(8)]
        front.until('they run', lambda: engine.state()['ranks'][0]['running'] == 8)
        engine.process.send_signal(signal.SIGSTOP)
        front.until('they end', lambda: all(r.ended for r in hanging), lambda: [r.answers for r in hanging])
        front.check('with the worker', all(r.rejected and r.rejected.name == 'WorkerLost' for r in hanging), [(r.rejected, r.fin) for r in hanging])
        front.check('and the log has the reason', any('the engine hangs: no data for 1500 ms' in line for line in agent.lines()), agent.lines())
        front.check('no look at /health has failed before', not any('/health failed' in line for line in agent.lines()), agent.lines())
        # Looks that were under way end after 5 s: they are none at an engine that is well.
        before = agent.counters()['agent']['health_failed']
        front.until('looks fail', lambda: agent.counters()['agent']['health_failed'] > before, agent.lines)
        p.run_until(front.all, lambda: False, 1.5)  # those that had begun together with the one that failed, too
        front.check('it stays away', sum('registering the worker with the router' in line for line in agent.lines()) == 1, agent.lines())
        engine.process.send_signal(signal.SIGCONT)
        engine.test(hang=False)
        front.serving('it goes on', router, worker)
        front.until('the engine has none of them', lambda: engine.state()['ranks'][0]['running'] == 0, engine.state)
        front.check('it is asked again', front.answers('again', [front.ask(prompts(1)[0])])[0].status == 200)
        front.check('and nothing is left here', agent.counters()['agent']['running'] == 0, agent.counters())
        front.check('exit status', agent.stop() == 0)
        # A healthy engine may be polled rarely, and take longer for a request.
        agent.args += ['--silent-ms', '500', '--load-ms', '5000', '--health-ms', '5000']
        agent.start()
        front.serving('seldom', router, worker)
        engine.test(hang=True)
        r = front.ask(prompts(1)[0])
        front.until('it runs', lambda: engine.state()['ranks'][0]['running'] == 1)
        p.run_until(front.all, lambda: r.ended, 2.5)
        front.check('it may take its time', not r.ended, (r.rejected, r.fin))
        front.client.cancel(r)
        front.until('over', lambda: r.ended)
        engine.test(hang=False)
        front.check('exit status of that', agent.stop() == 0)
    finally:
        engine.process.send_signal(signal.SIGCONT)
        agent.kill()
        engine.stop()


class Hanging:
    """An engine whose /health never answers, while all else is served: three polls of 5 s each, beside other tests."""

    def __init__(self, router, program):
        self.router, self.front, self.worker = router, Front(TALLY, ADDRESSES[0], 4), 57
        self.engine = Engine('--type', 'vllm', ranks=1)
        self.agent = Agent(program, self.engine, ADDRESSES[0], self.worker, pool='apart', log=f'{router.dir}/agent_hanging.log')
        self.life = self.front.serving('hanging', router, self.worker)
        self.engine.test(health_hangs=True)

    def finish(self):
        front, engine, agent = self.front, self.engine, self.agent
        try:
            front.until('hanging: it leaves', lambda: any('/health failed (3 in a row)' in line and 'no answer in time' in line
                                                          for line in agent.lines()), agent.lines)
            front.until('hanging: the router knows', lambda: f'{self.worker}' not in self.router.telemetry('/kvroute/workers')['workers'])
            front.check('hanging: it stays away', sum('registering the worker with the router' in line for line in agent.lines()) == 1, agent.lines())
            engine.test(health_hangs=False)
            front.serving('hanging: well again', self.router, self.worker, self.life)
            front.check('hanging: and is asked', front.answers('hanging', [front.ask(prompts(1)[0], pin=(self.worker, 0))])[0].status == 200)
            front.check('hanging: exit status', agent.stop() == 0)
        finally:
            agent.kill()
            engine.stop()


def failures(router, program):
    """Errors of the engine, cancelled requests, answers that are no HTTP, an end during a request."""
    front, worker = Front(TALLY, ADDRESSES[1]), 60
    engine = Engine('--type', 'vllm', '--decode-us', '2000', '--garbage-metrics')
    agent = Agent(program, engine, f'[{ADDRESSES[1]}]', worker, '--block-size', '16', log=f'{router.dir}/agent.log')
    tokens = prompts(4)
    try:
        front.serving('failures', router, worker)
        front.until('the killed ones are gone', lambda: list(router.telemetry('/kvroute/workers')['workers']) == [f'{worker}'])
        r = front.ask(tokens[0], model='unknown')
        a = front.answers('an unknown model', [r])[0]
        front.check('404 as it came', a.status == 404 and 'unknown' in a.json()['error']['message'] and r.fin == (0x11, 404),
                    (a.status, r.fin))
        r = front.ask(tokens[0], raw=message('/v1/completions', b'{"prompt": '))
        front.check('400 as it came', front.answers('no JSON', [r])[0].status == 400)
        r = front.ask(tokens[0], raw=b'hello')
        front.answers('no HTTP', [r])
        front.check('no HTTP: refused', r.rejected and r.rejected.name == 'DispatchFailed' and r.rejected.detail[0] == 400,
                    (r.rejected, r.fin))
        r = front.ask(tokens[0], raw=message('/v1/completions', b'{}', content_length='7'))
        front.answers('a field of a connection', [r])
        front.check('a field of a connection: refused', r.rejected and r.rejected.detail[0] == 400, r.rejected)
        paths(front, engine, agent, tokens[0])
        engine.test(break_after=3)
        r = front.ask(tokens[0], 20, stream=True)
        front.answers('half a line', [r])
        front.check('half a line: error', r.fin and r.fin[0] & p.ITEM_ERROR and r.fin[1] == 502 and b' 2"' in r.data,
                    (r.fin, r.data[-100:]))
        r = front.ask(tokens[0], 20)
        front.answers('no answer', [r])
        front.check('no answer: error', r.fin and r.fin[0] & p.ITEM_ERROR and r.fin[1] == 502, (r.fin, r.rejected))
        engine.test(break_after=0)
        before = engine.state()['count']['aborted']
        r = front.ask(tokens[1], 1000, stream=True)
        front.until('it streams', lambda: r.next > 5)
        front.client.cancel(r)
        front.until('cancelled', lambda: r.ended)
        front.until('the engine knows', lambda: engine.state()['count']['aborted'] > before)
        many = [front.ask([9000 + i] * (i % 50 + 1), 200, stream=True) for i in range(200)]
        answers = front.answers('many', many)
        front.check('many: all whole', all(a.text() == ''.join(f' {i % 10}' for i in range(200)) for a in answers))
        slow(front, engine, agent, tokens[3])
        hostile(front, engine, agent, worker)
        running = front.ask(tokens[2], 300, stream=True)
        front.until('it runs', lambda: running.next > 5)
        agent.process.terminate()
        a = front.answers('drained', [running])[0]
        front.check('drained: it ends as it should', running.fin == (1, 200) and a.text().count(' ') == 300, running.fin)
        front.check('exit status', agent.process.wait(10) == 0)
    finally:
        agent.kill()
        engine.stop()


def paths(front, engine, agent, tokens):
    """Other endpoints of the engine are not reachable through the router."""
    for path in ('/_test', '/v1/completions/../../_test', '//_test', '/%5ftest', '/v1/completions%2f..%2f..%2f_test', 'http://127.0.0.1/_test'):
        r = front.ask(tokens, path=path, decode_us=1)
        front.answers(f'{path} ends', [r])
        wanted = 400 if path.startswith('http:') else 403
        front.check(f'{path}: refused', r.rejected and r.rejected.name == 'DispatchFailed' and r.rejected.detail[0] == wanted, (r.rejected, r.fin))
    front.check('they are counted', agent.counters()['agent']['paths_refused'] == 5, agent.counters())
    front.check('and have not come to the engine', front.answers('a query', [front.ask(tokens, path='/v1/completions?x=/../_test')])[0].status == 200)


def slow(front, engine, agent, tokens):
    """A client that does not acknowledge: the engine waits, and nothing is lost."""
    engine.test(decode_us=0, output=20000)
    request = front.ask(tokens, 20000, stream=True)
    front.until('slow: it streams', lambda: request.next > 2)
    end = time.monotonic() + 10
    while time.monotonic() < end and not agent.counters()['agent']['paused']:
        pass  # the client's socket is not read, and nothing is acknowledged
    front.check('slow: the engine waits', agent.counters()['agent']['paused'] >= 1 and
                engine.state()['count']['finished'] < engine.state()['count']['requests'], engine.state()['count'])
    a = front.answers('slow', [request])[0]
    front.check('slow: whole', a.text() == ''.join(f' {i % 10}' for i in range(20000)) and request.generated == 20000)
    engine.test(decode_us=2000, output=1024)


def hostile(front, engine, agent, worker):
    """Invalid batches: counted; the rank starts clean and continues."""
    for raw in ('c1', '', 'ddffffffff00', '93cb00000000000000009191ac426c6f636b52656d6f76656491a17800', 'ff' * 3000):
        engine.test(raw=raw)
    end = time.monotonic() + 10
    while time.monotonic() < end and agent.counters()['agent']['batches_bad'] < 5:
        time.sleep(0.05)
    counters = agent.counters()['agent']
    front.check('hostile: counted', counters['batches_bad'] == 5 and counters['clean_starts'] >= 5, counters)
    for rank in (0, 1):
        engine.test(clear=True, rank=rank)
    new = prompts(8, 500)
    front.answers('hostile: after', [front.ask(t) for t in new])
    front.same_table('hostile: after', engine, worker, new)


def main(kvroute, program, *quick):
    # A descheduled agent on a busy machine has not died.
    apart = f'[pool apart]\nid = 4\nblock_size = {B}\nmax_ranks = 4\nmax_blocks = 4096\n'
    router = Router(kvroute, POOLS + apart, 'suspect_ms = 4000\ndead_ms = 8000')

    def test():
        hanging = Hanging(router, program)
        for i, (name, how) in enumerate(FORMS.items() if len(sys.argv) < 4 else ()):
            one_form(router, program, name, how, 10 + i)
        deaths(router, program)
        waits(router, program)
        stands_still(router, program)
        hanging.finish()
        failures(router, program)
        TALLY.balanced(router)
    TALLY.beside(router, test, f'{router.dir}/agent.log')


main(*sys.argv[1:])
