/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_FRAME_H
#define LOAD_FRAME_H

/**
 * @file
 * Small frames: these functions write the header and return the room for the body. Load lcore.
 */

#include "load.h"

/** Sender number of an engine, that is of its UDP port: they follow the clients. */
static inline uint16_t load_port_of_engine(const struct load *l, uint32_t engine)
{
	return (uint16_t)(l->n_clients + engine);
}

/** UDP port that a prefill engine publishes for bootstraps. */
static inline uint16_t load_bootstrap_port(const struct load *l, uint32_t engine)
{
	return (uint16_t)(l->opt->base_port + load_port_of_engine(l, engine));
}

/**
 * A whole message of @p len body bytes (a multiple of 8) from sender @p from.
 * @return its body, to be filled completely; NULL: no buffer.
 */
static inline void *load_message(struct load *l, uint16_t from, uint8_t kind,
				 const struct kvr_wire_ids *ids, uint16_t len, uint64_t *stamp)
{
	uint8_t *f = load_link_frame(l->link, from, (uint16_t)(sizeof(struct kvr_wire_hdr) + len),
				     stamp);

	if (f == NULL)
		return NULL;
	kvr_hdr_put(f, kind, ids, len, 0, len);
	return f + sizeof(struct kvr_wire_hdr);
}

/** Identity of a client's message about its request. */
static inline struct kvr_wire_ids load_client_ids(struct load *l, const struct load_slot *s)
{
	struct load_client *c = &l->clients[s->client];

	return (struct kvr_wire_ids){.source = c->source,
				     .id = s->id,
				     .handle = s->handle,
				     .epoch = l->epoch,
				     .msg_seq = ++c->msg_seq};
}

/** Identity of an engine's message about a leg. */
static inline struct kvr_wire_ids load_leg_ids(struct load *l, uint32_t task)
{
	const struct load_slot *s = load_slot(l, task);
	const struct load_leg *leg = load_leg(l, task);

	return (struct kvr_wire_ids){.source = l->clients[s->client].source,
				     .id = s->id,
				     .handle = leg->handle,
				     .epoch = l->engines[l->ranks[leg->rank].engine].epoch,
				     .msg_seq = ++l->engine_seq};
}

/** Identity of an engine's answer to a message about a request. */
static inline struct kvr_wire_ids load_answer_ids(struct load *l, const struct kvr_wire_hdr *h,
						  uint32_t engine)
{
	return (struct kvr_wire_ids){.source = h->source,
				     .id = h->id,
				     .handle = h->handle,
				     .epoch = l->engines[engine].epoch,
				     .msg_seq = ++l->engine_seq};
}

/** Identity of an engine's message about itself. */
static inline struct kvr_wire_ids load_worker_ids(struct load *l, uint32_t engine, uint64_t id)
{
	return (struct kvr_wire_ids){.source = l->engines[engine].worker,
				     .id = id,
				     .epoch = l->engines[engine].epoch,
				     .msg_seq = ++l->engine_seq};
}

#endif
