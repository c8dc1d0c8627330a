/* SPDX-License-Identifier: BSD-3-Clause */
/* Tracking data of a request, from hints of its last item. */
#include "client_pvt.h"

#include <stdlib.h>
#include <string.h>

static void take_tracker(struct client_track *k, const struct kvr_tlv *tlv)
{
	struct kvr_wire_tracker w;

	if (tlv->len < sizeof(w))
		return;
	memcpy(&w, tlv->value, sizeof(w));
	k->known = true;
	k->t.worker = w.worker;
	k->t.prefill_worker = w.prefill_worker;
	k->t.dp_rank = w.dp_rank;
	k->t.prefill_dp_rank = w.prefill_dp_rank;
	k->t.overlap_blocks = w.overlap_blocks;
	k->t.prefill_overlap_blocks = w.prefill_overlap_blocks;
	k->t.required_blocks = w.required_blocks;
	k->t.predicted_cached_tokens = w.cached_tokens;
	k->t.isl = w.isl;
	k->t.osl = w.osl;
	k->t.queue_us = w.queue_us;
	k->t.ttft_us = w.ttft_us;
	k->t.itl_us = w.itl_us;
	k->t.prefill_us = w.prefill_us;
	k->t.transfer_us = w.transfer_us;
	memcpy(&k->t.hit_rate, &w.hit_rate, sizeof(k->t.hit_rate));
}

static void take_place(struct client_req *r, const struct kvr_tlv *tlv)
{
	if (tlv->len != 16)
		return;
	r->place_known = true;
	memcpy(&r->place.worker, tlv->value, sizeof(r->place.worker));
	memcpy(&r->place.dp_rank, tlv->value + 8, sizeof(r->place.dp_rank));
}

static void take_hint(struct client_track *k, const struct kvr_tlv *tlv)
{
	if (tlv->type == KVR_HINT_TRACKER) {
		take_tracker(k, tlv);
	} else if (tlv->type == KVR_HINT_PROMPT_DETAILS && tlv->len <= sizeof(k->details)) {
		k->t.prompt_details = memcpy(k->details, tlv->value, tlv->len);
		k->t.prompt_details_len = tlv->len;
	} else if (tlv->type == KVR_HINT_TRACE_LINK && tlv->len <= sizeof(k->link)) {
		k->t.trace_link = memcpy(k->link, tlv->value, tlv->len);
		k->t.trace_link_len = tlv->len;
	}
}

void kvr_client__track(struct client_req *r, const struct kvr_wire_response *w,
		       const uint8_t *hints)
{
	struct kvr_tlv_iter it = kvr_tlv_begin(hints, w->hints_len);
	struct kvr_tlv tlv;

	free(r->track);
	r->track = calloc(1, sizeof(*r->track));
	if (r->track == NULL)
		return;
	r->track->t.cached_tokens = w->cached_tokens;
	while (kvr_tlv_next(&it, &tlv) > 0)
		if (tlv.type == KVR_HINT_RANK)
			take_place(r, &tlv);
		else
			take_hint(r->track, &tlv);
}
