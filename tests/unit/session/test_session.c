/* SPDX-License-Identifier: BSD-3-Clause */
/* The session table, with one thread in both roles. */
#include "kvr_rand.h"
#include "kvr_session.h"

#include "kvr_test.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SEC  UINT64_C(1000000000)
#define LATE KVR_SESSION_LATE

static const struct kvr_session_binding w42 = {42, 0, 0}, w7 = {7, 3, UINT64_MAX - 1};

static struct kvr_session_key make_key(const struct kvr_session *table, const char *id)
{
	struct kvr_session_key key;

	CU_ASSERT_FATAL(kvr_session_key(table, id, strlen(id), &key));
	return key;
}

static int bind_id(struct kvr_session *table, const char *id, const struct kvr_session_binding *to,
		   uint64_t ttl, uint64_t now)
{
	const struct kvr_session_key key = make_key(table, id);

	return kvr_session_bind(table, &key, to, ttl, now, NULL);
}

static enum kvr_session_found resolve_id(struct kvr_session *table, const char *id, uint64_t now,
					 struct kvr_session_binding *to)
{
	const struct kvr_session_key key = make_key(table, id);

	return kvr_session_resolve(table, &key, now, to, NULL);
}

static bool unbind_id(struct kvr_session *table, const char *id, struct kvr_session_binding *to)
{
	const struct kvr_session_key key = make_key(table, id);

	return kvr_session_unbind(table, &key, to);
}

static uint64_t left_of_id(const struct kvr_session *table, const char *id, uint64_t now)
{
	const struct kvr_session_key key = make_key(table, id);

	return kvr_session_left(table, &key, now);
}

/*
 * Run the control side at `now` and confirm each report. @return how many expired; *last is one of
 * them.
 */
static uint32_t run_expiry(struct kvr_session *table, uint64_t now, struct kvr_session_ended *last)
{
	struct kvr_session_ref due[3];
	uint32_t gone = 0;

	do {
		uint32_t n = kvr_session_due(table, now, due, 3);

		for (uint32_t i = 0; i < n; i++)
			gone += kvr_session_confirm(table, due[i], now, last);
	} while (kvr_session_behind(table, now));
	return gone;
}

static void a_session_is_bound_and_unbound(void)
{
	struct kvr_session *table = kvr_session_create(4, 1, 0);
	struct kvr_session_binding binding;

	CU_ASSERT_EQUAL(resolve_id(table, "a", 0, &binding), KVR_SESSION_NONE);
	CU_ASSERT_EQUAL(bind_id(table, "a", &w42, SEC, 0), 0);
	CU_ASSERT_EQUAL(resolve_id(table, "a", 0, &binding), KVR_SESSION_BOUND);
	CU_ASSERT_EQUAL(binding.worker, 42);
	CU_ASSERT_EQUAL(bind_id(table, "a", &w7, SEC, 0), 0); /* overwrites */
	CU_ASSERT_EQUAL(kvr_session_count(table), 1);
	CU_ASSERT(unbind_id(table, "a", &binding));
	CU_ASSERT(binding.worker == 7 && binding.dp_rank == 3 && binding.tag == UINT64_MAX - 1);
	CU_ASSERT_FALSE(unbind_id(table, "a", NULL));
	CU_ASSERT_EQUAL(resolve_id(table, "a", 0, &binding), KVR_SESSION_NONE);
	CU_ASSERT_EQUAL(kvr_session_count(table), 0);
	kvr_session_destroy(table);
}

/* Section 17.5: TTL 60 with 5 s left is above 50 s after a resolve. */
static void use_restarts_the_time_to_live(void)
{
	struct kvr_session *table = kvr_session_create(4, 1, 0);
	struct kvr_session_ended ended = {0};
	struct kvr_session_binding binding;

	bind_id(table, "x", &w42, 60 * SEC, 0);
	CU_ASSERT_EQUAL(resolve_id(table, "x", 55 * SEC, &binding), KVR_SESSION_BOUND);
	CU_ASSERT(left_of_id(table, "x", 55 * SEC) > 50 * SEC);
	CU_ASSERT_EQUAL(run_expiry(table, 61 * SEC, &ended), 0); /* the check moves it on */
	CU_ASSERT_EQUAL(run_expiry(table, 115 * SEC - 1, &ended), 0);
	CU_ASSERT_EQUAL(run_expiry(table, 115 * SEC + LATE, &ended), 1);
	CU_ASSERT_EQUAL(ended.to.worker, 42);
	CU_ASSERT(ended.len == 1 && memcmp(ended.id, "x", 1) == 0);
	CU_ASSERT_EQUAL(kvr_session_count(table), 0);
	CU_ASSERT_EQUAL(run_expiry(table, 500 * SEC, &ended), 0);
	kvr_session_destroy(table);
}

