/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SCHED_PVT_H
#define SCHED_PVT_H

/**
 * @file
 * Memory layout of the pool scheduler; see kvr_sched.h. Writer: scheduler lcore. Per-rank data that
 * every decision reads is in arrays of struct kvr_sched; data that only events use is in struct
 * rank.
 */

#include "kernels_pvt.h"
#include "kvr_active.h"
#include "kvr_prefetch.h"
#include "kvr_rand.h"
#include "kvr_sched.h"

#include <math.h>
#include <stdalign.h>
#include <string.h>

#define NIL		UINT32_MAX
#define SECOND_NS	UINT64_C(1000000000)
#define SWEEP_NS	(60 * SECOND_NS) /* expiry and queue drain */
#define MODEL_DRAIN_NS	(SECOND_NS / 10) /* drain while a prefill model lowers the load */
#define LATE_DRAIN_NS	(SECOND_NS / 100)
#define DEFAULT_BATCHED 10000000.0 /* max_num_batched_tokens of a worker that reports none */
#define NO_DURATION	UINT64_MAX
#define MODEL_POINTS	64u
#define TAINT_MAX	256u

/** One worker. kvr_sched.sorted holds the worker indices by id; kvr_sched.order holds the ranks of
 * a worker from `at`. */
struct worker {
	uint64_t id;
	uint32_t dp_start;
	uint32_t dp_size; /* 0 = entry not in use */
	uint32_t at;
	uint32_t bookings;
	uint32_t slots;	 /* bookings, probes and released slots, which end with the worker */
	uint32_t n_over; /* ranks overloaded */
	bool available;
	bool draining;
	bool between_epochs; /* a new incarnation has begun and will be available soon */
	bool cpu;
	bool silent;	     /* see silent_dp.c */
	uint64_t silent_ns;  /* interval between requests to it */
	uint64_t silent_end; /* end of the interval; 0: a request was sent since */
	uint64_t total_kv_blocks;
	uint64_t max_batched; /* 0 = unknown */
};

/** One rank: data of events. Decisions read the arrays in struct kvr_sched. */
struct rank {
	uint32_t worker; /* NIL = index not in use */
	uint32_t dp_rank;
	uint32_t gen; /* number of owners of this index so far; detects stale overlaps */

	/* prefill FIFO, oldest slot first; modelled decay applies to the head */
	uint32_t pf_head, pf_tail;
	uint32_t pf_count, pf_modelled;
	uint64_t pf_tokens;
	uint64_t anchor_at;

	/* mode ttft */
	double going;  /* tokens of the oldest that can be worked off before its end is seen */
	uint64_t seen; /* last begin or end of a prefill */

	/* bookings in the order of renewal, oldest first; released slots */
	uint32_t bk_head, bk_tail;
	uint32_t rel_head;

	/* last report to the overload detector */
	bool reported, kv_reported, over;
	uint64_t rep_blocks, rep_tokens, rep_kv;
	uint64_t report; /* number of the last one */
};

/** Report to the overload detector that is due after the last slice. */
struct owed {
	uint64_t now; /* time of the booking or end; >= NOT_REPORTED: neither, the rest is the
		       * number of earlier reports */
	uint32_t rank;
	uint32_t gen; /* of the rank at that time */
};

/** One booking. Two cache lines. */
struct slot {
	alignas(64) struct kvr_active_booking act;
	uint64_t booked_at;  /* less sched.still_ns */
	uint64_t renewed_at; /* likewise */
	union {
		uint64_t pf_tokens;
		struct {
			uint32_t rel_prev, rel_next; /* released */
		};
	};
	uint64_t pf_duration; /* ns, or NO_DURATION */
	uint8_t state;	      /* enum kvr_sched_slot_state */
	bool in_prefill;
	bool marked;
	bool fades; /* expected_output_tokens was given */
	uint32_t rank;

	union {
		struct {
			uint32_t pf_prev, pf_next;
			uint32_t bk_prev, bk_next;
		};
		struct owed end; /* in a free slot with a deferred end */
	};
	union {
		uint32_t exec_isl;
		uint32_t end_next; /* likewise */
	};
	uint32_t generated;
	uint32_t expected;
	uint16_t adapter; /* see lora_dp.c */
	bool probe;	  /* no load; only renewal and rank are tracked */
};

