/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_KINDS_H
#define AGENT_KINDS_H

/**
 * @file
 * Kinds of engines, and where each reports the values that the agent needs, in one table. A new
 * kind adds rows. Constants; any thread.
 */

#include <stdint.h>

enum agent_engine { AGENT_VLLM, AGENT_SGLANG, AGENT_AUTO /**< --type: as the engine reports */ };

/** Pages, in the order of requests. */
enum agent_page {
	AGENT_PAGE_MODELS,
	AGENT_PAGE_SERVER,
	AGENT_PAGE_SERVER_OLD, /**< for SGLang without AGENT_PAGE_SERVER */
	AGENT_PAGE_SOURCES,
	AGENT_PAGE_METRICS, /**< the only page that is not JSON */
	AGENT_PAGES,
};

enum agent_value {
	AGENT_V_KIND,
	AGENT_V_MODEL,
	AGENT_V_LENGTH,	  /**< tokens of a request, prompt and answer */
	AGENT_V_ADAPTERS, /**< number of adapters */
	AGENT_V_BLOCK_SIZE,
	AGENT_V_BLOCKS, /**< per rank */
	AGENT_V_RANKS,
	AGENT_V_EVENTS,
	AGENT_V_REPLAY,
	AGENT_V_TOPIC,
	AGENT_V_BATCH, /**< maximum prompt tokens per step of a rank */
	/* Load, from metrics only: */
	AGENT_V_WAITING,
	AGENT_V_RUNNING,
	AGENT_V_KV_USE,
	AGENT_VALUES,
};

/** Form of a row's value. */
enum agent_form {
	AGENT_FORM_NUMBER,    /**< integer, 1 to `most`; null or -1: none */
	AGENT_FORM_TOKENS,    /**< the same in tokens, converted to blocks */
	AGENT_FORM_TEXT,      /**< printable ASCII */
	AGENT_FORM_KIND,      /**< one of agent_kinds[] */
	AGENT_FORM_MEMBERS,   /**< size of an object or array, at most `most`; 0: none */
	AGENT_FORM_CHILDREN,  /**< number of elements with a text `inside` */
	AGENT_FORM_ENDPOINT,  /**< ZMQ endpoint of rank 0; rank n is at port + n */
	AGENT_FORM_PORT,      /**< the same as a port; the host is the member `inside` */
	AGENT_FORM_ENDPOINTS, /**< object {RANK: {`inside`: endpoint or text}} */
	/* Forms of metrics: */
	AGENT_FORM_GAUGE,   /**< the value */
	AGENT_FORM_LABEL,   /**< the label `inside` */
	AGENT_FORM_SHARE,   /**< the label `inside`, a sum over the ranks of all samples */
	AGENT_FORM_SAMPLES, /**< the number of samples, one per rank */
};

struct agent_row {
	enum agent_engine kind; /**< AGENT_AUTO: all kinds */
	enum agent_value value;
	enum agent_page page;
	enum agent_form form;
	/** A path for kvr_json_get(), "" for the page; "A>B": B in the JSON text in string A. Or
	 * the name of a metric. */
	const char *where;
	const char *inside;
	uint32_t most;
};

/** The first row that provides a value counts. Terminated by where NULL. */
extern const struct agent_row agent_rows[];

/** HTTP paths. */
extern const char *const agent_pages[AGENT_PAGES];

/** Names by enum agent_engine, terminated by NULL. */
extern const char *const agent_kinds[];

/** Instruction that makes an engine report a value; NULL: none known. */
const char *agent_flag_of(enum agent_engine kind, enum agent_value value);

#endif
