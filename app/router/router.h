/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_H
#define ROUTER_H

/**
 * @file
 * The router's own structures: lcores, pools, and what travels on the rings between stages.
 *
 *   ingress (n lcores)     rx -> check -> reassemble -> hash -> score -> note ring of the pool;
 *                          HEARTBEAT is answered here and leaves its marks in the worker's beat
 *                          RESPONSE, RESPONSE_ACK: switched here, by handle; state changes
 *                          become notes
 *   event (1 per pool)     KV events -> prefix table; KV_ACK
 *   scheduler (1 per pool) notes -> decide, book, dispatch, free; owns the request slots
 *   egress                 frames of lcores without a queue of their own -> tx
 *   joins                  fragments of one sender that came to several ingress lcores
 *   control (main thread)  HELLO, GOODBYE, CONNECT, liveness, views, telemetry
 *
 * An lcore that owns a queue sends through it at once; the egress ring carries only the frames of
 * lcores without one (a scheduler or event lcore apart, and control).
 *
 * Control is preempted where packet lcores are not: whoever is stopped between the two steps of a
 * ring operation makes every other writer of that ring wait. So it writes to rings of its own only
 * (calls and an egress ring for each lcore, one producer), sends mbufs of a pool that only it takes
 * from, and gets frames as copies in buffers that only it gives back.
 *
 * Ownership of frames: whoever holds an mbuf either sends it (out_send(), which always takes it)
 * or frees it. A note that carries a job or an mbuf hands it over with the note; when the ring is
 * full the sender keeps it and answers REJECTED.
 *
 * Writers: struct lcore by its own thread; struct pool as marked; the view by control, published
 * with a release store that pairs with the acquire load at the top of each loop, and freed after
 * every polling lcore has passed a quiescent state.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/queue.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_rcu_qsbr.h>
#include <rte_ring.h>

#include "config/config.h"
#include "config/sizes.h"
#include "kvr_cookie.h"
#include "kvr_disagg.h"
#include "kvr_flight.h"
#include "kvr_hash.h"
#include "kvr_hints.h"
#include "kvr_message.h"
#include "kvr_port.h"
#include "kvr_prefix.h"
#include "kvr_reasm.h"
#include "kvr_request.h"
#include "kvr_sched.h"
#include "kvr_session.h"
#include "kvr_share.h"
#include "kvr_source.h"
#include "kvr_wire.h"
#include "kvr_worker.h"
#include "telemetry/counters.h"

struct lcore;
struct pool;
struct router;

#define BURST	      32u
#define SENDING_WORDS ((KVR_WIRE_MAX_FRAGMENTS + 63) / 64)
/* Most jobs one turn of an ingress lcore can make: a burst from every port, and fragments that
 * other lcores have received, any of which may be the last of its message. */
#define JOINS_TURN (4u * BURST)
#define JOBS_MAX   (BURST * KVR_ROUTER_MAX_PORTS + JOINS_TURN)

/* ---- what travels on the rings ---- */

enum note_type {
	NOTE_ROUTE = 1,	      /* ptr = struct job */
	NOTE_LOADS,	      /* the same: POTENTIAL_LOADS */
	NOTE_CANCEL,	      /* ptr = the CANCEL frame, becomes the answer */
	NOTE_PROBE,	      /* ptr = the PROBE frame, becomes the answer */
	NOTE_DISPATCH_ACK,    /* handle, code */
	NOTE_PROGRESS,	      /* handle, tokens, flags (KVR_PROG_F_*), cached; of a prefill leg's
			       * last item ptr = the frame */
	NOTE_FIN_ACKED,	      /* handle: the client has the last item */
	NOTE_ABORT_ACK,	      /* handle */
	NOTE_SESSION_OPENED,  /* handle = number of the ask, code, ptr = worker id, tokens = its
			       * epoch */
	NOTE_SESSION_CLOSED,  /* the same */
	NOTE_SESSION_RELEASE, /* ptr = the frame */
	NOTE_MISSING,	      /* ptr = the frame: what a worker lacks of a DISPATCH */
};

