/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_FACTS_H
#define AGENT_FACTS_H

/**
 * @file
 * What an engine reports of itself: its kind, model, adapters, block size, capacity, ranks, event
 * endpoints and batch budget, by the table of kinds.h. Options override.
 *
 * Pure over the caller's memory; any thread. Budget: linear in the page, once for each incarnation
 * of the engine.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kinds.h"
#include "options.h"
#include "prom.h"

#define AGENT_ENDPOINT 128u /* bytes of an endpoint, its zero byte included */

struct agent_facts {
	enum agent_engine kind; /**< AGENT_AUTO: not known */
	/** 1 + the row that has reported the value; 0: none has. */
	uint16_t row[AGENT_VALUES];
	uint32_t number[AGENT_VALUES]; /**< of a value that is one */
	char model[128], topic[256];
	/** By the order of the ranks' numbers; "": none. */
	char events[AGENT_PROM_RANKS][AGENT_ENDPOINT];
	char replay[AGENT_PROM_RANKS][AGENT_ENDPOINT];
	uint32_t bad;	  /**< values out of range, or of another type than expected */
	uint16_t bad_row; /**< 1 + the row of the first one */
};

/** Nothing is known. Rows of other kinds than @p type are not read; AGENT_AUTO: of all kinds until
 * one is known. */
void agent_facts_clear(struct agent_facts *f, enum agent_engine type);

/** Read a page of JSON. @return 0; -EBADMSG it is no JSON object. */
int agent_facts_read(struct agent_facts *f, enum agent_page page, const char *text, size_t len);

/** Read the page of metrics. */
void agent_facts_metrics(struct agent_facts *f, const struct agent_prom *prom);

/** The options in force: @p given, and for what they leave open the engine's values. Without a kind
 * it is AGENT_VLLM, without a number of ranks 1. */
void agent_facts_apply(const struct agent_facts *f, const struct agent_options *given,
		       struct agent_options *o);

/** Blocks of @p block_size tokens of one rank; 0: unknown. */
uint64_t agent_facts_blocks(const struct agent_facts *f, uint32_t block_size);

/** Where a value comes from: "--option", the path of a page, or "" (unknown). */
const char *agent_facts_source(const struct agent_facts *f, const struct agent_options *given,
			       enum agent_value value);

/**
 * Endpoint of the rank at place @p i (from 0) of @p given: from its option, counted on from rank 0,
 * or the engine's; a wildcard host of the engine's is replaced by that of --engine.
 * @param buf "": there is none.
 */
void agent_facts_endpoint(const struct agent_facts *f, const struct agent_options *given,
			  bool replay, uint32_t i, char *buf, size_t len);

/** Each value and its source, separated by commas. */
void agent_facts_line(const struct agent_facts *f, const struct agent_options *given, char *buf,
		      size_t len);

#endif
