#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every shipped profile is a complete, valid configuration (with its CPUs replaced by an available one).
# Arguments: the kvroute program, the folder drivers-cfg/profiles.
set -eu
cpu=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
copy=$(mktemp)
trap 'rm -f "$copy"' EXIT
bad=0
for profile in "$2"/*.conf; do
	sed "s/^ingress *=.*/ingress = $cpu/; s/^control_cpus *=.*/control_cpus = $cpu/" \
		"$profile" >"$copy"
	"$1" --config "$copy" --check || { echo "FAILED: $profile"; bad=1; }
done
exit $bad
