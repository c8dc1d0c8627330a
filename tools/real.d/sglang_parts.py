# SPDX-License-Identifier: BSD-3-Clause
"""SGLang's own event classes, publisher, recorder and RadixCache without its kernels: only the modules below run, every other module of the
package is a mock. load(FOLDER) imports them from an unpacked wheel.
"""

import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from unittest.mock import MagicMock

from stack import ROOT

sys.path.insert(0, f'{ROOT}/tests/lib')
import engine_shapes  # noqa: E402

REAL = {'sglang.srt.mem_cache.' + name for name in ('radix_cache', 'base_prefix_cache', 'events', 'utils', 'cache_init_params', 'evict_policy')}
REAL |= {'sglang.srt.disaggregation.kv_events', 'sglang.srt.utils.network'}
FOLDERS = {'sglang', 'sglang.srt', 'sglang.srt.mem_cache', 'sglang.srt.disaggregation', 'sglang.srt.utils'}


class Loader(importlib.abc.Loader):
    def __init__(self, folder, is_folder):
        self.folder, self.is_folder = folder, is_folder

    def create_module(self, spec):
        module = type(sys)(spec.name) if self.is_folder else MagicMock(name=spec.name)
        module.__path__ = ['/'.join([self.folder, *spec.name.split('.')])]
        module.__spec__, module.__name__ = spec, spec.name
        return module

    def exec_module(self, module):
        if module.__name__ == 'sglang.srt.utils.common':
            module.ceil_align = lambda x, y: -(-x // y) * y


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if not name.startswith('sglang') or name in REAL:
            return None
        return importlib.machinery.ModuleSpec(name, Loader(self.folder, name in FOLDERS), is_package=True)


def load(folder):
    """Make `import sglang.srt...` find the modules in @folder; return the module of events and publishers."""
    sys.meta_path.insert(0, Finder(folder))
    return importlib.import_module('sglang.srt.disaggregation.kv_events')


class Engine:
    """SGLang's HTTP pages in the shapes of tests/data/engines, and its publisher for each rank. It answers no prompts."""

    def __init__(self, events, port, page, ranks=1, model='llama', event_format='default'):
        self.events, self.port, self.page, self.model = events, port, page, model
        self.options = SimpleNamespace(type='sglang', version=engine_shapes.versions('sglang')[0], model=model, lora=[], max_model_len=8192, ranks=ranks,
                                       events=f'tcp://*:{port + 100}', replay=f'tcp://*:{port + 200}', topic='', block_size=page, blocks=4096,
                                       metric_block_size=0, batched_tokens=8192)
        self.publishers = [events.EventPublisherFactory.create(json.dumps(dict(
            publisher='zmq', endpoint=self.options.events, replay_endpoint=self.options.replay, format=event_format)), rank) for rank in range(ranks)]
        self.ranks = [SimpleNamespace(number=i, waiting=0, running=0, cache=SimpleNamespace(blocks=())) for i in range(ranks)]
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def log_message(self, *args):
                pass

            def do_GET(self):
                path = self.path.partition('?')[0]
                page = {'/metrics': lambda: engine_shapes.metrics(engine.options, engine.ranks), '/server_info': lambda: engine_shapes.server_info(engine.options),
                        '/v1/models': lambda: engine_shapes.models(engine.options), '/health': lambda: ''}.get(path)
                body = page() if page else {'detail': 'Not Found'}
                body = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(200 if page else 404)
                self.send_header('content-length', str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            do_POST = do_GET
        threading.Thread(target=ThreadingHTTPServer(('127.0.0.1', port), Handler).serve_forever, daemon=True).start()

    def publish(self, batch, rank=0):
        if batch:
            self.publishers[rank].publish(self.events.KVEventBatch(ts=1.0, events=batch))
