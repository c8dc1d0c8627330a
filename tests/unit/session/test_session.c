/* SPDX-License-Identifier: BSD-3-Clause */
/* The table with both of its owners played by one thread. */
#include "kvr_rand.h"
#include "kvr_session.h"

#include "kvr_test.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SEC  UINT64_C(1000000000)
#define LATE KVR_SESSION_LATE

static const struct kvr_session_binding w42 = {42, 0, 0}, w7 = {7, 3, UINT64_MAX - 1};

static struct kvr_session_key key_of(const struct kvr_session *s, const char *id)
{
	struct kvr_session_key k;

	CU_ASSERT_FATAL(kvr_session_key(s, id, strlen(id), &k));
	return k;
}

static int bind(struct kvr_session *s, const char *id, const struct kvr_session_binding *to,
		uint64_t ttl, uint64_t now)
{
	const struct kvr_session_key k = key_of(s, id);

	return kvr_session_bind(s, &k, to, ttl, now, NULL);
}

static enum kvr_session_found resolve(struct kvr_session *s, const char *id, uint64_t now,
				      struct kvr_session_binding *to)
{
	const struct kvr_session_key k = key_of(s, id);

	return kvr_session_resolve(s, &k, now, to, NULL);
}

static bool unbind(struct kvr_session *s, const char *id, struct kvr_session_binding *to)
{
	const struct kvr_session_key k = key_of(s, id);

	return kvr_session_unbind(s, &k, to);
}

static uint64_t left(const struct kvr_session *s, const char *id, uint64_t now)
{
	const struct kvr_session_key k = key_of(s, id);

	return kvr_session_left(s, &k, now);
}

/* All that control does at `now`, each report confirmed. @return how many expired; *last is one. */
static uint32_t expire(struct kvr_session *s, uint64_t now, struct kvr_session_ended *last)
{
	struct kvr_session_ref due[3];
	uint32_t gone = 0;

	do {
		uint32_t n = kvr_session_due(s, now, due, 3);

		for (uint32_t i = 0; i < n; i++)
			gone += kvr_session_confirm(s, due[i], now, last);
	} while (kvr_session_behind(s, now));
	return gone;
}

static void unknown_bound_unbound(void)
{
	struct kvr_session *s = kvr_session_create(4, 1, 0);
	struct kvr_session_binding b;

	CU_ASSERT_EQUAL(resolve(s, "a", 0, &b), KVR_SESSION_NONE);
	CU_ASSERT_EQUAL(bind(s, "a", &w42, SEC, 0), 0);
	CU_ASSERT_EQUAL(resolve(s, "a", 0, &b), KVR_SESSION_BOUND);
	CU_ASSERT_EQUAL(b.worker, 42);
	CU_ASSERT_EQUAL(bind(s, "a", &w7, SEC, 0), 0); /* overwrites */
	CU_ASSERT_EQUAL(kvr_session_count(s), 1);
	CU_ASSERT(unbind(s, "a", &b));
	CU_ASSERT(b.worker == 7 && b.dp_rank == 3 && b.tag == UINT64_MAX - 1);
	CU_ASSERT_FALSE(unbind(s, "a", NULL));
	CU_ASSERT_EQUAL(resolve(s, "a", 0, &b), KVR_SESSION_NONE);
	CU_ASSERT_EQUAL(kvr_session_count(s), 0);
	kvr_session_destroy(s);
}

/* Section 17.5: TTL 60 with 5 s left is above 50 s after a resolve. */
static void use_slides_the_time(void)
{
	struct kvr_session *s = kvr_session_create(4, 1, 0);
	struct kvr_session_ended e = {0};
	struct kvr_session_binding b;

	bind(s, "x", &w42, 60 * SEC, 0);
	CU_ASSERT_EQUAL(resolve(s, "x", 55 * SEC, &b), KVR_SESSION_BOUND);
	CU_ASSERT(left(s, "x", 55 * SEC) > 50 * SEC);
	CU_ASSERT_EQUAL(expire(s, 61 * SEC, &e), 0); /* the wheel looks and moves it on */
	CU_ASSERT_EQUAL(expire(s, 115 * SEC - 1, &e), 0);
	CU_ASSERT_EQUAL(expire(s, 115 * SEC + LATE, &e), 1);
	CU_ASSERT_EQUAL(e.to.worker, 42);
	CU_ASSERT(e.len == 1 && memcmp(e.id, "x", 1) == 0);
	CU_ASSERT_EQUAL(kvr_session_count(s), 0);
	CU_ASSERT_EQUAL(expire(s, 500 * SEC, &e), 0);
	kvr_session_destroy(s);
}

