/* SPDX-License-Identifier: BSD-3-Clause */

/* Creation and destruction of quotas. All memory is allocated and touched here. */

#include "quota_pvt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "kvr_errno.h"

#define RESERVED_FRACTION 16u /* one unit of this many is reserved for sources that hold few */

size_t kvr_quota_bytes(uint32_t sources)
{
	const struct kvr_quota *quota = NULL;

	return sizeof(*quota) + (size_t)rte_align32pow2(2 * sources) * sizeof(*quota->bucket) +
	       (size_t)2 * sources * sizeof(*quota->entry);
}

struct kvr_quota *kvr_quota_create(uint32_t n, uint32_t sources, uint32_t times, uint64_t seed)
{
	struct kvr_quota *quota;

	if (n == 0 || sources == 0 || sources > 1u << 26)
		return kvr_null(EINVAL);
	quota = calloc(1, sizeof(*quota));
	if (quota == NULL)
		return kvr_null(ENOMEM);
	quota->seed = seed;
	quota->times = times;
	quota->reserved =
		n / RESERVED_FRACTION;	/* 0 for fewer than 16 units: a lone client may take all */
	quota->n_entries = 2 * sources; /* every source may also need the entry of its /48 */
	quota->mask = rte_align32pow2(quota->n_entries) - 1;
	quota->free = NIL;
	quota->bucket = malloc((quota->mask + (size_t)1) * sizeof(*quota->bucket));
	quota->entry = calloc(quota->n_entries, sizeof(*quota->entry));
	if (quota->bucket == NULL || quota->entry == NULL) {
		kvr_quota_destroy(quota);
		return kvr_null(ENOMEM);
	}
	/*
	 * Touch the memory now, so that packet lcores take no page fault. A memset() to 0 would not
	 * do: compilers turn malloc() and memset() into calloc().
	 */
	memset(quota->bucket, 0xff, (quota->mask + (size_t)1) * sizeof(*quota->bucket));
	for (size_t i = 0; i < quota->n_entries * sizeof(*quota->entry); i += 4096)
		*((volatile char *)quota->entry + i) = 0;
	return quota;
}

void kvr_quota_destroy(struct kvr_quota *quota)
{
	if (quota == NULL)
		return;
	free(quota->bucket);
	free(quota->entry);
	free(quota);
}
