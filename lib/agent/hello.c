/* SPDX-License-Identifier: BSD-3-Clause */
/* Building and sending HELLO. The answers are handled in register.c. */
#include "agent_pvt.h"

#include "kvr_hints.h"
#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

static void put_strings(struct kvr_hint_buf *b, uint16_t type, const char *const *list)
{
	for (; list != NULL && *list != NULL; list++)
		kvr_hint_put_str(b, type, *list);
}

int kvr_agent__build_hello(struct kvr_agent *agent, const struct kvr_agent_conf *conf)
{
	const uint32_t cap = agent->conf.frame_bytes - KVR_WIRE_MIN_FRAME -
			     (uint32_t)sizeof(struct kvr_wire_hello);
	struct kvr_hint_buf b = {.p = malloc(cap), .cap = cap};
	struct kvr_hint_lists lists;
	struct kvr_hints parsed;

	if (b.p == NULL)
		return -ENOMEM;
	agent->hello = b.p;
	kvr_hint_put_str(&b, KVR_HINT_POOL, conf->pool);
	put_strings(&b, KVR_HINT_TAINT, conf->taints);
	put_strings(&b, KVR_HINT_TOPOLOGY, conf->topology);
	if (conf->kv_transfer_domain != NULL)
		kvr_hint_put_kv_transfer(&b, conf->kv_transfer_enforcement,
					 conf->kv_transfer_weight, conf->kv_transfer_domain);
	if (conf->bootstrap_host != NULL)
		kvr_hint_put_bootstrap_addr(&b, conf->bootstrap_port, conf->bootstrap_host);
	if (conf->engine_addr != NULL)
		kvr_hint_put_str(&b, KVR_HINT_ENGINE_ADDR, conf->engine_addr);
	if (conf->body_addr != NULL)
		kvr_hint_put_str(&b, KVR_HINT_BODY_ADDR, conf->body_addr);
	agent->takes_bodies = conf->body_addr != NULL;
	if (b.err != 0)
		return b.err;
	agent->hello_hints_len = b.len;
	/* Detect errors that the router would reject. */
	return kvr_hints_parse(b.p, b.len, KVR_HINTS_HELLO, &parsed, &lists) == 0 ? 0 : -EINVAL;
}

void kvr_agent__send_hello(struct kvr_agent *agent)
{
	const struct kvr_wire_hello w = {.block_size = agent->conf.block_size,
					 .dp_start = agent->conf.dp_start,
					 .dp_size = agent->conf.dp_size,
					 .max_num_batched_tokens =
						 agent->conf.max_num_batched_tokens,
					 .total_kv_blocks = agent->conf.total_kv_blocks,
					 .max_frame = (uint16_t)agent->conf.receive_bytes,
					 .role = (uint8_t)agent->conf.role,
					 .flags = agent->conf.cpu ? KVR_HELLO_F_CPU : 0,
					 .boot = agent->boot};
	const struct kvr_hint_buf hints = {.p = agent->hello, .len = agent->hello_hints_len};
	uint8_t *f = kvr_link_frame(&agent->link);

	kvr_link_queue(&agent->link, &agent->router,
		       kvr_put_hello(f, KVR_WIRE_MAX_FRAME, &agent->hello_ids, w, &hints));
	agent->stats.hellos++;
	if (agent->again_us != 0)
		agent->again_us = agent->link.now_us;
	kvr_link_repeat(&agent->link, &agent->timer, &agent->backoff_us, AGENT_HELLO_MAX_US,
			KVR_TIMER_NEVER);
}

void kvr_agent__new_hello(struct kvr_agent *agent)
{
	agent->hello_ids = kvr_link_ids(&agent->link, agent->conf.worker, ++agent->hello_no, 0);
}

void kvr_agent__restart_hello(struct kvr_agent *agent)
{
	if (!agent->registered || agent->leaving)
		return; /* HELLO is being sent already */
	agent->registered = false;
	kvr_agent__new_hello(agent);
	agent->backoff_us = AGENT_HELLO_US;
	if (agent->again_us != 0 && agent->link.now_us - agent->again_us < AGENT_AGAIN_US) {
		kvr_timer_set(&agent->link.timers, &agent->timer, agent->again_us + AGENT_AGAIN_US);
		return;
	}
	agent->again_us = agent->link.now_us;
	kvr_agent__send_hello(agent);
}
