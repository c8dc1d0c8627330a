/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An engine on plain sockets for smoke tests: an LRU cache of blocks per rank, stored and removed
 * events, and answers that are computed from the request's body (a u32 seed): token i is the low
 * half of mix64(seed * 2^32 + i). Long answers (more than 1000 tokens, or -s) send one token every
 * 5 ms, so that they can be cancelled. SIGTERM ends it with GOODBYE and one line of counts. SIGUSR1
 * writes its cache to FILE, a line `rank hash` per block.
 */
#include "kvr_agent.h"
#include "kvr_client_hints.h"
#include "kvr_rand.h"

#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#define MAX_RANKS   16
#define MAX_BLOCKS  65536 /* of one prompt */
#define MAX_RUNNING 1024
#define SLOW_US	    5000

struct block {
	TAILQ_ENTRY(block) age;
	LIST_ENTRY(block) hash;
	uint64_t sh, parent;
	bool has_parent;
};

static struct rank {
	TAILQ_HEAD(, block) lru; /* oldest first */
	LIST_HEAD(, block) bucket[4096];
	uint32_t n;
} ranks[MAX_RANKS];

static struct job {
	uint64_t handle;
	uint32_t seed, tokens, done, cached;
	uint64_t next_us;
} jobs[MAX_RUNNING];

static uint32_t block_size = 16, capacity = 4096, n_ranks = 2, slow = 1000;
static uint64_t answered, aborted;
static const char *cache_file;
static volatile sig_atomic_t stop, tell;

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static struct block *find_block(struct rank *k, uint64_t sh)
{
	struct block *b;

	LIST_FOREACH (b, &k->bucket[sh % 4096], hash)
		if (b->sh == sh)
			return b;
	return NULL;
}

static void evict_oldest(struct kvr_agent *a, uint32_t rank)
{
	struct rank *k = &ranks[rank];
	struct block *b = TAILQ_FIRST(&k->lru);

	kvr_agent_kv_removed(a, rank, &(struct kvr_agent_kv){.hashes = &b->sh, .n = 1});
	TAILQ_REMOVE(&k->lru, b, age);
	LIST_REMOVE(b, hash);
	free(b);
	k->n--;
}

static void insert_block(struct rank *k, uint64_t sh, const uint64_t *parent)
{
	struct block *b = calloc(1, sizeof(*b));

	if (b == NULL)
		abort();
	b->sh = sh;
	b->has_parent = parent != NULL;
	b->parent = parent != NULL ? *parent : 0;
	TAILQ_INSERT_TAIL(&k->lru, b, age);
	LIST_INSERT_HEAD(&k->bucket[sh % 4096], b, hash);
	k->n++;
}

/* Use and store the blocks of a prompt. @return leading blocks that were cached. */
static uint32_t use_cache(struct kvr_agent *a, uint32_t rank, const uint64_t sh[], uint32_t n)
{
	struct rank *k = &ranks[rank];
	uint32_t cached = 0;

	n = n < capacity ? n : capacity;
	while (cached < n && find_block(k, sh[cached]) != NULL) {
		struct block *b = find_block(k, sh[cached++]);

		TAILQ_REMOVE(&k->lru, b, age);
		TAILQ_INSERT_TAIL(&k->lru, b, age);
	}
	for (uint32_t i = cached; i < n; i++) {
		const uint64_t *parent = i > 0 ? &sh[i - 1] : NULL;
		struct kvr_agent_kv kv = {.has_parent = i > 0,
					  .parent = i > 0 ? sh[i - 1] : 0,
					  .hashes = &sh[i],
					  .n = 1};

		if (find_block(k, sh[i]) != NULL)
			continue;
		if (k->n == capacity)
			evict_oldest(a, rank);
		insert_block(k, sh[i], parent);
		kvr_agent_kv_stored(a, rank, &kv);
	}
	kvr_agent_load(a, rank, kvr_agent_running(a), k->n);
	return cached;
}

/* The next token of a job. @return false when it has ended or must wait. */
static bool step_job(struct kvr_agent *a, struct job *j)
{
	const uint32_t token = (uint32_t)kvr_mix64(((uint64_t)j->seed << 32) + j->done);
	const struct kvr_agent_item it = {.data = &token,
					  .len = sizeof(token),
					  .flags = KVR_AGENT_TOKENS |
						   (j->done + 1 == j->tokens ? KVR_AGENT_LAST : 0),
					  .generated_tokens = j->done + 1,
					  .cached_known = true,
					  .cached_tokens = j->cached};

	if (kvr_agent_respond(a, j->handle, &it) != 0)
		return false;
	if (++j->done == j->tokens) {
		j->handle = 0;
		answered++;
		return false;
	}
	j->next_us = now_us() + (j->tokens > slow ? SLOW_US : 0);
	return j->tokens <= slow;
}

static int on_dispatch(struct kvr_agent *a, const struct kvr_agent_request *r, void *user)
{
	static uint64_t sh[MAX_BLOCKS];
	uint32_t n = r->n_hashes < MAX_BLOCKS ? r->n_hashes : MAX_BLOCKS;
	struct job *j = NULL;

	for (uint32_t i = 0; i < MAX_RUNNING && j == NULL; i++)
		j = jobs[i].handle == 0 ? &jobs[i] : NULL;
	if (j == NULL || r->body_len != sizeof(j->seed))
		return j == NULL ? 503 : 400;
	if (n > 0) {
		memcpy(sh, r->hashes, n * sizeof(sh[0]));
	} else {
		const int rc = kvr_client_hash_tokens(
			&(struct kvr_client_hashing){.block_size = block_size}, r->tokens,
			r->n_tokens, sh, MAX_BLOCKS);

		n = rc > 0 ? (uint32_t)rc : 0;
	}
	*j = (struct job){.handle = r->handle,
			  .tokens = r->max_tokens != UINT32_MAX ? r->max_tokens : 16,
			  .next_us = now_us()};
	memcpy(&j->seed, r->body, sizeof(j->seed));
	j->cached = use_cache(a, r->dp_rank, sh, n) * block_size;
	return 0;
}

