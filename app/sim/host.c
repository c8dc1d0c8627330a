/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hosts of routers: configuration, turns of lcores, rounds of control, crashes. Each step is one
 * turn of one packet lcore; the seed draws lcore and time. When every lcore has made a turn without
 * work, or is stalled, time jumps to the next frame, round of control or end of a stall. While
 * control waits for lcores, they make turns as well.
 */
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control/control.h"
#include "loop/loop.h"

#define CLOCK_NS   (1000 * SIM_S) /* clock of the router when the world begins */
#define TICK_NS	   (10 * SIM_MS)  /* between rounds of control without work */
#define ROUND_NS   SIM_MS
#define TURN_NS	   8000u /* longest time between two turns */
#define RING	   1024u
#define RING_SMALL 64u
#define LEAVE	   4096u
#define FRAMES	   4095u
#define BLOCKS	   49152u /* more than all prompts and invented events have */

static struct sim *all; /* the world, for the wait callback */

/* ---- start ---- */

static const struct map {
	uint32_t ingress, lcores, event, sched;
} maps[] = {{1, 1, 0, 0}, {1, 2, 1, 1}, {1, 3, 1, 2}, {2, 2, 0, 1}, {2, 4, 2, 3}};

static const struct map *map_of(const struct sim *s)
{
	return &maps[(s->plan.lcores - 1) % RTE_DIM(maps)];
}

static int pool_text(const struct sim_plan *o, uint32_t id, const char *role, char *text,
		     size_t len)
{
	const uint32_t ranks = RTE_MAX(o->engines * o->ranks, 1u);
	const uint32_t blocks = RTE_MIN(RTE_MAX(2 * ranks * o->cache_blocks, 1024u), BLOCKS);
	const uint32_t runs = RTE_MAX(
		blocks / 8, 1024u); /* prompts of the seeds have at least 16 blocks per run */

	return snprintf(
		text, len,
		"[pool %s]\nid = %u\n%sblock_size = %u\nmax_ranks = %u\nmax_requests = %u\n"
		"max_jobs = 64\nmax_blocks = %u\nmax_runs = %u\nmax_active_blocks = 65536\n"
		"max_prompt_blocks = %u\nactive_request_expiry_secs = %u\n"
		"max_sessions = 64\nsession_affinity_ttl_secs = 5\ndecision_ring = 256\n%s%s%s",
		id == SIM_POOL ? "m" : "p", id, role, SIM_BLOCK, RTE_ALIGN_CEIL(ranks, 16u),
		o->small_router ? 16 : 512, blocks, o->small_router ? 0 : runs, 2 * SIM_PROMPT,
		o->expiry, o->queueing ? "router_queue_threshold = 1.0\n" : "",
		o->predict ? "router_predicted_ttl_secs = 2\n" : "",
		o->late_binding ? "router_mode = ttft\nttft_late_binding = true\n"
				  "ttft_late_tokens = 64\nttft_late_ms = 1500\n"
				: "");
}

static void write_config(const struct host *h, char *text, size_t len)
{
	const struct sim_plan *o = &h->sim->plan;
	int n = snprintf(text, len, "[router]\n");

	n += disk_text(h, text + n, len - (size_t)n);
	n += snprintf(text + n, len - (size_t)n,
		      "memory_mb = 128\nlarge_buffers = %u\nring_size = %u\n"
		      "reassembly_frames = %u\nsource_share = %u\nstop_ms = 3000\n"
		      "[port p]\ndevice = %s\nipv4 = 10.%u.0.1\nudp_port = %u\n"
		      "mbuf_cache = 16\nrx_descriptors = 256\ntx_descriptors = 256\n"
		      "answer_arp = off\nrx_checksum = %s\ntx_checksum = %s\ncookie = %s\n",
		      o->small_router ? 4 : 16, o->small_router ? 64 : 256,
		      o->small_router ? 128 * map_of(h->sim)->ingress : 0, o->shares ? 2 : 0,
		      h->rig.port[0].device, h->no, KVR_WIRE_PORT,
		      o->broken != 0 ? "verify" : "trust", o->broken != 0 ? "auto" : "none",
		      o->cookies ? "on" : "off");

	n += pool_text(o, SIM_POOL, o->pairs ? "model = x\nrole = decode\n" : "", text + n,
		       len - (size_t)n);
	if (o->pairs)
		pool_text(o, SIM_PREFILL, "model = x\nrole = prefill\n", text + n, len - (size_t)n);
}

