/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_SIM_H
#define SIM_SIM_H

/**
 * @file
 * A whole cluster in one process, on one thread, in virtual time: routers (their real stages; a
 * turn of one packet lcore or a round of control is a step), clients (lib/client), agents
 * (lib/agent) and engines with a real prefix cache, over a simulated network. The plan determines
 * everything: its seed draws order, delays and faults, and a second run of a plan is equal to the
 * byte.
 *
 *   plan.c        the fields that a seed draws
 *   report.c      reason of a failure, log, digest
 *   net.c         frames in flight, and faults of the network
 *   host.c        routers: configuration, turns, crashes
 *   disk.c        files of routers, and their faults
 *   stop.c        orderly shutdown of a router while time goes on
 *   eal_names.c   two routers in one EAL
 *   pool_reuse.c  packet buffers, reused from one router to the next
 *   memory.c      memory that routers allocate
 *   cache.c       caches of engines, and their KV events
 *   engine.c      agents and engines
 *   prompt.c      prompts and bodies as functions of numbers
 *   client.c      clients: their requests, and checks of the answers
 *   faults.c      schedule of crashes, pauses and cuts
 *   oracle.c      announced blocks, and engines that must get no new requests
 *   check.c       invariants at the end
 *   world.c       time: the next event, and the phases of a run
 *
 * Writer of everything: the thread that runs the world. Speed: perf/e2e/sim.
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

#define SIM_MS	     UINT64_C(1000000)
#define SIM_S	     UINT64_C(1000000000)
#define SIM_NEVER    UINT64_MAX
#define SIM_ROUTERS  2u
#define SIM_ENGINES  32u
#define SIM_CLIENTS  64u
#define SIM_NODES    (SIM_ROUTERS * (1u + SIM_ENGINES + SIM_CLIENTS)) /* at most 255 */
#define SIM_DUE	     128u /* routers, engines and clients at most; a multiple of SIM_GROUP */
#define SIM_GROUP    8u
#define SIM_RANKS    8u
#define SIM_BLOCK    16u
#define SIM_PROMPT   96u /* blocks of the longest prompt */
#define SIM_PROMPTS  400u
#define SIM_POOL     1u /* pool that clients send to; of a pair, the decode half */
#define SIM_PREFILL  2u
#define SIM_PACKET   2048u /* largest packet whose memory is reused */
#define SIM_RETRIES  64u
#define SIM_ATTEMPTS 3u /* attempts of a request, at the routers in turn */

struct sim;

/** A frame in flight. */
struct packet {
	uint64_t at_ns; /* arrival */
	uint64_t no;
	STAILQ_ENTRY(packet) link; /* at its receiver */
	struct kvr_udp_addr from, to;
	uint8_t src, dst; /* nodes */
	bool broken;	  /* bits are flipped: the checksum is wrong */
	uint32_t len;
	_Alignas(64) uint8_t data[];
};
STAILQ_HEAD(packets, packet);

/** An address: the routers, then the agents of each engine, one per router, then the libraries of
 * each client, likewise. */
struct node {
	struct sim *sim;
	uint32_t no;
	struct kvr_udp_addr addr;
	struct packets rx, lent;  /* arrived; handed out by the last recv */
	struct kvr_rand rand;	  /* of the library at this node */
	uint64_t due_ns;	  /* next time to run */
	uint64_t paused_until_ns; /* paused until */
	uint32_t incarnation;
	uint32_t router;
	bool up, mute; /* mute: sent frames are dropped */
};

/** An entry of the heap, with its sort key. */
struct flying {
	uint64_t at_ns, no;
	struct packet *p;
};

struct net {
	struct flying *heap;
	struct packets spare;
	uint32_t n, cap;
	uint64_t next_no;
	uint64_t last_ns[SIM_NODES][SIM_NODES]; /* frames of a link arrive in order unless delayed
						   by a fault */
	uint64_t cut_until_ns[SIM_NODES][SIM_NODES];
	uint64_t clog_until_ns[SIM_NODES][SIM_NODES];
	struct kvr_rand rand;
	bool healed;
	uint64_t sent, lost, unaddressed;
	void *pcap; /* FILE */
};

