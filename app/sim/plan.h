/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

/**
 * @file
 * What a run is made of: sizes, faults and how often. A seed draws all of it; every field can be
 * set on the command line instead. A fault that is 0 does not happen, so a failing run is made
 * smaller by setting fields to 0 and peers to fewer, with everything else as the seed has drawn it.
 * Constant during a run.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each line: field, least, most of what is drawn, chance in percent that it is drawn at all (else
 * it is `plain`), plain value, what a smaller run may do with it, help. */
/* New ones come last: what the others draw depends on their places. */
#define SIM_PLAN(X)                                                                                \
	X(engines, 1, 16, 100, 4, PEERS, "engines")                                                \
	X(ranks, 1, 3, 30, 1, PEERS, "ranks of each engine")                                       \
	X(clients, 1, 16, 100, 8, PEERS, "clients")                                                \
	X(seconds, 3, 9, 100, 6, TIME, "seconds of requests and faults")                           \
	X(rate, 1, 60, 25, 5, PEERS, "requests a second of each client")                           \
	X(lcores, 1, 5, 70, 1, SIZE, "map of packet lcores: 1, 2, 3, 2 with 2 queues, 4")          \
	X(delay_us, 5, 2000, 100, 50, SIZE, "one way through the network, least")                  \
	X(jitter_us, 0, 3000, 60, 0, FAULT, "more than that, at most")                             \
	X(loss, 1, 300, 40, 0, FAULT, "frames lost, of 1,000")                                     \
	X(copies, 1, 200, 30, 0, FAULT, "frames that come twice, of 1,000")                        \
	X(late, 1, 200, 30, 0, FAULT, "frames that are overtaken, of 1,000")                       \
	X(late_ms, 1, 400, 50, 2, SIZE, "by so much at most")                                      \
	X(broken, 1, 100, 25, 0, FAULT, "frames with broken bits, of 1,000")                       \
	X(cuts, 1, 6, 30, 0, FAULT, "one-way partitions between two")                              \
	X(clogs, 1, 4, 20, 0, FAULT, "links that hold everything back for a while")                \
	X(router_kills, 1, 3, 30, 0, FAULT, "the router dies and comes back")                      \
	X(engine_kills, 1, 6, 30, 0, FAULT, "engine and agent die and come back")                  \
	X(engine_leaves, 1, 4, 20, 0, FAULT, "engines say GOODBYE and come back")                  \
	X(engine_pauses, 1, 6, 25, 0, FAULT, "engine and agent stand still")                       \
	X(engine_moves, 1, 4, 15, 0, FAULT, "agents go on from another UDP port")                  \
	X(client_kills, 1, 6, 25, 0, FAULT, "clients die and come back")                           \
	X(client_pauses, 1, 6, 25, 0, FAULT, "clients stand still")                                \
	X(router_pauses, 1, 4, 25, 0, FAULT, "the whole router stands still")                      \
	X(stalls, 1, 10, 25, 0, FAULT, "one packet lcore stands still")                            \
	X(cancels, 1, 300, 40, 0, FAULT, "requests that clients cancel, of 1,000")                 \
	X(directs, 1, 1000, 40, 0, FAULT, "requests with the direct path, of 1,000")               \
	X(tokens, 1, 1000, 50, 0, FAULT, "requests of tokens, hashed by the router, of 1,000")     \
	X(large, 1, 300, 40, 0, FAULT, "requests with long bodies, of 1,000")                      \
	X(sessions, 1, 500, 30, 0, FAULT, "requests of sessions, of 1,000")                        \
	X(small_router, 1, 1, 30, 0, FAULT, "rings, slots and jobs of the router are few")         \
	X(queueing, 1, 1, 40, 0, FAULT, "the router has requests wait for busy ranks")             \
	X(predict, 1, 1, 40, 0, FAULT, "decisions are entered as predicted blocks")                \
	X(cookies, 1, 1, 50, 0, FAULT, "addresses must prove themselves")                          \
	X(shares, 1, 1, 50, 0, FAULT, "sources have shares")                                       \
	X(cache_blocks, 64, 4000, 100, 1000, SIZE, "blocks of a rank's cache")                     \
	X(bug_lost, 1, 100, 20, 0, FAULT, "KV events silently lost, of 1,000")                     \
	X(bug_twice, 1, 300, 20, 0, FAULT, "blocks announced twice, of 1,000 events")              \
	X(bug_parent, 1, 300, 20, 0, FAULT, "lies about the parent, of 1,000 events")              \
	X(bug_never, 1, 100, 20, 0, FAULT, "events for blocks never stored, of 1,000")             \
	X(bug_zero, 1, 4, 20, 0, FAULT, "engines restart beside their agent, no AllBlocksCleared") \
	X(bug_epoch, 1, 1, 20, 0, FAULT, "engines come back with the epoch they had")              \
	X(bug_mute, 1, 60, 20, 0, FAULT, "requests never answered, of 1,000")                      \
	X(bug_error, 1, 100, 25, 0, FAULT, "requests that end with an error, of 1,000")            \
	X(bug_refuse, 1, 100, 20, 0, FAULT, "requests refused, of 1,000")                          \
	X(bug_after, 1, 1000, 20, 0, FAULT, "answers after the abort, of 1,000 aborts")            \
	X(routers, 1, 2, 100, 1, PEERS, "routers")                                                 \
	X(router_stops, 1, 3, 25, 0, FAULT, "a router ends in good order and comes back")          \
	X(pairs, 1, 1, 30, 0, FAULT, "every other engine only computes prompts")                   \
	X(sites, 1, 30, 30, 0, FAULT, "places in the code that fail, of 1,000 visits")             \
	X(engine_drains, 1, 4, 25, 0, FAULT, "engines are drained and resumed, by either side")    \
	X(bug_moves, 1, 4, 20, 0, FAULT, "ranks of two engines change places")                     \
	X(warm, 1, 1, 40, 0, FAULT, "routers make snapshots, and begin with them")                 \
	X(bad_files, 1, 500, 50, 0, FAULT, "writes and reads of them that go wrong, of 1,000")     \
	X(clock_back, 1, 500, 20, 0, FAULT, "10 ms that an engine's clock is set back, at most")   \
	X(pause, 0, 100, 0, 0, SIZE, "seconds more between two requests of a client, at most")     \
	X(agent_kills, 1, 4, 20, 0, FAULT, "agents die beside their engine and come back")         \
	X(long_items, 1, 200, 30, 0, FAULT,                                                        \
	  "items and transfer results of up to 64 KiB, of 1,000")                                  \
	X(late_binding, 1, 1, 25, 0, FAULT, "requests wait in the router for ranks that are idle") \
	X(quiets, 1, 1000, 40, 0, FAULT, "requests that can do without ACCEPTED, of 1,000")        \
	X(expiry, 1, 60, 50, 300, SIZE, "seconds of silence that release a booking")

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
/** The lines of SIM_PLAN; the last has no name. */
extern const struct sim_field sim_fields[];

static inline uint32_t *sim_field_at(struct sim_plan *p, const struct sim_field *f)
{
	return (uint32_t *)((char *)p + f->offset);
}

/** What @p seed draws. With @p faults false nothing goes wrong. */
void sim_plan_draw(struct sim_plan *p, uint64_t seed, bool faults);

/** Set a field from "name=value". @return 0, -ENOENT, -EINVAL. */
int sim_plan_set(struct sim_plan *p, const char *text);

/** As arguments that make the same run: bytes of the text, as snprintf(). */
int sim_plan_text(const struct sim_plan *p, char *buf, size_t len);

#endif
