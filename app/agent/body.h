/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_BODY_H
#define AGENT_BODY_H

/**
 * @file
 * Changes to the JSON of a request for one leg of disaggregated serving. All other bytes remain
 * unchanged, and requests without legs are not parsed. Pure, except for one malloc().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kinds.h"
#include "kvr_types.h"

/** The leg of a disaggregated request; zeroed: none. */
struct agent_leg {
	enum kvr_role leg;
	bool responses; /**< a request for /v1/responses, which names the limit differently */
	const char *bootstrap_host; /**< SGLang: bootstrap address; NULL: none */
	uint16_t bootstrap_port;
	uint64_t bootstrap_room;
	uint32_t prefill_ranks; /**< decode: ranks of the prefill workers, 0: unknown */
	const char *result;	/**< vLLM, decode: transfer result of the prefill engine */
	uint32_t result_len;
};

/**
 * Create the content of the leg's request from that of the client.
 * @param out to be freed by the caller.
 * @return its length; -EBADMSG: @p body is not a JSON object; -EPROTO: invalid transfer result;
 * -EINVAL: the engine cannot run this leg (no bootstrap address, or no result); -ENOMEM.
 */
int64_t agent_body_leg(enum agent_engine engine, const struct agent_leg *leg, const char *body,
		       size_t len, char **out);

#endif