static void an_expired_one_is_told_once(void)
{
	struct kvr_session *s = kvr_session_create(4, 1, 0);
	struct kvr_session_binding b;
	struct kvr_session_ended e;

	bind(s, "sess-expired", &(struct kvr_session_binding){99, 0, 0}, SEC, 0);
	CU_ASSERT_EQUAL(resolve(s, "sess-expired", SEC, &b), KVR_SESSION_EXPIRED);
	CU_ASSERT_EQUAL(b.worker, 99);
	CU_ASSERT_EQUAL(resolve(s, "sess-expired", SEC, &b), KVR_SESSION_NONE);
	CU_ASSERT_EQUAL(left(s, "sess-expired", SEC), 0);
	CU_ASSERT_EQUAL(expire(s, 1000 * SEC, &e), 0);
	kvr_session_destroy(s);
}

static void bounds_are_kept(void)
{
	struct kvr_session *s = kvr_session_create(2, 1, 0);
	struct kvr_session_key k;
	char id[300] = {1};

	CU_ASSERT_PTR_NULL(kvr_session_create(0, 1, 0));
	CU_ASSERT_PTR_NULL(kvr_session_create(KVR_SESSION_MAX + 1, 1, 0));
	CU_ASSERT_FALSE(kvr_session_key(s, id, 0, &k));
	CU_ASSERT_FALSE(kvr_session_key(s, id, 257, &k));
	CU_ASSERT(kvr_session_key(s, id, 256, &k));
	CU_ASSERT_EQUAL(kvr_session_bind(s, &k, &w42, 0, 0, NULL), -EINVAL);
	CU_ASSERT_EQUAL(kvr_session_bind(s, &k, &w42, UINT64_MAX, 5, NULL), 0);
	CU_ASSERT(kvr_session_left(s, &k, UINT64_MAX - 1) > 0);
	CU_ASSERT_EQUAL(bind(s, "b", &w42, SEC, 0), 0);
	CU_ASSERT_EQUAL(bind(s, "c", &w42, SEC, 0), -ENOSPC);
	CU_ASSERT_EQUAL(kvr_session_rejected(s), 1);
	CU_ASSERT_EQUAL(bind(s, "b", &w7, SEC, 0), 0); /* anew: needs no room */
	CU_ASSERT(unbind(s, "b", NULL));
	CU_ASSERT_EQUAL(bind(s, "c", &w42, SEC, 0), 0);
	kvr_session_destroy(s);
	kvr_session_destroy(NULL);
}

/* Ids are bytes: zeros inside, one a prefix of the other, all lengths. */
static void hostile_ids_are_told_apart(void)
{
	struct kvr_session *s = kvr_session_create(3 * 256, 1, 0);
	struct kvr_session_binding b;
	struct kvr_session_key k;
	char id[256];

	for (uint32_t fill = 0; fill < 3; fill++)
		for (uint32_t len = 1; len <= 256; len++) {
			memset(id, (int)fill, sizeof(id));
			CU_ASSERT(kvr_session_key(s, id, len, &k));
			b = (struct kvr_session_binding){fill * 1000 + len, len, 0};
			CU_ASSERT_EQUAL(kvr_session_bind(s, &k, &b, SEC, 0, NULL), 0);
		}
	CU_ASSERT_EQUAL(kvr_session_count(s), 3 * 256);
	for (uint32_t fill = 0; fill < 3; fill++)
		for (uint32_t len = 1; len <= 256; len++) {
			memset(id, (int)fill, sizeof(id));
			kvr_session_key(s, id, len, &k);
			kvr_session_prefetch(s, &k, 0);
			kvr_session_prefetch(s, &k, 1);
			CU_ASSERT_EQUAL(kvr_session_resolve(s, &k, 0, &b, NULL), KVR_SESSION_BOUND);
			CU_ASSERT(b.worker == fill * 1000 + len && b.dp_rank == len);
			id[len - 1] ^= 4; /* the last byte counts */
			kvr_session_key(s, id, len, &k);
			CU_ASSERT_EQUAL(kvr_session_resolve(s, &k, 0, &b, NULL), KVR_SESSION_NONE);
		}
	kvr_session_destroy(s);
}