_Static_assert(sizeof(struct slot) == 128, "a booking has two cache lines");

/** A heap or a part of one. */
struct tree {
	uint32_t root; /* NIL = empty */
	uint32_t dist; /* 1 + shorter way to a missing child; 0 when empty */
};

/** One waiting request: node of a leftist heap, one cache line, and the rest beside it. */
struct node {
	alignas(64) double key;
	uint64_t seq;
	uint32_t strict;
	uint32_t up;
	struct tree left, right;
	uint32_t lane; /* rank; max_ranks: the rank was removed; NIL: any rank */
	uint32_t cls;
	uint32_t kept; /* first chunk of the overlap, NIL = none */
	bool lost;     /* the overlap did not fit */
};

struct waiting {
	const struct kvr_sched_req *req;
	uint64_t since;
	uint64_t pin_worker;
	uint32_t pin_dp;
	uint32_t isl;
	uint64_t cached;
	uint64_t uncached;
	/* of late_dp.c */
	uint32_t older, newer; /* list in the order of arrival */
	uint64_t late_since;
	uint64_t left; /* tokens to compute on slot.rank, if set */
	bool late;
	bool pinned;
};

#define CHUNK_RANKS 10u

/** Part of a kept overlap. */
struct chunk {
	uint32_t next;
	uint32_t n;
	struct {
		uint32_t rank, gen, tier[TIERS];
	} e[CHUNK_RANKS];
};

/** A policy class: queue, thresholds, limits. */
struct cls {
	struct kvr_pool_class conf;
	bool has_threshold;
	double *limit;	 /* per rank: prefill tokens above which it is busy */
	uint32_t root;	 /* of requests without a pin */
	uint32_t *lane;	 /* roots per rank: pinned or late; [max_ranks]: removed ranks */
	uint64_t *lanes; /* bit set of lanes in use; the last word is the extra lane */
	uint32_t n_lanes;
	uint64_t deficit;
	struct kvr_sched_pending pending;
};

/** Per-request parameters after the override. */
struct params {
	double credit, scale, shared, temperature;
	bool reuse, track_prefill;
};

#define LATE_SIZES 8u

/** Requests that wait for a rank (late_dp.c), by size of a new request. Two cache lines. */
struct late_line {
	alignas(64) double before[LATE_SIZES]; /* tokens computed before the new request */
	double after[LATE_SIZES];	       /* requests computed after the new request */
};

/** State of mode ttft; see ttft_dp.c. The arrays are NULL in other modes. */
struct ttft {
	double *rest;  /* per rank: waiting tokens without rank.going */
	double *until; /* per rank: time when rank.going is worked off, ns from the origin */
	double took_ns, did_tokens; /* decaying sums over ended prefills */
	double ns_token;	    /* prefill time of a token; 0: no prefill has ended */
	double rho;
	double speed, left_w; /* 1 / ns_token, or 0; 1 / (1 - rho) */
	double booked;	      /* tokens since `window` began */
	uint64_t window;      /* ns */
	uint64_t now;	      /* time of the current decision */
	double *late; /* per rank: tokens of requests that wait for it (late_dp.c), or NULL */
	struct late_line *line;
	uint64_t *lines;	     /* bit set of ranks with waiting requests */
	double *seen;		     /* scratch: `rest` for one request */
	uint32_t late_old, late_new; /* ends of the list of waiting requests */
};

struct failing;

struct kvr_sched {
	/* read by every decision */
	struct kernels k;
	uint32_t max_ranks;
	uint32_t words; /* of bit sets up to the highest index in use */
	double block, inv_block;
	bool pow2;
	bool watch;	    /* an overload threshold is set */
	bool changed;	    /* the queue must be polled */
	double *tokens;	    /* active prefill tokens per rank */
	uint32_t *requests; /* bookings per rank */
	uint32_t *depth;
	double *cost;
	double *mult;
	double *sums; /* per word of a bit set */
	uint32_t *shared;
	const uint32_t *blocks;
	const uint32_t *zeros;
	uint64_t *used, *open, *over; /* open = in use, available, not draining */
	uint64_t *due;		      /* worker.between_epochs */
	uint64_t *silent;	      /* avoided: unresponsive, silent_dp.c */
	uint64_t *failing;	      /* avoided: failing, failing_dp.c */
	uint64_t *ready;	      /* open and not overloaded */
	uint64_t *fit, *elig, *ties;  /* scratch: of open_set, choose, equal */
	struct kvr_active *active;
	struct slot *slot;
	struct rank *rank;
	struct kvr_rand rand;
	uint32_t n_modelled;  /* ranks whose prefill load falls with time */
	uint32_t n_silent;    /* workers */
	uint64_t silent_end;  /* earliest end of an interval */
	uint32_t n_failing;   /* ranks whose breaker is not closed */
	uint64_t fail_end;    /* earliest end of a pause */
	struct failing *fail; /* per rank */
	struct kvr_sched_terms *terms;
	struct kvr_sched_decision blank; /* initial value of a decision */