static void an_expired_session_is_returned_once(void)
{
	struct kvr_session *table = kvr_session_create(4, 1, 0);
	struct kvr_session_binding binding;
	struct kvr_session_ended ended;

	bind_id(table, "sess-expired", &(struct kvr_session_binding){99, 0, 0}, SEC, 0);
	CU_ASSERT_EQUAL(resolve_id(table, "sess-expired", SEC, &binding), KVR_SESSION_EXPIRED);
	CU_ASSERT_EQUAL(binding.worker, 99);
	CU_ASSERT_EQUAL(resolve_id(table, "sess-expired", SEC, &binding), KVR_SESSION_NONE);
	CU_ASSERT_EQUAL(left_of_id(table, "sess-expired", SEC), 0);
	CU_ASSERT_EQUAL(run_expiry(table, 1000 * SEC, &ended), 0);
	kvr_session_destroy(table);
}

static void bounds_are_enforced(void)
{
	struct kvr_session *table = kvr_session_create(2, 1, 0);
	struct kvr_session_key key;
	char id[300] = {1};

	CU_ASSERT_PTR_NULL(kvr_session_create(0, 1, 0));
	CU_ASSERT_PTR_NULL(kvr_session_create(KVR_SESSION_MAX + 1, 1, 0));
	CU_ASSERT_FALSE(kvr_session_key(table, id, 0, &key));
	CU_ASSERT_FALSE(kvr_session_key(table, id, 257, &key));
	CU_ASSERT(kvr_session_key(table, id, 256, &key));
	CU_ASSERT_EQUAL(kvr_session_bind(table, &key, &w42, 0, 0, NULL), -EINVAL);
	CU_ASSERT_EQUAL(kvr_session_bind(table, &key, &w42, UINT64_MAX, 5, NULL), 0);
	CU_ASSERT(kvr_session_left(table, &key, UINT64_MAX - 1) > 0);
	CU_ASSERT_EQUAL(bind_id(table, "b", &w42, SEC, 0), 0);
	CU_ASSERT_EQUAL(bind_id(table, "c", &w42, SEC, 0), -ENOSPC);
	CU_ASSERT_EQUAL(kvr_session_rejected(table), 1);
	CU_ASSERT_EQUAL(bind_id(table, "b", &w7, SEC, 0), 0); /* bound again: needs no entry */
	CU_ASSERT(unbind_id(table, "b", NULL));
	CU_ASSERT_EQUAL(bind_id(table, "c", &w42, SEC, 0), 0);
	kvr_session_destroy(table);
	kvr_session_destroy(NULL);
}

/* Ids are bytes: with zeros inside, one a prefix of the other, of all lengths. */
static void hostile_ids_are_distinct(void)
{
	struct kvr_session *table = kvr_session_create(3 * 256, 1, 0);
	struct kvr_session_binding binding;
	struct kvr_session_key key;
	char id[256];

	for (uint32_t fill = 0; fill < 3; fill++)
		for (uint32_t len = 1; len <= 256; len++) {
			memset(id, (int)fill, sizeof(id));
			CU_ASSERT(kvr_session_key(table, id, len, &key));
			binding = (struct kvr_session_binding){fill * 1000 + len, len, 0};
			CU_ASSERT_EQUAL(kvr_session_bind(table, &key, &binding, SEC, 0, NULL), 0);
		}
	CU_ASSERT_EQUAL(kvr_session_count(table), 3 * 256);
	for (uint32_t fill = 0; fill < 3; fill++)
		for (uint32_t len = 1; len <= 256; len++) {
			memset(id, (int)fill, sizeof(id));
			kvr_session_key(table, id, len, &key);
			kvr_session_prefetch(table, &key, 0);
			kvr_session_prefetch(table, &key, 1);
			CU_ASSERT_EQUAL(kvr_session_resolve(table, &key, 0, &binding, NULL),
					KVR_SESSION_BOUND);
			CU_ASSERT(binding.worker == fill * 1000 + len && binding.dp_rank == len);
			id[len - 1] ^= 4; /* the last byte counts */
			kvr_session_key(table, id, len, &key);
			CU_ASSERT_EQUAL(kvr_session_resolve(table, &key, 0, &binding, NULL),
					KVR_SESSION_NONE);
		}
	kvr_session_destroy(table);
}

