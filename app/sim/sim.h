/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_SIM_H
#define SIM_SIM_H

/**
 * @file
 * A whole cluster in one process, on one thread, in virtual time: routers (their real stages, each
 * packet lcore a step, control a step), clients (lib/client), agents (lib/agent) and engines with a
 * real prefix cache, over a simulated network. Everything that happens follows from the plan, whose
 * seed draws order, delays and faults; a second run with the same plan is the same to the byte.
 *
 *   plan.c     what a seed draws
 *   say.c      why it failed, what happens, the digest
 *   net.c      frames on their way, and what the network does to them
 *   host.c     the routers: their configuration, turns, deaths
 *   disk.c     files of routers, and what happens to them
 *   stop.c     a router that ends in good order, while time goes on
 *   names.c    two routers in one EAL
 *   spare.c    packet buffers, from one router to the next
 *   memory.c   what routers take of the process's memory
 *   cache.c    what an engine has and what it says of that
 *   engine.c   agents and engines
 *   prompt.c   prompts and bodies, which follow from numbers
 *   customer.c clients, what they ask for, and what must come of it
 *   faults.c   who dies, stands still or is cut off, and when
 *   truth.c    what engines have announced, and who is given nothing new
 *   check.c    what must be true at the end
 *   world.c    time: what is due next, and the phases of a run
 *
 * The thread that runs it writes everything. Speed: perf/e2e/sim.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "bugs.h"
#include "engine_model.h"
#include "kvr_agent.h"
#include "kvr_client.h"
#include "kvr_rand.h"
#include "kvr_udp.h"
#include "leak_check.h"
#include "memory.h"
#include "plan.h"
#include "router_rig.h"

#define SIM_MS	    UINT64_C(1000000)
#define SIM_S	    UINT64_C(1000000000)
#define SIM_NEVER   UINT64_MAX
#define SIM_ROUTERS 2u
#define SIM_ENGINES 32u
#define SIM_CLIENTS 64u
#define SIM_NODES   (SIM_ROUTERS * (1u + SIM_ENGINES + SIM_CLIENTS)) /* at most 255 */
#define SIM_DUE	    128u /* routers, engines and clients, at most; whole groups */
#define SIM_GROUP   8u
#define SIM_RANKS   8u
#define SIM_BLOCK   16u
#define SIM_PROMPT  96u /* blocks, at most */
#define SIM_PROMPTS 400u
#define SIM_POOL    1u /* where clients send; of a pair, that which decodes */
#define SIM_PREFILL 2u
#define SIM_PACKET  2048u /* packets up to that are used again */
#define SIM_AGAIN   64u
#define SIM_TRIES   3u /* of one wish of a client, at its routers in turn */

struct sim;

/** A frame on its way. */
struct packet {
	uint64_t at_ns; /* it arrives */
	uint64_t no;
	STAILQ_ENTRY(packet) link; /* at its receiver */
	struct kvr_udp_addr from, to;
	uint8_t src, dst; /* nodes */
	bool broken;	  /* bits have changed: its checksum is wrong */
	uint32_t len;
	_Alignas(64) uint8_t data[];
};
STAILQ_HEAD(packets, packet);

/** Somebody with an address: routers, then each engine's agents, one a router, then each client's
 * libraries, the same. */
struct node {
	struct sim *sim;
	uint32_t no;
	struct kvr_udp_addr addr;
	struct packets rx, lent; /* arrived; handed out by the last recv */
	struct kvr_rand rand;	 /* of what runs there */
	uint64_t due_ns;	 /* it is to run then */
	uint64_t still_until_ns; /* it stands still until then */
	uint32_t life;
	uint32_t router;
	bool up, mute; /* mute: what it sends is not sent */
};

/** A place of the heap: what it is ordered by lies beside it. */
struct flying {
	uint64_t at_ns, no;
	struct packet *p;
};

struct net {
	struct flying *heap;
	struct packets spare;
	uint32_t n, cap;
	uint64_t next_no;
	uint64_t last_ns[SIM_NODES][SIM_NODES]; /* frames of a link come in order unless late */
	uint64_t cut_until_ns[SIM_NODES][SIM_NODES];
	uint64_t clog_until_ns[SIM_NODES][SIM_NODES];
	struct kvr_rand rand;
	bool healed;
	uint64_t sent, lost, nobody;
	void *pcap; /* FILE */
};

/** One request of a client, and what has become of it. */
struct ask {
	uint32_t client, router, life;
	uint32_t tries; /* wishes of which this is another try */
	uint64_t id, source;
	uint32_t n_tokens, n_hashes;
	uint32_t items, item_us, body_len; /* of the answer; of the body */
	uint32_t prompt;		   /* its number: tokens follow from it */
	bool cancelled, probe, over, killed;
	uint32_t outcomes;
	enum kvr_client_reason reason;
	uint32_t got;	   /* items */
	uint32_t run;	   /* execution they came from + 1 */
	uint32_t last_run; /* newest execution + 1, chain by struct run */
	uint64_t asked_ns, cancel_ns;
};

