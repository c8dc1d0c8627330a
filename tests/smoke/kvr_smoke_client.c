/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A front end on plain sockets that checks a router and its smoke engines from outside: answers
 * byte by byte, growing overlap, queries without effect, cancels, rejection of invalid frames.
 * Prints one line for each failed check, then "N passed, N failed"; the exit status is 1 after a
 * failure.
 */
#include "kvr_client_hints.h"
#include "kvr_put.h"
#include "kvr_rand.h"
#include "kvr_udp.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS	      4
#define PREFIX_BLOCKS 32
#define TAIL_TOKENS   40
#define ANSWER	      24 /* tokens */
#define MAX_PROMPT    65536
#define PATIENCE_MS   5000

static struct kvr_client *c;
static const char *pool = "default";
static uint32_t block_size, n_requests = 40;
static unsigned int passed, failed;
static uint64_t run_seed;

static bool check_result(bool ok, const char *what)
{
	passed += ok;
	failed += !ok;
	if (!ok)
		printf("FAILED: %s\n", what);
	return ok;
}

/* Prompt of a group: a common prefix and a tail of its own. */
static uint32_t make_prompt(uint32_t group, uint32_t number, uint32_t prompt[])
{
	const uint32_t shared = PREFIX_BLOCKS * block_size;

	for (uint32_t i = 0; i < shared; i++)
		prompt[i] = (uint32_t)kvr_mix64(run_seed + ((uint64_t)group << 32) + i);
	for (uint32_t i = 0; i < TAIL_TOKENS; i++)
		prompt[shared + i] = (uint32_t)kvr_mix64(run_seed + ~((uint64_t)number << 32) - i);
	return shared + TAIL_TOKENS;
}

/* Read an answer to its end. @return true if every token is right and it finished. */
static bool read_answer(uint64_t id, uint32_t seed, uint32_t tokens, struct kvr_client_end *end)
{
	struct kvr_client_item it;
	uint32_t n = 0;
	bool right = true;
	int rc;

	while ((rc = kvr_client_next_item(c, id, &it, end, PATIENCE_MS)) == 1) {
		const uint32_t *t = it.data;

		for (uint32_t i = 0; i < it.len / 4; i++, n++)
			right &= t[i] == (uint32_t)kvr_mix64(((uint64_t)seed << 32) + n);
	}
	return rc == 0 && right && n == tokens && end->reason == KVR_CLIENT_FINISHED;
}

static void run_request(uint32_t number, uint32_t flags, bool hashed)
{
	static uint32_t prompt[MAX_PROMPT];
	static uint64_t sh[MAX_PROMPT];
	const uint32_t seed = (uint32_t)kvr_mix64(run_seed + number);
	struct kvr_client_request q = {.pool_name = pool,
				       .flags = flags,
				       .max_tokens = ANSWER,
				       .body = &seed,
				       .body_len = sizeof(seed)};
	struct kvr_client_choice ch;
	struct kvr_client_end end = {0};
	char what[128];
	uint64_t id;
	int rc;

	q.isl = make_prompt(number % GROUPS, number, prompt);
	if (hashed) {
		rc = kvr_client_hash_tokens(&(struct kvr_client_hashing){.block_size = block_size},
					    prompt, q.isl, sh, MAX_PROMPT);
		q.hashes = sh;
		q.n_hashes = rc > 0 ? (uint32_t)rc : 0;
	} else {
		q.tokens = prompt;
		q.n_tokens = q.isl;
	}
	rc = kvr_client_route_wait(c, &q, &ch, &id);
	if (rc < 0 && id != 0)
		kvr_client_next_item(c, id, &(struct kvr_client_item){0}, &end, PATIENCE_MS);
	snprintf(what, sizeof(what), "request %u is accepted (%s, %s)", number, strerror(-rc),
		 end.code != 0 ? kvr_code_name(end.code) : "-");
	if (!check_result(rc == 0, what))
		return;
	snprintf(what, sizeof(what), "request %u: answer of worker %llu rank %u%s", number,
		 (unsigned long long)ch.worker, ch.dp_rank,
		 flags & KVR_CLIENT_DIRECT ? ", direct" : "");
	check_result(read_answer(id, seed, ANSWER, &end), what);
}

/* Query where a prompt would go. @return overlap in blocks, or -1. */
static int64_t send_query(uint32_t group, uint32_t number)
{
	static uint32_t prompt[MAX_PROMPT];
	struct kvr_client_request q = {
		.pool_name = pool, .flags = KVR_CLIENT_QUERY, .tokens = prompt};
	struct kvr_client_choice ch = {0};
	struct kvr_client_end end;
	struct kvr_client_item it;
	uint64_t id;
	int rc;

	q.n_tokens = make_prompt(group, number, prompt);
	rc = kvr_client_route_wait(c, &q, &ch, &id);
	if (id != 0)
		kvr_client_next_item(c, id, &it, &end, PATIENCE_MS);
	return rc == 0 ? (int64_t)ch.overlap_blocks : -1;
}

