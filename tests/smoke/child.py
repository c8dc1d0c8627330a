# SPDX-License-Identifier: BSD-3-Clause
"""Programs that a test starts end with it in any case: a router left behind would poll forever."""

import ctypes
import signal
import subprocess

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(args, **more):
    """subprocess.Popen() of a program that does not outlive this one."""
    return subprocess.Popen(args, preexec_fn=die_with_parent, **more)