/** A request of a client, and its result. */
struct sim_request {
	uint32_t client, router, incarnation;
	uint32_t attempts; /* earlier attempts of the same request */
	uint64_t id, source;
	uint32_t n_tokens, n_hashes;
	uint32_t items, item_us, body_len; /* of the answer; of the body */
	uint32_t prompt;		   /* number that determines the tokens */
	bool cancelled, probe, over, killed;
	uint32_t outcomes;
	enum kvr_client_reason reason;
	uint32_t got;		 /* items received */
	uint32_t execution;	 /* execution that sent them, + 1 */
	uint32_t last_execution; /* newest execution + 1; chained by struct execution */
	uint64_t sent_ns, cancel_ns;
};

/** One execution of a request by an engine. */
struct execution {
	uint32_t request, before; /* before: the previous execution of the request + 1 */
	uint32_t engine, seat, incarnation, rank, attempt;
	uint64_t began_ns;
	bool prefill; /* of a pair: the answer is the result for the decode leg */
	uint64_t handle;
	uint64_t at_ns; /* next step */
	enum {
		EXECUTION_QUEUED,
		EXECUTION_PREFILL,
		EXECUTION_DECODE,
		EXECUTION_MUTE,
		EXECUTION_SENT,
		EXECUTION_OVER
	} state;
	uint32_t made, fails_at; /* items made; fails_at UINT32_MAX: never */
	bool counts;		 /* its error is a failure of the rank */
	uint32_t next;		 /* next in the list of the engine, + 1 */
	struct engine_task task;
	uint32_t n_hashes;
	const uint64_t *hash; /* of its prompt */
};

/** A set of sequence hashes; 0 is an empty entry. */
struct announced {
	uint64_t *v;
	uint64_t mask, n;
};

struct rank {
	struct engine_rank model;   /* tasks are numbers of executions. Its queue is not used:
				       step_executions() selects */
	struct announced announced; /* since this incarnation began */
	bool dirty;		    /* the events of this rank were falsified */
};

/** An engine's agent for one of the routers. */
struct seat {
	struct node *node;
	struct engine *engine;
	struct kvr_agent *agent;
	enum kvr_agent_state state;
	/* the dump in progress */
	struct kvr_agent_kv *dump;
	uint32_t dump_n;
	uint64_t *dump_hash;
};

struct engine {
	struct sim *sim;
	struct seat seat[SIM_ROUTERS];
	bool up, prefill;
	uint32_t incarnation;
	struct kvr_rand rand;
	struct rank rank[SIM_RANKS];
	uint32_t executions; /* list of executions: first + 1 */
	uint64_t due_ns;
	uint32_t epoch;
	bool leaving, asks_drain;
	uint64_t fails_since_ns, fails_until_ns; /* every request: failing.c */
	uint32_t fails_got;
};

struct client {
	struct node *node[SIM_ROUTERS];
	struct kvr_client *client[SIM_ROUTERS];
	bool up;
	uint32_t incarnation;
	struct kvr_rand rand;
	uint64_t next_send_ns, next_cancel_ns;
	uint32_t retries[SIM_RETRIES]; /* requests to try at another router */
	uint32_t n_retries;
};