/* Equal hashes: only the bytes tell. */
static void colliding_hashes_are_told_apart(void)
{
	struct kvr_session *s = kvr_session_create(8, 1, 0);
	struct kvr_session_binding b;
	struct kvr_session_key k[6];
	static const char *const id[] = {"a", "b", "c", "d", "e", "f"};

	for (uint32_t i = 0; i < 6; i++) {
		k[i] = (struct kvr_session_key){id[i], 1, i < 4 ? 15 : 16}; /* over the end */
		b = (struct kvr_session_binding){i, 0, 0};
		CU_ASSERT_EQUAL(kvr_session_bind(s, &k[i], &b, SEC, 0, NULL), 0);
	}
	CU_ASSERT(kvr_session_unbind(s, &k[1], NULL));
	CU_ASSERT(kvr_session_unbind(s, &k[4], NULL));
	for (uint32_t i = 0; i < 6; i++) {
		bool there = i != 1 && i != 4;

		kvr_session_prefetch(s, &k[i], 1);
		CU_ASSERT_EQUAL(kvr_session_resolve(s, &k[i], 0, &b, NULL),
				there ? KVR_SESSION_BOUND : KVR_SESSION_NONE);
		CU_ASSERT(!there || b.worker == i);
	}
	kvr_session_destroy(s);
}

/* An entry that is used again while it stands in the wheel goes by its new time alone. */
static void reused_entry_expires_at_its_own_time(void)
{
	static const uint64_t ttl[][2] = {{300, 2},  {2, 300}, {5000, 3},
					  {3, 5000}, {10, 10}, {1, 1}};
	struct kvr_session_ended e;

	for (uint32_t i = 0; i < 6; i++)
		for (uint32_t anew = 0; anew < 2; anew++) {
			struct kvr_session *s = kvr_session_create(1, 1, 0);
			uint64_t over = SEC + ttl[i][1] * SEC;

			bind(s, "one", &w42, ttl[i][0] * SEC, 0);
			CU_ASSERT_EQUAL(expire(s, SEC / 2, &e), 0); /* in the wheel */
			if (anew == 0)
				CU_ASSERT(unbind(s, "one", NULL));
			bind(s, anew == 0 ? "two" : "one", &w7, ttl[i][1] * SEC, SEC);
			for (uint64_t t = SEC; t < over; t += 3 * SEC / 4)
				CU_ASSERT_EQUAL_FATAL(expire(s, t, &e), 0);
			CU_ASSERT_EQUAL(expire(s, over - 1, &e), 0);
			CU_ASSERT_EQUAL(expire(s, over + LATE, &e), 1);
			CU_ASSERT(e.to.worker == 7 && e.to.tag == w7.tag && e.len == 3);
			CU_ASSERT_EQUAL(expire(s, over + 9000 * SEC, &e), 0);
			kvr_session_destroy(s);
		}
}

/* A report of an earlier life, or one that has slid meanwhile, removes nothing. */
static void old_reports_are_not_confirmed(void)
{
	struct kvr_session *s = kvr_session_create(2, 1, 0);
	struct kvr_session_ref due[2], no = {0, 0}, far = {77, 1};
	struct kvr_session_binding b;
	struct kvr_session_ended e;

	bind(s, "a", &w42, SEC, 0);
	bind(s, "b", &w42, SEC, 0);
	CU_ASSERT_EQUAL(kvr_session_due(s, SEC + LATE, due, 2), 2);
	CU_ASSERT_EQUAL(resolve(s, "a", SEC - 1, &b), KVR_SESSION_BOUND); /* slid */
	CU_ASSERT_FALSE(kvr_session_confirm(s, due[0], SEC + LATE, &e));
	CU_ASSERT(unbind(s, "b", NULL));
	bind(s, "c", &w7, SEC, 0); /* the same entry, over as well */
	CU_ASSERT_FALSE(kvr_session_confirm(s, due[1], SEC + LATE, &e));
	CU_ASSERT_FALSE(kvr_session_confirm(s, no, SEC, &e));
	CU_ASSERT_FALSE(kvr_session_confirm(s, far, SEC, &e));
	CU_ASSERT_FALSE(kvr_session_unbind_ref(s, due[1]));
	CU_ASSERT_EQUAL(kvr_session_count(s), 2);
	CU_ASSERT_EQUAL(expire(s, 3 * SEC + LATE, &e), 2);
	kvr_session_destroy(s);
}