/* Equal hashes: only the bytes differ. */
static void colliding_hashes_are_distinct(void)
{
	struct kvr_session *table = kvr_session_create(8, 1, 0);
	struct kvr_session_binding binding;
	struct kvr_session_key key[6];
	static const char *const id[] = {"a", "b", "c", "d", "e", "f"};

	for (uint32_t i = 0; i < 6; i++) {
		key[i] = (struct kvr_session_key){
			id[i], 1, i < 4 ? 15 : 16}; /* wraps around the end of the index */
		binding = (struct kvr_session_binding){i, 0, 0};
		CU_ASSERT_EQUAL(kvr_session_bind(table, &key[i], &binding, SEC, 0, NULL), 0);
	}
	CU_ASSERT(kvr_session_unbind(table, &key[1], NULL));
	CU_ASSERT(kvr_session_unbind(table, &key[4], NULL));
	for (uint32_t i = 0; i < 6; i++) {
		bool there = i != 1 && i != 4;

		kvr_session_prefetch(table, &key[i], 1);
		CU_ASSERT_EQUAL(kvr_session_resolve(table, &key[i], 0, &binding, NULL),
				there ? KVR_SESSION_BOUND : KVR_SESSION_NONE);
		CU_ASSERT(!there || binding.worker == i);
	}
	kvr_session_destroy(table);
}

/* An entry that is reused while it is in the wheel expires by its new time only. */
static void a_reused_entry_expires_at_its_own_time(void)
{
	static const uint64_t ttl[][2] = {{300, 2},  {2, 300}, {5000, 3},
					  {3, 5000}, {10, 10}, {1, 1}};
	struct kvr_session_ended ended;

	for (uint32_t i = 0; i < 6; i++)
		for (uint32_t anew = 0; anew < 2; anew++) {
			struct kvr_session *table = kvr_session_create(1, 1, 0);
			uint64_t over = SEC + ttl[i][1] * SEC;

			bind_id(table, "one", &w42, ttl[i][0] * SEC, 0);
			CU_ASSERT_EQUAL(run_expiry(table, SEC / 2, &ended), 0); /* in the wheel */
			if (anew == 0)
				CU_ASSERT(unbind_id(table, "one", NULL));
			bind_id(table, anew == 0 ? "two" : "one", &w7, ttl[i][1] * SEC, SEC);
			for (uint64_t t = SEC; t < over; t += 3 * SEC / 4)
				CU_ASSERT_EQUAL_FATAL(run_expiry(table, t, &ended), 0);
			CU_ASSERT_EQUAL(run_expiry(table, over - 1, &ended), 0);
			CU_ASSERT_EQUAL(run_expiry(table, over + LATE, &ended), 1);
			CU_ASSERT(ended.to.worker == 7 && ended.to.tag == w7.tag && ended.len == 3);
			CU_ASSERT_EQUAL(run_expiry(table, over + 9000 * SEC, &ended), 0);
			kvr_session_destroy(table);
		}
}

/* A report of an earlier incarnation, or of a binding used meanwhile, removes nothing. */
static void stale_reports_are_not_confirmed(void)
{
	struct kvr_session *table = kvr_session_create(2, 1, 0);
	struct kvr_session_ref due[2], no = {0, 0}, far = {77, 1};
	struct kvr_session_binding binding;
	struct kvr_session_ended ended;

	bind_id(table, "a", &w42, SEC, 0);
	bind_id(table, "b", &w42, SEC, 0);
	CU_ASSERT_EQUAL(kvr_session_due(table, SEC + LATE, due, 2), 2);
	CU_ASSERT_EQUAL(resolve_id(table, "a", SEC - 1, &binding),
			KVR_SESSION_BOUND); /* restarts its time to live */
	CU_ASSERT_FALSE(kvr_session_confirm(table, due[0], SEC + LATE, &ended));
	CU_ASSERT(unbind_id(table, "b", NULL));
	bind_id(table, "c", &w7, SEC, 0); /* the same entry, which has expired too */
	CU_ASSERT_FALSE(kvr_session_confirm(table, due[1], SEC + LATE, &ended));
	CU_ASSERT_FALSE(kvr_session_confirm(table, no, SEC, &ended));
	CU_ASSERT_FALSE(kvr_session_confirm(table, far, SEC, &ended));
	CU_ASSERT_FALSE(kvr_session_unbind_ref(table, due[1]));
	CU_ASSERT_EQUAL(kvr_session_count(table), 2);
	CU_ASSERT_EQUAL(run_expiry(table, 3 * SEC + LATE, &ended), 2);
	kvr_session_destroy(table);
}

