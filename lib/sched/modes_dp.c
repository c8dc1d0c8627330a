/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Table of the routing modes, and the modes without cache knowledge (section 12.1). These choose a
 * worker among the eligible ones that are not overloaded, by bookings, then its least busy eligible
 * rank. The candidates are worker indices in s->mine, scratch memory that only worker_set shares.
 */
#include "sched_pvt.h"

static uint32_t list_candidates(struct kvr_sched *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_workers; i++) {
		const struct worker *w = &s->worker[s->sorted[i]];

		for (uint32_t k = 0; k < w->dp_size; k++)
			if (test_bit(s->elig, s->order[w->at + k])) {
				s->mine[n++] = s->sorted[i];
				break;
			}
	}
	return n;
}

static uint32_t worker_load(const struct kvr_sched *s, uint32_t entry)
{
	return s->worker[entry].bookings;
}

/* Return the least loaded of the first n candidates; ties: random. */
static uint32_t pick_least_loaded(struct kvr_sched *s, const uint32_t *of, uint32_t n)
{
	uint32_t best = 0, ties = 1;

	for (uint32_t i = 1; i < n; i++) {
		if (worker_load(s, of[i]) < worker_load(s, of[best]))
			best = i, ties = 1;
		else if (worker_load(s, of[i]) == worker_load(s, of[best]) &&
			 kvr_rand_below(&s->rand, ++ties) == 0)
			best = i;
	}
	return of[best];
}

/* Return the next id after the last choice, cyclically; a query does not advance. */
static uint32_t round_robin(struct kvr_sched *s, uint32_t n, bool advance)
{
	uint32_t i = 0;

	while (s->rr_started && i < n && s->worker[s->mine[i]].id <= s->rr_last)
		i++;
	i = i < n ? i : 0;
	if (advance) {
		s->rr_started = true;
		s->rr_last = s->worker[s->mine[i]].id;
	}
	return s->mine[i];
}

static uint32_t two_choices(struct kvr_sched *s, uint32_t n, bool advance)
{
	uint32_t a, b;

	if (n == 1)
		return s->mine[0];
	a = kvr_rand_below(&s->rand, n);
	b = kvr_rand_below(&s->rand, n - 1);
	b += b >= a;
	return worker_load(s, s->mine[b]) < worker_load(s, s->mine[a]) ? s->mine[b] : s->mine[a];
}

static uint32_t least_loaded(struct kvr_sched *s, uint32_t n, bool advance)
{
	return pick_least_loaded(s, s->mine, n);
}

static uint32_t device_aware(struct kvr_sched *s, uint32_t n, bool advance)
{
	uint64_t acc_load = 0, cpu_load = 0, may;
	uint32_t cpus = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t e = s->mine[i];

		if (!s->worker[e].cpu) {
			acc_load += worker_load(s, e);
			continue;
		}
		cpu_load += worker_load(s, e);
		s->mine[i] = s->mine[cpus];
		s->mine[cpus++] = e;
	}
	if (cpus == 0 || cpus == n)
		return pick_least_loaded(s, s->mine, n);
	may = acc_load * cpus / ((uint64_t)s->conf.cuda_to_cpu_ratio * (n - cpus));
	return cpu_load < may ? pick_least_loaded(s, s->mine, cpus)
			      : pick_least_loaded(s, s->mine + cpus, n - cpus);
}

static uint32_t pick_random(struct kvr_sched *s, uint32_t n, bool advance)
{
	return s->mine[kvr_rand_below(&s->rand, n)];
}

/*
 * Every mode: X(name, needs_cache, may_wait, needs_pin, by_ttft, pick). `pick` chooses one of the
 * first n workers of s->mine and, if `advance`, records the choice; NULL: the lowest cost,
 * choose_dp.c. To add a mode, append a line and its function.
 */
#define MODES(X)                                                                                   \
	X("kv", true, true, false, false, NULL)                                                    \
	X("round-robin", false, false, false, false, round_robin)                                  \
	X("random", false, false, false, false, pick_random)                                       \
	X("power-of-two", false, false, false, false, two_choices)                                 \
	X("least-loaded", false, false, false, false, least_loaded)                                \
	X("device-aware-weighted", false, false, false, false, device_aware)                       \
	X("direct", false, false, true, false, least_loaded)                                       \
	X("ttft", true, true, false, true, NULL)

#define INFO(name, cache, wait, pin, ttft, pick) {name, cache, wait, pin, ttft},
#define NAME(name, cache, wait, pin, ttft, pick) name,
#define PICK(name, cache, wait, pin, ttft, pick) pick,

static const struct kvr_pool_mode_info modes[] = {MODES(INFO)};
static uint32_t (*const picks[])(struct kvr_sched *s, uint32_t n, bool advance) = {MODES(PICK)};
const char *const kvr_pool_mode_names[] = {MODES(NAME) NULL};

const struct kvr_pool_mode_info *kvr_pool_mode(int mode)
{
	return &modes[mode];
}

static uint32_t pick_rank(const struct kvr_sched *s, const struct worker *w)
{
	uint32_t best = NIL;

	for (uint32_t k = 0; k < w->dp_size; k++) {
		uint32_t r = s->order[w->at + k];

		if (test_bit(s->elig, r) && (best == NIL || s->requests[r] < s->requests[best]))
			best = r;
	}
	return best;
}

enum kvr_code kvr_sched__choose_simple(struct kvr_sched *s, struct choice *c,
				       struct kvr_sched_decision *d)
{
	uint32_t rank;

	if (c->pinned) {
		enum kvr_code e = kvr_sched__pin_check(s, c);

		if (e != KVR_OK)
			return e;
		rank = c->pin_rank;
	} else {
		uint32_t n;

		kvr_sched__open_set(s, c);
		for (uint32_t w = 0; w < s->words; w++)
			s->elig[w] = c->open[w] & ~s->over[w];
		n = list_candidates(s);
		if (n == 0)
			return any_bit(c->open, s->words) ? KVR_E_ALL_OVERLOADED
							  : KVR_E_NO_ENDPOINTS;
		rank = pick_rank(s, &s->worker[picks[s->conf.mode](
					    s, n, !c->req->query_only && !c->req->probe)]);
	}
	d->rank = rank;
	d->worker = s->worker[s->rank[rank].worker].id;
	d->dp_rank = s->rank[rank].dp_rank;
	d->pinned = c->pinned;
	d->required_blocks = (c->req->isl + s->conf.block_size - 1) / s->conf.block_size;
	return KVR_OK;
}
