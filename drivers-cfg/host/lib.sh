# SPDX-License-Identifier: BSD-3-Clause
# Shared by the scripts of this folder: every change goes through run or put, which print it and
# do it only with --apply. SYSFS and PROCFS can be set to a copy, for tests.
SYSFS=${SYSFS:-/sys}
PROCFS=${PROCFS:-/proc}
apply=no

run() { # COMMAND...
	echo "+ $*"
	[ "$apply" = no ] || "$@"
}

put() { # VALUE FILE
	echo "+ echo $1 > $2"
	[ "$apply" = no ] || printf '%s\n' "$1" >"$2"
}

die() {
	echo "$0: $*" >&2
	exit 1
}

finish() {
	[ "$apply" = yes ] || echo "(nothing was changed; --apply does it)"
}
