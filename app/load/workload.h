/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_WORKLOAD_H
#define LOAD_WORKLOAD_H

/**
 * @file
 * Prompts and their send times: a trace, or multi-turn conversations with shared system prompts.
 *
 * All decisions are made before the first frame: content of prompts, order and send times. The load
 * is therefore open loop (a slow router does not slow it down), and two runs with one seed send the
 * same frames. Sequence hashes are computed at creation and only copied later. Tokens are a
 * function of (content, position) and are computed as frames are filled.
 *
 * Content is named by a pseudo random stream: Stream(tag, a) is SplitMix64 from state
 * mix(tag << 56 ^ a). With hashes, output k is the local hash of block k; with tokens, it gives
 * token k. Trace: Stream(8, id), 512 / block size hashes per id; copy c uses ids shifted by
 * c * (largest id + 1). Conversations: Stream(1, system prompt), then Stream(2, conversation).
 *
 * Start-up: create and destroy. Load lcore: next, fill_tokens, without allocation.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace.h"

/** Content of a request. Owned by the workload, constant. */
struct load_prompt {
	const uint64_t *hashes; /* n_after sequence hashes: of the prompt, then of its answer */
	uint32_t n_blocks;	/* complete blocks of the prompt */
	uint32_t n_after;	/* complete blocks including the answer, where known */
	uint32_t isl;		/* prompt tokens */
	uint32_t osl;		/* answer tokens, at least 1 */
	uint32_t content;	/* trace: row; else conversation */
	uint32_t copy;		/* trace: copy */
};

enum load_arrivals { LOAD_POISSON = 0, LOAD_FIXED = 1 };

/** Parameters. Zero means "not limited" where stated. */
struct load_workload_cfg {
	uint64_t seed;
	uint32_t block_size;
	bool tokens; /* prompts are tokens, and hashes are computed from them */
	enum load_arrivals arrivals;
	double rate;			/* requests/s; trace: 0 = by its timestamps and speedup */
	double seconds;			/* 0: not limited */
	double ramp_s;			/* time in which the rate rises from a tenth */
	uint64_t requests;		/* 0: not limited */
	const struct load_trace *trace; /* NULL: conversations */
	double speedup;
	uint32_t copies;
	uint32_t conversations; /* active at once */
	double think_s;		/* > 0: active = rate * think time instead */
	uint32_t turns;
	uint32_t system_prompts;
	uint32_t system_tokens;
	uint32_t user_tokens; /* mean of one turn */
	uint32_t osl;	      /* mean answer; trace: 0 = the trace's */
	double length_spread; /* lengths are uniform in mean * (1 +- spread), 0..1 */
	uint64_t max_hashes;  /* memory limit: conversations repeat beyond it */
};

struct load_workload;

/**
 * Create a workload. @return NULL with errno EINVAL (neither rate nor trace, a block size that does
 * not divide 512 with a trace, ...) or ENOMEM.
 */
struct load_workload *load_workload_create(const struct load_workload_cfg *cfg);

/** Free it; NULL is fine. */
void load_workload_destroy(struct load_workload *w);

/**
 * Next request in order of time: its prompt, and its send time in ns after the start.
 * @return NULL: no request is left.
 */
const struct load_prompt *load_workload_next(struct load_workload *w, double *at_ns);

/** Turn @p turn (from 0) of conversation @p conv, modulo the number of conversations. */
const struct load_prompt *load_workload_turn(const struct load_workload *w, uint32_t conv,
					     uint32_t turn);

/** Tokens [first, first + n) of a prompt; only for a workload of tokens. */
void load_workload_fill_tokens(const struct load_workload *w, const struct load_prompt *p,
			       uint32_t first, uint32_t n, uint32_t out[]);

/** Total number of requests (UINT64_MAX: not limited); number of distinct prompts. */
uint64_t load_workload_total(const struct load_workload *w);
uint32_t load_workload_distinct(const struct load_workload *w);

/** Largest prompt in blocks and in tokens. */
uint32_t load_workload_max_blocks(const struct load_workload *w);
uint32_t load_workload_max_isl(const struct load_workload *w);

/** Output k of Stream(tag, a), for any k: the streams are counter based. */
uint64_t load_stream(uint64_t tag, uint64_t a, uint64_t k);

#endif