static void wait_here(struct router *rt);

static int start_router(struct host *h, const struct map *m)
{
	struct sim *s = h->sim;
	const struct rig_sizes sizes = {.ports = 1,
					.queues = m->ingress,
					.to = s->plan.small_router ? RING_SMALL : RING,
					.from = LEAVE,
					.frames = FRAMES};
	char text[2048], err[400] = "";
	int rc = rig_open(&h->rig, &sizes);

	if (rc < 0)
		return rc;
	h->rig.plain = s->plan.broken == 0;
	write_config(h, text, sizeof(text));
	memory_of(NULL); /* the buffer of a C library stream is not the router's memory */
	rc = rig_load(&h->rig, text, err, sizeof(err));
	memory_of(&h->memory);
	if (rc == 0)
		rc = rig_lcores(&h->rig.rt->conf, m->lcores, m->ingress, m->event, m->sched, err,
				sizeof(err));
	if (rc == 0)
		rc = rig_start(&h->rig, CLOCK_NS + s->now_ns,
			       kvr_mix64(s->plan.seed + h->incarnations + 1000 * h->no) | 1, err,
			       sizeof(err));
	if (rc == 0)
		rc = disk_open(h, err, sizeof(err));
	if (rc < 0) {
		sim_fail(s, "router %u: cannot start: %s", h->no, err);
		rig_close(&h->rig);
	}
	return rc;
}

int host_begin(struct sim *s, uint32_t i)
{
	struct host *h = &s->host[i];
	struct memory *was;
	uint64_t file;
	int rc;

	all = s;
	if (h->incarnations == 0) {
		*h = (struct host){.sim = s, .no = i};
		kvr_rand_init(&h->rand, kvr_mix64(s->plan.seed ^ 0x686f7374) + i);
	}
	h->memory = (struct memory){0};
	file = disk_bytes(h);
	was = memory_of(&h->memory);
	rc = start_router(h, map_of(s));
	memory_of(was);
	if (rc < 0)
		return rc;
	memory_begun(&h->memory, file);
	s->eal_bytes = memory_eal();
	oracle_reset(h);
	h->rig.rt->wait = wait_here;
	atomic_store_explicit(&h->rig.rt->running, 1, memory_order_relaxed);
	h->incarnations++;
	h->up = true;
	h->turn_ns = h->control_ns = s->now_ns;
	h->paused_until_ns = 0;
	h->back_ns = SIM_NEVER;
	memset(h->stall_ns, 0, sizeof(h->stall_ns));
	sim_log(s, "router %u: life %u", i, h->incarnations);
	return 0;
}

struct counters_moved sim_seen;

void host_end(struct host *h)
{
	struct memory *was;

	if (!h->up)
		return;
	memory_check(h->sim);
	stop_free(h);
	leak_check_note_moved(&sim_seen, h->rig.rt);
	was = memory_of(&h->memory);
	disk_close(h);
	rig_stop(&h->rig);
	if (rte_mempool_in_use_count(h->rig.frames) != 0)
		sim_fail(h->sim, "%u frames are left after the end of router %u",
			 rte_mempool_in_use_count(h->rig.frames), h->no);
	rig_close(&h->rig);
	memory_of(was);
	memory_given_back(h->sim, h->no);
	h->sim->eal_bytes = memory_eal();
	h->up = false;
	disk_left(h);
}

void host_kill(struct host *h, uint32_t back_ms)
{
	host_end(h);
	h->back_ns = h->sim->now_ns + back_ms * SIM_MS;
	h->turn_ns = h->control_ns = SIM_NEVER;
	sim_log(h->sim, "router %u: down for %u ms", h->no, back_ms);
}

/* ---- frames ---- */

static void leave_one(struct host *h, struct rte_mbuf *m)
{
	struct kvr_udp_addr to = {0};
	struct kvr_path path;
	const uint32_t at = rig_payload(m, &path);

	memcpy(to.ip, path.ip, sizeof(to.ip));
	to.port = path.udp_port;
	if (at == 0 || m->nb_segs != 1)
		sim_fail(h->sim, "a router sent a frame without a datagram");
	else
		net_send(h->sim, h->no, &to, rte_pktmbuf_mtod_offset(m, void *, at),
			 m->pkt_len - at);
	rte_pktmbuf_free(m);
}

