/* SPDX-License-Identifier: BSD-3-Clause */
#include "quota_pvt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "kvr_errno.h"

#define KEPT 16u /* one of so many is for those who have little */

size_t kvr_quota_bytes(uint32_t sources)
{
	const struct kvr_quota *s = NULL;

	return sizeof(*s) + (size_t)rte_align32pow2(2 * sources) * sizeof(*s->bucket) +
	       (size_t)2 * sources * sizeof(*s->entry);
}

struct kvr_quota *kvr_quota_create(uint32_t n, uint32_t sources, uint32_t times, uint64_t seed)
{
	struct kvr_quota *s;

	if (n == 0 || sources == 0 || sources > 1u << 26)
		return kvr_null(EINVAL);
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return kvr_null(ENOMEM);
	s->seed = seed;
	s->times = times;
	s->kept = n / KEPT;	    /* of fewer one client alone may want all */
	s->n_entries = 2 * sources; /* each has a /48 at most */
	s->mask = rte_align32pow2(s->n_entries) - 1;
	s->free = NIL;
	s->bucket = malloc((s->mask + (size_t)1) * sizeof(*s->bucket));
	s->entry = calloc(s->n_entries, sizeof(*s->entry));
	if (s->bucket == NULL || s->entry == NULL) {
		kvr_quota_destroy(s);
		return kvr_null(ENOMEM);
	}
	/* Touched now: packet lcores shall have no page faults. (To set all of it to 0 is no touch:
	 * compilers make calloc() of that.) */
	memset(s->bucket, 0xff, (s->mask + (size_t)1) * sizeof(*s->bucket));
	for (size_t i = 0; i < s->n_entries * sizeof(*s->entry); i += 4096)
		*((volatile char *)s->entry + i) = 0;
	return s;
}

void kvr_quota_destroy(struct kvr_quota *s)
{
	if (s == NULL)
		return;
	free(s->bucket);
	free(s->entry);
	free(s);
}
