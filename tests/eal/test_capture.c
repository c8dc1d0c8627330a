/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * /kvroute/capture: the bound of the file and the time stamps of its frames. The router runs on a
 * polling thread of its own. The writer of a capture that reaches its bound removes the callbacks
 * and waits for the lcores, which a router on the thread of the test cannot offer.
 */
#include "pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_telemetry.h>

#include "control/shared.h"
#include "kvr_put.h"
#include "kvr_telemetry.h"
#include "kvr_test.h"
#include "telemetry/capture.h"
#include "threads.h"

#define FRAMES 200u

/* LeakSanitizer, if linked: only a telemetry socket frees nested containers of an answer. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

static void call_capture(const char *params)
{
	struct rte_tel_data *d = rte_tel_data_alloc();

	if (__lsan_disable != NULL)
		__lsan_disable();
	CU_ASSERT_EQUAL(kvr_telemetry_call("/kvroute/capture", params, d), 0);
	if (__lsan_enable != NULL)
		__lsan_enable();
	rte_tel_data_free(d);
}

/* The thread polls meanwhile: the end of a capture waits for it. */
static void stop_capture(void)
{
	threads_run();
	call_capture("stop");
	threads_pause();
}

static void send_frames(void)
{
	const struct kvr_wire_ids ids = {.source = 5, .id = 1, .epoch = 1};
	uint8_t probe[64];
	const int len = kvr_put_empty(probe, sizeof(probe), KVR_PROBE, &ids);

	for (uint32_t i = 0; i < FRAMES; i++)
		pipeline_send(PEER_AGENT, probe, (size_t)len);
	pipeline_turn();
	pipeline_flush();
}

/* Count the packets of a pcapng file; its last block must be complete. */
static uint32_t count_packets(const char *path, off_t *size)
{
	FILE *f = fopen(path, "re");
	uint32_t n = 0, head[2] = {0, 0}, tail;
	long at = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	while (fread(head, sizeof(head), 1, f) == 1) {
		CU_ASSERT_FATAL(head[1] >= 12 && head[1] % 4 == 0);
		at += head[1];
		CU_ASSERT_FATAL(fseek(f, at - 4, SEEK_SET) == 0 &&
				fread(&tail, sizeof(tail), 1, f) == 1 && tail == head[1]);
		n += head[0] == 6;
	}
	fclose(f);
	*size = at;
	return n;
}

static void file_size_is_bounded(void)
{
	char folder[] = "/tmp/kvr-capture-XXXXXX", path[64], params[96];
	const uint64_t most = capture_most;
	uint32_t n;
	off_t size;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/a.pcapng", folder);
	snprintf(params, sizeof(params), "p,%s,60", path);
	pipeline_start(1);
	CU_ASSERT_EQUAL_FATAL(captures_start(rt), 0);
	capture_most = 20000;
	call_capture(params);
	send_frames();
	stop_capture();
	n = count_packets(path, &size);
	printf("  %u packets, %lld bytes\n", n, (long long)size);
	CU_ASSERT(n > 32 && n < FRAMES);
	CU_ASSERT(size <= 20000);
	unlink(path);
	capture_most = most; /* every frame fits */
	call_capture(params);
	send_frames();
	stop_capture();
	CU_ASSERT(count_packets(path, &size) >= FRAMES);
	capture_most = 1; /* the headers of the file exceed it */
	unlink(path);
	call_capture(params);
	send_frames();
	stop_capture();
	CU_ASSERT_EQUAL(count_packets(path, &size), 0);
	capture_most = most;
	captures_stop(rt);
	pipeline_stop();
	unlink(path);
	rmdir(folder);
}

static uint64_t read_day_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

#define HOUR UINT64_C(3600000000000)

/* DPDK rounds the rate of the TSC and an operator may set the clock: control reads the clock
 * periodically. */
static void time_stamps_follow_the_clock(void)
{
	pipeline_start(1);
	CU_ASSERT_EQUAL_FATAL(captures_start(rt), 0);
	shared_clock_set(rte_rdtsc(), read_day_ns() - HOUR);
	CU_ASSERT(shared_time(rte_rdtsc()) < read_day_ns() - HOUR / 2);
	pipeline_turn(); /* runs a tick of the control thread */
	CU_ASSERT(shared_time(rte_rdtsc()) > read_day_ns() - HOUR / 2);
	CU_ASSERT(shared_time(rte_rdtsc()) < read_day_ns() + HOUR / 2);
	captures_stop(rt);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(file_size_is_bounded),
			       KVR_CASE(time_stamps_follow_the_clock), CU_TEST_INFO_NULL};

	threads_use(&threads_maps[0]);
	return kvr_test_run("capture", tests);
}
