/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_LOAD_H
#define LOAD_LOAD_H

/**
 * @file
 * kvroute-load: clients and simulated engines at the far end of the router's port.
 *
 * 	main thread                     load lcore (the only one that polls)
 * 	options, trace, prompts         rx burst -> by kind: client or engine side
 * 	progress once a second          arrivals due -> ROUTE
 * 	report                          timers due -> items, KV events, heartbeats -> tx burst
 *
 * Both ends of a request are in one slot: what the client waits for, and what the engine still has
 * to send. A request id is (number << LOAD_SLOT_BITS | slot), so that a mask finds the slot of a
 * frame. The sides share nothing else: the engine acts on DISPATCH alone, and received content is
 * compared with sent content.
 *
 * The work of an engine is a *task*: a leg of a slot. A request of an aggregated pool has one leg.
 * A disaggregated one has a prefill and a decode leg, each with its own handle and engine.
 *
 * Files, low to high. A file calls only earlier ones:
 *
 * 	slot, pair, session (records)    route (ROUTE in pieces)    client    item, engine, sink
 * 	dispatch, kill, check, session_lane (timers)    registration, kvlog    loop
 *
 * Cost of an instant request: four frames out (ROUTE, first and last item, ACK), five in, three
 * cache lines of the slot. Nothing allocates after the start. Times are TSC cycles.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "alive.h"
#include "engine_model.h"
#include "kvlog.h"
#include "kvr_frame.h"
#include "kvr_hints.h"
#include "kvr_hist.h"
#include "kvr_wire.h"
#include "link.h"
#include "opaque.h"
#include "options.h"
#include "policy.h"
#include "session.h"
#include "stats.h"
#include "timers.h"
#include "workload.h"

#define LOAD_SLOT_BITS 20u
#define LOAD_NO_SLOT   UINT32_MAX
#define LOAD_HINT_ROOM 256u /* largest hints of a DISPATCH that are read */

/** State of the client side of a slot. */
enum load_client_state {
	LOAD_C_FREE = 0,
	LOAD_C_ROUTED,	 /* ROUTE sent, no answer yet */
	LOAD_C_ACCEPTED, /* known to the router */
	LOAD_C_CANCELLING,
	LOAD_C_ENDED, /* answered, rejected, cancelled or given up */
};

/** State of a leg at its engine. */
enum load_engine_state {
	LOAD_E_IDLE = 0,
	LOAD_E_TRANSFER, /* decode leg: waits for the prefill leg's blocks */
	LOAD_E_QUEUED,	 /* in its rank's queue */
	LOAD_E_PREFILL,
	LOAD_E_DECODE,
	LOAD_E_SENT, /* all items made, not all acknowledged */
};

#define LOAD_S_MEASURED	  0x01u	  /* due after the warm-up */
#define LOAD_S_CANCEL	  0x02u	  /* drawn for cancellation */
#define LOAD_S_ACK	  0x04u	  /* RESPONSE_ACK pending (in the list of acks) */
#define LOAD_S_CHECKED	  0x08u	  /* has an entry in the ring of checks */
#define LOAD_S_FIN	  0x10u	  /* last item received */
#define LOAD_S_DISPATCHED 0x20u	  /* an engine has received it */
#define LOAD_S_RESEND	  0x80u	  /* ROUTE has been repeated */
#define LOAD_S_PROBED	  0x40u	  /* the last message sent is a PROBE */
#define LOAD_S_KILLED	  0x100u  /* its engine was killed */
#define LOAD_S_SENDING	  0x200u  /* a part of its ROUTE is still to be sent */
#define LOAD_S_PACED	  0x400u  /* has an entry in the ring of paces */
#define LOAD_S_ANEW	  0x800u  /* ROUTE is repeated as another message */
#define LOAD_S_LINGERS	  0x1000u /* the router has its end, but items may still arrive */

#define LOAD_L_PREFILL 0x01u /* flags of the DISPATCH: prefill leg */
#define LOAD_L_DECODE  0x02u /* decode leg */
#define LOAD_L_TAKEN   0x04u /* complete; further copies are not run */
#define LOAD_L_FAILED  0x08u /* ends with an ERROR item */
#define LOAD_L_FEW     0x10u /* unproven client: few items before an acknowledgement */

