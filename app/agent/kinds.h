/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_KINDS_H
#define AGENT_KINDS_H

/**
 * @file
 * Which kinds of engines there are, and where each reports what the agent needs: one table. An
 * engine of another kind is more rows. Constants; any thread.
 */

#include <stdint.h>

enum agent_engine { AGENT_VLLM, AGENT_SGLANG, AGENT_AUTO /**< --type: the engine reports it */ };

/** Pages, in the order of the requests for them. */
enum agent_page {
	AGENT_PAGE_MODELS,
	AGENT_PAGE_SERVER,
	AGENT_PAGE_SERVER_OLD, /**< of SGLang that has no AGENT_PAGE_SERVER */
	AGENT_PAGE_SOURCES,
	AGENT_PAGE_METRICS, /**< the only one that is no JSON */
	AGENT_PAGES,
};

enum agent_value {
	AGENT_V_KIND,
	AGENT_V_MODEL,
	AGENT_V_LENGTH,	  /**< tokens of a request, prompt and answer */
	AGENT_V_ADAPTERS, /**< how many */
	AGENT_V_BLOCK_SIZE,
	AGENT_V_BLOCKS, /**< of a rank */
	AGENT_V_RANKS,
	AGENT_V_EVENTS,
	AGENT_V_REPLAY,
	AGENT_V_TOPIC,
	AGENT_V_BATCH, /**< prompt tokens that a step of a rank computes at most */
	/* Load, of the metrics alone: */
	AGENT_V_WAITING,
	AGENT_V_RUNNING,
	AGENT_V_KV_USE,
	AGENT_VALUES,
};

/** How a row has its value. */
enum agent_form {
	AGENT_FORM_NUMBER,    /**< whole, 1 to `most`; null, -1: the engine has none */
	AGENT_FORM_TOKENS,    /**< the same; blocks in tokens */
	AGENT_FORM_TEXT,      /**< printable ASCII */
	AGENT_FORM_KIND,      /**< a text of agent_kinds[] */
	AGENT_FORM_MEMBERS,   /**< the size of an object or array, at most `most`; 0: none */
	AGENT_FORM_CHILDREN,  /**< the number of elements with a text `inside` */
	AGENT_FORM_ENDPOINT,  /**< a ZMQ endpoint of rank 0; rank n is at the port + n */
	AGENT_FORM_PORT,      /**< the same: a port, the host is the member `inside` */
	AGENT_FORM_ENDPOINTS, /**< an object {RANK: {`inside`: endpoint or text}} */
	/* Of a metric: */
	AGENT_FORM_GAUGE,   /**< its value */
	AGENT_FORM_LABEL,   /**< its label `inside` */
	AGENT_FORM_SHARE,   /**< its label `inside`, which is the sum of all its samples' ranks */
	AGENT_FORM_SAMPLES, /**< the number of its samples, one for each rank */
};

struct agent_row {
	enum agent_engine kind; /**< AGENT_AUTO: of all kinds */
	enum agent_value value;
	enum agent_page page;
	enum agent_form form;
	/** A path of kvr_json_get(), "" for the page; "A>B": B in the JSON text that the string A
	 * contains. Or the name of a metric. */
	const char *where;
	const char *inside;
	uint32_t most;
};

/** The first row of a value that has it counts. Ends with where NULL. */
extern const struct agent_row agent_rows[];

/** Paths of HTTP. */
extern const char *const agent_pages[AGENT_PAGES];

/** Names, by enum agent_engine; ends with NULL. */
extern const char *const agent_kinds[];

/** What makes an engine report a value, in words for people; NULL: nothing is known. */
const char *agent_flag_of(enum agent_engine kind, enum agent_value value);

#endif
