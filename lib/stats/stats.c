/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Rows of counters, checks of equations, and the OpenMetrics text. Counting is inline in
 * kvr_stats.h.
 */

#include "kvr_stats.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "kvr_errno.h"

struct kvr_stats {
	const struct kvr_stats_def *def;
	unsigned int n, n_writers, stride; /* cells */
	kvr_cell_t *cells;
};

unsigned int kvr_stats_count(const struct kvr_stats_def *def)
{
	unsigned int n = 0;

	while (def->counters[n].name != NULL)
		n++;
	return n;
}

struct kvr_stats *kvr_stats_create(const struct kvr_stats_def *def, unsigned int n_writers)
{
	const unsigned int n = kvr_stats_count(def);
	struct kvr_stats *stats;
	size_t bytes;

	if (n == 0 || n > KVR_STATS_MAX || n_writers == 0 || n_writers > UINT16_MAX)
		return kvr_null(EINVAL);
	stats = calloc(1, sizeof(*stats));
	if (stats == NULL)
		return kvr_null(ENOMEM);
	stats->def = def;
	stats->n = n;
	stats->n_writers = n_writers;
	/* Two cache lines apart, as the adjacent-line prefetcher loads pairs. */
	stats->stride = RTE_ALIGN_CEIL(n, 2 * RTE_CACHE_LINE_SIZE / sizeof(kvr_cell_t));
	bytes = (size_t)stats->stride * n_writers * sizeof(kvr_cell_t);
	stats->cells = aligned_alloc(2 * RTE_CACHE_LINE_SIZE, bytes);
	if (stats->cells == NULL) {
		free(stats);
		return kvr_null(ENOMEM);
	}
	memset(stats->cells, 0, bytes);
	return stats;
}

void kvr_stats_destroy(struct kvr_stats *stats)
{
	if (stats == NULL)
		return;
	free(stats->cells);
	free(stats);
}

const struct kvr_stats_def *kvr_stats_def(const struct kvr_stats *stats)
{
	return stats->def;
}

kvr_cell_t *kvr_stats_row(struct kvr_stats *stats, unsigned int writer)
{
	assert(writer < stats->n_writers);
	return &stats->cells[(size_t)writer * stats->stride];
}

void kvr_stats_sum(const struct kvr_stats *stats, uint64_t out[])
{
	memset(out, 0, stats->n * sizeof(out[0]));
	for (unsigned int w = 0; w < stats->n_writers; w++)
		for (unsigned int i = 0; i < stats->n; i++)
			out[i] += kvr_stats_get(&stats->cells[(size_t)w * stats->stride], i);
}

void kvr_stats_row_get(const struct kvr_stats *stats, unsigned int writer, uint64_t out[])
{
	assert(writer < stats->n_writers);
	for (unsigned int i = 0; i < stats->n; i++)
		out[i] = kvr_stats_get(&stats->cells[(size_t)writer * stats->stride], i);
}

static uint64_t sum_terms(const uint64_t v[], const uint16_t *terms)
{
	uint64_t total = 0;

	for (; *terms != KVR_TERMS_END; terms++)
		total += v[*terms];
	return total;
}

/* Append to the text in buf, as far as it fits. */
static void append_text(char *buf, size_t len, const char *text)
{
	const size_t n = strlen(buf);

	snprintf(buf + n, len - n, "%s", text);
}

static void append_side(const struct kvr_stats_def *def, const uint16_t *terms, char *buf,
			size_t len)
{
	for (unsigned int i = 0; terms[i] != KVR_TERMS_END; i++) {
		append_text(buf, len, i != 0 ? " + " : "");
		append_text(buf, len, def->counters[terms[i]].name);
	}
}

char *kvr_equation_text(const struct kvr_stats_def *def, const struct kvr_equation *equation,
			char *buf, size_t len)
{
	buf[0] = '\0';
	append_side(def, equation->left, buf, len);
	append_text(buf, len, " = ");
	append_side(def, equation->right, buf, len);
	return buf;
}

const struct kvr_equation *kvr_stats_check(const struct kvr_stats_def *def, const uint64_t v[],
					   char *err, size_t errlen)
{
	for (const struct kvr_equation *equation = def->equations;
	     equation != NULL && equation->left != NULL; equation++) {
		const uint64_t left = sum_terms(v, equation->left),
			       right = sum_terms(v, equation->right);

		if (left == right)
			continue;
		if (err != NULL) {
			char text[1024];

			snprintf(err, errlen, "%s: %s, but %" PRIu64 " != %" PRIu64, def->lib,
				 kvr_equation_text(def, equation, text, sizeof(text)), left, right);
		}
		return equation;
	}
	return NULL;
}

uint64_t kvr_stats_find(const struct kvr_stats_def *def, const uint64_t v[], const char *name)
{
	for (unsigned int i = 0; def->counters[i].name != NULL; i++)
		if (strcmp(def->counters[i].name, name) == 0)
			return v[i];
	return 0;
}
