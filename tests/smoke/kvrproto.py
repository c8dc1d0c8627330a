# SPDX-License-Identifier: BSD-3-Clause
"""A client and an agent of kvroute, written only from lib/wire/PROTOCOL.md.

Standard library and plain UDP sockets: like a front end or an engine in another language. Section numbers in comments are those of the document. One
thread drives any number of endpoints: run_until(endpoints, condition, seconds).
"""

import os
import select
import socket
import struct
import time

MAGIC, VERSION, PORT = 0x564B, 1, 7650
HEADER = struct.Struct('<HBBHHQQQIIII')
REQUEST = struct.Struct('<HBBIIIIIIIIIQIIII16sHHI')
ACCEPTED_BODY = struct.Struct('<QIIIIHHIIIQIHH')
REJECTED_BODY = struct.Struct('<HBBHH4Q')
RESPONSE_BODY = struct.Struct('<IHHIIIIQ')
TRACKER = struct.Struct('<QQ14Id')
TRACKER_NAMES = ('worker prefill_worker dp_rank prefill_dp_rank overlap_blocks prefill_overlap_blocks required_blocks '
                 'cached_tokens isl osl queue_us ttft_us itl_us prefill_us transfer_us reserved hit_rate').split()
HELLO_BODY = struct.Struct('<IIIIQIHBBQQ')
EVENTS_BODY = struct.Struct('<QQIHHQ')
EVENT = struct.Struct('<BBHIQ')
KV_ACK_BODY = struct.Struct('<QQIHH')
SESSION_BODY = struct.Struct('<IHH')
LOADS_BODY = struct.Struct('<IIQ')
RANK_LOADS = struct.Struct('<QIIQQII')
MISSING_BODY = struct.Struct('<BBHIIIII')
FRAME_LEAST, FRAME_USUAL, FRAME_MOST = 560, 1432, 8952
M64 = (1 << 64) - 1
NONE32 = 0xFFFFFFFF

KINDS = {
    'CONNECT': 1, 'CONNECTED': 2, 'ROUTE': 16, 'ACCEPTED': 17, 'REJECTED': 18, 'CANCEL': 19,
    'CANCELLED': 20, 'PROBE': 21, 'MISSING': 22, 'DISPATCH': 24, 'DISPATCH_ACK': 25, 'RESPONSE': 26,
    'RESPONSE_ACK': 27, 'PROGRESS': 28, 'PROGRESS_ACK': 29, 'ABORT': 30, 'ABORT_ACK': 31,
    'HELLO': 32, 'WELCOME': 33, 'HEARTBEAT': 34, 'HEARTBEAT_ACK': 35, 'GOODBYE': 36,
    'GOODBYE_ACK': 37, 'ALIVE': 38, 'KV_EVENTS': 48, 'KV_ACK': 49, 'SESSION_OPEN': 64, 'SESSION_OPENED': 65,
    'SESSION_CLOSE': 66, 'SESSION_CLOSED': 67, 'SESSION_RELEASE': 68, 'SESSION_RELEASED': 69,
    'POTENTIAL_LOADS': 80, 'LOADS': 81,
}
KIND_NAMES = {number: name for name, number in KINDS.items()}
CODES = {
    1: 'UnknownVersion', 2: 'UnknownKind', 3: 'BadLength', 4: 'BadFragment', 5: 'TooLarge',
    6: 'ReassemblyFull', 7: 'BadHint', 8: 'BadFlags', 9: 'NotAllowed', 10: 'CookieRequired',
    11: 'RateLimited', 12: 'SourceLimit', 32: 'UnknownPool',
    33: 'EmptyPrompt', 34: 'PromptTooLong', 35: 'InvalidOverride', 36: 'UnknownPolicyClass',
    37: 'InvalidRequest', 38: 'UnknownRequest', 39: 'Ended', 40: 'InvalidWeight', 48: 'NoEndpoints',
    49: 'AllEligibleWorkersOverloaded', 50: 'PinnedWorkerNotAllowed',
    51: 'PinnedWorkerOverloaded', 52: 'DpRankRequired', 53: 'WorkerIdRequired',
    54: 'QueueRejected', 55: 'NotActivated', 56: 'DuplicateRequest', 64: 'Busy', 65: 'NoMemory',
    66: 'DispatchFailed', 67: 'WorkerLost', 68: 'Expired', 69: 'Shutdown',
    70: 'PrefillFailed', 80: 'SessionOpenFailed', 81: 'SessionLimit', 82: 'UnknownSession',
    83: 'InvalidSession', 84: 'SessionWorkerGone', 96: 'UnknownWorker', 97: 'StaleEpoch',
    98: 'WorkerConfig', 99: 'WorkerLimit', 100: 'WorkerAlive',
}
ROUTE_QUERY, ROUTE_RESEND, ROUTE_DIRECT, ROUTE_EAGLE = 1, 2, 4, 8
PREFILL_LEG, DECODE_LEG, UNPROVEN = 0x10, 0x20, 0x40
ROUTE_BOOK, ROUTE_AWAY, ROUTE_HEALTH, ROUTE_TRACK, TRIAL = 0x80, 0x100, 0x200, 0x400, 0x1000
PROBE_ROOM = bytes(8)
USE, OPEN, CLOSE = 0, 1, 2  # session actions of a request
STATES = ('QUERY', 'QUEUED', 'DISPATCHED', 'RUNNING')
PATHS = ('aggregated', 'bootstrap', 'sync', 'bypassed')
KEPT = 1  # the router retransmits the DISPATCH itself
ITEM_FIN, ITEM_ERROR, ITEM_CANCELLED, ITEM_TOKENS, ITEM_FAILED, ITEM_REFUSED = 1, 2, 4, 8, 0x10, 0x20
STORED, REMOVED, CLEARED = 1, 2, 3
TIERS = {'device': 0, 'host': 1, 'disk': 2, 'external': 3}
DUMP_BEGIN, DUMP, DUMP_END = 1, 2, 4
ACK_OK, ACK_GAP, ACK_DUMP_WANTED, ACK_HELLO, ACK_BUSY = range(5)
OVERRIDES = {
    'overlap_score_weight': 1, 'router_temperature': 2, 'assume_kv_reuse': 3,
    'track_prefill_tokens': 4, 'shared_cache_multiplier': 5, 'overlap_score_credit': 6,
    'prefill_load_scale': 7,
}

# ---- section 12.1: the reaction to REJECTED, read from the document itself ----


