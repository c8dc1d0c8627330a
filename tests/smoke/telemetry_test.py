#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The telemetry commands: their answers about a second of load, and to invalid parameters.

usage: telemetry_test.py KVROUTE KVROUTE_LOAD
"""
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import child
from load_test import Failed, a_router, in_directory, telemetry
from metrics_test import families, metrics

CONF = """[router]
ingress = {cpu}
hugepages = off
memory_mb = 512
suspect_ms = 5000
dead_ms = 10000
file_prefix = {prefix}
[port p0]
device = net_memif0,role=server,id=0,socket={directory}/memif.sock,socket-abstract=no,bsize=2048,rsize=12
ipv4 = 10.77.0.1
ipv6 = fd77::1
cookie = off
mtu = 1500
[pool default]
id = 0
max_requests = 4096
max_blocks = 64K
decision_sample = 1
[pool other]
id = 1
max_ranks = 64
max_requests = 256
max_jobs = 64
max_blocks = 64K
[class other gold]
quantum = 7
[class other rest]
"""
COMMANDS = Path(__file__).resolve().parents[2] / "app/router/telemetry/COMMANDS.md"
KEYS = {
    "loads": {"eligible", "why", "active_requests", "active_blocks", "active_prefill_tokens", "kv_total_blocks", "max_num_batched_tokens", "routed", "finished",
              "failed", "cancelled", "prompt_tokens", "predicted_tokens", "reported_predicted_tokens", "actual_tokens"},
    "events": {"next_event_id", "dumping", "authoritative", "lag", "gaps", "dumps", "clears", "regressions", "stored", "removed", "held"},
    "hits": {"prompt_tokens", "achieved_tokens", "reported_predicted_tokens", "reported_actual_tokens", "short", "beyond"},
}
HISTOGRAMS = {"time_to_first_token_seconds", "inter_token_latency_seconds", "input_sequence_tokens", "output_sequence_tokens",
              "kv_hit_rate", "kv_transfer_estimated_latency_seconds", "overlap_blocks_lost", "overhead_total_ms",
              "dispatch_latency_seconds", "queue_wait_seconds", "prefill_leg_seconds", "decode_leg_seconds"}
# Command, and what it must say no to: each a code and a part of the message.
WRONG = {
    "/kvroute/loads": ("", ",nothing", ",default,x", ",default,-1", ",default,99999999999", ",default,0,0"),
    "/kvroute/worker": ("", ",x", ",-1", ",18446744073709551616", ",123456789", ",1,x"),
    "/kvroute/queue": ("", ",nothing", ",default,1"),
    "/kvroute/events": ("", ",nothing", ",default,x"),
    "/kvroute/hits": ("", ",nothing", ",default,x"),
    "/kvroute/latency": (",nothing", ",default,nothing", ",default,default,x"),
    "/kvroute/buckets": ("", ",nothing", ",default,nothing", ",default,default,x"),
    "/kvroute/config": (",x", ",-1", ",0,0"),
    "/kvroute/explain": ("", ",x", ",-1", ",0xffffffffffffffffff", ",0xdeadbeefdeadbeef", ",1,x"),
    "/kvroute/buffers": (",x",),
    "/kvroute/set": ("", ",x", ",=1", ",max_ranks=1", ",router_temperature=", ",router_temperature=-1", ",router_temperature=nan",
                     ",router_temperature=1,nothing", ",router_queue_threshold=x", ",heartbeat_ms=0", ",heartbeat_ms=5000",
                     ",dead_ms=20", ",log=loud", ",log=normal,p0", ",source_rate=x", ",allow=x", ",allow=10.0.0.1/8", ",xdp_burst=0", ",source_rate=1,default",
                     ",router_temperature=" + "9" * 400, "," + "k" * 300 + "=1", ",quantum=0",
                     ",quantum=x", ",quantum=1,default", ",quantum=1,other,nothing", ",quantum=1,nothing,gold", ",queue_policy=lcfs",
                     ",prefill_busy_threshold_frac=-1", ",router_temperature=1,other,gold", ",quantum=1,other,gold,x"),
    "/kvroute/session/release": ("", ",default", ",default,", ",nothing,x", ",default,unknown", ",default,a,b"),
    "/kvroute/snapshot": ("", ",now", ",x", ",now,now"),
    "/kvroute/resume": ("", ",x", ",123456789"),
    "/kvroute/deactivate": ("", ",nothing", ",default", ",default,x"),
    "/kvroute/reactivate": ("", ",nothing", ",default"),
    "/kvroute/workers": (",x", ",-1", ",0,0"),
    "/kvroute/pools": (",x", ",-1", ",0,0"),
    "/kvroute/decisions": ("", ",nothing", ",default,x", ",default,99999999"),
    "/kvroute/oldest": ("", ",nothing", ",default,x"),
    "/kvroute/adapters": ("", ",nothing", ",default,x"),
    "/kvroute/counters": (",nothing", ",pool,nothing"),
    "/kvroute/metrics": (",x", ",-1"),
    "/kvroute/capture": (",p0", ",nothing,/tmp/no/file,1", ",p0,/tmp/no/such/folder/x.pcapng,1", ",p0,x,0", ",p0,x,x"),
    "/kvroute/xdp/redirect": ("", ",p0", ",p0,on", ",nothing,on"),
    "/kvroute/drain": ("", ",x", ",123456789", ",1,0", ",1,x", ",1,1,1"),
    "/kvroute/sample": ("", ",default", ",default,x", ",nothing,1"),
}
# These take nothing.
WRONG.update({f"/kvroute/{name}": (",x",) for name in ("info", "refused", "sessions", "drops", "log", "stages", "ingress", "balance",
                                                       "ports", "sources", "xdp")})


def need(ok, what):
    if not ok:
        raise Failed(what)


def page_through(prefix, command, key):
    """All entries of a paged list."""
    out, start = {}, 0
    while True:
        answer = telemetry(prefix, f"{command},{start}")
        need(set(out).isdisjoint(answer[key]), f"{command}: a page comes twice")
        out.update(answer[key])
        if "next" not in answer:
            need(len(out) == answer["total"], f"{command}: {len(out)} of {answer['total']}")
            return answer, out
        start = answer["next"]


def ranks(prefix):
    """Counts of ranks, workers and the pool agree with one another, while they grow."""
    for _ in range(600):
        before = telemetry(prefix, "/kvroute/hits,default")
        _, loads = page_through(prefix, "/kvroute/loads,default", "ranks")
        if sum(r["finished"] for r in loads.values()) > 50:
            break
        time.sleep(0.05)
    for name, keys in KEYS.items():
        _, found = page_through(prefix, f"/kvroute/{name},default", "ranks")
        need(found and all(keys <= set(r) for r in found.values()), f"{name} lacks {keys}: {found}")
    need(all(re.fullmatch(r"\d+/\d+", r) for r in loads), f"names of ranks: {list(loads)}")
    need(all(r["eligible"] == 1 and r["why"] == "open" for r in loads.values()), f"not open: {loads}")
    need(sum(r["finished"] for r in loads.values()) > 50, f"nothing has finished: {loads}")
    need(all(r["routed"] >= r["finished"] + r["failed"] + r["cancelled"] for r in loads.values()), f"legs do not add up: {loads}")
    hits = telemetry(prefix, "/kvroute/hits,default")
    need(before["prompt_tokens"] <= sum(r["prompt_tokens"] for r in loads.values()) <= hits["prompt_tokens"], f"{hits}")
    need(0 <= hits["achieved_tokens"] <= hits["achievable_tokens"] <= hits["prompt_tokens"], f"{hits}")
    worker = min(int(r.split("/")[0]) for r in loads)
    one = telemetry(prefix, f"/kvroute/worker,{worker}")
    need(one["id"] == worker and one["pool"] == "default" and one["eligible"] == 1 and len(one["ranks"]) == min(one["total"], 16) and one.get("next", 16) == 16, f"{one}")
    need(one["ranks"]["0"]["routed"] >= loads[f"{worker}/0"]["routed"], f"{one}")
    telemetry(prefix, f"/kvroute/drain,{worker}")
    one = telemetry(prefix, f"/kvroute/worker,{worker}")
    need(one["eligible"] == 0 and one["why"] in ("draining", "drained", "gone"), f"{one}"[:600])
    telemetry(prefix, f"/kvroute/resume,{worker}")
    # Workers use the interval of their WELCOME: 100 ms.
    need(telemetry(prefix, "/kvroute/set,heartbeat_ms=20").get("set") == {"router": "20"}, "another interval for new workers")
    refused = telemetry(prefix, "/kvroute/set,suspect_ms=50")
    need(refused.get("error") == "EINVAL" and "reports every 100 ms" in refused["message"], f"below the interval of WELCOME: {refused}")
    telemetry(prefix, "/kvroute/set,heartbeat_ms=100")


def histograms(prefix, finished):
    need(telemetry(prefix, "/kvroute/latency") == {"default": ["default"], "other": ["gold", "rest"]}, "pools of latency")
    answer = telemetry(prefix, "/kvroute/latency,default,default")
    h = answer["histograms"]
    need(set(h) == HISTOGRAMS and answer["decisions"] >= finished, f"{answer}")
    for name in ("time_to_first_token_seconds", "input_sequence_tokens", "kv_hit_rate", "decode_leg_seconds"):
        need(finished * 0.9 <= h[name]["count"] <= answer["decisions"] and 0 <= float(h[name]["mean"]), f"{name}: {h[name]}")
        need(float(h[name]["p50"]) <= float(h[name]["p90"]) <= float(h[name]["p99"]), f"{name}: {h[name]}")
    need(0 < float(h["time_to_first_token_seconds"]["mean"]) < 60, f"{h}")
    need(h["prefill_leg_seconds"] == {"count": 0}, f"{h}")
    buckets = telemetry(prefix, "/kvroute/buckets,default,default")["histograms"]
    need("prefill_leg_seconds" not in buckets and set(buckets) == {n for n in HISTOGRAMS if h[n]["count"]}, f"{buckets}")
    for name, b in buckets.items():
        bounds = [float(le) for le in b["le"]]
        need(len(bounds) == len(b["count"]) and bounds == sorted(bounds) and b["count"][-1] > 0, f"{name}: {b}")
        need(sum(b["count"]) >= h[name]["count"], f"{name}: {b} of {h[name]}")
    found = families(metrics(prefix))
    for name in HISTOGRAMS:
        family = next((f for f in found if f.endswith("_" + name)), None)
        need(family and found[family][0] == "histogram", f"the metrics lack {name}")
        label = '{pool="default",policy_class="default"}'
        need(found[family][1]["_count" + label] >= h[name]["count"], f"{family}")
    ttft = found["dynamo_component_router_time_to_first_token_seconds"][1]
    need('_bucket{pool="default",policy_class="default",le="480.0"}' in ttft, f"buckets: {list(ttft)[:20]}")


def explained(prefix):
    """A request found by its id has the same data as the log of decisions."""
    log = telemetry(prefix, "/kvroute/decisions,default")["decisions"]
    one = next(d for d in log.values() if d["result"] == "routed")
    need(re.fullmatch(r"0x[0-9a-f]{16}", one["id"]) and re.fullmatch(r"0x[0-9a-f]{16}", one["source"]), f"ids: {one}")
    answer = telemetry(prefix, f"/kvroute/explain,{one['id']},{one['source']}")
    d = answer["decisions"]["0"]
    need(answer["id"] == one["id"] and answer["found"] >= 1, f"{answer}")
    need(all(d[k] == one[k] for k in ("source", "worker", "dp_rank", "required_blocks", "result")), f"{d} is not {one}")
    need("terms" in d and d["why"].startswith("lowest cost"), f"{d}")
    gone = telemetry(prefix, "/kvroute/explain,0xdeadbeefdeadbeef")
    need(gone["error"] == "ENOENT" and "default keeps " in gone["message"], f"{gone}")


def settings(prefix, directory):
    def value(key):
        _, options = page_through(prefix, "/kvroute/config", "options")
        return options[key]

    was = value("pool_default/router_temperature")
    answer = telemetry(prefix, "/kvroute/set,router_temperature=0.5,default")
    need(float(answer["set"]["default"]) == 0.5 and list(answer["set"]) == ["default"], f"{answer}")
    need(float(value("pool_default/router_temperature")) == 0.5 and value("pool_other/router_temperature") == was, "temperature")
    need(set(telemetry(prefix, "/kvroute/set,router_queue_threshold=2")["set"]) == {"default", "other"}, "of all pools")
    telemetry(prefix, "/kvroute/set,source_rate=100000,p0")
    need(value("port_p0/source_rate") == "100000", "rate")
    telemetry(prefix, "/kvroute/set,dead_ms=7000")
    need(value("router/dead_ms") == "7000", "dead_ms")
    answer = telemetry(prefix, "/kvroute/set,quantum=9,other,rest")
    need(answer.get("set") == {"other/rest": "9"}, f"{answer}")
    need(value("class_other_rest/quantum") == "9" and value("class_other_gold/quantum") == "7", "quantum")
    answer = telemetry(prefix, "/kvroute/set,raw_isl_token_queue_limit_per_worker=5000")
    need(answer.get("set") == {"other/gold": "5000", "other/rest": "5000"}, f"{answer}")
    telemetry(prefix, "/kvroute/set,log=verbose")
    telemetry(prefix, "/kvroute/set,log=normal")
    need("error" in telemetry(prefix, "/kvroute/set,heartbeat_ms=60000"), "times that contradict each other")
    need(value("router/heartbeat_ms") != "60000", "heartbeat_ms")
    long = " ".join(f"10.{i}.77.0/24" for i in range(100, 116))
    answer = telemetry(prefix, f"/kvroute/set,allow={long}")
    need("".join(answer["set"]["p0"]) == long == "".join(value("port_p0/allow")), f"a list of {len(long)} characters: {answer}")
    telemetry(prefix, "/kvroute/set,allow=")
    for key in ("heartbeat_ms", "quantum", "router_temperature", "decision_sample", "source_rate"):
        refused = telemetry(prefix, f"/kvroute/set,{key}=x")
        need(refused.get("message", "").startswith(f'{key}: got "x", allowed: '), f"{refused}")
    for key in ("xdp_rate", "xdp_burst"):
        for name, where in (("", "any port"), (",p0", "port p0")):
            refused = telemetry(prefix, f"/kvroute/set,{key}=7{name}")
            need(refused == {"error": "EOPNOTSUPP", "message": f"{key}: no XDP program of kvroute at {where}"}, f"{refused}")
    need((value("port_p0/xdp_rate"), value("port_p0/xdp_burst")) == ("0", "4096"), "nothing of XDP is set")
    for line in ('set,router_temperature=0.5,default: done"', 'set,heartbeat_ms=60000: refused" reason="EINVAL: needed'):
        logged(directory, f'Z level=notice msg="telemetry: /kvroute/{line}')


def settable(prefix):
    """The manual and a rejection list the same keys, and these are exactly the keys that can be set."""
    with open(os.path.join(os.path.dirname(__file__), "../../app/router/manual.md")) as f:
        listed = {of: re.findall(r"`(\w+)`", keys) for of, keys in re.findall(r"^\| (pools|policy classes|ports|the router) \|.*\| (.*) \|$",
                                                                             f.read(), re.M)}
    told = telemetry(prefix, "/kvroute/set,nothing=1")["allowed"]
    told = {{"classes": "policy classes", "router": "the router"}.get(of, of): keys for of, keys in told.items()}
    need(listed == told, f"the manual: {listed}, the router: {told}")
    need(telemetry(prefix, "/kvroute/set")["allowed"] == telemetry(prefix, "/kvroute/set,nothing=1,default")["allowed"], "without a key")
    kinds = {"router": "the router", "port": "ports", "pool": "pools", "class": "policy classes"}
    _, options = page_through(prefix, "/kvroute/config", "options")
    taken = {of: set() for of in told}
    for name, value in options.items():
        section, _, key = name.partition("/")
        if "allowed" not in telemetry(prefix, f"/kvroute/set,{key}={value}"):
            taken[kinds[section.partition("_")[0]]].add(key)
    taken["the router"].add("log")
    need(taken == {of: set(keys) for of, keys in told.items()}, f"{taken}, told {told}")


def logged(directory, *words):
    """The log has a thread of its own."""
    for _ in range(200):
        with open(f"{directory}/router.log") as f:
            if any(all(w in x for w in words) for x in f):
                return
        time.sleep(0.05)
    raise Failed(f"not logged: {words}")


def nonsense(prefix, directory):
    """Every invalid question gets an error object with the reason, and nothing changes; one that would have changed something is logged."""
    before = page_through(prefix, "/kvroute/config", "options")
    left = set(c for c in telemetry(prefix, "/") if c.startswith("/kvroute/")) - set(WRONG)
    need(not left, f"nothing wrong is asked of {left}")
    for command, params in WRONG.items():
        for p in (*params, "," + "9" * 900, ",x" * 400):
            answer = telemetry(prefix, command + p)
            need(isinstance(answer, dict) and set(answer) - {"allowed"} == {"error", "message"} and answer["error"].startswith("E") and
                 answer["message"], f"{command}{p[:40]}: {answer}")
    need(page_through(prefix, "/kvroute/config", "options") == before, "nonsense has changed the configuration")
    acts = re.findall(r"^### \* `(/kvroute/[a-z/]+)", COMMANDS.read_text(), re.M)
    need(len(acts) >= 9 and set(acts) <= set(WRONG), f"{acts}")
    for command in acts:
        logged(directory, f'Z level=notice msg="telemetry: {command},', ': refused" reason="E')
    for command in ("drain", "resume"):
        logged(directory, f'Z level=notice msg="telemetry: /kvroute/{command},', ': done"')
    need(telemetry(prefix, "/kvroute/no_such_command") is None, "DPDK answers null for what it does not know")


def patient(prefix, command):
    """DPDK keeps one connection waiting: others are rejected until its thread handles it."""
    for _ in range(200):
        try:
            return telemetry(prefix, command)
        except (OSError, ValueError):
            time.sleep(0.05)
    raise Failed("no connection any more")


def rude(prefix):
    """Clients that never read, and more of them than there are places."""
    base = "/var/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "/tmp")
    path = f"{os.environ.get('RUNTIME_DIRECTORY') or base}/dpdk/{prefix}/dpdk_telemetry.v2"
    mute = []
    for _ in range(5):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(path)
        s.setblocking(False)
        try:
            for _ in range(2000):
                s.send(b"/kvroute/metrics")  # the answers are never read
        except BlockingIOError:
            pass
        mute.append(s)
    need(patient(prefix, "/kvroute/info")["pools"] == 2, "beside readers that do not read")
    for s in mute:
        s.close()
    refused = 0
    for _ in range(1000):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            try:
                s.settimeout(5)
                s.connect(path)
                if not s.recv(1024):
                    refused += 1
            except OSError:
                refused += 1
    need(patient(prefix, "/kvroute/info")["pools"] == 2, "after a thousand connections")
    need(patient(prefix, "/kvroute/balance")["balance"] == "ok", "balance")
    print(f"of 1000 connections {refused} were refused")


def run(directory):
    kvroute, load, prefix = sys.argv[1], sys.argv[2], f"kvr-tt-{os.getpid()}"
    cpus = sorted(os.sched_getaffinity(0))
    with a_router(kvroute, CONF.format(cpu=cpus[0], prefix=prefix, directory=directory), prefix, directory):
        empty = telemetry(prefix, "/kvroute/latency,default")["histograms"]
        need(all(h == {"count": 0} for h in empty.values()), f"nothing was measured yet: {empty}")
        program = child.start([load, "--socket", f"{directory}/memif.sock", "--core", str(cpus[-1]), "--seconds", "60", "--ranks", "20",
                               "--rate", "300", "--track", "--prefill-us-per-token", "1", "--decode-us-per-token", "100", "--json", "--quiet",
                               "--slice", "0.02", "--drain", "60"], stdout=subprocess.PIPE, text=True)
        ranks(prefix)
        program.terminate()  # it ends in an orderly way and prints its results
        text, _ = program.communicate(timeout=100)
        need(program.returncode == 0, f"kvroute-load ended with {program.returncode}")
        result = json.loads(text)
        for name in ("prompt_blocks", "cached_blocks"):
            need(sum(s[name] for s in result["slices"]) == result["counters"][name], f"{name} of the parts: {result}"[:3000])
        firsts = sum(s["requests"] for s in result["slices"])
        # The last item reports the router's view (a retransmitted one may not). It contradicts nothing in the answer, and equals the client's view except for the path.
        need(result["completed"] / 2 < result["counters"]["tracked"] <= result["completed"] and result["violations"] == 0, f"trackers: {result}"[:3000])
        need(0 < result["router_ttft_ms_p50"] <= result["ttft_ms_p99"] * 1.1 and result["router_queue_us_p50"] <= result["router_ttft_ms_p50"] * 1000 and
             result["router_itl_ms_p50"] > 0, f"how the router saw them: {result}"[:3000])
        need(result["completed"] <= firsts <= result["requests"] and (len(result["slices"]) > 1 or firsts < 40), f"requests of the parts: {result}"[:3000])
        for said in ("running as process ", "lcore 0 on CPU ", "control, telemetry and log on any CPU", "port p0: net_memif, MAC ",
                     "pool default: id 0, blocks of ", "memory: 512 MiB in pages of ", "telemetry: /", "ready: 2 pools, 1 port, "):
            logged(directory, "Z level=", "msg=", said)
        logged(directory, 'level=info msg="worker 1 joining -> serving: last message ', " worker=1 pool=default addr=10.77.0.2:")
        logged(directory, " -> gone: ", " pool=default addr=10.77.0.2:")
        nonsense(prefix, directory)
        rude(prefix)
        settings(prefix, directory)
        settable(prefix)
        buffers = telemetry(prefix, "/kvroute/buffers")["buffers"]
        need({"mbufs_p0", "jobs_default", "slots_other", "ring_control"} <= set(buffers), f"{buffers}")
        need(all(b["used"] <= b["size"] for b in buffers.values()), f"{buffers}")
        queue = telemetry(prefix, "/kvroute/queue,default")
        need(queue["waiting"] == 0 and "default" in queue["classes"], f"{queue}")
        explained(prefix)
        histograms(prefix, result["completed"])
        print(f"{result['completed']} requests")


if __name__ == "__main__":
    in_directory("telemetry", run)
