/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_NOTES_H
#define ROUTER_NOTES_H

/**
 * @file
 * Notes on their way to the scheduler of a pool (state/ring_msg.h): an rte_ring with any number of
 * producers, or, when the router has one polling lcore, an array that this lcore fills and empties
 * in the same turn. The array begins anew when it is empty, so the same few lines of the cache
 * serve every turn, and nothing is atomic but what telemetry reads. Both have the same size, and
 * drop nothing: who finds no room is told. Writers: packet lcores; with the array the one there is.
 * Budget: 4 ns a note, without the array 15.
 */

#include <errno.h>

#include <rte_branch_prediction.h>
#include <rte_ring.h>
#include <rte_ring_peek.h>

#include "kvr_sim.h"
#include "state/pool.h"

/** Notes that wait. Any thread; may be a moment old. */
static inline uint32_t notes_count(const struct pool *p)
{
	const struct note_array *a = &p->live.notes;
	uint32_t tail;

	if (p->notes != NULL)
		return rte_ring_count(p->notes);
	/* Pairs with the release store in notes_take_finish(): who sees the new tail sees the new
	 * head. */
	tail = atomic_load_explicit(&a->tail, memory_order_acquire);
	return (tail - atomic_load_explicit(&a->head, memory_order_relaxed)) & a->mask;
}

/** Put one. @return 0, or -ENOBUFS: there is no room, and it is still the caller's. */
static inline int notes_put(struct pool *p, const struct note *n)
{
	struct note_array *a = &p->live.notes;
	uint32_t tail, next;

	if (KVR_SIM_FAULT(NOTES))
		return -ENOBUFS;
	if (p->notes != NULL)
		return rte_ring_enqueue_elem(p->notes, (void *)(uintptr_t)n, sizeof(*n));
	/* Publishes nothing, here and below: notes are read by their writer only. */
	tail = atomic_load_explicit(&a->tail, memory_order_relaxed);
	next = (tail + 1) & a->mask;
	if (unlikely(next == atomic_load_explicit(&a->head, memory_order_relaxed)))
		return -ENOBUFS;
	a->v[tail] = *n;
	atomic_store_explicit(&a->tail, next, memory_order_relaxed);
	return 0;
}

/** Read up to @p most, in their order; the first of them are taken by notes_take_finish(), and
 * nothing is put meanwhile by this lcore. Scheduler lcore. @return how many. */
static inline uint32_t notes_take_start(const struct pool *p, struct note out[], uint32_t most)
{
	const struct note_array *a = &p->live.notes;
	uint32_t head, tail, n;

	if (p->notes != NULL)
		return rte_ring_dequeue_burst_elem_start(p->notes, out, sizeof(out[0]), most, NULL);
	head = atomic_load_explicit(&a->head, memory_order_relaxed);
	tail = atomic_load_explicit(&a->tail, memory_order_relaxed);
	for (n = 0; n < most && head != tail; head = (head + 1) & a->mask)
		out[n++] = a->v[head];
	return n;
}

/** Take @p n of those that have been read; the others stay. */
static inline void notes_take_finish(struct pool *p, uint32_t n)
{
	struct note_array *a = &p->live.notes;
	uint32_t head, tail;

	if (p->notes != NULL) {
		rte_ring_dequeue_elem_finish(p->notes, n);
		return;
	}
	if (n == 0)
		return;
	head = (atomic_load_explicit(&a->head, memory_order_relaxed) + n) & a->mask;
	tail = atomic_load_explicit(&a->tail, memory_order_relaxed);
	atomic_store_explicit(&a->head, head != tail ? head : 0, memory_order_relaxed);
	/* Pairs with the acquire load in notes_count(). */
	if (head == tail)
		atomic_store_explicit(&a->tail, 0, memory_order_release);
}

/** Both at once. */
static inline uint32_t notes_take(struct pool *p, struct note out[], uint32_t most)
{
	const uint32_t n = notes_take_start(p, out, most);

	notes_take_finish(p, n);
	return n;
}

#endif
