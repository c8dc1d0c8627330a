#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every counter of the sources is exported: in the telemetry answer of its table, and in the metrics that COMMANDS.md lists.

usage: metrics_test.py KVROUTE

The counters are read from the sources: each `const struct kvr_stats_def` whose symbol is in the program, with its list. The test finds a
table without telemetry and a counter that gets lost. (That each counter has a family of metrics is checked in tests/unit/router/test_tables.c.)
The text is checked by the rules here and, where they are installed, by `promtool check metrics` and the parser of prometheus_client.
"""
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from load_test import Failed, a_router, in_directory, telemetry

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ROOT / "app/router/telemetry/COMMANDS.md"
CONF = """[router]
ingress = {cpu}
hugepages = off
memory_mb = 768
file_prefix = {prefix}
[port p0]
device = net_null0
ipv4 = 10.78.0.1
[pool first]
id = 0
max_ranks = 64
max_blocks = 64K
max_sessions = 100
[pool second]
id = 1
max_ranks = 64
max_blocks = 64K
"""
ROW = re.compile(r'X\(\s*\w+,\s*(\w+),\s*(COUNT|GAUGE),\s*"(\w+)",\s*"([^"]*)"')


def macros(text):
    """Bodies of the macros of @text, their continuation lines joined."""
    joined = text.replace("\\\n", " ")
    return dict(re.findall(r"^#define (\w+)\(X\)(.*)$", joined, re.M))


def expand(name, bodies):
    """Rows (name, kind, unit, help) of a list, lists inside it included."""
    rows = []
    for m in re.finditer(ROW.pattern + r"|\b(\w+_LIST)\(X\)", bodies[name]):
        rows += expand(m[5], bodies) if m[5] else [m.groups()[:4]]
    return rows


def declared(kvroute):
    """{table: {counter: (kind, unit)}} of the tables in the program."""
    symbols = {line.split()[-1] for line in subprocess.run(["nm", kvroute], stdout=subprocess.PIPE, text=True,
                                                           check=True).stdout.splitlines() if line.strip()}
    sources = {f: f.read_text() for folder in ("lib", "app/router", "drivers-cfg/xdp")
               for f in (ROOT / folder).rglob("*.[ch]")}
    bodies = {}
    for text in sources.values():
        bodies.update(macros(text))
    tables = {}
    for f, text in sources.items():
        if not f.name.endswith(".c"):
            continue
        flat = re.sub(r"\s+", " ", text)
        for m in re.finditer(r'const struct kvr_stats_def (\w+) = \{"(\w+)", (\w+)', flat):
            symbol, table, array = m.groups()
            if symbol not in symbols and symbol != "def":
                continue  # a library that the router does not use
            rows = re.search(r"kvr_counter " + array + r"\[\] = \{(.*?)KVR_COUNTER_END\};", flat)
            lists = re.findall(r"\b(\w+_LIST)\(KVR_COUNTER_ROW\)", rows[1]) if rows else []
            tables[table] = {n: (k, u) for name in lists for n, k, u, _ in expand(name, bodies)}
            if not lists and table != "reject":
                raise Failed(f"{f.name}: table {table} is not made from a list")
    # Made from other lists: a counter for each refusal.
    errors = re.findall(r"X\(\w+, (\w+),", bodies["KVR_SCHED_ERR_LIST"])
    tables["sched"].update({p + e: ("COUNT", "requests") for e in errors for p in ("errors_", "poll_errors_")})
    tables["sched"].update({p: ("COUNT", "requests") for p in ("errors", "poll_errors")})
    codes = re.findall(r'X\(\w+, \d+, "(\w+)"', bodies.get("KVR_CODES", ""))
    tables["reject"].update({re.sub(r"(?<!^)([A-Z])", r"_\1", c).lower(): ("COUNT", "messages") for c in codes})
    if min(len(t) for t in tables.values()) == 0 or len(errors) < 10 or len(codes) < 30:
        raise Failed(f"cannot parse the lists: {tables}")
    return tables


def metrics(prefix):
    text, lines = "", 0
    while not text.endswith("# EOF\n"):
        page = telemetry(prefix, f"/kvroute/metrics,{lines}")
        if not page:
            raise Failed(f"the text ends at line {lines} without # EOF")
        text += page
        lines += page.count("\n")
    return text


def families(text):
    """{family: (type, {labels: value})}. Each line must be valid."""
    out, name, helped = {}, None, None
    for number, line in enumerate(text.splitlines(), 1):
        m = re.fullmatch(r"# (TYPE|HELP) ([a-z0-9_]+) (.+)", line)
        if m and m[1] == "HELP":
            helped = m[2]
        elif m:
            name = m[2]
            if name in out or name != helped or m[3] not in ("counter", "gauge", "histogram"):
                raise Failed(f"line {number}: {line}")
            out[name] = [m[3], {}]
        elif name and out[name][0] == "histogram" and line.startswith(name):
            m = re.fullmatch(name + r'((?:_bucket|_count|_sum)\{[^}]*\}) ([0-9.e+-]+)', line)
            if not m or m[1] in out[name][1]:
                raise Failed(f"line {number}: {line}")
            out[name][1][m[1]] = float(m[2])
        elif line != "# EOF":
            m = re.fullmatch(r'([a-z0-9_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? ([0-9.]+)', line)
            if not m or m[1] != name or (name.endswith("_total")) != (out[name][0] == "counter") or m[2] in out[name][1]:
                raise Failed(f"line {number}: {line}")
            out[name][1][m[2]] = float(m[3])
    return out


def histograms(found):
    """Buckets grow, the last one is the count, and there is one histogram for each pool and class."""
    n = 0
    for name, (kind, values) in found.items():
        if kind != "histogram":
            continue
        by_label = {}
        for key, value in values.items():
            part, labels = re.fullmatch(r"_(bucket|count|sum)\{(.*)\}", key).groups()
            le = re.search(r',le="([^"]*)"', labels)
            by_label.setdefault(re.sub(r',le="[^"]*"', "", labels), {}).setdefault(part, []).append((le and float(le[1]), value))
        for labels, parts in by_label.items():
            bounds, counts = zip(*parts["bucket"])
            if list(bounds) != sorted(set(bounds)) or list(counts) != sorted(counts) or bounds[-1] != float("inf"):
                raise Failed(f"{name}{{{labels}}}: {parts['bucket']}")
            if counts[-1] != parts["count"][0][1] or len(parts["sum"]) != 1:
                raise Failed(f"{name}{{{labels}}}: {parts}")
        n += len(by_label)
        if len(by_label) != 2:
            raise Failed(f"{name} is of {list(by_label)}")
    if n < 20:
        raise Failed(f"{n} histograms")


def promtool_findings(text):
    """Complaints of `promtool check metrics`, line by line; None: it is not installed. The reference system names one metric in ms."""
    promtool = os.environ.get("KVR_PROMTOOL") or shutil.which("promtool")
    if not promtool:
        return None
    run = subprocess.run([promtool, "check", "metrics"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = [x for x in run.stdout.splitlines() if not x.startswith("dynamo_router_overhead_total_ms ")]
    return lines or ([f"status {run.returncode}"] if run.returncode not in (0, 3) else [])


def other_parsers(text):
    """promtool and prometheus_client accept the text."""
    if found := promtool_findings(text):
        raise Failed("promtool check metrics:\n" + "\n".join(found))
    try:
        from prometheus_client.parser import text_string_to_metric_families
        n = len(list(text_string_to_metric_families(text)))
    except ImportError:
        n = None
    print(f"promtool: {'not installed' if found is None else 'no finding'}, families for prometheus_client: {n or 'not installed'}")


def process(found, pid):
    """process_* are those of the router, and kvr_build_info names its version."""
    fds = len(os.listdir(f"/proc/{pid}/fd"))
    if abs(found["process_open_fds"][1][None] - fds) > 2:
        raise Failed(f"{fds} descriptors are open: {found['process_open_fds']}")
    with open(f"/proc/{pid}/stat") as f:
        ticks = int(f.read().rpartition(")")[2].split()[19])
    up = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    if abs(time.time() - found["process_start_time_seconds"][1][None] - up) > 1:
        raise Failed(f"the router runs for {up} s: {found['process_start_time_seconds']}")
    (labels, one), = found["kvr_build_info"][1].items()
    if one != 1 or not re.fullmatch(r'\{version="[0-9.]+",dpdk="DPDK [0-9.]+"\}', labels):
        raise Failed(f"kvr_build_info: {labels} {one}")


def listed_metrics():
    """Names in the tables of COMMANDS.md."""
    return re.findall(r"^\| `(kvr_\w+)(?:\{[a-z_,]+\})?` \|", COMMANDS.read_text(), re.M)


def documented(found):
    """COMMANDS.md lists the metrics of the router, each once, and no others."""
    listed = [x for x in listed_metrics() if not x.startswith("kvr_gateway_")]
    # only of AF_XDP ports, and of the exporter
    told = {name for name in found if name.startswith("kvr_")} | {"kvr_xdp_frames_total", "kvr_doctor_findings"}
    if sorted(listed) != sorted(told):
        raise Failed(f"COMMANDS.md lists without need {sorted(set(listed) - told)}, lacks {sorted(told - set(listed))}, twice "
                     f"{sorted(x for x in set(listed) if listed.count(x) > 1)}")


def every_command(prefix):
    """Each command answers without parameters and with useless ones, and the router survives."""
    commands = [c for c in telemetry(prefix, "/") if c.startswith("/kvroute")]
    for command in commands:
        for params in ("", ",", ",0", ",nothing", "," + "9" * 30, ",first,second,third,fourth", "," + "x" * 300):
            if telemetry(prefix, command + params) is None and params == "":
                raise Failed(f"{command} answers nothing")
    if len(commands) < 20 or telemetry(prefix, "/kvroute/balance")["balance"] != "ok":
        raise Failed(f"after {len(commands)} commands the router is not what it was")


def check(kvroute, prefix, pid):
    want = declared(kvroute)
    listed = telemetry(prefix, "/kvroute/counters")
    missing = sorted(set(want) - set(listed))
    if missing:
        raise Failed(f"tables that telemetry does not have: {missing}")
    text = metrics(prefix)
    found = families(text)
    n = 0
    for table, counters in sorted(want.items()):
        names = listed[table]
        if table == "xdp":  # only of AF_XDP ports, tests/eal/test_port_xdp.sh
            continue
        if not names:
            raise Failed(f"table {table} has no owner")
        for name in names:
            answer = telemetry(prefix, f"/kvroute/counters,{table}" + (f",{name}" if name else ""))
            lost = sorted(set(counters) - set(answer))
            if lost:
                raise Failed(f"/kvroute/counters,{table},{name} lacks {lost}")
            n += len(answer)
    unknown = sorted(set(listed) - set(want))
    if unknown:
        raise Failed(f"tables that the sources do not have: {unknown}")
    for wrong in ("nothing", "pool", "pool,nothing", "ingress,p0", "pool,first,more"):
        if "error" not in telemetry(prefix, f"/kvroute/counters,{wrong}"):
            raise Failed(f"/kvroute/counters,{wrong} is answered")
    histograms(found)
    every_command(prefix)
    process(found, pid)
    documented(found)
    other_parsers(text)
    print(f"{len(want)} tables, {n} counters, {len(found)} families, {len(text)} bytes")


def sixteen_pools(kvroute, prefix, directory):
    """An answer of DPDK has 16 KiB: pages of /kvroute/pools list all pools."""
    pools = "".join(f"[pool p{i}]\nid = {i}\nmax_ranks = 4\nmax_jobs = 64\nmax_requests = 64\nmax_blocks = 4096\nmax_active_blocks = 4096\nmax_sessions = 0\n" for i in range(16))
    conf = CONF.format(cpu=min(os.sched_getaffinity(0)), prefix=prefix).partition("[pool first]")[0] + pools
    with a_router(kvroute, conf, prefix, directory):
        found, start = [], 0
        while start is not None:
            page = telemetry(prefix, f"/kvroute/pools,{start}")
            found, start = found + list(page["pools"]), page.get("next")
        if found != [f"p{i}" for i in range(16)] or page["total"] != 16:
            raise Failed(f"/kvroute/pools: {found} of {page['total']}")


def run(directory):
    kvroute, prefix = sys.argv[1], f"kvr-mt-{os.getpid()}"
    with a_router(kvroute, CONF.format(cpu=min(os.sched_getaffinity(0)), prefix=prefix), prefix, directory) as router:
        check(kvroute, prefix, router.pid)
    sixteen_pools(kvroute, prefix, directory)


if __name__ == "__main__":
    in_directory("metrics", run)
