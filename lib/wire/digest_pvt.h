/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DIGEST_PVT_H
#define DIGEST_PVT_H

/** @file
 * Two implementations of the digest; a process uses one: rounds of AES where the processor has
 * them, else XXH3. Their values differ, and never leave the process.
 */

#include "kvr_message.h"

#include <stdbool.h>
#include <stdint.h>

/** Implementations of kvr_request_digest() and kvr_digest_*(). @p fixed: with the fields of the
 * router set to 0. */
uint64_t kvr_wire__xxh_digest(const struct kvr_wire_request *fixed, const void *p, uint32_t len);
void kvr_wire__xxh_begin(struct kvr_digest *d);
void kvr_wire__xxh_add(struct kvr_digest *d, const void *p, uint32_t len);
uint64_t kvr_wire__xxh_end(const struct kvr_digest *d, const struct kvr_wire_request *fixed);

/** True if this processor supports the functions below. */
bool kvr_wire__aes(void);

uint64_t kvr_wire__aes_digest(const struct kvr_wire_request *fixed, const void *p, uint32_t len);
void kvr_wire__aes_begin(struct kvr_digest *d);
void kvr_wire__aes_add(struct kvr_digest *d, const void *p, uint32_t len);
uint64_t kvr_wire__aes_end(const struct kvr_digest *d, const struct kvr_wire_request *fixed);

#endif