/** One execution of a request by an engine. */
struct run {
	uint32_t ask, before; /* before: the ask's execution before this one + 1 */
	uint32_t engine, seat, life, rank, attempt;
	uint64_t began_ns;
	bool prefill; /* of a pair: its answer is the result that the other leg gets */
	uint64_t handle;
	uint64_t at_ns; /* next step */
	enum { RUN_QUEUED, RUN_PREFILL, RUN_DECODE, RUN_MUTE, RUN_SENT, RUN_OVER } state;
	uint32_t made, fails_at; /* items; UINT32_MAX: does not fail */
	uint32_t next;		 /* in its engine's list + 1 */
	struct engine_task task;
	uint32_t n_hashes;
	const uint64_t *hash; /* of its prompt */
};

/** Sequence hashes: none is 0. */
struct announced {
	uint64_t *v;
	uint64_t mask, n;
};

struct rank {
	struct engine_rank
		model;	       /* tasks: numbers of executions. Its queue is not used: see work() */
	struct announced told; /* ever, in this life */
	bool dirty;	       /* the agent was not told the truth */
};

/** An engine's agent for one of the routers. */
struct seat {
	struct node *node;
	struct engine *engine;
	struct kvr_agent *agent;
	enum kvr_agent_state state;
	/* the dump under way */
	struct kvr_agent_kv *dump;
	uint32_t dump_n;
	uint64_t *dump_hash;
};

struct engine {
	struct sim *sim;
	struct seat seat[SIM_ROUTERS];
	bool up, prefill;
	uint32_t life;
	struct kvr_rand rand;
	struct rank rank[SIM_RANKS];
	uint32_t runs; /* list of executions + 1 */
	uint64_t due_ns;
	uint32_t epoch;
	bool leaving, asks_drain;
};

struct customer {
	struct node *node[SIM_ROUTERS];
	struct kvr_client *client[SIM_ROUTERS];
	bool up;
	uint32_t life;
	struct kvr_rand rand;
	uint64_t next_ask_ns, next_cancel_ns;
	uint32_t again[SIM_AGAIN]; /* asks that are tried elsewhere */
	uint32_t n_again;
};

struct host {
	struct sim *sim;
	uint32_t no;
	struct memory memory;
	/* engines, as its registry has them: since when it takes nothing new (SIM_NEVER: it does),
	 * its life, since when it is known, and the last life that was */
	uint64_t closed_ns[SIM_ENGINES], open_ns[SIM_ENGINES];
	uint32_t life[SIM_ENGINES], newest[SIM_ENGINES];
	bool drained[SIM_ENGINES];
	struct box box;
	bool up;
	struct stop *stop;	      /* it ends in good order */
	uint64_t turn_ns, control_ns; /* next */
	uint64_t stall_ns[KVR_ROUTER_MAX_LCORES];
	uint64_t still_until_ns;
	uint64_t back_ns;   /* it starts again */
	uint64_t work;	    /* ever done at prefix tables: slices follow each other */
	uint64_t looked[2]; /* tables of its pools as they were looked at last: truth.c */
	/* lcores, a bit each: whose turns have done nothing since; that have something to do */
	uint32_t quiet, busy;
	uint32_t lives;
	struct kvr_rand rand;
	uint8_t *older; /* its snapshot before the last death */
	size_t older_len;
};

struct incident {
	uint64_t at_ns;
	uint8_t kind;
	uint32_t a, b, ms;
};

enum phase { PHASE_FAULTS, PHASE_HEALED, PHASE_PROBES, PHASE_REST, PHASE_END };

struct sim {
	struct sim_plan plan;
	uint64_t now_ns;
	enum phase phase;
	uint64_t phase_ns; /* began */
	bool verbose, failed;
	char why[512];
	uint64_t digest;
	uint64_t steps, ticks;
	uint64_t eal_bytes; /* taken by the routers there are, when they had begun */
	struct kvr_rand rand;
	struct net net;
	struct host host[SIM_ROUTERS];
	struct node node[SIM_NODES];
	struct engine engine[SIM_ENGINES];
	struct customer customer[SIM_CLIENTS];
	uint32_t n_nodes, n_due;
	/* Of routers, engines, clients: when they are due and who they are; the least of each
	 * group, and of all: world.c. */
	uint64_t due[SIM_DUE], group[SIM_DUE / SIM_GROUP], first;
	struct ask *ask;
	uint32_t n_asks, cap_asks;
	uint64_t *hashes[SIM_PROMPTS]; /* of all blocks of a prompt, once known */
	struct run *run;
	uint32_t n_runs, cap_runs;
	struct incident *incident;
	uint32_t n_incidents, next_incident;
	uint32_t ends[16]; /* of asks, by reason */
	uint32_t again;	   /* tries elsewhere */
	uint32_t probes;
};

