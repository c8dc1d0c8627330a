#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""perf/pktgen without pktgen: dpdk-testpmd reads the pcap files and writes them into a memif of the router.

usage: pktgen_test.py KVROUTE KVROUTE_LOAD MAKE_PCAP

Queries, garbage and foreign frames go round for five seconds: every frame that testpmd has sent is counted by the router, each
once, as what it is. Then requests that book go once, and kvroute-load --engines-only on a second port serves them. All three
programs share one CPU. Exit status 77: no testpmd, or no telemetry.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time

import child
from load_test import Failed, a_router, in_directory, telemetry

CONF = """[router]
ingress = {cpu}
hugepages = off
memory_mb = 512
file_prefix = {prefix}
suspect_ms = 20000
dead_ms = 40000
[port gen]
device = net_memif0,role=server,socket={directory}/gen.sock,socket-abstract=no,rsize=12,bsize=2048
ipv4 = 10.77.0.1
mac = 02:00:00:00:00:01
cookie = off
[port ends]
device = net_memif1,role=server,socket={directory}/ends.sock,socket-abstract=no,rsize=12,bsize=2048
ipv4 = 10.78.0.1
[pool default]
id = 0
block_size = 16
max_ranks = 16
max_blocks = 64K
"""
SECONDS, REQUESTS = 5, 500
ENGINES = ["--engines-only", "--ip", "10.78.0.2", "--router", "10.78.0.1", "--engines", "2", "--ranks", "2", "--clients", "1",
           "--blocks-per-rank", "0", "--seconds", "3600", "--drain", "0", "--json", "--quiet"]


class Testpmd:
    def __init__(self, directory, cpu, pcap, forever):
        self.log = open(f"{directory}/testpmd.log", "w+", encoding="utf-8")
        loop = ",infinite_rx=1" if forever else ""
        self.process = child.start(
            ["stdbuf", "-oL", "dpdk-testpmd", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry", f"--file-prefix=kvr-pmd-{os.getpid()}",
             "--lcores", f"0@{cpu},1@{cpu}", "--main-lcore", "0", "--vdev", f"net_pcap0,rx_pcap={pcap}{loop}", "--vdev",
             f"net_memif0,role=client,socket={directory}/gen.sock,socket-abstract=no,rsize=12,bsize=2048", "--", "-i",
             "--total-num-mbufs=16384", "--forward-mode=io", "--no-flush-rx", "--disable-link-check"],
            stdin=subprocess.PIPE, stdout=self.log, stderr=subprocess.STDOUT, text=True)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def said(self):
        with open(self.log.name, encoding="utf-8") as f:
            return f.read()

    def stop(self):
        """Frames that the memif has taken; what is in it still goes with the end of this program."""
        shown = re.compile(r"NIC statistics for port 1 .*?TX-packets: (\d+)", re.S)
        self.say("stop\nshow port stats 1")
        wait(f"testpmd prints nothing: {self.said()[-2000:]}", lambda: shown.search(self.said()))
        return int(shown.search(self.said())[1])

    def quit(self):
        self.say("quit")
        if self.process.wait(60) != 0:
            raise Failed(f"testpmd ended with {self.process.returncode}: {self.said()[-2000:]}")


