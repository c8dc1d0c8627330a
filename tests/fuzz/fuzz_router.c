/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: the whole router on one thread, with arbitrary peers. An input is a program: each
 * step is a byte that names an action, and bytes with its parameters. Agents and clients may use
 * any identity, any handle and any number that the router has sent; they send valid and invalid
 * frames, twice, late, from wrong addresses and with stale epochs; buffers run out; time passes. At
 * the end all peers are silent, and nothing may be left (router_world.c).
 */
#include "fuzz.h"

#include <string.h>

#include "control/control.h"
#include "router_peers.h"

#define STEPS 160u

/* ---- the network, the machine, the operator ---- */

/* An earlier frame is sent again, perhaps from another address or with one byte changed. */
static void do_again(void)
{
	const uint8_t back = peers_take_byte(), how = peers_take_byte();
	uint8_t frame[KVR_WIRE_DEF_FRAME];
	uint16_t len, from;
	const uint8_t *was = peers_find(back & 15, &len, &from);

	if (was == NULL)
		return;
	memcpy(frame, was, len);
	if (how & 1) {
		const uint8_t other = peers_take_byte();

		frame[peers_take_word() % len] = other;
	}
	pipeline_send(peers_choose_answerer(from, how), frame,
		      (how & 2) ? peers_take_word() % len + 1u : len);
}

static void do_time(void)
{
	static const uint32_t ms[] = {1,    10,	  25,	 100,	500,   1100,  2100,
				      3100, 5100, 11000, 31000, 61000, 301000};
	const uint8_t how = peers_take_byte();
	const uint32_t n = ms[(how & 0x7f) % RTE_DIM(ms)];

	if ((how & 0xe0) == 0x60)
		pipeline_pause(n);
	else
		world_pass_time(n, (how & 0x80) == 0);
	peers_step();
}

static void do_rest(void)
{
	pipeline_turn();
	peers_receive();
}

static void do_buffers(void)
{
	const uint8_t how = peers_take_byte();

	if (how & 1)
		world_return_buffers();
	else
		world_take_buffers((how & 2) ? 20000 : 16383 - (how >> 2));
}

static void do_operator(void)
{
	const uint8_t how = peers_take_byte();

	if (how & 8)
		control_deactivate(rt, "p", how & 1);
	else
		control_drain(rt, world_get_worker(how & 7), how >> 4 & 1);
}

static void (*const steps[])(void) = {
	do_hello,	 do_hello,     do_route,	  do_route,	     do_route,
	do_dispatch_ack, do_response,  do_response,	  do_response_ack,   do_about,
	do_time,	 do_time,      do_heartbeat,	  do_goodbye,	     do_events,
	do_progress,	 do_abort_ack, do_session_status, do_session_status, do_release,
	do_connect,	 do_again,     do_again,	  do_rest,	     do_buffers,
	do_operator,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_of)
{
	peers_begin(data, size_of);
	world_begin();
	for (uint32_t i = 0; i < STEPS && peers_have_input(); i++) {
		const uint8_t b = peers_take_byte();

		steps[b % RTE_DIM(steps)]();
		if (b < 8 * RTE_DIM(steps)) /* otherwise together with the next */
			peers_step();
	}
	world_end();
	return 0;
}
