/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfer results of several frames. The decode leg takes its DISPATCH from what the router has,
 * perhaps long after the prefill leg has ended, so unlike other items a result is put together
 * here: in the reassembly table that ROUTE uses (its bounds, its share by source address, MISSING,
 * the low-water mark), by the lcore that joins the fragments of its agent. Whole, it goes to the
 * scheduler as a list of frames, which count as moving (lcore::moved) until that has them among the
 * waiting ones (pool::held) or has let them go. Nothing is copied before it leaves in a DISPATCH.
 *
 *   relay_fragment()   handle, path and life of every fragment are the leg's
 *   result_fragment()  -> fragment_in(), perhaps of another lcore
 *   result_whole()     padding; NOTE_LONG_RESULT
 *   scheduler          room: RESPONSE_ACK, the leg ends. No room: REJECTED NoMemory, and the agent
 *                      sends it anew, a little later, as another message
 *   note_result_again()  a copy of its first fragment: the scheduler says again which of the two
 */
#include "ingress/fragment.h"
#include "ingress/ingress.h"
#include "ingress/source.h"
#include "lcore/mailbox.h"
#include "lcore/out.h"

#include <string.h>

#include "kvr_frame.h"

/* Padding behind the data must be zero. */
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

/* Its frames have been counted as fragments; the message is refused here. */
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
	/* They count before the scheduler can say that it has them. */
	lc->moved[p->number] += l->n;
	if (unlikely(notes_put(p, &n) != 0)) {
		lc->moved[p->number] -= l->n;
		frames_drop(lc, l);
		refuse(lc, &h, from, KVR_E_NO_MEMORY);
	}
}