/** A leg: the work of an engine for a request. Load lcore: rw. */
struct load_leg {
	struct engine_task task; /* at its rank; unused by instant engines */
	uint64_t handle;	 /* of the router */
	uint64_t resp_tx;	 /* first item given to the device */
	uint64_t elast_tx;	 /* last items sent */
	uint64_t progress_at;	 /* last item made or acknowledged */
	uint32_t rank;
	uint32_t gen; /* grows when earlier timers become invalid */
	uint32_t n_items;
	uint32_t made; /* items sent at least once */
	uint32_t acked;
	uint32_t cached;    /* blocks found in the rank's cache */
	uint32_t predicted; /* blocks that the router predicted */
	uint32_t got;	    /* DISPATCH: body bytes received in order */
	uint32_t hints_off; /* offset of its hints */
	uint16_t hints_len;
	uint8_t estate; /* enum load_engine_state */
	uint8_t etries;
	uint8_t flags; /* LOAD_L_* */
};

/** One request, both sides. Load lcore: rw. */
struct load_slot {
	/* client */
	uint64_t id;	   /* 0: free */
	uint64_t answered; /* id of the slot's last request that was answered completely */
	const struct load_prompt *prompt;
	uint64_t intended;
	uint64_t route_tx; /* first ROUTE given to the device */
	uint64_t last_io;  /* last frame received or repeated */
	uint64_t handle;   /* of the router */
	uint32_t next_seq; /* next item expected */
	uint32_t pin;	   /* rank pinned, or LOAD_UNPINNED */
	uint32_t msg_seq;  /* of ROUTE: copies keep it */
	uint32_t piece;	   /* first fragment of ROUTE that has not been sent */
	uint64_t cookie;   /* of the last copy */
	uint64_t pace_at;  /* begin of the current millisecond of its fragments */
	uint32_t load_on;  /* rank whose in_flight counts it, or LOAD_UNPINNED */
	uint16_t client;   /* which client source */
	uint16_t flags;	   /* LOAD_S_* */
	uint8_t cstate;	   /* enum load_client_state */
	uint8_t tries;
	uint8_t action;	  /* of its session: enum kvr_wire_session_action */
	uint8_t paced;	  /* fragments of ROUTE sent in that millisecond */
	uint16_t refused; /* code that ends the request when its CANCEL is answered, or 0 */
	uint64_t session; /* number of the session it is a turn of, or 0 */
	uint64_t forward; /* ROUTE left to DISPATCH arrived */
	/* engine: the decode leg, or the only one */
	struct load_leg leg;
} __rte_cache_aligned;

/** Additions for disaggregated serving. Load lcore: rw. */
struct load_pair {
	struct load_leg prefill;
	uint64_t room[2];	   /* of the decode and the prefill leg; 0: no bootstrap */
	uint64_t hinted;	   /* prefill worker in the hints of the decode leg */
	uint64_t accepted;	   /* prefill worker reported to the client */
	uint64_t decode;	   /* decode worker reported to the client */
	uint32_t accepted_rank;	   /* its rank */
	uint32_t accepted_overlap; /* its overlap in blocks, as reported */
	uint16_t path;		   /* enum kvr_way reported to the client */
	uint8_t reported;	   /* ACCEPTED has reported the three above */
	uint8_t finished;	   /* the prefill leg has returned its result */
	uint8_t runs[2];	   /* decode and prefill legs begun, saturated */
};

/** One simulated rank. Load lcore: rw. */
struct load_rank {
	struct engine_rank model;
	struct load_kvlog log;
	uint32_t engine;
	uint32_t dp_rank;
	uint32_t in_flight; /* client side: requests sent and not ended */
} __rte_cache_aligned;

enum load_worker_state {
	LOAD_W_HELLO = 0,
	LOAD_W_SERVING,
	LOAD_W_LEAVING,
	LOAD_W_GONE,
	LOAD_W_DYING, /* killed, saying GOODBYE */
	LOAD_W_DEAD,  /* killed, unresponsive until it returns */
};

/** One simulated engine. Load lcore: rw. */
struct load_engine {
	uint64_t worker;
	uint64_t heartbeat;	 /* period */
	uint64_t next_tx;	 /* next HELLO, HEARTBEAT or GOODBYE */
	uint64_t revive_at;	 /* killed: time of its return */
	uint32_t epoch, router;	 /* own epoch, epoch of the router that accepted it */
	uint8_t state;		 /* enum load_worker_state */
	uint8_t role;		 /* enum kvr_role */
	bool bootstrap;		 /* a prefill engine that publishes its address */
	bool unwelcomed;	 /* killed, and not yet accepted with its new epoch */
	struct load_alive alive; /* its next ALIVE */
};