/* A report that is not confirmed is repeated. */
static void lost_reports_are_repeated(void)
{
	struct kvr_session *table = kvr_session_create(4, 1, 0);
	struct kvr_session_ref due[4];
	struct kvr_session_ended ended;
	uint64_t t = SEC + LATE;

	bind_id(table, "a", &w42, SEC, 0);
	CU_ASSERT_EQUAL(kvr_session_due(table, t, due, 4), 1);
	CU_ASSERT_EQUAL(kvr_session_due(table, t, due, 4), 0); /* not immediately */
	for (int i = 0; i < 3; i++) {
		t += 2 * SEC;
		CU_ASSERT_EQUAL(kvr_session_due(table, t, due, 4), 1);
	}
	CU_ASSERT(kvr_session_confirm(table, due[0], t, &ended));
	CU_ASSERT_EQUAL(kvr_session_due(table, t + 100 * SEC, due, 4), 0);
	kvr_session_destroy(table);
}

/*
 * Many expire at once: each call reports at most what the caller takes, none twice, and none is
 * lost.
 */
static void expiry_comes_in_bursts(void)
{
	enum { MANY = 5000 };
	struct kvr_session *table = kvr_session_create(MANY, 1, 0);
	static struct kvr_session_ref due[KVR_SESSION_CHECKS * 2];
	struct kvr_session_ended ended;
	uint32_t gone = 0, calls = 0;
	char id[16];

	for (uint32_t i = 0; i < MANY; i++) {
		snprintf(id, sizeof(id), "%u", i);
		bind_id(table, id, &w42, 10 * SEC, 0);
	}
	CU_ASSERT(kvr_session_behind(table, 0));
	while (kvr_session_behind(table, 0)) {
		CU_ASSERT_EQUAL_FATAL(kvr_session_due(table, 0, due, 7), 0);
		calls++;
	}
	CU_ASSERT_EQUAL(calls, (MANY + KVR_SESSION_CHECKS - 1) / KVR_SESSION_CHECKS);
	CU_ASSERT_EQUAL(kvr_session_due(table, 11 * SEC, due, 7), 7);
	CU_ASSERT(kvr_session_behind(table, 11 * SEC));
	for (uint32_t i = 0; i < 7; i++)
		gone += kvr_session_confirm(table, due[i], 11 * SEC, &ended);
	CU_ASSERT_EQUAL(kvr_session_due(table, 11 * SEC, due, KVR_SESSION_CHECKS * 2),
			KVR_SESSION_CHECKS);
	for (uint32_t i = 0; i < KVR_SESSION_CHECKS; i++)
		gone += kvr_session_confirm(table, due[i], 11 * SEC, &ended);
	gone += run_expiry(table, 11 * SEC, &ended);
	CU_ASSERT_EQUAL(gone, MANY);
	CU_ASSERT_EQUAL(kvr_session_count(table), 0);
	kvr_session_destroy(table);
}

/* After a pause of years, and of slightly more than one rotation of the wheel. */
static void a_long_pause_loses_no_session(void)
{
	static const uint64_t silence[] = {1090, 1100, 1200, 100000000};
	struct kvr_session_ended ended;
	char id[16];

	for (uint32_t k = 0; k < 4; k++) {
		struct kvr_session *table = kvr_session_create(2000, 1, 0);
		uint64_t t = silence[k] * SEC;

		for (uint32_t i = 0; i < 2000; i++) {
			snprintf(id, sizeof(id), "%u", i);
			bind_id(table, id, &w42, (1 + i) * SEC / 2, 0);
		}
		run_expiry(table, 0, &ended);
		/* Entries in the last few slots follow within their ticks. */
		CU_ASSERT_EQUAL(run_expiry(table, t, &ended) +
					run_expiry(table, t + 2 * SEC, &ended),
				2000);
		kvr_session_destroy(table);
	}
}

