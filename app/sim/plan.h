/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

/**
 * @file
 * The plan of a run: sizes, faults and their rates. A seed draws all fields, and the command line
 * can override each. A fault at 0 does not occur, so a failing run is shrunk by setting faults to 0
 * and reducing the number of peers, while the other fields stay. Constant during a run.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each line: field, minimum and maximum drawn, percentage of seeds that draw it, value otherwise,
 * how a run is shrunk by it, help. */
/* Append new fields: the values drawn depend on the position. */
#define SIM_PLAN(X)                                                                                \
	X(engines, 1, 16, 100, 4, PEERS, "engines")                                                \
	X(ranks, 1, 3, 30, 1, PEERS, "ranks per engine")                                           \
	X(clients, 1, 16, 100, 8, PEERS, "clients")                                                \
	X(seconds, 3, 9, 100, 6, TIME, "seconds of requests and faults")                           \
	X(rate, 1, 60, 25, 5, PEERS, "requests per second and client")                             \
	X(lcores, 1, 5, 70, 1, SIZE, "layout of packet lcores: 1, 2, 3, 2 with 2 queues, 4")       \
	X(delay_us, 5, 2000, 100, 50, SIZE, "minimum one-way delay of the network")                \
	X(jitter_us, 0, 3000, 60, 0, FAULT, "maximum jitter added to it")                          \
	X(loss, 1, 300, 40, 0, FAULT, "lost frames, per 1,000")                                    \
	X(copies, 1, 200, 30, 0, FAULT, "duplicated frames, per 1,000")                            \
	X(late, 1, 200, 30, 0, FAULT, "overtaken frames, per 1,000")                               \
	X(late_ms, 1, 400, 50, 2, SIZE, "maximum delay of overtaken frames")                       \
	X(broken, 1, 100, 25, 0, FAULT, "frames with flipped bits, per 1,000")                     \
	X(cuts, 1, 6, 30, 0, FAULT, "one-way partitions of a link")                                \
	X(clogs, 1, 4, 20, 0, FAULT, "links that hold all frames back for a while")                \
	X(router_kills, 1, 3, 30, 0, FAULT, "crashes of the router, with restart")                 \
	X(engine_kills, 1, 6, 30, 0, FAULT, "crashes of engine and agents, with restart")          \
	X(engine_leaves, 1, 4, 20, 0, FAULT, "engines that leave with GOODBYE, with restart")      \
	X(engine_pauses, 1, 6, 25, 0, FAULT, "pauses of engine and agents")                        \
	X(engine_moves, 1, 4, 15, 0, FAULT, "agents that change their UDP port")                   \
	X(client_kills, 1, 6, 25, 0, FAULT, "crashes of clients, with restart")                    \
	X(client_pauses, 1, 6, 25, 0, FAULT, "pauses of clients")                                  \
	X(router_pauses, 1, 4, 25, 0, FAULT, "pauses of the whole router")                         \
	X(stalls, 1, 10, 25, 0, FAULT, "stalls of one packet lcore")                               \
	X(cancels, 1, 300, 40, 0, FAULT, "cancelled requests, per 1,000")                          \
	X(directs, 1, 1000, 40, 0, FAULT, "requests with direct answers, per 1,000")               \
	X(tokens, 1, 1000, 50, 0, FAULT, "requests with tokens instead of hashes, per 1,000")      \
	X(large, 1, 300, 40, 0, FAULT, "requests with long bodies, per 1,000")                     \
	X(sessions, 1, 500, 30, 0, FAULT, "requests of sessions, per 1,000")                       \
	X(small_router, 1, 1, 30, 0, FAULT, "few rings, slots and jobs in the router")             \
	X(queueing, 1, 1, 40, 0, FAULT, "requests wait in the router for busy ranks")              \
	X(predict, 1, 1, 40, 0, FAULT, "decisions are entered as predicted blocks")                \
	X(cookies, 1, 1, 50, 0, FAULT, "clients must prove their addresses with cookies")          \
	X(shares, 1, 1, 50, 0, FAULT, "sources have quotas")                                       \
	X(cache_blocks, 64, 4000, 100, 1000, SIZE, "blocks of a rank's cache")                     \
	X(bug_lost, 1, 100, 20, 0, FAULT, "lost KV events, per 1,000")                             \
	X(bug_twice, 1, 300, 20, 0, FAULT, "blocks announced twice, per 1,000 events")             \
	X(bug_parent, 1, 300, 20, 0, FAULT, "events with a wrong parent, per 1,000 events")        \
	X(bug_never, 1, 100, 20, 0, FAULT, "events for blocks never stored, per 1,000")            \
	X(bug_zero, 1, 4, 20, 0, FAULT, "engines that lose their cache without AllBlocksCleared")  \
	X(bug_epoch, 1, 1, 20, 0, FAULT, "engines restart with their old epoch")                   \
	X(bug_mute, 1, 60, 20, 0, FAULT, "requests unanswered for 40 s, then failed, per 1,000")   \
	X(bug_error, 1, 100, 25, 0, FAULT, "requests that end with an error, per 1,000")           \
	X(bug_refuse, 1, 100, 20, 0, FAULT, "requests rejected by the engine, per 1,000")          \
	X(bug_after, 1, 1000, 20, 0, FAULT, "answers after the abort, per 1,000 aborts")           \
	X(routers, 1, 2, 100, 1, PEERS, "routers")                                                 \
	X(router_stops, 1, 3, 25, 0, FAULT, "orderly shutdowns of the router, with restart")       \
	X(pairs, 1, 1, 30, 0, FAULT, "every other engine is a prefill engine")                     \
	X(sites, 1, 30, 30, 0, FAULT, "failures of places in the code, per 1,000 visits")          \
	X(engine_drains, 1, 4, 25, 0, FAULT, "engines drained and resumed, by agent or operator")  \
	X(bug_moves, 1, 4, 20, 0, FAULT, "ranks swapped between two engines")                      \
	X(warm, 1, 1, 40, 0, FAULT, "routers write snapshots, and start from them")                \
	X(bad_files, 1, 500, 50, 0, FAULT, "failed file operations of snapshots, per 1,000")       \
	X(clock_back, 1, 500, 20, 0, FAULT,                                                        \
	  "maximum set-back of an engine's clock, units of 10 ms")                                 \
	X(pause, 0, 100, 0, 0, SIZE, "maximum extra seconds between two requests of a client")     \
	X(agent_kills, 1, 4, 20, 0, FAULT,                                                         \
	  "crashes of agents beside a running engine, with restart")                               \
	X(long_items, 1, 200, 30, 0, FAULT,                                                        \
	  "items and prefill results of up to 64 KiB, per 1,000")                                  \
	X(late_binding, 1, 1, 25, 0, FAULT,                                                        \
	  "late binding: requests wait in the router for idle ranks")                              \
	X(quiets, 1, 1000, 40, 0, FAULT, "requests without ACCEPTED, per 1,000")                   \
	X(expiry, 1, 60, 50, 300, SIZE, "seconds of silence that release a booking")               \
	X(engine_fails, 1, 6, 25, 0, FAULT, "intervals in which an engine fails all its requests") \
	X(folded, 1, 1000, 30, 0, FAULT, "answers whose data come with the last item, per 1,000")

enum sim_kind { SIM_PEERS, SIM_TIME, SIM_SIZE, SIM_FAULT };

#define SIM_PLAN_FIELD(name, lo, hi, chance, plain, kind, help) uint32_t name;
struct sim_plan {
	uint64_t seed;
	SIM_PLAN(SIM_PLAN_FIELD)
};

struct sim_field {
	const char *name;
	size_t offset;
	uint32_t lo, hi, chance, plain;
	enum sim_kind kind;
	const char *help;
};
/** The lines of SIM_PLAN, terminated by one without a name. */
extern const struct sim_field sim_fields[];

static inline uint32_t *sim_field_at(struct sim_plan *p, const struct sim_field *f)
{
	return (uint32_t *)((char *)p + f->offset);
}

/** Draw all fields for @p seed. @p faults false: faults stay 0. */
void sim_plan_draw(struct sim_plan *p, uint64_t seed, bool faults);

/** Set a field from "name=value". @return 0, -ENOENT, -EINVAL. */
int sim_plan_set(struct sim_plan *p, const char *text);

/** Write the arguments that give the same run. @return length as snprintf(). */
int sim_plan_text(const struct sim_plan *p, char *buf, size_t len);

#endif
