/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine_cache.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvr_hash.h"
#include "kvr_rand.h"
#include "kvr_test.h"
#include "trace.h"
#include "workload.h"

/* The specification: each use touches its blocks from the last to the first, and the oldest is
 * evicted. */
struct naive {
	uint64_t hash[64];
	uint32_t n, capacity;
};

static uint32_t naive_at(const struct naive *c, uint64_t h)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (c->hash[i] == h)
			return i;
	return UINT32_MAX;
}

static void naive_remove(struct naive *c, uint32_t at)
{
	memmove(&c->hash[at], &c->hash[at + 1], (c->n - at - 1) * sizeof(c->hash[0]));
	c->n--;
}

static void naive_touch(struct naive *c, uint64_t h)
{
	uint32_t at = naive_at(c, h);

	if (at != UINT32_MAX)
		naive_remove(c, at);
	c->hash[c->n++] = h;
}

static uint32_t naive_match(const struct naive *c, const uint64_t h[], uint32_t n)
{
	uint32_t k = 0;

	while (k < n && naive_at(c, h[k]) != UINT32_MAX)
		k++;
	return k;
}

static struct engine_cache_change naive_store(struct naive *c, const uint64_t h[], uint32_t n,
					      uint64_t removed[])
{
	struct engine_cache_change r = {.n = n < c->capacity ? n : c->capacity};

	r.have = naive_match(c, h, r.n);
	for (uint32_t k = r.have; k-- > 0;)
		naive_touch(c, h[k]);
	while (c->n + r.n - r.have > c->capacity) {
		removed[r.n_removed++] = c->hash[0];
		naive_remove(c, 0);
	}
	for (uint32_t k = r.n; k-- > 0;)
		naive_touch(c, h[k]);
	return r;
}

/* A random chain in a small tree, so that prefixes are shared at every depth. */
static uint32_t draw_chain(struct kvr_rand *r, uint64_t out[12])
{
	uint32_t n = 1 + kvr_rand_below(r, 12);
	uint64_t h = 0;

	for (uint32_t k = 0; k < n; k++) {
		h = kvr_mix64(h * 4 + kvr_rand_below(r, k < 3 ? 2 : 3) + 1);
		out[k] = h;
	}
	return n;
}

static void evicts_exactly_as_touching_every_block_would(void)
{
	struct kvr_rand r;

	kvr_rand_init(&r, 11);
	for (uint32_t capacity = 1; capacity <= 40; capacity += 3) {
		struct engine_cache *c = engine_cache_create(capacity, capacity);
		struct naive model = {.capacity = capacity};
		uint32_t different = 0;

		CU_ASSERT_PTR_NOT_NULL_FATAL(c);
		for (int i = 0; i < 3000; i++) {
			uint64_t h[12], a[12], b[12];
			uint32_t n = draw_chain(&r, h);
			struct engine_cache_change x, y;

			different += engine_cache_match(c, h, n) != naive_match(&model, h, n);
			x = engine_cache_store(c, h, n, a);
			y = naive_store(&model, h, n, b);
			different += memcmp(&x, &y, sizeof(x)) != 0;
			different += memcmp(a, b, x.n_removed * sizeof(a[0])) != 0;
			different += engine_cache_used(c) != model.n;
		}
		CU_ASSERT_EQUAL(different, 0);
		engine_cache_destroy(c);
	}
}

struct walked {
	struct naive seen;
	uint32_t bad;
};

static void note_chain(void *arg, const uint64_t *parent, const uint64_t h[], uint32_t n)
{
	struct walked *w = arg;

	if (parent != NULL && naive_at(&w->seen, *parent) == UINT32_MAX)
		w->bad++;
	for (uint32_t i = 0; i < n; i++) {
		if (naive_at(&w->seen, h[i]) != UINT32_MAX)
			w->bad++;
		w->seen.hash[w->seen.n++] = h[i];
	}
}

static void walk_gives_every_block_once_and_parents_first(void)
{
	struct engine_cache *c = engine_cache_create(40, 1);
	struct kvr_rand r;
	uint64_t h[12], removed[12], scratch[40];

	kvr_rand_init(&r, 5);
	for (int i = 0; i < 200; i++) {
		struct walked w = {0};

		engine_cache_store(c, h, draw_chain(&r, h), removed);
		engine_cache_walk(c, scratch, note_chain, &w);
		CU_ASSERT_EQUAL(w.bad, 0);
		CU_ASSERT_EQUAL(w.seen.n, engine_cache_used(c));
		for (uint32_t k = 0; k < w.seen.n; k++)
			CU_ASSERT_EQUAL(engine_cache_match(c, &w.seen.hash[k], 1), 1);
	}
	engine_cache_destroy(c);
}

