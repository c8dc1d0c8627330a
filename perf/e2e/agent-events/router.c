/* SPDX-License-Identifier: BSD-3-Clause */
#include "router.h"

#include "kvr_put.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Answers that leave after a burst. */
struct answers {
	struct kvr_udp_msg msg[KVR_UDP_BURST];
	uint8_t frame[KVR_UDP_BURST][256];
	unsigned int n;
};

static void add_answer(struct answers *out, const struct kvr_udp_addr *to,
		       const struct kvr_wire_hdr *h, uint8_t kind, const void *body, uint32_t len)
{
	struct kvr_wire_ids ids = {.source = h->source, .id = h->id, .epoch = 77};
	struct kvr_udp_msg *m = &out->msg[out->n];

	*m = (struct kvr_udp_msg){.addr = *to, .data = out->frame[out->n++]};
	m->len = (uint32_t)kvr_put_message(m->data, sizeof(out->frame[0]), kind, &ids,
					   (struct kvr_slice){body, len},
					   (struct kvr_slice){NULL, 0});
}

/* Sum one event. @return its number of blocks. */
static uint32_t take_event(struct router *r, const struct kvr_kv_event *ev)
{
	uint64_t sum = 0, sh;

	for (uint32_t i = 0; i < ev->n_blocks; i++) {
		memcpy(&sh, (const uint8_t *)ev->hashes + 8ul * i, 8);
		sum += sh;
	}
	if (ev->type == KVR_KV_STORED)
		r->stored += sum;
	else if (ev->type == KVR_KV_REMOVED)
		r->removed += sum;
	else
		atomic_fetch_add_explicit(&r->lost, 1, memory_order_relaxed);
	return ev->n_blocks;
}

static void take_events(struct router *r, struct answers *out, const struct kvr_udp_addr *from,
			const struct kvr_wire_hdr *h, uint64_t *next)
{
	const struct kvr_wire_kv_events *w = (const void *)(h + 1);
	struct kvr_wire_kv_ack ack = {.dp_rank = w->dp_rank};
	struct kvr_kv_iter it = kvr_kv_events_begin((const uint8_t *)w);
	struct kvr_kv_event ev;
	uint64_t blocks = 0;

	if ((w->flags & KVR_KV_F_DUMP) != 0) {
		atomic_fetch_add_explicit(&r->lost, 1, memory_order_relaxed);
		return;
	}
	if (w->first_event_id == *next) {
		while (kvr_kv_events_next(&it, &ev))
			blocks += take_event(r, &ev);
		*next += w->n_events;
		atomic_fetch_add_explicit(&r->blocks, blocks, memory_order_relaxed);
	} else if (w->first_event_id > *next) {
		ack.code = KVR_KV_GAP;
	}
	ack.next_event_id = *next;
	add_answer(out, from, h, KVR_KV_ACK, &ack, sizeof(ack));
}

static void *run_router(void *arg)
{
	const struct kvr_wire_welcome welcome = {
		.heartbeat_ms = 1000, .dead_ms = 60000, .max_frame = 8952};
	struct kvr_udp_msg m[KVR_UDP_BURST];
	static struct answers out;
	struct router *r = arg;
	struct pollfd p = {.fd = r->udp.io->fd(r->udp.ctx), .events = POLLIN};
	uint64_t next = 0;

	while (!atomic_load_explicit(&r->stop, memory_order_relaxed)) {
		const unsigned int n = r->udp.io->recv(r->udp.ctx, m, KVR_UDP_BURST);

		for (unsigned int i = 0; i < n; i++) {
			const struct kvr_wire_hdr *h = (const void *)m[i].data;

			if (h->kind == KVR_HELLO)
				add_answer(&out, &m[i].addr, h, KVR_WELCOME, &welcome,
					   sizeof(welcome));
			else if (h->kind == KVR_KV_EVENTS)
				take_events(r, &out, &m[i].addr, h, &next);
		}
		if (out.n > 0)
			r->udp.io->send(r->udp.ctx, out.msg, out.n);
		out.n = 0;
		if (n == 0 && r->sleeps)
			poll(&p, 1, 10);
	}
	return NULL;
}

int router_open(struct router *r)
{
	return kvr_udp_open(&r->udp, "127.0.0.1");
}

void router_start(struct router *r)
{
	atomic_store(&r->blocks, 0);
	atomic_store(&r->lost, 0);
	atomic_store(&r->stop, false);
	r->stored = r->removed = 0;
	pthread_create(&r->thread, NULL, run_router, r);
}

void router_stop(struct router *r)
{
	atomic_store(&r->stop, true);
	pthread_join(r->thread, NULL);
}

void router_address(struct router *r, char *text, size_t len)
{
	struct kvr_udp_addr at;

	kvr_udp_local(&r->udp, &at);
	snprintf(text, len, "127.0.0.1:%u", at.port);
}