/* Reports that never arrive are repeated. */
static void lost_reports_are_repeated(void)
{
	struct kvr_session *s = kvr_session_create(4, 1, 0);
	struct kvr_session_ref due[4];
	struct kvr_session_ended e;
	uint64_t t = SEC + LATE;

	bind(s, "a", &w42, SEC, 0);
	CU_ASSERT_EQUAL(kvr_session_due(s, t, due, 4), 1);
	CU_ASSERT_EQUAL(kvr_session_due(s, t, due, 4), 0); /* not at once */
	for (int i = 0; i < 3; i++) {
		t += 2 * SEC;
		CU_ASSERT_EQUAL(kvr_session_due(s, t, due, 4), 1);
	}
	CU_ASSERT(kvr_session_confirm(s, due[0], t, &e));
	CU_ASSERT_EQUAL(kvr_session_due(s, t + 100 * SEC, due, 4), 0);
	kvr_session_destroy(s);
}

/* Many at one time: as much as the caller takes, bounded, none twice, none forgotten. */
static void expiry_comes_in_bursts(void)
{
	enum { MANY = 5000 };
	struct kvr_session *s = kvr_session_create(MANY, 1, 0);
	static struct kvr_session_ref due[KVR_SESSION_CHECKS * 2];
	struct kvr_session_ended e;
	uint32_t gone = 0, calls = 0;
	char id[16];

	for (uint32_t i = 0; i < MANY; i++) {
		snprintf(id, sizeof(id), "%u", i);
		bind(s, id, &w42, 10 * SEC, 0);
	}
	CU_ASSERT(kvr_session_behind(s, 0));
	while (kvr_session_behind(s, 0)) {
		CU_ASSERT_EQUAL_FATAL(kvr_session_due(s, 0, due, 7), 0);
		calls++;
	}
	CU_ASSERT_EQUAL(calls, (MANY + KVR_SESSION_CHECKS - 1) / KVR_SESSION_CHECKS);
	CU_ASSERT_EQUAL(kvr_session_due(s, 11 * SEC, due, 7), 7);
	CU_ASSERT(kvr_session_behind(s, 11 * SEC));
	for (uint32_t i = 0; i < 7; i++)
		gone += kvr_session_confirm(s, due[i], 11 * SEC, &e);
	CU_ASSERT_EQUAL(kvr_session_due(s, 11 * SEC, due, KVR_SESSION_CHECKS * 2),
			KVR_SESSION_CHECKS);
	for (uint32_t i = 0; i < KVR_SESSION_CHECKS; i++)
		gone += kvr_session_confirm(s, due[i], 11 * SEC, &e);
	gone += expire(s, 11 * SEC, &e);
	CU_ASSERT_EQUAL(gone, MANY);
	CU_ASSERT_EQUAL(kvr_session_count(s), 0);
	kvr_session_destroy(s);
}

/* Nobody called for years, and for a little more than the wheel is long. */
static void long_silence_loses_nobody(void)
{
	static const uint64_t silence[] = {1090, 1100, 1200, 100000000};
	struct kvr_session_ended e;
	char id[16];

	for (uint32_t k = 0; k < 4; k++) {
		struct kvr_session *s = kvr_session_create(2000, 1, 0);
		uint64_t t = silence[k] * SEC;

		for (uint32_t i = 0; i < 2000; i++) {
			snprintf(id, sizeof(id), "%u", i);
			bind(s, id, &w42, (1 + i) * SEC / 2, 0);
		}
		expire(s, 0, &e);
		/* What stands in the few slots behind the turn follows within its ticks. */
		CU_ASSERT_EQUAL(expire(s, t, &e) + expire(s, t + 2 * SEC, &e), 2000);
		kvr_session_destroy(s);
	}
}

