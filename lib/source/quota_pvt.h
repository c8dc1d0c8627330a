/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef QUOTA_PVT_H
#define QUOTA_PVT_H

#include "kvr_quota.h"

#define NIL UINT32_MAX

struct quota_entry {
	uint64_t key;
	uint32_t held; /* 0: free */
	uint32_t next; /* next of its bucket or of the free list */
	uint32_t net;  /* entry of its /48, or NIL */
	uint32_t pad;
};

struct kvr_quota {
	uint64_t seed;
	uint32_t times;
	uint32_t reserved; /* units reserved for sources that hold few */
	uint32_t mask;
	uint32_t free;	/* list of returned entries */
	uint32_t fresh; /* first entry that was never used */
	uint32_t *bucket;
	struct quota_entry *entry;
	uint32_t n_entries;
};

#endif
