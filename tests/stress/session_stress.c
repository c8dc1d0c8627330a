/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Both owners of a session table at once. The scheduler thread binds, uses, unbinds and confirms,
 * keeps a plain list of its own, and advances the time, which is a word. The run_wheel thread turns
 * the wheel and reports expired sessions through a small ring; a fifth or more of these reports are
 * lost. No session may expire early or while in use, and all must be gone when none is bound and
 * time has passed. Also built with ThreadSanitizer.
 */

#include "kvr_rand.h"
#include "kvr_session.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N     3000u
#define ROOM  900u /* size of the table: binds are rejected, too */
#define RING  16u
#define BURST 8u
#define SEC   UINT64_C(1000000000)

struct life {
	uint64_t until, ttl; /* 0: not bound */
	uint32_t active;
	struct kvr_session_ref ref;
};

static struct kvr_session *table;
static struct life life[N];
static _Atomic uint64_t now;	 /* scheduler: rw */
static _Atomic uint64_t handled; /* run_wheel: times up to here are handled */
static _Atomic bool stop;
static struct kvr_session_ref ring[RING];
static _Atomic uint32_t head, tail; /* consumer and producer of the ring; release, acquire */
static uint64_t expired, lost, refused;

#define need(ok, ...)                                                                              \
	do {                                                                                       \
		if (!(ok)) {                                                                       \
			fprintf(stderr, "session_stress: " __VA_ARGS__);                           \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* ---- run_wheel ---- */

static void push_report(struct kvr_session_ref ref)
{
	static uint32_t count;
	uint32_t t = atomic_load_explicit(&tail, memory_order_relaxed);

	if (++count % 5 == 0 || t - atomic_load_explicit(&head, memory_order_acquire) == RING) {
		lost++;
		return;
	}
	ring[t % RING] = ref;
	atomic_store_explicit(&tail, t + 1, memory_order_release);
}

static void *run_wheel(void *arg)
{
	struct kvr_session_ref due[BURST];

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		uint64_t t = atomic_load_explicit(&now, memory_order_acquire);
		uint32_t n = kvr_session_due(table, t, due, BURST);

		for (uint32_t i = 0; i < n; i++)
			push_report(due[i]);
		if (!kvr_session_behind(table, t))
			atomic_store_explicit(&handled, t, memory_order_release);
		sched_yield();
	}
	return arg;
}

/* ---- scheduler ---- */

static void confirm_expiry(struct kvr_session_ref ref, uint64_t t)
{
	struct kvr_session_ended e;
	struct life *l;
	uint32_t i;

	if (!kvr_session_confirm(table, ref, t, &e))
		return;
	need(e.len == sizeof(i), "id of %u bytes\n", e.len);
	memcpy(&i, e.id, sizeof(i));
	l = &life[i];
	need(l->until != 0 && l->until <= t && l->active == 0, "%u expired early\n", i);
	need(e.to.worker == i, "%u bound to %u\n", i, (uint32_t)e.to.worker);
	l->until = 0;
	expired++;
}

static void take_reports(uint64_t t)
{
	uint32_t h = atomic_load_explicit(&head, memory_order_relaxed);

	while (h != atomic_load_explicit(&tail, memory_order_acquire)) {
		struct kvr_session_ref ref = ring[h % RING];

		atomic_store_explicit(&head, ++h, memory_order_release);
		confirm_expiry(ref, t);
	}
}

static void use_one(struct life *l, const struct kvr_session_key *k, uint32_t i, uint64_t t)
{
	struct kvr_session_binding b;

	switch (kvr_session_resolve(table, k, t, &b, NULL)) {
	case KVR_SESSION_BOUND:
		need(l->until != 0 && b.worker == i, "%u found\n", i);
		l->until = t + l->ttl;
		break;
	case KVR_SESSION_EXPIRED:
		need(l->until != 0 && l->until <= t && l->active == 0, "session %u expired early\n",
		     i);
		l->until = 0;
		break;
	default:
		need(l->until == 0, "%u is missing\n", i);
	}
}

static void bind_one(uint32_t i, uint64_t ttl, uint64_t t)
{
	const struct kvr_session_binding b = {i, 0, 0};
	struct kvr_session_key k;

	need(kvr_session_key(table, &i, sizeof(i), &k), "no key\n");
	if (kvr_session_bind(table, &k, &b, ttl, t, &life[i].ref) == 0)
		life[i] = (struct life){t + ttl, ttl, 0, life[i].ref};
	else
		refused++;
}

static void step_randomly(struct kvr_rand *r, uint64_t t)
{
	const uint32_t i = kvr_rand_below(r, N);
	struct life *l = &life[i];
	struct kvr_session_key k;

	need(kvr_session_key(table, &i, sizeof(i), &k), "no key\n");
	switch (kvr_rand_below(r, 6)) {
	case 0:
	case 1:
		bind_one(i, SEC / 4 + kvr_rand_below(r, 40) * (SEC / 4), t);
		break;
	case 2:
		need(kvr_session_unbind(table, &k, NULL) == (l->until != 0), "%u unbound\n", i);
		*l = (struct life){0, l->ttl, 0, l->ref};
		break;
	case 3:
		kvr_session_enter(table, l->ref);
		l->active += l->until != 0;
		break;
	case 4:
		kvr_session_leave(table, l->ref, t);
		if (l->active != 0) {
			l->active--;
			l->until = t + l->ttl;
		}
		break;
	default:
		use_one(l, &k, i, t);
	}
}

/* Requests end, and time passes until run_wheel has handled all of it. */
static void drain_all(uint64_t t)
{
	uint64_t end;

	for (uint32_t i = 0; i < N; i++)
		for (; life[i].active != 0; life[i].active--) {
			kvr_session_leave(table, life[i].ref, t);
			life[i].until = t + life[i].ttl;
		}
	/* Enough to repeat every lost report, a few dozen at a time. */
	end = t + 4000 * SEC;
	for (; t < end; t += SEC / 2) {
		atomic_store_explicit(&now, t, memory_order_release);
		while (atomic_load_explicit(&handled, memory_order_acquire) < t) {
			take_reports(t);
			sched_yield();
		}
		take_reports(t);
	}
	need(kvr_session_count(table) == 0, "%u sessions never expired\n",
	     kvr_session_count(table));
}

int main(void)
{
	const char *env = getenv("KVR_STRESS_STEPS");
	uint64_t steps = (env != NULL ? strtoull(env, NULL, 10) : 60000) * 50, t = SEC;
	struct kvr_rand r;
	pthread_t thread;

	kvr_rand_init(&r, 7);
	atomic_init(&now, t);
	table = kvr_session_create(ROOM, 99, t);
	need(table != NULL && pthread_create(&thread, NULL, run_wheel, NULL) == 0, "no memory\n");
	for (uint32_t i = 0; i < N; i++)
		bind_one(i, 10 * SEC, t);
	for (uint64_t i = 0; i < steps; i++) {
		t += kvr_rand_below(&r, 4000000);
		atomic_store_explicit(&now, t, memory_order_release);
		take_reports(t);
		step_randomly(&r, t);
		if (i % 64 == 0)
			sched_yield();
	}
	drain_all(t);
	atomic_store_explicit(&stop, true, memory_order_relaxed);
	pthread_join(thread, NULL);
	printf("%llu operations, %llu expired by reports, %llu reports lost, %llu binds rejected\n",
	       (unsigned long long)steps, (unsigned long long)expired, (unsigned long long)lost,
	       (unsigned long long)refused);
	need(expired > 0 && lost > 0 && refused > 0, "some situations did not occur\n");
	kvr_session_destroy(table);
	return 0;
}