/** Element of a pool's note ring. */
struct note {
	uint8_t type; /* enum note_type */
	uint8_t pad;
	uint16_t flags;
	uint32_t tokens;
	uint32_t cached;
	uint32_t code;
	uint64_t handle;
	void *ptr;
};
_Static_assert(sizeof(struct note) == 32, "two notes a cache line");

/** Element of a pool's event ring: a KV_EVENTS frame (data = frame header), or a prediction. */
struct event_note {
	struct rte_mbuf *m;
	struct prediction *p; /* when m is NULL; the event stage puts it back */
	uint32_t rank;	      /* dense index */
	uint32_t charged;     /* ingress lcore that has charged the frame to its source, + 1 */
};

/** Element of an egress ring. */
struct egress_note {
	struct rte_mbuf *m;
	struct kvr_path path;
};
_Static_assert(sizeof(struct egress_note) % 4 == 0, "rte_ring element size");

/** A frame for control, copied out of its mbuf at ingress. From router::ctl_bufs. */
struct ctl_buf {
	struct kvr_path path;
	uint32_t len; /* of the frame */
	uint32_t pad;
	uint64_t frame[]; /* header and body, aligned */
};

/** Hashes of a decision on their way to the event stage; buf_get() of router::hash_bufs. */
struct prediction {
	uint64_t worker; /* and its life: the rank may pass to another on the way */
	uint32_t epoch;
	uint32_t n;
	uint64_t sh[];
};

/** Frames of a ROUTE longer than one; buf_get() of router::frame_lists. */
struct frame_list {
	struct frame_list *next; /* in the queue of an lcore */
	uint32_t n;
	uint32_t pad;
	struct rte_mbuf *m[];
};

/** The session that a ROUTE names. */
struct job_session {
	struct kvr_session_key key; /* its id lies with the hints; len 0: no session */
	uint32_t timeout_s;
	uint8_t action; /* enum kvr_wire_session_action */
};

struct kvr_flight;

/** A DISPATCH of several frames, or of a leg, on its way to a worker, until it is acknowledged.
 * send_dp.c; scheduler lcore. Valid from send_start() on but for `on`. */
struct sending {
	TAILQ_ENTRY(sending) link; /* in pool::sends while `on` */
	struct kvr_flight *r;
	uint64_t due_ns;	      /* of the next slice */
	uint32_t gap_ns;	      /* between its frames, grows with losses */
	uint32_t limit;		      /* largest frame it is cut to */
	uint32_t n_frames;	      /* of the message */
	uint32_t next;		      /* fragment of the first copy; n_frames: all are out */
	uint32_t n_lack;	      /* bits set in lack[] */
	bool on;		      /* there is something to send now */
	uint64_t lack[SENDING_WORDS]; /* fragments to send again, while n_lack > 0 */
};

TAILQ_HEAD(sending_list, sending);

/**
 * One ROUTE from its arrival until its request does not need the message any more. From pool::jobs.
 * Written by the ingress lcore, then owned by the scheduler lcore.
 */
struct pair;

struct job {
	uint64_t source;
	uint64_t id;
	uint64_t digest; /* of the client's message; 0: nobody will compare it */
	uint8_t kind;	 /* KVR_ROUTE, or KVR_POTENTIAL_LOADS: a question */
	uint64_t arrival_ns;
	uint64_t deadline_ns; /* 0 none */
	uint32_t flags;	      /* KVR_REQ_F_* */
	uint32_t isl;
	struct kvr_path client;
	struct rte_mbuf *frame;	   /* single frame: data starts at the frame header */
	struct frame_list *frames; /* several frames; frame is NULL */
	void *hash_buf;		   /* buf_get() of router::hash_bufs, or NULL */
	void *hint_buf;		   /* gathered hints, of router::hint_bufs, or NULL */
	void *allowed_buf;	   /* aligned allowed worker ids, likewise */
	struct pool *pool;
	struct job_session session;
	const void *hashes; /* n u64, unaligned; in the frame or in hash_buf */
	const void *tlvs;   /* the hints, in the frame or in hint_buf */
	uint32_t n_hashes;
	uint32_t tlvs_len;
	uint32_t hints_off; /* where they stand in the message's body, and what follows them */
	uint32_t body_off;
	struct pair *pair;  /* the pool is the decode pool of a pair; else NULL */
	uint32_t held;	    /* its frames, counted in pool::held; 0: it does not wait */
	uint32_t moved;	    /* its frames, counted in lcore::moved until the scheduler takes it */
	uint32_t lcore;	    /* ingress lcore that made it */
	uint32_t share_job; /* while it waits: of its source, shares_dp.c */
	uint32_t share_frames;
	bool sent;		       /* send_start() has it, and `sending` is valid */
	uint8_t excess_of;	       /* refused SourceLimit: enum kvr_wire_source_limit */
	struct kvr_share_state excess; /* ... and how much it was */
	struct sending sending;
	struct kvr_rq_msg msg; /* points at the next four, and at `pair` */
	struct kvr_sched_override over;
	struct kvr_sched_str required[KVR_HINTS_MAX_TAINTS];
	struct kvr_sched_preferred preferred[KVR_HINTS_MAX_TAINTS];
	struct kvr_sched_range shared[KVR_HINTS_MAX_SHARED];
	struct kvr_overlap *overlap; /* follows the struct */
};

