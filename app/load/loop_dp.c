/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include <stdio.h>

#include <rte_cycles.h>

#include "frame.h"
#include "sleep.h"

/* The load lcore: handle received frames at once, then send what is due. */

#define GREET_LIMIT_S 5.0
#define LEAVE_LIMIT_S 0.5
#define SETTLE_S      0.2 /* a worker registers, then serves */

static void on_session(struct load *l, const struct kvr_wire_hdr *h, uint16_t to)
{
	if (l->sessions == NULL)
		kvr_stats_inc(l->row, LOAD_STALE);
	else if (h->kind == KVR_SESSION_RELEASED)
		load_session_released(l, h);
	else
		load_session_frame(l, h, to - l->n_clients);
}

static bool is_about_request(uint8_t kind)
{
	return kind == KVR_DISPATCH || kind == KVR_RESPONSE_ACK || kind == KVR_PROGRESS_ACK ||
	       kind == KVR_ABORT;
}

static void on_frame(struct load *l, const struct rte_mbuf *m, uint64_t rx)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const uint16_t to = m->port; /* number of the UDP port of arrival */
	const bool to_engine = to >= l->n_clients;

	if (kvr_frame_check(h, m->data_len, to_engine ? KVR_ROLE_BIT_AGENT : KVR_ROLE_BIT_CLIENT) !=
		    0 ||
	    (h->kind != KVR_DISPATCH && !kvr_frame_whole(h))) {
		kvr_stats_inc(l->row, LOAD_BAD_FRAMES);
		return;
	}
	if (to_engine && load_kill_drops_frame(l, h, to - l->n_clients))
		return;
	if (to_engine && l->opt->engines_only && is_about_request(h->kind)) {
		load_sink_frame(l, h, to - l->n_clients);
		return;
	}
	switch (h->kind) {
	case KVR_ACCEPTED:
	case KVR_CANCELLED:
	case KVR_MISSING:
	case KVR_RESPONSE:
		load_client_frame(l, h, rx);
		return;
	case KVR_DISPATCH:
		load_dispatch(l, h, to - l->n_clients, rx);
		return;
	case KVR_RESPONSE_ACK:
	case KVR_PROGRESS_ACK:
	case KVR_ABORT:
		load_engine_frame(l, h, to - l->n_clients);
		return;
	case KVR_KV_ACK:
		load_kv_ack(l, h);
		return;
	case KVR_SESSION_OPEN:
	case KVR_SESSION_CLOSE:
	case KVR_SESSION_RELEASED:
		on_session(l, h, to);
		return;
	case KVR_REJECTED:
		if (!to_engine && h->id >> LOAD_SLOT_BITS != 0) {
			load_client_frame(l, h, rx);
			return;
		}
		if (to_engine && h->source - l->opt->worker_base >= l->n_engines) {
			load_engine_rejected(l, h, to - l->n_clients);
			return;
		}
		break;
	default:
		break;
	}
	load_registration_frame(l, h);
}

static bool receive_frames(struct load *l)
{
	struct rte_mbuf *mbufs[LOAD_BURST];
	uint64_t rx;
	bool busy;
	const uint16_t n = load_link_rx(l->link, mbufs, &rx, &busy);

	l->now = rx;
	for (uint16_t i = 0; i < n; i++) {
		if (i + 4 < n) { /* prefetch the slot: the table exceeds the cache */
			const struct kvr_wire_hdr *h =
				rte_pktmbuf_mtod(mbufs[i + 4], const struct kvr_wire_hdr *);
			const uint64_t at = h->id & ((1u << LOAD_SLOT_BITS) - 1);

			rte_prefetch0(&l->slots[at < l->n_slots ? at : 0]);
		}
		on_frame(l, mbufs[i], rx);
	}
	rte_pktmbuf_free_bulk(mbufs, n);
	load_client_acks(l);
	return busy;
}

/* Count the lcore's busy time: a saturated generator would measure itself. */
static void count_busy(struct load *l, bool busy)
{
	const uint64_t us = (rte_rdtsc() - l->now) / l->us;

	if (us > kvr_stats_get(l->row, LOAD_LONGEST_LOOP))
		kvr_stats_set(l->row, LOAD_LONGEST_LOOP, us);
	kvr_stats_inc(l->row, LOAD_LOOPS);
	if (!busy)
		return;
	kvr_stats_inc(l->row, LOAD_LOOPS_BUSY);
	kvr_stats_add(l->row, LOAD_BUSY_CYCLES, rte_rdtsc() - l->now);
}

