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

/* The fields from `worker` to client_frame are owned by the router. */
_Static_assert(offsetof(struct kvr_wire_request, worker) == 40 &&
		       offsetof(struct kvr_wire_request, client_frame) == 82,
	       "fields of the router");

_Static_assert(sizeof(XXH3_state_t) <= KVR_DIGEST_BYTES, "state does not fit");

/* ---- XXH3 ---- */

static uint64_t with_fixed(const struct kvr_wire_request *fixed, uint64_t rest)
{
	struct kvr_wire_request q = *fixed;

	q.worker = rest; /* 0 until now */
	return XXH3_64bits(&q, FIXED);
}

uint64_t kvr_wire__xxh_digest(const struct kvr_wire_request *fixed, const void *p, uint32_t len)
{
	return with_fixed(fixed, XXH3_64bits(p, len));
}

void kvr_wire__xxh_begin(struct kvr_digest *d)
{
	XXH3_state_t *state = (XXH3_state_t *)d->state;

	XXH3_INITSTATE(state); /* a reset reads the old state */
	XXH3_64bits_reset(state);
}

void kvr_wire__xxh_add(struct kvr_digest *d, const void *p, uint32_t len)
{
	XXH3_64bits_update((XXH3_state_t *)d->state, p, len);
}

uint64_t kvr_wire__xxh_end(const struct kvr_digest *d, const struct kvr_wire_request *fixed)
{
	return with_fixed(fixed, XXH3_64bits_digest((const XXH3_state_t *)d->state));
}

/* ---- either ---- */

#if !defined(__x86_64__)
#define kvr_wire__aes()		  false
#define kvr_wire__aes_digest(...) 0
#define kvr_wire__aes_begin(...)  ((void)0)
#define kvr_wire__aes_add(...)	  ((void)0)
#define kvr_wire__aes_end(...)	  0
#endif

static void copy_client_fields(const void *fixed, struct kvr_wire_request *q)
{
	memcpy(q, fixed, FIXED);
	q->flags &= ~KVR_REQ_F_RESEND;
	memset(&q->worker, 0,
	       offsetof(struct kvr_wire_request, client_frame) -
		       offsetof(struct kvr_wire_request, worker));
}

void kvr_digest_begin(struct kvr_digest *d)
{
	if (kvr_wire__aes())
		kvr_wire__aes_begin(d);
	else
		kvr_wire__xxh_begin(d);
}

void kvr_digest_add(struct kvr_digest *d, const void *p, uint32_t len)
{
	if (kvr_wire__aes())
		kvr_wire__aes_add(d, p, len);
	else
		kvr_wire__xxh_add(d, p, len);
}

uint64_t kvr_digest_end(const struct kvr_digest *d, const struct kvr_wire_request *fixed)
{
	struct kvr_wire_request q;

	copy_client_fields(fixed, &q);
	return kvr_wire__aes() ? kvr_wire__aes_end(d, &q) : kvr_wire__xxh_end(d, &q);
}

/* Nearly all messages have one frame: a kilobyte of hashes. */
uint64_t kvr_request_digest(const struct kvr_slice *s, uint32_t n)
{
	struct kvr_wire_request q;
	struct kvr_digest d;
	uint32_t skip = FIXED;

	if (n == 1) {
		const uint8_t *rest = (const uint8_t *)s[0].p + FIXED;
		const uint32_t len = s[0].len - (uint32_t)FIXED;

		copy_client_fields(s[0].p, &q);
		return kvr_wire__aes() ? kvr_wire__aes_digest(&q, rest, len)
				       : kvr_wire__xxh_digest(&q, rest, len);
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
