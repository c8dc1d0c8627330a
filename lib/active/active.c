/* SPDX-License-Identifier: BSD-3-Clause */
/* Create, destroy, figures and the invariant check. */
#include "active_pvt.h"
#include "kvr_errno.h"

#include <stdlib.h>
#include <string.h>

static void *libc_alloc(void *arg, size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

	if (p != NULL)
		memset(p, 0, bytes);
	return p;
}

static void libc_release(void *arg, void *p)
{
	free(p);
}

static uint32_t pow2_at_least(uint64_t n)
{
	uint64_t p = 16;

	while (p < n)
		p *= 2;
	return (uint32_t)p;
}

static void *take(struct kvr_active *a, uint64_t n, size_t size, bool *ok)
{
	void *p = *ok ? a->alloc(a->arg, (size_t)n * size) : NULL;

	if (p == NULL)
		*ok = false;
	return p;
}

static bool reserve(struct kvr_active *a)
{
	uint64_t runs = a->runs.max, wides = a->wides.max;
	uint32_t slots = pow2_at_least(runs + runs / 2);
	bool ok = true;

	a->index_mask = slots - 1;
	a->index_shift = 64 - (uint32_t)__builtin_ctz(slots);
	a->run = take(a, runs, sizeof(*a->run), &ok);
	a->hash = take(a, runs + 1, sizeof(*a->hash), &ok); /* same() reads beyond the last */
	a->index = take(a, slots, sizeof(*a->index), &ok);
	a->runs.free = take(a, runs, sizeof(uint32_t), &ok);
	a->wides.free = take(a, wides, sizeof(uint32_t), &ok);
	a->wide_set = take(a, wides * (a->max_ranks / 64), sizeof(uint64_t), &ok);
	a->wide_refs = take(a, wides * a->max_ranks, sizeof(uint32_t), &ok);
	a->wide_weight = take(a, wides * a->max_ranks, sizeof(uint32_t), &ok);
	a->path = take(a, a->max_prompt, sizeof(uint32_t), &ok);
	a->sum = take(a, a->max_ranks, sizeof(uint64_t), &ok);
	a->blocks = take(a, a->max_ranks, sizeof(uint32_t), &ok);
	return ok;
}

struct kvr_active *kvr_active_create(const struct kvr_active_conf *conf)
{
	struct kvr_active *a;

	if (conf->max_ranks == 0 || conf->max_runs == 0 || conf->max_wide == 0 ||
	    conf->max_prompt == 0 || conf->max_ranks > UINT32_MAX - 63 ||
	    conf->max_runs > UINT32_MAX / 4)
		return kvr_null(EINVAL);
	a = (conf->alloc ? conf->alloc : libc_alloc)(conf->arg, sizeof(*a));
	if (a == NULL)
		return kvr_null(ENOMEM);
	a->alloc = conf->alloc ? conf->alloc : libc_alloc;
	a->release = conf->release ? conf->release : libc_release;
	a->arg = conf->arg;
	a->max_ranks = (conf->max_ranks + 63) / 64 * 64;
	a->max_prompt = conf->max_prompt;
	a->runs.max = conf->max_runs;
	a->runs.used = &a->stats.runs;
	a->wides.used = &a->stats.wide;
	a->wides.max = conf->max_wide;
	a->times[0] = kvr_mix64(conf->seed + 1) | 1;
	a->times[1] = kvr_mix64(a->times[0]) | 1;
	a->next = ROOT;
	if (!reserve(a)) {
		kvr_active_destroy(a);
		return kvr_null(ENOMEM);
	}
	if (!kvr_active__kernels(ACTIVE_AVX512, &a->same, &a->spread) &&
	    !kvr_active__kernels(ACTIVE_AVX2, &a->same, &a->spread))
		kvr_active__kernels(ACTIVE_SCALAR, &a->same, &a->spread);
	return a;
}

