/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers to agents about their events: KV_ACK. */
#include "event/event.h"
#include "lcore/out.h"

#include "kvr_message.h"

void event_ack(struct lcore *lc, const struct kvr_path *to, const struct kvr_wire_hdr *h,
	       uint32_t dp_rank, enum kvr_wire_kv_code code, const struct event_cursor *c)
{
	const struct kvr_wire_kv_ack a = {
		.next_event_id = c != NULL ? c->next : 0,
		/* Of the dump of this frame; 0 for a frame of another dump. */
		.next_dump_pos =
			c != NULL && (c->dump_id == h->id || !c->has_dump) ? c->dump_pos : 0,
		.dp_rank = dp_rank,
		.code = (uint16_t)code,
	};

	out_message(lc, to, KVR_KV_ACK, h->source, h->id, 0, &a, sizeof(a));
}

void event_tell(struct lcore *lc, const struct rank_load *load, enum kvr_wire_kv_code code,
		const struct event_cursor *c)
{
	const struct kvr_view_worker *w = kvr_view_find(lc->view, load->worker);
	const struct kvr_wire_hdr h = {.source = load->worker};

	if (w != NULL && w->epoch == load->epoch)
		event_ack(lc, &w->path, &h, load->dp_rank, code, c);
}