	/* workers */
	struct worker *worker;
	uint32_t *sorted; /* worker entries by id */
	uint32_t n_workers;
	uint32_t *order; /* rank indices by (worker, dp_rank) */
	uint32_t *place; /* per rank: index in order */
	uint32_t n_ranks;
	uint32_t *order_next; /* scratch of worker_set, as is mine */
	uint32_t *mine;
	uint64_t rr_last;
	bool rr_started;

	/* taints */
	char (*taint)[TAINT_MAX];
	uint32_t *taint_len;
	uint64_t *taint_set; /* [taint][max_ranks / 64] */
	uint32_t n_taints;

	/* queue */
	struct cls *cls;
	uint32_t n_cls;
	uint32_t cursor, carry;
	struct node *node;
	struct waiting *wait;
	struct chunk *chunk;
	uint32_t chunk_free, chunk_fresh, chunk_max;
	uint32_t *saved[TIERS]; /* scratch: a stored overlap, expanded */
	uint64_t seq;
	uint64_t moves;	  /* of waiting requests to other ranks */
	uint64_t reports; /* to the overload detector */
	struct kvr_sched_pending pending;
	uint64_t next_drain;

	/* time */
	uint64_t origin;
	uint64_t next_sweep;
	uint64_t expiry_ns;  /* 0: never */
	uint64_t still_ns;   /* total pause of the owner; does not count as silence */
	uint64_t refresh_ns; /* 0 = never */
	uint32_t sweep_rank; /* next rank of an unfinished sweep */

	/* long prompts, slices_dp.c */
	uint32_t slice; /* runs per event; UINT32_MAX: all */
	uint32_t turn;	/* next slot to admit, being matched in slices; NIL: none */
	struct {
		bool any;	/* a booking or an end is deferred */
		uint32_t slot;	/* of the booking; NIL: none */
		uint32_t n;	/* number of its hashes */
		const void *sh; /* its hashes, valid until settled */
		struct owed book;
		uint32_t first, last; /* ends, through slot.end_next; first NIL: none */
	} owed;

	/* LoRA adapters */
	struct kvr_sched_lora *lora, lora_other;
	uint64_t *lora_hash;
	uint64_t lora_seed; /* random, as clients choose the names */
	uint32_t n_loras;

	struct ttft ttft;

	/* prefill model */
	uint32_t n_points;
	double point_tokens[MODEL_POINTS], point_ns[MODEL_POINTS];

	struct kvr_pool_conf conf;
	const struct kvr_pool_mode_info *mode; /* of conf */
	struct kvr_sched_ops ops;
	struct kvr_sched_counters cnt;
	void *part[64]; /* all allocations, for release */
	uint32_t n_parts;
};

/** A request with resolved parameters. */
struct choice {
	const struct kvr_sched_req *req;
	const struct kvr_sched_overlap *ov;
	struct params p;
	uint32_t n; /* hashes counted by the load model */
	bool pinned;
	uint64_t pin_worker;
	uint32_t pin_dp;
	uint32_t pin_rank;    /* valid once checked */
	bool late;	      /* must wait for the chosen rank */
	uint32_t keep;	      /* late: rank that it waited for; NIL: none */
	uint64_t left;	      /* tokens to compute on the chosen rank */
	const uint64_t *open; /* eligible ranks, ignoring overload */
};

static inline bool test_bit(const uint64_t *set, uint32_t i)
{
	return set[i / 64] >> (i % 64) & 1;
}

