#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every command of README, unchanged, against a router: an unknown line fails, too.

protocol_test.sh starts it: readme_test.py KVROUTE ROOT BUILD. Commands that need an operator's host (a NIC, its CPUs) run on a copy of /sys or are
only checked; endless programs are ended once they work. tools/demo and tools/test are tests of their own: only their options are checked.
"""
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import urllib.request
from pathlib import Path

import child
import kvrproto as p
from protocol_router import ADDRESSES, Router

ROOT, BUILD = Path(sys.argv[2]), Path(sys.argv[3])
POOLS = '''[pool llama]
id = 3
block_size = 16
seed = 1
max_ranks = 16
max_blocks = 65536
decision_sample = 1
'''
LONGEST = 60


class Failed(Exception):
    pass


def commands():
    """The lines of all code blocks, without comments, continued lines joined."""
    text = (ROOT / 'README.md').read_text()
    for block in re.findall(r'(?ms)^```\n(.*?)^```', text):
        if '--UDP-->' in block or block.startswith('app/router '):
            continue  # the drawing and the map are no commands
        for line in block.replace('\\\n', ' ').splitlines():
            line = re.sub(r'\s+# .*$', '', line).strip()
            if line:
                yield line


class Test:
    def __init__(self, router):
        self.router, self.running = router, []
        self.dir = router.dir
        self.env = dict(os.environ, PATH=':'.join(str(BUILD / 'app' / d) for d in ('ctl', 'agent', 'gateway', 'load', 'router'))
                        + ':' + os.environ['PATH'])
        self.agent = p.Agent(ADDRESSES[0], 17, 'llama', 16)
        self.client = p.Client(ADDRESSES[0])
        self.all = [self.agent, self.client]

    def prepare(self):
        """A worker 17 of pool llama, and request 1001."""
        self.agent.answer = lambda job: self.agent.item(job, b'x', tokens=1, fin=True, cached=0)
        self.agent.hello()
        self.client.connect()
        self.until('the agent serves', lambda: self.agent.state == 'SERVING' and self.client.limits)
        request = self.client.route(3, 64, p.sequence_hashes(range(64), 16), id=0x3e9)
        self.until('request 1001 ends', lambda: request.ended)
        with open(f'{self.dir}/capture.pcap', 'wb') as f:
            f.write(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))

    def until(self, what, condition):
        if not p.run_until(self.all, condition, LONGEST):
            raise Failed(f'{what} does not happen')

    def finish(self, line, run, status):
        """The agent continues meanwhile."""
        out = open(f'{self.dir}/out', 'rb+')
        self.until(f'the end of {line}', lambda: run.poll() is not None)
        text = out.read().decode(errors='replace')
        if run.returncode not in status:
            raise Failed(f'{line}: exit status {run.returncode}: {text[-600:]}')
        return text

    def run(self, line, status=(0,), **env):
        with open(f'{self.dir}/out', 'wb') as out:
            run = child.start(['bash', '-c', line], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT,
                              env=dict(self.env, **env))
            return self.finish(line, run, status)

    def stays(self, line, ready):
        """An endless program: it prints that it is ready, and ends well."""
        log = f'{self.dir}/stays-{len(self.running)}'
        with open(log, 'wb') as out:
            run = child.start(shlex.split(line), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env=self.env)
        self.running.append((line, run))
        self.until(f'{line}: "{ready}"', lambda: ready in Path(log).read_text() or run.poll() is not None)
        if run.poll() is not None:
            raise Failed(f'{line}: ended with {run.returncode}: {Path(log).read_text()[-600:]}')

    # ---- kinds of commands ----

    def router_itself(self, line):
        line = re.sub(r'\bbuild/', f'{BUILD}/', line)
        if (profile := re.search(r'drivers-cfg/profiles/(vfio-\w+\.conf)', line)) is not None:  # CPUs of this machine
            text = re.sub(r'(?m)^((?:ingress|scheduler_cpu|event_cpu) *=).*', rf'\1 {min(os.sched_getaffinity(0))}', (ROOT / profile[0]).read_text())
            Path(self.dir, profile[1]).write_text(text)
            line = line.replace(profile[0], f'{self.dir}/{profile[1]}')
        self.run(line if '--check' in line or '--dump-config' in line else line + ' --check')

    def host(self, line):
        """On a copy of what it would change."""
        sys_dir = Path(self.dir) / 'sys'
        device = sys_dir / 'bus/pci/devices/0000:01:00.0'
        device.mkdir(parents=True, exist_ok=True)
        for name, value in (('vendor', '0x8086'), ('device', '0x1592'), ('class', '0x020000'), ('driver_override', '')):
            (device / name).write_text(value + '\n')
        (device / 'iommu_group').mkdir(exist_ok=True)
        (sys_dir / 'kernel/iommu_groups/0').mkdir(parents=True, exist_ok=True)
        pages = sys_dir / 'kernel/mm/hugepages/hugepages-2048kB'
        pages.mkdir(parents=True, exist_ok=True)
        (pages / 'nr_hugepages').write_text('0\n')
        cpus = sys_dir / 'devices/system/cpu'
        cpus.mkdir(parents=True, exist_ok=True)
        (cpus / 'online').write_text('0-3\n')
        text = self.run(line, SYSFS=str(sys_dir))
        if 'nothing was changed' not in text:
            raise Failed(f'{line}: {text}')

    def options(self, line):
        """Each is one that the script knows."""
        words = shlex.split(line)
        script = (ROOT / words[0]).read_text()
        missing = [w for w in words[1:] if w.startswith('-') and not re.search(rf'(^|\s|\|){re.escape(w)}(\)|\s|\|)', script)]
        if not os.access(ROOT / words[0], os.X_OK) or missing:
            raise Failed(f'{line}: {missing}')
        if words[1:2] == ['--suite'] and not re.search(rf"suite: '{words[2]}'", '\n'.join(
                f.read_text() for f in (ROOT / 'tests').glob('*/meson.build'))):
            raise Failed(f'{line}: no such suite')

    def ctl(self, line):
        line = line.replace('kvroute-ctl ', f'kvroute-ctl --router {self.router.prefix} ', 1)
        if line.endswith('exporter'):
            self.stays(line, 'exporter ready')
            text = urllib.request.urlopen('http://127.0.0.1:9765/metrics', timeout=LONGEST).read().decode()
            if '# TYPE kvr_build_info gauge\n' not in text:
                raise Failed(f'{line}: {text[-200:]}')
            return
        more = {'top': ' --count 1 --seconds 0.1', 'doctor': ' --seconds 0.1'}.get(line.split()[3], '')
        words = line.split()
        self.run(' '.join(words[:1] + more.split() + words[1:]), (0, 1) if 'doctor' in words else (0,))

    def frames(self, line):
        if shutil.which('tshark'):
            self.run(line.replace('-r capture.pcap', f'-r {self.dir}/capture.pcap'))

    def one(self, line):
        first = line.split()[0]
        if line == 'meson setup build && ninja -C build':
            return self.run(f'meson introspect --targets {BUILD} >/dev/null && test -x {BUILD}/app/router/kvroute')
        if first == 'build/app/router/kvroute':
            return self.router_itself(line)
        if first.startswith('drivers-cfg/host/'):
            return self.host(line)
        if first in ('tools/demo', 'tools/test'):
            return self.options(line)
        if first == 'kvroute-ctl':
            return self.ctl(line)
        if first == 'kvroute-gateway':
            return self.stays(line, 'ready')
        if first == 'kvroute-agent':
            return self.stays(line, '')
        if first == 'curl':
            text = self.run(line.replace('curl ', 'curl -sS ', 1))
            if '"error"' not in text and '"choices"' not in text:
                raise Failed(f'{line}: {text}')
            return None
        if first == 'echo':
            text = self.run(line.replace('-f kvroute', f'-f {self.router.prefix}'))
            if '"17"' not in text:
                raise Failed(f'{line}: {text}')
            return None
        if first == 'tshark':
            return self.frames(line)
        if line.startswith('build/perf/micro/'):
            return self.run(f'test -x {BUILD}/{first[6:]}')
        if first == 'kvroute-sim':
            return self.run(f'{BUILD}/app/sim/{line.replace("1:1000", "1:2")}')
        raise Failed(f'{line}: unknown command')

    def end(self):
        for line, run in self.running:
            if run.poll() is not None:
                raise Failed(f'{line}: has ended with {run.returncode}')
            run.send_signal(signal.SIGTERM)
        for line, run in self.running:
            self.until(f'{line} ends', lambda run=run: run.poll() is not None)
            if run.returncode not in (0, -signal.SIGTERM):
                raise Failed(f'{line}: ended with {run.returncode}')


def main():
    lines = list(commands())
    router, failed = Router(sys.argv[1], POOLS), True
    try:
        router.telemetry('/kvroute/info')
        test = Test(router)
        test.prepare()
        for line in lines:
            test.one(line)
        test.end()
        failed = len(lines) < 20
        print(f'{len(lines)} commands')
    except Failed as e:
        print(f'FAILED {e}')
    finally:
        failed = router.finish(failed)
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
