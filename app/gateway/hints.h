/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_HINTS_H
#define GW_HINTS_H

/**
 * @file
 * Routing hints as clients of HTTP give them: members of an `nvext` object, of the `routing`
 * object of a PreprocessedRequest, and headers `x-kvroute-...`. One table has all names; a header
 * is called like the member with '-' for '_'. A hint that is given again replaces the one before;
 * headers are read last. Pure but for the list of lib/client, one thread a struct.
 */

#include "kvr_client_hints.h"
#include "kvr_json.h"

#define GW_HINT_NAME	255
#define GW_HINT_WORKERS 256
#define GW_HINT_TAINTS	16

/** What was said; zeroed: nothing. About 14 KiB. */
struct gw_hints {
	uint64_t given; /* bit of each row of the table that was said */
	bool any;	/* there is something for gw_hints_list() */

	char session[257], action[16];
	uint32_t timeout_s;
	char lora[GW_HINT_NAME + 1], ns[GW_HINT_NAME + 1], policy[GW_HINT_NAME + 1];
	double priority_jump;
	int32_t priority;
	uint32_t strict_priority, expected_output_tokens;
	uint64_t backend, prefill_worker, decode_worker;
	uint32_t dp_rank, prefill_dp_rank;
	uint64_t allowed[GW_HINT_WORKERS];
	uint32_t n_allowed, n_required, n_preferred;
	char required[GW_HINT_TAINTS][GW_HINT_NAME + 1];
	char preferred[GW_HINT_TAINTS][GW_HINT_NAME + 1];
	double weight[GW_HINT_TAINTS];
	double override_value[8];
	uint32_t overrides; /* bit n: override n */

	uint32_t lease_ms; /* /pick: 0: not given */
	bool query;	   /* only ask where it would go */
	bool explain;	   /* answer with headers about the choice */
	bool timing;	   /* the answer's end is to say how it went */
	bool token_ids;	   /* the choice is to carry the prompt's token ids */
};

/**
 * Take the hints of one object; members that are no hints are ignored, null is as if absent.
 * @param err one line that names the member when it fails
 * @return 0, or -EINVAL: wrong type or out of range.
 */
int gw_hints_object(struct gw_hints *h, const struct kvr_json_value *object, char *err,
		    size_t errlen);

/** Take the value of router_config_override. @return as gw_hints_object(). */
int gw_hints_override(struct gw_hints *h, const struct kvr_json_value *object, char *err,
		      size_t errlen);

/** Take the strings of `annotations`. @return as gw_hints_object(). */
int gw_hints_annotations(struct gw_hints *h, const struct kvr_json_value *array, char *err,
			 size_t errlen);

/**
 * Take one header if it is a hint; lists are separated by commas, weights follow '='.
 * @return 1 taken, 0 no hint, -EINVAL as above.
 */
int gw_hints_header(struct gw_hints *h, const char *name, size_t name_len, const char *value,
		    size_t len, char *err, size_t errlen);

/** Content of a string into @p buf, as kvr_json_string(), but one with a nul byte is no name: what
 * is compared would end there. @return its length, or -EINVAL. */
int gw_hints_text(const struct kvr_json_value *v, char *buf, size_t size);

/** Does it name a worker that nobody else stands in for? */
bool gw_hints_pinned(const struct gw_hints *h);

/** Put what was said into an empty list. @return 0, or what the setters said. */
int gw_hints_list(const struct gw_hints *h, struct kvr_client_hints *list);

#endif