/**
 * What the message of a request for a pair of pools needs besides: it lives as long as the job.
 * From pool::pairs of the decode pool. Writers: as the job.
 */
struct pair {
	struct kvr_rq_pair rq; /* points at the next two */
	struct kvr_sched_str required[KVR_HINTS_MAX_TAINTS + 1];
	struct kvr_sched_preferred preferred[KVR_HINTS_MAX_TAINTS + 1];
	struct rte_mbuf *result; /* last item of the prefill leg, or NULL */
	uint16_t port;		 /* bootstrap */
	char host[KVR_WORKER_TEXT];
	struct sending sending[2];   /* by leg */
	struct kvr_overlap *overlap; /* with the prefill pool's caches; follows the struct */
};

/**
 * A request at its scheduler: what lib/request knows of it, its message and its slots. From
 * pool::request of the pool of its main leg, until KVR_RQO_DONE. Scheduler lcore.
 */
struct request {
	struct kvr_request rq;
	struct kvr_flight *slot[2]; /* by leg; NULL: none */
	struct job *job;	    /* its message, while it or its repetition is needed; or NULL */
	uint64_t digest;	    /* of the client's ROUTE: kvr_request_digest() */
	uint64_t heard_ns;	    /* last ROUTE or PROBE of the client */
	struct request *next;	    /* free ones */
	uint32_t number;
	uint8_t tries; /* of rq.tries, those that are counted */
	bool counted;  /* as routed, queued, disagg, rejected or query */
	bool decided;  /* its main leg waits for no prefill leg, in this try of a pair */
};
_Static_assert(sizeof(struct request) == 256, "four cache lines");

/** How long a DISPATCH waits for its acknowledgement: 20 ms << step, at most 1 s. */
#define LEG_STEPS 7u

/* ---- lcores ---- */

enum stage { STAGE_INGRESS, STAGE_SCORE, STAGE_EVENT, STAGE_SCHED, STAGE_EGRESS, STAGES };

/** Work of one stage on one lcore. Lcore: rw, telemetry: ro (relaxed words). */
struct stage_work {
	STAGE_COUNTER_LIST(KVR_COUNTER_FIELD)
};

/** Turns of one lcore; the same. */
struct lcore_work {
	LCORE_COUNTER_LIST(KVR_COUNTER_FIELD)
};

extern const char *const router_stage_names[STAGES];

/** A function for a packet lcore to run, see call_start(). It does a little and returns false when
 * there is more, for the lcore's next turn. */
struct call {
	bool (*fn)(struct lcore *lc, void *arg);
	void *arg;
	_Atomic int busy;
};

/** What a worker has said of a rank, on its way to the pool's lcores. */
struct rank_load {
	uint64_t worker;
	uint32_t epoch;
	uint32_t rank; /* dense index */
	uint32_t dp_rank;
	uint32_t pad;
	uint64_t kv_used_blocks; /* UINT64_MAX: not said */
	uint64_t next_event_id;
};

/**
 * What sources have in the event ring of a pool, of the frames that one ingress lcore has put
 * there. They leave the ring in their order, and pool::events_done says how many have. That ingress
 * lcore; shares_dp.c.
 */
