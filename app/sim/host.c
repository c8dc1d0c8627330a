/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host of the router: what the plan configures, its turns and rounds, its death. A packet lcore
 * makes one turn at a time, which one and when the seed says; while nothing is left to do, time
 * jumps to the next round of control. While control waits for lcores they make turns, too.
 */
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control/control.h"
#include "lcore/loop.h"

#define CLOCK_NS   (1000 * SIM_S) /* what the router's clock says when the world begins */
#define TICK_NS	   (10 * SIM_MS)  /* between rounds of control that have nothing to do */
#define ROUND_NS   SIM_MS
#define TURN_NS	   8000u /* a turn takes so long at most */
#define QUIET	   4u	 /* turns of each lcore, in which nothing moved: then it is idle */
#define RING	   1024u
#define RING_SMALL 64u
#define LEAVE	   4096u
#define FRAMES	   16383u

static struct sim *waiting; /* whose control waits */

/* ---- start ---- */

static const struct map {
	uint32_t ingress, lcores, event, sched;
} maps[] = {{1, 1, 0, 0}, {1, 2, 1, 1}, {1, 3, 1, 2}, {2, 2, 0, 1}, {2, 4, 2, 3}};

static const struct map *map_of(const struct sim *s)
{
	return &maps[(s->plan.lcores - 1) % RTE_DIM(maps)];
}

static void configuration(const struct sim *s, char *text, size_t len)
{
	const struct sim_plan *o = &s->plan;
	const uint32_t ranks = RTE_MAX(o->engines * o->ranks, 1u);

	snprintf(text, len,
		 "[router]\nmemory_mb = 128\nlarge_buffers = %u\nring_size = %u\n"
		 "source_share = %u\n"
		 "[port p]\ndevice = %s\nipv4 = 10.0.0.1\nudp_port = %u\n"
		 "mbuf_cache = 16\nrx_descriptors = 256\ntx_descriptors = 256\n"
		 "answer_arp = off\nrx_checksum = verify\ncookie = %s\n"
		 "[pool m]\nid = %u\nblock_size = %u\nmax_ranks = %u\nmax_requests = %u\n"
		 "max_jobs = 64\nmax_blocks = %u\nmax_runs = %u\nmax_active_blocks = 65536\n"
		 "max_prompt_blocks = %u\nactive_request_expiry_secs = 40\n"
		 "max_sessions = 64\nsession_affinity_ttl_secs = 5\n%s%s",
		 o->small_router ? 4 : 16, o->small_router ? 64 : 256, o->shares ? 2 : 0,
		 s->host.box.port[0].device, KVR_WIRE_PORT, o->cookies ? "on" : "off", SIM_POOL,
		 SIM_BLOCK, RTE_ALIGN_CEIL(ranks, 16u), o->small_router ? 16 : 512,
		 RTE_MAX(2 * ranks * o->cache_blocks, 1024u),
		 o->small_router ? 0 : RTE_MAX(ranks * o->cache_blocks / 2, 1024u), 2 * SIM_PROMPT,
		 o->queueing ? "router_queue_threshold = 1.0\n" : "",
		 o->predict ? "router_predicted_ttl_secs = 2\n" : "");
}

static void wait_here(struct router *rt);

int host_begin(struct sim *s)
{
	const struct map *m = map_of(s);
	const struct box_sizes sizes = {.ports = 1,
					.queues = m->ingress,
					.to = s->plan.small_router ? RING_SMALL : RING,
					.from = LEAVE,
					.frames = FRAMES};
	struct host *h = &s->host;
	char text[2048], err[400] = "";
	int rc;

	if (h->lives == 0)
		kvr_rand_init(&h->rand, kvr_mix64(s->plan.seed ^ 0x686f7374));
	rc = box_open(&h->box, &sizes);
	if (rc < 0)
		return rc;
	configuration(s, text, sizeof(text));
	rc = box_load(&h->box, text, err, sizeof(err));
	if (rc == 0)
		rc = box_lcores(&h->box.rt->conf, m->lcores, m->ingress, m->event, m->sched, err,
				sizeof(err));
	if (rc == 0)
		rc = box_start(&h->box, CLOCK_NS + s->now_ns,
			       kvr_mix64(s->plan.seed + h->lives) | 1, err, sizeof(err));
	if (rc < 0) {
		sim_fail(s, "the router does not start: %s", err);
		box_close(&h->box);
		return rc;
	}
	h->box.rt->wait = wait_here;
	atomic_store_explicit(&h->box.rt->running, 1, memory_order_relaxed);
	waiting = s;
	h->lives++;
	h->up = true;
	h->turn_ns = h->control_ns = s->now_ns;
	h->still_until_ns = 0;
	h->back_ns = SIM_NEVER;
	memset(h->stall_ns, 0, sizeof(h->stall_ns));
	sim_say(s, "router: life %u", h->lives);
	return 0;
}

struct rest_seen sim_seen;

void host_end(struct sim *s)
{
	if (!s->host.up)
		return;
	rest_see(&sim_seen, s->host.box.rt);
	box_stop(&s->host.box);
	if (rte_mempool_in_use_count(s->host.box.frames) != 0)
		sim_fail(s, "%u frames are left after the router's end",
			 rte_mempool_in_use_count(s->host.box.frames));
	box_close(&s->host.box);
	s->host.up = false;
}

