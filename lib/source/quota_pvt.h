/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SHARE_PVT_H
#define SHARE_PVT_H

#include "kvr_quota.h"

#define NIL UINT32_MAX

struct share_entry {
	uint64_t key;
	uint32_t held; /* 0: free */
	uint32_t next; /* in its bucket, or of the free ones */
	uint32_t net;  /* entry of its /48, or NIL */
	uint32_t pad;
};

struct kvr_quota {
	uint64_t seed;
	uint32_t times;
	uint32_t kept; /* of all, for those who have little */
	uint32_t mask;
	uint32_t free;	/* list of entries given back */
	uint32_t fresh; /* first never used */
	uint32_t *bucket;
	struct share_entry *entry;
	uint32_t n_entries;
};

#endif
