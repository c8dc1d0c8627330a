/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_BODY_H
#define AGENT_BODY_H

/**
 * @file
 * What routing sets in the JSON of a request: the fields of a leg. All else stays byte for byte;
 * the whole request of one engine is not even looked at. Pure but for one malloc().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kinds.h"
#include "kvr_types.h"

/** The leg of a disaggregated request; zeroed: none. */
struct agent_leg {
	enum kvr_role leg;
	bool responses; /**< a request of /v1/responses, which has its own name of the limit */
	const char *bootstrap_host; /**< SGLang: where the engines meet; NULL: not */
	uint16_t bootstrap_port;
	uint64_t bootstrap_room;
	uint32_t prefill_ranks; /**< decode: of the prefill workers, 0 unknown */
	const char *result;	/**< vLLM, decode: what the prefill engine has said */
	uint32_t result_len;
};

/**
 * The content of the leg's request, made of that of the client.
 * @param out the caller frees it.
 * @return its length; -EBADMSG @p body is no JSON object; -EPROTO the transfer result is none;
 * -EINVAL such an engine cannot take this leg (no meeting, or no result); -ENOMEM.
 */
int64_t agent_body_leg(enum agent_engine engine, const struct agent_leg *leg, const char *body,
		       size_t len, char **out);

#endif
