/* SPDX-License-Identifier: BSD-3-Clause */
/* Encoding and decoding of the ring of decisions. */
#include "sched/decision_ring.h"

#include <errno.h>
#include <string.h>

enum { W_STAMP, W_SOURCE, W_ID, W_AT, W_WORKER, W_WHAT, W_OVERLAP, W_SIZES };

/* W_WHAT, from the highest bit: dp_rank:32 | tries:4 | prefill:1 | pinned:1 | class:8 | err:12 |
 * result:4. */
#define SIXTEENTHS 16.0

static void put_word(struct decision_line *l, uint32_t i, uint64_t v)
{
	atomic_store_explicit(&l->w[i], v, memory_order_relaxed);
}

static uint64_t get_word(const struct decision_line *l, uint32_t i)
{
	return atomic_load_explicit(&l->w[i], memory_order_relaxed);
}

static uint32_t at_most_32(uint64_t v)
{
	return v < UINT32_MAX ? (uint32_t)v : UINT32_MAX;
}

static uint32_t bits_of(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return bits;
}

static uint64_t pack_what(const struct decision_about *who, const struct kvr_sched_decision *d)
{
	const uint32_t tries = who->tries < 15 ? who->tries : 15;

	return (uint64_t)d->dp_rank << 32 | tries << 28 | (uint32_t)who->prefill << 27 |
	       (uint32_t)d->pinned << 26 | (d->policy_class & 0xffu) << 16 |
	       ((uint32_t)d->err & 0xfffu) << 4 | (uint32_t)d->result;
}

/* Called after line and number are written: pairs with the acquire load in decision_ring_find(). */
static void chain_line(struct decision_ring *ring, uint64_t id, uint64_t number)
{
	_Atomic uint32_t *newest = &ring->newest[decision_ring_bucket(ring, id)];

	atomic_store_explicit(&ring->older[number & ring->mask],
			      atomic_load_explicit(newest, memory_order_relaxed),
			      memory_order_relaxed);
	atomic_store_explicit(newest, (uint32_t)(number + 1), memory_order_release);
}

void decision_ring_put(struct decision_ring *ring, const struct decision_about *who,
		       uint64_t now_ns, const struct kvr_sched_decision *d)
{
	const uint64_t n = atomic_load_explicit(&ring->written, memory_order_relaxed);
	const bool error = d->result == KVR_SCHED_ERROR;
	const double best =
		d->better_rank != KVR_SCHED_NO_RANK ? d->better_overlap : d->effective_overlap;
	struct decision_line *l;

	if (ring->line == NULL)
		return;
	l = &ring->line[n & ring->mask];
	put_word(l, W_STAMP, 0);
	/* The words follow the stamp that invalidates them; pairs with the fence in
	 * decision_ring_read(). */
	atomic_thread_fence(memory_order_release);
	put_word(l, W_SOURCE, who->source);
	put_word(l, W_ID, who->id);
	put_word(l, W_AT, now_ns);
	put_word(l, W_WORKER, error ? d->reject.current : d->worker);
	put_word(l, W_WHAT, pack_what(who, d));
	if (error)
		put_word(l, W_OVERLAP, 0);
	else
		put_word(l, W_OVERLAP,
			 (uint64_t)(uint32_t)(d->effective_overlap * SIXTEENTHS) << 32 |
				 (uint32_t)(best * SIXTEENTHS));
	put_word(l, W_SIZES,
		 (uint64_t)(error ? at_most_32(d->reject.limit) : d->required_blocks) << 32 |
			 at_most_32(d->waited_ns >> 10));
	/* Pairs with the acquire load in decision_ring_read(): publishes the words. */
	atomic_store_explicit(&l->w[W_STAMP],
			      (uint64_t)bits_of(error ? 0 : (float)d->cost) << 32 |
				      (uint32_t)(n + 1),
			      memory_order_release);
	/* Pairs with the acquire load in decision_ring_written(). */
	atomic_store_explicit(&ring->written, n + 1, memory_order_release);
	chain_line(ring, who->id, n);
}

/* ---- any thread ---- */

