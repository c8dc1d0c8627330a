/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A table full of live sessions, both of its sides driven by one thread: bind them all, resolve
 * each in random order (its time slides), let them expire, bind again, unbind.
 *
 *   bench-session [--sessions N] [--json]
 *
 * Ids have 16 to 40 random bytes and are laid before the clock where a frame would bring them: what
 * misses the caches is the table. Means are of processor time over bursts of 32 with the lines of
 * the next calls fetched ahead, as a scheduler lcore does; hashing the id is inside. resolve_p50_ns
 * and p99 are of single turns of that loop, some 10 ns of clock in each; resolve_alone_ns is
 * without fetching ahead, two misses one after the other. expire_ns is all that both sides do for
 * a session whose time is over. pause_*_us are the longest single calls of a side over the whole
 * run, those in which the thread was switched out left out and counted (switched). Every result is
 * compared with what was bound. over_100us counts the calls above 100 us; host_gap_us and
 * host_over_100us are the same of a loop that only reads the clock, as long as the measured calls
 * took: what this machine does to a program that does nothing. machine_factor is this machine
 * against the reference one.
 */

#include "bench_machine.h"
#include "kvr_hist.h"
#include "kvr_rand.h"
#include "kvr_session.h"

#include <getopt.h>
#include <rte_cycles.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define BURST	   32u
#define AHEAD	   8u /* calls from the first fetch to the use; half of it to the second */
#define PASSES	   3u
#define ID_MAX	   40u
#define SEC	   UINT64_C(1000000000)
#define TTL	   (600 * SEC)
#define TURN_EVERY 32u /* bursts between two turns of the control side */
#define LONG_US	   20

struct id {
	uint8_t len;
	uint8_t b[ID_MAX];
};

struct side {
	double longest_us;
	uint64_t switched;
	uint64_t over_100us;
	uint64_t tsc; /* of all calls */
};

struct bench {
	struct kvr_session *s;
	uint32_t n;
	struct id *id;
	uint32_t *order;
	uint64_t now, checksum;
	double tick_ns, control_ns;
	long switches;
	struct side sched, control, host;
	struct kvr_hist single; /* 1/16 ns */
	/* the burst */
	struct id here[BURST];
	uint32_t number[BURST], ahead;
	struct kvr_session_key key[BURST];
};

typedef void op_fn(struct bench *b, uint32_t i);

static double cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void fail(const char *what)
{
	fprintf(stderr, "bench-session: %s\n", what);
	exit(1);
}

/* ---- the machine ---- */

static double tick_ns(void)
{
	struct timespec a, b;
	uint64_t t = rte_rdtsc();
	double ns;

	clock_gettime(CLOCK_MONOTONIC, &a);
	do {
		clock_gettime(CLOCK_MONOTONIC, &b);
		ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
	} while (ns < 1e8);
	return ns / (double)(rte_rdtsc() - t);
}

static bool switched(struct bench *b)
{
	struct rusage u;
	long before = b->switches;

	getrusage(RUSAGE_THREAD, &u);
	b->switches = u.ru_nivcsw + u.ru_nvcsw;
	return b->switches != before;
}

/* One call took `tsc`; only a long one is worth asking whether the thread ran. */
static void note_pause(struct bench *b, struct side *side, uint64_t tsc)
{
	double us = (double)tsc * b->tick_ns / 1e3;

	side->tsc += tsc;
	if (us < LONG_US) {
		side->longest_us = RTE_MAX(us, side->longest_us);
	} else if (switched(b)) {
		side->switched++;
	} else {
		side->longest_us = RTE_MAX(us, side->longest_us);
		side->over_100us += us > 100;
	}
}

/* What the machine does to a thread that only reads the clock. */
static void host_gaps(struct bench *b)
{
	const uint64_t start = rte_rdtsc();
	uint64_t last = start, now;

	switched(b);
	while (last - start < b->sched.tsc) {
		now = rte_rdtsc();
		note_pause(b, &b->host, now - last);
		last = rte_rdtsc();
	}
}

/* ---- what is measured ---- */

static uint32_t control_turn(struct bench *b, struct kvr_session_ref due[], uint32_t n)
{
	double start = cpu_ns();
	uint64_t t = rte_rdtsc();
	uint32_t got = kvr_session_due(b->s, b->now, due, n);

	note_pause(b, &b->control, rte_rdtsc() - t);
	b->control_ns += cpu_ns() - start;
	return got;
}

static struct kvr_session_binding binding_of(uint32_t i)
{
	return (struct kvr_session_binding){(uint64_t)i * 7 + 1, i % 8, 0};
}

