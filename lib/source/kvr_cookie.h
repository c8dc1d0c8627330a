/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_COOKIE_H
#define KVR_COOKIE_H

/**
 * @file
 * Stateless proof of an address. A cookie is a keyed hash (SipHash-2-4) of the sender's path and
 * of the time, cut into windows of 275 s; the one of the present and the one of the last window are
 * good. Who shows it has lately received a frame at that address and port. The router keeps
 * nothing for it, so asking costs it no memory, whoever asks.
 *
 * Pure but for kvr_cookie_key_init(). About 40 ns.
 */

#include <stdbool.h>
#include <stdint.h>

#include "kvr_path.h"

#define KVR_COOKIE_WINDOW_BITS 38u /* nanoseconds: 275 s */

/** Random, different at every start. */
struct kvr_cookie_key {
	uint8_t b[16];
};

/** Draw a key. Start. @return 0, or -EIO: the system has no randomness. */
int kvr_cookie_key_init(struct kvr_cookie_key *k);

/** The cookie of the sender @p p in the window of @p now_ns; never 0. Any thread. */
uint64_t kvr_cookie(const struct kvr_cookie_key *k, const struct kvr_path *p, uint64_t now_ns);

/** Whether @p cookie is that of @p p, of this window or the last. Any thread. */
bool kvr_cookie_ok(const struct kvr_cookie_key *k, const struct kvr_path *p, uint64_t now_ns,
		   uint64_t cookie);

#endif