static inline void bit_put(uint64_t *set, uint32_t i, bool on)
{
	uint64_t b = UINT64_C(1) << i % 64;

	if (on)
		set[i / 64] |= b;
	else
		set[i / 64] &= ~b;
}

static inline bool any_bit(const uint64_t *set, uint32_t words)
{
	uint64_t x = 0;

	for (uint32_t w = 0; w < words; w++)
		x |= set[w];
	return x != 0;
}

/** Nearest integer, halves up; 0 <= v < 2^63. */
static inline uint64_t round_up_half(double v)
{
	return (uint64_t)(int64_t)(v + 0.5);
}

/* find_dp.c */
uint32_t kvr_sched__place(const struct kvr_sched *s, uint64_t id); /* in `sorted`, or of the next */
uint32_t kvr_sched__worker(const struct kvr_sched *s, uint64_t id); /* entry or NIL */
void kvr_sched__ready(struct kvr_sched *s);
uint32_t kvr_sched__taint(const struct kvr_sched *s, const struct kvr_str *name);

/* overload_dp.c */
void kvr_sched__report(struct kvr_sched *s, uint32_t rank, uint64_t now);
/* Report a booking or end that precedes the last report, without replacing later reports. */
void kvr_sched__report_then(struct kvr_sched *s, uint32_t rank, uint64_t now);
/* Update the blocks of the last report after deferred work. */
void kvr_sched__report_blocks(struct kvr_sched *s, uint32_t rank);
void kvr_sched__judge(struct kvr_sched *s, uint32_t rank);

/* prefill_dp.c */
uint64_t kvr_sched__prefill_tokens(const struct kvr_sched *s, uint32_t rank, uint64_t now);
void kvr_sched__prefill_add(struct kvr_sched *s, uint32_t slot, uint64_t now);
void kvr_sched__prefill_remove(struct kvr_sched *s, uint32_t slot, uint64_t now);
void kvr_sched__prefill_now(struct kvr_sched *s, uint64_t now);
uint64_t kvr_sched__duration(const struct kvr_sched *s, uint64_t uncached, uint64_t cached);

/* counters.c: index of a rejection reason in errors[] and poll_errors[]. */
extern const uint8_t kvr_sched__err_at[KVR_E_MAX];

/* eligible_dp.c */
enum kvr_code kvr_sched__resolve(struct kvr_sched *s, struct choice *c);
enum kvr_code kvr_sched__pin_check(const struct kvr_sched *s, struct choice *c);
void kvr_sched__open_set(struct kvr_sched *s, struct choice *c);
bool kvr_sched__due(struct kvr_sched *s, const struct choice *c);
bool kvr_sched__pin_due(const struct kvr_sched *s, struct choice *c);

/* ---- silent_dp.c: unresponsive workers; all but the first require n_silent != 0 ---- */
/** Reset the state after a response, a new incarnation or removal. */
void kvr_sched__mark_responsive(struct kvr_sched *s, struct worker *w);
/** Before a choice: process intervals that have ended. */
void kvr_sched__silent_due(struct kvr_sched *s, uint64_t now);
/** After a booking at the rank. */
void kvr_sched__silent_booked(struct kvr_sched *s, uint32_t rank, uint64_t now);
void kvr_sched__params(const struct kvr_sched *s, const struct kvr_sched_req *req,
		       struct params *p);

/* choose_dp.c */
double kvr_sched__effective(const struct kvr_sched *s, const struct kvr_sched_overlap *ov,
			    uint32_t rank);
double kvr_sched__best_effective(const struct kvr_sched *s, const struct kvr_sched_overlap *ov,
				 const uint64_t *mask);
enum kvr_code kvr_sched__eligible(struct kvr_sched *s, struct choice *c);
void kvr_sched__project(struct kvr_sched *s, const struct choice *c, uint64_t now);
void kvr_sched__select(struct kvr_sched *s, const struct choice *c, struct kvr_sched_decision *d);
enum kvr_code kvr_sched__choose(struct kvr_sched *s, struct choice *c, uint64_t now,
				struct kvr_sched_decision *d);