static void chain_longer_than_the_cache_keeps_its_head(void)
{
	struct engine_cache *c = engine_cache_create(3, 1);
	const uint64_t h[] = {11, 12, 13, 14, 15};
	uint64_t removed[5];
	struct engine_cache_change r = engine_cache_store(c, h, 5, removed);

	CU_ASSERT_EQUAL(r.n, 3);
	CU_ASSERT_EQUAL(r.n_removed, 0);
	CU_ASSERT_EQUAL(engine_cache_match(c, h, 5), 3);
	CU_ASSERT_EQUAL(engine_cache_match(c, h, 0), 0);
	CU_ASSERT_EQUAL(engine_cache_store(c, h, 0, removed).n, 0);
	engine_cache_destroy(c);
}

static void invalid_sizes_are_rejected(void)
{
	errno = 0;
	CU_ASSERT_PTR_NULL(engine_cache_create(0, 1));
	CU_ASSERT_EQUAL(errno, EINVAL);
	CU_ASSERT_PTR_NULL(engine_cache_create(UINT32_MAX, 1));
	engine_cache_destroy(NULL);
}

/* Published counts of the reference trace replay: 16,384 blocks per worker, n = ids * 32. */
static void trace_replay_stores_and_removes_as_published(void)
{
	static const struct {
		uint32_t workers;
		uint64_t stored, removed;
	} known[] = {{16, 8758240, 8496096}, {64, 8761216, 7712640}};
	const char *dir = getenv("KVR_DATA_DIR"), *root = getenv("KVR_SOURCE_ROOT");
	char path[PATH_MAX], err[200];
	struct load_trace t;

	snprintf(path, sizeof(path), "%s%s/mooncake_conversation_trace.jsonl",
		 dir != NULL	? dir
		 : root != NULL ? root
				: ".",
		 dir != NULL ? "" : "/../shared/data");
	if (access(path, R_OK) != 0) {
		printf(" (no trace, skipped)");
		return;
	}
	CU_ASSERT_EQUAL_FATAL(load_trace_read(&t, path, 1, err, sizeof(err)), 0);
	CU_ASSERT_EQUAL(t.n_rows, 12031);
	for (int w = 0; w < 2; w++) {
		static uint64_t h[32768], gone[32768];
		struct engine_cache *c[64];
		uint64_t stored = 0, removed = 0;

		for (uint32_t i = 0; i < known[w].workers; i++)
			c[i] = engine_cache_create(16384, i);
		for (uint32_t r = 0; r < t.n_rows; r++) {
			const struct load_trace_row *row = &t.rows[r];
			uint64_t worker = kvr_mix64((UINT64_C(7) << 56) ^ r) % known[w].workers;
			struct engine_cache_change x;

			for (uint32_t k = 0; k < row->n_ids * 32; k++)
				h[k] = load_stream(8, t.ids[row->first_id + k / 32], k % 32);
			kvr_hash_chain(NULL, h, row->n_ids * 32, h);
			x = engine_cache_store(c[worker], h, row->n_ids * 32, gone);
			stored += x.n - x.have;
			removed += x.n_removed;
		}
		CU_ASSERT_EQUAL(stored, known[w].stored);
		CU_ASSERT_EQUAL(removed, known[w].removed);
		for (uint32_t i = 0; i < known[w].workers; i++)
			engine_cache_destroy(c[i]);
	}
	load_trace_free(&t);
}

static void a_cleared_cache_is_empty(void)
{
	const uint64_t h[5] = {1, 2, 3, 4, 5};
	struct engine_cache *c = engine_cache_create(4, 9);
	struct engine_cache_change r;
	uint64_t removed[5];

	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	engine_cache_store(c, h, 4, removed);
	engine_cache_clear(c);
	CU_ASSERT_EQUAL(engine_cache_used(c), 0);
	CU_ASSERT_EQUAL(engine_cache_match(c, h, 4), 0);
	r = engine_cache_store(c, &h[1], 4, removed);
	CU_ASSERT(r.n == 4 && r.have == 0 && r.n_removed == 0);
	CU_ASSERT_EQUAL(engine_cache_match(c, &h[1], 4), 4);
	r = engine_cache_store(c, h, 1, removed);
	CU_ASSERT(r.n_removed == 1 && removed[0] == 5);
	engine_cache_destroy(c);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_cleared_cache_is_empty),
			       KVR_CASE(evicts_exactly_as_touching_every_block_would),
			       KVR_CASE(walk_gives_every_block_once_and_parents_first),
			       KVR_CASE(chain_longer_than_the_cache_keeps_its_head),
			       KVR_CASE(invalid_sizes_are_rejected),
			       KVR_CASE(trace_replay_stores_and_removes_as_published),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("load cache", tests);
}
