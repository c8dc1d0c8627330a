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
 *   result_whole()       padding; NOTE_LONG_RESULT
 *   scheduler            accepted: RESPONSE_ACK, the leg ends. No memory: REJECTED NoMemory, and
 * the agent sends the result again later, as another message note_result_again()  a copy of the
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
static bool pad_ok(const struct frame_list *l)
{
	static const uint8_t zeros[8];
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(l->m[0], const struct kvr_wire_hdr *);
	const struct kvr_wire_response *w = kvr_frame_body(h);
	const uint32_t n = -w->data_len & 7u;
	uint8_t pad[8];

	frames_part(l->m, h->frag_len, (uint32_t)sizeof(*w) + w->data_len, n, pad);
	return memcmp(pad, zeros, n) == 0;
}

/* The frames were counted as fragments; only the message is rejected here. */
static void refuse(struct lcore *lc, const struct kvr_wire_hdr *h, const struct kvr_path *from,
		   enum kvr_code code)
{
	out_reject(lc, from, h->kind, h->source, h->id,
		   &(const struct refusal){.code = code, .handle = h->handle});
}

void result_whole(struct lcore *lc, const struct kvr_reasm_msg *msg, const struct kvr_path *from)
{
	const struct kvr_wire_hdr h = *rte_pktmbuf_mtod((struct rte_mbuf *)msg->frag[0].frame,
							const struct kvr_wire_hdr *);
	struct frame_list *l = read_list(lc, msg->n_frags);
	struct pool *p = pool_of_handle(lc->rt, h.handle);
	const struct note n = {.type = NOTE_LONG_RESULT, .handle = h.handle, .frames = l};

	if (unlikely(l == NULL)) {
		for (uint32_t i = 0; i < msg->n_frags; i++)
			rte_pktmbuf_free(msg->frag[i].frame);
		refuse(lc, &h, from, KVR_E_NO_MEMORY);
		return;
	}
	for (l->n = 0; l->n < msg->n_frags; l->n++)
		l->m[l->n] = msg->frag[l->n].frame;
	l->next = NULL;
	l->lcore = lc->index;
	path_keep(l->m[0], from);
	if (unlikely(!pad_ok(l))) {
		frames_drop(lc, l);
		refuse(lc, &h, from, KVR_E_FLAGS);
		return;
	}
	/* Count before the scheduler can take them. */
	lc->moved[p->number] += l->n;
	if (unlikely(notes_put(p, &n) != 0)) {
		lc->moved[p->number] -= l->n;
		frames_drop(lc, l);
		refuse(lc, &h, from, KVR_E_NO_MEMORY);
	}
}
