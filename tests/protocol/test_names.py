# SPDX-License-Identifier: BSD-3-Clause
"""The kinds, codes, states, ways and overrides of kvrproto.py are those of PROTOCOL.md: all, and no more.

usage: test_names.py PROTOCOL.md kvrproto.py
"""

import importlib.util
import re
import sys


def numbered(text, heading, pattern):
    """{number: name} of the rows of a table between a heading and the next one of its level."""
    part = text.split(f'\n{heading} ', 1)[1].split('\n' + heading.split(' ')[0] + ' ', 1)[0]
    return {int(number, 0): name for number, name in re.findall(pattern, part, re.M)}


def compare(what, said, document):
    """True when equal; tells each difference."""
    for number in sorted(said.keys() | document.keys()):
        if said.get(number) != document.get(number):
            print(f'{what}: {number} is {said.get(number)}, not {document.get(number)}')
    return said == document


def main(document, decoder):
    with open(document, encoding='utf-8') as file:
        text = file.read()
    spec = importlib.util.spec_from_file_location('kvrproto', decoder)
    proto = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(proto)

    kinds = numbered(text, '## 5.', r'^\| (\d+) \| ([A-Z_]+) \| [CAR]+ \|')
    codes = numbered(text, '## 12.', r'^\| (\d+) \| ([A-Za-z]+) \| (?:yes|no) \|')
    states = numbered(text, '### 6.2', r'^\| (\d+) \| ([A-Z]+) \|')
    paths = numbered(text, '### 6.2', r'^\| (\d+) \| ([a-z]+) \|')
    overrides = numbered(text, '## 8.', r'^\| (\d+) \| ([a-z_]+) \|')
    if len(kinds) < 33 or len(codes) < 47:
        print(f'{len(kinds)} kinds and {len(codes)} codes found in {document}')
        return 1
    good = [
        compare('kinds of kvrproto', proto.KIND_NAMES, kinds),
        compare('codes of kvrproto', proto.CODES, codes),
        compare('states of kvrproto', dict(enumerate(proto.STATES)), states),
        compare('paths of kvrproto', dict(enumerate(proto.PATHS)), paths),
        compare('overrides of kvrproto', {n: name for name, n in proto.OVERRIDES.items()}, overrides),
    ]
    return 0 if all(good) else 1


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
