/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SIM_H
#define KVR_SIM_H

/**
 * @file
 * Sites in the code where a simulation injects a failure (KVR_SIM_FAULT) or records that a path was
 * taken (KVR_SIM_SOMETIMES). They exist only in builds with -Dc_args=-DKVR_SIM. In other builds
 * KVR_SIM_FAULT is false and KVR_SIM_SOMETIMES is empty. One table, written by the thread that runs
 * the simulation.
 */

#include <stdbool.h>
#include <stdint.h>

/* Name, true if the site can fail on demand, meaning. */
#define KVR_SIM_SITES(X)                                                                           \
	X(JOB, true, "ingress has no job for a request")                                           \
	X(FRAME_LIST, true, "no list for the frames of a long message")                            \
	X(BUFFER, true, "no buffer for hashes, hints or a prediction")                             \
	X(CTL_BUF, true, "no buffer for a frame to the control thread")                            \
	X(PAIR, true, "no memory for the two legs of a request")                                   \
	X(MBUF, true, "no packet buffer for an answer")                                            \
	X(NOTES, true, "the mailbox of a pool is full")                                            \
	X(EVENT_RING, true, "the ring of KV events of a pool is full")                             \
	X(JOINS, true, "the ring of fragments of another ingress lcore is full")                   \
	X(EGRESS, true, "the ring of frames of an ingress lcore is full")                          \
	X(REASM_COPY, false, "a fragment arrives twice")                                           \
	X(REASM_REFUSED, false, "a fragment is rejected")                                          \
	X(REASM_EXPIRED, false, "a message stayed incomplete")                                     \
	X(ROUTE_AGAIN, false, "a client repeats a ROUTE that the router has")                      \
	X(DISPATCH_AGAIN, false, "DISPATCH is repeated")                                           \
	X(ABORT_AGAIN, false, "ABORT is repeated")                                                 \
	X(START_OVER, false, "both legs of a request start over")                                  \
	X(WAITS_IN_VAIN, false, "a decode leg waits for blocks that are gone")                     \
	X(UNWANTED, false, "a prefill leg without a decode leg is stopped")                        \
	X(EVENT_GAP, false, "KV events are missing")                                               \
	X(SESSION_LOST, false, "the worker of a session is gone")                                  \
	X(AGENT_COPY, false, "an agent gets a DISPATCH twice")                                     \
	X(AGENT_ITEM_AGAIN, false, "an agent repeats items")                                       \
	X(AGENT_PART_AGAIN, false, "a client requests fragments of an item again")                 \
	X(AGENT_GIVES_UP, false, "the client of an agent stops acknowledging")                     \
	X(AGENT_DUMP, false, "an agent dumps a rank")                                              \
	X(AGENT_DUMP_AGAIN, false, "frames of a dump are repeated")                                \
	X(AGENT_OVERRUN, false, "an agent has more events than it can buffer")                     \
	X(AGENT_ADRIFT, false, "a direct answer continues without its router")                     \
	X(CLIENT_ADRIFT, false, "a client continues without its router")                           \
	X(CLIENT_AGAIN, false, "a client repeats a request")                                       \
	X(CLIENT_PROBE, false, "a client probes a request")                                        \
	X(CLIENT_FORGOTTEN, false, "a router no longer knows a request")                           \
	X(CLIENT_ITEM_COPY, false, "a client gets an item twice")

#define KVR_SIM_ENUM(name, fails, text) KVR_SIM_##name,
enum kvr_sim_site { KVR_SIM_SITES(KVR_SIM_ENUM) KVR_SIM_N };

#ifdef KVR_SIM

/** Count a visit. @return the decision of the hook: true = fail. */
bool kvr_sim_fault(enum kvr_sim_site site);
void kvr_sim_sometimes(enum kvr_sim_site site);

#define KVR_SIM_FAULT(site)	kvr_sim_fault(KVR_SIM_##site)
#define KVR_SIM_SOMETIMES(site) kvr_sim_sometimes(KVR_SIM_##site)

#else

#define KVR_SIM_FAULT(site)	false
#define KVR_SIM_SOMETIMES(site) ((void)0)

#endif

/** Set the hook that decides whether a site fails; NULL: no site fails. */
void kvr_sim_hook(bool (*fn)(void *arg, enum kvr_sim_site site), void *arg);

/**
 * Visits and failures of a site. @return its name; NULL after the last site, and in builds without
 * sites.
 */
const char *kvr_sim_site_get(uint32_t site, const char **text, bool *fails, uint64_t *reached,
			     uint64_t *failed);

#endif