/* Affinity: active requests keep a binding, the idle time starts with the end of the last. */
static void active_requests_prevent_expiry(void)
{
	struct kvr_session *s = kvr_session_create(2, 1, 0);
	struct kvr_session_key k = key_of(s, "a");
	struct kvr_session_ref ref, old;
	struct kvr_session_binding b;
	struct kvr_session_ended e;

	kvr_session_bind(s, &k, &w42, 10 * SEC, 0, &old);
	CU_ASSERT_EQUAL(kvr_session_resolve(s, &k, 0, &b, &ref), KVR_SESSION_BOUND);
	CU_ASSERT(ref.entry == old.entry && ref.gen == old.gen);
	kvr_session_enter(s, ref);
	kvr_session_enter(s, ref);
	for (uint64_t t = 0; t < 100 * SEC; t += SEC)
		CU_ASSERT_EQUAL(expire(s, t, &e), 0);
	CU_ASSERT(kvr_session_left(s, &k, 100 * SEC) > 0);
	kvr_session_leave(s, ref, 100 * SEC);
	CU_ASSERT_EQUAL(expire(s, 120 * SEC, &e), 0); /* one is left */
	CU_ASSERT_EQUAL(kvr_session_resolve(s, &k, 500 * SEC, &b, NULL), KVR_SESSION_BOUND);
	kvr_session_leave(s, ref, 600 * SEC);
	kvr_session_leave(s, ref, 605 * SEC); /* nobody is in it: nothing starts anew */
	CU_ASSERT_EQUAL(expire(s, 610 * SEC - 1, &e), 0);
	CU_ASSERT_EQUAL(expire(s, 610 * SEC + LATE, &e), 1);
	kvr_session_enter(s, ref); /* that life is over */
	CU_ASSERT_EQUAL(kvr_session_bind(s, &k, &w7, SEC, 700 * SEC, &ref), 0);
	kvr_session_leave(s, old, 701 * SEC);
	kvr_session_enter(s, ref);
	CU_ASSERT_EQUAL(kvr_session_bind(s, &k, &w42, SEC, 702 * SEC, &old), 0); /* a new life */
	kvr_session_leave(s, ref, 703 * SEC);
	CU_ASSERT_EQUAL(expire(s, 703 * SEC + LATE, &e), 1);
	CU_ASSERT_FALSE(kvr_session_unbind_ref(s, old));
	kvr_session_bind(s, &k, &w42, SEC, 704 * SEC, &old);
	CU_ASSERT_TRUE(kvr_session_unbind_ref(s, old));
	CU_ASSERT_EQUAL(kvr_session_count(s), 0);
	kvr_session_destroy(s);
}

static void reserved_room_is_kept(void)
{
	struct kvr_session *s = kvr_session_create(2, 1, 0);

	CU_ASSERT(kvr_session_reserve(s));
	CU_ASSERT_EQUAL(bind(s, "a", &w42, SEC, 0), 0);
	CU_ASSERT_FALSE(kvr_session_reserve(s));
	CU_ASSERT_EQUAL(bind(s, "b", &w42, SEC, 0), -ENOSPC);
	CU_ASSERT_EQUAL(kvr_session_rejected(s), 2);
	CU_ASSERT_EQUAL(bind(s, "a", &w7, SEC, 0), 0);
	kvr_session_unreserve(s);
	CU_ASSERT_EQUAL(bind(s, "b", &w42, SEC, 0), 0);
	CU_ASSERT_EQUAL(kvr_session_count(s), 2);
	kvr_session_destroy(s);
}

/* ---- against plain arrays ---- */

#define N     400u
#define STEPS 400000u

struct model {
	uint64_t until, ttl; /* 0: not bound */
	uint32_t active;
	struct kvr_session_ref ref;
};

static struct model model[N];

static struct kvr_session_key nth(const struct kvr_session *s, uint32_t i,
				  char id[KVR_SESSION_ID_MAX])
{
	struct kvr_session_key k;
	uint32_t len = 4 + i * 7 % 252;

	memset(id, (int)(i % 3), KVR_SESSION_ID_MAX);
	memcpy(id, &i, sizeof(i));
	kvr_session_key(s, id, len, &k);
	return k;
}

