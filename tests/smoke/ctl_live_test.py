# SPDX-License-Identifier: BSD-3-Clause
"""Every command of kvroute-ctl's manual page against a router with load, as text and with --json.

protocol_test.sh starts it: ctl_live_test.py KVROUTE KVROUTE_CTL ROOT. The manual page gives the arguments: each command runs with the
required ones and with all, and without them it prints the usage line of the page.
"""
import json
import re
import select
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import child
import kvrproto as p
from commands_test import LLAMA, POOLS, Commands
from doctor_rig import B, Failed, run
from protocol_router import Router

CTL, ROOT = sys.argv[2:4]
# Values for the words of the manual page; OWN takes precedence for its command.
WORDS = {'POOL': 'llama', 'WORKER': '100', 'CLASS': 'default', 'TABLE': 'pool', 'NAME': 'llama', 'PORT': 'p0', 'SECONDS': '1', 'EVERY': '1',
         'SESSION': 'mine', 'KEY=VALUE': 'router_temperature=0.5', 'SHELL': 'bash', 'SWITCH': 'on', 'FILTER': 'udp', 'COMMAND': '/kvroute/pools'}
OWN = {'drain': {'WORKER': '201', 'SECONDS': '30'}, 'resume': {'WORKER': '201'}, 'deactivate': {'POOL': 'prefill'},
       'reactivate': {'POOL': 'prefill'}, 'words': {'COMMAND': 'drain'}, 'capture': {'NAME': 'c'}}
ALL = {'set': ['quantum=7', 'soon', 'gold']}  # class options have other keys
BEFORE = {'drain': ['resume', '201'], 'capture': ['capture', 'stop']}  # restores the state that the command needs
# Options that make these commands end.
MORE = {'top': ['--count', '1', '--seconds', '0.05'], 'watch': ['--count', '2', '--seconds', '0.05'], 'doctor': ['--seconds', '0.05']}
STATUS = {'doctor': (0, 1)}
# Part of the text output of each command.
SAYS = {'info': 'version', 'workers': '200', 'worker': '100', 'loads': '100/0', 'pools': 'llama', 'queue': 'waiting', 'oldest': 'live',
        'sessions': 'llama', 'events': '100/0', 'hits': '100/0', 'latency': 'default', 'buckets': 'time_to_first_token_seconds',
        'decisions': 'routed', 'adapters': 'tuned', 'refused': '104', 'sources': '10_9_0_2', 'stages': 'lcore0', 'ingress': 'routes',
        'ports': 'p0', 'log': 'lines', 'balance': 'ok', 'config': 'router_temperature', 'buffers': 'jobs_llama',
        'metrics': 'kvr_build_info', 'drain': 'drain', 'resume': 'serving', 'sample': '1', 'set': 'key', 'release': 'released', 'snapshot': 'written',
        'explain': 'worker', 'why': 'worker 100', 'watch': 'routed', 'top': 'workers', 'routers': 'kvr-proto', 'raw': 'llama',
        'completion': 'complete -F', 'words': '201'}
REFUSED = {'redirect': 'XDP'}  # this port has no XDP program
TEXT = {'metrics', 'completion', 'words', 'routers', 'top'}  # text even with --json


def of_page():
    """Commands and their arguments, from the manual page."""
    page = subprocess.run([f'{ROOT}/tools/man', 'kvroute-ctl.1', CTL], capture_output=True, text=True, check=True).stdout.replace('\\', '')
    commands = re.search(r'^# COMMANDS$(.*?)^# ', page, re.M | re.S)[1]
    return dict(re.fullmatch(r'(\S+) ?(.*)', line).groups() for line in re.findall(r'^\*(.+)\*$', commands, re.M))


def of_help():
    text = subprocess.run([CTL, '--help'], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r'^  ([a-z]+)', text.split('\n\n')[2], re.M))