def wait(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failed(what)
        time.sleep(0.1)


def make(program, path, *arguments):
    return json.loads(subprocess.run([program, path, "--count", "600", *arguments], check=True, stdout=subprocess.PIPE).stdout)


def gen(prefix):
    return telemetry(prefix, "/kvroute/ports")["gen"]


def grown(after, before):
    return {k: after[k] - v for k, v in before.items() if isinstance(v, int)}


def play(prefix, directory, cpu, pcap, forever, done):
    """@return frames sent, what the port and the ingress stage have counted."""
    before, frames = gen(prefix), telemetry(prefix, "/kvroute/ingress")
    pmd = Testpmd(directory, cpu, pcap, forever)
    wait("no link to testpmd", lambda: gen(prefix)["link_up"])
    pmd.say("start")
    done()
    sent = pmd.stop()
    wait(f"the router has not received {sent} frames", lambda: gen(prefix)["rx_frames"] - before["rx_frames"] >= sent, 20)
    pmd.quit()
    return sent, grown(gen(prefix), before), grown(telemetry(prefix, "/kvroute/ingress"), frames)


def add_up(prefix):
    balance = telemetry(prefix, "/kvroute/balance")
    port, losses = gen(prefix), balance["losses_gen"]
    if balance["balance"] != "ok":
        raise Failed(balance)
    if losses["rx_offered"] != port["rx_frames"] + losses["imissed"] + losses["ierrors"] + losses["rx_nombuf"] or \
            losses["tx_dropped"] != port["tx_dropped"] or balance["lost"] < port["tx_dropped"]:
        raise Failed(f"losses {losses} of {port}")


def mixed(prefix, directory, cpu, program):
    made = make(program, f"{directory}/mix.pcap", "--mix", "query=4,garbage=1,foreign=1")
    sent, port, ingress = play(prefix, directory, cpu, f"{directory}/mix.pcap", True, lambda: time.sleep(SECONDS))
    print(json.dumps({"sent": sent, **{k: v for k, v in port.items() if v}}))
    if port["rx_frames"] != sent or sent < made["frames"]:
        raise Failed(f"{sent} frames sent, {port['rx_frames']} counted")
    foreign = sum(port[k] for k in port if k.startswith("rx_other") or k in ("rx_fragment", "rx_arp"))
    if foreign + port["rx_udp"] != sent:
        raise Failed(f"{foreign} foreign and {port['rx_udp']} for the router of {sent}")
    # Frames that the memif did not accept at once may be missing anywhere in the file: shares are about right.
    rounds = sent / made["frames"]
    if not 0.8 * made["foreign"] < foreign / rounds < 1.2 * made["foreign"]:
        raise Failed(f"{foreign} foreign in {rounds} rounds of {made['foreign']}")
    # A query without a free slot is rejected.
    if not ingress["frames"] == port["rx_udp"] == ingress["routes"] + ingress["rejected"] + ingress["dropped"] or \
            not made["query"] < ingress["routes"] < 1.2 * rounds * made["query"]:
        raise Failed(f"ingress {ingress}")
    if ingress["rejected"] + ingress["dropped"] < 0.8 * rounds * made["garbage"]:
        raise Failed(f"garbage was taken: {ingress}")
    items = telemetry(prefix, "/kvroute/stages")["lcore0"]["ingress"]["items"]
    if items < sent:
        raise Failed(f"the ingress stage accounts for {items} of {sent} frames")
    add_up(prefix)


def serving(prefix, directory, cpu, load):
    """Engines that the router knows; on a busy machine registration may take longer than they wait."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        engines = child.start([load, "--socket", f"{directory}/ends.sock", "--core", str(cpu), *ENGINES], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
        while engines.poll() is None:
            if json.dumps(telemetry(prefix, "/kvroute/workers")).count('"serving"') == 2:
                return engines
            time.sleep(0.1)
    raise Failed("the engines do not serve")


def served(prefix, directory, cpu, load, program):
    made = make(program, f"{directory}/route.pcap", "--mix", "route=1", "--count", str(REQUESTS))
    engines = serving(prefix, directory, cpu, load)

    def finished():
        return telemetry(prefix, "/kvroute/pools")["pools"]["default"]["requests"]["finished"]
    sent, port, ingress = play(prefix, directory, cpu, f"{directory}/route.pcap", False,
                               lambda: wait("requests do not end", lambda: finished() >= REQUESTS))
    engines.terminate()
    result = json.loads(engines.communicate(timeout=60)[0])
    print(json.dumps({"sent": sent, "finished": finished(), "dispatches": result["counters"]["dispatches"]}))
    if not sent == made["route"] == port["rx_frames"] == ingress["routes"] == finished() == REQUESTS:
        raise Failed(f"{made['route']} made, {sent} sent, {port['rx_frames']} received, {finished()} finished: {ingress}")
    if result["counters"]["dispatches"] < REQUESTS:
        raise Failed(f"{result['counters']} requests reached the engines")
    add_up(prefix)


def run(directory):
    kvroute, load, program = sys.argv[1:4]
    if shutil.which("dpdk-testpmd") is None:
        print("no dpdk-testpmd")
        sys.exit(77)
    cpu = max(os.sched_getaffinity(0))
    prefix = f"kvr-gen-{os.getpid()}"
    with a_router(kvroute, CONF.format(cpu=cpu, prefix=prefix, directory=directory), prefix, directory):
        mixed(prefix, directory, cpu, program)
        served(prefix, directory, cpu, load, program)


if __name__ == "__main__":
    in_directory("pktgen", run)
