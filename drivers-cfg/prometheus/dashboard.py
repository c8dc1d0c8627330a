#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The Grafana dashboard of kvroute, to standard output: a row of PANELS is a panel. dashboard.py >kvroute-dashboard.json"""
import json

# title, unit, [(expression, legend)]
PANELS = [
    ("Requests", "reqps", [("sum by (pool) (rate(kvr_pool_routes_requests_total[1m]))", "{{pool}} asked"),
                           ("sum by (pool) (rate(kvr_pool_finished_requests_total[1m]))", "{{pool}} finished"),
                           ("sum by (pool) (rate(kvr_pool_rejected_requests_total[1m]))", "{{pool}} refused")]),
    ("Waiting and in flight", "short", [("kvr_pool_waiting_requests", "{{pool}} waiting"), ("kvr_pool_live_requests", "{{pool}} in flight")]),
    ("Cached tokens, predicted and found", "short", [("sum by (pool) (rate(kvr_pool_predicted_cached_tokens_total[1m]))", "{{pool}} predicted"),
                                                     ("sum by (pool) (rate(kvr_pool_actual_cached_tokens_total[1m]))", "{{pool}} found")]),
    ("KV events", "short", [("rate(kvr_event_frames_total[1m])", "{{pool}} frames"), ("rate(kvr_event_gaps_frames_total[1m])", "{{pool}} gaps")]),
    ("Blocks known", "short", [("kvr_prefix_blocks", "{{pool}}")]),
    ("Cycles an item", "short", [("rate(kvr_stage_cycles_total[1m]) / rate(kvr_stage_items_total[1m])", "{{stage}}")]),
    ("Refusals by reason", "reqps", [('{__name__=~"kvr_reject_.*_total"}', "{{__name__}}")]),
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
