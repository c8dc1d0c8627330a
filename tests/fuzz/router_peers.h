/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_PEERS_H
#define ROUTER_PEERS_H

/**
 * @file
 *
 * The peers of fuzz_router, driven by an input. A step takes the bytes it needs from the input (0
 * after its end) and sends at most one message. Frames of the router are kept with their handles
 * and numbers, and so are frames to the router. One thread.
 */

#include "router_world.h"

#include "kvr_put.h"

/* ---- router_peers.c: input, memory, names ---- */

/** Begin with an input; the kept frames are cleared. @p data stays owned by the caller. */
void peers_begin(const uint8_t *data, size_t len);

/** Return true if the input has more bytes. */
bool peers_have_input(void);

uint8_t peers_take_byte(void);
uint16_t peers_take_word(void);

/** A number from 0 to @p most, mostly small. */
uint32_t peers_take_size(uint32_t most);

/** Run every stage of the router once, and keep its output. */
void peers_step(void);

/** Keep the output of the router. */
void peers_receive(void);

/** Send a frame of @p len bytes from UDP port @p from, and keep it; does nothing if @p len is 0 or
 * negative. */
void peers_send(uint32_t from, const void *frame, int len);

/** Ids of the frame of kind @p kind that the router has sent, @p back frames of this kind ago, and
 * its receiver in *to; NULL: none. */
const struct kvr_wire_ids *peers_recall(uint8_t kind, uint32_t back, uint16_t *to);

/** The frame sent @p back (0 to 15) frames ago, its length and sender; NULL: none. */
const uint8_t *peers_find(uint32_t back, uint16_t *len, uint16_t *from);

uint32_t peers_client_port(uint32_t i);
struct kvr_wire_ids peers_client_ids(uint8_t who);

/** The claimed identity of an agent, and its UDP port, which may be that of another peer. */
struct agent {
	uint32_t index, epoch, port;
};
struct agent peers_choose_agent(void);
struct kvr_wire_ids peers_agent_ids(const struct agent *a);

/** The receiver of a frame of the router, sometimes another peer. */
uint32_t peers_choose_answerer(uint16_t to, uint8_t how);

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