/* ttft_dp.c */
void kvr_sched__ttft_waits(struct kvr_sched *s, uint32_t rank, bool first);
void kvr_sched__ttft_ended(struct kvr_sched *s, uint32_t slot, uint64_t now);
void kvr_sched__ttft_booked(struct kvr_sched *s, uint64_t tokens, uint64_t now);
void kvr_sched__ttft_fill(const struct kvr_sched *s, struct cost_in *in);
double kvr_sched__ttft_left(const struct cost_in *in, uint32_t rank);
void kvr_sched__ttft_term(const struct kvr_sched *s, const struct cost_in *in, uint32_t rank,
			  struct kvr_sched_term *t);

/* modes_dp.c */
enum kvr_code kvr_sched__choose_simple(struct kvr_sched *s, struct choice *c,
				       struct kvr_sched_decision *d);

/* book_dp.c */
void kvr_sched__book(struct kvr_sched *s, const struct choice *c, uint64_t now,
		     const struct kvr_sched_decision *d);
void kvr_sched__book_probe(struct kvr_sched *s, const struct kvr_sched_decision *d, uint64_t now);
void kvr_sched__unbook(struct kvr_sched *s, uint32_t slot, uint64_t now, kvr_cell_t *how);
void kvr_sched__released_end(struct kvr_sched *s, uint32_t slot);
uint32_t kvr_sched__exec_isl(const struct kvr_sched_req *req);
uint64_t kvr_sched__left(const struct kvr_sched *s, const struct choice *c,
			 const struct kvr_sched_decision *d);
void kvr_sched__fly(struct kvr_sched *s, const struct choice *c, uint32_t slot, uint64_t now);

/* slices_dp.c: prompts above AT_ONCE blocks */
#define AT_ONCE	     256u /* one run each at worst, 4 typically */
#define NOT_REPORTED (UINT64_C(1) << 63)
#define ADMIT_SLICES 4u /* per admission, which changes nothing before its prompt is matched */
void kvr_sched__enter(struct kvr_sched *s, uint32_t slot, const void *sh, uint32_t n, uint64_t now);
/* @return false: deferred, with the report to the overload detector. */
bool kvr_sched__leave_prompt(struct kvr_sched *s, uint32_t slot, uint32_t rank, uint64_t now);
void kvr_sched__settle(struct kvr_sched *s);

/* lora_dp.c */
uint16_t kvr_sched__lora_begin(struct kvr_sched *s, const struct kvr_hints *h);
void kvr_sched__lora_end(struct kvr_sched *s, uint16_t adapter);

/* queue_dp.c */
bool kvr_sched__all_busy(const struct kvr_sched *s, const struct cls *k, const uint64_t *mask);
enum kvr_code kvr_sched__enqueue(struct kvr_sched *s, const struct choice *c, uint64_t now,
				 struct kvr_sched_decision *d);
void kvr_sched__leave(struct kvr_sched *s, uint32_t slot);
void kvr_sched__move(struct kvr_sched *s, uint32_t slot, const struct choice *c, uint64_t now,
		     const struct kvr_sched_decision *d);
uint64_t kvr_sched__drain_at(const struct kvr_sched *s, uint64_t now);
void kvr_sched__limits(struct kvr_sched *s);
uint32_t kvr_sched__lane_lost(struct kvr_sched *s, uint32_t rank, uint32_t n);

_Static_assert(sizeof(struct node) == 64, "a node has one cache line");

/* heap_dp.c: leftist heaps over sched.node */
void kvr_sched__heap_add(struct node *nodes, uint32_t *root, uint32_t n);
void kvr_sched__heap_del(struct node *nodes, uint32_t *root, uint32_t n);
bool kvr_sched__before(const struct node *a, const struct node *b);

/* drr_dp.c */
uint32_t kvr_sched__next(struct kvr_sched *s, uint64_t now);
void kvr_sched__unserve(struct kvr_sched *s, uint32_t slot);

/* keep_dp.c: overlaps of waiting requests */
void kvr_sched__keep(struct kvr_sched *s, uint32_t slot, const struct kvr_sched_overlap *ov);
void kvr_sched__unkeep(struct kvr_sched *s, uint32_t slot);
void kvr_sched__recall(struct kvr_sched *s, uint32_t slot, struct kvr_sched_overlap *ov);
void kvr_sched__recall_end(struct kvr_sched *s, uint32_t slot);

#include "failing_pvt.h"
#include "late_pvt.h"

#endif
