/* SPDX-License-Identifier: BSD-3-Clause */
#include "pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eth_ring.h>
#include <rte_ethdev.h>

#include "control/thread.h"
#include "kvr_eal.h"
#include "kvr_put.h"
#include "lcore/loop.h"
#include "sched/session.h"
#include "start/start.h"
#include "threads.h"

#define PORTS	 2u
#define HEADERS4 42u /* Ethernet, IPv4, UDP */
#define HEADERS6 62u

struct router *rt;
static uint32_t n_queues, next_queue;
static struct rte_ring *to_router[PORTS][THREADS_MAX], *from_router[PORTS][THREADS_MAX];
static struct rte_mempool *peer_pool;
static struct kvr_local peer_local;
static struct kvr_path peer_path;
static struct out slots[4096];
static uint32_t n_out, next_out;

static void need(bool ok, const char *what)
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
uint32_t pipeline_block_size = 4;
const char *pipeline_port = "cookie = off\n";
uint64_t pipeline_start_ns;
uint32_t pipeline_ports = 1;
uint32_t pipeline_into;

static const char *make_device(uint32_t p);

static void configure(struct kvr_router_conf *c, const char *pools)
{
	char path[] = "/tmp/kvr-pipeline-XXXXXX", err[300];
	FILE *f = fdopen(mkstemp(path), "w");

	/* Buffers for the largest message of the protocol, twice. */
	fprintf(f, "[router]\nmemory_mb = 512\nlarge_buffers = 8\nring_size = 256\n%s",
		pipeline_router);
	for (uint32_t p = 0; p < pipeline_ports; p++)
		fprintf(f,
			"[port %c]\ndevice = %s\nipv4 = 10.0.%u.1\nipv6 = fd00:%x::1\nudp_port = "
			"7650\nmbufs = %u\nanswer_arp = off\n%s",
			(int)('p' + p), make_device(p), p, p, pipeline_mbufs / pipeline_ports,
			pipeline_port);
	fputs(pools, f);
	fclose(f);
	if (kvr_router_conf_load(c, path, err, sizeof(err)) < 0) {
		fprintf(stderr, "%s\n", err);
		exit(1);
	}
	unlink(path);
	if (threads_used() != NULL)
		threads_configure(c);
}

/* The device of port @p: two rings for each queue. Returns its name. */
static const char *make_device(uint32_t p)
{
	static char name[RTE_ETH_NAME_MAX_LEN];
	static int round;
	int port;

	n_queues = threads_used() != NULL ? threads_used()->ingress : 1;
	if (threads_used() != NULL && threads_used()->queues != 0)
		n_queues = threads_used()->queues;
	next_queue = 0;
	for (uint32_t q = 0; q < n_queues; q++) {
		snprintf(name, sizeof(name), "t%d.%u", round, q);
		to_router[p][q] = rte_ring_create(name, 8192, SOCKET_ID_ANY, 0);
		snprintf(name, sizeof(name), "f%d.%u", round, q);
		from_router[p][q] = rte_ring_create(name, 16384, SOCKET_ID_ANY, 0);
		need(to_router[p][q] != NULL && from_router[p][q] != NULL, "no memory");
	}
	snprintf(name, sizeof(name), "peers%d", round);
	if (p == 0)
		peer_pool = rte_pktmbuf_pool_create(name, 16383, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
						    SOCKET_ID_ANY);
	snprintf(name, sizeof(name), "dev%d", round++);
	need(peer_pool != NULL, "no memory");
	port = rte_eth_from_rings(name, to_router[p], n_queues, from_router[p], n_queues, 0);
	need(port >= 0 && rte_eth_dev_get_name_by_port((uint16_t)port, name) == 0, "no port");
	return name;
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
	struct kvr_port_info info;
	char err[300] = "";

	if (!eal && threads_used() != NULL)
		threads_eal("600");
	else if (!eal)
		kvr_eal_start("600");
	eal = true;
	rt = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_ALIGN_CEIL(sizeof(*rt), RTE_CACHE_LINE_SIZE));
	memset(rt, 0, sizeof(*rt));
	configure(&rt->conf, pools);
	start_clock(rt);
	rt->ns_per_tsc = 0; /* from now on time passes when a test says so */
	if (pipeline_start_ns != 0)
		rt->start_ns = pipeline_start_ns;
	rt->ns_offset = rt->start_ns;
	need(start_counters(rt, err, sizeof(err)) == 0 && start_ports(rt, err, sizeof(err)) == 0 &&
		     start_buffers(rt, err, sizeof(err)) == 0 &&
		     start_registry(rt, err, sizeof(err)) == 0 &&
		     start_lcores(rt, err, sizeof(err)) == 0 &&
		     start_pools(rt, err, sizeof(err)) == 0,
	     err);
	if (threads_used() != NULL) {
		kvr_port_info(rt->port[0], &info);
		threads_show_port(info.ethdev);
		threads_start();
	} else {
		rte_rcu_qsbr_thread_register(rt->qsbr, 0);
		rte_rcu_qsbr_thread_online(rt->qsbr, 0);
	}

	const struct kvr_local *l = kvr_port_local(rt->port[0]);
	memset(&peer_local, 0, sizeof(peer_local));
	memset(&peer_path, 0, sizeof(peer_path));
	peer_local = *l;
	memcpy(peer_local.mac, "\x02\0\0\0\0\x02", 6);
	memcpy(peer_local.ip4, (const uint8_t[]){10, 0, 0, 2}, 4);
	kvr_ip_parse("fd00::2", peer_local.ip6);
	peer_path.udp_port = 7650;
	memcpy(peer_path.mac, l->mac, 6);
}

