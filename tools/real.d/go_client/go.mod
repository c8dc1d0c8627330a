// SPDX-License-Identifier: BSD-3-Clause
// packages.py adds the pinned module.
module kvroute.real/client

go 1.22
