#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""/kvroute/capture beside load: the file contains the frames that the ports counted, the filter applies, and nothing stays installed.

usage: capture_test.py KVROUTE KVROUTE_LOAD

A router on memif without huge pages, kvroute-load as both ends. A full file system is a small tmpfs, tested where one can be mounted. Exit status 77:
no telemetry.
"""
import contextlib
import json
import os
import resource
import struct
import subprocess
import sys
import time

from load_test import PATIENCE, Failed, a_router, in_directory, telemetry

CONF = """[router]
ingress = {cpu}
idle = sleep
hugepages = off
memory_mb = 768
file_prefix = {prefix}
suspect_ms = 20000
dead_ms = 40000
[port p0]
device = net_memif0,role=server,socket={directory}/memif.sock,socket-abstract=no,rsize=12,bsize=2048
ipv4 = 10.77.0.1
tx_checksum = none
[pool default]
id = 0
block_size = 16
max_ranks = 64
max_blocks = 64K
"""
LOAD = ["--idle", "sleep", "--engines", "2", "--ranks", "2", "--turns", "1", "--blocks-per-rank", "0", "--prefill-us-per-token", "0",
        "--decode-us-per-token", "100", *PATIENCE, "--memory", "256", "--json", "--quiet", "--rate", "200", "--requests", "400"]


BEGUN = time.time()


def packets(path, since=BEGUN):
    """(direction, bytes) of every packet of a pcapng file; a block that is cut or lies about its length is an error, and so
    is a packet of an interface that the file does not describe: readers refuse the whole file. Times are of this test, and not before @since."""
    data, at, found, interfaces = open(path, "rb").read(), 0, [], 0
    latest = time.time() + 0.01
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if length < 12 or length % 4 or at + length > len(data) or struct.unpack_from("<I", data, at + length - 4)[0] != length:
            raise Failed(f"block at {at} of {path} is no block")
        if at == 0 and kind != 0x0A0D0D0A:
            raise Failed(f"{path} does not begin with a section")
        interfaces += kind == 1
        if kind == 6:
            if (interface := struct.unpack_from("<I", data, at + 8)[0]) >= interfaces:
                raise Failed(f"block at {at} of {path}: interface {interface} of {interfaces}")
            high, low, kept, whole = struct.unpack_from("<IIII", data, at + 12)
            if not since - 0.01 < (high << 32 | low) / 1e9 < latest:
                raise Failed(f"block at {at} of {path}: of {time.ctime((high << 32 | low) / 1e9)}")
            frame, options = data[at + 28:at + 28 + kept], at + 28 + (kept + 3) // 4 * 4
            direction = None
            while options < at + length - 8:
                code, size = struct.unpack_from("<HH", data, options)
                if code == 2:
                    direction = ["", "in", "out"][struct.unpack_from("<I", data, options + 4)[0] & 3]
                options += 4 + (size + 3) // 4 * 4
            if kept != whole:
                raise Failed("a frame was cut")
            found.append((direction, frame))
        at += length
    return found


def port(prefix):
    return telemetry(prefix, "/kvroute/ports")["p0"]


def ends(prefix):
    end = time.monotonic() + 30
    while (s := telemetry(prefix, "/kvroute/capture"))["state"] == "running":
        if time.monotonic() > end:
            raise Failed(f"the capture does not end: {s}")
        time.sleep(0.1)
    return telemetry(prefix, "/kvroute/capture,stop")


def load(program, directory, cpu, *more):
    run = subprocess.run([program, "--socket", f"{directory}/memif.sock", "--core", str(cpu), *LOAD, *more], stdout=subprocess.PIPE,
                         text=True, timeout=100)
    result = json.loads(run.stdout)
    if run.returncode != 0 or result["completed"] != 400:
        raise Failed(f"kvroute-load ended with {run.returncode}, {result['completed']} of 400 completed")


def refusals(prefix, directory):
    exists = f"{directory}/exists"
    open(exists, "w").close()
    for params, words in [("p0", "allowed"), ("p1,/tmp/x,5", "no port"), ("p0,x,5", "allowed"), (f"p0,{directory}/a,0", "allowed"),
                          (f"p0,{directory}/a,5x", "allowed"), (f"p0,{exists},5", "exists"), (f"p0,{directory}/no/a,5", "No such"),
                          (f"p0,{directory}/a,5,udp porrt", "filter"), ("," * 500, "allowed"),
                          # Names are not resolved: an unresponsive name server would block the holder of the lock.
                          (f"p0,{directory}/a,5,host localhost", "unknown host"),
                          (f"p0,{directory}/a,5,net loopback", "unknown network")]:
        answer = telemetry(prefix, f"/kvroute/capture,{params}")
        if words not in answer.get("message", ""):
            raise Failed(f"{params[:60]}: {answer}")
    for number, address in enumerate(("host 10.77.0.1", "ip6 host fd77::1", "net 10.77.0.0/16")):
        if telemetry(prefix, f"/kvroute/capture,p0,{directory}/by{number},5,{address}").get("state") != "running":
            raise Failed(f"an address is refused: {address}")
        telemetry(prefix, "/kvroute/capture,stop")
    if os.path.exists(f"{directory}/a") or os.path.getsize(exists):
        raise Failed("a refused capture wrote a file")


def check(prefix, directory, program, cpu):
    refusals(prefix, directory)
    whole, agents = f"{directory}/whole.pcapng", f"{directory}/agents.pcapng"
    before, since = port(prefix), time.time()
    if telemetry(prefix, f"/kvroute/capture,p0,{whole},60").get("state") != "running":
        raise Failed("no capture")
    if "running" not in telemetry(prefix, f"/kvroute/capture,p0,{agents},60").get("message", ""):
        raise Failed("two captures at once")
    load(program, directory, cpu, "--memif-ring", "6", "--rate", "4000")  # rings that are sometimes full
    result, after = telemetry(prefix, "/kvroute/capture,stop"), port(prefix)
    found = packets(whole, since)
    counts = {"in": after["rx_frames"] - before["rx_frames"],
              "out": sum(after[k] - before[k] for k in ("tx_sent", "tx_dropped"))}
    print(f"repeated {after['tx_retries'] - before['tx_retries']}")
    seen = {d: sum(1 for p in found if p[0] == d) for d in counts}
    print(f"frames {counts}, in the file {seen}, {result}")
    if result["frames"] != len(found) or sum(len(f) for _, f in found) > os.path.getsize(whole):
        raise Failed("the answer and the file differ")
    # A copy without a buffer is missed; a frame that the device accepted on a retry is in the file once.
    if sum(counts.values()) != len(found) + result["missed"] or any(seen[d] > counts[d] for d in counts):
        raise Failed("the file has other frames than the port")
    if len(found) + result["missed"] < 1000 or not found:
        raise Failed("there was no load")
    if telemetry(prefix, f"/kvroute/capture,p0,{agents},60,udp and ip src 10.77.0.1 and less 200").get("state") != "running":
        raise Failed("no second capture")
    load(program, directory, cpu)
    telemetry(prefix, "/kvroute/capture,stop")
    found = packets(agents)
    if not found or any(d != "out" or len(f) > 200 or f[26:30] != bytes([10, 77, 0, 1]) for d, f in found):
        raise Failed("the filter was not obeyed")
    if telemetry(prefix, f"/kvroute/capture,p0,{directory}/short.pcapng,1").get("state") != "running":
        raise Failed("no third capture")
    last = ends(prefix)["frames"]
    load(program, directory, cpu)
    if telemetry(prefix, "/kvroute/capture")["frames"] != last:
        raise Failed("a capture that has ended still counts")
    # Left running: the stop of the router ends it.
    telemetry(prefix, f"/kvroute/capture,p0,{directory}/last.pcapng,600")


def full(prefix, directory, program, cpu):
    """Frames that fit are in the file in whole blocks; the rest is counted as missed and reported, and nothing else is affected."""
    small = f"{directory}/small"
    os.mkdir(small)
    if "--inside" not in sys.argv or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=65536", "tmpfs", small], check=False).returncode:
        print("no file system of its own: a full one is not tried")
        return
    try:
        if telemetry(prefix, f"/kvroute/capture,p0,{small}/a.pcapng,60").get("state") != "running":
            raise Failed("no capture on a small file system")
        load(program, directory, cpu)
        result = telemetry(prefix, "/kvroute/capture")
        found = packets(f"{small}/a.pcapng")
        print(f"a full file system: {len(found)} frames, {result}")
        if "No space" not in result["state"] or result["frames"] != len(found) or not found or not result["missed"]:
            raise Failed("a full file system")
        with open(f"{directory}/router.log") as f:
            if not any("ended: No space" in line for line in f):
                raise Failed("the log does not report the full file system")
        with contextlib.suppress(OSError), open(f"{small}/filler", "wb", buffering=0) as f:
            while f.write(bytes(4096)):
                pass
        refused = telemetry(prefix, f"/kvroute/capture,p0,{small}/b.pcapng,60")
        if "No space" not in refused.get("message", "") or os.path.exists(f"{small}/b.pcapng"):
            raise Failed(f"a file that cannot be begun: {refused}")
        if telemetry(prefix, "/kvroute/capture")["state"] != "none yet":
            raise Failed("a rejected capture is shown as a capture")
    finally:
        subprocess.run(["umount", "-l", small], check=False)


def limited(router, prefix, directory, program, cpu):
    """A router whose files may not grow (RLIMIT_FSIZE) survives."""
    if telemetry(prefix, f"/kvroute/capture,p0,{directory}/limited.pcapng,60").get("state") != "running":
        raise Failed("no capture before a limit")
    before = resource.prlimit(router.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(router.pid, resource.RLIMIT_FSIZE, (1, before[1]))
    load(program, directory, cpu)
    resource.prlimit(router.pid, resource.RLIMIT_FSIZE, before)
    result = telemetry(prefix, "/kvroute/capture")
    if result["state"] != "File too large" or result["frames"] or packets(f"{directory}/limited.pcapng"):
        raise Failed(f"a file that may not grow: {result}")


def run(directory):
    kvroute, program = sys.argv[1:3]
    cpus = sorted(os.sched_getaffinity(0))
    prefix = f"kvr-cap-{os.getpid()}"
    with a_router(kvroute, CONF.format(cpu=cpus[0], prefix=prefix, directory=directory), prefix, directory) as router:
        limited(router, prefix, directory, program, cpus[-1])
        full(prefix, directory, program, cpus[-1])
        check(prefix, directory, program, cpus[-1])
    packets(f"{directory}/last.pcapng")


if __name__ == "__main__":
    if "--inside" not in sys.argv and os.geteuid() == 0 and \
            not subprocess.run(["unshare", "-m", "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv, "--inside"])
    in_directory("capture", run)
