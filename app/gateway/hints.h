/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_HINTS_H
#define GW_HINTS_H

/**
 * @file
 * Routing hints of HTTP clients: members of an `nvext` object, of the `routing` object of a
 * PreprocessedRequest, and headers `x-kvroute-...`. The names are those of protocol.h and of one
 * table of this file; a header may also have the name of the member with '-' for '_'. A hint that
 * is given again replaces the one before; headers are read last. Pure except for the list of
 * lib/client, one thread per struct.
 */

#include "kvr_client_hints.h"
#include "kvr_json.h"
#include "protocol.h"

#define GW_HINT_NAME	255
#define GW_HINT_WORKERS 256
#define GW_HINT_TAINTS	16

struct gw_preferred {
	double weight;
	char taint[GW_HINT_NAME + 1];
};

/* clang-format off */
/* Members of struct gw_hints, by format of the hint. Of a list, the entries follow their number. */
#define GW_MEMBER_U64(m)       uint64_t m;
#define GW_MEMBER_U32(m)       uint32_t m;
#define GW_MEMBER_I32(m)       int32_t m;
#define GW_MEMBER_F64(m)       double m;
#define GW_MEMBER_TEXT(m)      char m[GW_HINT_NAME + 1];
#define GW_MEMBER_TEXTS(m)     uint64_t n_##m; char m[GW_HINT_TAINTS][GW_HINT_NAME + 1];
#define GW_MEMBER_U64S(m)      uint64_t n_##m; uint64_t m[GW_HINT_WORKERS];
#define GW_MEMBER_PREFERRED(m) uint64_t n_##m; struct gw_preferred m[GW_HINT_TAINTS];
#define GW_MEMBER_BYTES(m)
#define GW_MEMBER_RANKS(m)
#define GW_MEMBER_OVERRIDE(m)
#define GW_MEMBER_SESSION(m)
#define GW_MEMBER_MM(m)
#define GW_MEMBER_RANGES(m)
#define GW_MEMBER_BODY(m)
#define GW_HINT_MEMBER(name, type, in, format, least, most, entries, member, ...) GW_MEMBER_##format(member)
/* clang-format on */

/** The hints that a request gives; zeroed: none. About 14 KiB. */
struct gw_hints {
	uint64_t given; /* bit of each row of the table that is given */
	bool any;	/* there is something for gw_hints_list() */

	KVR_REQUEST_HINTS(GW_HINT_MEMBER) /* of protocol.h */

	char session[257], action[16];
	uint32_t timeout_s;
	double override_value[KVR_OVERRIDES_END];
	uint32_t overrides; /* bit n: override n */

	uint32_t expected_output_tokens;
	uint32_t lease_ms; /* /pick: 0: not given */
	bool query;	   /* only ask where the request would go */
	bool explain;	   /* answer with headers about the choice */
	bool timing;	   /* the end of the answer reports timing */
	bool token_ids;	   /* the choice carries the token ids of the prompt */
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

/** Copy the content of a string to @p buf like kvr_json_string(), but reject nul bytes: names are
 * compared up to the first. @return its length, or -EINVAL. */
int gw_hints_text(const struct kvr_json_value *v, char *buf, size_t size);

/** Return true if the hints pin a worker. */
bool gw_hints_pinned(const struct gw_hints *h);

/** Put the hints into an empty list. @return 0, or the first error of the setters. */
int gw_hints_list(const struct gw_hints *h, struct kvr_client_hints *list);

#endif
