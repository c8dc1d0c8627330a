/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_MAILBOX_H
#define ROUTER_MAILBOX_H

/**
 * @file
 * The mailbox of a pool's scheduler: messages of state/ring_msg.h. It is an rte_ring with any
 * number of producers, or an array if the router has one polling lcore, which then fills and
 * empties it in the same turn. The array restarts at 0 when it is empty, so that every turn uses
 * the same cache lines, and only the words that telemetry reads are atomic. Both forms have the
 * same size and drop nothing: a full mailbox returns an error. Writers: packet lcores. Budget: 4 ns
 * a message with the array, 15 ns with the ring.
 */

#include <errno.h>

#include <rte_branch_prediction.h>
#include <rte_ring.h>
#include <rte_ring_peek.h>

#include "kvr_sim.h"
#include "state/pool.h"

/** Number of waiting messages, approximate. Any thread. */
static inline uint32_t mailbox_count(const struct pool *pool)
{
	const struct mailbox_array *a = &pool->live.mailbox;
	uint32_t tail;

	if (pool->mailbox != NULL)
		return rte_ring_count(pool->mailbox);
	/* Pairs with the release store in mailbox_take_finish(): a reader of the new tail also
	 * reads the new head. */
	tail = atomic_load_explicit(&a->tail, memory_order_acquire);
	return (tail - atomic_load_explicit(&a->head, memory_order_relaxed)) & a->mask;
}

/** Put a message. @return 0, or -ENOBUFS: full, the caller keeps it. */
static inline int mailbox_put(struct pool *pool, const struct sched_msg *msg)
{
	struct mailbox_array *a = &pool->live.mailbox;
	uint32_t tail, next;

	if (KVR_SIM_FAULT(NOTES))
		return -ENOBUFS;
	if (pool->mailbox != NULL)
		return rte_ring_enqueue_elem(pool->mailbox, (void *)(uintptr_t)msg, sizeof(*msg));
	/* Publishes nothing, here and below: the writer is the only reader of messages. */
	tail = atomic_load_explicit(&a->tail, memory_order_relaxed);
	next = (tail + 1) & a->mask;
	if (unlikely(next == atomic_load_explicit(&a->head, memory_order_relaxed)))
		return -ENOBUFS;
	a->v[tail] = *msg;
	atomic_store_explicit(&a->tail, next, memory_order_relaxed);
	return 0;
}

/** Read up to @pool most messages in order. mailbox_take_finish() then removes some; this lcore
 * puts none in between. Scheduler lcore. @return number read. */
static inline uint32_t mailbox_take_start(const struct pool *pool, struct sched_msg out[],
					  uint32_t most)
{
	const struct mailbox_array *a = &pool->live.mailbox;
	uint32_t head, tail, n;

	if (pool->mailbox != NULL)
		return rte_ring_dequeue_burst_elem_start(pool->mailbox, out, sizeof(out[0]), most,
							 NULL);
	head = atomic_load_explicit(&a->head, memory_order_relaxed);
	tail = atomic_load_explicit(&a->tail, memory_order_relaxed);
	for (n = 0; n < most && head != tail; head = (head + 1) & a->mask)
		out[n++] = a->v[head];
	return n;
}

/** Remove the first @pool n messages read; the others stay. */
static inline void mailbox_take_finish(struct pool *pool, uint32_t n)
{
	struct mailbox_array *a = &pool->live.mailbox;
	uint32_t head, tail;

	if (pool->mailbox != NULL) {
		rte_ring_dequeue_elem_finish(pool->mailbox, n);
		return;
	}
	if (n == 0)
		return;
	head = (atomic_load_explicit(&a->head, memory_order_relaxed) + n) & a->mask;
	tail = atomic_load_explicit(&a->tail, memory_order_relaxed);
	atomic_store_explicit(&a->head, head != tail ? head : 0, memory_order_relaxed);
	/* Pairs with the acquire load in mailbox_count(). */
	if (head == tail)
		atomic_store_explicit(&a->tail, 0, memory_order_release);
}

/** Read and remove. */
static inline uint32_t mailbox_take(struct pool *pool, struct sched_msg out[], uint32_t most)
{
	const uint32_t n = mailbox_take_start(pool, out, most);

	mailbox_take_finish(pool, n);
	return n;
}

#endif
