/* SPDX-License-Identifier: BSD-3-Clause */
/* The network: frames in flight, and the nodes that receive them. */
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_hash.h"

/* ---- heap of frames: by arrival, then by order of sending ---- */

static bool arrives_before(const struct flying *a, const struct flying *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->no < b->no;
}

static void push_packet(struct net *n, struct packet *p)
{
	const struct flying f = {p->at_ns, p->no, p};
	uint32_t i;

	if (n->n == n->cap) {
		n->cap = n->cap != 0 ? 2 * n->cap : 1024;
		n->heap = realloc(n->heap, n->cap * sizeof(*n->heap));
		if (n->heap == NULL)
			abort();
	}
	for (i = n->n++; i > 0 && arrives_before(&f, &n->heap[(i - 1) / 2]); i = (i - 1) / 2)
		n->heap[i] = n->heap[(i - 1) / 2];
	n->heap[i] = f;
}

struct packet *net_take(struct net *n)
{
	struct packet *top = n->heap[0].p;
	const struct flying last = n->heap[--n->n];
	uint32_t i = 0, c;

	while ((c = 2 * i + 1) < n->n) {
		if (c + 1 < n->n && arrives_before(&n->heap[c + 1], &n->heap[c]))
			c++;
		if (!arrives_before(&n->heap[c], &last))
			break;
		n->heap[i] = n->heap[c];
		i = c;
	}
	n->heap[i] = last;
	return top;
}

uint64_t net_next_ns(const struct net *n)
{
	return n->n > 0 ? n->heap[0].at_ns : SIM_NEVER;
}

void net_begin(struct sim *s)
{
	kvr_rand_init(&s->net.rand, kvr_mix64(s->plan.seed ^ 0x6e6574));
	STAILQ_INIT(&s->net.spare);
}

void net_free(struct net *n, struct packet *p)
{
	if (p->len <= SIM_PACKET)
		STAILQ_INSERT_HEAD(&n->spare, p, link);
	else
		free(p);
}

void net_end(struct sim *s)
{
	struct packet *p;

	while (s->net.n > 0)
		free(s->net.heap[--s->net.n].p);
	while ((p = STAILQ_FIRST(&s->net.spare)) != NULL) {
		STAILQ_REMOVE_HEAD(&s->net.spare, link);
		free(p);
	}
	free(s->net.heap);
	if (s->net.pcap != NULL)
		fclose(s->net.pcap);
}

/* ---- captures ---- */

static void put_be16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void capture_frame(const struct sim *s, const struct packet *p)
{
	uint8_t h[42] = {2, 0, 0, 0, 0, p->dst, 2, 0, 0, 0, 0, p->src, 8, 0, 0x45};
	const uint32_t rec[4] = {(uint32_t)(s->now_ns / SIM_S),
				 (uint32_t)(s->now_ns % SIM_S / 1000), (uint32_t)sizeof(h) + p->len,
				 (uint32_t)sizeof(h) + p->len};

	put_be16(h + 16, 28 + p->len);
	h[22] = 64;
	h[23] = 17;
	memcpy(h + 26, p->from.ip + 12, 4);
	memcpy(h + 30, p->to.ip + 12, 4);
	put_be16(h + 34, p->from.port);
	put_be16(h + 36, p->to.port);
	put_be16(h + 38, 8 + p->len);
	fwrite(rec, sizeof(rec), 1, s->net.pcap);
	fwrite(h, sizeof(h), 1, s->net.pcap);
	fwrite(p->data, p->len, 1, s->net.pcap);
}

/* ---- sending ---- */

/* Addresses: 10.r.0.1 is router r, 10.r.1.i and 10.r.2.i are its peers. */
static uint32_t node_of(const struct sim *s, const struct kvr_udp_addr *a)
{
	const uint32_t i = a->ip[15], r = a->ip[13] < s->plan.routers ? a->ip[13] : 0;

	if (a->ip[14] == 1 && i < s->plan.engines)
		return sim_engine_node(s, i, r);
	if (a->ip[14] == 2 && i < s->plan.clients)
		return sim_client_node(s, i, r);
	return r;
}

static struct packet *take_memory(struct net *n, uint32_t len)
{
	struct packet *p = STAILQ_FIRST(&n->spare);
	const size_t size = sizeof(*p) + RTE_MAX(len, SIM_PACKET);

	if (p != NULL && len <= SIM_PACKET)
		STAILQ_REMOVE_HEAD(&n->spare, link);
	else
		p = aligned_alloc(64, RTE_ALIGN_CEIL(size, 64));
	if (p == NULL)
		abort();
	return p;
}

static struct packet *make_packet(struct sim *s, uint32_t src, const struct kvr_udp_addr *to,
				  const void *data, uint32_t len)
{
	struct packet *p = take_memory(&s->net, len);

	*p = (struct packet){.no = s->net.next_no++,
			     .from = s->node[src].addr,
			     .to = *to,
			     .src = (uint8_t)src,
			     .dst = (uint8_t)node_of(s, to),
			     .len = len};
	memcpy(p->data, data, len);
	return p;
}

