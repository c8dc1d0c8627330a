#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Hostile peers on the memif socket; the router survives, leaks nothing and still routes.

memif_connects.py KVROUTE KVROUTE_LOAD
"""
import array
import os
import random
import socket
import struct
import sys
import time

from scripts import PATIENT, Case

KVROUTE, LOAD = sys.argv[1:3]
INIT, ADD_REGION, ADD_RING, CONNECT, DISCONNECT = 3, 4, 5, 6, 8
case = Case('memif_connects')


def message(kind, body=b''):
    return (struct.pack('<H', kind) + body).ljust(128, b'\0')


def connect():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(2)
    for _ in range(200):  # its backlog is one
        try:
            s.connect(case.socket)
            return s
        except (BlockingIOError, InterruptedError, TimeoutError):
            time.sleep(0.01)
    raise TimeoutError('no accept()')


def send(s, data, fds=()):
    try:
        s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))] if fds else [])
        return True
    except OSError:
        return False


def fds(p):
    return len(os.listdir(f'/proc/{p.pid}/fd'))


def at_once():
    for _ in range(100):
        connect().close()


def garbage():
    rng = random.Random(33)
    for n in range(100):
        with connect() as s:
            if n % 2:
                send(s, message(INIT, struct.pack('<HIB', 0x200, 0, 0)))
            for _ in range(rng.randrange(1, 6)):
                data = rng.randbytes(rng.choice((1, 127, 128, 128, 128, 129, 4000)))
                if len(data) == 128 and rng.random() < 0.7:
                    data = struct.pack('<H', rng.randrange(0, 11)) + data[2:]
                files = [os.open('/dev/null', os.O_RDWR) for _ in range(rng.randrange(0, 3))]
                send(s, data, files)
                for f in files:
                    os.close(f)


def half(s, ring, rings=1, size=1 << 20, real=None):
    """A handshake up to `ring`, with these fields of ADD_RING."""
    send(s, message(INIT, struct.pack('<HIB', 0x200, 0, 0)))
    f = os.memfd_create('region')
    os.ftruncate(f, size if real is None else real)
    send(s, message(ADD_REGION, struct.pack('<HQ', 0, size)), [f])
    for _ in range(rings):
        send(s, message(ADD_RING, struct.pack('<HHHIBH', *ring)), [f])
    send(s, message(CONNECT))
    os.close(f)
    time.sleep(0.01)


def lies():
    for ring in ((1, 0, 0, 0, 10, 0), (1, 0, 9, 0, 10, 0), (1, 0, 0, 0xfffff000, 10, 0), (1, 0, 0, 0, 15, 0),
                 (1, 0, 0, 0, 255, 0), (1, 300, 0, 0, 10, 0), (0, 0, 65535, 0, 10, 0)):
        for rings in (0, 1, 2, 400):
            with connect() as s:
                half(s, ring, rings)
    with connect() as s:
        half(s, (1, 0, 0, 0, 10, 0), 1, 1 << 30, 4096)  # a region longer than its file


def deaf():
    """Sends requests and never reads: the answering thread must not wait."""
    s = connect()
    for _ in range(100):
        if not send(s, message(INIT, struct.pack('<HIB', 0x200, 0, 0))):
            break
    connect().close()
    s.close()


def crowd():
    held = []
    for n in range(400):
        try:
            held.append(connect())
        except (OSError, TimeoutError):
            break
        if n % 4 == 0:
            send(held[-1], message(INIT, struct.pack('<HIB', 0x200, 0, 0)))
    return held


def routes(what):
    load = case.load(LOAD, 500, 1, 2, *PATIENT)
    out, err = load.communicate(timeout=120)
    case.check(load.returncode == 0, f'{what}: load failed: {err[-300:]} {out[-1500:]}')


first = case.start(KVROUTE, 'one')
case.check(first.poll() is None, 'the router does not start')
before = fds(first)
for attack in (at_once, garbage, lies, deaf):
    try:
        attack()
    except OSError as e:
        case.check(False, f'{attack.__name__}: {e}')
    time.sleep(0.3)
    case.check(first.poll() is None, f'{attack.__name__}: the router is dead')
    if first.poll() is None:
        case.check(fds(first) <= before + 2, f'{attack.__name__}: {fds(first)} descriptors, were {before}')
routes('after hostile peers')
held = crowd()
time.sleep(0.5)
case.check(first.poll() is None, 'crowd: the router is dead')
if first.poll() is None:
    case.check(fds(first) <= before + 40, f'crowd: {fds(first)} descriptors, were {before}')
time.sleep(3)  # an incomplete handshake loses its place
routes('beside a silent crowd')
for s in held:
    s.close()
second = case.start(KVROUTE, 'two')
case.check(second.poll() == 1, 'a second router on the socket was accepted')
# On a busy machine a start takes longer than a second, and reports that.
said = '\n'.join(x for x in case.log('two').strip().split('\n') if 'msg="starting: ' not in x)
case.check('served by another process' in said and said.count('\n') == 0, f'the second router reports: {said}')
routes('after a second router was rejected')
case.end(first)
if case.failures:
    print(case.log('one')[-2000:])
sys.exit(bool(case.failures))