struct host {
	struct sim *sim;
	uint32_t no;
	struct memory memory;
	/* Of engines, as the router's registry has them: since when it gets no new requests
	 * (SIM_NEVER: it gets them), epoch, since when it is known, newest epoch ever known. */
	uint64_t closed_ns[SIM_ENGINES], open_ns[SIM_ENGINES];
	uint32_t epoch[SIM_ENGINES], newest[SIM_ENGINES];
	bool drained[SIM_ENGINES];
	struct router_rig rig;
	bool up;
	struct stop *stop;	      /* orderly shutdown in progress */
	uint64_t turn_ns, control_ns; /* next turn and next round of control */
	uint64_t stall_ns[KVR_ROUTER_MAX_LCORES];
	uint64_t paused_until_ns;
	uint64_t back_ns;    /* restart */
	uint64_t work;	     /* total work on prefix tables: changes while a rank is cleared */
	uint64_t checked[2]; /* state of the tables at the last check by oracle.c */
	/* Bit masks of lcores: those that made a turn since the last work; those with work. */
	uint32_t quiet, busy;
	uint32_t incarnations;
	struct kvr_rand rand;
	uint8_t *older; /* its snapshot before the last crash */
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
	uint64_t phase_ns; /* begin of the phase */
	bool verbose, failed;
	char why[512];
	uint64_t digest;
	uint64_t steps, ticks;
	uint64_t eal_bytes; /* allocated by the running routers after their start */
	struct kvr_rand rand;
	struct net net;
	struct host host[SIM_ROUTERS];
	struct node node[SIM_NODES];
	struct engine engine[SIM_ENGINES];
	struct client client[SIM_CLIENTS];
	uint32_t n_nodes, n_due;
	/* Routers, engines and clients: next time to run with the number of each, minimum of each
	 * group, minimum of all. See world.c. */
	uint64_t due[SIM_DUE], group[SIM_DUE / SIM_GROUP], first;
	struct sim_request *request;
	uint32_t n_requests, cap_requests;
	uint64_t *hashes[SIM_PROMPTS]; /* of all blocks of a prompt, once computed */
	struct execution *execution;
	uint32_t n_executions, cap_executions;
	struct incident *incident;
	uint32_t n_incidents, next_incident;
	uint32_t ends[16]; /* requests by kvr_client_reason */
	uint32_t retries;  /* attempts at another router */
	uint32_t probes;
};

/* Nodes of router r and its peers are r modulo the number of routers. */
static inline uint32_t sim_engine_node(const struct sim *s, uint32_t i, uint32_t router)
{
	return (1 + i) * s->plan.routers + router;
}

static inline uint32_t sim_client_node(const struct sim *s, uint32_t i, uint32_t router)
{
	return (1 + s->plan.engines + i) * s->plan.routers + router;
}

/** Draw whether an event of probability @p of_1000 in 1,000 occurs. */
static inline bool sim_chance(struct kvr_rand *r, uint32_t of_1000)
{
	return of_1000 != 0 && kvr_rand_below(r, 1000) < of_1000;
}

static inline bool sim_faults(const struct sim *s)
{
	return s->phase == PHASE_FAULTS;
}

/** Let the agents of an engine run now. */
static inline void engine_wake(struct engine *e)
{
	for (uint32_t r = 0; r < e->sim->plan.routers; r++)
		e->seat[r].node->due_ns = e->sim->now_ns;
}

/* ---- report.c ---- */

