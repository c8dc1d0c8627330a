# SPDX-License-Identifier: BSD-3-Clause
"""Environments of packages in the cache folder, from the versions pinned in the file `pins` beside this one.

An environment is a folder NAME-DIGEST, where DIGEST covers its pins. It is complete when it has the file `complete`.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get('KVROUTE_REAL') or os.path.join(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'kvroute-real')
deadline = None  # of all downloads together, as time.monotonic() counts
failures = {}    # environment: reason; it is not tried again


def set_limit(seconds):
    global deadline
    deadline = time.monotonic() + seconds


def pins(name):
    """[(kind, package)] of an environment, in the order of the file."""
    with open(f'{HERE}/pins') as f:
        lines = [line.split() for line in f if line.strip() and line[0] != '#']
    return [(line[1], line[2]) for line in lines if line[0] == name]


def folder(name):
    digest = hashlib.sha256(repr(pins(name)).encode()).hexdigest()[:8]
    return f'{CACHE}/{name}-{digest}'


def python(name):
    return f'{folder(name)}/bin/python'


def call(command, **more):
    """Run a package client; return the last line of its output when it fails, else None."""
    seconds = max(1, deadline - time.monotonic())
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace', timeout=seconds, **more)
    except subprocess.TimeoutExpired:
        return f'{os.path.basename(command[0])} did not end within {seconds:.0f} s'
    except OSError as e:
        return str(e)
    return (done.stdout.strip().splitlines() or ['no output'])[-1][:200] if done.returncode != 0 else None


def find_python():
    """The Python of environments: Debian's, or the one that runs this program."""
    return '/usr/bin/python3' if os.path.exists('/usr/bin/python3') else sys.executable


def provide_uv():
    """uv, the client for PyPI. plain pip does not resolve vLLM."""
    path = folder('uv')
    if not os.path.exists(f'{path}/complete'):
        failed = call([find_python(), '-m', 'venv', '--clear', path])
        failed = failed or call([f'{path}/bin/python', '-m', 'pip', 'install', '--quiet', *(package for _, package in pins('uv'))])
        if failed:
            return failed
        open(f'{path}/complete', 'w').close()
    return None


def install_pypi(name, path, kinds):
    """A virtual environment, or a plain folder when all pins are of the kind `pypi-files`."""
    failed = provide_uv()
    if failed:
        return failed
    uv, env = f'{folder("uv")}/bin/uv', dict(os.environ, UV_CACHE_DIR=f'{CACHE}/uv-cache', UV_HTTP_TIMEOUT='180')
    if 'pypi-files' in kinds:
        return call([uv, 'pip', 'install', '--no-deps', '--python', find_python(), '--target', path, *kinds['pypi-files']], env=env)
    failed = call([uv, 'venv', '--clear', '--python', find_python(), path], env=env)
    if failed:
        return failed
    with open(f'{path}/overrides.txt', 'w') as f:
        f.writelines(f'{package}\n' for package in kinds.get('pypi-override', ()))
    for kind, more in (('pypi-alone', ['--no-deps']), ('pypi', ['--override', f'{path}/overrides.txt'])):
        if kind in kinds and not failed:
            failed = call([uv, 'pip', 'install', '--python', f'{path}/bin/python', *more, *kinds[kind]], env=env)
    return failed


def install_npm(name, path, kinds):
    os.makedirs(path, exist_ok=True)
    return call(['npm', 'install', '--no-audit', '--no-fund', '--no-save', '--prefix', path, *kinds['npm']])


def install_go(name, path, kinds):
    """The program real.d/go_client, built with the pinned module."""
    shutil.copytree(f'{HERE}/go_client', path, dirs_exist_ok=True)
    failed = call(['go', 'get', *kinds['go']], cwd=path)
    return failed or call(['go', 'build', '-gcflags=all=-N -l', '-o', 'client', '.'], cwd=path)


def provide(name):
    """Make an environment complete. Returns None, or the reason why it is missing."""
    path, kinds = folder(name), {}
    if os.path.exists(f'{path}/complete'):
        return None
    if name in failures:
        return failures[name]
    for kind, package in pins(name):
        kinds.setdefault(kind, []).append(package)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(CACHE, exist_ok=True)
    install = install_npm if 'npm' in kinds else install_go if 'go' in kinds else install_pypi
    failed = install(name, path, kinds)
    if failed:
        failures[name] = f'cannot install {" ".join(package for _, package in pins(name))}: {failed}'
        return failures[name]
    open(f'{path}/complete', 'w').close()
    return None