/* Events take a moment: query until the overlap is complete. */
static void overlap_has_grown(uint32_t group)
{
	char what[96];
	int64_t overlap = 0;

	for (int i = 0; i < 100; i++) {
		overlap = send_query(group, 1000000 + group);
		if (overlap >= PREFIX_BLOCKS)
			break;
		poll(NULL, 0, 20);
	}
	snprintf(what, sizeof(what), "group %u: overlap %lld of %u shared blocks", group,
		 (long long)overlap, PREFIX_BLOCKS);
	check_result(overlap == PREFIX_BLOCKS, what);
}

static void queries_change_nothing(void)
{
	for (int i = 0; i < 5; i++)
		check_result(send_query(GROUPS + 7, 2000000) == 0,
			     "a query of a new prompt finds nothing");
}

static void cancel_works(uint32_t flags)
{
	static uint32_t prompt[MAX_PROMPT];
	const uint32_t seed = 5;
	struct kvr_client_request q = {.pool_name = pool,
				       .flags = flags,
				       .tokens = prompt,
				       .max_tokens = 100000,
				       .body = &seed,
				       .body_len = sizeof(seed)};
	struct kvr_client_end end = {0};
	struct kvr_client_item it;
	uint64_t id;
	int rc;

	q.n_tokens = make_prompt(GROUPS + 1, 3000000, prompt);
	if (!check_result(kvr_client_route_wait(c, &q, NULL, &id) == 0,
			  "a long request is accepted"))
		return;
	check_result(kvr_client_next_item(c, id, &it, &end, PATIENCE_MS) == 1,
		     "its first token comes");
	check_result(kvr_client_cancel(c, id) == 0, "it can be cancelled");
	while ((rc = kvr_client_next_item(c, id, &it, &end, PATIENCE_MS)) == 1)
		;
	check_result(rc == 0 && end.reason == KVR_CLIENT_CANCELLED, "it ends as cancelled");
}

static void check_rejections(void)
{
	const uint32_t token = 1;
	struct kvr_client_request q = {.pool = 65000, .tokens = &token, .n_tokens = 1};
	struct kvr_client_end end = {0};
	struct kvr_client_item it;
	uint64_t id;

	check_result(kvr_client_route_wait(c, &q, NULL, &id) == -ECANCELED,
		     "an unknown pool is refused");
	if (id != 0)
		kvr_client_next_item(c, id, &it, &end, PATIENCE_MS);
	check_result(end.reason == KVR_CLIENT_REJECTED && end.code == KVR_E_UNKNOWN_POOL,
		     "it is refused as UnknownPool");
	q.pool_name = "no such pool";
	check_result(kvr_client_route_wait(c, &q, NULL, &id) == -ENOENT,
		     "an unknown name is not listed");
}

/* Send one raw frame and wait for REJECTED. @return its code, 0 if none arrived. */
static unsigned int exchange_raw(struct kvr_udp *u, const struct kvr_udp_addr *router,
				 uint8_t *frame, uint32_t len)
{
	const struct kvr_udp_msg out = {*router, frame, len};
	struct kvr_udp_msg in[KVR_UDP_BURST];
	struct pollfd p = {u->io->fd(u->ctx), POLLIN, 0};

	for (int tries = 0; tries < 3; tries++) {
		u->io->send(u->ctx, &out, 1);
		if (poll(&p, 1, 500) <= 0 || u->io->recv(u->ctx, in, KVR_UDP_BURST) == 0)
			continue;
		if (kvr_frame_check(in[0].data, in[0].len, KVR_ROLE_BIT_CLIENT) == 0 &&
		    ((const struct kvr_wire_hdr *)(const void *)in[0].data)->kind == KVR_REJECTED)
			return ((const struct kvr_wire_rejected *)(const void *)(in[0].data + 48))
				->code;
	}
	return 0;
}

/* With room for its answer. */
#define PROBE_LEN (KVR_WIRE_MIN_FRAME + 8u)
static void make_probe(uint8_t *f, size_t cap, const struct kvr_wire_ids *ids)
{
	static const uint8_t room[8];

	kvr_put_message(f, cap, KVR_PROBE, ids, (struct kvr_slice){room, sizeof(room)},
			(struct kvr_slice){NULL, 0});
}

