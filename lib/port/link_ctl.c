/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Link of a memif client. When its server ends, the driver tears down the connection on the EAL's
 * interrupt thread and does not reconnect; only a stop and a start of the device do. Both run on
 * that thread, too: no other code of the driver runs there at the same time, memory is unmapped
 * where the guard (app/memif) waits for the packet lcores, and the caller is not blocked by a
 * connect.
 *
 * - UP -> the link is down -> SHUT: bursts are disabled
 * - SHUT -> RESET: stop and start are in progress; without a server the start fails -> SHUT
 * - RESET -> started -> HANDSHAKE -> the link is up -> UP; timeout -> SHUT
 */
#include "port_pvt.h"

#include <rte_alarm.h>
#include <rte_cycles.h>
#include <rte_log.h>

#define LOOK_MS	      50u
#define LOOK_IFACE_MS 250u
#define HANDSHAKE_MS  300u /* from connection to link up; doubled after each failure */
#define HANDSHAKES    3u

enum { RESET_IDLE, RESET_RUNS, RESET_GOOD, RESET_FAILED };

void kvr_port__link_init(struct kvr_port *port)
{
	struct kvr_port_link *watch = &port->link;

	watch->client = kvr_port__memif_client(port);
	atomic_init(&watch->seen, KVR_PORT_UP);
	atomic_init(&watch->lost, 0);
	kvr_port__iface_init(port);
	watch->state = LINK_HANDSHAKE; /* or not started yet */
	watch->until = UINT64_MAX;
	atomic_init(&watch->reset, RESET_IDLE);
	for (uint32_t i = 0; i < port->lcores; i++)
		atomic_init(&port->queues[i].shut, 0);
}

/* When this returns, no reset is running or pending. */
void kvr_port__link_end(struct kvr_port *port)
{
	if (port->link.client)
		rte_eal_alarm_cancel(kvr_port__link_reset, port);
}

/* EAL's interrupt thread. Suppresses the driver's log line for each failed connect. */
void kvr_port__link_reset(void *arg)
{
	struct kvr_port *port = arg;
	const int type = rte_log_register("pmd.net.memif");
	const int level = type >= 0 ? rte_log_get_level((uint32_t)type) : -1;
	int rc;

	if (level >= 0)
		rte_log_set_level((uint32_t)type, RTE_LOG_EMERG);
	if (!port->link.stopped)
		rte_eth_dev_stop(port->ethdev);
	port->link.stopped = true;
	rc = rte_eth_dev_start(port->ethdev);
	if (rc == 0)
		port->link.stopped = false;
	if (level >= 0)
		rte_log_set_level((uint32_t)type, (uint32_t)level);
	/* Pairs with the acquire load in after_reset(): publishes the state of the device. */
	atomic_store_explicit(&port->link.reset, rc == 0 ? RESET_GOOD : RESET_FAILED,
			      memory_order_release);
}

static uint64_t ms_to_cycles(uint64_t n)
{
	return rte_get_tsc_hz() * n / 1000;
}

static void shut_link(struct kvr_port *port, void (*wait)(void *), void *arg)
{
	struct kvr_port_link *watch = &port->link;

	watch->state = LINK_SHUT;
	kvr_port__gate(port, 1);
	if (wait != NULL)
		wait(arg);
}

static void after_reset(struct kvr_port *port, uint64_t now)
{
	struct kvr_port_link *watch = &port->link;
	/* Pairs with the release store in kvr_port__link_reset(). */
	const int reset = atomic_load_explicit(&watch->reset, memory_order_acquire);

	if (reset == RESET_RUNS)
		return;
	if (reset == RESET_FAILED) {
		watch->state = LINK_SHUT; /* retried in the next call */
		return;
	}
	watch->state = LINK_HANDSHAKE;
	watch->until = now + ms_to_cycles(HANDSHAKE_MS << watch->handshakes);
	if (watch->handshakes < HANDSHAKES)
		watch->handshakes++;
}

static void begin_reset(struct kvr_port *port)
{
	struct kvr_port_link *watch = &port->link;

	atomic_store_explicit(&watch->reset, RESET_RUNS, memory_order_relaxed);
	if (rte_eal_alarm_set(1, kvr_port__link_reset, port) == 0)
		watch->state = LINK_RESET;
}

static bool link_is_up(const struct kvr_port *port)
{
	struct rte_eth_link link = {0};

	return rte_eth_link_get_nowait(port->ethdev, &link) != 0 ||
	       link.link_status == RTE_ETH_LINK_UP;
}

static void look_after_client(struct kvr_port *port, uint64_t now, void (*wait)(void *), void *arg)
{
	struct kvr_port_link *watch = &port->link;

	switch (watch->state) {
	case LINK_UP:
		if (!link_is_up(port))
			shut_link(port, wait, arg);
		break;
	case LINK_SHUT:
		begin_reset(port);
		break;
	case LINK_RESET:
		after_reset(port, now);
		break;
	case LINK_HANDSHAKE:
		if (watch->until == UINT64_MAX) /* first call since the start */
			watch->until = now + ms_to_cycles(HANDSHAKE_MS);
		if (link_is_up(port)) {
			watch->state = LINK_UP;
			watch->handshakes = 0;
			kvr_port__gate(port, 0);
		} else if (now >= watch->until) {
			shut_link(port, wait, arg);
		}
		break;
	}
}

enum kvr_port_link_state kvr_port_look_after(struct kvr_port *port, uint64_t now,
					     void (*wait)(void *), void *arg)
{
	struct kvr_port_link *watch = &port->link;
	const enum kvr_port_link_state before =
		atomic_load_explicit(&watch->seen, memory_order_relaxed);
	enum kvr_port_link_state seen;

	if (now < watch->look_at)
		return before;
	if (watch->client) {
		const bool was_up = watch->state == LINK_UP;

		watch->look_at = now + ms_to_cycles(LOOK_MS);
		look_after_client(port, now, wait, arg);
		seen = watch->state == LINK_UP ? KVR_PORT_UP : KVR_PORT_DOWN;
		if (was_up && seen != KVR_PORT_UP) /* not the initial state */
			atomic_fetch_add_explicit(&watch->lost, 1, memory_order_relaxed);
	} else {
		watch->look_at = now + ms_to_cycles(LOOK_IFACE_MS);
		seen = kvr_port__iface_look(port);
		if (before == KVR_PORT_UP && seen != KVR_PORT_UP)
			atomic_fetch_add_explicit(&watch->lost, 1, memory_order_relaxed);
	}
	atomic_store_explicit(&watch->seen, seen, memory_order_relaxed);
	return seen;
}