uint64_t decision_ring_written(const struct decision_ring *ring)
{
	return atomic_load_explicit(&ring->written, memory_order_acquire);
}

uint32_t decision_ring_size(const struct decision_ring *ring)
{
	return ring->line != NULL ? ring->mask + 1 : 0;
}

static void spell_out(const uint64_t w[DECISION_WORDS], uint64_t number, struct decision_brief *out)
{
	const uint32_t bits = (uint32_t)(w[W_STAMP] >> 32);

	*out = (struct decision_brief){
		.number = number,
		.source = w[W_SOURCE],
		.id = w[W_ID],
		.at_ns = w[W_AT],
		.worker = w[W_WORKER],
		.dp_rank = (uint32_t)(w[W_WHAT] >> 32),
		.result = (enum kvr_sched_result)(w[W_WHAT] & 0xf),
		.err = (enum kvr_code)(w[W_WHAT] >> 4 & 0xfff),
		.policy_class = (uint8_t)(w[W_WHAT] >> 16),
		.pinned = (w[W_WHAT] >> 26 & 1) != 0,
		.prefill = (w[W_WHAT] >> 27 & 1) != 0,
		.tries = (uint32_t)(w[W_WHAT] >> 28) & 15,
		.overlap = (double)(w[W_OVERLAP] >> 32) / SIXTEENTHS,
		.best = (double)(uint32_t)w[W_OVERLAP] / SIXTEENTHS,
		.required = (uint32_t)(w[W_SIZES] >> 32),
		/* stored in units of 1,024 ns */
		.waited_us = at_most_32((uint64_t)(uint32_t)w[W_SIZES] * 1024 / 1000),
	};
	memcpy(&out->cost, &bits, sizeof(out->cost));
}

int decision_ring_read(const struct decision_ring *ring, uint64_t number,
		       struct decision_brief *out)
{
	const uint32_t stamp = (uint32_t)(number + 1);
	const struct decision_line *l;
	uint64_t w[DECISION_WORDS];

	if (ring->line == NULL || number >= decision_ring_written(ring))
		return -ENOENT;
	l = &ring->line[number & ring->mask];
	w[W_STAMP] = atomic_load_explicit(&l->w[W_STAMP], memory_order_acquire);
	if ((uint32_t)w[W_STAMP] != stamp)
		return -ENOENT;
	for (uint32_t i = W_STAMP + 1; i < DECISION_WORDS; i++)
		w[i] = get_word(l, i);
	atomic_thread_fence(memory_order_acquire);
	if (get_word(l, W_STAMP) != w[W_STAMP])
		return -ENOENT; /* overwritten while it was read */
	spell_out(w, number, out);
	return 0;
}

/* The number that a link refers to, if it is kept and below @limit. @return UINT64_MAX: none. */
static uint64_t follow_link(const struct decision_ring *ring, uint32_t link, uint64_t limit,
			    uint64_t written)
{
	const uint64_t n = written - (uint32_t)((uint32_t)written - link) - 1;

	if (link == 0 || n >= limit || written - n > decision_ring_size(ring))
		return UINT64_MAX;
	return n;
}

int decision_ring_find(const struct decision_ring *ring, uint64_t id, const uint64_t *source,
		       uint64_t before, uint32_t *steps, struct decision_brief *out)
{
	uint64_t written, n;
	uint32_t link;

	if (ring->line == NULL)
		return -ENOENT;
	/* Pairs with the release store in chain_line(): the target line and `written` are visible.
	 */
	link = atomic_load_explicit(&ring->newest[decision_ring_bucket(ring, id)],
				    memory_order_acquire);
	written = decision_ring_written(ring);
	for (n = follow_link(ring, link, written, written); n != UINT64_MAX;
	     n = follow_link(ring, link, n, written)) {
		if (*steps == 0)
			return -EAGAIN;
		--*steps;
		link = atomic_load_explicit(&ring->older[n & ring->mask], memory_order_relaxed);
		if (n < before && decision_ring_read(ring, n, out) == 0 && out->id == id &&
		    (source == NULL || out->source == *source))
			return 0;
	}
	return -ENOENT;
}