/* Affinity: active requests keep a binding; the idle time starts when the last one ends. */
static void active_requests_prevent_expiry(void)
{
	struct kvr_session *table = kvr_session_create(2, 1, 0);
	struct kvr_session_key key = make_key(table, "a");
	struct kvr_session_ref ref, old;
	struct kvr_session_binding binding;
	struct kvr_session_ended ended;

	kvr_session_bind(table, &key, &w42, 10 * SEC, 0, &old);
	CU_ASSERT_EQUAL(kvr_session_resolve(table, &key, 0, &binding, &ref), KVR_SESSION_BOUND);
	CU_ASSERT(ref.entry == old.entry && ref.gen == old.gen);
	kvr_session_enter(table, ref);
	kvr_session_enter(table, ref);
	for (uint64_t t = 0; t < 100 * SEC; t += SEC)
		CU_ASSERT_EQUAL(run_expiry(table, t, &ended), 0);
	CU_ASSERT(kvr_session_left(table, &key, 100 * SEC) > 0);
	kvr_session_leave(table, ref, 100 * SEC);
	CU_ASSERT_EQUAL(run_expiry(table, 120 * SEC, &ended), 0); /* one request remains */
	CU_ASSERT_EQUAL(kvr_session_resolve(table, &key, 500 * SEC, &binding, NULL),
			KVR_SESSION_BOUND);
	kvr_session_leave(table, ref, 600 * SEC);
	kvr_session_leave(table, ref,
			  605 * SEC); /* no request uses it: the time does not restart */
	CU_ASSERT_EQUAL(run_expiry(table, 610 * SEC - 1, &ended), 0);
	CU_ASSERT_EQUAL(run_expiry(table, 610 * SEC + LATE, &ended), 1);
	kvr_session_enter(table, ref); /* that incarnation has ended */
	CU_ASSERT_EQUAL(kvr_session_bind(table, &key, &w7, SEC, 700 * SEC, &ref), 0);
	kvr_session_leave(table, old, 701 * SEC);
	kvr_session_enter(table, ref);
	CU_ASSERT_EQUAL(kvr_session_bind(table, &key, &w42, SEC, 702 * SEC, &old),
			0); /* a new incarnation */
	kvr_session_leave(table, ref, 703 * SEC);
	CU_ASSERT_EQUAL(run_expiry(table, 703 * SEC + LATE, &ended), 1);
	CU_ASSERT_FALSE(kvr_session_unbind_ref(table, old));
	kvr_session_bind(table, &key, &w42, SEC, 704 * SEC, &old);
	CU_ASSERT_TRUE(kvr_session_unbind_ref(table, old));
	CU_ASSERT_EQUAL(kvr_session_count(table), 0);
	kvr_session_destroy(table);
}

