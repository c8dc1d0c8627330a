# SPDX-License-Identifier: BSD-3-Clause
"""What the stand-in engine reports of itself, in the shapes of tests/data/engines: values are replaced, names are never added."""

import copy
import functools
import json
import os
import re

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'data', 'engines')
SAMPLE = re.compile(r'([a-zA-Z_:]+)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def versions(kind):
    """Folders of a kind, the newest first; the last component decides among equals."""
    names = [n for n in os.listdir(DATA) if n.startswith(kind + '-')]
    return sorted((n[len(kind) + 1:] for n in names), key=lambda v: [int(x) for x in v.split('.')], reverse=True)


@functools.cache
def text(kind, version, page):
    """A file, or None: this version has no such page."""
    path = os.path.join(DATA, f'{kind}-{version}', page)
    if not os.path.exists(path):
        return None
    with open(path) as f:
        return f.read()


@functools.cache
def parsed(kind, version, page):
    return json.loads(text(kind, version, page) or 'null')


def shape(o, page):
    return copy.deepcopy(parsed(o.type, o.version, page))


def put(page, path, value):
    """Replace the value at A.B.C, which must be there."""
    *above, last = path.split('.')
    for name in above:
        page = page[name]
    if last not in page:
        raise KeyError(f'{path}: not in tests/data/engines')
    page[last] = value


def models(o):
    page = shape(o, 'v1_models')
    base, adapter = page['data']
    base.update(id=o.model, root=o.model, max_model_len=o.max_model_len)
    page['data'] = [base, *({**adapter, 'id': name, 'root': name, 'parent': o.model} for name in o.lora)]
    return page


def endpoint(base, rank):
    host, _, port = base.rpartition(':')
    return f'{host}:{int(port) + rank}'


def event_sources(o):
    """vLLM: one member for each rank that publishes."""
    page = shape(o, 'kv_event_sources')
    if page is None:
        return None
    (one,) = page.values()
    out = {}
    for rank in range(o.ranks if o.events else 0):
        out[str(rank)] = one = copy.copy(one)
        put(one, 'endpoint', endpoint(o.events, rank))
        put(one, 'replay_endpoint', endpoint(o.replay, rank) if o.replay else None)
        put(one, 'topic', o.topic)
    return out


def vllm_info(o):
    """Of development mode alone."""
    page = shape(o, 'server_info')
    if page is None or not o.dev:
        return None
    put(page, 'vllm_config.cache_config.block_size', o.block_size)
    put(page, 'vllm_config.parallel_config.data_parallel_size', o.ranks)
    put(page, 'vllm_config.scheduler_config.max_num_batched_tokens', o.batched_tokens)
    if o.events:
        put(page, 'vllm_config.kv_events_config.endpoint', o.events)
        put(page, 'vllm_config.kv_events_config.replay_endpoint', o.replay)
        put(page, 'vllm_config.kv_events_config.topic', o.topic)
    else:
        put(page, 'vllm_config.kv_events_config', None)
    return page


def sglang_info(o):
    page = shape(o, 'server_info')
    put(page, 'served_model_name', o.model)
    put(page, 'page_size', o.block_size)
    put(page, 'dp_size', o.ranks)
    put(page, 'chunked_prefill_size', o.batched_tokens)
    put(page, 'max_total_num_tokens', o.blocks * o.block_size)
    put(page, 'internal_states', page['internal_states'] * o.ranks)
    put(page, 'kv_events_config', o.events and json.dumps({'publisher': 'zmq', 'endpoint': o.events, 'replay_endpoint': o.replay, 'topic': o.topic}))
    if 'kv_events' not in page:
        return page
    if not o.events:
        put(page, 'kv_events', None)
        return page
    host, _, port = o.events.rpartition('/')[2].rpartition(':')
    put(page, 'kv_events.endpoint_host', host)
    put(page, 'kv_events.endpoint_port_base', int(port))
    put(page, 'kv_events.topic', o.topic)
    put(page, 'kv_events.block_size', o.block_size)
    put(page, 'kv_events.dp_size', o.ranks)
    if o.replay and 'replay_endpoint_port_base' in page['kv_events']:
        put(page, 'kv_events.replay_endpoint_port_base', int(o.replay.rpartition(':')[2]))
    else:
        page['kv_events'].pop('replay_endpoint_port_base', None)
    return page


def server_info(o):
    return sglang_info(o) if o.type == 'sglang' else vllm_info(o)


def gauges(o):
    """Metric -> its value of a rank."""
    if o.type == 'vllm':
        return {'vllm:num_requests_waiting': lambda r: r.waiting, 'vllm:num_requests_running': lambda r: r.running,
                'vllm:kv_cache_usage_perc': lambda r: len(r.cache.blocks) / o.blocks}
    size = o.metric_block_size or o.block_size
    return {'sglang:num_queue_reqs': lambda r: r.waiting, 'sglang:num_running_reqs': lambda r: r.running,
            'sglang:token_usage': lambda r: len(r.cache.blocks) / o.blocks, 'sglang:max_total_num_tokens': lambda r: o.blocks * o.block_size,
            **({'sglang:page_size': lambda r: size, 'sglang:num_pages': lambda r: o.blocks} if 'sglang:page_size' in text(o.type, o.version, 'metrics') else {})}


def metrics(o, ranks):
    values, out = gauges(o), []
    unused = set(values)
    for line in text(o.type, o.version, 'metrics').splitlines():
        sample = SAMPLE.fullmatch(line)
        if not sample:
            out.append(line)
            continue
        name, labels, value = sample[1], dict(LABEL.findall(sample[2] or '')), sample[3]
        unused.discard(name)
        each = 'engine' in labels or 'tp_rank' in labels  # of a scheduler, not of the server
        for r in ranks if each else ranks[:1]:
            labels['model_name'] = o.model
            if 'engine' in labels:
                labels['engine'] = str(r.number)
            elif each and len(ranks) > 1:
                labels['dp_rank'] = str(r.number)
            if name == 'vllm:cache_config_info':
                labels.pop('model_name')
                labels.update(block_size=str(o.metric_block_size or o.block_size), num_gpu_blocks=str(o.blocks * len(ranks)))
            out.append(f'{name}{{{",".join(f"{k}={json.dumps(v)}" for k, v in sorted(labels.items()))}}} '
                       f'{float(values[name](r)) if name in values else value}')
    if unused:
        raise KeyError(f'{sorted(unused)}: not in tests/data/engines')
    return '\n'.join(out) + '\n'