class Ctl(Commands):
    def ctl_run(self, *args, want=(0,)):
        with child.start([CTL, '--router', self.router.prefix, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True) as process:
            out, err = process.communicate(timeout=60)
        if process.returncode not in want:
            raise Failed(f'{args}: status {process.returncode}, not {want}: {out}{err}')
        return out, err

    def words(self, name, takes):
        """Required arguments, and all arguments."""
        own = {**WORDS, **self.found, **OWN.get(name, {})}
        all_ = [own.get(w, w) for w in takes.replace('[', '').replace(']', '').split()]
        all_ = ALL.get(name, all_)
        return [own.get(w, w) for w in takes.split()][:len([w for w in takes.split() if not w.startswith('[') and not w.endswith(']')])], all_

    def one(self, name, takes):
        least, most = self.words(name, takes)
        if least:
            _, err = self.ctl_run(name, want=(2,))
            if f'kvroute-ctl {name} {takes}' not in err:
                raise Failed(f'{name} alone: {err!r} differs from the manual page: {takes}')
        self.ctl_run(name, *most, 'one-too-many', want=(2,))
        for args in [least] + ([most] if most != least else []):
            if name in REFUSED:
                self.refused(name, args)
                continue
            self.before(name)
            out, _ = self.ctl_run(name, *args, *MORE.get(name, []), want=STATUS.get(name, (0,)))
            if SAYS.get(name, '') not in out or (not out.strip() and name not in ('doctor', 'drops')):
                raise Failed(f'{name} {args}: {SAYS.get(name)!r} is not in {out!r}')
            self.before(name)
            out, _ = self.ctl_run('--json', name, *args, *MORE.get(name, []), want=STATUS.get(name, (0,)))
            if name not in TEXT:
                for line in out.splitlines() if name == 'watch' else [out]:
                    if 'error' in json.loads(line):
                        raise Failed(f'--json {name} {args}: {out}')

    def before(self, name):
        Path(self.found['FILE']).unlink(missing_ok=True)
        if name in BEFORE:
            self.ctl_run(*BEFORE[name], want=(0, 1))
        if name == 'release':
            opened = self.client.route(LLAMA, B, hints=p.route_hints(session=('mine', p.OPEN, 60)))
            self.until('the session is there', lambda: opened.accepted)

    def refused(self, name, args):
        _, err = self.ctl_run(name, *args, want=(1,))
        answer = json.loads(self.ctl_run('--json', name, *args, want=(1,))[0])
        if REFUSED[name] not in err or answer['message'] not in err:
            raise Failed(f'{name} {args}: {err!r}, {answer}')

    def exporter(self):
        """The exporter serves until SIGTERM."""
        with child.start([CTL, '--router', self.router.prefix, '--listen', '127.0.0.1:0', 'exporter'], stderr=subprocess.PIPE, text=True) as process:
            try:
                self.until('the exporter listens', lambda: select.select([process.stderr], [], [], 0)[0])
                line = process.stderr.readline()
                found = re.search(r'ready, port (\d+)', line)
                if not found:
                    raise Failed(f'exporter: {line}')
                url = f'http://127.0.0.1:{found[1]}'
                with urllib.request.urlopen(f'{url}/metrics', timeout=30) as answer:
                    if b'kvr_doctor_findings{' not in answer.read():
                        raise Failed('exporter: no findings among the metrics')
                process.send_signal(signal.SIGTERM)
                self.until('the exporter ends', lambda: process.poll() is not None)
            finally:
                process.kill()

    def run(self):
        self.load()
        decisions = self.ask_router('/kvroute/decisions,llama')['decisions']
        number, newest = next((n, d) for n, d in decisions.items() if d['result'] == 'routed')
        self.found = {'NUMBER': number, 'REQUEST': newest['id'], 'SOURCE': newest['source'], 'FILE': f'{self.router.dir}/frames.pcapng'}
        page = of_page()
        if set(page) != of_help():
            raise Failed(f'{set(page) ^ of_help()}: not in the page, or not in --help')
        wrong = []
        for name, takes in page.items():
            try:
                if name == 'exporter':
                    self.exporter()
                else:
                    self.one(name, takes)
            except (Failed, ValueError) as e:
                wrong.append(f'{name}: {e}')
        print('\n'.join(wrong))
        if wrong:
            raise Failed(f'{len(wrong)} commands')
        print(f'{len(page)} commands')


if __name__ == '__main__':
    with tempfile.TemporaryDirectory(prefix='kvr-state.') as state:
        run(Router(sys.argv[1], POOLS + '[class soon gold]\nquantum = 5\n', f'heartbeat_ms = 100\nsuspect_ms = 20000\ndead_ms = 60000\nstate_dir = {state}'), Ctl)
