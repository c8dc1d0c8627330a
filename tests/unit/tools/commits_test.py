#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tools/check/commits: accepted and rejected subjects; the hook that tools/setup --hooks installs."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CHECK = ROOT / 'tools/check/commits'
GOOD = [
    'lib/conf: read INI files without rte_cfgfile',
    'app/router, lib/port: drop frames of unknown sources',
    'tests: process a list\n\nThe body says why. It may have long lines, and end with a dot.\n',
    'lib/wire: need one length less',
    'perf: bring back the baseline',
    'app: ' + 'drop ' + 'x' * 50,
    "Merge branch 'main' into work",
    'Revert "lib/conf: read files"',
    'fixup! lib/conf: read files',
    '# a comment of git\nlib/conf: read files\n# another',
    'lib: fix a fault\n\nbody\n# ------------------------ >8 ------------------------\ndiff --git a/x b/x',
]
BAD = {
    'read INI files': 'not "area: line"',
    'lib/conf:read files': 'not "area: line"',
    'Lib/conf: read files': 'not "area: line"',
    'lib/conf and more: read files': 'not "area: line"',
    'lib/conf: Read files': '"Read" is no imperative',
    'lib/conf: reads files': '"reads" is no imperative',
    'lib/conf: removed files': '"removed" is no imperative',
    'lib/conf: reading files': '"reading" is no imperative',
    'lib/conf: the files are read': '"the" is no imperative',
    'lib/conf: what a file says': '"what" is no imperative',
    'lib/conf: `read` files': 'is no imperative',
    'lib/conf: read files.': 'ends with a dot',
    'app: ' + 'drop ' + 'x' * 51: '61 characters, allowed: 60',
    'lib/conf: read files\nand more': 'no empty line after the subject',
    '# only a comment': 'not "area: line"',
}


def run(*args, **kwargs):
    return subprocess.run(args, capture_output=True, text=True, **kwargs)


def check_messages(folder):
    for message in GOOD:
        (folder / 'message').write_text(message)
        got = run(CHECK, folder / 'message')
        assert got.returncode == 0 and got.stdout == '', (message, got.stdout)
    for message, fault in BAD.items():
        (folder / 'message').write_text(message)
        got = run(CHECK, folder / 'message')
        assert got.returncode == 1 and fault in got.stdout and got.stdout.count('\n') == 1, (message, got.stdout)
    assert run(CHECK, 'no-such-range..x', cwd=folder).returncode == 1


def check_hook(folder):
    env = {k: v for k, v in os.environ.items() if not k.startswith('GIT_')}
    env |= {'GIT_AUTHOR_NAME': 'a', 'GIT_AUTHOR_EMAIL': 'a@b', 'GIT_COMMITTER_NAME': 'a', 'GIT_COMMITTER_EMAIL': 'a@b', 'HOME': str(folder)}
    tree = folder / 'tree'
    (tree / 'tools/check').mkdir(parents=True)
    shutil.copy(ROOT / 'tools/setup', tree / 'tools/setup')
    shutil.copy(CHECK, tree / 'tools/check/commits')

    def commit(message):
        return run('git', 'commit', '-q', '--allow-empty', '-m', message, cwd=tree, env=env)

    assert run('git', 'init', '-q', cwd=tree, env=env).returncode == 0
    assert run(tree / 'tools/setup', '--hooks', env=env).returncode == 0
    assert run(tree / 'tools/setup', '--hooks', env=env).returncode == 0  # again
    assert commit('lib/conf: read files').returncode == 0
    got = commit('lib/conf: reads files')
    assert got.returncode != 0 and 'is no imperative' in got.stdout + got.stderr, got
    assert commit('app: drop frames').returncode == 0
    assert run(tree / 'tools/check/commits', 'HEAD', cwd=tree, env=env).returncode == 0
    # A hook of another origin stays.
    hook = tree / '.git/hooks/commit-msg'
    hook.write_text('#!/bin/sh\n')
    got = run(tree / 'tools/setup', '--hooks', env=env)
    assert got.returncode == 1 and 'is not ours' in got.stderr, got
    assert hook.read_text() == '#!/bin/sh\n'
    assert run(tree / 'tools/setup', '--hook', env=env).returncode == 2


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_messages(Path(folder))
        check_hook(Path(folder))


main()