static void on_abort(struct kvr_agent *a, uint64_t handle, enum kvr_agent_abort why, uint16_t code,
		     void *user)
{
	for (uint32_t i = 0; i < MAX_RUNNING; i++)
		if (jobs[i].handle == handle)
			jobs[i].handle = 0;
	aborted++;
}

static void on_state(struct kvr_agent *a, const struct kvr_agent_status *s, void *user)
{
	static enum kvr_agent_state last = KVR_AGENT_GONE;

	if (s->state != last || s->reject != 0)
		fprintf(stderr, "engine: state %d, rejected %u %s\n", s->state, s->reject, s->text);
	last = s->state;
	if (s->state == KVR_AGENT_GONE)
		stop = 2;
}

static int on_dump(struct kvr_agent *a, uint32_t rank, uint64_t pos, struct kvr_agent_kv *kv,
		   void *user)
{
	static const struct block *at;

	at = pos == 0 ? TAILQ_FIRST(&ranks[rank].lru) : TAILQ_NEXT(at, age);
	if (at == NULL)
		return 0;
	*kv = (struct kvr_agent_kv){
		.has_parent = at->has_parent, .parent = at->parent, .hashes = &at->sh, .n = 1};
	return 1;
}

static void on_signal(int sig)
{
	if (sig == SIGUSR1)
		tell = 1;
	else
		stop = 1;
}

/* Renamed when complete, so that a reader never sees a part. */
static void write_cache(void)
{
	const struct block *b;
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s.new", cache_file);
	f = fopen(path, "w");
	if (f == NULL)
		abort();
	for (uint32_t i = 0; i < n_ranks; i++)
		TAILQ_FOREACH (b, &ranks[i].lru, age)
			fprintf(f, "%u %llu\n", i, (unsigned long long)b->sh);
	if (fclose(f) != 0 || rename(path, cache_file) != 0)
		abort();
}

static int run_jobs(struct kvr_agent *a)
{
	const uint64_t now = now_us();
	int wait = -1;

	for (uint32_t i = 0; i < MAX_RUNNING; i++) {
		struct job *j = &jobs[i];

		while (j->handle != 0 && j->next_us <= now && step_job(a, j))
			;
		if (j->handle != 0)
			wait = 2;
	}
	return wait;
}

static void run_loop(struct kvr_agent *a)
{
	bool leaving = false;

	while (stop < 2) {
		struct pollfd p = {kvr_agent_fd(a), POLLIN, 0};
		const int jobs_ms = run_jobs(a);
		int ms;

		if (tell && cache_file != NULL) {
			tell = 0;
			write_cache();
		}
		if (stop == 1 && !leaving) {
			kvr_agent_goodbye(a);
			leaving = true;
		}
		ms = kvr_agent_timeout_ms(a);
		if (jobs_ms >= 0 && (ms < 0 || jobs_ms < ms))
			ms = jobs_ms;
		poll(&p, 1, ms < 0 || ms > 200 ? 200 : ms);
		kvr_agent_process(a);
	}
}

static int print_usage(void)
{
	fprintf(stderr, "usage: kvr-smoke-engine -r ROUTER -w WORKER [-p POOL] [-b BLOCK_SIZE] "
			"[-n RANKS] [-c BLOCKS] [-s TOKENS] [-o FILE]\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct kvr_agent_ops ops = {.on_dispatch = on_dispatch,
						 .on_abort = on_abort,
						 .on_state = on_state,
						 .on_dump = on_dump};
	struct kvr_agent_conf conf = {.pool = "default", .ops = &ops};
	struct kvr_agent_stats st;
	struct kvr_agent *a;
	int opt;

	while ((opt = getopt(argc, argv, "r:w:p:b:n:c:s:o:")) != -1) {
		switch (opt) {
		case 'r':
			conf.router = optarg;
			break;
		case 'w':
			conf.worker = strtoull(optarg, NULL, 0);
			break;
		case 'p':
			conf.pool = optarg;
			break;
		case 'b':
			block_size = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'n':
			n_ranks = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'c':
			capacity = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 's':
			slow = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'o':
			cache_file = optarg;
			break;
		default:
			return print_usage();
		}
	}
	if (n_ranks == 0 || n_ranks > MAX_RANKS || capacity == 0 || optind != argc)
		return print_usage();
	conf.block_size = block_size;
	conf.dp_size = n_ranks;
	conf.total_kv_blocks = capacity;
	for (uint32_t i = 0; i < MAX_RANKS; i++)
		TAILQ_INIT(&ranks[i].lru);
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	signal(SIGUSR1, on_signal);
	a = kvr_agent_create(&conf);
	if (a == NULL) {
		perror("kvr-smoke-engine");
		return print_usage();
	}
	run_loop(a);
	kvr_agent_stats_get(a, &st);
	printf("engine %llu: %llu dispatched, %llu answered, %llu aborted, %llu events, %llu "
	       "dumps, "
	       "%llu bad frames\n",
	       (unsigned long long)conf.worker, (unsigned long long)st.dispatches,
	       (unsigned long long)answered, (unsigned long long)aborted,
	       (unsigned long long)st.kv_events, (unsigned long long)st.kv_dumps,
	       (unsigned long long)st.frames_bad);
	kvr_agent_destroy(a);
	return 0;
}
