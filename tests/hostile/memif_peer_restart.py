#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The router under a memif peer dies and starts again: the peer reconnects and nothing is lost. Or the peer is the server and dies, and the
router, its client, reconnects. kvroute-load reports losses by its exit status.

memif_peer_restart.py KVROUTE KVROUTE_LOAD
"""
import json
import os
import signal
import socket
import sys
import time

from scripts import PATIENT, Case

from load_test import telemetry  # noqa: E402

KVROUTE, LOAD = sys.argv[1:3]


def report(case, peer, what):
    """The counters of kvroute-load; {} if it reports nothing."""
    out, err = peer.communicate(timeout=120)
    try:
        return json.loads(out), err
    except ValueError:
        case.check(False, what, 'no report:', out[-300:], err[-300:])
        return {}, err


def kill(router):
    router.send_signal(signal.SIGKILL)
    router.wait()


def served(case, name, requests):
    """Wait until that router has sent @count requests to engines."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            pools = telemetry(case.prefix(name), '/kvroute/pools')['pools']
            if sum(p['requests']['dispatches'] for p in pools.values()) >= requests:
                return True
        except OSError:
            pass  # not ready yet
        time.sleep(0.1)
    return False


def router_dies():
    case = Case('memif_peer')
    router = case.start(KVROUTE, 'one')
    peer = case.load(LOAD, 200, 100, 4, *PATIENT)  # long enough for a slow start: interrupted when it has seen both routers
    case.check(served(case, 'one', 300), 'the first router serves no requests')
    kill(router)
    time.sleep(0.5)
    router = case.start(KVROUTE, 'two')
    case.check(served(case, 'two', 300), 'the second router serves no requests')
    peer.send_signal(signal.SIGINT)
    seen, err = report(case, peer, 'the peer of a restarted router:')
    case.check(peer.returncode == 0, 'the peer of a restarted router:', peer.returncode, err[-300:])
    # More than once: the new router listens before it is ready.
    case.check(seen.get('counters', {}).get('link_lost'), 'the link was never lost')
    # Requests are rejected until engines have joined the new router.
    case.check(seen.get('lost') == 0 and seen.get('completed', 0) >= 500, 'completed', seen.get('completed'), 'of',
               seen.get('requests'), 'lost', seen.get('lost'), seen.get('error_codes'))
    # The router dies and does not return: losses are reported.
    peer = case.load(LOAD, 200, 4, 4, '--drain', '1')
    time.sleep(2)
    kill(router)
    seen, err = report(case, peer, 'the peer of a dead router:')
    case.check(peer.returncode != 0, 'exit status 0 with', seen.get('lost'), 'lost')
    case.check('lost' in err and 'must be 0' in err, 'exit', peer.returncode, 'said:', err[-300:])
    return case.failures


def server_dies():
    """The router is the client of the link: its server is killed, starts, ends and starts again."""
    case = Case('memif_server', role='client')
    device = f'net_memif0,role=server,id=0,socket-abstract=no,socket={case.socket}'

    def server(seconds):
        return case.load(LOAD, 200, seconds, 4, *PATIENT, '--port', device)

    peer = server(60)
    while not os.path.exists(case.socket) and peer.poll() is None:
        time.sleep(0.05)
    router = case.start(KVROUTE, 'one')
    time.sleep(3)
    kill(peer)
    for n in (2, 3):
        peer = server(3)
        seen, err = report(case, peer, f'server {n}:')
        case.check(peer.returncode == 0, f'server {n}: exit', peer.returncode, err[-300:])
        case.check(seen.get('lost') == 0 and seen.get('completed') == seen.get('requests', -1) >= 500, f'server {n}: completed',
                   seen.get('completed'), 'of', seen.get('requests'), 'lost', seen.get('lost'), seen.get('error_codes'))
    case.check('no link to the memif server' in case.log('one'), 'said:', case.log('one')[-300:])
    # A server that listens and does not accept, with a full backlog: the router does not block.
    if os.path.exists(case.socket):
        os.unlink(case.socket)
    full = fill(case.socket)
    time.sleep(1)
    case.end(router)
    for s in full:
        s.close()
    return case.failures


def fill(path):
    """A listening socket, with connections until its backlog is full."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(0)
    full = [listener]
    try:
        while len(full) < 100:
            full.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK))
            full[-1].connect(path)
    except BlockingIOError:
        pass
    return full


sys.exit(bool(router_dies() + server_dies()))
