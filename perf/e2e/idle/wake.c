/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time that this machine needs to wake a thread that sleeps on another CPU, after a pause: the
 * minimum that sleeping adds to a request. usage: idle-wake SLEEPER-CPU WAKER-CPU PAUSE-US TIMES
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MOST 10000

static _Atomic uint64_t woken_ns; /* 0: asleep */
static int event;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int pin_thread(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

/* Sleep as an lcore with `idle = interrupt` does. */
static void *run_sleeper(void *arg)
{
	const struct timespec most = {.tv_nsec = 10000000};
	struct pollfd p = {.fd = event, .events = POLLIN};
	uint64_t n;

	if (pin_thread(*(int *)arg) < 0)
		exit(1);
	for (;;) {
		if (ppoll(&p, 1, &most, NULL) <= 0)
			continue;
		n = now_ns();
		(void)!read(event, &(uint64_t){0}, sizeof(uint64_t));
		atomic_store_explicit(&woken_ns, n, memory_order_release);
	}
	return NULL;
}

static uint64_t wake_one(uint64_t pause_us)
{
	const uint64_t until = now_ns() + pause_us * 1000, one = 1;
	uint64_t begin, woken;

	while (now_ns() < until)
		;
	atomic_store_explicit(&woken_ns, 0, memory_order_relaxed);
	begin = now_ns();
	(void)!write(event, &one, sizeof(one));
	while ((woken = atomic_load_explicit(&woken_ns, memory_order_acquire)) == 0)
		;
	return woken - begin;
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static uint64_t took[MOST];
	const int times = argc == 5 ? atoi(argv[4]) : 0;
	pthread_t thread;
	int cpu;

	if (times < 1 || times > MOST) {
		fprintf(stderr, "usage: idle-wake SLEEPER-CPU WAKER-CPU PAUSE-US TIMES\n");
		return 2;
	}
	cpu = atoi(argv[1]);
	event = eventfd(0, EFD_NONBLOCK);
	if (event < 0 || pin_thread(atoi(argv[2])) < 0 ||
	    pthread_create(&thread, NULL, run_sleeper, &cpu) != 0) {
		perror("idle-wake");
		return 1;
	}
	for (int i = 0; i < times; i++)
		took[i] = wake_one(strtoull(argv[3], NULL, 10));
	qsort(took, (size_t)times, sizeof(took[0]), by_size);
	printf("{\"p50\": %.1f, \"p99\": %.1f}\n", (double)took[times / 2] / 1e3,
	       (double)took[times * 99 / 100] / 1e3);
	return 0;
}
