/* SPDX-License-Identifier: BSD-3-Clause */
/* Creation, destruction, counters and the invariant check of the tree of active prompts. */
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

static void *alloc_array(struct kvr_active *active, uint64_t n, size_t size, bool *ok)
{
	void *p = *ok ? active->alloc(active->arg, (size_t)n * size) : NULL;

	if (p == NULL)
		*ok = false;
	return p;
}

static bool reserve_arrays(struct kvr_active *active)
{
	uint64_t runs = active->runs.max, wides = active->wides.max;
	uint32_t slots = pow2_at_least(runs + runs / 2);
	bool ok = true;

	active->index_mask = slots - 1;
	active->index_shift = 64 - (uint32_t)__builtin_ctz(slots);
	active->run = alloc_array(active, runs, sizeof(*active->run), &ok);
	active->hash = alloc_array(active, runs + 1, sizeof(*active->hash),
				   &ok); /* the kernel `same` reads beyond the last */
	active->index = alloc_array(active, slots, sizeof(*active->index), &ok);
	active->runs.free = alloc_array(active, runs, sizeof(uint32_t), &ok);
	active->wides.free = alloc_array(active, wides, sizeof(uint32_t), &ok);
	active->wide_set =
		alloc_array(active, wides * (active->max_ranks / 64), sizeof(uint64_t), &ok);
	active->wide_refs = alloc_array(active, wides * active->max_ranks, sizeof(uint32_t), &ok);
	active->wide_weight = alloc_array(active, wides * active->max_ranks, sizeof(uint32_t), &ok);
	active->path = alloc_array(active, active->max_prompt, sizeof(uint32_t), &ok);
	active->sum = alloc_array(active, active->max_ranks, sizeof(uint64_t), &ok);
	active->blocks = alloc_array(active, active->max_ranks, sizeof(uint32_t), &ok);
	return ok;
}

struct kvr_active *kvr_active_create(const struct kvr_active_conf *conf)
{
	struct kvr_active *active;

	if (conf->max_ranks == 0 || conf->max_runs == 0 || conf->max_wide == 0 ||
	    conf->max_prompt == 0 || conf->max_ranks > UINT32_MAX - 63 ||
	    conf->max_runs > UINT32_MAX / 4)
		return kvr_null(EINVAL);
	active = (conf->alloc ? conf->alloc : libc_alloc)(conf->arg, sizeof(*active));
	if (active == NULL)
		return kvr_null(ENOMEM);
	active->alloc = conf->alloc ? conf->alloc : libc_alloc;
	active->release = conf->release ? conf->release : libc_release;
	active->arg = conf->arg;
	active->max_ranks = (conf->max_ranks + 63) / 64 * 64;
	active->max_prompt = conf->max_prompt;
	active->runs.max = conf->max_runs;
	active->runs.used = &active->stats.runs;
	active->wides.used = &active->stats.wide;
	active->wides.max = conf->max_wide;
	active->times[0] = kvr_mix64(conf->seed + 1) | 1;
	active->times[1] = kvr_mix64(active->times[0]) | 1;
	active->next = ROOT;
	if (!reserve_arrays(active)) {
		kvr_active_destroy(active);
		return kvr_null(ENOMEM);
	}
	if (!kvr_active__kernels(ACTIVE_AVX512, &active->same, &active->spread) &&
	    !kvr_active__kernels(ACTIVE_AVX2, &active->same, &active->spread))
		kvr_active__kernels(ACTIVE_SCALAR, &active->same, &active->spread);
	return active;
}

void kvr_active_destroy(struct kvr_active *active)
{
	void *part[11];

	if (active == NULL)
		return;
	part[0] = active->run;
	part[1] = active->hash;
	part[2] = active->index;
	part[3] = active->runs.free;
	part[4] = active->wides.free;
	part[5] = active->wide_set;
	part[6] = active->wide_refs;
	part[7] = active->wide_weight;
	part[8] = active->path;
	part[9] = active->sum;
	part[10] = active->blocks;
	for (uint32_t i = 0; i < 11; i++)
		if (part[i] != NULL)
			active->release(active->arg, part[i]);
	active->release(active->arg, active);
}

const uint32_t *kvr_active_blocks(const struct kvr_active *active)
{
	return active->blocks;
}

static const struct kvr_counter counters[] = {KVR_ACTIVE_COUNTER_LIST(KVR_COUNTER_ROW)
						      KVR_COUNTER_END};
const struct kvr_stats_def kvr_active_stats_def = {"active", counters, NULL};

void kvr_active_stats_get(const struct kvr_active *active, struct kvr_active_stats *st)
{
	kvr_stats_row_copy(&st->runs, &active->stats.runs, KVR_ACTIVE_COUNTERS);
}

static const char *check_owner(const struct kvr_active *active, uint32_t run, uint32_t rank,
			       uint32_t *seen, uint32_t *bookings)
{
	const struct run *header = &active->run[run];
	const struct owner owner = kvr_active__owner(active, run, rank);
	struct owner up;

	if (owner.refs == 0)
		return NULL;
	++*seen;
	*bookings += owner.refs;
	if (owner.weight > KVR_ACTIVE_ONE)
		return "weight above one";
	if (header->parent == ROOT)
		return NULL;
	up = kvr_active__owner(active, header->parent, rank);
	if (up.refs == 0)
		return "owner of a run does not own its parent";
	return up.refs < owner.refs ? "fewer bookings on the parent than on the run" : NULL;
}

static const char *check_run(const struct kvr_active *active, uint32_t run, uint64_t sum[])
{
	const struct run *header = &active->run[run];
	const struct child *child;
	uint32_t seen = 0, bookings = 0;

	if (header->len > KVR_ACTIVE_RUN || header->start + header->len > KVR_ACTIVE_RUN)
		return "run exceeds its slot";
	child = kvr_active__find(active, header->parent, active->hash[run][header->start]);
	if (child == NULL || child->run != run + 1)
		return "run is not in the index";
	for (uint32_t rank = 0; rank < active->max_ranks; rank++) {
		const char *bad = check_owner(active, run, rank, &seen, &bookings);
		const struct owner owner = kvr_active__owner(active, run, rank);

		if (bad != NULL)
			return bad;
		if (owner.refs != 0)
			sum[rank] += (uint64_t)header->len * owner.weight;
	}
	if (bookings != header->bookings)
		return "bookings of a run do not add up";
	return seen == header->n_owner && seen > 0 ? NULL : "owner count is wrong";
}

const char *kvr_active_check(const struct kvr_active *active)
{
	uint64_t *sum = calloc(active->max_ranks, sizeof(*sum));
	uint32_t live = 0, linked = 0;
	const char *bad = sum == NULL ? "no memory" : NULL;

	for (uint32_t run = 0; run < active->runs.fresh && bad == NULL; run++) {
		if (active->run[run].len == 0)
			continue;
		live++;
		bad = check_run(active, run, sum);
	}
	for (uint32_t i = 0; i <= active->index_mask && bad == NULL; i++)
		linked += active->index[i].run != 0;
	if (bad == NULL && (linked != live || live != active->runs.fresh - active->runs.n_free))
		bad = "index and runs differ";
	for (uint32_t r = 0; r < active->max_ranks && bad == NULL; r++)
		if (sum[r] > active->sum[r]) /* the rest is private and output blocks */
			bad = "sum below the tree";
	free(sum);
	return bad;
}
