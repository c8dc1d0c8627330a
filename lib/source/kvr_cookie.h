/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_COOKIE_H
#define KVR_COOKIE_H

/**
 * @file
 * Stateless proof of an address. A cookie is a keyed hash (SipHash-2-4) of the sender's path and of
 * the time in windows of 275 s. The cookies of the current and of the previous window are valid. A
 * sender that presents one has recently received a frame at that address and port. The router
 * stores nothing for it, so a challenge costs no memory, whatever its source.
 *
 * Pure except kvr_cookie_key_init(). About 40 ns.
 */

#include <stdbool.h>
#include <stdint.h>

#include "kvr_path.h"

#define KVR_COOKIE_WINDOW_BITS 38u /* nanoseconds: 275 s */

/** Random key, different at every start. */
struct kvr_cookie_key {
	uint8_t b[16];
};

/** Draw a key, at start. @return 0, or -EIO: the system has no random numbers. */
int kvr_cookie_key_init(struct kvr_cookie_key *key);

/** Make the cookie of the sender @p path in the window of @p now_ns; never 0. Any thread. */
uint64_t kvr_cookie(const struct kvr_cookie_key *key, const struct kvr_path *path, uint64_t now_ns);

/** Return true if @p cookie belongs to @p path in the current or the previous window. Any thread.
 */
bool kvr_cookie_ok(const struct kvr_cookie_key *key, const struct kvr_path *path, uint64_t now_ns,
		   uint64_t cookie);

#endif