static void a_reserved_entry_is_kept(void)
{
	struct kvr_session *table = kvr_session_create(2, 1, 0);

	CU_ASSERT(kvr_session_reserve(table));
	CU_ASSERT_EQUAL(bind_id(table, "a", &w42, SEC, 0), 0);
	CU_ASSERT_FALSE(kvr_session_reserve(table));
	CU_ASSERT_EQUAL(bind_id(table, "b", &w42, SEC, 0), -ENOSPC);
	CU_ASSERT_EQUAL(kvr_session_rejected(table), 2);
	CU_ASSERT_EQUAL(bind_id(table, "a", &w7, SEC, 0), 0);
	kvr_session_unreserve(table);
	CU_ASSERT_EQUAL(bind_id(table, "b", &w42, SEC, 0), 0);
	CU_ASSERT_EQUAL(kvr_session_count(table), 2);
	kvr_session_destroy(table);
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

static struct kvr_session_key make_nth_key(const struct kvr_session *table, uint32_t i,
					   char id[KVR_SESSION_ID_MAX])
{
	struct kvr_session_key key;
	uint32_t len = 4 + i * 7 % 252;

	memset(id, (int)(i % 3), KVR_SESSION_ID_MAX);
	memcpy(id, &i, sizeof(i));
	kvr_session_key(table, id, len, &key);
	return key;
}

static void expire_model(struct kvr_session *table, uint64_t now)
{
	struct kvr_session_ref due[5];
	struct kvr_session_ended ended;

	do {
		uint32_t n = kvr_session_due(table, now, due, 5);

		for (uint32_t k = 0; k < n; k++) {
			uint32_t at;

			if (!kvr_session_confirm(table, due[k], now, &ended))
				continue;
			memcpy(&at, ended.id, sizeof(at));
			CU_ASSERT_FATAL(at < N && model[at].until != 0 && model[at].until <= now);
			CU_ASSERT_FATAL(model[at].active == 0 && ended.to.worker == at);
			model[at].until = 0;
		}
	} while (kvr_session_behind(table, now));
	for (uint32_t k = 0; k < N; k++)
		CU_ASSERT_FATAL(model[k].until == 0 || model[k].active != 0 ||
				model[k].until + LATE > now);
}

static void random_step(struct kvr_session *table, struct kvr_rand *r, uint64_t now)
{
	const uint32_t i = kvr_rand_below(r, N);
	struct model *booking = &model[i];
	char id[KVR_SESSION_ID_MAX];
	const struct kvr_session_key key = make_nth_key(table, i, id);
	struct kvr_session_binding binding = {i, i, 0};
	enum kvr_session_found found;

	switch (kvr_rand_below(r, 7)) {
	case 0:
		booking->ttl = 1 + kvr_rand_below(r, 2000) * (SEC / 3);
		booking->until = now + booking->ttl;
		booking->active = 0;
		CU_ASSERT_EQUAL_FATAL(
			kvr_session_bind(table, &key, &binding, booking->ttl, now, &booking->ref),
			0);
		break;
	case 1:
		CU_ASSERT_EQUAL_FATAL(kvr_session_unbind(table, &key, NULL), booking->until != 0);
		booking->until = 0;
		booking->active = 0;
		break;
	case 2:
		kvr_session_enter(table, booking->ref);
		booking->active += booking->until != 0;
		break;
	case 3:
		kvr_session_leave(table, booking->ref, now);
		if (booking->active != 0) {
			booking->until = now + booking->ttl;
			booking->active--;
		}
		break;
	default:
		found = kvr_session_resolve(table, &key, now, &binding, NULL);
		CU_ASSERT_EQUAL_FATAL(found, booking->until == 0 ? KVR_SESSION_NONE
					     : booking->active == 0 && booking->until <= now
						     ? KVR_SESSION_EXPIRED
						     : KVR_SESSION_BOUND);
		CU_ASSERT_FATAL(found == KVR_SESSION_NONE ||
				(binding.worker == i && binding.dp_rank == i));
		booking->until = found == KVR_SESSION_BOUND ? now + booking->ttl : 0;
		break;
	}
}

static void the_table_matches_plain_arrays(void)
{
	struct kvr_session *table = kvr_session_create(N, 3, 0);
	uint64_t now = 0;
	struct kvr_rand r;
	uint32_t bound = 0;

	memset(model, 0, sizeof(model));
	kvr_rand_init(&r, 2);
	for (uint32_t i = 0; i < STEPS; i++) {
		now += kvr_rand_below(&r, 2000) == 0 ? kvr_rand_below(&r, 1000) * SEC
						     : kvr_rand_below(&r, 300000000);
		if (kvr_rand_below(&r, 4) == 0)
			expire_model(table, now);
		random_step(table, &r, now);
	}
	for (uint32_t i = 0; i < N; i++)
		bound += model[i].until != 0;
	CU_ASSERT_EQUAL(kvr_session_count(table), bound);
	CU_ASSERT_EQUAL(kvr_session_rejected(table), 0);
	kvr_session_destroy(table);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_session_is_bound_and_unbound),
			       KVR_CASE(use_restarts_the_time_to_live),
			       KVR_CASE(an_expired_session_is_returned_once),
			       KVR_CASE(bounds_are_enforced),
			       KVR_CASE(hostile_ids_are_distinct),
			       KVR_CASE(colliding_hashes_are_distinct),
			       KVR_CASE(a_reused_entry_expires_at_its_own_time),
			       KVR_CASE(stale_reports_are_not_confirmed),
			       KVR_CASE(lost_reports_are_repeated),
			       KVR_CASE(expiry_comes_in_bursts),
			       KVR_CASE(a_long_pause_loses_no_session),
			       KVR_CASE(active_requests_prevent_expiry),
			       KVR_CASE(a_reserved_entry_is_kept),
			       KVR_CASE(the_table_matches_plain_arrays),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("session", tests);
}
