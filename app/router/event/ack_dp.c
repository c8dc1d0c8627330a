/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers to agents about their events: KV_ACK. */
#include "event/event.h"
#include "lcore/out.h"

#include "kvr_message.h"

void event_ack(struct lcore *lc, const struct kvr_path *to, const struct kvr_wire_hdr *hdr,
	       uint32_t dp_rank, enum kvr_wire_kv_code code, const struct event_cursor *cursor)
{
	const struct kvr_wire_kv_ack a = {
		.next_event_id = cursor != NULL ? cursor->next : 0,
		/* Of the dump of this frame; 0 for a frame of another dump. */
		.next_dump_pos = cursor != NULL && (cursor->dump_id == hdr->id || !cursor->has_dump)
					 ? cursor->dump_pos
					 : 0,
		.dp_rank = dp_rank,
		.code = (uint16_t)code,
	};

	out_message(lc, to, KVR_KV_ACK, hdr->source, hdr->id, 0, &a, sizeof(a));
}

void event_ack_unasked(struct lcore *lc, const struct rank_load *load, enum kvr_wire_kv_code code,
		       const struct event_cursor *cursor)
{
	const struct kvr_view_worker *worker = kvr_view_find(lc->view, load->worker);
	const struct kvr_wire_hdr h = {.source = load->worker};

	if (worker != NULL && worker->epoch == load->epoch)
		event_ack(lc, &worker->path, &h, load->dp_rank, code, cursor);
}
