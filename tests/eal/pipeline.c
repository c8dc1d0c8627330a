/* SPDX-License-Identifier: BSD-3-Clause */
#include "pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/thread.h"
#include "kvr_eal.h"
#include "kvr_put.h"
#include "leak_check.h"
#include "loop/loop.h"
#include "router_rig.h"
#include "sched/session.h"
#include "threads.h"

struct router *rt;
static struct router_rig rig;
static uint32_t next_queue;
static struct out slots[4096];
static uint32_t n_out, next_out;

static void require_condition(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "pipeline: %s\n", what);
		exit(1);
	}
}

void (*pipeline_lcore_turn)(struct lcore *lc) = lcore_turn;
uint64_t pipeline_cookie;
const char *pipeline_router = "source_share = 0\n";
uint32_t pipeline_mbufs = PIPELINE_MBUFS;
uint8_t pipeline_host = 2;
uint8_t pipeline_net;
uint8_t pipeline_mac = 2;
uint32_t pipeline_block_size = 4;
const char *pipeline_port = "cookie = off\n";
uint64_t pipeline_start_ns;
uint32_t pipeline_ports = 1;
uint32_t pipeline_into;

static void load_configuration(const char *pools)
{
	const size_t room = 16384 + strlen(pools);
	char *text = malloc(room), err[300];
	size_t n;

	require_condition(text != NULL, "no memory");

	/* room for two messages of the largest size of the protocol */
	n = (size_t)snprintf(text, room,
			     "[router]\nmemory_mb = 512\nlarge_buffers = 8\nring_size = 256\n%s",
			     pipeline_router);
	for (uint32_t p = 0; p < pipeline_ports; p++)
		n += (size_t)snprintf(
			text + n, room - n,
			"[port %c]\ndevice = %s\nipv4 = 10.0.%u.1\nipv6 = fd00:%x::1\nudp_port = "
			"7650\nmbufs = %u\nanswer_arp = off\n%s",
			(int)('p' + p), rig.port[p].device, p, p, pipeline_mbufs / pipeline_ports,
			pipeline_port);
	require_condition(n + strlen(pools) < room, "configuration too long");
	strcpy(text + n, pools);
	if (rig_load(&rig, text, err, sizeof(err)) < 0) {
		fprintf(stderr, "%s\n", err);
		exit(1);
	}
	free(text);
	if (threads_used() != NULL)
		threads_configure(&rt->conf);
}

void pipeline_start(uint32_t pools)
{
	char text[1024];
	int n = snprintf(text, sizeof(text), "[pool a]\nid = 5\n" PIPELINE_POOL);

	if (pools > 1)
		snprintf(text + n, sizeof(text) - (size_t)n,
			 "[pool b]\nid = 6\nrouter_queue_threshold = 0.5\n" PIPELINE_POOL);
	pipeline_start_with(text);
}

void pipeline_start_with(const char *pools)
{
	static bool eal;
	const struct threads_map *map = threads_used();
	const struct rig_sizes sizes = {
		.ports = pipeline_ports,
		.queues = map == NULL	     ? 1
			  : map->queues != 0 ? map->queues
					     : map->ingress,
		.to = 8192,
		.from = 16384,
		.frames = 16383,
	};
	struct kvr_port_info info;
	char err[300] = "";

	if (!eal && threads_used() != NULL)
		threads_eal("600");
	else if (!eal)
		kvr_eal_start("600");
	eal = true;
	require_condition(rig_open(&rig, &sizes) == 0, "no memory");
	rt = rig.rt;
	rig.threads = threads_used() != NULL;
	next_queue = 0;
	load_configuration(pools);
	require_condition(rig_start(&rig, pipeline_start_ns, 0, err, sizeof(err)) == 0, err);
	if (threads_used() != NULL) {
		kvr_port_info(rt->port[0], &info);
		threads_show_port(info.ethdev);
		threads_start();
	}
}

