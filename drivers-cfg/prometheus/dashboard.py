#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write the Grafana dashboard of kvroute to standard output. A row of PANELS makes one panel. dashboard.py >kvroute-dashboard.json"""
import json

# title, unit, [(expression, legend)]
PANELS = [
    ("Requests", "reqps", [("sum by (pool) (rate(kvr_route_messages_total[1m]))", "{{pool}} received"),
                           ('sum by (pool) (rate(kvr_requests_total{outcome="finished"}[1m]))', "{{pool}} finished"),
                           ('sum by (pool) (rate(kvr_route_messages_total{result="rejected"}[1m]))', "{{pool}} rejected")]),
    ("Outcomes other than finished", "reqps", [('sum by (pool, outcome) (rate(kvr_requests_total{outcome!="finished"}[1m]))', "{{pool}} {{outcome}}")]),
    ("Waiting and in flight", "short", [("kvr_requests_waiting", "{{pool}} waiting"), ("kvr_requests_in_flight", "{{pool}} in flight")]),
    ("Cached tokens, predicted and found", "short", [("sum by (pool) (rate(kvr_cached_tokens_predicted_total[1m]))", "{{pool}} predicted"),
                                                     ("sum by (pool) (rate(kvr_cached_tokens_found_total[1m]))", "{{pool}} found")]),
    ("KV events by result", "short", [("sum by (pool, result) (rate(kvr_kv_events_total[1m]))", "{{pool}} {{result}}")]),
    ("Blocks in the prefix table", "short", [("kvr_prefix_blocks", "{{pool}}")]),
    ("Cycles per item", "short", [("rate(kvr_stage_cycles_total[1m]) / rate(kvr_stage_items_total[1m])", "{{lcore}} {{stage}}")]),
    ("Rejections by code", "reqps", [("sum by (code) (rate(kvr_rejections_total[1m])) > 0", "{{code}}")]),
    ("Frames dropped by reason", "pps", [("sum by (reason) (rate(kvr_frames_dropped_total[1m])) > 0", "{{reason}}"),
                                         ("sum by (port, reason) (rate(kvr_port_receive_drops_total[1m])) > 0", "{{port}} {{reason}}")]),
    ("CPU of the router", "short", [("rate(process_cpu_seconds_total[1m])", "{{instance}}")]),
    ("Doctor", "short", [("kvr_doctor_findings > 0", "{{rule}}")]),
]


def panel(number, title, unit, targets):
    return {"id": number + 1, "type": "timeseries", "title": title, "datasource": {"type": "prometheus", "uid": "${source}"},
            "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [{"refId": chr(65 + i), "expr": e, "legendFormat": legend} for i, (e, legend) in enumerate(targets)]}


print(json.dumps({"title": "kvroute", "uid": "kvroute", "schemaVersion": 38, "refresh": "10s", "time": {"from": "now-30m", "to": "now"},
                  "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}]},
                  "panels": [panel(i, *p) for i, p in enumerate(PANELS)]}, indent=1))
