/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfer results of several frames. The decode leg needs the result perhaps long after the
 * prefill leg has ended, so unlike other items it is reassembled here: in the table of ROUTE
 * messages, with its limits, quota by source, MISSING and low-water mark, by the lcore that joins
 * the fragments of the agent. A complete result goes to the scheduler as a list of frames. They
 * count as moving (lcore::moved) until the scheduler counts them as waiting (pool_live::held) or
 * frees them. Nothing is copied before the DISPATCH.
 *
 *   relay_fragment()     handle, path and epoch of every fragment match the leg
 *   result_fragment()    -> fragment_in(), perhaps of another lcore
 *   result_whole()       padding; MSG_LONG_RESULT
 *   scheduler            accepted: RESPONSE_ACK, the leg ends. No memory: REJECTED NoMemory, and
 * the agent sends the result again later, as another message result_again()  a copy of the
 * first fragment: the scheduler repeats its answer
 */
#include "ingress/fragment.h"
#include "ingress/ingress.h"
#include "ingress/source.h"
#include "lcore/mailbox.h"
#include "lcore/out.h"

#include <string.h>

#include "kvr_frame.h"

/* Check that the padding behind the data is zero. */
static bool pad_ok(const struct frame_list *list)
{
	static const uint8_t zeros[8];
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(list->m[0], const struct kvr_wire_hdr *);
	const struct kvr_wire_response *w = kvr_frame_body(hdr);
	const uint32_t n = -w->data_len & 7u;
	uint8_t pad[8];

	frames_copy(list->m, hdr->frag_len, (uint32_t)sizeof(*w) + w->data_len, n, pad);
	return memcmp(pad, zeros, n) == 0;
}

/* The frames were counted as fragments; only the message is rejected here. */
static void reject_result(struct lcore *lc, const struct kvr_wire_hdr *hdr,
			  const struct kvr_path *from, enum kvr_code code)
{
	out_reject(lc, from, hdr->kind, hdr->source, hdr->id,
		   &(const struct rejection){.code = code, .handle = hdr->handle});
}

void result_whole(struct lcore *lc, const struct kvr_reasm_msg *msg, const struct kvr_path *from)
{
	const struct kvr_wire_hdr h = *rte_pktmbuf_mtod((struct rte_mbuf *)msg->frag[0].frame,
							const struct kvr_wire_hdr *);
	struct frame_list *list = read_list(lc, msg->n_frags);
	struct pool *pool = pool_of_handle(lc->rt, h.handle);
	const struct sched_msg n = {.type = MSG_LONG_RESULT, .handle = h.handle, .frames = list};

	if (unlikely(list == NULL)) {
		for (uint32_t i = 0; i < msg->n_frags; i++)
			rte_pktmbuf_free(msg->frag[i].frame);
		reject_result(lc, &h, from, KVR_E_NO_MEMORY);
		return;
	}
	for (list->n = 0; list->n < msg->n_frags; list->n++)
		list->m[list->n] = msg->frag[list->n].frame;
	list->next = NULL;
	list->lcore = lc->index;
	path_keep(list->m[0], from);
	if (unlikely(!pad_ok(list))) {
		frames_drop(lc, list);
		reject_result(lc, &h, from, KVR_E_FLAGS);
		return;
	}
	/* Count before the scheduler can take them. */
	lc->moved[pool->number] += list->n;
	if (unlikely(mailbox_put(pool, &n) != 0)) {
		lc->moved[pool->number] -= list->n;
		frames_drop(lc, list);
		reject_result(lc, &h, from, KVR_E_NO_MEMORY);
	}
}