static void expire_model(struct kvr_session *s, uint64_t now)
{
	struct kvr_session_ref due[5];
	struct kvr_session_ended e;

	do {
		uint32_t n = kvr_session_due(s, now, due, 5);

		for (uint32_t k = 0; k < n; k++) {
			uint32_t at;

			if (!kvr_session_confirm(s, due[k], now, &e))
				continue;
			memcpy(&at, e.id, sizeof(at));
			CU_ASSERT_FATAL(at < N && model[at].until != 0 && model[at].until <= now);
			CU_ASSERT_FATAL(model[at].active == 0 && e.to.worker == at);
			model[at].until = 0;
		}
	} while (kvr_session_behind(s, now));
	for (uint32_t k = 0; k < N; k++)
		CU_ASSERT_FATAL(model[k].until == 0 || model[k].active != 0 ||
				model[k].until + LATE > now);
}

static void step(struct kvr_session *s, struct kvr_rand *r, uint64_t now)
{
	const uint32_t i = kvr_rand_below(r, N);
	struct model *m = &model[i];
	char id[KVR_SESSION_ID_MAX];
	const struct kvr_session_key k = nth(s, i, id);
	struct kvr_session_binding b = {i, i, 0};
	enum kvr_session_found found;

	switch (kvr_rand_below(r, 7)) {
	case 0:
		m->ttl = 1 + kvr_rand_below(r, 2000) * (SEC / 3);
		m->until = now + m->ttl;
		m->active = 0;
		CU_ASSERT_EQUAL_FATAL(kvr_session_bind(s, &k, &b, m->ttl, now, &m->ref), 0);
		break;
	case 1:
		CU_ASSERT_EQUAL_FATAL(kvr_session_unbind(s, &k, NULL), m->until != 0);
		m->until = 0;
		m->active = 0;
		break;
	case 2:
		kvr_session_enter(s, m->ref);
		m->active += m->until != 0;
		break;
	case 3:
		kvr_session_leave(s, m->ref, now);
		if (m->active != 0) {
			m->until = now + m->ttl;
			m->active--;
		}
		break;
	default:
		found = kvr_session_resolve(s, &k, now, &b, NULL);
		CU_ASSERT_EQUAL_FATAL(found, m->until == 0 ? KVR_SESSION_NONE
					     : m->active == 0 && m->until <= now
						     ? KVR_SESSION_EXPIRED
						     : KVR_SESSION_BOUND);
		CU_ASSERT_FATAL(found == KVR_SESSION_NONE || (b.worker == i && b.dp_rank == i));
		m->until = found == KVR_SESSION_BOUND ? now + m->ttl : 0;
		break;
	}
}

static void behaves_as_a_plain_table(void)
{
	struct kvr_session *s = kvr_session_create(N, 3, 0);
	uint64_t now = 0;
	struct kvr_rand r;
	uint32_t bound = 0;

	memset(model, 0, sizeof(model));
	kvr_rand_init(&r, 2);
	for (uint32_t i = 0; i < STEPS; i++) {
		now += kvr_rand_below(&r, 2000) == 0 ? kvr_rand_below(&r, 1000) * SEC
						     : kvr_rand_below(&r, 300000000);
		if (kvr_rand_below(&r, 4) == 0)
			expire_model(s, now);
		step(s, &r, now);
	}
	for (uint32_t i = 0; i < N; i++)
		bound += model[i].until != 0;
	CU_ASSERT_EQUAL(kvr_session_count(s), bound);
	CU_ASSERT_EQUAL(kvr_session_rejected(s), 0);
	kvr_session_destroy(s);
}

int main(void)
{
	CU_TestInfo tests[] = {{"bind", unknown_bound_unbound},
			       {"slide", use_slides_the_time},
			       {"once", an_expired_one_is_told_once},
			       {"bounds", bounds_are_kept},
			       {"hostile ids", hostile_ids_are_told_apart},
			       {"collisions", colliding_hashes_are_told_apart},
			       {"reuse", reused_entry_expires_at_its_own_time},
			       {"old reports", old_reports_are_not_confirmed},
			       {"lost reports", lost_reports_are_repeated},
			       {"bursts", expiry_comes_in_bursts},
			       {"silence", long_silence_loses_nobody},
			       {"active", active_requests_prevent_expiry},
			       {"reserve", reserved_room_is_kept},
			       {"random", behaves_as_a_plain_table},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("session", tests);
}