void pipeline_stop(void)
{
	pipeline_turn();
	pipeline_flush();
	if (threads_used() != NULL) {
		threads_stop();
	} else {
		rte_rcu_qsbr_thread_offline(rt->qsbr, 0);
		rte_rcu_qsbr_thread_unregister(rt->qsbr, 0);
	}
	stop_pools(rt);
	stop_lcores(rt);
	stop_registry(rt);
	stop_buffers(rt);
	stop_ports(rt);
	stop_counters(rt);
	need(rte_mempool_in_use_count(peer_pool) == 0, "frames left after the stop");
	rte_mempool_free(peer_pool);
	free(rt);
	rt = NULL;
}

uint32_t pipeline_queue = PIPELINE_SPREAD;

static void collect(void);

static void inject(struct rte_mbuf *m)
{
	const uint32_t q = pipeline_queue == PIPELINE_SPREAD ? next_queue++ : pipeline_queue;
	struct rte_ring *to = to_router[pipeline_into][q % n_queues];
	uint64_t since = 0;

	while (rte_ring_enqueue(to, m) != 0)
		if (threads_running()) {
			collect();
			threads_wait(&since);
		} else {
			pipeline_turn();
		}
}

bool pipeline_ipv6;

void pipeline_send(uint32_t from, const void *payload, size_t len)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(peer_pool);

	need(m != NULL, "no peer mbuf");
	memcpy(rte_pktmbuf_append(m, (uint16_t)len), payload, len);
	peer_local.udp_port = (uint16_t)from;
	peer_local.ip4[2] = pipeline_net;
	peer_local.ip4[3] = pipeline_host;
	peer_path.family = pipeline_ipv6 ? 6 : 4;
	kvr_ip_parse(pipeline_ipv6 ? "fd00::1" : "10.0.0.1", peer_path.ip);
	peer_path.ip[pipeline_ipv6 ? 3 : 14] = (uint8_t)pipeline_into;
	memcpy(peer_path.mac, kvr_port_local(rt->port[pipeline_into])->mac, 6);
	need(kvr_path_write(&peer_local, &peer_path, m) > 0, "payload too long");
	inject(m);
}

void pipeline_send_raw(const void *bytes, size_t len)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(peer_pool);

	need(m != NULL, "no peer mbuf");
	memcpy(rte_pktmbuf_append(m, (uint16_t)len), bytes, len);
	inject(m);
}

static void collect_queue(struct rte_ring *from)
{
	struct rte_mbuf *m;

	while (rte_ring_dequeue(from, (void **)&m) == 0) {
		const uint8_t *p = rte_pktmbuf_mtod(m, const uint8_t *);
		const uint32_t headers = p[12] == 0x86 ? HEADERS6 : HEADERS4;

		if (m->pkt_len >= headers && n_out < RTE_DIM(slots)) {
			struct out *o = &slots[n_out++];

			o->to = (uint16_t)(p[headers - 6] << 8 | p[headers - 5]);
			o->len = m->pkt_len - headers;
			memcpy(o->bytes, p + headers, RTE_MIN(o->len, sizeof(o->bytes)));
		}
		rte_pktmbuf_free(m);
	}
}

static void collect(void)
{
	for (uint32_t q = 0; q < n_queues * pipeline_ports; q++)
		collect_queue(from_router[q / n_queues][q % n_queues]);
}

void pipeline_collect(void)
{
	collect();
}

void pipeline_pause(uint32_t ms)
{
	threads_pause();
	rt->ns_offset += ms * UINT64_C(1000000);
}

/* As if there had been a round every millisecond. */
static void pass(struct kvr_live *l, uint64_t ns)
{
	l->now_ns += ns;
	l->real_ns += ns;
}

