/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_TRACE_H
#define LOAD_TRACE_H

/**
 * @file
 * Request traces in the Mooncake format: one JSON object per line with `timestamp` (ms from the
 * start), `input_length` and `output_length` (tokens) and `hash_ids`, one id per 512 prompt tokens.
 * An id stands for its 512 tokens and all tokens before them. Start-up only.
 */

#include <stddef.h>
#include <stdint.h>

#define LOAD_TRACE_ID_TOKENS 512u

/** One request of the trace. */
struct load_trace_row {
	double at_ms; /* spread: see load_trace_read() */
	uint32_t isl;
	uint32_t osl;
	uint32_t n_ids;
	uint32_t first_id; /* index into ids[] */
};

/** A trace, rows sorted by time. */
struct load_trace {
	struct load_trace_row *rows;
	uint64_t *ids;
	size_t n_rows;
	size_t n_ids;
	uint64_t max_id;
	double length_ms; /* including one mean gap after the last row: the period of repetitions */
};

/**
 * Read @p path. Rows that share a timestamp (the published conversation trace has one every
 * 3 s) are spread evenly until the next timestamp, keeping their order, unless @p keep_bursts.
 * @return 0; -errno of opening or reading; -EBADMSG with "file:line: reason" in @p err; -ENOMEM.
 */
int load_trace_read(struct load_trace *t, const char *path, int keep_bursts, char *err,
		    size_t errlen);

/** Free what load_trace_read() filled; a zeroed trace is fine. */
void load_trace_free(struct load_trace *t);

#endif
