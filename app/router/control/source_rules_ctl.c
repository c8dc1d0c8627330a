/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits of sources on all ports: written to the unused set, published, and applied by every lcore
 * on return. */
#include "control/control.h"
#include "control/tune.h"
#include "state/router.h"

/* CONNECT and HELLO of a source in a burst: the engines of a host start together. */
#define CONTROL_BURST 1024u

void rules_update(struct router *rt)
{
	const uint32_t next =
		!atomic_load_explicit(&rt->rules_now, memory_order_relaxed); /* one writer */

	for (uint32_t i = 0; i < rt->n_ports; i++) {
		const struct kvr_port_conf *c = &rt->conf.port[i].port;
		struct source_rules *to = &rt->rules[next][i];
		struct kvr_source_rate *r = to->rate;

		r[KVR_SOURCE_REQUESTS] = kvr_source_rate(c->source_rate, c->source_burst);
		r[KVR_SOURCE_ANSWERS] = kvr_source_rate(c->source_answers, c->source_answers);
		to->cookie = c->cookie;
		r[KVR_SOURCE_CONTROL] = kvr_source_rate(c->source_control, CONTROL_BURST);
	}
	/* Pairs with the acquire load in rules_of_port(). */
	atomic_store_explicit(&rt->rules_now, next, memory_order_release);
	lcores_pass(rt);
}
