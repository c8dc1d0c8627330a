/* SPDX-License-Identifier: BSD-3-Clause */
/* An engine that answers each request with the length of its prompt: engine ROUTER POOL WORKER
 * BLOCK_SIZE */
#include <kvr_agent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

static int on_dispatch(struct kvr_agent *a, const struct kvr_agent_request *r, void *user)
{
	/* The engine keeps the blocks of each prompt it has computed. */
	const struct kvr_agent_kv held = {.hashes = r->hashes, .n = r->n_hashes};
	struct kvr_agent_item item = {.flags = KVR_AGENT_LAST, .generated_tokens = 1};
	char text[64];

	(void)user;
	item.data = text;
	item.len = (uint32_t)snprintf(text, sizeof(text), "%u tokens", r->isl);
	item.cached_known = true;
	item.cached_tokens = r->cached_tokens;
	if (held.n != 0)
		kvr_agent_kv_stored(a, r->dp_rank, &held);
	return kvr_agent_respond(a, r->handle, &item);
}

int main(int argc, char **argv)
{
	static const struct kvr_agent_ops ops = {.on_dispatch = on_dispatch};
	struct kvr_agent *a;

	if (argc != 5)
		return 2;
	a = kvr_agent_create(&(struct kvr_agent_conf){.router = argv[1],
						      .pool = argv[2],
						      .worker = strtoull(argv[3], NULL, 10),
						      .block_size = (uint32_t)atoi(argv[4]),
						      .ops = &ops});
	while (a != NULL) {
		struct pollfd p = {kvr_agent_fd(a), POLLIN, 0};

		poll(&p, 1, kvr_agent_timeout_ms(a));
		kvr_agent_process(a);
	}
	perror("engine");
	return 1;
}