/* Router r's node, and those that talk to it, are r modulo the number of routers. */
static inline uint32_t sim_engine_node(const struct sim *s, uint32_t i, uint32_t router)
{
	return (1 + i) * s->plan.routers + router;
}

static inline uint32_t sim_client_node(const struct sim *s, uint32_t i, uint32_t router)
{
	return (1 + s->plan.engines + i) * s->plan.routers + router;
}

/** Does what happens @p of_1000 times in 1,000 happen now? */
static inline bool sim_chance(struct kvr_rand *r, uint32_t of_1000)
{
	return of_1000 != 0 && kvr_rand_below(r, 1000) < of_1000;
}

static inline bool sim_faults(const struct sim *s)
{
	return s->phase == PHASE_FAULTS;
}

/** An engine's agents have something to say. */
static inline void engine_wake(struct engine *e)
{
	for (uint32_t r = 0; r < e->sim->plan.routers; r++)
		e->seat[r].node->due_ns = e->sim->now_ns;
}

/* ---- say.c ---- */

/** It has failed: the first reason is kept, and the run ends. */
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** Told with --verbose: a line with the time. */
void sim_say(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** Something happened: into the digest. */
void sim_note(struct sim *s, uint64_t a, uint64_t b);

/* ---- world.c ---- */

struct sim_result {
	bool failed;
	char why[512];
	uint64_t digest, ns, steps, frames;
	uint32_t asks, again, ends[16];
};

/** What has happened in the routers of all runs. */
extern struct rest_seen sim_seen;

/** Run it from begin to end. @p pcap: file for its frames, or NULL. @return 0, or -errno when it
 * could not begin. */
int world_run(const struct sim_plan *p, bool verbose, const char *pcap, struct sim_result *out);

/* ---- net.c ---- */

void net_begin(struct sim *s);
void net_end(struct sim *s);
/** A node sends: to whoever has that address when it arrives. */
void net_send(struct sim *s, uint32_t src, const struct kvr_udp_addr *to, const void *data,
	      uint32_t len);
/** When the next frame arrives. */
uint64_t net_next_ns(const struct net *n);
/** Take that frame; the caller frees it or gives it to node_receive(). */
struct packet *net_take(struct net *n);
/** Its memory for the next. */
void net_free(struct net *n, struct packet *p);
/** It waits at its receiver, which is no router, or is dropped when nobody has its address. */
void node_receive(struct sim *s, struct packet *p);
void node_begin(struct sim *s, uint32_t no);
/** Its address for its next life: the same host, another UDP port. */
void node_rename(struct node *n);
void node_drop(struct node *n);
/** Time, randomness and datagrams for a library that runs at this node. */
struct kvr_udp node_world(struct node *n);
uint64_t node_now_us(void *ctx);

/* ---- host.c ---- */

int host_begin(struct sim *s, uint32_t i);
void host_end(struct host *h);
void host_kill(struct host *h, uint32_t back_ms);
uint64_t host_due_ns(const struct host *h);
/** @return whether control has made a round. */
bool host_run(struct host *h);
void host_arrive(struct host *h, struct packet *p);

/** An operator drains or resumes an engine. */
void host_drain(struct host *h, uint32_t engine, bool on);

/* ---- disk.c ---- */

/** A folder for this world's files; none unless its routers make snapshots. @return 0 or -errno. */
int disk_begin(struct sim *s);
void disk_end(struct sim *s);
/** Before a router is configured: where its files are. Bytes of the text, as snprintf(). */
int disk_text(const struct host *h, char *text, size_t len);
/** Of the snapshot that lies there for it; 0: none. */
uint64_t disk_bytes(const struct host *h);
/** It reads what its life before has left. @return 0 or -errno with a line in @p err. */
int disk_open(struct host *h, char *err, size_t errlen);
/** Control has made a round: the snapshot that it has asked for. */
void disk_run(struct host *h);
/** It has no files open any more. */
void disk_close(struct host *h);
/** It has died: what becomes of its file meanwhile. */
void disk_left(struct host *h);

/* ---- truth.c ---- */

void announced_add(struct announced *a, const uint64_t *sh, uint32_t n);
bool announced_has(const struct announced *a, uint64_t sh);
void announced_free(struct announced *a);
/** Nothing stands in a table that was not announced. */
void truth_tables(struct sim *s);
/** A request comes to its engine, of which its router has counted so many blocks as cached. */
void truth_overlap(struct sim *s, const struct run *r, uint32_t blocks);
void truth_dispatch(struct sim *s, const struct run *r);
struct item_body;
/** What it carries is as its client has made it. @return false: it has failed. */
bool truth_body(struct sim *s, const struct kvr_agent_request *q, struct item_body *b);
/** Never twice in this life. */
void truth_once(struct sim *s, const struct seat *t, uint64_t handle, uint32_t ask);
/** Its leg of a pair is one for this engine, with the other leg's result. */
void truth_leg(struct sim *s, const struct engine *e, const struct kvr_agent_request *q,
	       uint32_t ask);
/** A router begins; its control has made a round. */
void truth_begin(struct host *h);
void truth_closed(struct host *h);

/* ---- stop.c ---- */

/** It is told to end in good order, and is back @p back_ms after it has. */
int stop_begin(struct host *h, uint32_t back_ms);
/** It goes on with that. @return whether it has ended. */
bool stop_run(struct host *h);
/** It is gone, however far that has come. */
void stop_free(struct host *h);
uint32_t stop_back_ms(const struct host *h);

/* ---- customer.c ---- */

int customer_begin(struct sim *s, uint32_t i);
/** It dies without a word; @p quietly false: it closes its client first, as a program that ends. */
void customer_end(struct sim *s, uint32_t i, bool quietly);
void customer_still(struct sim *s, uint32_t i, uint64_t until_ns);
uint64_t customer_due_ns(const struct sim *s, uint32_t i);
void customer_run(struct sim *s, uint32_t i);
uint32_t customers_waiting(const struct sim *s);
/** One more request, that must succeed. */
void customer_probe(struct sim *s, uint32_t i, uint32_t router);

/* ---- prompt.c ---- */

/** The first @p n tokens of a prompt. */
void prompt_tokens(const struct sim *s, uint32_t prompt, uint32_t *tokens, uint32_t n);
/** SIM_PROMPT sequence hashes, until prompts_free(). */
const uint64_t *prompt_hashes(struct sim *s, uint32_t prompt);
void prompts_free(struct sim *s);
/** Bytes @p from to @p n of what a request sends, or of an item of its answer. */
void body_fill(uint32_t ask, uint8_t *p, uint32_t from, uint32_t n);
/** @return the first of them that is wrong, or @p n. */
uint32_t body_wrong(uint32_t ask, const uint8_t *p, uint32_t from, uint32_t n);

/** What an item says. */
struct item_body {
	uint32_t ask, run, no, of;
};

/* ---- engine.c ---- */

int engine_begin(struct sim *s, uint32_t i);
void engine_end(struct sim *s, uint32_t i);
/** Its agents die without a word, and another process of them begins, unless they are there: the
 * engine keeps its cache. */
void agents_end(struct sim *s, uint32_t i);
int agents_begin(struct sim *s, uint32_t i);
uint64_t engine_due_ns(const struct sim *s, uint32_t i);
void engine_run(struct sim *s, uint32_t i);
void engine_goodbye(struct engine *e);
/** Its agents ask for no new requests, or for some again. */
void engine_drain(struct engine *e, bool on);
void engine_still(struct engine *e, uint64_t until_ns);
static inline uint64_t engine_worker(uint32_t i)
{
	return 100 + i;
}

/* ---- cache.c ---- */

int cache_begin(struct sim *s, struct engine *e, uint32_t rank);
void cache_end(struct engine *e, uint32_t rank);
/** The prompt of an execution is in the cache now; told by events, with the engine's bugs. */
void cache_store(struct sim *s, struct engine *e, struct run *r);
/** The engine lost it all and its agent hears nothing of that. */
void cache_forget(struct sim *s, struct engine *e, uint32_t rank);
/** Two engines' ranks have changed places, and nobody has said so. */
void cache_move(struct sim *s, struct engine *e, struct engine *f, uint32_t rank);
/** Tell the truth anew when it was not told. */
void cache_mend(struct sim *s, struct engine *e, uint32_t rank);
/** Every block, in the order in which it can be stored: @p fn is called for each chain. */
void cache_walk(struct engine *e, uint32_t rank,
		void (*fn)(void *arg, const uint64_t *parent, const uint64_t *sh, uint32_t n),
		void *arg);
int cache_dump(struct kvr_agent *a, uint32_t dp_rank, uint64_t pos, struct kvr_agent_kv *kv,
	       void *user);

/* ---- faults.c ---- */

int faults_begin(struct sim *s);
uint64_t faults_due_ns(const struct sim *s);
void faults_run(struct sim *s);
/** Everybody is well again, and stays so. */
void faults_heal(struct sim *s);

/* ---- check.c ---- */

/** Loads and bookings, whenever control stands between two rounds. */
void check_loads(struct host *h);
/** Every engine serves. */
bool check_serving(struct sim *s, bool say);
/** No request is left anywhere, and the table is what the engines have. */
void check_rest(struct sim *s);
/** Tell what a router has. */
void check_say_left(struct sim *s, const struct router *rt);

#endif
