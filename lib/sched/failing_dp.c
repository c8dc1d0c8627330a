/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that fail their requests, or reject them for lack of capacity.
 *
 * Structure. Each rank has one struct failing: a failure ratio that decays by an eighth with every
 * outcome, and a circuit breaker. `s->failing` has a bit for every rank to avoid.
 *
 *            ratio >= failure_ratio, or OVERLOADED
 *   CLOSED ------------------------------------------> OPEN <---------+
 *      ^                                                |  the pause  | a request is
 *      |                                                |  is over    | booked there
 *      +--- a request that was booked since then -------+-> HALF_OPEN +
 *           has been served
 *
 * An open rank has its bit set, a half-open rank has not, so each pause admits one request. A pause
 * is 0.5 s at first. It doubles to 4 s with every request that fails while the rank is not closed,
 * and when the rank opens again soon after it has closed.
 *
 * A request that fails after 1 s or more without a token counts as three outcomes: two consecutive
 * time-outs open the breaker. Probes of such a rank are trials: its agent ends them early, so that
 * their clients do not wait for another time-out.
 *
 * Writer: the scheduler lcore. Cost: an outcome uses the cache line of its rank; a decision
 * reads one counter while no rank fails.
 */
#include "sched_pvt.h"

#include <rte_common.h>

#define ONE	    65536u /* ratio of 1 */
#define SHIFT	    3u	   /* an outcome weighs 1/8 */
#define LATE_WEIGHT 3u	   /* eighths that a time-out weighs */
#define LATE_NS	    SECOND_NS
#define PAUSE_NS    (SECOND_NS / 2)
#define PAUSE_MOST  (4 * SECOND_NS)
#define SOON_NS	    (8 * SECOND_NS) /* reopened within this time: the pause keeps doubling */
#define PROOF	    16u		    /* tokens that prove that a rank works */

static uint32_t failure_limit(const struct kvr_sched *s)
{
	return (uint32_t)(s->conf.failure_ratio * ONE);
}

static void set_avoided(struct kvr_sched *s, uint32_t rank, bool on)
{
	bit_put(s->failing, rank, on);
	s->changed = true; /* the ranks of waiting requests may change */
}

static void pause_begin(struct kvr_sched *s, uint32_t rank, uint64_t now)
{
	struct failing *f = &s->fail[rank];

	f->state = KVR_SCHED_OPEN;
	f->until = now + f->pause_ns;
	s->fail_end = RTE_MIN(s->fail_end, f->until);
	set_avoided(s, rank, true);
}

static void open_rank(struct kvr_sched *s, uint32_t rank, bool overloaded, bool late, uint64_t now)
{
	struct failing *f = &s->fail[rank];
	const bool again =
		f->state != KVR_SCHED_CLOSED || (f->pause_ns != 0 && now - f->until < SOON_NS);

	if (s->n_failing == 0)
		s->fail_end = UINT64_MAX;
	s->n_failing += f->state == KVR_SCHED_CLOSED;
	f->pause_ns = !again || overloaded ? PAUSE_NS : RTE_MIN(2 * f->pause_ns, PAUSE_MOST);
	f->overloaded = overloaded;
	f->hangs = late;
	f->opened = now - s->still_ns;
	pause_begin(s, rank, now);
}

/* From here on `until` is the time of closing. */
static void close_rank(struct kvr_sched *s, uint32_t rank, uint64_t now)
{
	struct failing *f = &s->fail[rank];

	f->state = KVR_SCHED_CLOSED;
	f->until = now;
	f->ratio = RTE_MIN(f->ratio, failure_limit(s) / 2);
	s->n_failing--;
	set_avoided(s, rank, false);
}

void kvr_sched__fail_forget(struct kvr_sched *s, uint32_t rank)
{
	s->n_failing -= s->fail[rank].state != KVR_SCHED_CLOSED;
	s->fail[rank] = (struct failing){0};
	bit_put(s->failing, rank, false);
}

void kvr_sched__fail_due(struct kvr_sched *s, uint64_t now)
{
	if (now < s->fail_end)
		return;
	s->fail_end = UINT64_MAX;
	for (uint32_t i = 0; i < s->n_ranks; i++) {
		struct failing *f = &s->fail[s->order[i]];

		if (f->state != KVR_SCHED_OPEN)
			continue;
		if (f->until <= now) {
			f->state = KVR_SCHED_HALF_OPEN;
			set_avoided(s, s->order[i], false);
		} else {
			s->fail_end = RTE_MIN(s->fail_end, f->until);
		}
	}
}

bool kvr_sched__fail_booked(struct kvr_sched *s, uint32_t rank, uint64_t now)
{
	if (s->fail[rank].state != KVR_SCHED_HALF_OPEN)
		return false;
	pause_begin(s, rank, now);
	return s->fail[rank].hangs;
}

/* Return true if the booking began after the breaker opened. */
static bool is_probe(const struct failing *f, const struct slot *b)
{
	return f->state != KVR_SCHED_CLOSED && b->booked_at >= f->opened;
}

void kvr_sched__fail_produced(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	const struct slot *b = &s->slot[slot];
	struct failing *f = &s->fail[b->rank];

	f->produced = now - s->still_ns;
	if (is_probe(f, b) && b->generated >= PROOF)
		close_rank(s, b->rank, now);
}

static void count_failure(struct kvr_sched *s, uint32_t slot, bool late, uint64_t now)
{
	const struct slot *b = &s->slot[slot];
	struct failing *f = &s->fail[b->rank];

	f->failed++;
	f->ratio += ((ONE - f->ratio) * (late ? LATE_WEIGHT : 1)) >> SHIFT;
	if (is_probe(f, b) || (f->state == KVR_SCHED_CLOSED && f->ratio >= failure_limit(s)))
		open_rank(s, b->rank, false, late, now);
}

void kvr_sched_outcome(struct kvr_sched *s, uint32_t slot, enum kvr_sched_outcome how, uint64_t now)
{
	const uint64_t age = now - s->still_ns;
	const struct slot *b = &s->slot[slot];
	struct failing *f;
	bool late;

	if (how == KVR_SCHED_NEUTRAL || s->conf.failure_ratio == 0 ||
	    slot >= s->conf.max_requests || b->state != KVR_SLOT_BOOKED || b->probe)
		return;
	f = &s->fail[b->rank];
	late = !b->marked && age >= b->booked_at + LATE_NS;
	switch (how) {
	case KVR_SCHED_SERVED:
		f->produced = age;
		f->ratio -= f->ratio >> SHIFT;
		if (is_probe(f, b))
			close_rank(s, b->rank, now);
		break;
	case KVR_SCHED_OVERLOADED:
		f->produced = age;
		if (f->state == KVR_SCHED_CLOSED || is_probe(f, b))
			open_rank(s, b->rank, true, false, now);
		break;
	case KVR_SCHED_GIVEN_UP:
		/* The rank produces output, so it is slow for this request only. */
		if (late && f->produced <= b->booked_at)
			count_failure(s, slot, true, now);
		break;
	default:
		count_failure(s, slot, late, now);
	}
}

uint32_t kvr_sched_n_failing(const struct kvr_sched *s)
{
	return s->n_failing;
}

void kvr_sched__fail_info(const struct kvr_sched *s, uint32_t rank, struct kvr_sched_rank_info *out)
{
	const struct failing *f = &s->fail[rank];

	out->breaker = (enum kvr_sched_breaker)f->state;
	out->refuses = f->state != KVR_SCHED_CLOSED && f->overloaded;
	out->failure_ratio = (double)f->ratio / ONE;
	out->failures = f->failed;
	out->probe_at = f->until;
}
