/* SPDX-License-Identifier: BSD-3-Clause */
#include "ended.h"

#include "frame.h"

static void acknowledge_item(struct load *l, uint16_t client, const struct kvr_wire_ids *ids,
			     const struct kvr_wire_response *item)
{
	struct kvr_wire_response_ack *a;

	a = load_message(l, client, KVR_RESPONSE_ACK, ids, sizeof(*a), NULL);
	if (a != NULL)
		*a = (struct kvr_wire_response_ack){
			item->seq + 1, item->flags & KVR_RESP_F_FIN ? KVR_RACK_F_FIN : 0};
}

void load_ended_frame(struct load *l, const struct kvr_wire_hdr *h)
{
	const uint32_t slot = (uint32_t)(h->id & ((1u << LOAD_SLOT_BITS) - 1));
	const uint16_t client = (uint16_t)((h->id >> LOAD_SLOT_BITS) % l->n_clients);
	const struct kvr_wire_accepted *accepted = kvr_frame_body(h);
	struct kvr_wire_ids ids = {
		.source = h->source, .id = h->id, .handle = h->handle, .epoch = l->epoch};

	if (l->clients[client].source != h->source || slot >= l->n_slots)
		return;
	ids.msg_seq = ++l->clients[client].msg_seq;
	if (h->kind == KVR_RESPONSE) {
		acknowledge_item(l, client, &ids, kvr_frame_body(h));
	} else if (h->kind == KVR_ACCEPTED && accepted->state != KVR_STATE_QUERY &&
		   l->slots[slot].answered != h->id) {
		kvr_stats_inc(l->row, LOAD_CANCELS);
		load_message(l, client, KVR_CANCEL, &ids, 0, NULL);
	}
}
