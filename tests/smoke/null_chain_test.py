# SPDX-License-Identifier: BSD-3-Clause
"""The chain against which perf/e2e/gateway/run measures the gateway: a lost request does not stop those after it.

protocol_test.sh starts it: null_chain_test.py KVROUTE GATEWAY-NULL STREAMS
"""

import http.client
import socket
import subprocess
import sys
import time

import child
from protocol_router import Tally

ENGINE, PORT = 7101, 7104
TALLY = Tally(40, patience=20.0)
IFACE = 'kvr-null'


def ask():
    c = http.client.HTTPConnection('127.0.0.1', PORT, timeout=20)
    c.request('GET', '/')
    return c


def listens():
    with socket.socket() as s:
        return s.connect_ex(('127.0.0.1', ENGINE)) == 0


def main():
    null, streams = sys.argv[2:4]
    children = []

    def start(*args):
        children.append(child.start([null, *args], stdout=subprocess.PIPE))
        TALLY.check(f'{args[0]} reports that it is ready', children[-1].stdout.readline() == b'ready\n', args)

    for words in (f'link add {IFACE} type veth peer name {IFACE}-r', f'address add 10.9.1.2/24 dev {IFACE}', f'link set {IFACE} up',
                  f'link set {IFACE}-r up', f'neighbour add 10.9.1.1 lladdr 02:00:00:00:00:01 dev {IFACE}'):
        subprocess.run(['ip', *words.split()], check=True)
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as wire:
            wire.bind((f'{IFACE}-r', 0x0800))
            wire.settimeout(20)
            start('gateway', str(PORT))
            lost = ask()
            while b'GET / ' not in wire.recv(2048):
                pass
            lost.close()
        start('router', f'{IFACE}-r')
        children.append(child.start([streams, '--serve', str(ENGINE)]))
        while not listens() and TALLY.left():
            time.sleep(0.01)
        start('agent', str(ENGINE), '1')
        for turn in 'first', 'second':
            c = ask()
            answer = c.getresponse()
            TALLY.check(f'the {turn} is answered', (answer.status, answer.read()) == (200, b'{}'), answer.status)
            c.close()
    finally:
        for started in children:
            started.kill()
            started.wait()
    print(f'{TALLY.passed} passed, {len(TALLY.failures)} failed')
    return 1 if TALLY.failures else 0


if __name__ == '__main__':
    sys.exit(main())
