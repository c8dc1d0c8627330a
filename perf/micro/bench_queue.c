/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Queue operations with N waiting requests: enter, leave by cancel, and remove the head (the heap
 * operation of an admission). Keys are random, so this is neither the best nor the worst case.
 *
 *   bench-queue [--waiting N] [--json]
 *
 * Reports means in ns of CPU time: push_ns, pop_ns and remove_ns of the heap alone; enqueue_ns and
 * cancel_ns of the complete scheduler calls.
 */

#include "sched_pvt.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define OPS   204800u
#define BURST 64u

static double cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

struct figures {
	double push, pop, remove, enqueue, cancel;
};

static void node_fill(struct node *n, struct kvr_rand *r, uint64_t seq)
{
	n->key = kvr_rand_unit(r) * 100 - (double)seq * 1e-5;
	n->strict = 0;
	n->seq = seq;
}

/* The clock is read once per burst of 64, so the queue length stays within 64 of N. */
static void measure_heap(uint32_t waiting, struct figures *f)
{
	struct node *n = aligned_alloc(64, (size_t)(waiting + BURST) * sizeof(*n));
	double push = 0, pop = 0, drop = 0, again = 0, t;
	uint32_t root = NIL, gone[BURST];
	struct kvr_rand r = {5};

	for (uint32_t i = 0; i < waiting; i++) {
		node_fill(&n[i], &r, i);
		kvr_sched__heap_add(n, &root, i);
	}
	for (uint32_t i = 0; i < BURST; i++)
		gone[i] = waiting + i;
	for (uint32_t i = 0; i < OPS; i += BURST) {
		for (uint32_t k = 0; k < BURST; k++)
			node_fill(&n[gone[k]], &r, waiting + i + k);
		t = cpu_ns();
		for (uint32_t k = 0; k < BURST; k++)
			kvr_sched__heap_add(n, &root, gone[k]);
		push += cpu_ns() - t;
		t = cpu_ns();
		for (uint32_t k = 0; k < BURST; k++) {
			gone[k] = root;
			kvr_sched__heap_del(n, &root, root);
		}
		pop += cpu_ns() - t;
		for (uint32_t k = 0; k < BURST; k++)
			kvr_sched__heap_add(n, &root, gone[k]);
		for (uint32_t k = 0; k < BURST; k++) /* other nodes, with a stride from anywhere */
			gone[k] = (i + k * (waiting / BURST + 1)) % (waiting + BURST);
		t = cpu_ns();
		for (uint32_t k = 0; k < BURST; k++)
			kvr_sched__heap_del(n, &root, gone[k]);
		drop += cpu_ns() - t;
	}
	again = OPS / BURST * BURST;
	f->push = push / again;
	f->pop = pop / again;
	f->remove = drop / again;
	free(n);
}

static void measure_scheduler(uint32_t waiting, struct figures *f)
{
	const struct kvr_sched_worker worker = {.id = 1, .dp_size = 1};
	struct kvr_sched_req req = {.isl = 64};
	struct kvr_sched_decision decision;
	struct kvr_pool_conf conf;
	struct kvr_sched *sched;
	double a, b;

	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "bench");
	conf.max_requests = waiting + 2 + 4096;
	conf.max_ranks = 64;
	conf.queue_threshold = 0;
	sched = kvr_sched_create(&conf, NULL, 0);
	if (sched == NULL || kvr_sched_worker_set(sched, &worker, 0) != 0)
		exit(1);
	for (uint32_t i = 0; i <= waiting; i++)
		kvr_sched_route(sched, i, &req, NULL, i, &decision);
	f->enqueue = f->cancel = 0;
	for (uint32_t round = 0; round < OPS / 4096; round++) {
		a = cpu_ns();
		for (uint32_t i = 0; i < 4096; i++)
			kvr_sched_route(sched, waiting + 1 + i, &req, NULL, waiting + i, &decision);
		b = cpu_ns();
		for (uint32_t i = 0; i < 4096; i++)
			kvr_sched_cancel(sched, waiting + 1 + i, waiting + i);
		f->cancel += cpu_ns() - b;
		f->enqueue += b - a;
	}
	f->enqueue /= OPS / 4096 * 4096;
	f->cancel /= OPS / 4096 * 4096;
	if (kvr_sched_counters(sched)->waiting_now != waiting)
		exit(1);
	kvr_sched_destroy(sched);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"waiting", required_argument, NULL, 'w'},
						{"json", no_argument, NULL, 'j'},
						{NULL, 0, NULL, 0}};
	uint32_t waiting = 10000;
	struct figures f;
	bool json = false;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 'w')
			waiting = (uint32_t)strtoul(optarg, NULL, 10);
		else if (o == 'j')
			json = true;
		else
			return 2;
	}
	if (waiting < 4096 || waiting > 1000000)
		return 2;
	measure_heap(waiting, &f);
	measure_scheduler(waiting, &f);
	printf(json ? "{\"waiting\": %u, \"push_ns\": %.1f, \"pop_ns\": %.1f, \"remove_ns\": %.1f, "
		      "\"enqueue_ns\": %.1f, \"cancel_ns\": %.1f}\n"
		    : "waiting %u\npush_ns %.1f\npop_ns %.1f\nremove_ns %.1f\nenqueue_ns %.1f\n"
		      "cancel_ns %.1f\n",
	       waiting, f.push, f.pop, f.remove, f.enqueue, f.cancel);
	return 0;
}
