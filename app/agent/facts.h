/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_FACTS_H
#define AGENT_FACTS_H

/**
 * @file
 * Values that an engine reports: its kind, model, adapters, block size, capacity, ranks, event
 * endpoints and batch budget, according to the table of kinds.h. Options take precedence.
 *
 * Pure over the caller's memory; any thread. Cost: linear in the page, once per incarnation of the
 * engine.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kinds.h"
#include "options.h"
#include "prom.h"

#define AGENT_ENDPOINT 128u /* bytes of an endpoint, including the terminator */

struct agent_facts {
	enum agent_engine kind; /**< AGENT_AUTO: unknown */
	/** 1 + the row that provided the value; 0: none */
	uint16_t row[AGENT_VALUES];
	uint32_t number[AGENT_VALUES]; /**< of numeric values */
	char model[128], topic[256];
	/** In the order of rank numbers; "": none. */
	char events[AGENT_PROM_RANKS][AGENT_ENDPOINT];
	char replay[AGENT_PROM_RANKS][AGENT_ENDPOINT];
	uint32_t bad;	  /**< values out of range, or of an unexpected type */
	uint16_t bad_row; /**< 1 + the first such row */
};

/** Reset to no values. Only rows of kind @p type are read; AGENT_AUTO: of all kinds until one is
 * known. */
void agent_facts_clear(struct agent_facts *facts, enum agent_engine type);

/** Read a JSON page. @return 0; -EBADMSG: not a JSON object. */
int agent_facts_read(struct agent_facts *facts, enum agent_page page, const char *text, size_t len);

/** Read the metrics. */
void agent_facts_metrics(struct agent_facts *facts, const struct agent_prom *prom);

/** Set the options in effect: @p given, with gaps filled from the engine's values. Default kind
 * AGENT_VLLM, default number of ranks 1. */
void agent_facts_apply(const struct agent_facts *facts, const struct agent_options *given,
		       struct agent_options *options);

/** Number of blocks of @p block_size tokens per rank; 0: unknown. */
uint64_t agent_facts_blocks(const struct agent_facts *facts, uint32_t block_size);

/** Source of a value: "--option", path of a page, or "" (unknown). */
const char *agent_facts_source(const struct agent_facts *facts, const struct agent_options *given,
			       enum agent_value value);

/**
 * Endpoint of the @p i-th rank (from 0) of @p given: from its option, derived from rank 0, or from
 * the engine. A wildcard host of the engine is replaced by that of --engine.
 * @param buf set to "" if there is none.
 */
void agent_facts_endpoint(const struct agent_facts *facts, const struct agent_options *given,
			  bool replay, uint32_t i, char *buf, size_t len);

/** List each value with its source, separated by commas. */
void agent_facts_line(const struct agent_facts *facts, const struct agent_options *given, char *buf,
		      size_t len);

#endif
