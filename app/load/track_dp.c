/* SPDX-License-Identifier: BSD-3-Clause */
#include "track.h"

#include <string.h>

#include "kvr_hints.h"
#include "load.h"

static void measure_trailer(const struct load *l, struct kvr_hist *h, uint32_t us)
{
	if (us != KVR_NONE32)
		kvr_hist_add(h, us * l->us);
}

/* The times of a trailer come from one clock and must be consistent with the answer. */
static bool trailer_agrees(const struct kvr_wire_tracker *t, const struct kvr_wire_response *item)
{
	return t->osl == item->generated_tokens &&
	       (t->ttft_us == KVR_NONE32 || t->queue_us == KVR_NONE32 || t->queue_us <= t->ttft_us);
}

void load_track(struct load *l, const struct load_slot *s, const struct kvr_wire_response *item,
		uint32_t room)
{
	const uint32_t at = (uint32_t)sizeof(*item) + ((item->data_len + 7u) & ~7u);
	struct kvr_wire_tracker t;
	struct kvr_tlv_iter it;
	struct kvr_tlv tlv;

	if (!l->opt->track || !(item->flags & KVR_RESP_F_FIN) || item->seq != s->next_seq ||
	    item->hints_len > room - at)
		return;
	it = kvr_tlv_begin((const uint8_t *)item + at, item->hints_len);
	while (kvr_tlv_next(&it, &tlv) > 0) {
		if (tlv.type != KVR_HINT_TRACKER || tlv.len < sizeof(t))
			continue;
		memcpy(&t, tlv.value, sizeof(t));
		kvr_stats_inc(l->row, LOAD_TRACKED);
		if (!trailer_agrees(&t, item))
			kvr_stats_inc(l->row, LOAD_V_TRACKER);
		if (!(s->flags & LOAD_S_MEASURED))
			return;
		measure_trailer(l, &l->m->router_queue, t.queue_us);
		measure_trailer(l, &l->m->router_ttft, t.ttft_us);
		measure_trailer(l, &l->m->router_itl, t.itl_us);
		return;
	}
}