static void send_frames(struct host *h)
{
	struct memory *was = memory_of(NULL);
	struct router_rig *b = &h->rig;
	struct rte_mbuf *m[32];
	uint32_t n;

	for (uint32_t q = 0; q < b->n_queues; q++)
		do {
			n = rte_ring_dequeue_burst(b->port[0].from[q], (void **)m, RTE_DIM(m),
						   NULL);
			for (uint32_t i = 0; i < n; i++)
				leave_one(h, m[i]);
		} while (n == RTE_DIM(m));
	memory_of(was);
}

/* Flip a bit, which every checksum detects, or truncate the frame. */
static void break_frame(struct sim *s, struct rte_mbuf *m)
{
	const uint32_t at = kvr_rand_below(&s->net.rand, m->pkt_len);

	if (kvr_rand_below(&s->net.rand, 4) == 0)
		rte_pktmbuf_trim(m, (uint16_t)(m->pkt_len - at));
	else
		*rte_pktmbuf_mtod_offset(m, uint8_t *, at) ^=
			(uint8_t)(1 << kvr_rand_below(&s->net.rand, 8));
}

/* Schedule a turn, as there is work. */
static void wake_host(struct host *h)
{
	h->quiet = 0;
	h->busy = UINT32_MAX;
	h->turn_ns = RTE_MIN(h->turn_ns, h->sim->now_ns + kvr_rand_below(&h->rand, TURN_NS));
}

void host_arrive(struct host *h, struct packet *p)
{
	struct kvr_path from = {.udp_port = p->from.port, .family = 4};
	struct sim *s = h->sim;
	struct rte_mbuf *m;
	uint32_t q;

	if (!h->up)
		return;
	memcpy(from.ip, p->from.ip, sizeof(from.ip));
	m = rig_frame(&h->rig, 0, &from, p->data, p->len);
	if (m == NULL)
		return; /* all buffers are in use: lost, as at a device */
	if (p->broken)
		break_frame(s, m);
	/* Queue by sender, as RSS does; in every other world, at random. */
	q = (s->plan.seed & 1) != 0 ? kvr_rand_below(&h->rand, h->rig.n_queues)
				    : (p->src + from.udp_port) % h->rig.n_queues;
	if (rte_ring_enqueue(h->rig.port[0].to[q], m) != 0) {
		rte_pktmbuf_free(m);
		s->net.lost++;
	}
	wake_host(h);
}

/* ---- turns ---- */

static void set_clock(struct host *h)
{
	h->rig.rt->ns_offset = CLOCK_NS + h->sim->now_ns;
}

static void turn_lcore(struct host *h, uint32_t i)
{
	struct memory *was = memory_of(&h->memory);

	h->memory.turn = true;
	lcore_turn(h->rig.rt->lcore[i]);
	h->memory.turn = false;
	send_frames(h);
	memory_of(was);
}

/* Control waits for lcores: stalled lcores make turns as well. */
static void wait_here(struct router *rt)
{
	for (uint32_t i = 0; i < all->plan.routers; i++)
		if (all->host[i].rig.rt == rt)
			turn_lcore(&all->host[i], kvr_rand_below(&all->host[i].rand, rt->n_lcores));
}

/* Whether the last turn changed a prefix table. A rank is cleared in slices over several turns. */
static bool tables_change(struct host *h)
{
	const uint64_t before = h->work;

	h->work = 0;
	for (uint32_t i = 0; i < h->rig.rt->n_pools; i++)
		h->work += kvr_prefix_work(h->rig.rt->pool[i].prefix);
	return h->work != before;
}

/* Lcores that still have to make a turn and are not stalled. */
static uint32_t awake_lcores(const struct host *h, uint32_t n)
{
	uint32_t mask = 0;

	for (uint32_t i = 0; i < n; i++)
		if ((h->quiet >> i & 1) == 0 && h->sim->now_ns >= h->stall_ns[i])
			mask |= 1u << i;
	return mask;
}