void kvr_active_destroy(struct kvr_active *a)
{
	void *part[11];

	if (a == NULL)
		return;
	part[0] = a->run;
	part[1] = a->hash;
	part[2] = a->index;
	part[3] = a->runs.free;
	part[4] = a->wides.free;
	part[5] = a->wide_set;
	part[6] = a->wide_refs;
	part[7] = a->wide_weight;
	part[8] = a->path;
	part[9] = a->sum;
	part[10] = a->blocks;
	for (uint32_t i = 0; i < 11; i++)
		if (part[i] != NULL)
			a->release(a->arg, part[i]);
	a->release(a->arg, a);
}

const uint32_t *kvr_active_blocks(const struct kvr_active *a)
{
	return a->blocks;
}

static const struct kvr_counter counters[] = {KVR_ACTIVE_COUNTER_LIST(KVR_COUNTER_ROW)
						      KVR_COUNTER_END};
const struct kvr_stats_def kvr_active_stats_def = {"active", counters, NULL};

void kvr_active_stats_get(const struct kvr_active *a, struct kvr_active_stats *st)
{
	kvr_stats_row_copy(&st->runs, &a->stats.runs, KVR_ACTIVE_COUNTERS);
}

static const char *check_owner(const struct kvr_active *a, uint32_t run, uint32_t rank,
			       uint32_t *seen, uint32_t *bookings)
{
	const struct run *r = &a->run[run];
	const struct owner o = kvr_active__owner(a, run, rank);
	struct owner up;

	if (o.refs == 0)
		return NULL;
	++*seen;
	*bookings += o.refs;
	if (o.weight > KVR_ACTIVE_ONE)
		return "weight above one";
	if (r->parent == ROOT)
		return NULL;
	up = kvr_active__owner(a, r->parent, rank);
	if (up.refs == 0)
		return "owner of a run does not own its parent";
	return up.refs < o.refs ? "fewer bookings on the parent than on the run" : NULL;
}

static const char *check_run(const struct kvr_active *a, uint32_t run, uint64_t sum[])
{
	const struct run *r = &a->run[run];
	const struct child *c;
	uint32_t seen = 0, bookings = 0;

	if (r->len > KVR_ACTIVE_RUN || r->start + r->len > KVR_ACTIVE_RUN)
		return "run out of its slot";
	c = kvr_active__find(a, r->parent, a->hash[run][r->start]);
	if (c == NULL || c->run != run + 1)
		return "run not in the index";
	for (uint32_t rank = 0; rank < a->max_ranks; rank++) {
		const char *bad = check_owner(a, run, rank, &seen, &bookings);
		const struct owner o = kvr_active__owner(a, run, rank);

		if (bad != NULL)
			return bad;
		if (o.refs != 0)
			sum[rank] += (uint64_t)r->len * o.weight;
	}
	if (bookings != r->bookings)
		return "bookings of a run do not add up";
	return seen == r->n_owner && seen > 0 ? NULL : "owner count is wrong";
}

const char *kvr_active_check(const struct kvr_active *a)
{
	uint64_t *sum = calloc(a->max_ranks, sizeof(*sum));
	uint32_t live = 0, linked = 0;
	const char *bad = sum == NULL ? "no memory" : NULL;

	for (uint32_t run = 0; run < a->runs.fresh && bad == NULL; run++) {
		if (a->run[run].len == 0)
			continue;
		live++;
		bad = check_run(a, run, sum);
	}
	for (uint32_t i = 0; i <= a->index_mask && bad == NULL; i++)
		linked += a->index[i].run != 0;
	if (bad == NULL && (linked != live || live != a->runs.fresh - a->runs.n_free))
		bad = "index and runs differ";
	for (uint32_t r = 0; r < a->max_ranks && bad == NULL; r++)
		if (sum[r] > a->sum[r]) /* private and output blocks come on top */
			bad = "sum below the tree";
	free(sum);
	return bad;
}
