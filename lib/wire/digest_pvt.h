/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DIGEST_PVT_H
#define DIGEST_PVT_H

/** @file
 * The two ways to a digest, one of which a process takes: rounds of AES where the processor has
 * them, else XXH3. Their values differ, and never leave the process.
 */

#include "kvr_message.h"

#include <stdbool.h>
#include <stdint.h>

/** What kvr_request_digest() and the calls behind it in kvr_message.h do. @p fixed: without what is
 * not the client's. */
uint64_t kvr_wire__xxh_digest(const struct kvr_wire_request *fixed, const void *p, uint32_t len);
void kvr_wire__xxh_begin(struct kvr_digest *d);
void kvr_wire__xxh_add(struct kvr_digest *d, const void *p, uint32_t len);
uint64_t kvr_wire__xxh_end(const struct kvr_digest *d, const struct kvr_wire_request *fixed);

/** Whether this processor has what the calls below need. */
bool kvr_wire__aes(void);

uint64_t kvr_wire__aes_digest(const struct kvr_wire_request *fixed, const void *p, uint32_t len);
void kvr_wire__aes_begin(struct kvr_digest *d);
void kvr_wire__aes_add(struct kvr_digest *d, const void *p, uint32_t len);
uint64_t kvr_wire__aes_end(const struct kvr_digest *d, const struct kvr_wire_request *fixed);

#endif
