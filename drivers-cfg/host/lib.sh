# SPDX-License-Identifier: BSD-3-Clause
# Shared by the scripts of this folder: run and put print every change and make it only with
# --apply. Tests set SYSFS and PROCFS to a copy.
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
	[ "$apply" = yes ] || echo "(nothing was changed; use --apply)"
}
