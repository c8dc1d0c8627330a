/* SPDX-License-Identifier: BSD-3-Clause */
/* A front end that sends one prompt of token ids and prints the answer: client ROUTER POOL TOKENS
 */
#include <errno.h>
#include <kvr_client.h>
#include <kvr_client_hints.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Compute the sequence hashes of the prompt, so that router and engine use the same block names. */
static void hash_words(struct kvr_client *c, struct kvr_client_request *req, uint64_t sh[],
		       uint32_t cap)
{
	uint32_t n;
	const struct kvr_client_pool *pools = kvr_client_pools(c, &n);
	int rc = 0;

	for (uint32_t i = 0; i < n; i++)
		if (strcmp(pools[i].name, req->pool_name) == 0)
			rc = kvr_client_hash_tokens(
				&(struct kvr_client_hashing){.block_size = pools[i].block_size},
				req->tokens, req->n_tokens, sh, cap);
	req->hashes = sh;
	req->n_hashes = rc > 0 ? (uint32_t)rc : 0;
}

int main(int argc, char **argv)
{
	struct kvr_client *c = NULL;
	struct kvr_client_request req = {0};
	struct kvr_client_choice choice;
	struct kvr_client_item item;
	struct kvr_client_end end;
	static uint32_t tokens[4096];
	static uint64_t sh[4096];
	uint64_t id;
	int rc = -EINVAL;

	if (argc != 4 || (req.n_tokens = (uint32_t)atoi(argv[3])) > 4096)
		return 2;
	for (uint32_t i = 0; i < req.n_tokens; i++)
		tokens[i] = i;
	req.tokens = tokens;
	req.pool_name = argv[2];
	c = kvr_client_create(&(struct kvr_client_conf){.router = argv[1]});
	if (c != NULL)
		rc = kvr_client_connect_wait(c);
	if (rc == 0) {
		hash_words(c, &req, sh, 4096);
		req.isl = req.n_tokens;
		req.n_tokens = 0; /* the hashes replace the tokens */
		rc = kvr_client_route_wait(c, &req, &choice, &id);
	}
	if (rc == 0)
		printf("worker %llu, %u blocks cached: ", (unsigned long long)choice.worker,
		       choice.overlap_blocks);
	while (rc == 0 && (rc = kvr_client_next_item(c, id, &item, &end, 10000)) == 1) {
		printf("%.*s", (int)item.len, (const char *)item.data);
		rc = 0;
	}
	printf("\n");
	kvr_client_destroy(c);
	if (rc < 0)
		fprintf(stderr, "client: %s\n", strerror(-rc));
	return rc < 0;
}