void pipeline_stop(void)
{
	pipeline_turn();
	pipeline_cut();
}

void pipeline_cut(void)
{
	pipeline_flush();
	if (threads_used() != NULL)
		threads_stop();
	rig_stop(&rig);
	require_condition(rte_mempool_in_use_count(rig.frames) == 0, "frames left after the stop");
	rig_close(&rig);
	rt = NULL;
}

uint32_t pipeline_queue = PIPELINE_SPREAD;

static void collect_frames(void);

/* The router or its peers have too much queued. @param since of threads_wait() */
static void let_router_work(uint64_t *since)
{
	if (threads_are_running()) {
		collect_frames();
		threads_wait(since);
	} else {
		pipeline_turn();
	}
}

/*
 * Lcores share a queue: if the kernel deschedules one of them, its ring may receive all frames, and
 * frames beyond its size are lost (spread_full). A sender must check before it sends.
 */
static bool is_ring_half_full(const struct rig_port *p)
{
	uint32_t n = kvr_port_waiting(rt->port[pipeline_into]);

	if (rt->conf.n_ingress <= rig.n_queues)
		return false;
	for (uint32_t q = 0; q < rig.n_queues; q++)
		n += rte_ring_count(p->to[q]);
	return n >= KVR_PORT_RING / 2;
}

static void put_into_port(struct rte_mbuf *m)
{
	const uint32_t q = pipeline_queue == PIPELINE_SPREAD ? next_queue++ : pipeline_queue;
	struct rte_ring *to = rig.port[pipeline_into].to[q % rig.n_queues];
	uint64_t since = 0;

	while (is_ring_half_full(&rig.port[pipeline_into]) || rte_ring_enqueue(to, m) != 0)
		let_router_work(&since);
}

bool pipeline_ipv6;

void pipeline_send(uint32_t from, const void *payload, size_t len)
{
	struct kvr_path peer = {.udp_port = (uint16_t)from, .family = 4};
	struct rte_mbuf *m;
	uint64_t since = 0;

	kvr_ip_parse("10.0.0.2", peer.ip);
	peer.ip[14] = pipeline_net;
	peer.ip[15] = pipeline_host;
	if (pipeline_ipv6) {
		peer.family = 6;
		kvr_ip_parse("fd00::2", peer.ip);
	}
	while ((m = rig_frame(&rig, pipeline_into, &peer, payload, len)) == NULL &&
	       threads_are_running())
		let_router_work(&since);
	require_condition(m != NULL, "no peer mbuf, or payload too long");
	rte_pktmbuf_mtod(m, uint8_t *)[11] = pipeline_mac;
	put_into_port(m);
}

void pipeline_send_raw(const void *bytes, size_t len)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(rig.frames);

	require_condition(m != NULL, "no peer mbuf");
	memcpy(rte_pktmbuf_append(m, (uint16_t)len), bytes, len);
	put_into_port(m);
}

static void collect_queue(struct rte_ring *from)
{
	struct kvr_path to;
	struct rte_mbuf *m;

	while (rte_ring_dequeue(from, (void **)&m) == 0) {
		const uint32_t headers = rig_payload(m, &to);

		if (headers != 0 && n_out < RTE_DIM(slots)) {
			struct out *o = &slots[n_out++];

			o->to = to.udp_port;
			memcpy(o->mac, rte_pktmbuf_mtod(m, uint8_t *), sizeof(o->mac));
			o->len = m->pkt_len - headers;
			memcpy(o->bytes, rte_pktmbuf_mtod_offset(m, uint8_t *, headers),
			       RTE_MIN(o->len, sizeof(o->bytes)));
		}
		rte_pktmbuf_free(m);
	}
}

static void collect_frames(void)
{
	for (uint32_t p = 0; p < rig.n_ports; p++)
		for (uint32_t q = 0; q < rig.n_queues; q++)
			collect_queue(rig.port[p].from[q]);
}

void pipeline_collect(void)
{
	collect_frames();
}

