# SPDX-License-Identifier: BSD-3-Clause
"""The kinds, codes and bits of PROTOCOL.md are those of the dissector and of kvrproto.py: all, and no more.

usage: test_names.py PROTOCOL.md kvroute.lua kvrproto.py
"""

import importlib.util
import re
import sys


def numbered(text, heading, pattern):
    """{number: name} of the rows of a table between a heading and the next one of its level."""
    part = text.split(f'\n{heading} ', 1)[1].split('\n' + heading.split(' ')[0] + ' ', 1)[0]
    return {int(number, 0): name for number, name in re.findall(pattern, part, re.M)}


def lua_table(text, name):
    body = re.search(r'local %s = \{(.*?)\n?\}' % name, text, re.S).group(1)
    return {int(number): said for number, said in re.findall(r'\[(\d+)\] = "([^"]+)"', body)}


def lua_bits(text, name):
    body = re.search(r'bits\("%s", \d+, \{(.*?)\}\}\)' % re.escape(name), text, re.S).group(1)
    return {int(bit, 16): said for bit, said in re.findall(r'\{(0x[0-9a-f]+), "([A-Z_]+)"', body)}


def compare(what, said, document):
    """True when equal; tells each difference."""
    for number in sorted(said.keys() | document.keys()):
        if said.get(number) != document.get(number):
            print(f'{what}: {number} is {said.get(number)}, not {document.get(number)}')
    return said == document


def main(document, dissector, stranger):
    with open(document, encoding='utf-8') as file:
        text = file.read()
    with open(dissector, encoding='utf-8') as file:
        lua = file.read()
    spec = importlib.util.spec_from_file_location('kvrproto', stranger)
    proto = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(proto)

    bit_row = r'^\| (0x[0-9a-f]{4}) \| ([A-Z_]+) \|'
    kinds = numbered(text, '## 5.', r'^\| (\d+) \| ([A-Z_]+) \| [CAR]+ \|')
    codes = numbered(text, '## 12.', r'^\| (\d+) \| ([A-Za-z]+) \| (?:yes|no) \|')
    states = numbered(text, '### 6.2', r'^\| (\d+) \| ([A-Z]+) \|')
    paths = numbered(text, '### 6.2', r'^\| (\d+) \| ([a-z]+) \|')
    workers = numbered(text, '### 9.2', r'^\| (\d+) \| ([A-Z]+) \|')
    overrides = numbered(text, '## 8.', r'^\| (\d+) \| ([a-z_]+) \|')
    acks = numbered(text, '## 10.', r'^\| (\d+) \| (OK|GAP|DUMP_WANTED|HELLO|BUSY) \|')
    if len(kinds) < 33 or len(codes) < 47:
        print(f'{len(kinds)} kinds and {len(codes)} codes found in {document}')
        return 1
    shown = lua_table(lua, 'CODES')
    shown.pop(0)  # "Ok" of answers that carry a code
    good = [
        compare('kinds of the dissector', lua_table(lua, 'KINDS'), kinds),
        compare('codes of the dissector', shown, codes),
        compare('states of the dissector', lua_table(lua, 'STATES'), states),
        compare('paths of the dissector', lua_table(lua, 'PATHS'), paths),
        compare('workers of the dissector', lua_table(lua, 'WORKER_STATES'), workers),
        compare('overrides of the dissector', lua_table(lua, 'OVERRIDES'), overrides),
        compare('KV_ACK of the dissector', lua_table(lua, 'KV_CODES'), acks),
        compare('flags of the dissector: ROUTE', lua_bits(lua, 'request.flags'),
                numbered(text, '### 6.1', bit_row)),
        compare('flags of the dissector: ACCEPTED', lua_bits(lua, 'accepted.flags'),
                numbered(text, '### 6.2', bit_row)),
        compare('flags of the dissector: RESPONSE', lua_bits(lua, 'response.flags'),
                numbered(text, '### 6.4', bit_row)),
        compare('flags of the dissector: PROGRESS', lua_bits(lua, 'progress.flags'),
                numbered(text, '### 7.2', bit_row)),
        compare('kinds of kvrproto', proto.KIND_NAMES, kinds),
        compare('codes of kvrproto', proto.CODES, codes),
        compare('states of kvrproto', dict(enumerate(proto.STATES)), states),
        compare('paths of kvrproto', dict(enumerate(proto.PATHS)), paths),
        compare('overrides of kvrproto', {n: name for name, n in proto.OVERRIDES.items()}, overrides),
    ]
    return 0 if all(good) else 1


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
