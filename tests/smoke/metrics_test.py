#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every counter reaches its operator: each counter of each table stands in the OpenMetrics text and in the telemetry answer.

usage: metrics_test.py KVROUTE

What there is to find is read from the sources: each `const struct kvr_stats_def` whose symbol is in the program, with the counters of its
list. So a table that is not given to telemetry, and a counter that gets lost on the way, are both found. The text is read as the format
demands, by the rules here and, where they are installed, by promtool and the parser of prometheus_client.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from load_test import Failed, a_router, in_directory, telemetry

ROOT = Path(__file__).resolve().parents[2]
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
    codes = re.findall(r'X\(\w+, "(\w+)"', bodies.get("KVR_TYPES_CODES", ""))
    tables["reject"].update({re.sub(r"(?<!^)([A-Z])", r"_\1", c).lower(): ("COUNT", "messages") for c in codes})
    if min(len(t) for t in tables.values()) == 0 or len(errors) < 10 or len(codes) < 30:
        raise Failed(f"lists were not understood: {tables}")
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
    """{family: (type, unit, {labels: value})}, each line as the format demands."""
    out, name = {}, None
    for number, line in enumerate(text.splitlines(), 1):
        m = re.fullmatch(r"# (TYPE|UNIT|HELP) ([a-z0-9_]+) (.+)", line)
        if m and m[1] == "TYPE":
            name = m[2]
            if name in out or m[3] not in ("counter", "gauge", "histogram"):
                raise Failed(f"line {number}: {line}")
            out[name] = [m[3], None, {}]
        elif m and m[1] == "UNIT" and m[2] == name and name.endswith("_" + m[3]):
            out[name][1] = m[3]
        elif m and m[1] == "HELP" and m[2] == name:
            continue
        elif name and out[name][0] == "histogram" and line.startswith(name):
            m = re.fullmatch(name + r'((?:_bucket|_count|_sum)\{[^}]*\}) ([0-9.e+-]+)', line)
            if not m or m[1] in out[name][2]:
                raise Failed(f"line {number}: {line}")
            out[name][2][m[1]] = float(m[2])
        elif line != "# EOF":
            m = re.fullmatch(r'([a-z0-9_]+?)(_total)?(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? (\d+)', line)
            if not m or m[1] != name or (m[2] is None) == (out[name][0] == "counter") or m[3] in out[name][2]:
                raise Failed(f"line {number}: {line}")
            out[name][2][m[3]] = int(m[4])
    return out


def histograms(found):
    """Buckets grow, the last is the count, and there is one for each pool and class."""
    n = 0
    for name, (kind, _, values) in found.items():
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


def foreign_readers(text, directory):
    """What others say of the text. promtool reads it as it would to store it, which takes times."""
    promtool = os.environ.get("KVR_PROMTOOL") or shutil.which("promtool")
    if promtool:
        path = f"{directory}/metrics"
        with open(path, "w") as f:
            f.write(re.sub(r"^([^#].*)$", r"\1 1700000000", text, flags=re.M))
        run = subprocess.run([promtool, "tsdb", "create-blocks-from", "openmetrics", path, f"{directory}/blocks"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode != 0:
            raise Failed(f"promtool: {run.stdout}")
    try:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families
        found = len(list(text_string_to_metric_families(text)))
    except ImportError:
        found = None
    print(f"promtool: {'accepts it' if promtool else 'not installed'}, prometheus_client: {found or 'not installed'}")


def every_command(prefix):
    """Each command answers without parameters and with useless ones, and the router lives on."""
    commands = [c for c in telemetry(prefix, "/") if c.startswith("/kvroute")]
    for command in commands:
        for params in ("", ",", ",0", ",nothing", "," + "9" * 30, ",first,second,third,fourth", "," + "x" * 300):
            if telemetry(prefix, command + params) is None and params == "":
                raise Failed(f"{command} answers nothing")
    if len(commands) < 20 or telemetry(prefix, "/kvroute/balance")["balance"] != "ok":
        raise Failed(f"after {len(commands)} commands the router is not what it was")


def check(kvroute, prefix, directory):
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
        if table == "xdp":  # of AF_XDP ports only, tests/eal/test_port_xdp.sh
            continue
        if not names:
            raise Failed(f"table {table} is nobody's")
        for name in names:
            answer = telemetry(prefix, f"/kvroute/counters,{table}" + (f",{name}" if name else ""))
            lost = sorted(set(counters) - set(answer))
            if lost:
                raise Failed(f"/kvroute/counters,{table},{name} lacks {lost}")
        for counter, (kind, unit) in counters.items():
            family = f"kvr_{table}_{counter}" + ("" if f"_{counter}".endswith("_" + unit) else f"_{unit}")
            if family not in found:
                raise Failed(f"OpenMetrics lacks {family}")
            if found[family][0] != ("counter" if kind == "COUNT" else "gauge") or len(found[family][2]) != len(names):
                raise Failed(f"{family}: {found[family]}, of {names}")
            n += 1
    unknown = sorted(set(listed) - set(want))
    if unknown:
        raise Failed(f"tables that the sources do not have: {unknown}")
    for wrong in ("nothing", "pool", "pool,nothing", "ingress,p0", "pool,first,more"):
        if "error" not in telemetry(prefix, f"/kvroute/counters,{wrong}"):
            raise Failed(f"/kvroute/counters,{wrong} is answered")
    histograms(found)
    every_command(prefix)
    foreign_readers(text, directory)
    print(f"{len(want)} tables, {n} counters, {len(text)} bytes of OpenMetrics")


def run(directory):
    kvroute, prefix = sys.argv[1], f"kvr-mt-{os.getpid()}"
    with a_router(kvroute, CONF.format(cpu=min(os.sched_getaffinity(0)), prefix=prefix), prefix, directory):
        check(kvroute, prefix, directory)


if __name__ == "__main__":
    in_directory("metrics", run)
