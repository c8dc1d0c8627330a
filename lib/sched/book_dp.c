/* SPDX-License-Identifier: BSD-3-Clause */
/* Bookings: begin, renewal, first token, output, release, end. Each booking ends exactly once. */
#include "sched_pvt.h"

#include <rte_common.h>

static struct worker *worker_of(struct kvr_sched *s, uint32_t rank)
{
	return &s->worker[s->rank[rank].worker];
}

/* The bookings of a rank form a list in the order of renewal, oldest first. */
static void silence_add(struct kvr_sched *s, uint32_t slot)
{
	struct slot *b = &s->slot[slot];
	struct rank *r = &s->rank[b->rank];

	b->bk_next = NIL;
	b->bk_prev = r->bk_tail;
	if (r->bk_tail == NIL)
		r->bk_head = slot;
	else
		s->slot[r->bk_tail].bk_next = slot;
	r->bk_tail = slot;
}

static void silence_remove(struct kvr_sched *s, uint32_t slot)
{
	struct slot *b = &s->slot[slot];
	struct rank *r = &s->rank[b->rank];

	if (b->bk_prev == NIL)
		r->bk_head = b->bk_next;
	else
		s->slot[b->bk_prev].bk_next = b->bk_next;
	if (b->bk_next == NIL)
		r->bk_tail = b->bk_prev;
	else
		s->slot[b->bk_next].bk_prev = b->bk_prev;
}

static void renew_booking(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	struct slot *b = &s->slot[slot];

	b->renewed_at = now - s->still_ns;
	if (b->bk_next == NIL)
		return;
	silence_remove(s, slot);
	silence_add(s, slot);
}

/* One after the other. */
static bool leave_prompt(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	struct slot *b = &s->slot[slot];

	if (b->act.n_shared > AT_ONCE || s->owed.any)
		return kvr_sched__leave_prompt(s, slot, b->rank, now);
	kvr_active_free(s->active, &b->act);
	return true;
}

/* Requires that the last match of lib/active is of this prompt. */
void kvr_sched__book(struct kvr_sched *s, const struct choice *c, uint64_t now,
		     const struct kvr_sched_decision *d)
{
	const struct kvr_sched_req *req = c->req;
	struct slot *b = &s->slot[d->slot];
	const uint32_t isl = kvr_sched__exec_isl(req);
	const uint64_t left = kvr_sched__left(s, c, d);

	b->state = KVR_SLOT_BOOKED;
	b->rank = d->rank;
	b->booked_at = b->renewed_at = now - s->still_ns;
	b->marked = false;
	b->in_prefill = false;
	b->exec_isl = isl;
	b->generated = 0;
	b->probe = false;
	b->fades = req->hints != NULL && (req->hints->present & KVR_HAS_EXPECTED_OUTPUT);
	b->expected = b->fades ? req->hints->expected_output_tokens : 0;
	b->adapter = kvr_sched__lora_begin(s, req->hints);
	kvr_sched__fly(s, c, d->slot, now);
	s->requests[d->rank]++;
	worker_of(s, d->rank)->bookings++;
	worker_of(s, d->rank)->slots++;
	kvr_cell_add(&s->cnt.booked_now, 1);
	silence_add(s, d->slot);
	if (c->p.track_prefill && s->mode->needs_cache && left > 0) {
		b->pf_tokens = left;
		b->pf_duration = kvr_sched__duration(s, b->pf_tokens, isl - left);
		kvr_sched__prefill_add(s, d->slot, now);
		if (s->ttft.rest != NULL)
			kvr_sched__ttft_booked(s, b->pf_tokens, now);
	}
	if (!s->owed.any)
		kvr_sched__report(s, d->rank, now);
}

/* Book a health probe without load. */
void kvr_sched__book_probe(struct kvr_sched *s, const struct kvr_sched_decision *d, uint64_t now)
{
	struct slot *b = &s->slot[d->slot];

	b->state = KVR_SLOT_BOOKED;
	b->rank = d->rank;
	b->booked_at = b->renewed_at = now - s->still_ns;
	b->probe = b->marked = true;
	b->in_prefill = b->fades = false;
	b->exec_isl = 0;
	b->generated = UINT32_MAX; /* ignore all reports of output */
	b->act = (struct kvr_active_booking){.rank = d->rank};
	kvr_cell_add(&s->cnt.probes_now, 1);
	worker_of(s, d->rank)->slots++;
	silence_add(s, d->slot);
}

static void unbook_probe(struct kvr_sched *s, uint32_t slot)
{
	struct slot *b = &s->slot[slot];

	silence_remove(s, slot);
	worker_of(s, b->rank)->slots--;
	b->state = KVR_SLOT_FREE;
	b->rank = NIL;
	kvr_cell_add(&s->cnt.probes_ended, 1);
	kvr_cell_sub(&s->cnt.probes_now, 1);
}

