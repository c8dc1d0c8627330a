/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvr_families.h"
#include "kvr_test.h"

#define PORT_COUNTERS(X)                                                                           \
	X(RX, rx, COUNT, "frames", "frames received")                                              \
	X(SHORT, short_frame, COUNT, "frames", "frames shorter than a header")                     \
	X(FULL, full, COUNT, "frames", "frames for a full ring")                                   \
	X(DEPTH, depth, GAUGE, "items", "items in the ring")
enum { PORT_COUNTERS(KVR_COUNTER_ENUM) N };

static const struct kvr_counter counters[] = {PORT_COUNTERS(KVR_COUNTER_ROW) KVR_COUNTER_END};
static const struct kvr_equation equations[] = {{KVR_TERMS(RX), KVR_TERMS(SHORT, FULL)}, {0}};
static const struct kvr_stats_def def = {"port", counters, equations};

static const struct kvr_family families[] = {
	KVR_FAMILY("kvr_drops_total", "reason", "Frames dropped, by reason", {SHORT, "short_frame"},
		   {FULL, "ring_full"}),
	KVR_METRIC("kvr_ring_items", DEPTH),
	KVR_FAMILIES_END,
};

static char *write_families(const char *const labels[], unsigned int n)
{
	const uint64_t a[N] = {9, 7, 2, 1}, b[N] = {UINT64_MAX, UINT64_MAX, 0, 0};
	const uint64_t *const v[] = {a, b};
	char *text;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	kvr_metrics_write(&def, families, v, labels, n, f);
	fclose(f);
	return text;
}

static void a_family_has_one_sample_per_reason_and_instance(void)
{
	const char *const labels[] = {"port=\"p0\"", "port=\"p1\""};
	char *text = write_families(labels, 2);

	CU_ASSERT_STRING_EQUAL(
		text, "# HELP kvr_drops_total Frames dropped, by reason\n"
		      "# TYPE kvr_drops_total counter\n"
		      "kvr_drops_total{port=\"p0\",reason=\"short_frame\"} 7\n"
		      "kvr_drops_total{port=\"p0\",reason=\"ring_full\"} 2\n"
		      "kvr_drops_total{port=\"p1\",reason=\"short_frame\"} 18446744073709551615\n"
		      "kvr_drops_total{port=\"p1\",reason=\"ring_full\"} 0\n"
		      "# HELP kvr_ring_items items in the ring\n"
		      "# TYPE kvr_ring_items gauge\n"
		      "kvr_ring_items{port=\"p0\"} 1\n"
		      "kvr_ring_items{port=\"p1\"} 0\n");
	free(text);
}

static void a_single_instance_needs_no_label(void)
{
	char *text = write_families(NULL, 1);

	CU_ASSERT_PTR_NOT_NULL(strstr(text, "\nkvr_drops_total{reason=\"ring_full\"} 2\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "\nkvr_ring_items 1\n"));
	free(text);
}

/* Lists with one fault each. */
static const struct kvr_family lacking[] = {
	KVR_METRIC("kvr_ring_items", DEPTH),
	KVR_METRIC("kvr_full_total", FULL),
	KVR_FAMILIES_END,
};
static const struct kvr_family twice[] = {
	KVR_FAMILY("kvr_drops_total", "reason", "h", {SHORT, "a"}, {FULL, "b"}),
	KVR_METRIC("kvr_full_total", FULL),
	KVR_METRIC("kvr_ring_items", DEPTH),
	KVR_FAMILIES_END,
};
static const struct kvr_family same_value[] = {
	KVR_FAMILY("kvr_drops_total", "reason", "h", {SHORT, "a"}, {FULL, "a"}),
	KVR_METRIC("kvr_ring_items", DEPTH),
	KVR_FAMILIES_END,
};
static const struct kvr_family no_total[] = {
	KVR_FAMILY("kvr_drops", "reason", "h", {SHORT, "a"}, {FULL, "b"}),
	KVR_METRIC("kvr_ring_items", DEPTH),
	KVR_FAMILIES_END,
};

static void every_counter_needs_one_family(void)
{
	CU_ASSERT_PTR_NULL(families_check(&def, families)); /* rx is a sum */
	CU_ASSERT_STRING_EQUAL(families_check(&def, lacking), "short_frame");
	CU_ASSERT_STRING_EQUAL(families_check(&def, twice), "full");
	CU_ASSERT_STRING_EQUAL(families_check(&def, same_value), "kvr_drops_total");
	CU_ASSERT_STRING_EQUAL(families_check(&def, no_total), "kvr_drops");
}

/* Value of a metric without labels, -1 when it is missing. */
static double find_value(const char *text, const char *name)
{
	char line[80];
	const char *at;

	snprintf(line, sizeof(line), "\n%s ", name);
	at = strstr(text, line);
	return at != NULL ? strtod(at + strlen(line), NULL) : -1;
}

/* Not inlined: GCC 12 takes the text for the variable that points to it. */
static __attribute__((noinline)) char *write_process(void)
{
	char *text;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	kvr_metrics_build("version=\"1.2\"", f);
	kvr_metrics_process(f);
	fclose(f);
	return text;
}

static void process_metrics_are_those_of_this_process(void)
{
	char *before = write_process(), *after;
	int fd[2];

	CU_ASSERT_EQUAL_FATAL(pipe(fd), 0);
	after = write_process();
	CU_ASSERT_PTR_NOT_NULL(strstr(before, "\nkvr_build_info{version=\"1.2\"} 1\n"));
	CU_ASSERT_EQUAL(find_value(after, "process_open_fds"),
			find_value(before, "process_open_fds") + 2);
	CU_ASSERT(find_value(before, "process_open_fds") >= 3);
	CU_ASSERT(find_value(before, "process_max_fds") >= find_value(after, "process_open_fds"));
	CU_ASSERT(find_value(before, "process_cpu_seconds_total") > 0);
	CU_ASSERT(find_value(before, "process_resident_memory_bytes") > 65536);
	CU_ASSERT(find_value(before, "process_virtual_memory_bytes") >
		  find_value(before, "process_resident_memory_bytes"));
	/* 2023-11-14 .. 2096: not the time since boot, not milliseconds. */
	CU_ASSERT(find_value(before, "process_start_time_seconds") > 1.7e9);
	CU_ASSERT(find_value(before, "process_start_time_seconds") < 4e9);
	close(fd[0]);
	close(fd[1]);
	free(before);
	free(after);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_family_has_one_sample_per_reason_and_instance),
		KVR_CASE(a_single_instance_needs_no_label),
		KVR_CASE(every_counter_needs_one_family),
		KVR_CASE(process_metrics_are_those_of_this_process),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("metrics", tests);
}