struct event_share {
	struct kvr_share *share;
	uint32_t *ref; /* of the frames in the ring, from `tail` on; a power of two of them */
	uint32_t mask;
	uint32_t most;
	uint32_t head, tail; /* frames ever put there, and given back */
};

/** The message in fragments that an ingress lcore reads, and those that wait for that: read_dp.c.
 */
struct reading {
	struct frame_list *first, *last; /* the first is being read when `open` */
	uint32_t frames;		 /* of all */
	bool open;
	bool tokens;   /* that are hashed */
	uint32_t unit; /* body bytes of each frame but the last */
	uint32_t len;
	uint32_t at; /* body bytes read so far */
	struct job *j;
	struct kvr_message q;
	struct kvr_tlv_iter mm; /* of `stream` */
	struct kvr_hash_stream stream;
	struct kvr_digest digest;
};

struct lcore {
	struct router *rt;
	uint32_t index;
	const struct kvr_view *view;
	uint64_t now_ns;
	struct kvr_port_queue *queue[KVR_ROUTER_MAX_PORTS]; /* NULL: sends through `via` */
	struct lcore *via;	     /* ingress lcore that sends for this one */
	struct rte_ring *egress;     /* struct egress_note, from packet lcores; ingress lcores */
	struct rte_ring *egress_ctl; /* the same, from control; lcore 0 */
	struct rte_ring *out;	     /* where its frames go without a queue of its own */
	struct rte_ring *joins;	   /* fragments that other ingress lcores received; NULL: none do */
	struct rte_ring *calls;	   /* struct call *, from control */
	struct call *call;	   /* it goes on in the next turn, or NULL */
	struct rte_mempool *mbufs; /* for answers */
	struct kvr_reasm *reasm;
	uint32_t moved[KVR_ROUTER_MAX_POOLS]; /* frames of fragmented messages given to pools */
	struct reading reading;
	struct frame_list *trash; /* messages whose frames are being freed */
	/* ingress lcores: senders of frames with a good cookie, and all others */
	struct kvr_source_table *proven;
	struct kvr_source_table *sources;
	struct event_share events[KVR_ROUTER_MAX_POOLS];
	kvr_cell_t *in;	    /* enum in_counter */
	kvr_cell_t *reject; /* enum kvr_code */
	uint32_t n_event, n_sched;
	struct pool *event_pool[KVR_ROUTER_MAX_POOLS];
	struct pool *sched_pool[KVR_ROUTER_MAX_POOLS];
	uint32_t full_bursts;	  /* receive bursts in a row that were full */
	bool overloaded;	  /* new requests of the busiest sources are shed */
	uint32_t shed_level;	  /* how busy is busy: see kvr_source_heavy() */
	uint64_t full_since_ns;	  /* last receive burst that was not full */
	uint32_t handed;	  /* frames of this poll that went to another lcore's `joins` */
	_Atomic uint64_t read_up; /* grows when all is read that had arrived some turns ago */
	uint32_t send_left;	  /* bytes of long messages that may still leave in this turn */
	uint32_t n_jobs;
	struct job *job[JOBS_MAX]; /* scored together */
	uint8_t *hints; /* KVR_WIRE_MAX_HINTS bytes to write them to; lcores that schedule a pair */
	struct stage_work work[STAGES];
	struct lcore_work turns;
	unsigned int qsbr_id;
	unsigned int lcore_id; /* EAL's */
} __rte_cache_aligned;

/* ---- pools ---- */

/** Where a rank's event stream stands. Event lcore only. */
struct event_cursor {
	uint64_t worker; /* whose rank it is */
	uint32_t epoch;	 /* its life; 0: nobody's */
	uint8_t dumping;
	uint8_t authoritative; /* nothing is known to be missing */
	uint16_t pad;
	uint32_t has_dump; /* dump_id is valid */
	uint64_t dump_id;  /* header id of the frames of the last dump */
	uint64_t next;	   /* event id */
	uint64_t dump_pos; /* next frame of the dump; 0 outside dumps */
	uint64_t lag;	   /* `next` when a heartbeat last said that more exists; else UINT64_MAX */
};

