#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every metric and member that kvroute-agent and lib/engine read of an engine is in a response shape of tests/data/engines.

usage: names_test.py SOURCE_ROOT
Rows of app/agent/kinds.c must find a value that is not null at their path, in a folder of their kind. Names that other files look for
must be members somewhere.
"""

import json
import os
import re
import sys

FILES = {'MODELS': 'v1_models', 'SERVER': 'server_info', 'SOURCES': 'kv_event_sources', 'METRICS': 'metrics'}
ROW = re.compile(r'ROW\((\w+), (\w+), (\w+), (\w+),\s*([^,]+),\s*(?:NULL|"([^"]+)"),\s*\w+\)', re.S)
SAMPLE = re.compile(r'([a-zA-Z_:]+)(?:\{(.*)\})? \S+')


def at(page, path):
    for name in path.split('.') if path else ():
        if isinstance(page, list):
            page = page[int(name)] if int(name) < len(page) else None
        else:
            page = page.get(name) if isinstance(page, dict) else None
    return page


def finds(page, form, where, inside):
    outer, _, inner = where.partition('>')
    value = at(page, outer)
    if inner:
        value = at(json.loads(value), inner) if isinstance(value, str) else None
    if form == 'ENDPOINTS':
        return bool(value) and all(inside in one for one in value.values())
    if form == 'CHILDREN':
        return any(one.get(inside) for one in value or ())
    if form == 'PORT':
        return value is not None and at(page, inside) is not None
    return value is not None


def has_metric(text, name, label):
    samples = [m for m in map(SAMPLE.fullmatch, text.splitlines()) if m and m[1] == name]
    return any(label is None or f'{label}="' in (m[2] or '') for m in samples)


def members(value):
    if isinstance(value, dict):
        for name, inside in value.items():
            yield name
            yield from members(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from members(inside)


def main(root):
    data, agent, bad = f'{root}/tests/data/engines', f'{root}/app/agent', []
    pages = {}
    for folder in sorted(os.listdir(data)):
        for name in sorted(os.listdir(f'{data}/{folder}')) if os.path.isdir(f'{data}/{folder}') else ():
            if name == 'fold':  # whole answers, and streams
                for answer in os.listdir(f'{data}/{folder}/fold'):
                    if answer.endswith('.answer'):
                        pages[folder, answer] = json.load(open(f'{data}/{folder}/fold/{answer}'))
                continue
            text = open(f'{data}/{folder}/{name}').read()
            pages[folder, name] = text if name.startswith('metrics') else json.loads(text)
    source = open(f'{agent}/kinds.c').read()
    macros = dict(re.findall(r'#define (\w+)\s+("[^"]+")', source))
    rows = ROW.findall(source[source.index('agent_rows[]'):])
    assert len(rows) > 20 and len(rows) == len(re.findall(r'^\tROW\(', source, re.M)), len(rows)
    for kind, value, page, form, where, inside in rows:
        where = macros.get(where.strip(), where.strip()).strip('"')
        of = [p for (folder, name), p in pages.items() if name == FILES[page] and (kind == 'AUTO' or folder.startswith(kind.lower() + '-'))]
        if not any(has_metric(p, where, inside or None) if page == 'METRICS' else finds(p, form, where, inside) for p in of):
            bad.append(f'kinds.c: {kind} {value}: no {FILES[page]} of tests/data/engines has {where} {inside}')
    known = {name for (_, file), page in pages.items() if not file.startswith('metrics') for name in members(page)}
    for file in ('lib/engine/usage.c', 'lib/engine/answer.c', 'app/agent/canary.c', 'app/agent/jobs.c'):
        text = open(f'{root}/{file}').read()
        looked = re.findall(r'kvr_json_get\([^;]*?"([^"]+)"', text)
        for table in re.findall(r'static const char \*const \w+\[\w*\] = \{(.*?)\};', text, re.S):
            looked += re.findall(r'"([^"]+)"', table)
        for path in (name for name in looked if name[0] != '/'):  # no paths of HTTP
            missing = [name for name in path.split('.') if not name.isdigit() and name not in known]
            if missing:
                bad.append(f'{file}: no file of tests/data/engines has {missing[0]} of {path}')
    print('\n'.join(bad) or f'{len(rows)} rows, all in tests/data/engines')
    return bool(bad)


sys.exit(main(*sys.argv[1:]))
