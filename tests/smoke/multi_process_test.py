#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A router in 2 MiB pages, with --multi-process: dpdk-proc-info, dpdk-dumpcap and dpdk-pdump attach while it serves.

usage: multi_process_test.py KVROUTE KVROUTE_LOAD

First without the option: the heap is in huge pages and no file is left. Then with it: requests are answered beside the capture, the file contains
frames, and the router leaves no page behind. The pages are reserved here and released. Exit status 77: they are not available.
"""
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import child
from capture_test import packets
from load_test import Failed, in_directory, telemetry

PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
WANTED = 320  # 256 MiB of the router, 128 of the load, and what dumpcap takes
CONF = """[router]
ingress = {cpu}
hugepages = on
memory_mb = 256
file_prefix = {prefix}
eal = --huge-dir {directory}/huge
suspect_ms = 20000
dead_ms = 40000
[port p0]
device = net_memif0,role=server,socket={directory}/memif.sock,socket-abstract=no,rsize=10,bsize=2048
ipv4 = 10.77.0.1
[pool default]
id = 0
block_size = 16
max_ranks = 16
max_requests = 4096
max_blocks = 64K
"""
LOAD = ["--engines", "2", "--ranks", "2", "--turns", "1", "--blocks-per-rank", "0", "--prefill-us-per-token", "0",
        "--decode-us-per-token", "100", "--repeat-ms", "200", "--max-tries", "200", "--drain", "40", "--memory", "128", "--json",
        "--quiet", "--rate", "200", "--requests", "400"]


STARTED = []


def pages():
    with open(PAGES, encoding="ascii") as f:
        return int(f.read())


def reserve(n):
    with open(PAGES, "w", encoding="ascii") as f:
        f.write(str(n))


def load(program, directory, cpu):
    run = subprocess.run([program, "--socket", f"{directory}/memif.sock", "--core", str(cpu), *LOAD], stdout=subprocess.PIPE,
                         text=True, timeout=100)
    result = json.loads(run.stdout)
    if run.returncode != 0 or result["completed"] != 400:
        raise Failed(f"kvroute-load ended with {run.returncode}, {result['completed']} of 400 completed")


def huge_mapped(pid):
    """MiB of the process in huge pages."""
    with open(f"/proc/{pid}/smaps", encoding="ascii") as f:
        return sum(int(kb) for kb in re.findall(r"_Hugetlb: +(\d+) kB", f.read())) // 1024


def start(kvroute, directory, *more):
    log = open(f"{directory}/router.log", "w", encoding="utf-8")
    router = child.start([kvroute, "--config", f"{directory}/router.conf", *more], stdout=log, stderr=log)
    STARTED.append(router)
    for _ in range(600):
        with open(f"{directory}/router.log", encoding="utf-8") as f:
            if "kvroute: ready" in f.read():
                return router
        if router.poll() is not None:
            break
        time.sleep(0.1)
    raise Failed("the router did not start")


def stop(router, directory):
    router.terminate()
    if router.wait(30) != 0:
        raise Failed(f"the router ended with {router.returncode}")
    if os.listdir(f"{directory}/huge"):
        raise Failed(f"files of huge pages are left: {os.listdir(directory + '/huge')}")


def look(prefix, router):
    """The heap is in huge pages, all of them."""
    mapped = huge_mapped(router.pid)
    info = telemetry(prefix, "/kvroute/info")
    heap = telemetry(prefix, "/eal/heap_info,0")
    print(f"{mapped} MiB in huge pages, heap {heap['Heap_size'] >> 20} MiB, hugepages {info['hugepages']}")
    if info["hugepages"] != "yes" or mapped < 256 or heap["Heap_size"] >> 20 > mapped:
        raise Failed("the heap is not in huge pages")


def begun(path, more, dump, wait):
    """The file of a program that captures has more than so many bytes; wait() meanwhile."""
    for _ in range(600):
        if os.path.exists(path) and os.path.getsize(path) > more:
            return
        if dump.poll() is not None:
            raise Failed(f"{dump.args[0]} ended with {dump.returncode}: {dump.stdout.read()[-600:]}")
        wait()


def others(prefix, router, directory, program, cpu):
    out = subprocess.run(["dpdk-proc-info", "--no-pci", "--file-prefix", prefix, "--", "--stats"], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, timeout=60)
    if out.returncode != 0 or "NIC statistics for port 0" not in out.stdout:
        raise Failed(f"dpdk-proc-info ended with {out.returncode}: {out.stdout[-600:]}")
    path = f"{directory}/capture.pcapng"
    dump = child.start(["dpdk-dumpcap", "--file-prefix", prefix, "-i", "0", "-w", path, "-c", "300"], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
    STARTED.append(dump)
    begun(path, 0, dump, lambda: time.sleep(0.1))
    load(program, directory, cpu)
    try:
        dump.wait(5)
    except subprocess.TimeoutExpired:
        dump.send_signal(signal.SIGINT)
        dump.wait(20)
    found = packets(path)
    print(f"dpdk-dumpcap: {len(found)} frames")
    if len(found) < 300 or router.poll() is not None:
        raise Failed(f"{len(found)} frames captured: {dump.stdout.read()[-600:]}")
    dumped(prefix, router, directory, program, cpu)


def dumped(prefix, router, directory, program, cpu):
    """dpdk-pdump: a file of libpcap, through a vdev of its own that it hot-plugs."""
    path = f"{directory}/pdump.pcap"
    dump = child.start(["dpdk-pdump", "--no-pci", "--file-prefix", prefix, "--", "--pdump",
                        f"port=0,queue=*,rx-dev={path},total-num-mbufs=4095"],
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    STARTED.append(dump)
    begun(path, 24, dump, lambda: load(program, directory, cpu))  # until it listens
    size = os.path.getsize(path)
    load(program, directory, cpu)
    dump.send_signal(signal.SIGINT)
    said = dump.communicate(timeout=60)[0]
    print(f"dpdk-pdump: {size}, then {os.path.getsize(path)} bytes")
    if os.path.getsize(path) <= size or dump.returncode != 0 or router.poll() is not None:
        raise Failed(f"dpdk-pdump ended with {dump.returncode}: {said[-600:]}")
    load(program, directory, cpu)


def run(directory):
    kvroute, program = sys.argv[1:3]
    cpus = sorted(os.sched_getaffinity(0))
    prefix = f"kvr-mp-{os.getpid()}"
    os.mkdir(f"{directory}/huge")
    subprocess.run(["mount", "-t", "hugetlbfs", "none", f"{directory}/huge"], check=True)
    try:
        with open(f"{directory}/router.conf", "w", encoding="utf-8") as f:
            f.write(CONF.format(cpu=cpus[0], prefix=prefix, directory=directory))
        router = start(kvroute, directory)
        look(prefix, router)
        load(program, directory, cpus[-1])
        stop(router, directory)
        router = start(kvroute, directory, "--multi-process")
        look(prefix, router)
        others(prefix, router, directory, program, cpus[-1])
        stop(router, directory)
    finally:
        for p in STARTED:
            if p.poll() is None:
                p.kill()
                p.wait()
        subprocess.run(["umount", f"{directory}/huge"], check=False)


def main():
    if "--inside" not in sys.argv:
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
            print("not root, or no mount namespaces")
            sys.exit(77)
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv, "--inside"])
    sys.argv.remove("--inside")
    for tool in ("dpdk-dumpcap", "dpdk-proc-info", "dpdk-pdump"):
        if shutil.which(tool) is None:
            print(f"no {tool}")
            sys.exit(77)
    with open("/tmp/kvr-huge-pages.lock", "w", encoding="ascii") as lock:  # one test at a time has them
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = pages()
        try:
            reserve(before + WANTED)
            if pages() < before + WANTED:
                print(f"{pages() - before} of {WANTED} pages of 2 MiB are to be had")
                sys.exit(77)
            in_directory("multi-process", run)
        except OSError as e:
            print(f"no huge pages: {e}")
            sys.exit(77)
        finally:
            reserve(before)


if __name__ == "__main__":
    main()
