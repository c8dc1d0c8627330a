/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The link of a memif client. When its server ends, the driver takes the connection apart on the
 * EAL's interrupt thread and forgets it; only a stop and a start of the device make a new one. Both
 * are done on that thread, too: nothing of the driver runs there at the same time, what it unmaps
 * is unmapped where the program's guard waits for the packet lcores, and whoever looks after the
 * link is never held up by a connect.
 *
 *   UP -> the link is down -> SHUT: bursts are kept away
 *   SHUT -> RESET: stop and start are under way; without a server the start fails -> SHUT, again
 *   RESET -> started -> HANDSHAKE -> the link is up -> UP; too long -> SHUT
 */
#include "port_pvt.h"

#include <rte_alarm.h>
#include <rte_cycles.h>
#include <rte_log.h>

#define LOOK_MS	      50u
#define LOOK_IFACE_MS 250u
#define HANDSHAKE_MS  300u /* from the connection to the link; twice as long each time it fails */
#define HANDSHAKES    3u

enum { RESET_IDLE, RESET_RUNS, RESET_GOOD, RESET_FAILED };

void kvr_port__link_init(struct kvr_port *p)
{
	struct kvr_port_link *k = &p->link;

	k->client = kvr_port__memif_client(p);
	atomic_init(&k->seen, KVR_PORT_UP);
	atomic_init(&k->lost, 0);
	kvr_port__iface_init(p);
	k->state = LINK_HANDSHAKE; /* or not yet started */
	k->until = UINT64_MAX;
	atomic_init(&k->reset, RESET_IDLE);
	for (uint32_t i = 0; i < p->lcores; i++)
		atomic_init(&p->queues[i].shut, 0);
}

/* No reset runs when this returns, and none will. */
void kvr_port__link_end(struct kvr_port *p)
{
	if (p->link.client)
		rte_eal_alarm_cancel(kvr_port__link_reset, p);
}

/* EAL's interrupt thread. The driver has a line for every connect that fails. */
void kvr_port__link_reset(void *arg)
{
	struct kvr_port *p = arg;
	const int type = rte_log_register("pmd.net.memif");
	const int level = type >= 0 ? rte_log_get_level((uint32_t)type) : -1;
	int rc;

	if (level >= 0)
		rte_log_set_level((uint32_t)type, RTE_LOG_EMERG);
	if (!p->link.stopped)
		rte_eth_dev_stop(p->ethdev);
	p->link.stopped = true;
	rc = rte_eth_dev_start(p->ethdev);
	if (rc == 0)
		p->link.stopped = false;
	if (level >= 0)
		rte_log_set_level((uint32_t)type, (uint32_t)level);
	/* Pairs with the acquire load in after_reset(): the device is as it was left. */
	atomic_store_explicit(&p->link.reset, rc == 0 ? RESET_GOOD : RESET_FAILED,
			      memory_order_release);
}

static uint64_t ms(uint64_t n)
{
	return rte_get_tsc_hz() * n / 1000;
}

static void shut(struct kvr_port *p, void (*wait)(void *), void *arg)
{
	struct kvr_port_link *k = &p->link;

	k->state = LINK_SHUT;
	kvr_port__gate(p, 1);
	if (wait != NULL)
		wait(arg);
}

static void after_reset(struct kvr_port *p, uint64_t now)
{
	struct kvr_port_link *k = &p->link;
	/* Pairs with the release store in kvr_port__link_reset(). */
	const int reset = atomic_load_explicit(&k->reset, memory_order_acquire);

	if (reset == RESET_RUNS)
		return;
	if (reset == RESET_FAILED) {
		k->state = LINK_SHUT; /* at the next look */
		return;
	}
	k->state = LINK_HANDSHAKE;
	k->until = now + ms(HANDSHAKE_MS << k->handshakes);
	if (k->handshakes < HANDSHAKES)
		k->handshakes++;
}

static void begin_reset(struct kvr_port *p)
{
	struct kvr_port_link *k = &p->link;

	atomic_store_explicit(&k->reset, RESET_RUNS, memory_order_relaxed);
	if (rte_eal_alarm_set(1, kvr_port__link_reset, p) == 0)
		k->state = LINK_RESET;
}

static bool link_is_up(const struct kvr_port *p)
{
	struct rte_eth_link link = {0};

	return rte_eth_link_get_nowait(p->ethdev, &link) != 0 ||
	       link.link_status == RTE_ETH_LINK_UP;
}

static void look_after_client(struct kvr_port *p, uint64_t now, void (*wait)(void *), void *arg)
{
	struct kvr_port_link *k = &p->link;

	switch (k->state) {
	case LINK_UP:
		if (!link_is_up(p))
			shut(p, wait, arg);
		break;
	case LINK_SHUT:
		begin_reset(p);
		break;
	case LINK_RESET:
		after_reset(p, now);
		break;
	case LINK_HANDSHAKE:
		if (k->until == UINT64_MAX) /* the first look since the start */
			k->until = now + ms(HANDSHAKE_MS);
		if (link_is_up(p)) {
			k->state = LINK_UP;
			k->handshakes = 0;
			kvr_port__gate(p, 0);
		} else if (now >= k->until) {
			shut(p, wait, arg);
		}
		break;
	}
}

enum kvr_port_link_state kvr_port_look_after(struct kvr_port *p, uint64_t now, void (*wait)(void *),
					     void *arg)
{
	struct kvr_port_link *k = &p->link;
	const enum kvr_port_link_state before =
		atomic_load_explicit(&k->seen, memory_order_relaxed);
	enum kvr_port_link_state seen;

	if (now < k->look_at)
		return before;
	if (k->client) {
		const bool was_up = k->state == LINK_UP;

		k->look_at = now + ms(LOOK_MS);
		look_after_client(p, now, wait, arg);
		seen = k->state == LINK_UP ? KVR_PORT_UP : KVR_PORT_DOWN;
		if (was_up && seen != KVR_PORT_UP) /* not what a start begins with */
			atomic_fetch_add_explicit(&k->lost, 1, memory_order_relaxed);
	} else {
		k->look_at = now + ms(LOOK_IFACE_MS);
		seen = kvr_port__iface_look(p);
		if (before == KVR_PORT_UP && seen != KVR_PORT_UP)
			atomic_fetch_add_explicit(&k->lost, 1, memory_order_relaxed);
	}
	atomic_store_explicit(&k->seen, seen, memory_order_relaxed);
	return seen;
}
