# SPDX-License-Identifier: BSD-3-Clause
"""Allow-lists that change while a hostile sender floods: two ingress lcores, IPv4 and IPv6.

At first he is allowed. He is removed and added again by /kvroute/set, kvroute-ctl and SIGHUP, also while the router stands still. Each of his frames
is accepted or denied, and counted; other peers continue without losses. protocol_test.sh starts it: allow_test.py KVROUTE KVROUTE_CTL.
"""

import multiprocessing
import signal
import socket
import subprocess
import sys
import time

import child
import kvrproto as p
from flows import POOLS, POOL, B, Flows, under_way
from protocol_router import ADDRESSES, Router, Tally

# Long enough for more than one string of an answer.
OTHERS = '10.9.0.2 fd09::2 ' + ' '.join(f'192.0.2.{i}' for i in range(100, 110))
HOSTILE = ('10.9.0.3', 'fd09::3')
ALL = f'{OTHERS} {" ".join(HOSTILE)}'
LCORES, CLIENTS = 2, 4
# Capacity of a packet socket, and how many frames of the flood the router may not have counted yet: none is lost with any share of
# the CPU.
FRAMES, WINDOW = 2048, 1500
MANY = 2000
TALLY = Tally(100, patience=30.0)


def ip(command):
    subprocess.run(['ip', *command.split()], check=True)


class Flood:
    """Frames of another protocol version, which no other peer sends, from many ports of both addresses; a process of its own."""

    def __init__(self):
        self.sent, self.counted, self.over = (multiprocessing.RawValue('Q', 0) for _ in range(3))
        self.process = multiprocessing.Process(target=self.run, daemon=True)

    def sockets(self):
        for address, router in zip(HOSTILE, ADDRESSES):
            for _ in range(8):
                s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
                s.bind((address, 0))
                s.connect((router, p.PORT))
                yield s

    def run(self):
        child.die_with_parent()
        all_, data = list(self.sockets()), p.frame('PROBE', bytes(64), version=9)
        while not self.over.value:
            if self.sent.value - self.counted.value + len(all_) <= WINDOW:
                for s in all_:
                    s.send(data)
                self.sent.value += len(all_)
            while any(under_way(s) for s in all_):
                time.sleep(0.0002)
            time.sleep(0.0005)


