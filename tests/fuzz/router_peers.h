/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_PEERS_H
#define ROUTER_PEERS_H

/**
 * @file
 * The peers of fuzz_router: what an input has them do. A step takes the bytes it needs from the
 * input, 0 where the input has ended, and says at most one message. What the router has said is
 * remembered, and with it every handle and number; so is what was said to it. One thread.
 */

#include "router_world.h"

#include "kvr_put.h"

/* ---- router_peers.c: input, memory, names ---- */

/** Begin with an input; nothing has been said. @p data stays the caller's. */
void peers_begin(const uint8_t *data, size_t len);

/** Is there more of the input? */
bool peers_more(void);

uint8_t peers_byte(void);
uint16_t peers_word(void);

/** One of 0 to @p most, mostly a small one. */
uint32_t peers_size(uint32_t most);

/** Every stage of the router once, and what it says is remembered. */
void peers_step(void);

/** Remember what the router has said. */
void peers_hear(void);

/** Send a frame of @p len bytes from UDP port @p from, and remember it; nothing when @p len is not
 * above 0. */
void peers_say(uint32_t from, const void *frame, int len);

/** Ids of something of kind @p kind that the router has said, @p back of them ago, and in *to
 * where it went; NULL: never. */
const struct kvr_wire_ids *peers_recall(uint8_t kind, uint32_t back, uint16_t *to);

/** The frame said @p back (0 to 15) frames ago, its length and sender; NULL: none. */
const uint8_t *peers_said(uint32_t back, uint16_t *len, uint16_t *from);

uint32_t peers_client_port(uint32_t i);
struct kvr_wire_ids peers_client_ids(uint8_t who);

/** Who an agent says it is, and its UDP port, which may be somebody else's. */
struct agent {
	uint32_t index, epoch, port;
};
struct agent peers_agent(void);
struct kvr_wire_ids peers_agent_ids(const struct agent *a);

/** The side a frame of the router went to, or now and then another one. */
uint32_t peers_answerer(uint16_t to, uint8_t how);

/* ---- router_agents.c ---- */

void do_hello(void);
void do_heartbeat(void);
void do_goodbye(void);
void do_events(void);
void do_dispatch_ack(void);
void do_response(void);
void do_progress(void);
void do_abort_ack(void);
void do_session_status(void);

/* ---- router_clients.c ---- */

void do_route(void);
void do_about(void);
void do_release(void);
void do_connect(void);
void do_response_ack(void);

#endif
