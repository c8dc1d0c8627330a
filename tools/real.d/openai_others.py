# SPDX-License-Identifier: BSD-3-Clause
"""The openai package for another language through gateway, router and agent to the stand-in engine: openai_others.py node|go"""

import subprocess
import sys

import packages
from stack import HERE, URL, Stack

COMMANDS = {
    'node': lambda: ['node', f'{HERE}/openai_node.mjs', f'{URL}/v1', packages.folder('node')],
    'go': lambda: [packages.folder('go') + '/client', f'{URL}/v1'],
}

with Stack({'llama': {}}) as stack:
    stack.stand_in(1, '--decode-us', 2000)
    stack.agent(1)
    stack.gateway('--tokenize', 'http://127.0.0.1:8101/tokenize')
    stack.require_workers(1)
    status = subprocess.run(COMMANDS[sys.argv[1]](), stdin=subprocess.DEVNULL, timeout=120).returncode
sys.exit(status)