void pipeline_pause(uint32_t ms)
{
	threads_pause();
	rt->ns_offset += ms * UINT64_C(1000000);
}

/* As if there had been one round every millisecond. */
static void advance_live_clock(struct kvr_live_clock *l, uint64_t ns)
{
	l->now_ns += ns;
	l->real_ns += ns;
}

void pipeline_skip_ns(uint64_t ns)
{
	threads_pause();
	rt->ns_offset += ns;
	advance_live_clock(&rt->ctl->live, ns);
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		advance_live_clock(&rt->lcore[i]->quiet, ns);
	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++)
		kvr_registry_at(rt->registry, i)->last_seen_ns += ns;
}

void pipeline_skip(uint32_t ms)
{
	pipeline_skip_ns(ms * UINT64_C(1000000));
}

void pipeline_advance(uint32_t ms)
{
	pipeline_skip(ms);
	pipeline_turn();
}

bool pipeline_still;

void pipeline_step(void)
{
	threads_pause(); /* every turn reads the clock */
	rt->ns_offset += rig_under_way(&rig) ? 20000 : pipeline_still ? 0 : 1000;
	rt->last_tick_ns = 0; /* every round runs a tick */
	if (threads_used() == NULL) {
		pipeline_lcore_turn(rt->lcore[0]);
		control_round(rt);
	} else {
		threads_run();
		control_round(rt);
		threads_pass_two_turns();
		threads_pause();
	}
	collect_frames();
}

void pipeline_turn(void)
{
	uint32_t quiet = 0;

	/* Three turns without a frame in or out: the rings between stages are then empty, too. */
	while (quiet < 3) {
		uint32_t before = n_out;
		bool idle = !rig_unread(&rig);

		pipeline_step();
		idle = idle && !rig_under_way(&rig) &&
		       (threads_used() == NULL || threads_are_idle());
		quiet = idle && n_out == before ? quiet + 1 : 0;
	}
}

const struct out *pipeline_next(uint32_t to)
{
	if (threads_are_running())
		collect_frames();
	while (next_out < n_out) {
		const struct out *o = &slots[next_out++];

		if (to == 0 || o->to == to)
			return o;
	}
	return NULL;
}

const struct out *pipeline_expect(uint32_t to, uint8_t kind)
{
	for (uint32_t i = 0; i < n_out; i++)
		if (slots[i].to == to && slots[i].hdr.kind == kind) {
			static struct out found;

			found = slots[i];
			slots[i].to = 0; /* taken */
			return &found;
		}
	return NULL;
}

void pipeline_flush(void)
{
	n_out = next_out = 0;
}

uint32_t pipeline_mbufs_used(void)
{
	collect_frames();
	return rig_mbufs_used(&rig);
}

bool pipeline_balanced(void)
{
	return leak_check_balanced(rt);
}

bool pipeline_at_rest(void)
{
	collect_frames();
	return leak_check_all(&rig);
}

bool pipeline_hello_as(const struct pipeline_worker *w)
{
	const struct kvr_wire_ids ids = {.source = w->id, .id = 1, .epoch = w->epoch};
	const struct kvr_wire_hello h = {
		.block_size = pipeline_block_size,
		.dp_size = w->ranks,
		.max_num_batched_tokens = 64,
		.total_kv_blocks = w->kv_blocks != 0 ? w->kv_blocks : 1000,
		.max_frame = 1432,
		.role = w->role,
	};
	uint8_t tlv[512], buf[1024];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	int len;

	kvr_hint_put_str(&hints, KVR_HINT_POOL, w->pool);
	if (w->topology != NULL)
		kvr_hint_put_str(&hints, KVR_HINT_TOPOLOGY, w->topology);
	if (w->domain != NULL)
		kvr_hint_put_kv_transfer(&hints, w->enforcement, 0.5, w->domain);
	if (w->host != NULL)
		kvr_hint_put_bootstrap_addr(&hints, w->port, w->host);
	len = kvr_put_hello(buf, sizeof(buf), &ids, h, &hints);
	require_condition(len > 0, "hello");
	pipeline_send(w->from, buf, (size_t)len);
	pipeline_turn();
	return pipeline_expect(w->from, KVR_WELCOME) != NULL;
}

