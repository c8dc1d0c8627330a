/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include <string.h>

#include "frame.h"

/*
 * Items of a leg. They are sent to the router, or, with --direct, handed to the client and reported
 * to the router. They are repeated until they are acknowledged.
 */

#define REPEAT_ITEMS 16u

uint32_t load_item_tokens(const struct load_slot *s, const struct load_leg *leg, uint32_t seq)
{
	if (leg->flags & (LOAD_L_PREFILL | LOAD_L_FAILED))
		return leg->flags & LOAD_L_PREFILL ? 1 : 0;
	if (seq + 1 >= leg->n_items)
		return s->prompt->osl;
	return 1 + (uint32_t)((uint64_t)seq * (s->prompt->osl - 1) / (leg->n_items - 1));
}

static uint16_t port_of(const struct load *l, const struct load_leg *leg)
{
	return load_port_of_engine(l, l->ranks[leg->rank].engine);
}

static void send_progress(struct load *l, uint32_t task, uint32_t seq, uint32_t flags)
{
	const struct load_leg *leg = load_leg(l, task);
	const struct kvr_wire_ids ids = load_leg_ids(l, task);
	struct kvr_wire_progress *p;

	p = load_message(l, port_of(l, leg), KVR_PROGRESS, &ids, sizeof(*p), NULL);
	if (p != NULL)
		*p = (struct kvr_wire_progress){
			.seq = seq,
			.flags = (uint16_t)flags,
			.generated_tokens = load_item_tokens(load_slot(l, task), leg, seq),
			.cached_tokens = leg->cached * l->opt->block_size};
}

static uint32_t item_bytes(const struct load *l, const struct load_leg *leg)
{
	if (leg->flags & LOAD_L_FAILED)
		return 0;
	return leg->flags & LOAD_L_PREFILL ? sizeof(struct load_transfer) : l->opt->item_bytes;
}

static struct kvr_wire_response item_of(const struct load *l, const struct load_slot *s,
					const struct load_leg *leg, uint32_t seq)
{
	return (struct kvr_wire_response){
		.seq = seq,
		.flags = (uint16_t)((seq + 1 == leg->n_items ? KVR_RESP_F_FIN : 0) |
				    (leg->flags & LOAD_L_FAILED ? KVR_RESP_F_ERROR : 0)),
		.generated_tokens = load_item_tokens(s, leg, seq),
		.data_len = item_bytes(l, leg),
		.cached_tokens = leg->cached * l->opt->block_size,
	};
}

static void put_data(const struct load *l, uint32_t task, uint32_t seq, uint8_t *out, uint32_t len)
{
	const uint64_t mark[2] = {l->slots[load_slot_no(task)].id, seq};

	if (task & LOAD_PREFILL) {
		const struct load_transfer t = load_pair_result(l, load_slot_no(task));

		memcpy(out, &t, sizeof(t));
		return;
	}
	memcpy(out, l->item, len);
	memcpy(out, mark, len < sizeof(mark) ? len : sizeof(mark));
}

static void send_item(struct load *l, uint32_t task, uint32_t seq)
{
	const struct kvr_wire_ids ids = load_leg_ids(l, task);
	struct load_leg *leg = load_leg(l, task);
	const uint32_t data = (item_bytes(l, leg) + 7u) & ~7u;
	uint8_t *p;

	p = load_message(l, port_of(l, leg), KVR_RESPONSE, &ids,
			 (uint16_t)(sizeof(struct kvr_wire_response) + data),
			 seq == 0 ? &leg->resp_tx : NULL);
	if (p == NULL)
		return;
	*(struct kvr_wire_response *)p = item_of(l, load_slot(l, task), leg, seq);
	put_data(l, task, seq, p + sizeof(struct kvr_wire_response), data);
}

/* Prefill legs always answer the router. */
static bool is_direct(const struct load *l, const struct load_leg *leg)
{
	return l->opt->direct && !(leg->flags & LOAD_L_PREFILL);
}

/* Items below may be sent: only the first acknowledgement proves the client's address. */
static uint32_t window_end(const struct load_leg *leg)
{
	return (leg->flags & LOAD_L_FEW) != 0 && leg->acked == 0 ? KVR_WIRE_UNPROVEN_ITEMS
								 : UINT32_MAX;
}

void load_item_make(struct load *l, uint32_t task)
{
	struct load_leg *leg = load_leg(l, task);
	const uint32_t seq = leg->made++;
	const struct kvr_wire_response item = item_of(l, load_slot(l, task), leg, seq);

	leg->elast_tx = leg->progress_at = l->now;
	if (!is_direct(l, leg)) {
		if (seq < window_end(leg))
			send_item(l, task, seq);
		return;
	}
	send_progress(l, task, seq,
		      (seq == 0 ? KVR_PROG_F_FIRST : 0) |
			      (item.flags & KVR_RESP_F_FIN ? KVR_PROG_F_FIN : 0) |
			      (item.flags & KVR_RESP_F_ERROR ? KVR_PROG_F_ERROR : 0));
	load_client_item(l, load_slot_no(task), &item, l->now);
}

void load_items_acked(struct load *l, uint32_t task, uint32_t next_seq)
{
	struct load_leg *leg = load_leg(l, task);
	const uint32_t held = window_end(leg);

	leg->acked = next_seq;
	for (uint32_t seq = held; seq < leg->made; seq++)
		send_item(l, task, seq);
	leg->etries = 0;
	leg->elast_tx = leg->progress_at = l->now;
}

void load_items_repeat(struct load *l, uint32_t task)
{
	struct load_leg *leg = load_leg(l, task);
	uint32_t last;

	leg->elast_tx = l->now;
	if (is_direct(l, leg)) { /* the last report includes all earlier ones */
		kvr_stats_inc(l->row, LOAD_ITEM_REPEATS);
		send_progress(l, task, leg->made - 1,
			      KVR_PROG_F_FIRST | (leg->made == leg->n_items ? KVR_PROG_F_FIN : 0) |
				      (leg->flags & LOAD_L_FAILED ? KVR_PROG_F_ERROR : 0));
		return;
	}
	last = leg->made < leg->acked + REPEAT_ITEMS ? leg->made : leg->acked + REPEAT_ITEMS;
	last = RTE_MIN(last, window_end(leg));
	kvr_stats_add(l->row, LOAD_ITEM_REPEATS, last - leg->acked);
	for (uint32_t seq = leg->acked; seq < last; seq++)
		send_item(l, task, seq);
}