/* Count the end in @p how, unless the slot is a probe. */
void kvr_sched__unbook(struct kvr_sched *s, uint32_t slot, uint64_t now, kvr_cell_t *how)
{
	struct slot *b = &s->slot[slot];
	uint32_t rank = b->rank;
	bool left;

	if (b->probe) {
		unbook_probe(s, slot);
		return;
	}
	kvr_cell_add(how, 1);
	kvr_sched__prefill_remove(s, slot, now);
	silence_remove(s, slot);
	left = leave_prompt(s, slot, now);
	kvr_sched__lora_end(s, b->adapter);
	s->requests[rank]--;
	worker_of(s, rank)->bookings--;
	worker_of(s, rank)->slots--;
	kvr_cell_sub(&s->cnt.booked_now, 1);
	b->state = KVR_SLOT_FREE;
	b->rank = NIL;
	if (left)
		kvr_sched__report(s, rank, now);
	s->changed = true;
}

/* Remove the load and keep the rank, so that its removal ends the slot. The prompt may still be
 * removed in slices, which use other fields of the slot. */
static void release_booking(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	struct slot *b = &s->slot[slot];
	const uint32_t rank = b->rank;
	struct rank *r = &s->rank[rank];

	if (b->probe) {
		silence_remove(s, slot);
	} else {
		kvr_sched__unbook(s, slot, now, &s->cnt.expired);
		worker_of(s, rank)->slots++;
		kvr_cell_add(&s->cnt.released_now, 1);
	}
	b->state = KVR_SLOT_RELEASED;
	b->rank = rank;
	b->rel_prev = NIL;
	b->rel_next = r->rel_head;
	if (r->rel_head != NIL)
		s->slot[r->rel_head].rel_prev = slot;
	r->rel_head = slot;
}

void kvr_sched__released_end(struct kvr_sched *s, uint32_t slot)
{
	struct slot *b = &s->slot[slot];

	if (b->rel_prev == NIL)
		s->rank[b->rank].rel_head = b->rel_next;
	else
		s->slot[b->rel_prev].rel_next = b->rel_next;
	if (b->rel_next != NIL)
		s->slot[b->rel_next].rel_prev = b->rel_prev;
	worker_of(s, b->rank)->slots--;
	b->state = KVR_SLOT_FREE;
	b->rank = NIL;
	if (b->probe) {
		kvr_cell_add(&s->cnt.probes_ended, 1);
		kvr_cell_sub(&s->cnt.probes_now, 1);
	} else {
		kvr_cell_add(&s->cnt.released_ended, 1);
		kvr_cell_sub(&s->cnt.released_now, 1);
	}
}

/* Prefetch the second line of a slot, which has the list links. An invalid slot gives any line. */
static void fetch_links(const struct kvr_sched *s, uint32_t slot)
{
	kvr_prefetch((const char *)&s->slot[RTE_MIN(slot, s->conf.max_requests - 1)] + 64);
}

void kvr_sched_prefetch(const struct kvr_sched *s, uint32_t slot, int step)
{
	__asm__ volatile(""); /* keeps gcc 12 from deleting calls of functions that only prefetch */
	if (slot >= s->conf.max_requests)
		return;
	if (step == 0) {
		kvr_prefetch(&s->slot[slot]);
		kvr_prefetch((const char *)&s->slot[slot] + 64);
	} else if (s->slot[slot].state == KVR_SLOT_BOOKED) {
		const struct slot *b = &s->slot[slot];

		if (step == 1) {
			kvr_prefetch(&s->rank[b->rank]);
			fetch_links(s, b->bk_prev);
			fetch_links(s, b->bk_next);
			fetch_links(s, b->pf_prev);
			fetch_links(s, b->pf_next);
		}
		kvr_active_prefetch(s->active, &b->act, step - 1);
	}
}

void kvr_sched_prefetch_route(const struct kvr_sched *s, const struct kvr_sched_req *req,
			      struct kvr_active_ahead *ahead)
{
	if (s->mode->needs_cache)
		kvr_active_prefetch_match(s->active, req->sh, req->n, ahead);
}

static bool check_booked(struct kvr_sched *s, uint32_t slot)
{
	const uint32_t state = slot < s->conf.max_requests ? s->slot[slot].state : KVR_SLOT_FREE;

	if (state == KVR_SLOT_BOOKED)
		return true;
	if (state != KVR_SLOT_RELEASED)
		kvr_cell_add(&s->cnt.late, 1);
	return false;
}

bool kvr_sched_renew(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	if (!check_booked(s, slot))
		return false;
	renew_booking(s, slot, now);
	return true;
}

static bool mark_prefill(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	struct slot *b = &s->slot[slot];

	if (b->marked)
		return false;
	b->marked = true;
	kvr_cell_add(&s->cnt.prefill_marks, 1);
	if (s->ttft.rest != NULL && b->in_prefill)
		kvr_sched__ttft_ended(s, slot, now);
	kvr_sched__prefill_remove(s, slot, now);
	kvr_sched__report(s, b->rank, now);
	kvr_sched__fail_produced(s, slot, now);
	s->changed = true;
	return true;
}

