/* SPDX-License-Identifier: BSD-3-Clause */
#include "digest_pvt.h"
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

_Static_assert(sizeof(XXH3_state_t) <= KVR_DIGEST_BYTES, "state does not fit");

static uint64_t whole(const struct kvr_wire_request *fixed, uint64_t rest)
{
	struct kvr_wire_request q = *fixed;

	q.flags &= ~KVR_REQ_F_RESEND;
	memset(&q.worker, 0,
	       offsetof(struct kvr_wire_request, client_frame) -
		       offsetof(struct kvr_wire_request, worker));
	q.worker = rest;
	return XXH3_64bits(&q, FIXED);
}

void kvr_digest_begin(struct kvr_digest *d)
{
	XXH3_state_t *state = (XXH3_state_t *)d->state;

	XXH3_INITSTATE(state); /* or a reset would believe what was there */
	XXH3_64bits_reset(state);
}

void kvr_digest_add(struct kvr_digest *d, const void *p, uint32_t len)
{
	XXH3_64bits_update((XXH3_state_t *)d->state, p, len);
}

uint64_t kvr_digest_end(const struct kvr_digest *d, const struct kvr_wire_request *fixed)
{
	return whole(fixed, XXH3_64bits_digest((const XXH3_state_t *)d->state));
}

/* A message of one frame, as nearly all are: a kilobyte of hashes. */
static uint64_t hash(const void *p, size_t len)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2"))
		return kvr_wire__hash_avx2(p, len);
#endif
	return XXH3_64bits(p, len);
}

uint64_t kvr_request_digest(const struct kvr_slice *s, uint32_t n)
{
	struct kvr_wire_request q;
	struct kvr_digest d;
	uint32_t skip = FIXED;

	if (n == 1) {
		memcpy(&q, s[0].p, FIXED);
		return whole(&q, hash((const uint8_t *)s[0].p + FIXED, s[0].len - FIXED));
	}
	kvr_slices_copy(s, n, 0, FIXED, &q);
	kvr_digest_begin(&d);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t from = skip < s[i].len ? skip : s[i].len;

		kvr_digest_add(&d, (const uint8_t *)s[i].p + from, s[i].len - from);
		skip -= from;
	}
	return kvr_digest_end(&d, &q);
}
