/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_METRICS_H
#define KVR_METRICS_H

/**
 * @file
 * Counters as Prometheus text (format 0.0.4). A family is one metric. Its samples are counters of
 * one table, told apart by one label; the label texts of the table's instances come first:
 *
 *	static const struct kvr_family families[] = {
 *		KVR_METRIC("kvr_x_bytes_total", X_BYTES),
 *		KVR_FAMILY("kvr_x_frames_dropped_total", "reason", "Frames dropped, by reason",
 *			   {X_SHORT, "short_frame"}, {X_FULL, "ring_full"}),
 *		KVR_FAMILIES_END,
 *	};
 *
 * Names follow the Prometheus conventions: `_total` for counters only, a unit only where there is
 * one, no label value without a bound. tests/lib/kvr_families.h checks a list against its table.
 * Any thread; nothing here is called on a packet lcore.
 */

#include <stdio.h>

#include "kvr_stats.h"

/** Content type of the text. */
#define KVR_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct kvr_sample {
	uint16_t counter;  /* index in the table; KVR_TERMS_END ends the list */
	const char *value; /* of the family's label: [a-z0-9_]+ */
};

struct kvr_family {
	const char *name;  /* whole name; a list of families ends with NULL */
	const char *label; /* NULL: one sample, without a label of the family */
	const char *help;  /* one line, no full stop; NULL: the help text of the counter */
	const struct kvr_sample *samples;
};

#define KVR_SAMPLES(...)                                                                           \
	(const struct kvr_sample[])                                                                \
	{                                                                                          \
		__VA_ARGS__,                                                                       \
		{                                                                                  \
			KVR_TERMS_END, NULL                                                        \
		}                                                                                  \
	}
#define KVR_FAMILY(name, label, help, ...)                                                         \
	{                                                                                          \
		name, label, help, KVR_SAMPLES(__VA_ARGS__)                                        \
	}
#define KVR_METRIC_HELP(name, counter, help)                                                       \
	{                                                                                          \
		name, NULL, help, KVR_SAMPLES({counter, NULL})                                     \
	}
#define KVR_METRIC(name, counter) KVR_METRIC_HELP(name, counter, NULL)
#define KVR_FAMILIES_END                                                                           \
	{                                                                                          \
		NULL, NULL, NULL, NULL                                                             \
	}

/**
 * Write @p families of the table @p def for @p n instances.
 * @param v n snapshots of the table.
 * @param labels n texts such as `pool="default"`, or NULL entries, or NULL.
 */
void kvr_metrics_write(const struct kvr_stats_def *def, const struct kvr_family *families,
		       const uint64_t *const v[], const char *const labels[], unsigned int n,
		       FILE *out);

/** Write the head of a family: HELP and TYPE. */
void kvr_metrics_head(const char *name, const char *type, const char *help, FILE *out);

/** Write `kvr_build_info{<labels>} 1`. */
void kvr_metrics_build(const char *labels, FILE *out);

/** Write process_* of this process: CPU time, memory, start time, file descriptors. A value that
 * the kernel does not give is left out. */
void kvr_metrics_process(FILE *out);

#endif
