/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SNAPSHOT_PVT_H
#define SNAPSHOT_PVT_H

/**
 * @file
 * Layout of the file; see kvr_snapshot.h.
 */

#include "kvr_snapshot.h"

#define SNAP_MAGIC UINT64_C(0x0a70616e7372766b) /* "kvrsnap\n" */
#define SNAP_END   UINT64_C(0x0a646e657372766b) /* "kvrsend\n" */

struct snap_head {
	uint64_t magic;
	uint32_t version;
	uint32_t bytes; /* size of the head */
	struct kvr_snap_shape shape;
	uint64_t made_ms;
	uint64_t secret;
	uint32_t epoch;
	uint32_t reserved[3];
};
_Static_assert(sizeof(struct snap_head) == 64, "as documented");

struct snap_record {
	uint32_t kind;
	uint32_t bytes;
};

struct snap_tail {
	uint64_t magic;
	uint64_t bytes; /* before the tail */
	uint64_t digest;
	uint64_t records;
};
_Static_assert(sizeof(struct snap_tail) == 32, "as documented");

_Static_assert(sizeof(struct kvr_snap_piece) == 16 && sizeof(struct kvr_snap_owner) == 4 &&
		       sizeof(struct kvr_snap_session) == 40 &&
		       sizeof(struct kvr_snap_live) == 32 && sizeof(struct kvr_snap_worker) == 32 &&
		       sizeof(struct kvr_snap_rank) == 16,
	       "no gaps: structs are written unchanged");

#endif