class Others(Flows):
    """Clients over both versions of IP, each with a request in progress; and the router's counts of the flood."""

    def __init__(self):
        super().__init__(TALLY, ADDRESSES[0], CLIENTS)
        more = [p.Client(ADDRESSES[1]) for _ in range(CLIENTS)]
        self.clients += more
        self.all += more
        self.live, self.answers, self.lost = {}, 0, []
        self.asking = self.still = False
        self.taken = self.denied = self.looked = self.reloads = 0

    def check(self, name, good, detail=''):
        return TALLY.check(name, good, detail)

    def look(self):
        drops = ROUTER.telemetry('/kvroute/drops')
        self.taken, self.denied = drops.get('reject_unknown_version', 0), drops.get('p0_rx_denied', 0)
        FLOOD.counted.value, self.looked = self.taken + self.denied, time.monotonic()

    def ask_on(self):
        now = time.monotonic()
        for i, client in enumerate(self.clients):
            since, request = self.live.get(i, (0, None))
            if request is not None:
                if not request.ended:
                    continue
                self.answers += 1
                if request.data != b'answer':
                    self.lost.append((i, request.rejected, request.data))
                self.live[i] = (since, None)
            if self.asking and now - since > 0.05:
                first = (self.answers * len(self.clients) + i) * B
                self.live[i] = (now, client.route(POOL, B, p.sequence_hashes(range(first, first + B), B)))

    def until(self, name, condition, detail=lambda: ''):
        def step():
            if self.asking:
                self.ask_on()
                if not self.still and time.monotonic() - self.looked > 0.005:
                    self.look()
            return condition()
        return super().until(name, step, detail)

    # ways to change it

    def expect_list(self, allow):
        answer = ROUTER.telemetry(f'/kvroute/set,allow={allow},p0')
        self.check('the whole list is expect_list', ''.join(answer['set']['p0']) == allow, answer)

    def ctl(self, allow):
        return child.start([CTL, '--router', ROUTER.prefix, 'set', f'allow={allow}', 'p0'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)

    def ctl_ended(self, process, allow):
        self.until('kvroute-ctl ends', lambda: process.poll() is not None)
        said = process.communicate()[0]
        self.check('kvroute-ctl tells the whole list', process.returncode == 0 and f'p0  {allow}\n' in said, said)

    def by_ctl(self, allow):
        self.ctl_ended(self.ctl(allow), allow)

    def hup(self, allow):
        with open(CONFIG, 'w') as f:
            f.write(TEXT.replace(f'allow = {ALL}\n', f'allow = {allow}\n'))
        self.reloads += 1
        ROUTER.process.send_signal(signal.SIGHUP)

    def reloaded(self):
        with open(f'{ROUTER.dir}/router.log') as f:
            return [line for line in f if 'msg="reload: ' in line]

    def by_file(self, allow):
        self.hup(allow)
        self.until('the file is read', lambda: len(self.reloaded()) == self.reloads)
        self.check('it reports the changes', 'changed: [port p0] allow; need a restart: nothing' in self.reloaded()[-1], self.reloaded()[-1])

    # the effect

    def goes_on(self, name):
        """Waits for many more frames. @return how many were accepted and denied."""
        self.look()
        taken, denied, answers = self.taken, self.denied, self.answers
        self.until(f'{name}: the flood goes on', lambda: self.taken + self.denied - taken - denied >= MANY,
                   lambda: (FLOOD.sent.value, self.taken, self.denied))
        self.until(f'{name}: the others go on', lambda: self.answers >= answers + len(self.clients), lambda: self.answers)
        self.look()
        return self.taken - taken, self.denied - denied

    def let_in(self, name):
        taken, denied = self.goes_on(name)
        self.check(f'{name}: he is let in', taken >= MANY and denied == 0, (taken, denied))

    def out(self, name):
        taken, denied = self.goes_on(name)
        self.check(f'{name}: no frame is taken any more', taken == 0 and denied >= MANY, (taken, denied))

    def stands_still(self):
        """A change requested meanwhile takes effect when the router continues."""
        self.still = True
        ROUTER.hold()
        try:
            end, process = time.monotonic() + 2, self.ctl(OTHERS)
            self.hup(OTHERS)
            self.until('2 s', lambda: time.monotonic() > end)
            self.check('nothing is answered', process.poll() is None and len(self.reloaded()) == self.reloads - 1)
        finally:
            ROUTER.go_on()
        self.still = False
        self.ctl_ended(process, OTHERS)
        self.until('the file is read', lambda: len(self.reloaded()) == self.reloads)

    def run(self):
        self.agent.hello()
        self.until('SERVING', lambda: self.agent.state == 'SERVING')
        for client in self.clients:
            client.connect()
        self.until('CONNECTED', lambda: all(c.limits for c in self.clients))
        FLOOD.process.start()
        self.asking = True
        self.let_in('at first')
        self.expect_list(OTHERS)
        self.out('/kvroute/set')
        self.by_ctl(ALL)
        self.let_in('kvroute-ctl')
        self.by_file(OTHERS)
        self.out('SIGHUP')
        self.expect_list(ALL)
        self.let_in('/kvroute/set')
        self.stands_still()
        self.out('after a pause')
        self.by_file(ALL)
        self.let_in('SIGHUP')
        for i in range(21):  # ends without him
            self.expect_list(OTHERS if i % 2 == 0 else ALL)
            self.until('some requests', lambda then=self.answers: self.answers > then)
        self.out('many changes')
        self.end()

    def end(self):
        FLOOD.over.value = 1
        FLOOD.process.join()
        self.until('all is counted', lambda: self.taken + self.denied >= FLOOD.sent.value, lambda: (FLOOD.sent.value, self.taken, self.denied))
        self.check('each frame once', self.taken + self.denied == FLOOD.sent.value, (FLOOD.sent.value, self.taken, self.denied))
        port = ROUTER.telemetry('/kvroute/ports')['p0']
        frames = [port[f'lcore{i}']['rx_frames'] - port[f'lcore{i}']['rx_udp'] for i in range(LCORES)]
        self.check('both lcores have refused some', min(frames) > MANY, frames)
        self.asking = False
        self.until('all requests end', lambda: self.ask_on() or all(r is None for _, r in self.live.values()))
        self.check('the others have lost nothing', not self.lost, self.lost)
        print(f'{FLOOD.sent.value} frames of the flood, {self.taken} taken, {self.denied} refused; {self.answers} answers')
        self.agent.goodbye()
        self.until('the agent leaves', lambda: self.agent.gone)


def test():
    mac = ROUTER.telemetry('/kvroute/ports')['p0']['mac']
    for address in ADDRESSES:  # a stopped router answers no neighbour discovery
        ip(f'neigh replace {address} lladdr {mac} dev kvr-peer nud permanent')
    Others().run()
    TALLY.balanced(ROUTER)


CTL = sys.argv[2]
ip(f'address add {HOSTILE[0]}/24 dev kvr-peer')
ip(f'-6 address add {HOSTILE[1]}/64 dev kvr-peer nodad preferred_lft 0')  # other peers do not use it as source address
# Silence of the peers is not tested.
ROUTER = Router(sys.argv[1], POOLS, 'idle = sleep\nsuspect_ms = 20000\ndead_ms = 40000', ingress=LCORES, memory_mb=1024, frames=FRAMES,
                port=f'allow = {ALL}')
CONFIG = f'{ROUTER.dir}/router.conf'
with open(CONFIG) as config:
    TEXT = config.read()
FLOOD = Flood()
TALLY.beside(ROUTER, test)