static uint64_t draw_delay(struct sim *s, const struct packet *p)
{
	const struct sim_plan *o = &s->plan;
	struct net *n = &s->net;
	uint64_t *last = &n->last_ns[p->src][p->dst];
	uint64_t at = s->now_ns + o->delay_us * UINT64_C(1000);

	if (o->jitter_us != 0)
		at += kvr_rand_below(&n->rand, o->jitter_us + 1) * UINT64_C(1000);
	at = RTE_MAX(at, n->clog_until_ns[p->src][p->dst]);
	at = RTE_MAX(at, *last);
	if (!n->healed && sim_chance(&n->rand, o->late))
		return at + (1 + kvr_rand_below(&n->rand, o->late_ms)) * SIM_MS;
	*last = at;
	return at;
}

static void hand_over(struct sim *s, struct packet *p)
{
	p->at_ns = draw_delay(s, p);
	sim_digest(s, p->at_ns ^ (uint64_t)p->src << 56 ^ (uint64_t)p->dst << 48,
		   kvr_hash_bytes(p->data, p->len));
	push_packet(&s->net, p);
}

void net_send(struct sim *s, uint32_t src, const struct kvr_udp_addr *to, const void *data,
	      uint32_t len)
{
	struct net *n = &s->net;
	struct packet *p = make_packet(s, src, to, data, len);

	n->sent++;
	if (n->pcap != NULL)
		capture_frame(s, p);
	if (s->now_ns < n->cut_until_ns[p->src][p->dst] ||
	    (!n->healed && sim_chance(&n->rand, s->plan.loss))) {
		n->lost++;
		net_free(n, p);
		return;
	}
	if (!n->healed) {
		if (sim_chance(&n->rand, s->plan.copies))
			hand_over(s, make_packet(s, src, to, data, len));
		p->broken = sim_chance(&n->rand, s->plan.broken);
	}
	hand_over(s, p);
}

/* ---- nodes ---- */

void node_rename(struct node *n)
{
	n->incarnation++;
	n->addr.port = (uint16_t)(4000 + n->incarnation);
}

void node_begin(struct sim *s, uint32_t no)
{
	struct node *n = &s->node[no];
	const uint32_t group = no / s->plan.routers; /* 0: router; then engines, then clients */

	*n = (struct node){.sim = s, .no = no, .router = no % s->plan.routers, .due_ns = SIM_NEVER};
	n->addr.ip[10] = n->addr.ip[11] = 0xff;
	n->addr.ip[12] = 10;
	n->addr.ip[13] = (uint8_t)n->router;
	n->addr.ip[14] = group == 0 ? 0 : group <= s->plan.engines ? 1 : 2;
	n->addr.ip[15] =
		(uint8_t)(group == 0 ? 1 : group - 1 - (n->addr.ip[14] - 1) * s->plan.engines);
	n->addr.port = group == 0 ? KVR_WIRE_PORT : 4000;
	STAILQ_INIT(&n->rx);
	STAILQ_INIT(&n->lent);
	kvr_rand_init(&n->rand, kvr_mix64(s->plan.seed + 0x100 * (no + 1)));
}

static void drop_frame(struct net *net, struct packets *q)
{
	struct packet *p;

	while ((p = STAILQ_FIRST(q)) != NULL) {
		STAILQ_REMOVE_HEAD(q, link);
		net_free(net, p);
	}
}

void node_drop(struct node *n)
{
	drop_frame(&n->sim->net, &n->rx);
	drop_frame(&n->sim->net, &n->lent);
}

void node_receive(struct sim *s, struct packet *p)
{
	struct node *n = &s->node[p->dst];

	if (!n->up || p->broken || !kvr_udp_addr_equal(&n->addr, &p->to)) {
		s->net.unaddressed++;
		net_free(&s->net, p);
	} else {
		STAILQ_INSERT_TAIL(&n->rx, p, link);
		/* The node runs soon, but not at once. */
		n->due_ns = RTE_MIN(n->due_ns, s->now_ns + kvr_rand_below(&s->net.rand, 20000));
	}
}

/* ---- the world of a library at a node ---- */

static unsigned int io_send(void *ctx, const struct kvr_udp_msg m[], unsigned int n)
{
	struct node *node = ctx;

	for (unsigned int i = 0; i < n && !node->mute; i++)
		net_send(node->sim, node->no, &m[i].addr, m[i].data, m[i].len);
	return n;
}

static unsigned int io_recv(void *ctx, struct kvr_udp_msg m[], unsigned int n)
{
	struct node *node = ctx;
	struct packet *p;
	unsigned int i;

	drop_frame(&node->sim->net, &node->lent);
	for (i = 0; i < n && (p = STAILQ_FIRST(&node->rx)) != NULL; i++) {
		STAILQ_REMOVE_HEAD(&node->rx, link);
		STAILQ_INSERT_TAIL(&node->lent, p, link);
		m[i] = (struct kvr_udp_msg){.addr = p->from, .data = p->data, .len = p->len};
	}
	return i;
}

uint64_t node_now_us(void *ctx)
{
	const struct node *node = ctx;

	return node->sim->now_ns / 1000;
}

static uint64_t io_random(void *ctx)
{
	return kvr_rand_u64(&((struct node *)ctx)->rand);
}

static int io_fd(void *ctx)
{
	RTE_SET_USED(ctx);
	return -1;
}

static void io_close(void *ctx)
{
	RTE_SET_USED(ctx);
}

struct kvr_udp node_world(struct node *n)
{
	static const struct kvr_udp_io io = {.send = io_send,
					     .recv = io_recv,
					     .now_us = node_now_us,
					     .random = io_random,
					     .fd = io_fd,
					     .close = io_close};

	return (struct kvr_udp){.io = &io, .ctx = n};
}