def read_refusals():
    """{(rejected kind, code): word}, from the two tables."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../lib/wire/PROTOCOL.md')
    words, kinds = {}, None
    with open(path, encoding='utf-8') as document:
        for line in document:
            cells = [cell.strip() for cell in line.strip().strip('|').split('|')]
            if cells[:3] in (['code', 'name', 'CONNECT'], ['code', 'name', 'HELLO']):
                kinds = [KINDS[name] for name in cells[2:]]
            elif kinds and not line.startswith('|'):
                kinds = None
            elif kinds and cells[0].isdigit():
                words.update(((kind, int(cells[0])), word) for kind, word in zip(kinds, cells[2:]))
    return words


REFUSALS = read_refusals()
BY_BYTE = {'CONNECT': 'end', 'CANCEL': 'done', 'SESSION_RELEASE': 'end', 'HELLO': 'slow', 'GOODBYE': 'done'}

# ---- section 13: XXH3, 64 bit, from the xxHash specification ----

P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
       0x27D4EB2F165667C5)
SECRET = bytes.fromhex(
    'b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f'
    'cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c'
    '3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8'
    'a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364'
    'eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e'
    '2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e')


def _r32(data, at):
    return int.from_bytes(data[at:at + 4], 'little')


def _r64(data, at):
    return int.from_bytes(data[at:at + 8], 'little')


def _fold(a, b):
    product = a * b
    return (product & M64) ^ (product >> 64)


def _rotl(value, by):
    return (value << by | value >> 64 - by) & M64


def _avalanche64(h):
    h = (h ^ h >> 33) * P64[1] & M64
    h = (h ^ h >> 29) * P64[2] & M64
    return h ^ h >> 32


def _avalanche(h):
    h = (h ^ h >> 37) * 0x165667919E3779F9 & M64
    return h ^ h >> 32


def _mix16(data, at, sec, seed):
    return _fold(_r64(data, at) ^ (_r64(SECRET, sec) + seed & M64),
                 _r64(data, at + 8) ^ (_r64(SECRET, sec + 8) - seed & M64))


def _xxh3_short(data, n, seed):
    if n > 8:
        low = _r64(data, 0) ^ ((_r64(SECRET, 24) ^ _r64(SECRET, 32)) + seed & M64)
        high = _r64(data, n - 8) ^ ((_r64(SECRET, 40) ^ _r64(SECRET, 48)) - seed & M64)
        swapped = int.from_bytes(low.to_bytes(8, 'little'), 'big')
        return _avalanche(n + swapped + high + _fold(low, high) & M64)
    if n >= 4:
        seed ^= int.from_bytes((seed & NONE32).to_bytes(4, 'little'), 'big') << 32
        h = _r32(data, n - 4) + (_r32(data, 0) << 32)
        h ^= (_r64(SECRET, 8) ^ _r64(SECRET, 16)) - seed & M64
        h ^= _rotl(h, 49) ^ _rotl(h, 24)
        h = h * 0x9FB21C651E98DF25 & M64
        h = (h ^ (h >> 35) + n) * 0x9FB21C651E98DF25 & M64
        return h ^ h >> 28
    if n:
        h = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return _avalanche64(h ^ ((_r32(SECRET, 0) ^ _r32(SECRET, 4)) + seed & M64))
    return _avalanche64(seed ^ _r64(SECRET, 56) ^ _r64(SECRET, 64))


def _xxh3_middle(data, n, seed):
    acc = n * P64[0]
    if n <= 128:
        for i in range((n - 1) // 32 + 1):
            acc += _mix16(data, 16 * i, 32 * i, seed)
            acc += _mix16(data, n - 16 * (i + 1), 32 * i + 16, seed)
        return _avalanche(acc & M64)
    for i in range(8):
        acc += _mix16(data, 16 * i, 16 * i, seed)
    acc = _avalanche(acc & M64)
    for i in range(8, n // 16):
        acc += _mix16(data, 16 * i, 16 * (i - 8) + 3, seed)
    return _avalanche(acc + _mix16(data, n - 16, 136 - 17, seed) & M64)


def _accumulate(acc, data, at, secret, sec):
    for i, value in enumerate(struct.unpack_from('<8Q', data, at)):
        key = value ^ _r64(secret, sec + 8 * i)
        acc[i ^ 1] = acc[i ^ 1] + value & M64
        acc[i] = acc[i] + (key & NONE32) * (key >> 32) & M64


def _xxh3_long(data, n, seed):
    secret = b''.join(struct.pack('<QQ', _r64(SECRET, i) + seed & M64, _r64(SECRET, i + 8) - seed & M64)
                      for i in range(0, 192, 16))
    acc = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]]
    stripes = (n - 1) // 64
    for stripe in range(stripes):
        _accumulate(acc, data, 64 * stripe, secret, stripe % 16 * 8)
        if stripe % 16 == 15:
            for i in range(8):
                acc[i] = (acc[i] ^ acc[i] >> 47 ^ _r64(secret, 128 + 8 * i)) * P32[0] & M64
    _accumulate(acc, data, n - 64, secret, 192 - 64 - 7)
    h = n * P64[0]
    for i in range(0, 8, 2):
        h += _fold(acc[i] ^ _r64(secret, 11 + 8 * i), acc[i + 1] ^ _r64(secret, 19 + 8 * i))
    return _avalanche(h & M64)


def xxh3_64(data, seed=0):
    """XXH3_64bits_withSeed of bytes."""
    n = len(data)
    if n <= 16:
        return _xxh3_short(data, n, seed)
    return _xxh3_middle(data, n, seed) if n <= 240 else _xxh3_long(data, n, seed)


def hash_seed(lora='', namespace=''):
    seed = 1337
    if lora:
        seed += xxh3_64(lora.encode(), 0)
    if namespace:
        seed += xxh3_64(namespace.encode(), 1)
    return seed & M64


def block_hashes(tokens, block_size, seed=1337, mm=None, eagle=False):
    """LBH of the complete blocks; mm: block -> list of multimodal hashes."""
    width = block_size + 1 if eagle else block_size
    hashes = []
    for at in range(0, len(tokens) - width + 1, block_size):
        data = struct.pack(f'<{width}I', *tokens[at:at + width])
        extra = sorted((mm or {}).get(at // block_size) or [])
        hashes.append(xxh3_64(data + struct.pack(f'<{len(extra)}Q', *extra), seed))
    return hashes


def sequence_hashes(tokens, block_size, **how):
    """SH of the complete blocks."""
    hashes = []
    for lbh in block_hashes(tokens, block_size, **how):
        hashes.append(xxh3_64(struct.pack('<QQ', hashes[-1], lbh), 1337) if hashes else lbh)
    return hashes


# ---- sections 3, 4 and 8: frames, fragments, hints ----


def padded(data):
    return data + bytes(-len(data) % 8)


class Header:
    FIELDS = ('magic', 'version', 'kind', 'flags', 'frag_len', 'source', 'id', 'handle', 'msg_len',
              'frag_off', 'epoch', 'msg_seq')

    def __init__(self, data):
        for field, value in zip(self.FIELDS, HEADER.unpack_from(data)):
            setattr(self, field, value)

    @property
    def name(self):
        return KIND_NAMES.get(self.kind, str(self.kind))


def frame(kind, body=b'', *, source=0, id=0, handle=0, epoch=1, seq=0, **forged):
    """One frame. Values in `forged` replace header fields, to test rejections."""
    part = forged.pop('part', body)
    fields = dict(magic=MAGIC, version=VERSION, kind=KINDS.get(kind, kind), flags=0,
                  frag_len=len(part), source=source, id=id, handle=handle, msg_len=len(body),
                  frag_off=0, epoch=epoch, msg_seq=seq)
    fields.update(forged)
    return HEADER.pack(*(fields[field] for field in Header.FIELDS)) + part


def fragments(kind, body, max_frame, unit=None, **fields):
    """The frames of one message, cut as in section 4."""
    unit = unit or (min(max_frame, FRAME_MOST) - HEADER.size) // 8 * 8
    if len(body) <= unit:
        return [frame(kind, body, **fields)]
    return [frame(kind, body, part=body[at:at + unit], frag_off=at, **fields)
            for at in range(0, len(body), unit)]


class Reassembly:
    """Reassembles fragments, and knows the missing ones; one instance per socket."""

    def __init__(self, lifetime=3.0, most=64):
        self.unfinished, self.lifetime, self.most = {}, lifetime, most
        self.done = {}  # completed recently: key -> time

    def add(self, header, part, sender, now):
        """The whole body, None, or 'again': the first fragment of a completed message."""
        if header.frag_len == header.msg_len:
            return part
        for key in [k for k, m in self.unfinished.items() if m['since'] + self.lifetime < now]:
            del self.unfinished[key]
        self.done = {key: since for key, since in self.done.items() if since + self.lifetime >= now}
        key = (header.source, header.kind, header.id, header.handle, header.msg_seq)
        if key in self.done:
            return None if header.frag_off else 'again'
        message = self.unfinished.get(key)
        last = header.frag_off + header.frag_len == header.msg_len
        if header.frag_off + header.frag_len > header.msg_len or not header.frag_len:
            return None
        if message is None:
            if len(self.unfinished) >= self.most:
                del self.unfinished[min(self.unfinished, key=lambda k: self.unfinished[k]['since'])]
            message = {'since': now, 'len': header.msg_len, 'unit': None, 'parts': {}, 'have': 0, 'new': 0}
            self.unfinished[key] = message
        if header.msg_len != message['len']:
            return None
        if not last:
            if message['unit'] not in (None, header.frag_len) or header.frag_off % header.frag_len:
                return None
            message['unit'] = header.frag_len
        message.update(heard=now, header=header, sender=sender, new=message['new'] + HEADER.size + header.frag_len)
        if header.frag_off in message['parts']:
            return None
        message['since'] = now
        message['parts'][header.frag_off] = part
        message['have'] += len(part)
        if message['have'] < header.msg_len:
            return None
        del self.unfinished[key]
        self.done[key] = now
        return b''.join(part for _, part in sorted(message['parts'].items()))

    def missing(self, now):
        """(header, sender, body of MISSING) of messages that have been silent for 5 ms, once after each fragment received."""
        for message in self.unfinished.values():
            unit = message['unit']
            room = (message['new'] - HEADER.size - MISSING_BODY.size) // 8
            if not unit or message['heard'] + 0.005 > now or room < 1:
                continue
            header = message['header']
            lost = [n for n in range((message['len'] + unit - 1) // unit) if n * unit not in message['parts']]
            first = lost[0] // 64 * 64
            words = [0] * min(lost[-1] // 64 - first // 64 + 1, room, 160)
            for n in lost:
                if n // 64 - first // 64 < len(words):
                    words[n // 64 - first // 64] |= 1 << n % 64
            message['new'] = 0
            yield header, message['sender'], MISSING_BODY.pack(
                header.kind, 0, len(words), header.msg_seq, message['len'], unit, first, 0) + struct.pack(
                    f'<{len(words)}Q', *words)


class Sender:
    """The frames of one message, at most 64 per millisecond, and retransmissions of missing ones."""

    def __init__(self, put):
        self.put, self.frames, self.todo, self.sent, self.again, self.at = put, [], [], 0, set(), 0.0

    def start(self, frames, only=None):
        self.frames, self.sent, self.at = frames, 0, 0.0
        self.todo = [n for n in range(len(frames)) if only is None or only(n)]
        self.go()

    def go(self):
        """True: all are sent."""
        now = time.monotonic()
        for number in self.todo[:64] if now - self.at >= 0.001 else ():
            self.put(self.frames[number])
            self.sent, self.at = max(self.sent, number + 1), now
            self.todo.remove(number)
        return not self.todo

    def missing(self, body):
        """Handles MISSING. @return whether it is about this message."""
        kind, _, n_words, seq, msg_len, unit, first, _ = MISSING_BODY.unpack_from(body)
        header = Header(self.frames[0]) if self.frames else None
        if header is None or (kind, seq, msg_len, unit) != (header.kind, header.msg_seq, header.msg_len, header.frag_len):
            return False
        words = struct.unpack_from(f'<{n_words}Q', body, MISSING_BODY.size)
        lost = [first + 64 * at + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1]
        lost = [n for n in lost if n < self.sent and n not in self.todo]
        self.again.update(lost)
        self.todo += lost
        self.go()
        return True


def hint(kind, value):
    return padded(struct.pack('<HH', kind, len(value)) + value)


def read_hints(data):
    """(type, value) of every hint; raises ValueError or struct.error when they are malformed."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from('<HH', data, at)
        if at + 4 + size > len(data) or any(data[at + 4 + size:at + (4 + size + 7) // 8 * 8]):
            raise ValueError('hint')
        yield kind, data[at + 4:at + 4 + size]
        at += (4 + size + 7) // 8 * 8


def session_hint(session, action=USE, timeout=NONE32):
    name = session if isinstance(session, bytes) else session.encode()
    return hint(0x0010, struct.pack('<B3xI', action, timeout) + name)


def worker_hints(taints=(), topology=(), kv_transfer=None, bootstrap=None, engine=None):
    """Hints of a HELLO; kv_transfer: (enforcement, weight, domain), bootstrap: (host, port)."""
    out = b''.join(hint(0x0021, taint.encode()) for taint in taints)
    out += b''.join(hint(0x0022, place.encode()) for place in topology)
    if kv_transfer:
        enforcement, weight, domain = kv_transfer
        out += hint(0x0023, struct.pack('<B7xd', enforcement, weight) + domain.encode())
    if bootstrap:
        out += hint(0x0024, struct.pack('<H6x', bootstrap[1]) + bootstrap[0].encode())
    if engine:
        out += hint(0x0025, engine.encode())
    return out


def route_hints(lora=None, namespace=None, backend=None, prefill_worker=None, decode_worker=None,
                dp_rank=None, prefill_dp_rank=None, allowed=None, required_taints=(),
                preferred_taints=None, override=None, mm=None, shared_hits=(), session=None, failed_at=()):
    """Hints of a ROUTE as bytes."""
    out = b''
    for kind, text in ((1, lora), (2, namespace)):
        out += hint(kind, text.encode()) if text is not None else b''
    for kind, form, value in ((0x8003, '<Q', backend), (0x8004, '<Q', prefill_worker),
                              (0x8005, '<Q', decode_worker), (0x8006, '<I', dp_rank),
                              (0x8007, '<I', prefill_dp_rank)):
        out += hint(kind, struct.pack(form, value)) if value is not None else b''
    if allowed is not None:
        out += hint(0x8008, struct.pack(f'<{len(allowed)}Q', *allowed))
    for taint in required_taints:
        out += hint(0x8009, taint.encode())
    for taint, weight in (preferred_taints or {}).items():
        out += hint(0x000A, struct.pack('<d', weight) + taint.encode())
    for name, value in (override or {}).items():
        out += hint(0x800F, struct.pack('<IId', OVERRIDES.get(name, name), 0, float(value)))
    for block, hashes in sorted((mm or {}).items()):
        out += hint(0x0011, struct.pack(f'<II{len(hashes)}Q', block, len(hashes), *hashes))
    for start, end in shared_hits:
        out += hint(0x0012, struct.pack('<II', start, end))
    if session is not None:
        out += session_hint(*session)
    if failed_at:
        out += hint(0x0017, b''.join(struct.pack('<QII', worker, rank, 0) for worker, rank in failed_at))
    return out


def rank_hint(worker, dp_rank):
    """RANK of a last item with FAILED or REFUSED."""
    return hint(0x002c, struct.pack('<QII', worker, dp_rank, 0))


def route_body(pool, isl, hashes=(), tokens=(), *, hints=b'', body=b'', flags=0, phase=0,
               max_tokens=NONE32, expected=NONE32, deadline_ms=0, client_frame=FRAME_USUAL):
    fixed = REQUEST.pack(pool, phase, 0, flags, isl, len(hashes), len(tokens), len(hints),
                         len(body), max_tokens, expected, deadline_ms, 0, 0, 0, 0, 0, bytes(16), 0,
                         client_frame, 0)
    return (fixed + struct.pack(f'<{len(hashes)}Q', *hashes)
            + padded(struct.pack(f'<{len(tokens)}I', *tokens)) + hints + padded(body))


class Dispatch:
    """A DISPATCH as an agent reads it; raises ValueError when it is malformed."""

    def __init__(self, header, body):
        (self.pool, self.phase, _, self.flags, self.isl, hashes, tokens, hints, size,
         self.max_tokens, self.expected, _, self.worker, self.dp_rank, self.overlap_blocks,
         self.cached_tokens, self.attempt, address, self.client_port, self.client_frame,
         result) = REQUEST.unpack_from(body)
        at = REQUEST.size
        token_at = at + 8 * hashes
        hint_at = token_at + (tokens * 4 + 7) // 8 * 8
        body_at = hint_at + hints
        result_at = body_at + (size + 7) // 8 * 8
        if result_at + (result + 7) // 8 * 8 != len(body):
            raise ValueError('lengths')
        self.source, self.id, self.handle = header.source, header.id, header.handle
        self.hashes = struct.unpack_from(f'<{hashes}Q', body, at)
        self.tokens = struct.unpack_from(f'<{tokens}I', body, token_at)
        self.hints, self.body = body[hint_at:body_at], body[body_at:body_at + size]
        self.leg = {0: '', PREFILL_LEG: 'prefill', DECODE_LEG: 'decode'}[
            self.flags & (PREFILL_LEG | DECODE_LEG)]
        if self.leg == 'prefill' and self.flags & ROUTE_DIRECT:
            raise ValueError('a prefill leg is not DIRECT')
        self.bootstrap = self.prefill_worker = self.result = self.session = None
        self.read(dict(read_hints(self.hints)))
        if result:
            self.result = body[result_at:result_at + result]
        v4 = address[:12] == bytes(10) + b'\xff\xff'
        self.client = socket.inet_ntop(socket.AF_INET if v4 else socket.AF_INET6,
                                       address[12:] if v4 else address)


    def read(self, hints):
        """Section 7.5; a pin of the client is no prefill worker of a leg."""
        if self.leg:
            self.prefill_worker, = struct.unpack('<Q', hints[0x8004])
            self.result = hints.get(0x0014)
            if 0x0013 in hints:
                room, port = struct.unpack_from('<QH6x', hints[0x0013])
                self.bootstrap = (room, port, hints[0x0013][16:].decode())
        if 0x0010 in hints:
            self.session = hints[0x0010][8:]


class Rejection:
    def __init__(self, body):
        # Short if the question was short: without details they are 0.
        (self.code, self.retryable, self.kind, size, self.policy_class, *self.detail) = (
            REJECTED_BODY.unpack_from(body.ljust(REJECTED_BODY.size, b'\0')))
        self.name = CODES.get(self.code, str(self.code))
        self.text = body[REJECTED_BODY.size:REJECTED_BODY.size + size].decode()

    @property
    def word(self):
        """The reaction to it."""
        kind = KIND_NAMES.get(self.kind)
        if kind in BY_BYTE:
            return 'repeat' if self.retryable else BY_BYTE[kind]
        rest = 'end' if kind in ('ROUTE', 'PROBE', 'POTENTIAL_LOADS') else 'repeat'
        return REFUSALS.get((self.kind, self.code), rest)

    def __repr__(self):
        return f'{self.name} of {KIND_NAMES.get(self.kind, self.kind)} {self.detail} "{self.text}"'


# ---- timers and sockets ----


class Backoff:
    """The interval from first, doubling up to most (section 2)."""

    def __init__(self, first, most):
        self.first, self.most = first / 1000, most / 1000
        self.reset()

    def reset(self):
        self.gap = self.first
        self.due = time.monotonic() + self.gap

    def passed(self, now):
        """True when a retransmission is due; sets the next time."""
        if now < self.due:
            return False
        self.gap = min(2 * self.gap, self.most)
        self.due = now + self.gap
        return True

    def within(self, now, seconds):
        """The gap is at most this long."""
        self.gap = min(self.gap, seconds)
        self.due = min(self.due, now + self.gap)


class Endpoint:
    """One socket that talks to a router."""

    def __init__(self, router, port=PORT, max_frame=FRAME_USUAL, source=0, epoch=None):
        family = socket.AF_INET6 if ':' in router else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_DGRAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.router, self.max_frame, self.source = (router, port), max_frame, source
        self.epoch = epoch or int(time.time()) & NONE32 or 1
        self.seq = time.monotonic_ns() & NONE32
        self.router_frame = FRAME_USUAL
        self.reassembly = Reassembly()
        self.refusals = []  # every REJECTED as (header, Rejection)
        self.ignored = 0
        self.drop = lambda header: False  # for tests: drops received frames

    def next_seq(self):
        self.seq = self.seq + 1 & NONE32
        return self.seq

    def put(self, data, to=None):
        """Sends the whole datagram to the router, or to another address."""
        try:
            self.sock.sendto(data, to or self.router)
        except BlockingIOError:
            pass  # lost, like any datagram; timers retransmit it

    def send(self, kind, id, body=b'', *, source=None, handle=0, seq=None, to=None):
        """One message of one frame; `seq` is given for a retransmission. @return its number."""
        seq = self.next_seq() if seq is None else seq
        self.put(frame(kind, body, source=self.source if source is None else source, id=id,
                       handle=handle, epoch=self.epoch, seq=seq), to)
        return seq

    def receive(self):
        while True:
            try:
                data, sender = self.sock.recvfrom(65536)
            except (BlockingIOError, ConnectionRefusedError):
                return
            if len(data) < HEADER.size:
                self.ignored += 1
                continue
            header = Header(data)
            bad = (header.magic != MAGIC or header.version != VERSION or header.flags
                   or len(data) != HEADER.size + header.frag_len)
            if bad or self.drop(header):
                self.ignored += 1
                continue
            body = self.reassembly.add(header, data[HEADER.size:], sender, time.monotonic())
            if body == 'again':
                self.whole_again(header)
            elif body is not None:
                if header.name == 'REJECTED':
                    self.refusals.append((header, Rejection(body)))
                self.message(header, body, sender)

    def message(self, header, body, sender):
        self.ignored += 1

    def whole_again(self, header):
        """The first fragment of a completed message arrived again: its sender has no acknowledgement."""

    def ask(self, now):
        """Sends MISSING for DISPATCH and RESPONSE."""
        for header, sender, body in self.reassembly.missing(now):
            if header.name in ('DISPATCH', 'RESPONSE'):
                self.send('MISSING', header.id, body, source=header.source, handle=header.handle, to=sender)

    def tick(self, now):
        pass

    def close(self):
        self.sock.close()


def run_until(endpoints, condition, seconds=5.0):
    """Drives the endpoints until condition() is true. @return whether it became true."""
    end = time.monotonic() + seconds
    while True:
        now = time.monotonic()
        for endpoint in endpoints:
            endpoint.ask(now)
            endpoint.tick(now)
        if condition():
            return True
        if now >= end:
            return False
        ready, _, _ = select.select([e.sock for e in endpoints], [], [], 0.002)
        for endpoint in endpoints:
            if endpoint.sock in ready:
                endpoint.receive()


# ---- section 6: the client ----


class Request:
    """One request at its client."""

    def __init__(self, id, body):
        self.id, self.body, self.state, self.handle = id, body, 'SENT', 0
        self.accepted, self.rejected, self.answers = None, None, []
        self.items, self.next, self.data, self.fin, self.cancelled = {}, 0, b'', None, False
        self.words = self.tracker = self.details = self.link = None
        self.cached_tokens, self.unacked, self.ack_due, self.acks = None, 0, None, False
        self.route_sends = self.probes = 0
        self.asked, self.told, self.lingers, self.several = False, None, None, False
        self.adrift = None  # no longer known to the router; DIRECT
        self.heard, self.out = time.monotonic(), None

    @property
    def ended(self):
        return self.state == 'END'

    @property
    def running(self):
        return self.accepted and self.accepted['state'] == 'RUNNING' or self.next > 0


class Release:
    """A session that its client ends without a request (section 11.1)."""

    def __init__(self, id, body):
        self.id, self.body, self.code, self.rejected, self.lost = id, body, None, None, False
        self.timer, self.end = Backoff(20, 1000), time.monotonic() + 5

    @property
    def ended(self):
        return self.code is not None or self.rejected is not None or self.lost


class Loads:
    """The load that every rank of a pool would have (section 11.3)."""

    def __init__(self, id, body):
        self.id, self.body, self.timer = id, body, Backoff(20, 1000)
        self.ranks, self.rejected, self.queue, self.out = None, None, None, None

    @property
    def ended(self):
        return self.ranks is not None or self.rejected is not None

    def answer(self, header, body):
        if header.name == 'REJECTED':
            self.rejected = Rejection(body)
        elif header.name == 'LOADS':
            count, *self.queue = LOADS_BODY.unpack_from(body)
            fields = ('worker', 'dp_rank', 'active_requests', 'prefill_tokens', 'decode_blocks', 'overlap_blocks', 'cached_tokens')
            self.ranks = [dict(zip(fields, RANK_LOADS.unpack_from(body, LOADS_BODY.size + i * RANK_LOADS.size)))
                          for i in range(count)]


class Client(Endpoint):
    def __init__(self, router, **how):
        how.setdefault('source', int.from_bytes(os.urandom(8), 'little'))
        super().__init__(router, **how)
        self.requests, self.releases, self.questions, self.last_id = {}, {}, {}, 0
        self.pools, self.limits, self.connecting, self.cookie = {}, None, None, 0
        self.names, self.life = (), None  # life: epoch of the last CONNECTED

    def connect(self, *names):
        """CONNECT, section 5.1; pools: name -> (number, role, block_size, ranks)."""
        self.names = names
        hints = b''.join(hint(0x8020, name.encode()) for name in names)
        # CONNECTED is never longer than CONNECT.
        hints += hint(0, bytes(max(0, (min(self.max_frame, FRAME_USUAL) - 56 - len(hints)) // 8 * 8 - 4)))
        body = struct.pack('<IHH', len(hints), self.max_frame, 0) + hints
        seq = self.send('CONNECT', 1, body)
        self.limits, self.connecting = None, (seq, body, Backoff(100, 1000))

    def route(self, pool, isl, hashes=(), tokens=(), *, id=None, unit=None, **how):
        """Starts a request. @return its state."""
        self.last_id += 1
        how.setdefault('client_frame', self.max_frame)
        request = Request(id or self.last_id, route_body(pool, isl, hashes, tokens, **how))
        request.unit, request.seq = unit, self.next_seq()
        request.timer = Backoff(20, 1000)
        self.requests[request.id] = request
        self.send_route(request)
        return request

    def proven(self, data):
        """A frame with the cookie in its place, if there is one: the first of a ROUTE."""
        header = Header(data) if len(data) >= HEADER.size + REQUEST.size else None
        if header is None or header.kind != KINDS['ROUTE'] or header.frag_off:
            return data
        at = HEADER.size + 40
        return data[:at] + struct.pack('<Q', self.cookie) + data[at + 8:]

    def send_route(self, request, only=None):
        body = request.body[:40] + struct.pack('<Q', self.cookie) + request.body[48:]
        request.cookie = self.cookie
        if request.route_sends:
            flags = _r32(body, 4) | ROUTE_RESEND
            body = body[:4] + struct.pack('<I', flags) + body[8:]
        request.route_sends += 1
        frames = fragments('ROUTE', body, self.router_frame, request.unit, source=self.source,
                           id=request.id, handle=0, epoch=self.epoch, seq=request.seq)
        request.out = request.out or Sender(self.put)
        request.several = len(frames) > 1
        request.out.start(frames, only)

    def repeat_route(self, request):
        """No answer yet: of several frames the first one, with RESEND and the cookie."""
        if not request.several:
            self.send_route(request)
            return
        if request.out.go():
            data = request.out.frames[0]
            flags = _r32(data, HEADER.size + 4) | ROUTE_RESEND
            self.put(self.proven(data[:HEADER.size + 4] + struct.pack('<I', flags) + data[HEADER.size + 8:]))
            request.route_sends += 1

    def missing(self, owner, body):
        """The router lacks a part of a ROUTE or POTENTIAL_LOADS."""
        if owner.out is not None and not owner.ended and owner.out.missing(body):
            owner.timer.reset()
            owner.heard = time.monotonic()

    def probe(self, request):
        request.probes += 1
        request.asked = True
        self.send('PROBE', request.id, PROBE_ROOM, handle=request.handle)

    def cancel(self, request):
        request.state, request.timer = 'CANCELLING', Backoff(20, 1000)
        request.cancel_seq = self.send('CANCEL', request.id, handle=request.handle)

    def loads(self, pool, isl, hashes=(), tokens=(), **how):
        self.last_id += 1
        loads = Loads(self.last_id, route_body(pool, isl, hashes, tokens, client_frame=self.max_frame, **how))
        self.questions[loads.id] = loads
        loads.seq = self.next_seq()
        self.send_loads(loads)
        return loads

    def send_loads(self, loads, only=None):
        body = loads.body[:40] + struct.pack('<Q', self.cookie) + loads.body[48:]
        loads.out = loads.out or Sender(self.put)
        loads.out.start(fragments('POTENTIAL_LOADS', body, self.router_frame, source=self.source,
                                  id=loads.id, handle=0, epoch=self.epoch, seq=loads.seq), only)

    def book(self, pool, isl, hashes=(), **how):
        """A request that its client runs (section 6.7); report() sends its progress."""
        return self.route(pool, isl, hashes, hints=hint(0, bytes(260)), flags=ROUTE_BOOK, **how)

    def away(self, pool, isl, hashes, size, token, **how):
        """A request whose body of that many bytes goes to the agent (section 19)."""
        hints = hint(0x8016, struct.pack('<Q', size) + token) + hint(0, bytes(204))
        return self.route(pool, isl, hashes, hints=hints, flags=ROUTE_AWAY, **how)

    def report(self, request, tokens=0, first=True, fin=False):
        request.reports = getattr(request, 'reports', 0) + 1
        request.report_acked = False
        self.send('PROGRESS', request.id, struct.pack('<IHHII', request.reports - 1, first | fin << 1, 0, tokens, NONE32),
                  handle=request.handle)

    def progress_acked(self, request, body, _):
        request.report_acked = _r32(body, 0) == getattr(request, 'reports', 0)
        if request.report_acked:
            request.heard = time.monotonic()

    def release(self, pool, session):
        self.last_id += 1
        name = session.encode()
        release = Release(self.last_id, SESSION_BODY.pack(0, len(name), pool) + padded(name))
        self.releases[release.id] = release
        release.seq = self.send('SESSION_RELEASE', release.id, release.body)
        return release

    def released(self, release, header, body):
        if release.ended:
            self.ignored += 1
        elif header.name == 'SESSION_RELEASED':
            release.code, = struct.unpack_from('<H', body)
        elif header.name == 'REJECTED':
            release.rejected = Rejection(body)

    def message(self, header, body, sender):
        if header.source != self.source:
            self.ignored += 1
            return
        if header.name == 'CONNECTED':
            self.connected(body)
            self.lives(header.epoch)
            return
        if header.name != 'RESPONSE' and self.life not in (None, header.epoch) and not self.connecting:
            self.connect(*self.names)
        if header.name == 'MISSING':
            owner = self.requests.get(header.id) or self.questions.get(header.id)
            if owner is None:
                self.ignored += 1
            else:
                self.missing(owner, body)
            return
        if header.id in self.questions:
            loads = self.questions[header.id]
            if header.name == 'REJECTED' and Rejection(body).name == 'CookieRequired':
                self.cookie = Rejection(body).detail[0]
                self.send_loads(loads)
            else:
                loads.answer(header, body)
            return
        if header.id in self.releases:
            self.released(self.releases[header.id], header, body)
            return
        request = self.requests.get(header.id)
        action = {'ACCEPTED': self.accepted, 'REJECTED': self.rejected, 'RESPONSE': self.response,
                  'CANCELLED': self.cancelled, 'PROGRESS_ACK': self.progress_acked}.get(header.name)
        if request is None or action is None:
            self.ignored += 1
            return
        if header.handle:
            request.handle = header.handle
        action(request, body, sender)

    def lives(self, epoch):
        """After a restart of the router, the client asks about everything at once."""
        if self.life not in (None, epoch):
            for request in self.requests.values():
                if not request.ended and request.state in ('SENT', 'WAIT', 'STREAM'):
                    request.timer.reset()
                    request.timer.due = 0.0
        self.life = epoch

    def connected(self, body):
        n, frame_size, tokens, hashes, size, total, message, frames = struct.unpack_from('<8I', body)
        self.cookie, = struct.unpack_from('<Q', body, 32)
        at, pools = 40 + 16 * n, {}
        for i in range(n):
            pool, role, flags, block_size, ranks, name_len, _ = struct.unpack_from(
                '<HBBIIHH', body, 40 + 16 * i)
            pools[body[at:at + name_len].decode()] = (pool, role, block_size, ranks, flags)
            at += (name_len + 7) // 8 * 8
        self.pools, self.connecting, self.router_frame = pools, None, min(frame_size, self.max_frame)
        self.limits = dict(max_frame=frame_size, max_tokens=tokens, max_hashes=hashes,
                           max_body=size, total_pools=total, max_message=message,
                           max_frames=frames)

    def accepted(self, request, body, _):
        fields = ('worker', 'dp_rank', 'overlap_blocks', 'required_blocks', 'cached_tokens', 'state',
                  'flags', 'queue_len', 'pending_tokens', 'prefill_overlap_blocks', 'prefill_worker',
                  'prefill_dp_rank', 'path', 'hints_len')
        answer = dict(zip(fields, ACCEPTED_BODY.unpack_from(body)))
        answer['state'], answer['path'] = STATES[answer['state']], PATHS[answer['path']]
        where = dict(read_hints(body[ACCEPTED_BODY.size:]))
        answer['engine'] = where[0x0025].decode() if 0x0025 in where else None
        answer['body_addr'] = where[0x0027].decode() if 0x0027 in where else None
        answer['prefill_body_addr'] = where[0x0028].decode() if 0x0028 in where else None
        answer['prefill_engine'] = where[0x0026].decode() if 0x0026 in where else None
        request.accepted = answer
        request.answers.append(answer['state'])
        asked, request.asked = request.asked, False
        now = (answer['state'], request.handle)
        news, request.told = now != request.told, now
        request.heard = time.monotonic()
        if request.state == 'SENT':
            request.state = 'END' if answer['state'] == 'QUERY' else 'WAIT'
            request.timer = Backoff(250, 2000)
        elif request.state == 'END' and answer['state'] != 'QUERY' and not request.fin:
            self.send('CANCEL', request.id, handle=request.handle)  # the last CANCEL overtook the ROUTE
        elif request.state in ('WAIT', 'STREAM') and news:
            request.timer.reset()
        elif request.state == 'WAIT' and asked and answer['state'] == 'DISPATCHED' and not answer['flags'] & KEPT:
            if request.several:
                request.seq = self.next_seq()
                request.timer.reset()
            self.send_route(request)

    def rejected(self, request, body, _):
        rejection = Rejection(body)
        kind, word, state = KIND_NAMES.get(rejection.kind), rejection.word, request.state
        if word == 'cookie':
            if kind == 'ROUTE' and state in ('SENT', 'WAIT') and request.cookie != rejection.detail[0]:
                self.cookie = rejection.detail[0]
                self.send_route(request)
            return
        request.answers.append(rejection.name)
        if word == 'restart' and kind == 'ROUTE' and state in ('WAIT', 'STREAM'):
            return  # older than its ACCEPTED; PROBE will find out
        if state == 'CANCELLING':
            if (kind, word) in (('CANCEL', 'done'), ('ROUTE', 'end'), ('ROUTE', 'linger')):
                request.state = 'END'
        elif kind == 'ROUTE' and state in ('SENT', 'WAIT', 'STREAM') or kind == 'PROBE' and state in ('WAIT', 'STREAM'):
            self.refused(request, rejection, word)

    def refused(self, request, rejection, word):
        if word == 'restart' and not request.next:
            request.seq, request.handle = self.next_seq(), 0
            if request.state != 'SENT':  # answered by the next retransmission
                request.state, request.timer = 'SENT', Backoff(20, 1000)
                self.send_route(request)
        elif word == 'restart' and _r32(request.body, 4) & ROUTE_DIRECT:
            request.adrift = rejection  # its agent continues without a router
        elif word in ('end', 'restart') or word in ('first', 'busy') and request.state == 'SENT':
            if word == 'busy' and request.route_sends > 1:
                self.send('CANCEL', request.id, handle=request.handle)  # one copy may have been accepted
            request.state, request.rejected = 'END', rejection
        elif word == 'linger' and request.lingers is None:
            request.lingers, request.rejected_late = time.monotonic() + 3, rejection

    def response(self, request, body, sender):
        if request.state in ('SENT', 'WAIT'):
            request.state, request.timer = 'STREAM', Backoff(250, 2000)
        elif request.state == 'STREAM':
            request.timer.reset()
        request.heard, request.peer, request.asked = time.monotonic(), sender, False
        seq, flags, status, generated, size, cached, hints, _ = RESPONSE_BODY.unpack_from(body)
        if hints:
            said = dict(read_hints(body[len(body) - hints:]))
            request.details, request.link = said.get(0x2a), said.get(0x2b)
            if 0x2c in said:
                request.failed_at = struct.unpack('<QII', said[0x2c])[:2]
            if 0x29 in said:
                request.tracker = dict(zip(TRACKER_NAMES, TRACKER.unpack_from(said[0x29])))
        if seq < request.next or seq in request.items:
            self.acknowledge(request)
            return
        if seq >= request.next + 64:
            return
        data = body[RESPONSE_BODY.size:RESPONSE_BODY.size + size]
        request.items[seq] = (flags, status, generated, data, cached)
        request.unacked += 1
        request.ack_due = request.ack_due or time.monotonic() + 0.005
        while request.next in request.items:
            flags, status, request.generated, data, request.cached_tokens = (
                request.items.pop(request.next))
            request.next += 1
            if flags & (ITEM_ERROR | ITEM_CANCELLED):
                request.words = data.decode()  # the reason of its end, no part of the answer
            else:
                request.data += data
            if flags & ITEM_FIN:
                request.fin = (flags, status)
        if request.fin or request.unacked >= (16 if request.acks else 3):
            self.acknowledge(request)
        if request.fin and request.state == 'STREAM':
            request.state = 'END'

    def whole_again(self, header):
        if header.name == 'RESPONSE' and header.id in self.requests:
            self.acknowledge(self.requests[header.id])

    def acknowledge(self, request):
        request.unacked, request.ack_due, request.acks = 0, None, True
        direct = _r32(request.body, 4) & ROUTE_DIRECT
        self.send('RESPONSE_ACK', request.id, struct.pack('<II', request.next, bool(request.fin)),
                  handle=request.handle, to=request.peer if direct else None)

    def cancelled(self, request, body, _):
        request.cancelled = True
        if request.state == 'CANCELLING':
            request.state = 'END'

    def tick(self, now):
        if self.connecting and self.connecting[2].passed(now):
            self.send('CONNECT', 1, self.connecting[1], seq=self.connecting[0])
        for loads in self.questions.values():
            if not loads.ended and not loads.out.go():
                loads.timer.reset()  # from the last frame on
            elif not loads.ended and loads.timer.passed(now):
                self.send_loads(loads)
        for release in self.releases.values():
            if release.ended:
                continue
            release.lost = now >= release.end
            if release.timer.passed(now):
                self.send('SESSION_RELEASE', release.id, release.body, seq=release.seq)
        for request in self.requests.values():
            if request.ack_due and now >= request.ack_due:
                self.acknowledge(request)
            if request.lingers and now >= request.lingers and not request.ended:
                request.state, request.rejected = 'END', request.rejected_late
            if not request.ended and request.state != 'CANCELLING' and now - request.heard > 15:
                self.send('CANCEL', request.id, handle=request.handle)
                request.state, request.silent, request.rejected = 'END', not request.adrift, request.adrift
            if request.state == 'SENT' and not request.out.go():
                request.timer.reset()  # from the last frame on
            if request.state == 'WAIT':
                request.out.go()
            if request.ended or request.lingers or request.adrift or not request.timer.passed(now):
                continue
            if request.state == 'SENT':
                self.repeat_route(request)
            elif request.state == 'CANCELLING':
                self.send('CANCEL', request.id, handle=request.handle, seq=request.cancel_seq)
            else:
                if request.asked:  # and not answered
                    request.timer.within(now, 1.0)
                self.probe(request)


# ---- sections 7, 9, 10 and 11: the agent ----


class Job:
    """One request at its agent."""

    def __init__(self, dispatch):
        self.dispatch, self.handle, self.copies = dispatch, dispatch.handle, 1
        self.sent, self.acked, self.fin, self.done = [], 0, False, False
        self.aborted, self.timer, self.gone, self.progressed = None, None, False, 0.0
        self.generated = 0


class Rank:
    """KV events of one rank: number, unacknowledged ones, and a running dump."""

    def __init__(self):
        self.next = self.acked = self.confirmed = 0
        self.ring = []  # (number, bytes of the event)
        self.timer = self.dump = self.dump_timer = None
        self.dump_pos = self.dumps = self.gaps = 0
        self.busy_until = 0.0


class Agent(Endpoint):
    def __init__(self, router, worker, pool, block_size, ranks=1, dp_start=0, hints=b'',
                 max_num_batched_tokens=0, total_kv_blocks=0, role=0, boot=0, **how):
        super().__init__(router, source=worker, **how)
        self.worker, self.pool, self.dp_start, self.refuse = worker, pool, dp_start, 0
        hints = hint(0x8020, pool.encode()) + hints
        self.hello_body = HELLO_BODY.pack(block_size, dp_start, ranks, max_num_batched_tokens,
                                          total_kv_blocks, len(hints), self.max_frame, role, 0, boot,
                                          0) + hints
        self.ranks = {dp_start + i: Rank() for i in range(ranks)}
        self.jobs, self.state, self.welcome, self.bookings = {}, None, None, None
        self.alive_due = 0.0
        self.active = None  # requests that heartbeats report for every rank; None: the real ones
        self.unread = self.event_block_size = self.event_form = self.canaries_missed = 0
        self.hello_timer = self.beat_due = self.leaving = None
        self.hello_again = 0.0  # when to repeat HELLO after REJECTED
        self.gone, self.refused, self.answer = False, None, lambda job: None
        self.dump_blocks = lambda rank: []  # [(tier, [SH, ...])] of the rank's cache
        self.sessions, self.session_calls, self.refuse_session = {}, [], 0
        self.session_pools = set()
        self.router_epoch, self.shutdown = None, False  # the router has announced its stop
        self.aborted = set()  # handles; a DISPATCH of one may arrive late
        self.session_answers = {}  # (kind, epoch, id): code
        self.runs = []  # every Job, including those that started over

    def hello(self):
        self.welcome, self.refused = None, None
        self.hello_timer = Backoff(200, 2000)
        self.hello_seq = self.send('HELLO', 1, self.hello_body)

    def begin_life(self, last):
        """The router has ended this epoch: its requests are over, events begin with a dump."""
        self.epoch = max(self.epoch, last) + 1
        self.jobs = {}
        for number, rank in self.ranks.items():
            if rank.next:
                self.start_dump(number)
        self.hello()

    def router_goes(self):
        """The router's requests are over, except direct streams whose end has been handed over."""
        self.shutdown, self.beat_due = True, None
        for job in self.jobs.values():
            job.report = None
            if not (job.fin and job.dispatch.flags & ROUTE_DIRECT):
                job.gone, job.timer = True, None
        self.hello_timer, self.hello_seq = Backoff(200, 2000), self.next_seq()

    def goodbye(self):
        self.leaving, self.goodbyes = Backoff(200, 2000), 1
        self.beat_due = None
        self.goodbye_seq = self.send('GOODBYE', 2)

    def heartbeat(self, now):
        self.beat_due = now + self.welcome['heartbeat_ms'] / 1000
        body = struct.pack('<II', len(self.ranks), 0)
        for number, rank in self.ranks.items():
            active = sum(1 for job in self.jobs.values()
                         if job.dispatch.dp_rank == number and not job.fin)
            if self.active is not None:
                active = self.active
            body += struct.pack('<IIQQIHBB', number, active, M64, rank.next, self.unread, self.event_block_size, self.event_form,
                                self.canaries_missed)
        self.send('HEARTBEAT', 3, body)

    def alive(self, handles):
        """Section 7.6: these requests run here."""
        for at in range(0, len(handles), 64):
            part = handles[at:at + 64]
            self.send('ALIVE', 0, struct.pack(f'<II{len(part)}Q', len(part), 0, *part))

    # KV events

    def event(self, dp_rank, kind, tier='device', hashes=(), parent=None):
        """One event of a rank, at most one frame of it."""
        rank = self.ranks[dp_rank]
        rank.ring.append((rank.next, EVENT.pack(
            kind, TIERS[tier], int(parent is not None), len(hashes), parent or 0)
            + struct.pack(f'<{len(hashes)}Q', *hashes)))
        rank.next += 1
        if rank.timer is None:
            rank.timer = Backoff(20, 1000)
        return rank

    def stored(self, dp_rank, hashes, tier='device', first=0):
        """Blocks from `first` of a prefix are in a tier; split into as many events as frames need."""
        most = (self.router_frame - HEADER.size - EVENTS_BODY.size - EVENT.size) // 8
        for at in range(first, len(hashes), most):
            self.event(dp_rank, STORED, tier, hashes[at:at + most], hashes[at - 1] if at else None)
        self.flush(dp_rank)

    def flush(self, dp_rank):
        """Sends all unacknowledged live events."""
        rank = self.ranks[dp_rank]
        if rank.dump is not None:
            return
        room = self.router_frame - HEADER.size - EVENTS_BODY.size
        batch, first = [], None
        for number, event in rank.ring + [(None, None)]:
            full = batch and (event is None or sum(map(len, batch)) + len(event) > room)
            if full:
                self.send('KV_EVENTS', 4, EVENTS_BODY.pack(first, 0, dp_rank, len(batch), 0, 0)
                          + b''.join(batch))
                batch = []
            if event is not None:
                first = first if batch else number
                batch.append(event)

    def start_dump(self, dp_rank):
        rank = self.ranks[dp_rank]
        most = (self.router_frame - HEADER.size - EVENTS_BODY.size - EVENT.size) // 8
        events = []
        for tier, hashes in self.dump_blocks(dp_rank):
            for at in range(0, len(hashes), most):
                part = hashes[at:at + most]
                events.append(EVENT.pack(STORED, TIERS[tier], int(at > 0), len(part),
                                         hashes[at - 1] if at else 0)
                              + struct.pack(f'<{len(part)}Q', *part))
        events = events or [b'']
        rank.ring, rank.dump, rank.dump_pos, rank.resume = [], [], 0, rank.next
        rank.dumps += 1
        rank.dump_id = (1 << 63) + (self.epoch << 20) + rank.dumps
        for pos, event in enumerate(events):
            end = pos == len(events) - 1
            flags = DUMP | (DUMP_BEGIN if pos == 0 else 0) | (DUMP_END if end else 0)
            rank.dump.append(EVENTS_BODY.pack(pos, rank.next if end else 0, dp_rank,
                                              1 if event else 0, flags, 0) + event)
        rank.dump_timer = Backoff(20, 1000)
        self.send_dump(dp_rank)

    def send_dump(self, dp_rank):
        rank = self.ranks[dp_rank]
        for body in rank.dump[rank.dump_pos:]:
            self.send('KV_EVENTS', rank.dump_id, body)

    def kv_ack(self, id, body):
        next_event, next_pos, dp_rank, code, _ = KV_ACK_BODY.unpack_from(body)
        rank = self.ranks.get(dp_rank)
        if rank is None:
            return
        if code == ACK_HELLO:
            if self.hello_timer is None:
                self.hello()
            return
        if code == ACK_DUMP_WANTED:
            if rank.dump is None and id < 1 << 63:  # not about another dump
                self.start_dump(dp_rank)
            return
        if rank.dump is not None:
            if id != rank.dump_id:
                return
            if next_pos > rank.dump_pos:
                rank.dump_pos = next_pos
                rank.dump_timer.reset()
            if rank.dump_pos >= len(rank.dump):
                rank.dump = rank.dump_timer = None
                rank.acked = rank.confirmed = rank.resume
                self.flush(dp_rank)
            return
        if next_event < rank.confirmed and code != ACK_BUSY:
            return  # overtaken
        if code != ACK_BUSY:
            rank.confirmed = next_event
        if next_event > rank.acked:
            rank.acked = next_event
            rank.ring = [entry for entry in rank.ring if entry[0] >= next_event]
            rank.timer = Backoff(20, 1000) if rank.ring else None
        if code == ACK_GAP:
            rank.gaps += 1
            if rank.ring and rank.ring[0][0] <= next_event:
                self.flush(dp_rank)
            else:
                self.start_dump(dp_rank)
        elif code == ACK_BUSY:
            rank.busy_until = time.monotonic() + 0.02

    # requests

    def dispatch(self, header, body):
        try:
            dispatch = Dispatch(header, body)
            fits = dispatch.worker == self.worker and dispatch.dp_rank in self.ranks
        except (ValueError, KeyError, struct.error):
            fits = False
        key = (header.source, header.id)
        job = self.jobs.get(key)
        code = 0 if fits else 1
        if fits and job is not None and job.handle == header.handle:
            job.copies += 1
        elif fits and dispatch.flags & ROUTE_AWAY:
            code = 2  # this agent accepts bodies only in frames
        elif fits and (self.refuse or header.handle in self.aborted):
            code = self.refuse or 1
        elif fits:
            job = self.jobs[key] = Job(dispatch)  # another handle: a new attempt
            self.runs.append(job)
        self.send('DISPATCH_ACK', header.id, struct.pack('<HHI', code, 0, 0),
                  source=header.source, handle=header.handle)
        if job is not None and job.copies == 1 and not job.sent and not code:
            self.answer(job)

    def whole_again(self, header):
        """Every copy of a DISPATCH is acknowledged."""
        job = self.jobs.get((header.source, header.id))
        if header.name == 'DISPATCH':
            taken = job is not None and job.handle == header.handle
            self.send('DISPATCH_ACK', header.id, struct.pack('<HHI', 0 if taken else self.refuse or 1, 0, 0),
                      source=header.source, handle=header.handle)

    def item(self, job, data=b'', tokens=0, fin=False, flags=0, cached=NONE32, status=0, hints=b''):
        """Sends the next item; `tokens` more have been generated."""
        job.generated += tokens
        flags |= ITEM_FIN if fin else 0
        job.fin = job.fin or fin
        body = RESPONSE_BODY.pack(len(job.sent), flags, status, job.generated, len(data), cached,
                                  len(hints), 0) + padded(data) + hints
        job.sent.append((self.next_seq(), body))
        if job.timer is None:
            job.timer = Backoff(20, 1000)
        job.progressed = time.monotonic()
        if len(job.sent) - job.acked <= self.window(job):
            self.send_item(job, len(job.sent) - 1)

    def window(self, job):
        """Few items to an address that may be forged, until it acknowledges one."""
        return 3 if job.dispatch.flags & UNPROVEN and not job.acked else 64

    def send_item(self, job, number):
        seq, body = job.sent[number]
        direct = job.dispatch.flags & ROUTE_DIRECT
        self.send('RESPONSE', job.dispatch.id, body, source=job.dispatch.source, handle=job.handle,
                  seq=seq, to=(job.dispatch.client, job.dispatch.client_port) if direct else None)

    def progress(self, job, first=True, fin=False):
        """DIRECT: one report to the router."""
        job.reports = getattr(job, 'reports', -1) + 1
        body = struct.pack('<IHHII', job.reports, int(first) | 2 * int(fin), 0, job.generated, NONE32)
        job.report = (self.send('PROGRESS', job.dispatch.id, body, source=job.dispatch.source,
                                handle=job.handle), body, Backoff(20, 1000)) if fin else None
        if not fin:
            self.send('PROGRESS', job.dispatch.id, body, source=job.dispatch.source,
                      handle=job.handle)

    def response_ack(self, job, body):
        upto, flags = struct.unpack_from('<II', body)
        if upto > job.acked:
            if not job.acked and job.dispatch.flags & UNPROVEN:
                for seq in range(3, min(len(job.sent), upto + 64)):
                    self.send_item(job, seq)
            job.acked, job.progressed = min(upto, len(job.sent)), time.monotonic()
            job.timer = Backoff(20, 1000) if job.acked < len(job.sent) else None
        if flags & 1 and job.fin:
            job.done, job.timer = True, None

    def abort(self, header, body):
        self.send('ABORT_ACK', header.id, source=header.source, handle=header.handle)
        self.aborted.add(header.handle)
        job = self.jobs.get((header.source, header.id))
        if job is not None and job.handle == header.handle and job.aborted is None:
            job.aborted = struct.unpack_from('<H', body)[0]
            if job.dispatch.leg == 'decode' and CODES.get(job.aborted) in ('PrefillFailed', 'WorkerLost'):
                job.gone, job.fin, job.timer = True, True, None  # it may continue elsewhere: silence
            elif not job.fin:
                self.item(job, CODES.get(job.aborted, 'cancelled').encode(), fin=True, flags=ITEM_CANCELLED)

    def session(self, header, body):
        """Every copy is answered, the first one acts."""
        timeout, size, pool = SESSION_BODY.unpack_from(body)
        name = body[SESSION_BODY.size:SESSION_BODY.size + size].decode()
        key = (header.kind, header.epoch, header.id)
        opening = header.name == 'SESSION_OPEN'
        if key not in self.session_answers:
            self.session_calls.append((header.name, name, timeout))
            self.session_pools.add(pool)
            code = self.session_answers[key] = self.refuse_session if opening else 0
            if not opening:
                self.sessions.pop(name, None)
            elif not code:
                self.sessions[name] = timeout
        self.send('SESSION_OPENED' if opening else 'SESSION_CLOSED', header.id,
                  struct.pack('<HHI', self.session_answers[key], 0, 0))

    def message(self, header, body, sender):
        if header.name == 'DISPATCH':
            self.dispatch(header, body)
        elif header.name == 'ABORT':
            self.abort(header, body)
        elif header.name in ('RESPONSE_ACK', 'PROGRESS_ACK') or (
                header.name == 'REJECTED' and Rejection(body).kind in (KINDS['RESPONSE'],
                                                                       KINDS['PROGRESS'])):
            job = self.jobs.get((header.source, header.id))
            if job is None:
                self.ignored += 1
            elif header.handle and header.handle != job.handle:
                self.ignored += 1  # about an attempt that is over
            elif header.name == 'RESPONSE_ACK':
                self.response_ack(job, body)
            elif header.name == 'PROGRESS_ACK':
                if getattr(job, 'report', None) and _r32(body, 0) > job.reports:
                    job.report, job.progress_done = None, True
            else:
                self.item_refused(job, Rejection(body))
        elif header.source == self.worker:
            self.life(header, body)
        else:
            self.ignored += 1

    def item_refused(self, job, rejection):
        """REJECTED of RESPONSE or PROGRESS."""
        word = rejection.word
        if word == 'stop' and KIND_NAMES[rejection.kind] == 'PROGRESS':
            job.report = None
        elif word == 'stop':
            job.gone, job.timer = True, None
        elif word == 'hello' and self.hello_timer is None and time.monotonic() - self.hello_again > 1:
            self.hello_again = time.monotonic()
            self.hello()
        elif word == 'item' and job.acked <= rejection.detail[2] < len(job.sent):
            del job.sent[rejection.detail[2]:]
            job.fin = False
            self.item(job, b'an item does not fit', fin=True, flags=ITEM_ERROR)

    def life(self, header, body):
        if header.name == 'WELCOME':
            pool, flags, beat, dead, frame_size, _, _ = struct.unpack_from('<HHIIIII', body)
            self.welcome = dict(pool=pool, heartbeat_ms=beat, dead_ms=dead, max_frame=frame_size, warm=flags & 1 != 0)
            self.router_frame = min(frame_size, self.max_frame)
            self.hello_timer, self.beat_due = None, 0.0
            first, another = self.router_epoch is None, self.router_epoch != header.epoch
            self.router_epoch, self.shutdown = header.epoch, False
            for number, rank in self.ranks.items():
                rank.confirmed = 0  # it may have lost our state
                # Its knowledge comes from an earlier process, or half of it is lost.
                if self.welcome['warm'] and (first or (another and rank.dump is not None)):
                    self.start_dump(number)
        elif header.name == 'HEARTBEAT_ACK':
            state, _, self.bookings = struct.unpack_from('<HHI', body)
            self.state = (None, 'JOINING', 'SERVING', 'SUSPECT', 'DRAINING', 'DRAINED',
                          'GONE')[state]
            if self.state == 'GONE' and not self.leaving and self.hello_timer is None:
                self.hello()
        elif header.name == 'KV_ACK':
            self.kv_ack(header.id, body)
        elif header.name in ('SESSION_OPEN', 'SESSION_CLOSE'):
            self.session(header, body)
        elif header.name == 'GOODBYE_ACK':
            self.gone, self.leaving, self.beat_due = True, None, None
        elif header.name == 'REJECTED':
            rejection = Rejection(body)
            if rejection.kind == KINDS['HELLO']:
                if rejection.name == 'StaleEpoch' and self.hello_timer:
                    self.begin_life(rejection.detail[0])
                elif not rejection.retryable:
                    self.refused, self.hello_timer = rejection, None
            elif rejection.word == 'over':
                if header.epoch == self.router_epoch and not self.shutdown and not self.leaving:
                    self.router_goes()
            elif rejection.word == 'hello' and not self.leaving and not self.gone:
                if self.hello_timer is None and time.monotonic() - self.hello_again > 1:
                    self.hello_again = time.monotonic()
                    self.hello()

    def tick(self, now):
        if self.hello_timer and self.hello_timer.passed(now):
            self.send('HELLO', 1, self.hello_body, seq=self.hello_seq)
        if self.leaving and self.goodbyes < 5 and self.leaving.passed(now):
            self.goodbyes += 1
            self.send('GOODBYE', 2, seq=self.goodbye_seq)
        if self.beat_due is not None and self.welcome and now >= self.beat_due:
            self.heartbeat(now)
            if now >= self.alive_due:
                self.alive_due = now + 15
                self.alive([job.handle for job in self.jobs.values() if not (job.fin or job.gone or job.aborted is not None)])
        for number, rank in self.ranks.items():
            if rank.dump is not None:
                if rank.dump_timer.passed(now):
                    self.send_dump(number)
            elif rank.busy_until and now >= rank.busy_until:
                rank.busy_until = 0.0
                self.flush(number)
            elif rank.ring and rank.timer and rank.timer.passed(now):
                self.flush(number)
        for job in self.jobs.values():
            if getattr(job, 'report', None) and job.report[2].passed(now):
                self.send('PROGRESS', job.dispatch.id, job.report[1], source=job.dispatch.source,
                          handle=job.handle, seq=job.report[0])
            if job.timer is None or job.gone:
                continue
            if now - job.progressed > 17:
                job.gone, job.timer = True, None
            elif job.timer.passed(now):
                for seq in range(job.acked, min(len(job.sent), job.acked + self.window(job))):
                    self.send_item(job, seq)