static void bad_frames_are_refused(const char *where)
{
	static const struct {
		const char *what;
		uint32_t byte; /* of a valid PROBE, set to value */
		uint8_t value;
		unsigned int code;
	} bad[] = {{"an unknown version", 2, 9, KVR_E_VERSION},
		   {"an unknown kind", 3, 99, KVR_E_KIND},
		   {"a kind of routers", 3, KVR_ACCEPTED, KVR_E_KIND},
		   {"an unknown flag", 4, 2, KVR_E_FLAGS},
		   {"a wrong frag_len", 6, 16, KVR_E_LENGTH},
		   {"an odd msg_len", 32, 3, KVR_E_LENGTH}};
	const struct kvr_wire_ids ids = {.source = run_seed | 1, .id = 1, .epoch = 1, .msg_seq = 1};
	_Alignas(8) uint8_t f[64];
	struct kvr_udp_addr router;
	struct kvr_udp u;
	char what[96];

	if (!check_result(kvr_udp_resolve(where, KVR_WIRE_PORT, &router) == 0 &&
				  kvr_udp_open(&u, NULL) == 0,
			  "a raw socket"))
		return;
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		unsigned int code;

		make_probe(f, sizeof(f), &ids);
		f[bad[i].byte] = bad[i].value;
		code = exchange_raw(&u, &router, f, PROBE_LEN);
		snprintf(what, sizeof(what), "%s is refused as %s, not %s", bad[i].what,
			 kvr_code_name(bad[i].code), kvr_code_name(code));
		/* ACCEPTED is never answered. */
		check_result(code == (bad[i].value == KVR_ACCEPTED ? 0 : bad[i].code), what);
	}
	make_probe(f, sizeof(f), &ids);
	f[0] = 0;
	check_result(exchange_raw(&u, &router, f, PROBE_LEN) == 0,
		     "a foreign magic is not answered");
	check_result(exchange_raw(&u, &router, f, 10) == 0, "a stub is not answered");
	make_probe(f, sizeof(f), &ids);
	check_result(exchange_raw(&u, &router, f, PROBE_LEN) == KVR_E_UNKNOWN_REQUEST,
		     "a good PROBE is still answered");
	kvr_udp_close(&u);
}

/* Wait for the pool and its ranks. @return false if they do not appear. */
static bool wait_for_ranks(uint32_t ranks)
{
	for (int i = 0; i < 25; i++) {
		const struct kvr_client_pool *p;
		uint32_t n;

		if (kvr_client_connect_wait(c) == 0) {
			p = kvr_client_pools(c, &n);
			for (uint32_t k = 0; k < n; k++)
				if (strcmp(p[k].name, pool) == 0 && p[k].ranks >= ranks) {
					block_size = p[k].block_size;
					return true;
				}
		}
		poll(NULL, 0, 100);
	}
	return false;
}

static int print_usage(void)
{
	fprintf(stderr, "usage: kvr-smoke-client -r ROUTER [-p POOL] [-n REQUESTS] [-k RANKS]\n");
	return 2;
}

int main(int argc, char **argv)
{
	struct kvr_client_conf conf = {.request_ms = 20000, .connect_ms = 500};
	uint32_t ranks = 1;
	int opt;

	while ((opt = getopt(argc, argv, "r:p:n:k:")) != -1) {
		switch (opt) {
		case 'r':
			conf.router = optarg;
			break;
		case 'p':
			pool = optarg;
			break;
		case 'n':
			n_requests = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'k':
			ranks = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		default:
			return print_usage();
		}
	}
	if (optind != argc)
		return print_usage();
	c = kvr_client_create(&conf);
	if (c == NULL) {
		perror("kvr-smoke-client");
		return print_usage();
	}
	run_seed = kvr_client_source(c); /* new prompts in every run */
	if (check_result(wait_for_ranks(ranks), "the router lists the pool with its ranks") &&
	    check_result((PREFIX_BLOCKS * block_size + TAIL_TOKENS) <= MAX_PROMPT, "block size")) {
		queries_change_nothing();
		for (uint32_t i = 0; i < n_requests; i++)
			run_request(i, i % 2 ? KVR_CLIENT_DIRECT : 0, i % 3 == 0);
		for (uint32_t g = 0; g < GROUPS && g < n_requests; g++)
			overlap_has_grown(g);
		cancel_works(0);
		cancel_works(KVR_CLIENT_DIRECT);
		check_rejections();
		bad_frames_are_refused(conf.router);
	}
	printf("%u passed, %u failed\n", passed, failed);
	kvr_client_destroy(c);
	return failed > 0;
}
