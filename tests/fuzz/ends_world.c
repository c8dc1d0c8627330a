/* SPDX-License-Identifier: BSD-3-Clause */
#include "ends_world.h"

#include <stdlib.h>
#include <string.h>

#include "kvr_put.h"

#define WAITING 128u /* datagrams; further ones are lost */
#define KEPT	64u  /* frames of the end under test that are kept */

static const uint8_t *at, *end;
static uint64_t now_us, n_said;
static uint32_t n_in, taken;
static struct {
	struct kvr_udp_addr from;
	uint32_t len;
	_Alignas(64) uint8_t data[WORLD_FRAME];
} in[WAITING];
static struct kvr_wire_hdr said[KEPT];

void world_begin(const uint8_t *data, size_t len)
{
	at = data;
	end = data + len;
	now_us = 1000000;
	n_said = n_in = taken = 0;
	memset(said, 0, sizeof(said));
}

bool world_has_input(void)
{
	return at < end;
}

uint8_t world_take_byte(void)
{
	return at < end ? *at++ : 0;
}

uint16_t world_take_word(void)
{
	const uint16_t low = world_take_byte();

	return (uint16_t)(low | world_take_byte() << 8);
}

uint32_t world_take_size(uint32_t most)
{
	const uint32_t b = world_take_byte();
	const uint32_t n = b < 128 ? b : b < 224 ? (b - 127) * 60 : (b - 223) * most / 32;

	return n < most ? n : most;
}

/* ---- the network ---- */

struct kvr_udp_addr world_make_addr(enum world_who who)
{
	return (struct kvr_udp_addr){.ip = {[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)(who + 1)},
				     .port = (uint16_t)(7650 + who)};
}

struct kvr_udp_addr world_take_source(void)
{
	const uint8_t how = world_take_byte();

	return world_make_addr(how < 200 ? WORLD_ROUTER : how < 240 ? WORLD_PEER : WORLD_STRANGER);
}

static unsigned int send_all(void *ctx, const struct kvr_udp_msg m[], unsigned int n)
{
	(void)ctx;
	for (unsigned int i = 0; i < n; i++) {
		struct kvr_wire_hdr *h = &said[n_said++ % KEPT];

		if (m[i].len < sizeof(*h) || m[i].len > KVR_WIRE_MAX_FRAME ||
		    kvr_frame_check(m[i].data, m[i].len, KVR_ROLE_BIT_ROUTER) != 0)
			if (kvr_frame_check(m[i].data, m[i].len, KVR_ROLE_BIT_CLIENT) != 0 &&
			    kvr_frame_check(m[i].data, m[i].len, KVR_ROLE_BIT_AGENT) != 0)
				abort(); /* reports a protocol error */
		memcpy(h, m[i].data, sizeof(*h));
	}
	return n;
}

static unsigned int receive_datagrams(void *ctx, struct kvr_udp_msg m[], unsigned int n)
{
	unsigned int i;

	(void)ctx;
	for (i = 0; i < n && taken < n_in; i++, taken++)
		m[i] = (struct kvr_udp_msg){in[taken].from, in[taken].data, in[taken].len};
	if (i == 0)
		taken = n_in = 0;
	return i;
}

static uint64_t clock_us(void *ctx)
{
	(void)ctx;
	return now_us;
}

static uint64_t no_chance(void *ctx)
{
	static uint64_t n;

	(void)ctx;
	return UINT64_C(0x9e3779b97f4a7c15) * ++n;
}

static int no_fd(void *ctx)
{
	(void)ctx;
	return -1;
}

static void close_nothing(void *ctx)
{
	(void)ctx;
}

struct kvr_udp world_udp(void)
{
	static const struct kvr_udp_io io = {.send = send_all,
					     .recv = receive_datagrams,
					     .now_us = clock_us,
					     .random = no_chance,
					     .fd = no_fd,
					     .close = close_nothing};

	return (struct kvr_udp){.io = &io};
}

uint64_t world_now(void)
{
	return now_us;
}

void world_pass_time(uint64_t us)
{
	now_us += us;
}

uint64_t world_count_sent(void)
{
	return n_said;
}

/* ---- frames to the end under test ---- */

