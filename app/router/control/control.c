/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control thread: registration of workers, CONNECT of clients, timers. It owns the registry. It
 * changes data of packet lcores only through calls (call_lcore()) and by publishing views. It
 * sleeps between rounds and never touches a packet of the data path.
 */
#include "control/service.h"
#include "control/snapshot.h"
#include "control/thread.h"
#include "lcore/frame_kind.h"
#include "sched/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/shared.h"
#include "kvr_frame.h"
#include "kvr_rings.h"
#include "kvr_telemetry.h"
#include "lcore/idle.h"
#include "sched/sched.h"

#define ROUND_NS     1000000 /* 1 ms */
#define TICK_NS	     UINT64_C(10000000)
#define FRAMES_ROUND 256u
#define CTL_BUFS     511u /* waiting HELLO, GOODBYE and CONNECT */

int control_create(struct router *rt)
{
	const unsigned int size = (unsigned int)sizeof(struct ctl_buf) + rt->ctl_frame;

	rt->ctl = calloc(1, sizeof(*rt->ctl));
	/* One entry per buffer, so it is never full. */
	rt->control_ring = kvr_rings_create("control", sizeof(void *),
					    rte_align32pow2(CTL_BUFS + 1), SOCKET_ID_ANY);
	rt->ctl_bufs = kvr_rings_pool_as("ring_sp_mc", "ctl_bufs", CTL_BUFS,
					 RTE_ALIGN_CEIL(size, 8u), 0, NULL);
	if (rt->ctl == NULL || rt->control_ring == NULL || rt->ctl_bufs == NULL) {
		control_destroy(rt);
		return -ENOMEM;
	}
	/* Start at the other clock's value, so that logged times agree. */
	rt->ctl->live = (struct kvr_live_clock){now_ns(rt), now_ns(rt), LIVE_STEP};
	atomic_init(&rt->live_ns, rt->ctl->live.now_ns);
	return 0;
}

void control_destroy(struct router *rt)
{
	rte_mempool_free(rt->ctl_bufs);
	rte_ring_free(rt->control_ring);
	free(rt->ctl);
	rt->ctl = NULL;
	rt->control_ring = NULL;
	rt->ctl_bufs = NULL;
}

/* ---- time ---- */

static void control_tick(struct router *rt)
{
	beats_tick(rt);
	workers_tick(rt);
	snapshot_tick(rt);
	shared_clock_look();
	/* Guards no other data: sched_tick() reads this value or a later one. */
	atomic_store_explicit(&rt->live_ns, rt->ctl->live.now_ns, memory_order_relaxed);
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		struct call *call = &rt->ctl->tick[i];

		if (call_busy(call))
			continue; /* the previous tick is not finished, the next one will do */
		call->fn = sched_tick;
		call->arg = &rt->pool[i];
		call_start(rt, rt->pool[i].sched_lcore, call);
	}
}

/* Workers' silence is measured only while every ingress lcore reads its frames: see struct
 * kvr_live_clock. */
static void live_pass(struct router *rt)
{
	struct control *ctl = rt->ctl;
	uint64_t up[KVR_ROUTER_MAX_LCORES];
	bool read = true;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++) {
		/* Pairs with the release store in read_so_far(): heartbeats read before are in the
		 * beats. */
		up[i] = atomic_load_explicit(&rt->lcore[i]->read_up, memory_order_acquire);
		read = read && up[i] != ctl->read_up[i];
	}
	if (read)
		memcpy(ctl->read_up, up, rt->conf.n_ingress * sizeof(up[0]));
	kvr_live_clock_advance(&ctl->live, rt->control.now_ns, read);
}

/* Handle a frame from ingress. */
static void serve_frame(struct router *rt, struct ctl_buf *b)
{
	struct ctl_frame f = {
		.hdr = (const void *)b->frame, .path = &b->path, .len = b->len, .buf = b};
	struct rejection why = {.code = KVR_OK};

	f.body = kvr_frame_body(f.hdr);
	if (frame_kinds[f.hdr->kind].control != NULL)
		frame_kinds[f.hdr->kind].control(rt, &f, &why);
	if (why.code != KVR_OK)
		hello_reject(rt, b, &why);
	if (f.buf != NULL)
		rte_mempool_put(rt->ctl_bufs, b);
}

void control_round(struct router *rt)
{
	struct ctl_buf *b[FRAMES_ROUND];
	unsigned int n;

	kvr_telemetry_lock();
	rt->control.now_ns = now_ns(rt);
	live_pass(rt);
	n = rte_ring_sc_dequeue_burst(rt->control_ring, (void **)b, FRAMES_ROUND, NULL);
	for (unsigned int i = 0; i < n; i++)
		serve_frame(rt, b[i]);
	workers_flush(rt);
	if (rt->control.now_ns - rt->last_tick_ns >= TICK_NS) {
		rt->last_tick_ns = rt->control.now_ns;
		control_tick(rt);
	}
	session_round(rt);
	kvr_telemetry_unlock();
	links_round(rt);
}

/* [router] idle: packet lcores wake control for frames, so sleep until the next tick. */
static void wait_idle(struct router *rt)
{
	const uint64_t passed = now_ns(rt) - rt->last_tick_ns;

	if (passed < TICK_NS)
		idle_control(rt, TICK_NS - passed);
}

void control_run(struct router *rt)
{
	const struct timespec pause = {.tv_nsec = ROUND_NS};
	struct service service;

	service_open(&service);
	service_notify(&service, "READY=1\nSTATUS=serving");
	while (!atomic_load_explicit(&rt->quit, memory_order_relaxed)) {
		control_round(rt);
		service_turn(&service, rt, now_ns(rt));
		if (atomic_exchange_explicit(&rt->reload, 0, memory_order_relaxed))
			config_reload(rt);
		if (rt->conf.opt.idle == IDLE_POLL)
			nanosleep(&pause, NULL);
		else
			wait_idle(rt);
	}
	service_notify(&service, "STOPPING=1\nSTATUS=stopping");
	service_close(&service);
}
