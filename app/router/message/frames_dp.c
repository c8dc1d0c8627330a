/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames of fragmented messages after the message is complete. Two words with one writer each count
 * the frames on their way to a scheduler, so that an ingress lcore knows how many buffers are out
 * without an atomic read-modify-write. Freeing is spread over turns.
 */
#include "message/frames.h"

#include <string.h>

#include "kvr_frame.h"

/* ---- count on the way to a scheduler ---- */

void frames_count_taken(struct job *job)
{
	_Atomic uint32_t *taken = &job->pool->live.taken[job->lcore];

	if (likely(job->moved == 0))
		return;
	/* One writer, the pool's scheduler lcore; the ring has published the frames. */
	atomic_store_explicit(taken, atomic_load_explicit(taken, memory_order_relaxed) + job->moved,
			      memory_order_relaxed);
	job->moved = 0;
}

void frames_count_back(struct lcore *lc, struct job *job)
{
	lc->moved[job->pool->number] -= job->moved;
	job->moved = 0;
}

/* ---- freeing ---- */

static void free_some(struct frame_list *list, uint32_t n)
{
	while (n-- > 0 && list->n > 0)
		rte_pktmbuf_free(list->m[--list->n]);
}

void frames_free(struct frame_list *list)
{
	free_some(list, list->n);
	buf_put(list);
}

void frames_drop(struct lcore *lc, struct frame_list *list)
{
	const bool control = lc == &lc->rt->control;

	if (control || list->n <= lc->free_left) {
		lc->free_left -= control ? 0 : list->n;
		frames_free(list);
		return;
	}
	list->next = lc->trash;
	lc->trash = list;
}

void frames_poll(struct lcore *lc)
{
	struct frame_list *list;

	while ((list = lc->trash) != NULL && lc->free_left > 0) {
		const uint32_t n = RTE_MIN(list->n, lc->free_left);

		lc->free_left -= n;
		free_some(list, n);
		if (list->n > 0)
			break;
		lc->trash = list->next;
		buf_put(list);
	}
	lc->free_left = FREE_TURN;
}

/* ---- bytes ---- */

void frames_copy(struct rte_mbuf *const m[], uint32_t unit, uint32_t off, uint32_t len, void *dst)
{
	uint8_t *to = dst;

	while (len > 0) {
		const uint8_t *body = rte_pktmbuf_mtod_offset(m[off / unit], const uint8_t *,
							      sizeof(struct kvr_wire_hdr));
		const uint32_t n = RTE_MIN(len, unit - off % unit);

		memcpy(to, body + off % unit, n);
		to += n;
		off += n;
		len -= n;
	}
}