/** What sources have of a pool. Scheduler lcore; shares_dp.c. */
struct shares {
	struct kvr_share *slots;
	struct kvr_share *jobs;	  /* that wait */
	struct kvr_share *frames; /* of those */
	struct kvr_share *sessions;
	uint32_t *session;  /* by its entry: what its source is charged */
	uint32_t n_waiting; /* jobs */
};

struct pool {
	/* written at start */
	struct router *rt;
	const char *name;
	uint32_t number; /* index, in handles */
	uint32_t id;	 /* on the wire */
	uint32_t block_size;
	uint32_t max_ranks;
	uint32_t max_prompt_blocks;
	uint8_t role;
	bool events_used; /* KV events are applied */
	bool predict;	  /* decisions may be entered as predicted blocks */
	uint32_t predict_ttl_ms;
	const struct kvr_pool_conf *conf;
	struct lcore *sched_lcore;
	struct lcore *event_lcore;
	struct rte_mempool *jobs;
	struct rte_ring *notes;	 /* struct note; many producers */
	struct rte_ring *events; /* struct event_note; many producers */
	struct kvr_prefix *prefix;
	struct kvr_flight_table *requests; /* scheduler: rw; ingress: relay parts */
	struct kvr_sched *sched;	   /* scheduler lcore */
	struct decision_log *log;	   /* scheduler lcore writes */
	struct kvr_sched_load *loads;	   /* max_ranks each: answers to POTENTIAL_LOADS */
	struct kvr_wire_rank_potential *loads_wire;
	kvr_cell_t *count;	 /* enum pool_counter; scheduler lcore */
	kvr_cell_t *event_count; /* enum event_counter; event lcore */
	struct kvr_stats *stats;
	struct kvr_stats *event_stats;
	/* event lcore */
	struct event_cursor *cursor;  /* per dense rank */
	struct event_note event_open; /* goes on in the next turn; m NULL: none */
	uint64_t event_skip;	      /* events of it that are done, when it is of a dump */
	uint32_t event_at;	      /* blocks of the event after those that are done */
	bool event_dear;	      /* room is being made: small pieces */
	uint64_t expire_ns;	      /* next kvr_prefix_expire() */
	/* event lcore: w, that ingress lcore: r; publishes nothing */
	_Atomic uint32_t events_done[KVR_ROUTER_MAX_LCORES];
	/* scheduler lcore */
	struct kvr_rq_pool rq; /* `disagg`: of the prefill pool's control */
	struct kvr_stats *rq_stats;
	struct request *request; /* n_requests: every one that can have a slot, and a few more */
	uint32_t n_requests;
	struct request *free_request;
	struct session_use *use;       /* by request; NULL: no pool of theirs has sessions */
	struct sessions *sessions;     /* session.h; NULL: off */
	struct kvr_flight_list aborts; /* by abort_ns */
	uint32_t *lost; /* n_lost slots whose booking went with its worker, not handed on yet */
	uint32_t n_lost;
	uint32_t sweep; /* next slot to look at for deadlines */
	struct shares shares;
	_Atomic uint32_t held; /* frames kept by requests that wait; held_dp.c */
	uint32_t max_held;
	_Atomic uint32_t taken[KVR_ROUTER_MAX_LCORES]; /* frames of lcore::moved; ingress: ro */
	/* pairs of a prefill and a decode pool, on one scheduler lcore; else NULL */
	struct pool *prefill; /* of a decode pool */
	struct pool *decode;  /* of a prefill pool */
	const struct kvr_router_pool_options *own;
	struct rte_mempool *pairs;		   /* decode pool */
	struct kvr_rand rand;			   /* decode pool: rooms */
	struct kvr_disagg disagg;		   /* prefill pool: whether it takes part */
	struct kvr_flight_list resends[LEG_STEPS]; /* DISPATCH without an answer, by wait */
	struct sending_list sends;		   /* that have something to send */
	uint32_t n_prefilling;			   /* decode pool: decode leg not decided yet */
	/* control: w; scheduler: r */
	_Atomic bool expected; /* a worker may come (back) soon; scheduler: into rq.expected */
};

