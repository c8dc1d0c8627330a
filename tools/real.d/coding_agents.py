# SPDX-License-Identifier: BSD-3-Clause
"""codex, claude-code, opencode and qwen-code as programs. The engine answers with a call of the shell tool, then with text."""

import json
import os
import subprocess
import tempfile

import packages
import tool_engine
from stack import PORT, URL, Stack, attempt, check, request

PROGRAMS = packages.folder('agents') + '/node_modules/.bin'
PROMPT = 'Run the command, then answer in one sentence.'


def codex(home):
    os.makedirs(f'{home}/.codex')
    with open(f'{home}/.codex/config.toml', 'w') as f:
        f.write(f'model = "llama"\nmodel_provider = "kvroute"\n[model_providers.kvroute]\nname = "kvroute"\nbase_url = "{URL}/v1"\nwire_api = "responses"\n')
    return ['codex', 'exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', PROMPT], {'CODEX_HOME': f'{home}/.codex'}


def claude_code(home):
    return ['claude', '-p', PROMPT, '--model', 'llama', '--dangerously-skip-permissions'], {
        'ANTHROPIC_BASE_URL': URL, 'ANTHROPIC_API_KEY': 'none', 'IS_SANDBOX': '1', 'CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC': '1'}


def opencode(home):
    os.makedirs(f'{home}/.config/opencode')
    with open(f'{home}/.config/opencode/opencode.json', 'w') as f:
        json.dump({'provider': {'kvroute': {'npm': '@ai-sdk/openai-compatible', 'name': 'kvroute', 'options': {'baseURL': f'{URL}/v1', 'apiKey': 'none'},
                                            'models': {'llama': {'name': 'llama', 'tool_call': True}}}},
                   'permission': {'bash': 'allow', 'edit': 'allow'}, 'autoupdate': False, 'share': 'disabled', 'small_model': 'kvroute/llama'}, f)
    return ['opencode', 'run', '-m', 'kvroute/llama', PROMPT], {'OPENCODE_DISABLE_MODELS_FETCH': '1', 'OPENCODE_DISABLE_LSP_DOWNLOAD': '1'}


def qwen_code(home):
    return ['qwen', '-p', PROMPT, '--yolo', '--auth-type', 'openai'], {'OPENAI_BASE_URL': f'{URL}/v1', 'OPENAI_API_KEY': 'none', 'OPENAI_MODEL': 'llama'}


def run(name, prepare, result):
    """The program's shell tool writes @result, and its output has the engine's last text."""
    home = tempfile.mkdtemp(prefix='kvr-agent.')
    work = f'{home}/work'
    os.makedirs(work)
    command, env = prepare(home)
    env = {**{k: v for k, v in os.environ.items() if not k.startswith(('CLAUDE', 'ANTHROPIC', 'OPENAI', 'CODEX'))}, 'HOME': home, 'XDG_CACHE_HOME': f'{home}/.cache',
           'NO_COLOR': '1', 'CI': '1', 'PATH': f'{PROGRAMS}:{os.environ["PATH"]}', **env}
    if os.path.exists(result):
        os.remove(result)
    before = len(request(8101, 'GET', '/_seen')[2])
    try:
        done = subprocess.run(command, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace',
                              timeout=180)
        output = done.stdout
    except subprocess.TimeoutExpired as e:
        output = f'time limit: {e.stdout}'
    seen = request(8101, 'GET', '/_seen')[2][before:]
    check(f'{name}: the tool call runs', os.path.exists(result), f'{seen}, {output[-250:]}')
    check(f'{name}: the answer arrives', tool_engine.TEXT in output, output[-250:])
    subprocess.run(['rm', '-rf', home], check=False)


with Stack({'llama': {}}) as stack:
    written = f'{stack.dir}/tool-result'
    stack.start('engine1', packages.python('quick'), f'{os.path.dirname(os.path.abspath(__file__))}/tool_engine.py', 8101, f'echo ran > {written}')
    stack.require('no engine', lambda: request(8101, 'GET', '/health')[0] == 200)
    stack.agent(1, '--events', '', '--paths', '/v1/*,/tokenize')
    stack.gateway('--tokenize', 'http://127.0.0.1:8101/tokenize')
    stack.require_workers(1)
    assert PORT == 8000
    for name, prepare in (('codex', codex), ('claude-code', claude_code), ('opencode', opencode), ('qwen-code', qwen_code)):
        with attempt(f'{name}: the program runs'):
            run(name, prepare, written)