void pipeline_skip_ns(uint64_t ns)
{
	threads_pause();
	rt->ns_offset += ns;
	pass(&rt->ctl->live, ns);
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		pass(&rt->lcore[i]->quiet, ns);
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

/* Frames of messages that were given up are freed over turns. */
static bool frees(const struct lcore *lc)
{
	const struct kvr_reasm_stats *s = lc->reasm != NULL ? kvr_reasm_stats(lc->reasm) : NULL;

	return lc->trash != NULL || (s != NULL && s->messages == 0 && s->frames != 0);
}

/* Long messages are read, sent and applied over turns; sent as time passes. */
static bool under_way(void)
{
	bool any = false;

	for (uint32_t i = 0; i < rt->n_lcores; i++)
		any = any || rt->lcore[i]->reading.first != NULL || frees(rt->lcore[i]);
	for (uint32_t i = 0; i < rt->n_pools; i++)
		any = any || !TAILQ_EMPTY(&rt->pool[i].live.sends) ||
		      rt->pool[i].event.open.m != NULL;
	return any;
}

bool pipeline_still;

void pipeline_step(void)
{
	threads_pause(); /* time is read by every turn */
	rt->ns_offset += under_way() ? 20000 : pipeline_still ? 0 : 1000;
	rt->last_tick_ns = 0; /* every round ticks */
	if (threads_used() == NULL) {
		pipeline_lcore_turn(rt->lcore[0]);
		control_round(rt);
	} else {
		threads_run();
		control_round(rt);
		threads_two_turns();
		threads_pause();
	}
	collect();
}

static bool nothing_to_read(void)
{
	bool empty = true;

	for (uint32_t q = 0; q < n_queues * pipeline_ports; q++)
		empty = empty && rte_ring_empty(to_router[q / n_queues][q % n_queues]);
	return empty;
}

void pipeline_turn(void)
{
	uint32_t quiet = 0;

	/* Turns in which nothing arrived or left: rings between stages are drained too. */
	while (quiet < 3) {
		uint32_t before = n_out;
		bool idle = nothing_to_read();

		pipeline_step();
		idle = idle && !under_way() && (threads_used() == NULL || threads_idle());
		quiet = idle && n_out == before ? quiet + 1 : 0;
	}
}

const struct out *pipeline_next(uint32_t to)
{
	if (threads_running())
		collect();
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
	struct kvr_port_info info;

	collect();
	kvr_port_info(rt->port[0], &info);
	return info.mbufs - info.mbufs_free + rte_mempool_in_use_count(peer_pool);
}

static bool adds_up(struct kvr_stats *s)
{
	uint64_t v[KVR_STATS_MAX];
	char err[300];

	kvr_stats_snapshot(s, v);
	if (kvr_stats_check(kvr_stats_def(s), v, err, sizeof(err)) == NULL)
		return true;
	fprintf(stderr, "%s\n", err);
	return false;
}

bool pipeline_balanced(void)
{
	bool ok = adds_up(rt->in_stats) && adds_up(kvr_port_stats(rt->port[0]));

	for (uint32_t i = 0; i < rt->n_pools; i++)
		ok = adds_up(rt->pool[i].stats) && adds_up(rt->pool[i].event_stats) &&
		     (rt->pool[i].sessions == NULL || adds_up(rt->pool[i].sessions->stats)) && ok;
	return ok;
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
	need(len > 0, "hello");
	pipeline_send(w->from, buf, (size_t)len);
	pipeline_turn();
	return pipeline_expect(w->from, KVR_WELCOME) != NULL;
}

uint32_t pipeline_life(uint64_t handle)
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

/* Send a request whose prompt and counts are set: all its frames, a device ring at a time. */
static void route(struct kvr_request_src *src, uint64_t id, const struct kvr_hint_buf *hints)
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
	need(len != 0 && kvr_frag_init(&frag, pipeline_kind, &ids, len, sizeof(frame)) == 0,
	     "route");
	while (kvr_frag_next(&frag, frame, &off, &part)) {
		kvr_slices_copy(s, KVR_REQUEST_SLICES, off, part,
				frame + sizeof(struct kvr_wire_hdr));
		pipeline_send(PEER_CLIENT, frame, sizeof(struct kvr_wire_hdr) + part);
	}
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
	route(&src, id, hints);
}

void pipeline_route_tokens(uint64_t id, uint32_t first, uint32_t n, uint32_t flags,
			   const struct kvr_hint_buf *hints)
{
	static uint32_t token[KVR_WIRE_MAX_TOKENS];
	struct kvr_request_src src = {
		.fixed = {.flags = flags, .isl = n}, .tokens = token, .n_tokens = n};

	for (uint32_t i = 0; i < n; i++)
		token[i] = first + i;
	route(&src, id, hints);
}
