#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The vocabulary of gpt-tokenizer (npm) behind a /tokenize: gateway_vocabulary_test.sh KVROUTE TEST.py ARGUMENT...
# The folder with its node_modules is the test's last argument.
# It is installed for this run only, in a folder of its own. Exit status 77: there is no npm, or it reaches no registry.
set -u
command -v node npm >/dev/null || { echo "node and npm are not there: skipped"; exit 77; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/kvr-vocabulary.XXXXXX")
trap 'rm -rf "$dir"' EXIT
if ! (cd "$dir" && timeout 60 npm install --no-audit --no-fund --no-save --silent --prefix "$dir" gpt-tokenizer@4 >"$dir/log" 2>&1); then
	echo "npm does not get the package gpt-tokenizer: skipped"
	tail -3 "$dir/log"
	exit 77
fi
"$(dirname "$0")/protocol_test.sh" "$@" "$dir"
