#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tools/demo-table draws the results of the runs: the curves written here must appear again, point by point."""
import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools/demo-table"
# Of 11 parts of a second: hit share in tenths, median of the time to first token.
CURVES = {"kv": [(8, 10.0)] * 11, "ttft": [(4, 40.0 - 4 * i) for i in range(11)], "rr": [(0, 20.0)] * 11}


def run_of(curve):
    slices = [{"at_s": float(i), "requests": 5, "prompt_blocks": 10, "cached_blocks": hit, "ttft_ms_p50": ttft}
              for i, (hit, ttft) in enumerate(curve)]
    return {**{k: 1.0 for k in ("requests", "completed", "errors", "ttft_ms_p50", "ttft_ms_p90", "ttft_ms_p99", "added_us_p50",
                                "added_us_p99", "decisions_per_s", "cached_share")}, "lost": 0, "slices": slices}


def write(folder, runs, balance="ok"):
    for mode, run in runs.items():
        Path(f"{folder}/{mode}.json").write_text(json.dumps(run))
        Path(f"{folder}/{mode}.balance").write_text(json.dumps({"/kvroute/balance": {"balance": balance, "violation": "", "bookings": 0}}))


def table(folder):
    run = subprocess.run([sys.executable, TOOL, "--svg", f"{folder}/x.svg", *(f"{folder}/{m}" for m in CURVES)], capture_output=True, text=True)
    return run.returncode, run.stdout


def lines_of(text, title):
    """The rows of a chart, the highest first, without their labels."""
    after = text[text.index(title):].splitlines()[1:10]
    return [line.split("|", 1)[1].ljust(61) for line in after]


def main():
    with tempfile.TemporaryDirectory(prefix="kvr-demo.") as folder:
        runs = {m: run_of(c) for m, c in CURVES.items()}
        write(folder, runs)
        status, text = table(folder)
        assert status == 0 and json.loads(text.splitlines()[-1])["lost"] == 0, text
        hits, ttft = lines_of(text, "prompt blocks found in a cache:"), lines_of(text, "time to first token, median:")
        assert hits[0] == "#" * 61 and hits[4] == "o" * 61 and hits[8] == "." * 61, text
        # 10 of at most 40 is a quarter of the height, 20 is half of it; the other falls from the top to the bottom.
        assert set(ttft[4]) <= {".", "o"} and "#" in ttft[6] and ttft[0][0] == "o" and ttft[8][-1] == "o", text
        falls = [next(i for i, line in enumerate(ttft) if line[x] == "o") for x in range(61) if any(line[x] == "o" for line in ttft)]
        assert falls == sorted(falls) and set(falls) >= {0, 1, 2, 3, 5, 7, 8}, text
        picture = xml.parse(f"{folder}/x.svg").getroot()
        lines = [e.get("points").split() for e in picture.iter() if e.tag.endswith("polyline")]
        assert [len(p) for p in lines] == [11] * 6, lines
        heights = [[float(p.split(",")[1]) for p in line] for line in lines]
        assert len(set(heights[0])) == 1 and heights[0][0] < heights[1][0] < heights[2][0], heights
        assert heights[4] == sorted(heights[4]) and heights[4][0] < heights[3][0] < heights[4][-1], heights
        runs["rr"]["added_us_p50"], runs["kv"]["lost"] = 500.0, 1
        write(folder, runs)
        status, text = table(folder)
        assert status == 1 and "machine is busy: with round robin" in text and len(re.findall("is busy", text)) == 1, text
        write(folder, {m: run_of(c) for m, c in CURVES.items()}, balance="violated")
        status, text = table(folder)
        assert status == 1 and "do not add up" in text, text
    print("ok")


if __name__ == "__main__":
    main()