/** One client source. Load lcore: rw. */
struct load_client {
	uint64_t source;
	uint64_t next_tx; /* next CONNECT */
	uint64_t cookie;  /* for ROUTE */
	uint32_t msg_seq;
	bool connected;
};

enum load_phase { LOAD_GREET, LOAD_RUN, LOAD_DRAIN, LOAD_LEAVE, LOAD_OVER };

struct load_check {
	uint64_t due;
	uint32_t slot;
};

/** All state of the load lcore. Main reads `row`, `phase` and, at the end, the rest. */
struct load {
	const struct load_options *opt;
	struct load_workload *work;
	struct load_link *link;
	kvr_cell_t *row;	 /* counters, enum load_counter */
	struct load_measures *m; /* histograms and codes; `slices` with --slice */
	uint64_t now;		 /* read once per iteration */
	uint64_t hz;
	uint64_t busy_at; /* last time with something to do, for --idle sleep */

	struct load_slot *slots;
	struct load_pair *pairs; /* per slot with --disagg, otherwise NULL */
	uint8_t *hints;		 /* LOAD_HINT_ROOM per leg, when hints are read */
	uint32_t n_slots;
	uint32_t n_free;
	uint32_t *free;
	uint64_t sequence;	   /* requests so far */
	struct load_check *checks; /* ring of n_slots entries */
	uint32_t check_head, check_n;
	struct load_check *paces; /* likewise: ROUTEs with fragments to send */
	uint32_t pace_head, pace_n;
	uint64_t check_period; /* period of checks of a slot in use */
	uint32_t acks[LOAD_BURST * 2];
	uint32_t n_acks;

	struct load_session *sessions; /* by number with --sessions, otherwise NULL */
	struct load_lane *lanes;
	struct load_timers lane_timers;
	uint64_t session_mask;
	uint64_t n_sessions; /* begun so far */
	uint32_t n_lanes;    /* not ended */
	bool sessions_end;   /* begin no session, end the current ones */

	uint64_t next_kill, last_kill;
	const struct load_prompt *due; /* next arrival; NULL: none left */
	uint64_t due_at;
	uint64_t start, warm_end, run_end; /* run_end: end of the last request */
	uint64_t phase_end;
	struct load_policy policy;
	struct kvr_rand rand;

	struct load_client *clients;
	struct load_engine *engines;
	struct load_rank *ranks;
	uint32_t n_clients, n_engines, n_ranks;
	uint32_t *in_flight; /* per rank, for the policy */
	struct load_timers timers;
	uint64_t us;		   /* cycles per microsecond */
	struct engine_speed speed; /* in cycles */
	uint32_t epoch, engine_seq;
	uint16_t pool; /* number of the pool */
	uint32_t max_frame, max_event_blocks;
	uint64_t *removed; /* victims of one store */
	uint32_t *kv_work; /* ranks whose log has work */
	uint32_t n_kv_work, kv_turn;
	struct load_dump dump;
	uint32_t *tokens;	 /* scratch of one prompt */
	uint8_t *body;		 /* pattern of --body-bytes */
	uint8_t *item;		 /* data of one item */
	uint64_t next_duty;	 /* next time to send HELLO, HEARTBEAT and CONNECT */
	struct load_round round; /* of ALIVE */

	_Atomic uint32_t phase; /* enum load_phase: lcore rw, main ro */
	_Atomic uint32_t stop;	/* main rw, lcore ro: 1 no more arrivals, 2 do not drain either */
	uint32_t greeted_clients, greeted_engines; /* at the end of a failed start */
	bool never_began;
};

/* ---- slots and legs ---- */

#define LOAD_PREFILL (1u << LOAD_SLOT_BITS) /* bit of a task: the prefill leg */

static inline uint32_t load_slot_no(uint32_t task)
{
	return task & (LOAD_PREFILL - 1);
}

static inline struct load_slot *load_slot(struct load *l, uint32_t task)
{
	return &l->slots[load_slot_no(task)];
}

static inline const struct load_leg *load_leg_ro(const struct load *l, uint32_t task)
{
	return task & LOAD_PREFILL ? &l->pairs[load_slot_no(task)].prefill : &l->slots[task].leg;
}

static inline struct load_leg *load_leg(struct load *l, uint32_t task)
{
	return task & LOAD_PREFILL ? &l->pairs[load_slot_no(task)].prefill : &l->slots[task].leg;
}

