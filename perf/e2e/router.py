# SPDX-License-Identifier: BSD-3-Clause
"""The router of an end-to-end measurement: its folder, start, end and telemetry."""
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

# A window with held CPUs: seconds that are measured, and seconds held before them and (the drain) after them. The sum stays below 0.95 s,
# because the kernel gives ordinary threads 50 ms of each second in which SCHED_FIFO threads starved them.
HELD, BEFORE = 0.5, 0.1
KEPT_NS = 20e6  # limit of the time a held polling thread waits for its CPU; a control thread takes 5 ms of it
TRIES = 4       # attempts for a window that was not held


def add_options(p):
    """Options of every measurement."""
    p.add_argument("--build", default=os.environ.get("BUILD", os.path.join(ROOT, "build")))
    p.add_argument("--cpus", default="0,1", help="CPU of the router, CPU of the load")
    p.add_argument("--no-priority", action="store_true", help="do not request a higher CPU priority")


def take_priority():
    """Child processes inherit the priority. With autogroups a nice value only applies within its session, so create a session."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -19)
        if os.getpid() != os.getsid(0):
            os.setsid()
        with open("/proc/self/autogroup", "w") as f:
            f.write("-19")
    except FileNotFoundError:
        pass
    except PermissionError:
        print("no permission to raise the priority: other programs on these CPUs will affect the result", file=sys.stderr)


def waited(pid):
    """{thread: (ns on a CPU, ns waiting for one)} of a process."""
    out = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat") as f:
                run, wait, _ = map(int, f.read().split())
        except OSError:
            continue
        out[task] = (run, wait)
    return out


class Held:
    """Reserves the CPUs of a router and its load for their polling threads: SCHED_FIFO from shortly before the measured part to the
    end of the load. The router's control thread has priority over its polling thread."""

    def __init__(self, router, load, begins, warmup, before=None):
        """`begins` waits until the load begins and returns True, or returns False if the load has ended. The measured part begins
        `warmup` seconds later. `before` is called once the router's CPU is held."""
        self.router, self.load, self.begins, self.warmup, self.before = router, load, begins, warmup, before
        self.polling, self.began = None, None
        self.thread = threading.Thread(target=self.hold)
        self.thread.start()

    def hold(self):
        if not self.begins():
            return
        time.sleep(self.warmup - BEFORE)
        ours, its = waited(self.router.pid), waited(self.load.pid)
        if not its:
            return  # the load has ended
        # The thread with the most CPU time is the polling thread.
        self.polling, load = max(ours, key=lambda task: ours[task][0]), max(its, key=lambda task: its[task][0])
        try:
            os.sched_setscheduler(self.router.pid, os.SCHED_FIFO, os.sched_param(2))
            os.sched_setscheduler(int(self.polling), os.SCHED_FIFO, os.sched_param(1))
            if self.before is not None:
                self.before()
            self.began = waited(self.router.pid)[self.polling][1]
            os.sched_setscheduler(int(load), os.SCHED_FIFO, os.sched_param(1))
        except OSError as e:
            self.began = None
            print(f"the CPUs were not held: {e}", file=sys.stderr)

    def release(self):
        """Call after the end of the load. @return whether the router's CPU was held all the time."""
        self.thread.join()
        try:
            kept = None if self.began is None else waited(self.router.pid)[self.polling][1] - self.began
            for task in os.listdir(f"/proc/{self.router.pid}/task"):
                os.sched_setscheduler(int(task), os.SCHED_OTHER, os.sched_param(0))
        except (OSError, KeyError):
            return False  # the router has ended
        return kept is not None and kept < KEPT_NS


def may_hold():
    """Whether this process may use SCHED_FIFO."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except PermissionError:
        return False
    return True


class Router:
    """A router with the configuration `conf`. Replaces @CPU@, @SOCKET@, @PREFIX@ and the keys of `more` ({key: file name of a socket})."""

    def __init__(self, opt, name, conf, more=None):
        self.program = opt.build + "/app/router/kvroute"
        self.dir = tempfile.mkdtemp(prefix=f"kvroute-{name}.")
        self.prefix = f"kvr-{name}-{os.getpid()}"
        self.process = None
        self.through = []  # command that starts the router in another namespace
        with open(conf) as f:
            text = f.read()
        values = {"CPU": opt.cpus.split(",")[0], "SOCKET": self.dir + "/steady.sock", "PREFIX": self.prefix}
        values.update({key: f"{self.dir}/{file}" for key, file in (more or {}).items()})
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        with open(self.dir + "/router.conf", "w") as f:
            f.write(text)

    def fail(self, why):
        with open(self.dir + "/router.log") as f:
            sys.exit(f"{why}; the end of the router's log:\n" + "".join(f.readlines()[-10:]))

    def check(self):
        if self.process.poll() is not None:
            self.fail(f"the router ended with {self.process.returncode}")

    def start(self):
        """Start a fresh router."""
        self.halt()
        with open(self.dir + "/router.log", "w") as log:
            self.process = subprocess.Popen(self.through + [self.program, "--config", self.dir + "/router.conf"], stdout=log, stderr=log)
        for _ in range(300):
            with open(self.dir + "/router.log") as f:
                if "kvroute: ready" in f.read():
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.fail("the router did not start")

    def halt(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def stop(self):
        self.halt()
        for name in os.listdir(self.dir):
            os.unlink(os.path.join(self.dir, name))
        os.rmdir(self.dir)

    def telemetry(self, command):
        """Reply to one command on the router's telemetry socket."""
        base = os.environ.get("RUNTIME_DIRECTORY") or ("/var/run" if os.geteuid() == 0 else
                                                       os.environ.get("XDG_RUNTIME_DIR", "/tmp"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(10)
            s.connect(f"{base}/dpdk/{self.prefix}/dpdk_telemetry.v2")
            limit = json.loads(s.recv(1024))["max_output_len"]
            s.send(command.encode())
            return json.loads(s.recv(limit))[command.split(",")[0]]