static void op_bind(struct bench *b, uint32_t i)
{
	const struct kvr_session_binding to = binding_of(b->number[i]);

	if (kvr_session_bind(b->s, &b->key[i], &to, TTL, b->now, NULL) != 0)
		fail("not bound");
}

static void check(struct bench *b, uint32_t i, const struct kvr_session_binding *to)
{
	const struct kvr_session_binding want = binding_of(b->number[i]);

	if (to->worker != want.worker || to->dp_rank != want.dp_rank)
		fail("wrong binding");
	b->checksum = b->checksum * 31 + to->worker + to->dp_rank;
}

static void op_resolve(struct bench *b, uint32_t i)
{
	struct kvr_session_binding to;

	if (kvr_session_resolve(b->s, &b->key[i], b->now, &to, NULL) != KVR_SESSION_BOUND)
		fail("not found");
	check(b, i, &to);
}

static void op_unbind(struct bench *b, uint32_t i)
{
	struct kvr_session_binding to;

	if (!kvr_session_unbind(b->s, &b->key[i], &to))
		fail("not unbound");
	check(b, i, &to);
}

/* One turn of the loop over a burst: fetch for later calls, do this one. */
static inline void turn(struct bench *b, op_fn *op, uint32_t i, uint32_t n)
{
	const uint32_t first = i + b->ahead, second = i + b->ahead / 2;

	if (first < n) {
		kvr_session_key(b->s, b->here[first].b, b->here[first].len, &b->key[first]);
		if (b->ahead != 0)
			kvr_session_prefetch(b->s, &b->key[first], 0);
	}
	if (b->ahead != 0 && second < n)
		kvr_session_prefetch(b->s, &b->key[second], 1);
	op(b, i);
}

static void begin(struct bench *b, uint32_t n)
{
	for (uint32_t i = 0; i < b->ahead && i < n; i++) {
		kvr_session_key(b->s, b->here[i].b, b->here[i].len, &b->key[i]);
		kvr_session_prefetch(b->s, &b->key[i], 0);
	}
	for (uint32_t i = 0; i < b->ahead / 2 && i < n; i++)
		kvr_session_prefetch(b->s, &b->key[i], 1);
}

static void one_by_one(struct bench *b, op_fn *op, uint32_t n, bool keep)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t t = rte_rdtsc();

		turn(b, op, i, n);
		t = rte_rdtsc() - t;
		note_pause(b, &b->sched, t);
		if (keep)
			kvr_hist_add(&b->single, (uint64_t)((double)t * b->tick_ns * 16));
	}
}

enum clock { BY_BURST, BY_CALL };

/* Do `op` to every session in `order`. @return ns of each. */
static double all(struct bench *b, op_fn *op, uint32_t ahead, enum clock clock)
{
	double sum = 0;

	b->ahead = ahead;
	for (uint32_t at = 0, k = 0; at < b->n; at += BURST, k++) {
		const uint32_t n = b->n - at < BURST ? b->n - at : BURST;
		double start;

		for (uint32_t i = 0; i < n; i++) {
			b->number[i] = b->order[at + i];
			b->here[i] = b->id[b->order[at + i]];
		}
		start = cpu_ns();
		begin(b, n);
		if (clock == BY_CALL)
			one_by_one(b, op, n, op == op_resolve);
		else
			for (uint32_t i = 0; i < n; i++)
				turn(b, op, i, n);
		sum += cpu_ns() - start;
		b->now += n * 1000; /* a million calls a second */
		if (k % TURN_EVERY == 0 && control_turn(b, NULL, 0) != 0)
			fail("expired early");
	}
	return sum / b->n;
}

/* Time passes, in steps of 1 ms, until all have gone. @return ns of each, both sides. */
static double expire(struct bench *b)
{
	const uint64_t end = b->now + TTL + KVR_SESSION_LATE + 60 * SEC;
	struct kvr_session_ref due[256];
	struct kvr_session_ended e;
	uint32_t gone = 0;
	double sum = 0;

	b->now += TTL - 10 * SEC;
	b->control_ns = 0;
	for (; b->now < end; b->now += 1000000) {
		double start;
		uint32_t n;

		if (!kvr_session_behind(b->s, b->now))
			continue; /* most turns: the clock would be all of it */
		n = control_turn(b, due, RTE_DIM(due));
		start = cpu_ns();

		for (uint32_t i = 0; i < n; i++) {
			uint64_t t = rte_rdtsc();

			if (kvr_session_confirm(b->s, due[i], b->now, &e)) {
				gone++;
				b->checksum += e.to.worker;
			}
			note_pause(b, &b->sched, rte_rdtsc() - t);
		}
		sum += cpu_ns() - start;
	}
	if (gone != b->n || kvr_session_count(b->s) != 0)
		fail("not all expired");
	return (sum + b->control_ns) / gone;
}

