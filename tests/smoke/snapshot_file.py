# SPDX-License-Identifier: BSD-3-Clause
"""Reads a router's snapshot, written from lib/snapshot/kvr_snapshot.h alone: an independent view of its index."""

import struct

HEAD, RECORD, TAIL = struct.Struct('<QIIQQQQI12x'), struct.Struct('<II'), struct.Struct('<QQQQ')
PIECE, OWNER, WORKER, RANK = struct.Struct('<HHHBBQ'), struct.Struct('<HH'), struct.Struct('<QQIIII'), struct.Struct('<QII')
KIND_PIECE, KIND_SESSION, KIND_LIVE, KIND_WORKER = 1, 2, 3, 4


def records(data):
    """(kind, body) of every record."""
    if data[:8] != b'kvrsnap\n' or data[-TAIL.size:-TAIL.size + 8] != b'kvrsend\n':
        raise ValueError('no whole snapshot')
    _, length, _, count = TAIL.unpack(data[-TAIL.size:])
    if length != len(data) - TAIL.size:
        raise ValueError('its length is another one')
    at, seen = HEAD.size, 0
    while at < length:
        kind, size = RECORD.unpack_from(data, at)
        at += RECORD.size
        yield kind, data[at:at + size]
        at, seen = at + size, seen + 1
    if seen != count:
        raise ValueError(f'{seen} records of {count}')


def read(path):
    """{(worker, rank of data parallelism): {(tier, hash)}}, and how many records of each kind there are."""
    with open(path, 'rb') as f:
        data = f.read()
    blocks, of, kinds = {}, {}, {}
    for kind, body in records(data):
        kinds[kind] = kinds.get(kind, 0) + 1
        if kind == KIND_PIECE:
            pool, n, owners, tier, _, _ = PIECE.unpack_from(body)
            hashes = struct.unpack_from(f'<{n}Q', body, PIECE.size)
            for i in range(owners):
                rank, has = OWNER.unpack_from(body, PIECE.size + 8 * n + OWNER.size * i)
                blocks.setdefault((pool, rank), set()).update((tier, h) for h in hashes[:has])
        elif kind == KIND_WORKER:
            worker, _, _, pool, first, size = WORKER.unpack_from(body)
            for i in range(size):
                _, dense, _ = RANK.unpack_from(body, WORKER.size + RANK.size * i)
                of[(worker, first + i)] = (pool, dense)
    return {rank: blocks.get(place, set()) for rank, place in of.items()}, kinds


def differences(index, caches):
    """Blocks that only one of them has; all blocks of a rank that is missing in one."""
    return sum(len(index.get(rank, set()) ^ caches.get(rank, set())) for rank in index.keys() | caches.keys())