/** What one source may do on one port; written at start. */
struct source_rules {
	struct kvr_source_rate rate[KVR_SOURCE_BUCKETS];
	bool cookie; /* addresses are not believed without */
};

struct router {
	struct kvr_router_conf conf;
	struct kvr_router_conf *loaded; /* as the file says it, before sizes are derived */
	struct sizes sizes;		/* derived at start; constant afterwards */
	uint32_t n_ports, n_pools, n_lcores;
	char pool_names[256]; /* numbers and names, for who names another */
	uint32_t epoch;	      /* of this process, in every frame it makes */
	bool verbose;	      /* what EAL and drivers say is shown */
	uint32_t max_frame;
	uint64_t tsc_hz;
	uint64_t ns_per_tsc; /* 32.32 fixed point; 0: the clock stands still, in tests */
	uint64_t ns_offset;  /* what it shows then */
	uint64_t seed;
	struct kvr_port *port[KVR_ROUTER_MAX_PORTS];
	struct source_rules rules[KVR_ROUTER_MAX_PORTS];
	struct kvr_cookie_key cookie_key;
	struct pool pool[KVR_ROUTER_MAX_POOLS];
	struct lcore *lcore[KVR_ROUTER_MAX_LCORES];
	struct lcore control; /* context of the control thread: sends through `via` */
	/* See buf_get(): requests that wait hold small ones, the longest take a large one. */
	struct rte_mempool *small_bufs;
	struct rte_mempool *hash_bufs;
	struct rte_mempool *hint_bufs;
	struct rte_mempool *frame_lists;
	struct rte_ring *control_ring; /* struct ctl_buf *, from the ingress lcores */
	uint32_t ctl_frame;	       /* bytes of the longest frame in one of them */
	struct rte_mempool *ctl_bufs;  /* ingress takes, control gives back */
	/* Control takes, whoever has sent gives back. Control itself never does: it may be
	 * preempted between the two steps of that, and lcores that give back would wait for it. */
	struct rte_mempool *ctl_mbufs;
	struct rte_rcu_qsbr *qsbr;
	struct kvr_stats *in_stats;
	struct kvr_stats *reject_stats;
	_Atomic(struct kvr_view *) view;
	_Atomic int running; /* packet lcores poll */
	_Atomic int quit;    /* signals to end: 1 stop in good order, more: at once */
	_Atomic int reload;  /* SIGHUP */
	_Atomic int stop;    /* packet lcores end; only when nobody calls them any more */
	/* control thread, telemetry threads; under the lock of lib/ctl */
	struct kvr_registry *registry;
	struct control *ctl; /* control/thread.h */
	uint64_t last_tick_ns;
	bool stopping;			      /* nobody new is let in */
	bool link_down[KVR_ROUTER_MAX_PORTS]; /* control thread: said in the log */
	uint64_t start_ns;
};

/** A TSC value as nanoseconds: one multiplication; wraps with the TSC, in centuries. */
static inline uint64_t tsc_ns(const struct router *rt, uint64_t tsc)
{
	return rt->ns_offset + (uint64_t)((unsigned __int128)tsc * rt->ns_per_tsc >> 32);
}

static inline uint64_t now_ns(const struct router *rt)
{
	return tsc_ns(rt, rte_rdtsc());
}

/** Time from @p then to @p now; 0 when @p then is ahead: clocks of lcores are read at their turns.
 */
static inline uint64_t since_ns(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

#define SMALL_BUF 8192u

/** Memory of @p len bytes: a small buffer, or one of the pool of large ones. NULL: none left. */
static inline void *buf_get(struct router *rt, struct rte_mempool *large, size_t len)
{
	void *b;

	if (len <= SMALL_BUF && rte_mempool_get(rt->small_bufs, &b) == 0)
		return b;
	return rte_mempool_get(large, &b) == 0 ? b : NULL;
}

static inline void buf_put(void *b)
{
	if (b != NULL)
		rte_mempool_put(rte_mempool_from_obj(b), b);
}

static inline void in_count(struct lcore *lc, enum in_counter c)
{
	kvr_stats_inc(lc->in, c);
}

static inline void pool_count(struct pool *p, enum pool_counter c, uint64_t n)
{
	kvr_stats_add(p->count, c, n);
}

#endif
