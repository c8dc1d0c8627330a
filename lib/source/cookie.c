/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Generation of the cookie key: the only part that needs randomness, and therefore not on packet
 * lcores.
 */

#include "kvr_cookie.h"

#include <errno.h>

#include <sodium.h>

_Static_assert(sizeof(struct kvr_cookie_key) == crypto_shorthash_KEYBYTES, "key of SipHash");

int kvr_cookie_key_init(struct kvr_cookie_key *key)
{
	if (sodium_init() < 0)
		return -EIO;
	randombytes_buf(key->b, sizeof(key->b));
	return 0;
}
