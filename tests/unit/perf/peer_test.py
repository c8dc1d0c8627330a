#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""perf/peer with two programs that print fixed figures: direction of ratios, values that must be equal, and conditions of a skip."""
import os
import stat
import subprocess
import sys
import tempfile
import unittest

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../perf/peer")
THERE = '{"find_ns_mean": 3000, "find_miss_ns": 100, "store_mblk_s": 7, "total_ns_mean": 20000, "checksum": "SUM"}'
HERE = ('{"find_ns_mean": 200, "find_ns_mean_single": 400, "find_miss_ns": 80, "store_mblk_s": 49, "total_ns_mean": 1000, '
        '"decisions_per_s": 50000, "checksum": "11"}')


class Peer(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory(prefix="kvr-peer.")
        os.makedirs(self.dir.name + "/perf/micro")
        for name in ("bench-prefix", "bench-decide"):
            self.program("perf/micro/" + name, HERE)

    def tearDown(self):
        self.dir.cleanup()

    def program(self, name, text):
        path = os.path.join(self.dir.name, name)
        with open(path, "w") as f:
            f.write(f"#!/bin/sh\necho '{text}'\n")
        os.chmod(path, stat.S_IRWXU)
        return path

    def run_peer(self, *args):
        cpu = str(min(os.sched_getaffinity(0)))
        p = subprocess.run([sys.executable, PEER, *args, "--build", self.dir.name, "--cpu", cpu], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
        return p.returncode, p.stdout

    def line(self, out, title):
        return " ".join(next(x for x in out.splitlines() if x.strip().startswith(title)).split())

    def test_costs_and_rates(self):
        code, out = self.run_peer(self.program("reference", THERE.replace("SUM", "11")), "--only", "cell64")
        self.assertEqual(code, 0)
        self.assertIn("3000 200 15.00x 15.00 .. 15.00 15x reached", self.line(out, "find, bursts"))
        self.assertIn("3000 400 7.50x 7.50 .. 7.50 10x missed", self.line(out, "find, one per call"))
        self.assertIn("7 49 7.00x 7.00 .. 7.00 8x missed", self.line(out, "store"))
        self.assertIn("equal: 11", self.line(out, "checksum"))

    def test_other_work(self):
        code, out = self.run_peer(self.program("reference", THERE.replace("SUM", "12")), "--only", "cell64", "--rounds", "1")
        self.assertEqual(code, 1)
        self.assertIn("DIFFERENT: 11 12", self.line(out, "checksum"))

    def test_ceiling_needs_no_other_program(self):
        code, out = self.run_peer(self.program("reference", "not asked"), "--only", "ceiling", "--rounds", "1")
        self.assertEqual(code, 0)
        self.assertIn("5e+04", self.line(out, "decisions/s 4096 ranks"))

    def test_without_a_reference(self):
        self.assertEqual(self.run_peer()[0], 77)
        self.assertEqual(self.run_peer(self.dir.name + "/nothing")[0], 77)

    def test_unknown_part(self):
        self.assertEqual(self.run_peer(self.program("reference", THERE), "--only", "cell65")[0], 2)


if __name__ == "__main__":
    unittest.main()
