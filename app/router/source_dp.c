/* SPDX-License-Identifier: BSD-3-Clause */
/* What one source address may use of an ingress lcore; lib/source says what a source is. */
#include "stages.h"

static bool take(struct lcore *lc, const struct kvr_path *from, enum kvr_source_bucket b)
{
	const struct kvr_source_rate *r = &lc->rt->limits[from->port].rate[b];
	struct kvr_source *s;

	if (r->each_ns == 0)
		return true;
	s = kvr_source_get(lc->sources, kvr_source_key(from), lc->now_ns);
	if (likely(kvr_source_take(s, b, r, lc->now_ns)))
		return true;
	s->refused++;
	return false;
}

bool source_control(struct lcore *lc, const struct kvr_path *from)
{
	return take(lc, from, KVR_SOURCE_CONTROL);
}
