# SPDX-License-Identifier: BSD-3-Clause
"""Helpers that inject faults into a running router: agents, a client, requests, and doctor with its two samples."""
import contextlib
import json
import select
import signal
import subprocess
import sys
import time
import traceback

import child
import kvrproto as p

B = 16


class Failed(Exception):
    pass


class Rig:
    """Subclasses add their endpoints to `all`, and have a `client` and an `agent`."""

    pool = 3  # of requests

    def __init__(self, router, ctl, ip):
        self.router, self.ctl, self.ip, self.patience, self.lines = router, ctl, ip, 30, 0
        self.client = p.Client(ip)
        self.all = [self.client]
        self.vacant = set()

    def until(self, what, condition):
        if not p.run_until(self.all, condition, self.patience):
            raise Failed(f'{what} does not happen')

    def ask(self, n=1, pool=0, first=0, blocks=4):
        requests = []
        for i in range(n):
            tokens = range(first + i * 1000, first + i * 1000 + blocks * B + 5)
            requests.append(self.client.route(pool or self.pool, len(tokens), p.sequence_hashes(tokens, B)))
        self.until('requests end', lambda: all(r.ended for r in requests))
        return requests

    def doctor(self, want, fault=lambda: None, patience=600, ignored=('shared-cpu', 'lcore-stall')):
        """Run doctor with @fault between its samples; return the findings. @ignored: rules about threads, which a loaded machine
        triggers. Most pools have no agent most of the time: those are `vacant`."""
        with child.start([self.ctl, 'doctor', '--json', '--seconds', '600', '--patience', str(patience)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True) as run, contextlib.ExitStack() as last:
            last.callback(run.kill)  # harmless after its end
            self.until('the first sample', lambda: select.select([run.stderr], [], [], 0)[0])
            line = run.stderr.readline()
            if 'second sample in' not in line:
                raise Failed(f'doctor: {line}{run.stderr.read()}')
            fault()
            run.send_signal(signal.SIGINT)
            self.until('doctor ends', lambda: run.poll() is not None)
            found, status = json.loads(run.stdout.read()), run.returncode
        found = [f for f in found if f['rule'] not in ignored]
        self.vacant = {f['where'] for f in found if f['rule'] == 'empty-pool' and 'has no worker' in f['cause']}
        if wrong := self.vacant & {e.pool for e in self.all if isinstance(e, p.Agent)}:
            raise Failed(f'{wrong} have an agent: {json.dumps(found, indent=1)}')
        found = [f for f in found if f['rule'] != 'empty-pool' or f['where'] not in self.vacant]
        self.lines += len(found)
        if sorted(f['rule'] for f in found) != sorted(want) or (want and status != 1):
            raise Failed(f'wanted {want}, found {json.dumps(found, indent=1)}, status {status}')
        return found

    # ---- agents and their requests ----

    def new_agent(self, worker, pool, role=0):
        agent = p.Agent(self.ip, worker, pool, B, role=role, max_num_batched_tokens=1024)
        agent.answer = lambda job: agent.item(job, b'x', tokens=1, fin=True, cached=0)
        self.all.append(agent)
        agent.hello()
        self.until(f'{worker} serves', lambda: agent.state == 'SERVING')
        return agent

    def part(self, agent):
        agent.goodbye()
        self.until('it goes', lambda: agent.gone)
        self.all.remove(agent)
        agent.close()

    def hold(self, agent, n, pool, blocks=4, first=2 * 10 ** 6, **how):
        """@n requests that the agent does not answer."""
        agent.answer = lambda job: None
        requests = []
        for i in range(n):
            tokens = range(first + i * 1000, first + i * 1000 + blocks * B + 5)
            requests.append(self.client.route(pool, len(tokens), p.sequence_hashes(tokens, B), **how))
        self.until('they run', lambda: sum(1 for j in agent.jobs.values() if not j.fin) >= n)
        return requests

    def let_go(self, agent, requests):
        for job in list(agent.jobs.values()):
            if not job.fin:
                agent.item(job, b'x', tokens=1, fin=True, cached=0)
        self.until('they end', lambda: all(r.ended for r in requests))
        agent.answer = lambda job: agent.item(job, b'x', tokens=1, fin=True, cached=0)

    def asked(self, command, holds):
        """A condition on the answer of a command; each question starts a program: a few per second."""
        due = 0.0

        def condition():
            nonlocal due
            if time.monotonic() < due:
                return False
            good = holds(self.router.telemetry(command))
            due = time.monotonic() + 0.15
            return good
        return condition

    def reported(self, pool, rank, name, value):
        """Waits until the router has the value from a heartbeat."""
        self.until(f'{name} of {rank} is {value}', self.asked(f'/kvroute/events,{pool}', lambda a: a['ranks'][rank].get(name) == value))

    def check_cause(self, found, *parts):
        for part in parts:
            if part not in found[0]['cause']:
                raise Failed(f'"{part}" is not in {found}')


def run(router, make):
    """Run make(ROUTER), then end the program."""
    failed = True
    try:
        router.telemetry('/kvroute/balance')
        rig = make(router)
        rig.run()
        failed = False
        print(f'{rig.lines} findings, each the one that was wanted')
    except Exception:  # the router's log is wanted then, too
        traceback.print_exc(file=sys.stdout)
    failed = router.finish(failed)
    sys.exit(1 if failed else 0)