/** Slot of a request id, or LOAD_NO_SLOT when that request has ended. */
static inline uint32_t load_slot_of(const struct load *l, uint64_t id)
{
	uint32_t i = (uint32_t)(id & ((1u << LOAD_SLOT_BITS) - 1));

	return i < l->n_slots && l->slots[i].id == id ? i : LOAD_NO_SLOT;
}

/** Time without an answer before repetition number @p tries, in cycles; doubles up to a second. */
static inline uint64_t load_patience(const struct load *l, uint32_t tries)
{
	const uint64_t once = (uint64_t)(l->opt->repeat_ms * 1000.0 * (double)l->us);
	const uint64_t p = once << (tries < 16 ? tries : 16);

	return p < l->hz ? p : l->hz;
}

/* ---- slot_dp.c ---- */

/** Schedule a check of the slot, unless one is scheduled. */
void load_check_add(struct load *l, uint32_t slot);
/** Free the slot when neither side needs it. */
void load_slot_release(struct load *l, uint32_t slot);

/* ---- client_dp.c ---- */

/** Send the requests that are due, at most a burst. */
void load_client_arrivals(struct load *l);
/** Send a request; a slot must be free. @p session 0: not a turn of a session. */
void load_client_start(struct load *l, const struct load_prompt *p, uint64_t intended,
		       uint64_t session, uint8_t action);
/** Handle a frame for a client. @p rx: time of reception. */
void load_client_frame(struct load *l, const struct kvr_wire_hdr *h, uint64_t rx);
/** Handle an item for a client, from the router or direct. */
void load_client_item(struct load *l, uint32_t slot, const struct kvr_wire_response *item,
		      uint64_t rx);
/** Send the acknowledgements for the frames of this burst. */
void load_client_acks(struct load *l);
/** Check the client side of a slot: repeat, probe. @return false: all attempts are used up. */
bool load_client_check(struct load *l, uint32_t slot);
/** Count the request as lost. */
void load_client_lost(struct load *l, uint32_t slot);
void load_client_connect(struct load *l, uint32_t client);

/* ---- check_dp.c ---- */

/** Check the slots that are due: repeat, probe, give up. */
void load_checks(struct load *l);
/** Count the remaining requests as lost. */
void load_checks_end(struct load *l);

/* ---- route_dp.c ---- */

/**
 * Send the ROUTE of a slot; a repetition is a copy of the same message. Sends 64 fragments now, and
 * load_routes_continue() the others.
 */
void load_route_send(struct load *l, uint32_t slot);
void load_route_again(struct load *l, uint32_t slot);
/** Repeat it as another message if it has several frames, as it must be reassembled again. */
void load_route_renew(struct load *l, uint32_t slot);
/** Repeat the first frame: the router answers with what it lacks, or with the state. */
void load_route_repeat(struct load *l, uint32_t slot);
/** Send what a checked MISSING names, within the pace. */
void load_route_missing(struct load *l, uint32_t slot, const struct kvr_wire_hdr *h);
/** Send the fragments that are due. */
void load_routes_continue(struct load *l);

/* ---- item_dp.c ---- */

/** Tokens generated when item @p seq is sent: the first token, then equal parts. */
uint32_t load_item_tokens(const struct load_slot *s, const struct load_leg *leg, uint32_t seq);
/** Make item `made` and send it to the router; direct: to the client, with a report to the router.
 */
void load_item_make(struct load *l, uint32_t task);
/** Items below @p next_seq are acknowledged. It has grown, and is at most `made`. */
void load_items_acked(struct load *l, uint32_t task, uint32_t next_seq);
/** Repeat items whose acknowledgement is overdue, oldest first. */
void load_items_repeat(struct load *l, uint32_t task);

/* ---- sink_dp.c ---- */

/** --engines-only: a frame for engine @p engine about a request of a client outside this program.
 */
void load_sink_frame(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine);

/* ---- engine_dp.c ---- */

/** A frame for engine @p engine about a request it has; not a DISPATCH. */
void load_engine_frame(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine);
/** Begin the work of a leg that was taken. */
void load_engine_run(struct load *l, uint32_t task);
/** Run timers that are due: ends of prefills, items. */
void load_engine_timers(struct load *l);
/** Check the engine side of a slot. */
void load_engine_check(struct load *l, uint32_t slot);
/** The router does not know the request of this engine's message. */
void load_engine_rejected(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine);
/** Drop a leg, or all legs of a slot, without an answer. */
void load_engine_drop(struct load *l, uint32_t task);
void load_engine_forget(struct load *l, uint32_t slot);

