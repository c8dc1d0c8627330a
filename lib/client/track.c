/* SPDX-License-Identifier: BSD-3-Clause */
/* Tracking data of a request, from hints of its last item. */
#include "client_pvt.h"

#include <stdlib.h>
#include <string.h>

static void take_tracker(struct client_track *track, const struct kvr_tlv *tlv)
{
	struct kvr_wire_tracker w;

	if (tlv->len < sizeof(w))
		return;
	memcpy(&w, tlv->value, sizeof(w));
	track->known = true;
	track->t.worker = w.worker;
	track->t.prefill_worker = w.prefill_worker;
	track->t.dp_rank = w.dp_rank;
	track->t.prefill_dp_rank = w.prefill_dp_rank;
	track->t.overlap_blocks = w.overlap_blocks;
	track->t.prefill_overlap_blocks = w.prefill_overlap_blocks;
	track->t.required_blocks = w.required_blocks;
	track->t.predicted_cached_tokens = w.cached_tokens;
	track->t.isl = w.isl;
	track->t.osl = w.osl;
	track->t.queue_us = w.queue_us;
	track->t.ttft_us = w.ttft_us;
	track->t.itl_us = w.itl_us;
	track->t.prefill_us = w.prefill_us;
	track->t.transfer_us = w.transfer_us;
	memcpy(&track->t.hit_rate, &w.hit_rate, sizeof(track->t.hit_rate));
}

static void take_place(struct client_req *req, const struct kvr_tlv *tlv)
{
	if (tlv->len != 16)
		return;
	req->place_known = true;
	memcpy(&req->place.worker, tlv->value, sizeof(req->place.worker));
	memcpy(&req->place.dp_rank, tlv->value + 8, sizeof(req->place.dp_rank));
}

static void take_hint(struct client_track *track, const struct kvr_tlv *tlv)
{
	if (tlv->type == KVR_HINT_TRACKER) {
		take_tracker(track, tlv);
	} else if (tlv->type == KVR_HINT_PROMPT_DETAILS && tlv->len <= sizeof(track->details)) {
		track->t.prompt_details = memcpy(track->details, tlv->value, tlv->len);
		track->t.prompt_details_len = tlv->len;
	} else if (tlv->type == KVR_HINT_TRACE_LINK && tlv->len <= sizeof(track->link)) {
		track->t.trace_link = memcpy(track->link, tlv->value, tlv->len);
		track->t.trace_link_len = tlv->len;
	}
}

void kvr_client__track(struct client_req *req, const struct kvr_wire_response *w,
		       const uint8_t *hints)
{
	struct kvr_tlv_iter it = kvr_tlv_begin(hints, w->hints_len);
	struct kvr_tlv tlv;

	free(req->track);
	req->track = calloc(1, sizeof(*req->track));
	if (req->track == NULL)
		return;
	req->track->t.cached_tokens = w->cached_tokens;
	while (kvr_tlv_next(&it, &tlv) > 0)
		if (tlv.type == KVR_HINT_RANK)
			take_place(req, &tlv);
		else
			take_hint(req->track, &tlv);
}