/* ---- the run ---- */

static void shuffle(struct bench *b, struct kvr_rand *r)
{
	for (uint32_t i = b->n - 1; i > 0; i--) {
		uint32_t k = kvr_rand_below(r, i + 1), t = b->order[i];

		b->order[i] = b->order[k];
		b->order[k] = t;
	}
}

static void make_ids(struct bench *b, struct kvr_rand *r)
{
	b->id = calloc(b->n, sizeof(*b->id));
	b->order = calloc(b->n, sizeof(*b->order));
	b->s = kvr_session_create(b->n, kvr_rand_u64(r), 0);
	if (b->id == NULL || b->order == NULL || b->s == NULL)
		fail("no memory");
	for (uint32_t i = 0; i < b->n; i++) {
		b->order[i] = i;
		b->id[i].len = (uint8_t)(16 + kvr_rand_below(r, 25));
		for (uint32_t k = 0; k < b->id[i].len; k++)
			b->id[i].b[k] = (uint8_t)kvr_rand_u64(r);
	}
}

struct result {
	double bind, resolve, alone, unbind, expire;
};

static double middle(double v[PASSES])
{
	qsort(v, PASSES, sizeof(v[0]), bench_by_value);
	return v[PASSES / 2];
}

static void run(struct bench *b, struct result *r)
{
	double alone[PASSES], burst[PASSES];
	struct kvr_rand rand = {11};

	make_ids(b, &rand);
	switched(b);
	shuffle(b, &rand);
	r->bind = all(b, op_bind, AHEAD, BY_BURST);
	for (uint32_t i = 0; i < PASSES; i++) {
		shuffle(b, &rand);
		burst[i] = all(b, op_resolve, AHEAD, BY_BURST);
		shuffle(b, &rand);
		alone[i] = all(b, op_resolve, 0, BY_BURST);
	}
	r->resolve = middle(burst);
	r->alone = middle(alone);
	shuffle(b, &rand);
	all(b, op_resolve, AHEAD, BY_CALL);
	r->expire = expire(b);
	all(b, op_bind, AHEAD, BY_CALL);
	shuffle(b, &rand);
	r->unbind = all(b, op_unbind, AHEAD, BY_BURST);
	if (kvr_session_count(b->s) != 0)
		fail("some were left");
	host_gaps(b);
}

static void print(const struct bench *b, const struct result *r, bool json)
{
	const double chain = bench_chain_ns();
	const struct {
		const char *name;
		double value;
	} v[] = {
		{"sessions", b->n},
		{"bind_ns", r->bind},
		{"resolve_ns", r->resolve},
		{"resolve_p50_ns", (double)kvr_hist_quantile(&b->single, 0.5) / 16},
		{"resolve_p99_ns", (double)kvr_hist_quantile(&b->single, 0.99) / 16},
		{"resolve_alone_ns", r->alone},
		{"unbind_ns", r->unbind},
		{"expire_ns", r->expire},
		{"pause_sched_us", b->sched.longest_us},
		{"pause_control_us", b->control.longest_us},
		{"over_100us", (double)b->sched.over_100us},
		{"host_gap_us", b->host.longest_us},
		{"host_over_100us", (double)b->host.over_100us},
		{"switched", (double)(b->sched.switched + b->control.switched)},
		{"chain_ns", chain},
		{"machine_factor", chain / BENCH_REFERENCE_NS},
	};

	for (uint32_t i = 0; i < RTE_DIM(v); i++)
		printf(json ? "%s\"%s\": %.*f" : "%s%s %.*f\n", json ? (i == 0 ? "{" : ", ") : "",
		       v[i].name, i == 0 ? 0 : 2, v[i].value);
	printf(json ? ", \"checksum\": \"%016llx\"}\n" : "checksum %016llx\n",
	       (unsigned long long)b->checksum);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"sessions", required_argument, NULL, 's'},
						{"json", no_argument, NULL, 'j'},
						{NULL, 0, NULL, 0}};
	static struct bench b = {.n = 1000000};
	struct result r;
	bool json = false;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 's')
			b.n = (uint32_t)strtoul(optarg, NULL, 10);
		else if (o == 'j')
			json = true;
		else
			return 2;
	}
	if (b.n < BURST || b.n > 10000000) {
		fprintf(stderr, "bench-session: --sessions is %u to 10000000\n", BURST);
		return 2;
	}
	b.tick_ns = tick_ns();
	run(&b, &r);
	print(&b, &r, json);
	return 0;
}