/* ---- dispatch_dp.c ---- */

void load_dispatch(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine, uint64_t rx);

/* ---- pair_dp.c ---- */

/** A slot begins a request. */
void load_pair_begin(struct load *l, uint32_t slot);
/** A DISPATCH of one of the legs is complete. */
void load_pair_dispatched(struct load *l, uint32_t task, const struct kvr_hints *h);
/** Whether the decode leg must wait for the prefill leg. */
bool load_pair_waits(struct load *l, uint32_t slot);
/** The result of the prefill leg. */
struct load_transfer load_pair_result(const struct load *l, uint32_t slot);
/** The prefill leg has returned its result. */
void load_pair_finished(struct load *l, uint32_t slot);
/** Whether the decode leg has waited too long for it (counted). */
bool load_pair_timed_out(struct load *l, uint32_t slot);
void load_pair_accepted(struct load *l, uint32_t slot, const struct kvr_wire_accepted *a);
/** The request has ended for its client. */
void load_pair_over(struct load *l, uint32_t slot, bool completed);

/* ---- session_dp.c ---- */

/** The session of that number, or NULL when its record has been reused. */
struct load_session *load_session_of(const struct load *l, uint64_t number);
/** Wake a lane at @p at (TSC); pause it before its next turn; end its session. */
void load_lane_wake(struct load *l, uint32_t lane, uint64_t at);
void load_lane_pause(struct load *l, uint32_t lane);
void load_lane_leave(struct load *l, uint32_t lane);
/** Begin to release the session of a lane; send the release, or repeat it. */
void load_lane_begin_release(struct load *l, uint32_t lane);
void load_lane_release(struct load *l, uint32_t lane);
/** Append the SESSION hint of a turn. */
void load_session_hint(const struct load *l, const struct load_slot *s, struct kvr_hint_buf *h);
/** A turn has ended for its client. @p code: of the REJECTED that ended it. */
void load_session_turn_over(struct load *l, uint32_t slot, enum load_counter how, uint16_t code);
void load_session_released(struct load *l, const struct kvr_wire_hdr *h);
/** SESSION_OPEN or SESSION_CLOSE for an engine. */
void load_session_frame(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine);
/** A DISPATCH of a turn is complete. */
void load_session_dispatched(struct load *l, uint32_t task, const struct kvr_hints *h);
/** The engine has lost its sessions. */
void load_session_killed(struct load *l, uint32_t engine);

/* ---- session_lane_dp.c ---- */

/** Start all lanes; end all sessions. */
void load_lanes_begin(struct load *l);
void load_lanes_end(struct load *l);
/** Send turns and releases that are due. */
void load_lanes_duty(struct load *l);
/** Whether all lanes have ended and no engine has a session open. */
bool load_lanes_settled(const struct load *l);

/* ---- kill_dp.c ---- */

/** Kill the next engine when it is due. */
void load_kill_duty(struct load *l);
/** Whether a killed engine drops a frame of this kind. */
bool load_kill_drops_frame(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine);

/* ---- registration_dp.c ---- */

void load_registration_frame(struct load *l, const struct kvr_wire_hdr *h);
/** Send HELLO, HEARTBEAT, GOODBYE and CONNECT that are due. */
void load_registration_duty(struct load *l);
/** Whether all clients are connected and all engines accepted. */
bool load_registration_ready(const struct load *l);

/* ---- kvlog_dp.c ---- */

/** Append an event: blocks stored after @p parent (NULL: at the root), or removed (parent NULL). */
void load_kv_add(struct load *l, uint32_t rank, enum kvr_wire_kv_type type, const uint64_t *parent,
		 const uint64_t hashes[], uint32_t n);
/** Send new and lost events, a few frames per call. */
void load_kv_flush(struct load *l);
void load_kv_ack(struct load *l, const struct kvr_wire_hdr *h);
/** New epoch: number events from 0 and send a dump of the cache. */
void load_kv_restart(struct load *l, uint32_t rank);

/* ---- loop_dp.c ---- */

/** Main function of the lcore. @p arg: struct load. */
int load_loop(void *arg);

/* ---- setup.c ---- */

/** Allocate all memory. @return 0 or -errno with a line in @p err. */
int load_setup(struct load *l, const struct load_options *opt, char *err, size_t errlen);
void load_teardown(struct load *l);

#endif
