# SPDX-License-Identifier: BSD-3-Clause
"""The metrics of the reference system, name by name: type, labels and buckets of those the exporter has, and a word on each it has not."""
import math
import re
from pathlib import Path

COMMANDS = Path(__file__).resolve().parents[2] / "app/router/telemetry/COMMANDS.md"


def log(a, b, n):
    """n log-spaced bounds, of two significant digits, the first of them 0."""
    def two(v):
        f = 10.0 ** (1 - math.floor(math.log10(v)))
        return math.floor(v * f + 0.5) / f
    return [0.0] + [two(a * (b / a) ** (i / (n - 1))) for i in range(1, n)]


def linear(start, step, n):
    return [start + step * i for i in range(n)]


def exp(start, factor, n):
    return [start * factor ** i for i in range(n)]


COMPONENT, FRONTEND, ROUTER = "dynamo_component_router_", "dynamo_frontend_", "dynamo_router_"
CLASS = {"pool", "policy_class"}
QUEUE, RANK = CLASS | {"worker_type"}, {"pool", "worker_id", "dp_rank", "worker_type"}
HAS = [
    (COMPONENT + "requests_started_total", "counter", {"pool"}, None),
    (COMPONENT + "requests_total", "counter", {"pool", "outcome"}, None),
    (COMPONENT + "time_to_first_token_seconds", "histogram", CLASS, log(0.001, 480, 18)),
    (COMPONENT + "inter_token_latency_seconds", "histogram", CLASS, log(0.001, 2, 13)),
    (COMPONENT + "input_sequence_tokens", "histogram", CLASS, log(50, 128000, 12)),
    (COMPONENT + "output_sequence_tokens", "histogram", CLASS, log(50, 32000, 10)),
    (COMPONENT + "kv_hit_rate", "histogram", CLASS, linear(0, 0.05, 21)),
    (COMPONENT + "kv_transfer_estimated_latency_seconds", "histogram", CLASS, log(0.001, 10, 15)),
    (COMPONENT + "non_max_overlap_selections_total", "counter", {"pool", "worker_type"}, None),
    (COMPONENT + "overlap_blocks_lost", "histogram", CLASS, exp(0.25, 2, 16)),
    (COMPONENT + "worker_registered", "gauge", {"pool", "router_worker_id"}, None),
    (ROUTER + "overhead_total_ms", "histogram", CLASS, exp(0.01, 3, 17)),
    (FRONTEND + "router_queue_pending_requests", "gauge", QUEUE, None),
    (FRONTEND + "router_queue_pending_isl_tokens", "gauge", QUEUE, None),
    (FRONTEND + "router_queue_pending_cached_tokens", "gauge", QUEUE, None),
    (FRONTEND + "router_queue_backpressure_total", "counter", {"pool", "worker_type", "reason"}, None),
    (FRONTEND + "worker_active_decode_blocks", "gauge", RANK, None),
    (FRONTEND + "worker_active_prefill_tokens", "gauge", RANK, None),
    (FRONTEND + "worker_last_time_to_first_token_seconds", "gauge", RANK, None),
    (FRONTEND + "worker_last_input_sequence_tokens", "gauge", RANK, None),
    (FRONTEND + "worker_last_inter_token_latency_seconds", "gauge", RANK, None),
]
# Each has a row in COMMANDS.md.
HAS_NOT = """router_shared_cache_hit_rate router_shared_cache_beyond_blocks shared_cache_errors_total overhead_shared_cache_query_ms
router_kv_event_source_mismatch_workers kv_cache_events_applied kv_cache_event_warnings overhead_block_hashing_ms overhead_seq_hashing_ms
overhead_indexer_find_matches_ms overhead_scheduling_ms stage_duration_seconds stage_requests kv_publisher_ router_kv_zmq_ingress_
router_active_sequence_zmq_ingress_ kvindexer_""".split()


def differences(text):
    """Differences between the metrics in @text and the table, one line each."""
    out = []
    for name, kind, labels, bounds in HAS:
        if f"# TYPE {name} {kind}\n" not in text:
            out.append(f"{name} is no {kind}")
            continue
        tail = "_bucket" if kind == "histogram" else ""
        samples = [dict(re.findall(r'(\w+)="([^"]*)"', s)) for s in re.findall(rf"^{name}{tail}\{{(.*)\}} ", text, re.M)]
        want = labels | ({"le"} if kind == "histogram" else set())
        out += [f"{name} is labelled {sorted(s)}, not {sorted(want)}" for s in samples[:1] if set(s) != want]
        if kind != "gauge" and not samples:
            out.append(f"{name} is not there before the first request")
        for instance in {frozenset((k, v) for k, v in s.items() if k != "le") for s in samples if bounds}:
            le = [float(s["le"]) for s in samples if instance <= set(s.items())]
            if le[-1] != math.inf or len(le) != len(bounds) + 1 or any(not math.isclose(a, b) for a, b in zip(le, bounds)):
                out.append(f"{name}: {le}, not {bounds}")
    listed = COMMANDS.read_text()
    for name in HAS_NOT:
        if f"`{name}" not in listed and f"_{name}" not in listed:
            out.append(f"{name}: COMMANDS.md does not say why it is missing")
        if re.search(rf"^# TYPE dynamo_\w*{name}", text, re.M):
            out.append(f"{name} is there")
    known = {name for name, *_ in HAS}
    out += [f"{name} is not of the reference system" for name in re.findall(r"^# TYPE (dynamo_\w+)", text, re.M) if name not in known]
    return out