uint32_t pipeline_epoch(uint64_t handle)
{
	const uint32_t pool = kvr_flight_handle_pool(handle);
	const struct kvr_flight *r = handle != 0 && pool < rt->n_pools
					     ? kvr_flight_by_handle(rt->pool[pool].requests, handle)
					     : NULL;

	return r != NULL && r->relay.epoch != 0 ? r->relay.epoch : 1;
}

bool pipeline_hello(uint64_t id, uint32_t epoch, const char *pool, uint32_t ranks)
{
	return pipeline_hello_as(&(const struct pipeline_worker){
		.id = id, .epoch = epoch, .pool = pool, .ranks = ranks, .from = PEER_AGENT});
}

uint32_t pipeline_body_len = 4;
uint32_t pipeline_deadline_ms;
uint8_t pipeline_kind = KVR_ROUTE;
uint16_t pipeline_pool = 5;
uint16_t pipeline_client_frame;
bool pipeline_together;

/* Send a request whose prompt and counts are set: all its frames, one device ring at a time. */
static void send_route(struct kvr_request_src *src, uint64_t id, const struct kvr_hint_buf *hints)
{
	static const uint8_t body[KVR_WIRE_MAX_BODY] = "body";
	const struct kvr_wire_ids ids = {
		.source = 77, .id = id, .epoch = 1, .msg_seq = (uint32_t)id};
	struct kvr_slice s[KVR_REQUEST_SLICES];
	struct kvr_frag frag;
	uint32_t len, off, part;
	uint8_t frame[KVR_WIRE_DEF_FRAME];

	src->fixed.pool = pipeline_pool;
	src->fixed.worker = pipeline_cookie;
	src->fixed.max_tokens = KVR_NONE32;
	src->fixed.expected_output_tokens = KVR_NONE32;
	src->fixed.deadline_ms = pipeline_deadline_ms;
	src->fixed.client_frame = pipeline_client_frame;
	src->body = body;
	src->body_len = pipeline_body_len;
	if (hints != NULL) {
		src->hints = hints->p;
		src->hints_len = hints->len;
	}
	len = kvr_request_build(src, s);
	require_condition(
		len != 0 && kvr_frag_init(&frag, pipeline_kind, &ids, len, sizeof(frame)) == 0,
		"route");
	while (kvr_frag_next(&frag, frame, &off, &part)) {
		kvr_slices_copy(s, KVR_REQUEST_SLICES, off, part,
				frame + sizeof(struct kvr_wire_hdr));
		pipeline_send(PEER_CLIENT, frame, sizeof(struct kvr_wire_hdr) + part);
	}
	if (!pipeline_together)
		pipeline_turn();
}

void pipeline_route(uint64_t id, uint64_t hash0, uint32_t n, uint32_t flags,
		    const struct kvr_hint_buf *hints)
{
	static uint64_t hash[KVR_WIRE_MAX_HASHES];
	struct kvr_request_src src = {
		.fixed = {.flags = flags, .isl = n * 4}, .hashes = hash, .n_hashes = n};

	for (uint32_t i = 0; i < n; i++)
		hash[i] = hash0 + i;
	send_route(&src, id, hints);
}

void pipeline_route_tokens(uint64_t id, uint32_t first, uint32_t n, uint32_t flags,
			   const struct kvr_hint_buf *hints)
{
	static uint32_t token[KVR_WIRE_MAX_TOKENS];
	struct kvr_request_src src = {
		.fixed = {.flags = flags, .isl = n}, .tokens = token, .n_tokens = n};

	for (uint32_t i = 0; i < n; i++)
		token[i] = first + i;
	send_route(&src, id, hints);
}
