#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The ratios of perf/pair on a host with two modes, drawn from a seed, do not depend on which run was in which mode."""
import os
import random
import statistics
import sys
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
pair = types.ModuleType("pair")
with open(os.path.join(HERE, "../../../perf/pair")) as source:
    exec(compile(source.read(), "pair", "exec"), pair.__dict__)


def runs(rng, faster, n=20):
    """Costs of n rounds; the host may change its mode between runs."""
    old, new, slow = [], [], False
    for _ in range(n):
        for side, factor in ((old, 1.0), (new, faster)):
            slow ^= rng.random() < 0.3
            side.append((16400 if slow else 8600) * factor * rng.uniform(0.97, 1.03))
    return old, new


class Ratios(unittest.TestCase):
    def test_two_modes(self):
        """In some draws the medians are wrong by far; in all draws the ratio within modes is near the true one."""
        medians = []
        for seed in range(40):
            old, new = runs(random.Random(seed), 0.9)
            medians.append(statistics.median(new) / statistics.median(old))
            modes = pair.by_modes(old, new)
            if modes is not None:
                self.assertAlmostEqual(modes, 0.9, delta=0.03)
        self.assertGreater(max(medians), 1.2)

    def test_one_mode(self):
        rng = random.Random(3)
        old = [rng.uniform(1.0, 1.1) for _ in range(20)]
        self.assertIsNone(pair.by_modes(old, [1.05 * v for v in old]))

    def test_turns(self):
        """A slow period that affects both runs of a round does not change their ratio."""
        old = [100.0, 200.0, 100.0, 400.0, 100.0, 200.0, 100.0]
        turns, sure = pair.by_turns(old, [0.9 * v for v in old])
        self.assertAlmostEqual(turns, 0.9)
        self.assertAlmostEqual(sure[0], 0.9)
        self.assertAlmostEqual(sure[1], 0.9)

    def test_sure(self):
        """Order statistics: the range of ten ratios is the second to the ninth; five ratios have no range."""
        turns, sure = pair.by_turns([1.0] * 10, [0.1 * i for i in range(1, 11)])
        self.assertAlmostEqual(turns, 0.55)
        self.assertAlmostEqual(sure[0], 0.2)
        self.assertAlmostEqual(sure[1], 0.9)
        self.assertEqual(pair.by_turns([1.0] * 5, [0.5] * 5)[1], (0.0, float("inf")))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
