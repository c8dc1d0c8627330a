#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-ctl exporter with a real router: its pages, promtool, a real Prometheus.

usage: exporter_test.py KVROUTE KVROUTE_CTL

Without promtool or prometheus their part is skipped, with a message.
"""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import child
from load_test import Failed, a_router, in_directory, telemetry
from metrics_test import CONF, other_parsers
from reference_metrics import differences

ROOT = Path(__file__).resolve().parents[2]


def get(port, path, method="GET"):
    """Status, type and text of a page."""
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method), timeout=20) as r:
            return r.status, r.headers["Content-Type"], r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.headers["Content-Type"], e.read().decode()


def eventually(what, condition, seconds=30):
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise Failed(f"{what} does not happen")
        time.sleep(0.05)
    return value


def start(ctl, prefix):
    run = child.start([ctl, "--router", prefix, "exporter", "--listen", "127.0.0.1:0", "--seconds", "0.2"], stdin=subprocess.DEVNULL,
                      stderr=subprocess.PIPE, text=True)
    line = run.stderr.readline()
    if "exporter ready" not in line:
        raise Failed(f"exporter: {line}{run.stderr.read()}")
    return run, int(re.search(r"port (\d+)", line)[1])


def pages(port, prefix):
    status, kind, text = get(port, "/metrics")
    if status != 200 or kind != "text/plain; version=0.0.4; charset=utf-8" or not text.endswith("\n") or "# EOF" in text:
        raise Failed(f"/metrics: {status} {kind} {text[-200:]}")
    if 'kvr_doctor_findings{rule="kv-event-gap"} 0' not in text:
        raise Failed("/metrics has no findings of doctor")
    data = json.loads(get(port, "/data")[2])
    if data["router"] != prefix or set(data["pools"]) != {"first", "second"}:
        raise Failed(f"/data: {data}")
    status, kind, page = get(port, "/")
    if status != 200 or "text/html" not in kind or re.search(r'(src|href)="(?!data:)', page) or "//cdn" in page:
        raise Failed("/: a page that loads other resources")
    for path, method, want in (("/nothing", "GET", 404), ("/data", "POST", 405), ("/health", "GET", 200), ("/" + "x" * 5000, "GET", 404)):
        if get(port, path, method)[0] != want:
            raise Failed(f"{method} {path[:20]}: {get(port, path, method)}")
    with socket.create_connection(("127.0.0.1", port)) as s:  # not HTTP; the next connection is served nevertheless
        s.send(b"\x16\x03\x01" * 50)
    return text


def misbehaving_clients(port, prefix):
    """More silent connections than the limit, endless headers, and a client that does not read its answers."""
    silent = []
    for _ in range(1000):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(("127.0.0.1", port))
        silent.append(s)
    eventually("an answer despite a thousand silent connections", lambda: status_of(port) == 200, 60)
    for s in silent:
        s.close()
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.settimeout(20)
        try:
            s.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 1000000)
            answer = s.recv(100)
        except OSError:
            answer = b""
        if answer and not re.match(rb"HTTP/1\.[01] 4\d\d ", answer):
            raise Failed(f"an endless header: {answer}")
    reader = socket.create_connection(("127.0.0.1", port))
    reader.setblocking(False)
    try:
        for _ in range(2000):
            reader.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    except OSError:  # buffer full, or closed by the exporter
        pass
    eventually("an answer despite a client that does not read", lambda: status_of(port) == 200, 60)
    reader.close()
    if telemetry(prefix, "/kvroute/balance")["balance"] != "ok":
        raise Failed("the router's counters")


def status_of(port):
    """Status of /health; 0: no answer."""
    try:
        return get(port, "/health")[0]
    except OSError:
        return 0


def files_name_existing_metrics(text):
    """The exporter exports every metric of the alerts and the dashboard."""
    exported = set(re.findall(r"^(kvr_\w+?)[{ ]", text, re.M))
    dashboard = subprocess.run([sys.executable, ROOT / "drivers-cfg/prometheus/dashboard.py"], capture_output=True, text=True,
                               check=True).stdout
    expressions = [t["expr"] for p in json.loads(dashboard)["panels"] for t in p["targets"]]
    rules = ROOT / "drivers-cfg/prometheus/kvroute.rules.yml"
    expressions += re.findall(r"expr: (.*)", rules.read_text())
    for name in re.findall(r"\bkvr_\w+(?![\w.])", " ".join(expressions)):
        if name not in exported and name + "*" not in name:
            raise Failed(f"{name} is used but not exported")
    if promtool := shutil.which("promtool"):
        run = subprocess.run([promtool, "check", "rules", str(rules)], capture_output=True, text=True)
        if run.returncode:
            raise Failed(f"promtool check rules: {run.stdout}{run.stderr}")
    other_parsers(text)


def prometheus(port, directory):
    """Debian's Prometheus scrapes the exporter and answers a query."""
    if not shutil.which("prometheus"):
        return "not installed"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        own = s.getsockname()[1]
    conf = f"{directory}/prometheus.yml"
    with open(conf, "w") as f:
        f.write(f"""global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: ['{ROOT}/drivers-cfg/prometheus/kvroute.rules.yml']
scrape_configs: [{{job_name: kvroute, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]
""")
    with open(f"{directory}/prometheus.log", "w") as log, child.start(
            ["prometheus", f"--config.file={conf}", f"--storage.tsdb.path={directory}/tsdb", f"--web.listen-address=127.0.0.1:{own}"],
            stdout=log, stderr=log) as run:
        def asked(query):
            try:
                r = json.loads(get(own, f"/api/v1/query?query={query}")[2])
                return r["data"]["result"]
            except (OSError, ValueError, KeyError):
                return None
        try:
            got = eventually("a scrape", lambda: asked("kvr_requests_waiting"))
            if sorted(r["metric"]["pool"] for r in got) != ["first", "second"] or asked("up")[0]["value"][1] != "1":
                raise Failed(f"Prometheus has {got}")
            rules = json.loads(get(own, "/api/v1/rules")[2])["data"]["groups"][0]["rules"]
            if any(r["health"] == "err" for r in rules):
                raise Failed(f"Prometheus on the rules: {rules}")
        finally:
            run.terminate()
    return f"{len(got)} series of a metric"


def run(directory):
    os.environ["RUNTIME_DIRECTORY"] = directory
    prefix = "kvr-ex"
    with a_router(sys.argv[1], CONF.format(cpu=min(os.sched_getaffinity(0)), prefix=prefix), prefix, directory) as router:
        exporter, port = start(sys.argv[2], prefix)
        try:
            text = pages(port, prefix)
            misbehaving_clients(port, prefix)
            if lines := differences(text):
                raise Failed("differences from the reference system:\n" + "\n".join(lines))
            files_name_existing_metrics(text)
            print("Prometheus:", prometheus(port, directory))
            router.terminate()
            router.wait(20)
            eventually("the exporter notices the end of the router", lambda: get(port, "/health")[0] == 503)
            status, _, text = get(port, "/metrics")
            if status != 503 or "no router" not in json.loads(text)["error"]:
                raise Failed(f"/metrics without router: {status} {text}")
            exporter.terminate()
            if exporter.wait(10) != 0:
                raise Failed(f"the exporter ended with {exporter.returncode}")
        finally:
            exporter.kill()


if __name__ == "__main__":
    in_directory("exporter", run)
