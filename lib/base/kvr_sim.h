/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SIM_H
#define KVR_SIM_H

/**
 * @file
 * Places in the code where a simulation makes something fail (KVR_SIM_FAULT) or wants to know that
 * a run has come by (KVR_SIM_SOMETIMES). They are there only in builds with -Dc_args=-DKVR_SIM;
 * elsewhere the one is false and the other nothing. One table; the thread that runs the simulation
 * writes it.
 */

#include <stdbool.h>
#include <stdint.h>

/* Each line: name, whether it fails on demand, what it means there. */
#define KVR_SIM_SITES(X)                                                                           \
	X(JOB, true, "ingress has no job for a request")                                           \
	X(FRAME_LIST, true, "no list for the frames of a long message")                            \
	X(BUFFER, true, "no buffer for hashes, hints or a prediction")                             \
	X(CTL_BUF, true, "no buffer for a frame that control is to see")                           \
	X(PAIR, true, "no memory for the two legs of a request")                                   \
	X(MBUF, true, "no packet buffer for an answer")                                            \
	X(NOTES, true, "the ring of notes of a pool is full")                                      \
	X(EVENT_RING, true, "the ring of KV events of a pool is full")                             \
	X(JOINS, true, "the ring of fragments of another ingress lcore is full")                   \
	X(EGRESS, true, "the ring of frames of an ingress lcore is full")                          \
	X(REASM_COPY, false, "a fragment comes twice")                                             \
	X(REASM_REFUSED, false, "a fragment is refused")                                           \
	X(REASM_EXPIRED, false, "a message never became whole")                                    \
	X(ROUTE_AGAIN, false, "a client asks for what the router has")                             \
	X(DISPATCH_AGAIN, false, "DISPATCH is repeated")                                           \
	X(ABORT_AGAIN, false, "ABORT is repeated")                                                 \
	X(START_OVER, false, "both legs of a request begin anew")                                  \
	X(WAITS_IN_VAIN, false, "a decode leg's engine was to fetch what has gone")                \
	X(UNWANTED, false, "a prefill leg for which nobody waits is stopped")                      \
	X(EVENT_GAP, false, "KV events are missing")                                               \
	X(SESSION_LOST, false, "a session's worker has gone")                                      \
	X(AGENT_COPY, false, "an agent gets a DISPATCH twice")                                     \
	X(AGENT_ITEM_AGAIN, false, "an agent repeats items")                                       \
	X(AGENT_PART_AGAIN, false, "an agent is asked for fragments of an item")                   \
	X(AGENT_GIVES_UP, false, "an agent's client acknowledges nothing any more")                \
	X(AGENT_DUMP, false, "an agent dumps a rank")                                              \
	X(AGENT_DUMP_AGAIN, false, "frames of a dump are repeated")                                \
	X(AGENT_OVERRUN, false, "an agent has more events than it may keep")                       \
	X(AGENT_ADRIFT, false, "a direct answer goes on without its router")                       \
	X(CLIENT_ADRIFT, false, "a client goes on without its router")                             \
	X(CLIENT_AGAIN, false, "a client repeats a request")                                       \
	X(CLIENT_PROBE, false, "a client asks whether a request lives")                            \
	X(CLIENT_FORGOTTEN, false, "a router does not know a request any more")                    \
	X(CLIENT_ITEM_COPY, false, "a client gets an item twice")

#define KVR_SIM_ENUM(name, fails, text) KVR_SIM_##name,
enum kvr_sim_site { KVR_SIM_SITES(KVR_SIM_ENUM) KVR_SIM_N };

#ifdef KVR_SIM

/** Count a visit. @return whether it is to fail: what the hook says. */
bool kvr_sim_fault(enum kvr_sim_site site);
void kvr_sim_sometimes(enum kvr_sim_site site);

#define KVR_SIM_FAULT(site)	kvr_sim_fault(KVR_SIM_##site)
#define KVR_SIM_SOMETIMES(site) kvr_sim_sometimes(KVR_SIM_##site)

#else

#define KVR_SIM_FAULT(site)	false
#define KVR_SIM_SOMETIMES(site) ((void)0)

#endif

/** Who says whether a site fails now; NULL: none does. */
void kvr_sim_hook(bool (*fn)(void *arg, enum kvr_sim_site site), void *arg);

/** How often a site was reached, and has failed. @return its name, NULL at the end of the table.
 * Without sites in the build the table is empty. */
const char *kvr_sim_site_get(uint32_t site, const char **text, bool *fails, uint64_t *reached,
			     uint64_t *failed);

#endif
