#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Test of the simulator: check.py PROGRAM. No figure of a policy is checked, so the test does not age.

A single rank with an unlimited cache finds what an infinite cache finds, under every policy. Several
ranks never find more, and fewer with round robin. Equal seeds give equal bytes, other seeds do not.
All options work with both kinds of engine.
"""
import json
import subprocess
import sys


def run(*args):
    return subprocess.run([sys.argv[1], *args], check=True, stdout=subprocess.PIPE, text=True).stdout


def rows(*args):
    """Results of the policies. No time may be below that of a bound."""
    *found, queue, pooled, infinite = [json.loads(line) for line in run(*args).splitlines()]
    assert queue['hits'] == pooled['hits'] <= infinite['hits'], pooled
    assert queue['mean'] > pooled['mean'] and queue['p99'] >= pooled['p99'], (queue, pooled)
    for r in found:
        assert r['infinite'] == infinite['hits'] and r['pooled'] == pooled['hits'], (r, pooled)
        assert '--turn' in args or '--spread' in args or r['mean'] > infinite['mean'] > 0, (r, infinite)
    return found


POLICIES = ('reference', 'preset', 'ttft', 'ttft,ttft_late_binding=true', 'round-robin', 'most-overlap')
for r in rows('--agents', '--ranks', '1', '--cache', '1', '--load', '0.5', *POLICIES):
    assert r['hits'] == r['infinite'] == r['pooled'] and r['redundant'] == 0, r
    assert 0.49 < r['load'] < 0.51, r
few = ('--agents', '--ranks', '8', '--cache', '0.3')
for engine in ('fcfs', 'chunked'):
    for r in rows(*few, '--engine', engine, '--late', '2', '--noise', '0.3', '--spread', '0.3', '--turn', '1.5',
                  '--restart', *POLICIES):
        assert 0 < r['hits'] < r['infinite'], r
        assert 0 < r['p50'] <= r['p90'] <= r['p99'] and r['mean'] > 0, r
        assert r['policy'] != 'round-robin' or r['redundant'] > 0.1, r
    # Requests of restarted ranks wait for other ranks.
    for r in rows(*few, '--engine', engine, '--load', '1.1', '--restart', POLICIES[3]):
        assert 0 < r['hits'] < r['infinite'], r
    same = [run(*few, '--engine', engine, '--noise', '0.3', '--seed', s, 'ttft') for s in ('7', '7', '8')]
    assert same[0] == same[1] != same[2], same
print('the simulator keeps its invariants')
