/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_INGRESS_H
#define ROUTER_INGRESS_H

/**
 * @file
 * The ingress stage, and its handling of frames other than ROUTE. Answer streams are relayed by the
 * relay part of a slot (lib/flight), changes of a request become messages to its scheduler, and a
 * heartbeat is recorded in the worker's beat. Ingress lcores read slots and the view, and write
 * only counters and beats. Budget: a burst of 32 from each port within a turn of 50 us.
 */

#include "state/router.h"

/* ---- ingress_dp.c ---- */

/** Receive one burst from every queue of this lcore. @return frames received. */
uint32_t ingress_poll(struct lcore *lc);

/* ---- handoff_dp.c ---- */

/** Copy the frame to the control thread, within the rate of its source. */
void ingress_to_control(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** The same for HELLO, if the sender's address may run agents. */
void ingress_hello(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** ROUTE and POTENTIAL_LOADS, complete or fragmented. */
void ingress_request(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/* ---- heartbeat_dp.c ---- */

/** HEARTBEAT: record and answer. */
void ingress_heartbeat(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** ALIVE: to the scheduler of the worker's pool; never answered. */
void ingress_alive(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/* ---- relay_dp.c ---- */

/** RESPONSE from an agent, complete or fragmented, RESPONSE_ACK from a client, MISSING from either:
 * relay by handle. */
void relay_response(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);
void relay_missing(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);
void relay_response_ack(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** DISPATCH_ACK, PROGRESS, ABORT_ACK from an agent. */
void request_from_agent(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/* ---- client_frames_dp.c ---- */

/** The retransmitted first fragment of a complete transfer result. */
void result_again(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** CANCEL, PROBE from a client. */
void request_from_client(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/* ---- session_frames_dp.c ---- */

/** SESSION_OPENED, SESSION_CLOSED from an agent; SESSION_RELEASE from a client. */
void session_from_agent(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);
void session_from_client(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

#endif
