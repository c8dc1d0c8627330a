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

void fragments_taken(struct job *j)
{
	_Atomic uint32_t *taken = &j->pool->live.taken[j->lcore];

	if (likely(j->moved == 0))
		return;
	/* One writer, the pool's scheduler lcore; the ring has published the frames. */
	atomic_store_explicit(taken, atomic_load_explicit(taken, memory_order_relaxed) + j->moved,
			      memory_order_relaxed);
	j->moved = 0;
}

void fragments_back(struct lcore *lc, struct job *j)
{
	lc->moved[j->pool->number] -= j->moved;
	j->moved = 0;
}

/* ---- freeing ---- */

static void free_some(struct frame_list *l, uint32_t n)
{
	while (n-- > 0 && l->n > 0)
		rte_pktmbuf_free(l->m[--l->n]);
}

void frames_free(struct frame_list *l)
{
	free_some(l, l->n);
	buf_put(l);
}

void frames_drop(struct lcore *lc, struct frame_list *l)
{
	const bool control = lc == &lc->rt->control;

	if (control || l->n <= lc->free_left) {
		lc->free_left -= control ? 0 : l->n;
		frames_free(l);
		return;
	}
	l->next = lc->trash;
	lc->trash = l;
}

void frames_poll(struct lcore *lc)
{
	struct frame_list *l;

	while ((l = lc->trash) != NULL && lc->free_left > 0) {
		const uint32_t n = RTE_MIN(l->n, lc->free_left);

		lc->free_left -= n;
		free_some(l, n);
		if (l->n > 0)
			break;
		lc->trash = l->next;
		buf_put(l);
	}
	lc->free_left = FREE_TURN;
}

/* ---- bytes ---- */

void frames_part(struct rte_mbuf *const m[], uint32_t unit, uint32_t off, uint32_t len, void *dst)
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