bool kvr_sched_prefill_done(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	return kvr_sched_renew(s, slot, now) && mark_prefill(s, slot, now);
}

static uint64_t blocks_of(const struct kvr_sched *s, uint64_t tokens)
{
	return (tokens + s->conf.block_size - 1) / s->conf.block_size;
}

bool kvr_sched_output(struct kvr_sched *s, uint32_t slot, uint32_t generated, uint64_t now)
{
	struct slot *b;
	uint64_t more;

	if (!kvr_sched_renew(s, slot, now))
		return false;
	if (s->owed.any)
		kvr_sched__settle(s);
	b = &s->slot[slot];
	if (generated <= b->generated)
		return true;
	mark_prefill(s, slot, now);
	more = blocks_of(s, (uint64_t)b->exec_isl + generated) -
	       blocks_of(s, (uint64_t)b->exec_isl + b->generated);
	b->generated = generated;
	kvr_sched__fail_produced(s, slot, now);
	if (more == 0 || !s->conf.track_output_blocks || !s->conf.track_active_blocks)
		return true;
	kvr_cell_add(&s->cnt.output_blocks, more);
	kvr_active_output(s->active, &b->act, (uint32_t)more);
	if (b->fades) {
		double left = 1 - (double)generated / (b->expected > 0 ? b->expected : 1);

		kvr_active_fade(s->active, &b->act,
				left <= 0 ? 0 : (uint32_t)(left * KVR_ACTIVE_ONE + 0.5));
	}
	return true;
}

static void end_released(struct kvr_sched *s, uint32_t slot)
{
	if (slot < s->conf.max_requests && s->slot[slot].state == KVR_SLOT_RELEASED)
		kvr_sched__released_end(s, slot);
}

bool kvr_sched_finish(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	if (slot < s->conf.max_requests && s->slot[slot].state == KVR_SLOT_WAITING) {
		kvr_sched__leave(s, slot);
		kvr_cell_add(&s->cnt.cancelled_waiting, 1);
		return false;
	}
	if (!check_booked(s, slot)) {
		end_released(s, slot);
		return false;
	}
	kvr_sched__unbook(s, slot, now, &s->cnt.finished);
	return true;
}

bool kvr_sched_finish_on(struct kvr_sched *s, uint32_t slot, uint32_t rank, uint64_t now)
{
	if (!check_booked(s, slot) || s->slot[slot].rank != rank)
		return false;
	return kvr_sched_finish(s, slot, now);
}

bool kvr_sched_cancel(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	if (slot < s->conf.max_requests && s->slot[slot].state == KVR_SLOT_WAITING) {
		kvr_sched__leave(s, slot);
		kvr_cell_add(&s->cnt.cancelled_waiting, 1);
		return true;
	}
	if (!check_booked(s, slot)) {
		end_released(s, slot);
		return false;
	}
	kvr_sched__unbook(s, slot, now, &s->cnt.cancelled_booked);
	return true;
}

void kvr_sched_stood_still(struct kvr_sched *s, uint64_t ns)
{
	s->still_ns = ns > s->still_ns ? ns : s->still_ns;
}

/* The bookings of each rank are in the order of renewal, so a sweep reads one head per rank. */
uint32_t kvr_sched_expire(struct kvr_sched *s, uint64_t now, uint32_t slots[], uint32_t n)
{
	const uint64_t old = now - s->still_ns;
	uint32_t done = 0;

	if (now < s->next_sweep || s->expiry_ns == 0)
		return 0;
	for (; s->sweep_rank < s->n_ranks; s->sweep_rank++) {
		const struct rank *r = &s->rank[s->order[s->sweep_rank]];

		while (r->bk_head != NIL && old > s->slot[r->bk_head].renewed_at &&
		       old - s->slot[r->bk_head].renewed_at > s->expiry_ns) {
			if (done == n)
				return done;
			slots[done++] = r->bk_head;
			/* In a pair, each leg may have waited for the other. */
			if (s->conf.role == KVR_ROLE_AGGREGATED)
				kvr_sched_outcome(s, r->bk_head, KVR_SCHED_GIVEN_UP, now);
			release_booking(s, r->bk_head, now);
		}
	}
	s->sweep_rank = 0;
	s->next_sweep = s->origin + ((now - s->origin) / SWEEP_NS + 1) * SWEEP_NS;
	return done;
}

enum kvr_sched_slot_state kvr_sched_slot_state(const struct kvr_sched *s, uint32_t slot)
{
	return slot < s->conf.max_requests ? (enum kvr_sched_slot_state)s->slot[slot].state
					   : KVR_SLOT_FREE;
}

uint32_t kvr_sched_slot_rank(const struct kvr_sched *s, uint32_t slot)
{
	return kvr_sched_slot_state(s, slot) == KVR_SLOT_BOOKED ? s->slot[slot].rank
								: KVR_SCHED_NO_RANK;
}
