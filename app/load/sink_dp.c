/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include "frame.h"

/*
 * Engines without clients in this program, for a packet generator: no state of a request is kept. A
 * DISPATCH (its last frame) is acknowledged and answered with one item, and a repeated one again.
 * The router drops duplicates.
 */

static void answer_dispatch(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine)
{
	struct kvr_wire_ids ids = load_answer_ids(l, h, engine);
	const uint16_t from = load_port_of_engine(l, engine);
	const uint32_t data = (l->opt->item_bytes + 7u) & ~7u;
	struct kvr_wire_dispatch_ack *a;
	struct kvr_wire_response *r;

	a = load_message(l, from, KVR_DISPATCH_ACK, &ids, sizeof(*a), NULL);
	if (a != NULL)
		*a = (struct kvr_wire_dispatch_ack){.code = 0};
	ids.msg_seq = ++l->engine_seq;
	r = load_message(l, from, KVR_RESPONSE, &ids, (uint16_t)(sizeof(*r) + data), NULL);
	if (r == NULL)
		return;
	*r = (struct kvr_wire_response){
		.flags = KVR_RESP_F_FIN, .generated_tokens = 1, .data_len = l->opt->item_bytes};
	memcpy(r + 1, l->item, data);
}

void load_sink_frame(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine)
{
	struct kvr_wire_ids ids;

	switch (h->kind) {
	case KVR_DISPATCH:
		if (h->frag_off + h->frag_len < h->msg_len)
			return;
		kvr_stats_inc(l->row, LOAD_DISPATCHES);
		answer_dispatch(l, h, engine);
		break;
	case KVR_ABORT:
		kvr_stats_inc(l->row, LOAD_ABORTS);
		ids = load_answer_ids(l, h, engine);
		load_message(l, load_port_of_engine(l, engine), KVR_ABORT_ACK, &ids, 0, NULL);
		break;
	default: /* acknowledgements */
		break;
	}
}
