/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_rand.h"
#include "kvr_session.h"

#include "kvr_test.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SEC UINT64_C(1000000000)

static const struct kvr_session_binding w42 = {42, 0}, w7 = {7, 3};

static void unknown_bound_unbound(void)
{
	struct kvr_session *s = kvr_session_create(4, 1, 0);
	struct kvr_session_binding b;

	CU_ASSERT_EQUAL(kvr_session_resolve(s, "a", 1, 0, &b), KVR_SESSION_NONE);
	CU_ASSERT_EQUAL(kvr_session_bind(s, "a", 1, &w42, SEC, 0), 0);
	CU_ASSERT_EQUAL(kvr_session_resolve(s, "a", 1, 0, &b), KVR_SESSION_BOUND);
	CU_ASSERT_EQUAL(b.worker, 42);
	CU_ASSERT_EQUAL(kvr_session_bind(s, "a", 1, &w7, SEC, 0), 0); /* overwrites */
	CU_ASSERT(kvr_session_unbind(s, "a", 1, &b));
	CU_ASSERT(b.worker == 7 && b.dp_rank == 3);
	CU_ASSERT_FALSE(kvr_session_unbind(s, "a", 1, NULL));
	CU_ASSERT_EQUAL(kvr_session_resolve(s, "a", 1, 0, &b), KVR_SESSION_NONE);
	kvr_session_destroy(s);
}

/* Section 17.5: TTL 60 with 5 s left is above 50 s after a resolve. */
static void use_slides_the_time(void)
{
	struct kvr_session *s = kvr_session_create(4, 1, 0);
	struct kvr_session_ended e[2];
	struct kvr_session_binding b;

	kvr_session_bind(s, "x", 1, &w42, 60 * SEC, 0);
	CU_ASSERT_EQUAL(kvr_session_resolve(s, "x", 1, 55 * SEC, &b), KVR_SESSION_BOUND);
	CU_ASSERT(kvr_session_left(s, "x", 1, 55 * SEC) > 50 * SEC);
	CU_ASSERT_EQUAL(kvr_session_expire(s, 100 * SEC, e, 2), 0);
	CU_ASSERT_EQUAL(kvr_session_expire(s, 115 * SEC, e, 2), 1);
	CU_ASSERT_EQUAL(e[0].to.worker, 42);
	CU_ASSERT_EQUAL(memcmp(e[0].id, "x", 1), 0);
	CU_ASSERT_EQUAL(kvr_session_count(s), 0);
	kvr_session_destroy(s);
}

static void an_expired_one_is_told_once(void)
{
	struct kvr_session *s = kvr_session_create(4, 1, 0);
	struct kvr_session_binding b;
	struct kvr_session_ended e;

	kvr_session_bind(s, "sess-expired", 12, &(struct kvr_session_binding){99, 0}, SEC, 0);
	CU_ASSERT_EQUAL(kvr_session_resolve(s, "sess-expired", 12, SEC, &b), KVR_SESSION_EXPIRED);
	CU_ASSERT_EQUAL(b.worker, 99);
	CU_ASSERT_EQUAL(kvr_session_resolve(s, "sess-expired", 12, SEC, &b), KVR_SESSION_NONE);
	CU_ASSERT_EQUAL(kvr_session_expire(s, 1000 * SEC, &e, 1), 0);
	kvr_session_destroy(s);
}

static void bounds_are_kept(void)
{
	struct kvr_session *s = kvr_session_create(2, 1, 0);
	char id[300] = {1};

	CU_ASSERT_PTR_NULL(kvr_session_create(0, 1, 0));
	CU_ASSERT_EQUAL(kvr_session_bind(s, id, 0, &w42, SEC, 0), -EINVAL);
	CU_ASSERT_EQUAL(kvr_session_bind(s, id, 257, &w42, SEC, 0), -EINVAL);
	CU_ASSERT_EQUAL(kvr_session_bind(s, id, 256, &w42, 0, 0), -EINVAL);
	CU_ASSERT_EQUAL(kvr_session_bind(s, id, 256, &w42, UINT64_MAX, 5), 0);
	CU_ASSERT_EQUAL(kvr_session_bind(s, id, 255, &w42, SEC, 0), 0);
	CU_ASSERT_EQUAL(kvr_session_bind(s, id, 254, &w42, SEC, 0), -ENOSPC);
	CU_ASSERT_EQUAL(kvr_session_refused(s), 1);
	kvr_session_destroy(s);
}

#define N 400

/* Random life against plain arrays. */
static void behaves_as_a_plain_table(void)
{
	static uint64_t until[N], ttl[N];
	struct kvr_session *s = kvr_session_create(N, 3, 0);
	struct kvr_session_ended e[5];
	struct kvr_session_binding b;
	uint64_t now = 0;
	struct kvr_rand r;

	kvr_rand_init(&r, 2);
	for (int step = 0; step < 60000; step++) {
		uint32_t i = kvr_rand_below(&r, N), got;
		char id[16];
		int len = snprintf(id, sizeof(id), "s%u", i);

		now += kvr_rand_below(&r, 200) == 0 ? kvr_rand_below(&r, 3000) * SEC
						    : kvr_rand_below(&r, 300000000);
		switch (kvr_rand_below(&r, 5)) {
		case 0:
			ttl[i] = 1 + kvr_rand_below(&r, 2000) * (SEC / 3);
			until[i] = now + ttl[i];
			CU_ASSERT_EQUAL_FATAL(
				kvr_session_bind(s, id, (size_t)len, &w7, ttl[i], now), 0);
			break;
		case 1:
			CU_ASSERT_EQUAL_FATAL(kvr_session_unbind(s, id, (size_t)len, NULL),
					      until[i] != 0);
			until[i] = 0;
			break;
		case 2:
			while ((got = kvr_session_expire(s, now, e, 5)) > 0)
				for (uint32_t k = 0; k < got; k++) {
					char text[16] = "";
					int at;

					memcpy(text, e[k].id, e[k].len);
					at = atoi(text + 1);

					CU_ASSERT_FATAL(until[at] != 0 && until[at] <= now);
					until[at] = 0;
				}
			for (uint32_t k = 0; k < N; k++)
				CU_ASSERT_FATAL(until[k] == 0 || until[k] > now);
			break;
		default:
			got = kvr_session_resolve(s, id, (size_t)len, now, &b);
			CU_ASSERT_EQUAL_FATAL(got, until[i] == 0     ? KVR_SESSION_NONE
						   : until[i] <= now ? KVR_SESSION_EXPIRED
								     : KVR_SESSION_BOUND);
			until[i] = got == KVR_SESSION_BOUND ? now + ttl[i] : 0;
			break;
		}
	}
	kvr_session_destroy(s);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"bind", unknown_bound_unbound},       {"slide", use_slides_the_time},
		{"once", an_expired_one_is_told_once}, {"bounds", bounds_are_kept},
		{"random", behaves_as_a_plain_table},  CU_TEST_INFO_NULL};

	return kvr_test_run("session", tests);
}