/* Release: main reads the measurements after it has read the phase (acquire). */
static void enter_phase(struct load *l, enum load_phase phase, double seconds)
{
	l->phase_end = l->now + (uint64_t)(seconds * (double)l->hz);
	atomic_store_explicit(&l->phase, phase, memory_order_release);
}

static void begin_run(struct load *l)
{
	double at_ns = 0;

	l->start = l->now + (uint64_t)(SETTLE_S * (double)l->hz);
	l->warm_end = l->start + (uint64_t)(l->opt->warmup * (double)l->hz);
	l->run_end = l->start;
	l->next_kill = l->start + (uint64_t)(l->opt->kill_every * (double)l->hz);
	enter_phase(l, LOAD_RUN, SETTLE_S + l->opt->seconds);
	if (l->sessions != NULL || l->opt->engines_only)
		return;
	l->due = load_workload_next(l->work, &at_ns);
	l->due_at = l->start + (uint64_t)(at_ns * 1e-9 * (double)l->hz);
}

static void leave_pool(struct load *l)
{
	for (uint32_t i = 0; i < l->n_engines; i++) {
		l->engines[i].state = LOAD_W_LEAVING;
		l->engines[i].next_tx = l->now;
	}
	enter_phase(l, LOAD_LEAVE, LEAVE_LIMIT_S);
}

/* Send what is due. @return false: the schedule has ended. */
static bool run_phase(struct load *l, bool late)
{
	load_kill_duty(l);
	if (l->opt->engines_only)
		return !late;
	if (l->sessions == NULL) {
		load_client_arrivals(l);
		return l->due != NULL;
	}
	if (l->n_lanes == 0 && l->now >= l->start)
		load_lanes_begin(l);
	load_lanes_duty(l);
	return !late;
}

static void begin_drain(struct load *l)
{
	if (l->sessions != NULL)
		load_lanes_end(l);
	enter_phase(l, LOAD_DRAIN, l->opt->drain);
}

static bool load_drained(struct load *l)
{
	if (l->sessions != NULL)
		load_lanes_duty(l);
	return l->n_free == l->n_slots && (l->sessions == NULL || load_lanes_settled(l));
}

static bool all_gone(const struct load *l)
{
	for (uint32_t i = 0; i < l->n_engines; i++)
		if (l->engines[i].state != LOAD_W_GONE)
			return false;
	return true;
}

static void explain_greeting(struct load *l)
{
	uint32_t clients = 0, engines = 0;

	for (uint32_t i = 0; i < l->n_clients; i++)
		clients += l->clients[i].connected;
	for (uint32_t i = 0; i < l->n_engines; i++)
		engines += l->engines[i].state == LOAD_W_SERVING;
	l->greeted_clients = clients;
	l->greeted_engines = engines;
	l->never_began = true;
}

static void run_turn(struct load *l)
{
	const uint32_t stop =
		atomic_load_explicit(&l->stop, memory_order_relaxed); /* publishes nothing */
	const bool late = l->now >= l->phase_end;

	switch (atomic_load_explicit(&l->phase, memory_order_relaxed)) { /* our own store */
	case LOAD_GREET:
		if (load_registration_ready(l)) {
			begin_run(l);
		} else if (late || stop != 0) {
			explain_greeting(l);
			leave_pool(l);
		}
		break;
	case LOAD_RUN:
		if (!run_phase(l, late) || stop != 0)
			begin_drain(l);
		break;
	case LOAD_DRAIN:
		if (load_drained(l) || late || stop > 1) {
			load_checks_end(l);
			leave_pool(l);
		}
		break;
	case LOAD_LEAVE:
		if (all_gone(l) || late)
			enter_phase(l, LOAD_OVER, 0);
		break;
	default:
		break;
	}
}

int load_loop(void *arg)
{
	struct load *l = arg;

	l->now = rte_rdtsc();
	enter_phase(l, LOAD_GREET, GREET_LIMIT_S);
	while (atomic_load_explicit(&l->phase, memory_order_relaxed) != LOAD_OVER) {
		bool busy = receive_frames(l);

		busy |= load_link_flush(l->link);
		load_link_reconnect(l->link, l->now);
		run_turn(l);
		load_engine_timers(l);
		load_checks(l);
		load_routes_continue(l);
		load_kv_flush(l);
		load_registration_duty(l);
		busy |= load_link_flush(l->link);
		count_busy(l, busy);
		load_sleep_idle(l, busy);
	}
	return 0;
}
