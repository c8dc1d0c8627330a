/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Making and checking cookies: SipHash of the path and the number of the time window. 0 is not a
 * cookie, as it marks a missing one on the wire.
 */

#include "kvr_cookie.h"

#include <sodium/crypto_shorthash.h>

static uint64_t make_cookie(const struct kvr_cookie_key *key, const struct kvr_path *path,
			    uint64_t window)
{
	uint8_t in[KVR_PATH_ID_BYTES + sizeof(window)];
	uint64_t out;

	memcpy(in, path, KVR_PATH_ID_BYTES);
	memcpy(in + KVR_PATH_ID_BYTES, &window, sizeof(window));
	crypto_shorthash((uint8_t *)&out, in, sizeof(in), key->b);
	return out != 0 ? out : 1;
}

uint64_t kvr_cookie(const struct kvr_cookie_key *key, const struct kvr_path *path, uint64_t now_ns)
{
	return make_cookie(key, path, now_ns >> KVR_COOKIE_WINDOW_BITS);
}

bool kvr_cookie_ok(const struct kvr_cookie_key *key, const struct kvr_path *path, uint64_t now_ns,
		   uint64_t cookie)
{
	const uint64_t window = now_ns >> KVR_COOKIE_WINDOW_BITS;

	if (cookie == 0)
		return false;
	return cookie == make_cookie(key, path, window) ||
	       cookie == make_cookie(key, path, window - 1);
}
