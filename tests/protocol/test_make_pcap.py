#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What perf/pktgen/make-pcap writes: hashes of a trace, and frames of one size.

usage: test_make_pcap.py MAKE_PCAP SMOKE   (the folder of kvrproto.py)
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]
sys.path.insert(0, sys.argv[2])
import kvrproto as p  # noqa: E402

ROWS = [[1, 2, 3], [1, 2, 4], [5], [], [1, 2, 3, 6]]
HEADERS = 14 + 20 + 8  # Ethernet, IPv4, UDP


def made(*arguments):
    """What the program says, and the frames of its file."""
    with tempfile.TemporaryDirectory() as folder:
        said = json.loads(subprocess.run([PROGRAM, f'{folder}/out.pcap', *arguments], check=True, stdout=subprocess.PIPE).stdout)
        with open(f'{folder}/out.pcap', 'rb') as f:
            data = f.read()
    frames, at = [], 24
    while at < len(data):
        length, whole = struct.unpack_from('<8xII', data, at)
        assert length == whole
        frames.append(data[at + 16:at + 16 + length])
        at += 16 + length
    return said, frames


def hashes(frame):
    """Of a ROUTE, whose lengths fit."""
    header, body = p.Header(frame[HEADERS:]), frame[HEADERS + p.HEADER.size:]
    assert header.kind == p.KINDS['ROUTE'] and len(body) == header.frag_len == header.msg_len
    route = p.Dispatch(header, body)
    assert route.isl == 16 * len(route.hashes)
    return route.hashes


class MakePcap(unittest.TestCase):
    def trace(self, *more):
        with tempfile.NamedTemporaryFile('w', suffix='.jsonl') as f:
            f.write(''.join(json.dumps({'hash_ids': row}) + '\n' for row in ROWS))
            f.flush()
            return made('--trace', f.name, '--count', '12', *more)

    def test_a_trace_gives_the_hashes(self):
        said, frames = self.trace()
        self.assertEqual((said['frames'], said['query'], len(frames)), (12, 12, 12))
        rows = [row for row in ROWS if row]
        got = [hashes(frame) for frame in frames]
        # One to one, in the order of the rows, again and again; equal where the trace has equal ids.
        names = {}
        for n, chain in enumerate(got):
            row = rows[n % len(rows)]
            self.assertEqual(len(chain), len(row))
            for value, number in zip(chain, row):
                self.assertEqual(names.setdefault(number, value), value)
        self.assertEqual(len(set(names.values())), len(names))

    def test_rows_are_cut(self):
        _, frames = self.trace('--hashes', '2', '--prompts', '2')
        self.assertEqual([len(hashes(frame)) for frame in frames], [2] * 12)
        self.assertEqual(len({tuple(hashes(frame)) for frame in frames}), 1)  # both rows begin alike

    def test_frames_have_the_size(self):
        for size in (512, 1024, 1400):
            said, frames = made('--frame', str(size), '--hashes', '8', '--count', '20')
            self.assertEqual(len({len(frame) for frame in frames}), 1)
            # Bodies are of 8 bytes each.
            self.assertTrue(size - 8 < len(frames[0]) <= size, len(frames[0]))
            self.assertEqual(said['longest'], len(frames[0]))
            self.assertEqual([len(hashes(frame)) for frame in frames], [8] * 20)

    def test_no_smaller_than_needed(self):
        _, frames = made('--frame', '64', '--hashes', '8', '--count', '4')
        _, needed = made('--hashes', '8', '--count', '4')
        self.assertEqual([len(f) for f in frames], [len(f) for f in needed])


if __name__ == '__main__':
    unittest.main(argv=[os.path.basename(sys.argv[0]), '-v'])
