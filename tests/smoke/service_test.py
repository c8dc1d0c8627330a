#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Notifications to a service manager: ready, a watchdog that is served while every packet lcore turns and not while one hangs, stopping.

usage: service_test.py KVROUTE
"""
import ctypes
import os
import signal
import socket
import sys
import time

from load_test import Failed, a_router, in_directory
from metrics_test import CONF

WATCHDOG_US = 400000
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


def ptrace(what, tid):
    if LIBC.ptrace(what, tid, None, None) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def read_notification(manager, seconds):
    """The next datagram within @seconds; "" if none."""
    manager.settimeout(seconds)
    try:
        return manager.recv(4096).decode()
    except TimeoutError:
        return ""


def empty(manager):
    while read_notification(manager, 0.001):
        pass


def polling_thread(pid):
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/comm") as f:
            if "worker" in f.read():
                return int(tid)
    raise Failed("no polling thread")


def hang(manager, pid):
    """One lcore hangs, the rest of the process continues."""
    tid = polling_thread(pid)
    try:
        ptrace(PTRACE_SEIZE, tid)
    except OSError as e:
        print(f"a thread cannot be stopped here: {e}")
        return
    ptrace(PTRACE_INTERRUPT, tid)
    LIBC.waitpid(tid, None, WALL)
    time.sleep(2 * WATCHDOG_US / 1e6)  # notifications on the way
    empty(manager)
    text = read_notification(manager, 3 * WATCHDOG_US / 1e6)
    if text:
        raise Failed(f"an lcore hangs, and the watchdog hears {text}")
    ptrace(PTRACE_DETACH, tid)
    if read_notification(manager, 30) != "WATCHDOG=1":
        raise Failed("the lcore turns again, and the watchdog is not fed")


def run(directory):
    os.environ["RUNTIME_DIRECTORY"] = directory
    os.environ["NOTIFY_SOCKET"] = path = f"{directory}/notify"
    os.environ["WATCHDOG_USEC"] = str(WATCHDOG_US)
    os.environ.pop("WATCHDOG_PID", None)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        conf = CONF.format(cpu=min(os.sched_getaffinity(0)), prefix="kvr-sv")
        with a_router(sys.argv[1], conf, "kvr-sv", directory) as router:
            first = read_notification(manager, 30)
            if not first.startswith("READY=1\n"):
                raise Failed(f"first it says {first!r}")
            for _ in range(3):
                if read_notification(manager, 30) != "WATCHDOG=1":
                    raise Failed("the watchdog is not fed")
            hang(manager, router.pid)
            router.send_signal(signal.SIGTERM)
            while (text := read_notification(manager, 30)) == "WATCHDOG=1":
                pass
            if not text.startswith("STOPPING=1\n"):
                raise Failed(f"at last it says {text!r}")


if __name__ == "__main__":
    in_directory("service", run)
