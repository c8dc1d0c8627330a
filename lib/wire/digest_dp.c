/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_message.h"

#include <stddef.h>
#include <string.h>

#define XXH_INLINE_ALL
#define XXH_STATIC_LINKING_ONLY
#define XXH_NO_STDLIB
#include <xxhash.h>

#define FIXED sizeof(struct kvr_wire_request)

/* What stands between the flags of a client and its client_frame is the router's. */
_Static_assert(offsetof(struct kvr_wire_request, worker) == 40 &&
		       offsetof(struct kvr_wire_request, client_frame) == 82,
	       "fields of the router");

/* Of what follows the fixed part, in several slices. */
static uint64_t rest_of(const struct kvr_slice *s, uint32_t n)
{
	XXH3_state_t state;
	uint32_t skip = FIXED;

	XXH3_64bits_reset(&state);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t from = skip < s[i].len ? skip : s[i].len;

		XXH3_64bits_update(&state, (const uint8_t *)s[i].p + from, s[i].len - from);
		skip -= from;
	}
	return XXH3_64bits_digest(&state);
}

uint64_t kvr_request_digest(const struct kvr_slice *s, uint32_t n)
{
	struct kvr_wire_request q;
	const uint64_t rest =
		n == 1 ? XXH3_64bits((const uint8_t *)s[0].p + FIXED, s[0].len - FIXED)
		       : rest_of(s, n);

	kvr_slices_copy(s, n, 0, FIXED, &q);
	q.flags &= ~KVR_REQ_F_RESEND;
	memset(&q.worker, 0,
	       offsetof(struct kvr_wire_request, client_frame) -
		       offsetof(struct kvr_wire_request, worker));
	q.worker = rest;
	return XXH3_64bits(&q, FIXED);
}
