/* SPDX-License-Identifier: BSD-3-Clause */
#include "router_peers.h"

#include <stdlib.h>
#include <string.h>

#define RECEIVED_KEPT 64u /* frames of the router that are kept */
#define SENT_KEPT     16u /* frames to the router that may be sent again */
#define CLIENTS	      3u

static const uint8_t *at, *end;

/* ---- the input ---- */

bool peers_have_input(void)
{
	return at < end;
}

uint8_t peers_take_byte(void)
{
	return at < end ? *at++ : 0;
}

uint16_t peers_take_word(void)
{
	const uint16_t low = peers_take_byte();

	return (uint16_t)(low | peers_take_byte() << 8);
}

uint32_t peers_take_size(uint32_t most)
{
	const uint32_t b = peers_take_byte();

	return RTE_MIN(b < 240 ? b & 31 : (b - 239) * 40, most);
}

/* ---- kept frames ---- */

static struct {
	uint16_t to;
	uint8_t kind;
	struct kvr_wire_ids ids;
} heard[RECEIVED_KEPT];
static uint32_t n_received;

static struct {
	uint16_t from;
	uint16_t len;
	uint8_t frame[KVR_WIRE_DEF_FRAME];
} said[SENT_KEPT];
static uint32_t n_said;

void peers_begin(const uint8_t *data, size_t len)
{
	at = data;
	end = data + len;
	n_received = n_said = 0;
	memset(said, 0, sizeof(said));
}

void peers_receive(void)
{
	const struct out *o;

	while ((o = pipeline_next(0)) != NULL) {
		const uint32_t i = n_received++ % RECEIVED_KEPT;

		if (o->len < sizeof(o->hdr))
			abort();
		heard[i].to = o->to;
		heard[i].kind = o->hdr.kind;
		heard[i].ids = (struct kvr_wire_ids){o->hdr.source, o->hdr.id, o->hdr.handle,
						     o->hdr.epoch, o->hdr.msg_seq};
	}
	pipeline_flush();
}

void peers_step(void)
{
	pipeline_step();
	peers_receive();
}

void peers_send(uint32_t from, const void *frame, int len)
{
	const uint32_t i = n_said++ % SENT_KEPT;

	if (len <= 0)
		return;
	said[i].from = (uint16_t)from;
	said[i].len = (uint16_t)RTE_MIN((size_t)len, sizeof(said[i].frame));
	memcpy(said[i].frame, frame, said[i].len);
	pipeline_send(from, frame, (size_t)len);
}

const uint8_t *peers_find(uint32_t back, uint16_t *len, uint16_t *from)
{
	const uint32_t i = (n_said - 1u - back) % SENT_KEPT;

	if (n_said <= back || said[i].len == 0)
		return NULL;
	*len = said[i].len;
	*from = said[i].from;
	return said[i].frame;
}

const struct kvr_wire_ids *peers_recall(uint8_t kind, uint32_t back, uint16_t *to)
{
	for (uint32_t i = n_received; i-- > 0 && n_received - i <= RECEIVED_KEPT;)
		if (heard[i % RECEIVED_KEPT].kind == kind && back-- == 0) {
			*to = heard[i % RECEIVED_KEPT].to;
			return &heard[i % RECEIVED_KEPT].ids;
		}
	return NULL;
}

/* ---- identities ---- */

uint32_t peers_client_port(uint32_t i)
{
	return PEER_CLIENT + i % CLIENTS;
}

struct kvr_wire_ids peers_client_ids(uint8_t who)
{
	return (struct kvr_wire_ids){
		.source = (uint64_t)world_get_round() << 8 | who % CLIENTS,
		.id = who / CLIENTS % 20 + 1,
		.epoch = 1,
		.msg_seq = who / CLIENTS % 20 + 1,
	};
}

/* Bits of one byte: worker, its epoch, and whether it uses another address. */
struct agent peers_choose_agent(void)
{
	const uint8_t b = peers_take_byte();
	const uint32_t i = b & 7;

	return (struct agent){i, (b >> 3 & 3) + 1,
			      WORLD_AGENTS + ((b >> 5) == 7 ? (i + 1) % WORLD_WORKERS : i)};
}

struct kvr_wire_ids peers_agent_ids(const struct agent *a)
{
	return (struct kvr_wire_ids){.source = world_get_worker(a->index),
				     .id = peers_take_byte() & 3,
				     .epoch = a->epoch};
}

uint32_t peers_choose_answerer(uint16_t to, uint8_t how)
{
	if ((how & 0xf0) == 0xf0)
		return how & 1 ? peers_client_port(how) : WORLD_AGENTS + (how & 7);
	return to;
}