void host_kill(struct sim *s, uint32_t back_ms)
{
	host_end(s);
	s->host.back_ns = s->now_ns + back_ms * SIM_MS;
	s->host.turn_ns = s->host.control_ns = SIM_NEVER;
	sim_say(s, "router: killed for %u ms", back_ms);
}

/* ---- frames ---- */

static void leave(struct sim *s)
{
	struct box *b = &s->host.box;
	struct rte_mbuf *m;
	struct kvr_path path;
	uint32_t at;

	for (uint32_t q = 0; q < b->n_queues; q++)
		while (rte_ring_dequeue(b->port[0].from[q], (void **)&m) == 0) {
			struct kvr_udp_addr to = {0};

			at = box_payload(m, &path);
			memcpy(to.ip, path.ip, sizeof(to.ip));
			to.port = path.udp_port;
			if (at == 0 || m->nb_segs != 1)
				sim_fail(s, "the router sends a frame without a datagram");
			else
				net_send(s, 0, &to, rte_pktmbuf_mtod_offset(m, void *, at),
					 m->pkt_len - at);
			rte_pktmbuf_free(m);
		}
}

/* A bit, which every checksum finds; or the frame ends early. */
static void break_frame(struct sim *s, struct rte_mbuf *m)
{
	const uint32_t at = kvr_rand_below(&s->net.rand, m->pkt_len);

	if (kvr_rand_below(&s->net.rand, 4) == 0)
		rte_pktmbuf_trim(m, (uint16_t)(m->pkt_len - at));
	else
		*rte_pktmbuf_mtod_offset(m, uint8_t *, at) ^=
			(uint8_t)(1 << kvr_rand_below(&s->net.rand, 8));
}

void host_arrive(struct sim *s, struct packet *p)
{
	struct host *h = &s->host;
	struct kvr_path from = {.udp_port = p->from.port, .family = 4};
	struct rte_mbuf *m;
	uint32_t q;

	if (!h->up)
		return;
	memcpy(from.ip, p->from.ip, sizeof(from.ip));
	m = box_frame(&h->box, 0, &from, p->data, p->len);
	if (m == NULL)
		return; /* every buffer is full: lost, as at a device */
	if (p->broken)
		break_frame(s, m);
	/* By sender, as RSS does; or wherever, in every other world. */
	q = (s->plan.seed & 1) != 0 ? kvr_rand_below(&h->rand, h->box.n_queues)
				    : (p->src + from.udp_port) % h->box.n_queues;
	if (rte_ring_enqueue(h->box.port[0].to[q], m) != 0) {
		rte_pktmbuf_free(m);
		s->net.lost++;
	}
	h->busy = QUIET * h->box.rt->n_lcores;
	h->turn_ns = RTE_MIN(h->turn_ns, s->now_ns + kvr_rand_below(&h->rand, TURN_NS));
}

/* ---- turns ---- */

static void set_clock(struct sim *s)
{
	s->host.box.rt->ns_offset = CLOCK_NS + s->now_ns;
}

static void turn(struct sim *s, uint32_t i)
{
	lcore_turn(s->host.box.rt->lcore[i]);
	leave(s);
}

/* Control waits for lcores: they go on, those that stand still, too. */
static void wait_here(struct router *rt)
{
	turn(waiting, kvr_rand_below(&waiting->host.rand, rt->n_lcores));
}

static void lcores_turn(struct sim *s)
{
	struct host *h = &s->host;
	const uint32_t i = kvr_rand_below(&h->rand, h->box.rt->n_lcores);

	set_clock(s);
	if (s->now_ns >= h->stall_ns[i])
		turn(s, i);
	if (box_unread(&h->box) || box_under_way(&h->box) || !box_rings_empty(&h->box))
		h->busy = QUIET * h->box.rt->n_lcores;
	else if (h->busy > 0)
		h->busy--;
	h->turn_ns = h->busy > 0 ? s->now_ns + 500 + kvr_rand_below(&h->rand, TURN_NS) : SIM_NEVER;
}

static void control(struct sim *s)
{
	struct host *h = &s->host;
	const uint64_t last = h->control_ns;
	bool work;

	set_clock(s);
	work = !rte_ring_empty(h->box.rt->control_ring);
	control_round(h->box.rt);
	leave(s);
	h->control_ns = s->now_ns + ROUND_NS;
	/* A round without work is left out, but each tick has its own. */
	if (!work && rte_ring_empty(h->box.rt->control_ring))
		h->control_ns = RTE_MAX(last, s->now_ns - TICK_NS) + TICK_NS;
	h->busy = RTE_MAX(h->busy, QUIET * h->box.rt->n_lcores);
	h->turn_ns = RTE_MIN(h->turn_ns, s->now_ns + kvr_rand_below(&h->rand, TURN_NS));
}

uint64_t host_due_ns(const struct host *h)
{
	if (!h->up)
		return h->back_ns;
	return RTE_MAX(RTE_MIN(h->turn_ns, h->control_ns), h->still_until_ns);
}

bool host_run(struct sim *s)
{
	struct host *h = &s->host;

	if (!h->up) {
		host_begin(s);
	} else if (h->control_ns <= s->now_ns) {
		control(s);
		return true;
	} else {
		lcores_turn(s);
	}
	return false;
}