static void push_datagram(struct kvr_udp_addr from, const void *frame, uint32_t len)
{
	if (n_in == WAITING)
		return;
	in[n_in].from = from;
	in[n_in].len = len;
	memcpy(in[n_in++].data, frame, len);
}

void world_push(struct kvr_udp_addr from, const void *frame, int len)
{
	uint8_t f[WORLD_FRAME];
	const uint8_t how = world_take_byte();

	if (len <= 0)
		return;
	memcpy(f, frame, (size_t)len);
	if (how >= 224) { /* one byte is replaced */
		const uint8_t value = world_take_byte();

		f[world_take_word() % (uint32_t)len] = value;
	} else if (how >= 216) {
		len = (int)(world_take_word() % (uint32_t)len) + 1;
	}
	push_datagram(from, f, (uint32_t)len);
	if (how >= 200 && how < 208)
		push_datagram(from, f, (uint32_t)len);
}

void world_push_message(struct kvr_udp_addr from, uint8_t kind, const struct kvr_wire_ids *ids,
			const void *body, uint32_t len)
{
	static const uint32_t frames[] = {1432, 560, 568, 1400, 8952, 3000, 1432, 1432};
	const uint8_t cut = world_take_byte();
	const uint32_t lost = world_take_word() & world_take_word(),
		       twice = world_take_word() & world_take_word();
	const bool backwards = (cut & 0x80) != 0;
	uint8_t f[WORLD_FRAME];
	struct kvr_frag frag;
	uint32_t off, n;

	if (kvr_frag_init(&frag, kind, ids, len, frames[cut & 7]) < 0)
		return;
	for (uint32_t i = 0; i < frag.n_frames; i++) {
		struct kvr_frag one = frag;
		const uint32_t k = backwards ? frag.n_frames - 1 - i : i;

		kvr_frag_seek(&one, k);
		if (!kvr_frag_next(&one, f, &off, &n) || (lost >> k % 16 & 1) != 0)
			continue;
		memcpy(f + KVR_WIRE_MIN_FRAME, (const uint8_t *)body + off, n);
		push_datagram(from, f, KVR_WIRE_MIN_FRAME + n);
		if ((twice >> k % 16 & 1) != 0)
			push_datagram(from, f, KVR_WIRE_MIN_FRAME + n);
	}
	if ((cut & 0x40) != 0) { /* one more that belongs to no message */
		struct kvr_wire_hdr h;

		memcpy(&h, f, sizeof(h));
		h.msg_len = (h.msg_len + 8u * world_take_byte()) & ~7u;
		h.frag_off = (h.frag_off + 8u * world_take_byte()) & ~7u;
		memcpy(f, &h, sizeof(h));
		push_datagram(from, f, KVR_WIRE_MIN_FRAME + h.frag_len);
	}
}

const struct kvr_wire_hdr *world_sent(uint8_t kind, uint32_t back)
{
	for (uint64_t i = n_said; i > 0 && n_said - i < KEPT; i--) {
		const struct kvr_wire_hdr *h = &said[(i - 1) % KEPT];

		if (h->kind == kind && back-- == 0)
			return h;
	}
	return NULL;
}

void world_push_missing(struct kvr_udp_addr from, const struct kvr_wire_hdr *h)
{
	const uint8_t how = world_take_byte();
	struct kvr_wire_missing w;
	struct kvr_wire_ids ids;
	uint8_t f[WORLD_FRAME];
	uint64_t words[4];

	if (h == NULL || h->frag_len == h->msg_len)
		return;
	ids = (struct kvr_wire_ids){h->source, h->id, h->handle, h->epoch, 1};
	w = (struct kvr_wire_missing){.kind = h->kind,
				      .n_words = (uint16_t)(1 + (how & 3)),
				      .msg_seq = h->msg_seq - (how >> 7),
				      .msg_len = h->msg_len,
				      .unit = h->frag_off == 0 ? h->frag_len : 1384,
				      .first = (how >> 2 & 3) * 64u};
	for (uint32_t i = 0; i < 4; i++)
		words[i] = (how & 16) != 0 ? UINT64_MAX
					   : (uint64_t)world_take_word() << world_take_byte() % 48;
	world_push(from, f,
		   kvr_put_message(f, sizeof(f), KVR_MISSING, &ids,
				   (struct kvr_slice){&w, sizeof(w)},
				   (struct kvr_slice){words, w.n_words * 8u}));
}