/* Draw one of them. */
static uint32_t draw_lcore(struct host *h, uint32_t mask)
{
	const uint32_t n = (uint32_t)__builtin_popcount(mask);

	for (uint32_t k = n > 1 ? kvr_rand_below(&h->rand, n) : 0; k > 0; k--)
		mask &= mask - 1;
	return (uint32_t)__builtin_ctz(mask);
}

/* The earliest end of a stall; SIM_NEVER: no stalled lcore has work. */
static uint64_t stall_over_ns(const struct host *h, uint32_t n)
{
	uint64_t at = SIM_NEVER;

	for (uint32_t i = 0; i < n; i++)
		if ((h->quiet >> i & 1) == 0)
			at = RTE_MIN(at, h->stall_ns[i]);
	return at;
}

/* After a turn with work, the other lcores must make a turn. The lcore itself is done when it has
 * no work left. */
static void made_turn(struct host *h, uint32_t i)
{
	const uint32_t bit = 1u << i;
	const bool worked = (h->busy & bit) != 0;

	h->busy = rig_busy(&h->rig);
	if (tables_change(h))
		h->busy |= bit;
	h->quiet = (worked ? bit : h->quiet | bit) & ~h->busy;
}

/* Control checks its ring once per round. */
static void call_control(struct host *h)
{
	if (h->control_ns > h->sim->now_ns + ROUND_NS && !rte_ring_empty(h->rig.rt->control_ring))
		h->control_ns = h->sim->now_ns + kvr_rand_below(&h->rand, ROUND_NS);
}

/* The router is idle when each lcore has made a turn since the last work. A stalled lcore keeps its
 * work until the stall ends. */
static void lcores_turn(struct host *h)
{
	const uint32_t n = h->rig.rt->n_lcores, mask = awake_lcores(h, n);
	uint32_t i;

	if (mask == 0) {
		h->turn_ns = stall_over_ns(h, n);
		return;
	}
	set_clock(h);
	i = draw_lcore(h, mask);
	turn_lcore(h, i);
	made_turn(h, i);
	call_control(h);
	h->turn_ns = h->quiet != (1u << n) - 1
			     ? h->sim->now_ns + 500 + kvr_rand_below(&h->rand, TURN_NS)
			     : SIM_NEVER;
}

static void run_control(struct host *h)
{
	const uint64_t last = h->control_ns, now = h->sim->now_ns;
	bool work;

	set_clock(h);
	work = !rte_ring_empty(h->rig.rt->control_ring);
	memory_of(&h->memory);
	control_round(h->rig.rt);
	memory_of(NULL);
	disk_run(h);
	send_frames(h);
	oracle_note_states(h);
	h->control_ns = now + ROUND_NS;
	/* Rounds without work are left out, except for one per tick. */
	if (!work && rte_ring_empty(h->rig.rt->control_ring))
		h->control_ns = RTE_MAX(last, now - TICK_NS) + TICK_NS;
	wake_host(h);
}

/* Orderly shutdown. Control sleeps between its rounds. */
static void run_stop(struct host *h)
{
	bool over;

	set_clock(h);
	h->control_ns = h->sim->now_ns + ROUND_NS;
	memory_of(&h->memory);
	over = stop_run(h);
	memory_of(NULL);
	disk_run(h);
	send_frames(h);
	oracle_note_states(h);
	if (over)
		host_kill(h, stop_back_ms(h));
	else
		wake_host(h);
}

void host_drain(struct host *h, uint32_t engine, bool on)
{
	if (!h->up || h->stop != NULL)
		return;
	set_clock(h);
	memory_of(&h->memory);
	control_drain(h->rig.rt, engine_worker(engine), on);
	memory_of(NULL);
	send_frames(h);
	oracle_note_states(h);
	wake_host(h);
}

uint64_t host_due_ns(const struct host *h)
{
	if (!h->up)
		return h->back_ns;
	return RTE_MAX(RTE_MIN(h->turn_ns, h->control_ns), h->paused_until_ns);
}

bool host_run(struct host *h)
{
	if (!h->up) {
		host_begin(h->sim, h->no);
	} else if (h->control_ns <= h->sim->now_ns) {
		if (h->stop != NULL)
			run_stop(h);
		else
			run_control(h);
		return h->up;
	} else {
		lcores_turn(h);
	}
	return false;
}
