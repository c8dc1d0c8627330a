# SPDX-License-Identifier: BSD-3-Clause
"""Load generators of other projects against the gateway: load_tools.py aiperf|guidellm"""

import json
import os
import subprocess
import sys

import packages
from stack import CACHE, HERE, URL, Stack, check, request

MODEL = f'{CACHE}/tiny-reference'  # a tokenizer is all that they read of it


def run_tool(command, cwd):
    done = subprocess.run([str(x) for x in command], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors='replace', timeout=400, env=dict(os.environ, HOME=cwd, NO_COLOR='1'))
    return done.returncode, done.stdout[-600:]


def run_aiperf(folder):
    status, output = run_tool([packages.folder('aiperf') + '/bin/aiperf', 'profile', '--model', 'llama', '--url', URL, '--endpoint-type', 'chat', '--streaming',
                               '--tokenizer', MODEL, '--request-count', 60, '--concurrency', 8, '--synthetic-input-tokens-mean', 200,
                               '--output-tokens-mean', 16, '--artifact-dir', folder, '--ui', 'none'], folder)
    found = [f'{d}/{n}' for d, _, names in os.walk(folder) for n in names if n == 'profile_export_aiperf.json']
    if status != 0 or not found:
        return 0, f'status {status}: {output}'
    with open(found[0]) as f:
        result = json.load(f)
    errors = result.get('error_summary') or []
    return 0 if errors else int(result['request_count']['avg']), f'{errors} {output[-200:]}'


def run_guidellm(folder):
    status, output = run_tool([packages.folder('guidellm') + '/bin/guidellm', 'run', '--disable-progress',
                               '--backend', f'kind=openai_http,target={URL},model=llama', '--profile', 'kind=concurrent,streams=8',
                               '--constraint', 'kind=max_requests,count=60', '--tokenizer', f'kind=huggingface_auto,model={MODEL}',
                               '--data', 'kind=synthetic_text,prompt_tokens=200,output_tokens=16', '--output', f'kind=json,path={folder}/benchmarks.json'], folder)
    found = [f'{d}/{n}' for d, _, names in os.walk(folder) for n in names if n == 'benchmarks.json']
    if status != 0 or not found:
        return 0, f'status {status}: {output}'
    with open(found[0]) as f:
        totals = json.load(f)['benchmarks'][0]['metrics']['request_totals']
    return 0 if totals['errored'] else totals['successful'], f'{totals} {output[-200:]}'


tool = sys.argv[1]
with Stack({'llama': {}}) as stack:
    if not os.path.exists(f'{MODEL}/tokenizer_config.json'):
        subprocess.run([packages.python(tool), f'{HERE}/tiny_model.py', 'reference', MODEL], check=True)
    for number in (1, 2):
        stack.stand_in(number, '--decode-us', 1000)
        stack.agent(number)
    stack.gateway('--tokenize', 'http://127.0.0.1:8101/tokenize')
    stack.require_workers(1, 2)
    result = f'{stack.dir}/{tool}'
    os.makedirs(result)
    finished, detail = dict(aiperf=run_aiperf, guidellm=run_guidellm)[tool](result)
    check(f'{tool}: 60 requests, no error', finished >= 60, f'{finished} succeeded, {detail}')
    counts = [request(8100 + number, 'GET', '/_test')[2]['count']['finished'] for number in (1, 2)]
    check(f'{tool}: both engines receive requests', min(counts) > 0, counts)