/** Fail the run. The first reason is kept. */
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** With --verbose: print a line with the time. */
void sim_log(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** Add an event to the digest. */
void sim_digest(struct sim *s, uint64_t a, uint64_t b);

/* ---- world.c ---- */

struct sim_result {
	bool failed;
	char why[512];
	uint64_t digest, ns, steps, frames;
	uint32_t requests, retries, ends[16];
};

/** Counters that moved in the routers of all runs. */
extern struct counters_moved sim_seen;

/** Run a plan. @p pcap: file for its frames, or NULL. @return 0, or -errno when the run could not
 * begin. */
int world_run(const struct sim_plan *p, bool verbose, const char *pcap, struct sim_result *out);

/* ---- net.c ---- */

void net_begin(struct sim *s);
void net_end(struct sim *s);
/** Send a frame from a node. The receiver is the node that has the address at arrival. */
void net_send(struct sim *s, uint32_t src, const struct kvr_udp_addr *to, const void *data,
	      uint32_t len);
/** Arrival of the next frame. */
uint64_t net_next_ns(const struct net *n);
/** Take the next frame. The caller frees it or passes it to node_receive(). */
struct packet *net_take(struct net *n);
/** Free a frame; its memory is reused. */
void net_free(struct net *n, struct packet *p);
/** Queue a frame at its receiver, which is not a router. Drop it when no node has the address. */
void node_receive(struct sim *s, struct packet *p);
void node_begin(struct sim *s, uint32_t no);
/** Give the node the address of its next incarnation: the same host, another UDP port. */
void node_rename(struct node *n);
void node_drop(struct node *n);
/** Time, random numbers and datagrams of a library at this node. */
struct kvr_udp node_world(struct node *n);
uint64_t node_now_us(void *ctx);

/* ---- host.c ---- */

int host_begin(struct sim *s, uint32_t i);
void host_end(struct host *h);
void host_kill(struct host *h, uint32_t back_ms);
uint64_t host_due_ns(const struct host *h);
/** @return whether control made a round. */
bool host_run(struct host *h);
void host_arrive(struct host *h, struct packet *p);

/** Drain or resume an engine as an operator. */
void host_drain(struct host *h, uint32_t engine, bool on);

/* ---- disk.c ---- */

/** Create a folder for files of this world, if its routers write snapshots. @return 0 or -errno. */
int disk_begin(struct sim *s);
void disk_end(struct sim *s);
/** The lines of a router's configuration that name its files. @return length as snprintf(). */
int disk_text(const struct host *h, char *text, size_t len);
/** Size of the router's snapshot; 0: none. */
uint64_t disk_bytes(const struct host *h);
/** Read the snapshot of the previous incarnation. @return 0 or -errno with a line in @p err. */
int disk_open(struct host *h, char *err, size_t errlen);
/** After a round of control: write the snapshot that it asked for. */
void disk_run(struct host *h);
/** Close the files. */
void disk_close(struct host *h);
/** The router has crashed: apply faults to its file. */
void disk_left(struct host *h);

/* ---- oracle.c ---- */

void announced_add(struct announced *a, const uint64_t *sh, uint32_t n);
bool announced_has(const struct announced *a, uint64_t sh);
void announced_free(struct announced *a);
/** Tables must have announced blocks only. */
void oracle_check_tables(struct sim *s);
/** A dispatched request: its overlap of @p blocks must have been announced. */
void oracle_check_overlap(struct sim *s, const struct execution *r, uint32_t blocks);
void oracle_check_open(struct sim *s, const struct execution *r);
struct item_body;
/** The content must be equal to what the client sent. @return false: the run has failed. */
bool oracle_check_body(struct sim *s, const struct kvr_agent_request *q, struct item_body *b);
/** An incarnation must get a request only once. */
void oracle_check_once(struct sim *s, const struct seat *t, uint64_t handle, uint32_t request);
/** The leg must fit the engine, and carry the result of the prefill leg. */
void oracle_check_leg(struct sim *s, const struct engine *e, const struct kvr_agent_request *q,
		      uint32_t request);
/** A router starts: reset its states. After a round of control: note the states of its workers. */
void oracle_reset(struct host *h);
void oracle_note_states(struct host *h);

/* ---- stop.c ---- */

/** Begin the orderly shutdown; the router restarts @p back_ms after its end. */
int stop_begin(struct host *h, uint32_t back_ms);
/** Continue the shutdown. @return whether it is complete. */
bool stop_run(struct host *h);
/** Free a shutdown in any state. */
void stop_free(struct host *h);
uint32_t stop_back_ms(const struct host *h);

/* ---- client.c ---- */

int client_start(struct sim *s, uint32_t i);
/** End a client. @p quietly: without closing its library, as in a crash. */
void client_end(struct sim *s, uint32_t i, bool quietly);
void client_suspend(struct sim *s, uint32_t i, uint64_t until_ns);
uint64_t client_due_ns(const struct sim *s, uint32_t i);
void client_run(struct sim *s, uint32_t i);
uint32_t clients_waiting(const struct sim *s);
/** Send one more request, which must succeed. */
void client_send_probe(struct sim *s, uint32_t i, uint32_t router);
/** The plan disturbs neither network nor peers, and no client cancels; engines may fail. */
bool client_plan_is_harmless(const struct sim *s);

/* ---- prompt.c ---- */

/** The first @p n tokens of a prompt. */
void prompt_tokens(const struct sim *s, uint32_t prompt, uint32_t *tokens, uint32_t n);
/** SIM_PROMPT sequence hashes, valid until prompts_free(). */
const uint64_t *prompt_hashes(struct sim *s, uint32_t prompt);
void prompts_free(struct sim *s);
/** True if the data of an answer come with its last item, as those of a folded answer do. */
bool request_is_folded(const struct sim *s, uint32_t request);
/** Fill bytes @p from to @p n of a body or an item. */
void body_fill(uint32_t request, uint8_t *p, uint32_t from, uint32_t n);
/** @return the first wrong byte, or @p n. */
uint32_t body_wrong(uint32_t request, const uint8_t *p, uint32_t from, uint32_t n);

/** Head of a body and of an item. */
struct item_body {
	uint32_t request, execution, no, of;
};

/* ---- engine.c ---- */

int engine_begin(struct sim *s, uint32_t i);
void engine_end(struct sim *s, uint32_t i);
/** The agents crash without a message; new ones begin unless agents are running. The engine keeps
 * its cache. */
void agents_end(struct sim *s, uint32_t i);
int agents_begin(struct sim *s, uint32_t i);
uint64_t engine_due_ns(const struct sim *s, uint32_t i);
void engine_run(struct sim *s, uint32_t i);
void engine_leave(struct engine *e);
/** The agents ask for no new requests, or for new requests again. */
void engine_drain(struct engine *e, bool on);
void engine_suspend(struct engine *e, uint64_t until_ns);
static inline uint64_t engine_worker(uint32_t i)
{
	return 100 + i;
}

/* ---- cache.c ---- */

int cache_begin(struct sim *s, struct engine *e, uint32_t rank);
void cache_end(struct engine *e, uint32_t rank);
/** Store the prompt of an execution in the cache, and announce it, with the faults of the plan. */
void cache_store(struct sim *s, struct engine *e, struct execution *r);
/** Clear the cache without an event. */
void cache_forget(struct sim *s, struct engine *e, uint32_t rank);
/** Swap the caches of two engines' ranks without an event. */
void cache_move(struct sim *s, struct engine *e, struct engine *f, uint32_t rank);
/** Announce all blocks again if events were falsified. */
void cache_mend(struct sim *s, struct engine *e, uint32_t rank);
/** Call @p fn for each chain of blocks, in an order in which they can be stored. */
void cache_walk(struct engine *e, uint32_t rank,
		void (*fn)(void *arg, const uint64_t *parent, const uint64_t *sh, uint32_t n),
		void *arg);
int cache_dump(struct kvr_agent *a, uint32_t dp_rank, uint64_t pos, struct kvr_agent_kv *kv,
	       void *user);

/* ---- faults.c ---- */

int faults_begin(struct sim *s);
uint64_t faults_due_ns(const struct sim *s);
void faults_run(struct sim *s);
/** End all faults for the rest of the run. */
void faults_heal(struct sim *s);

/* ---- check.c ---- */

/** Check loads and bookings, between two rounds of control. */
void check_loads(struct host *h);
/** Whether every engine serves. @p say: fail the run otherwise. */
bool check_serving(struct sim *s, bool say);
/** No request may be left anywhere, and the tables must be equal to the caches. */
void check_rest(struct sim *s);
/** Log the requests and loads of a router. */
void check_log_left(struct sim *s, const struct router *rt);

#endif
