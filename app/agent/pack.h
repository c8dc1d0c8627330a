/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_PACK_H
#define AGENT_PACK_H

/**
 * @file
 * Transfer results between the agents of the two legs. One must fit a message; one that does not is
 * sent as a zlib stream (RFC 1950), which begins with 0x78 and not with a brace. Block numbers
 * shrink to a half or a third.
 */

#include <stddef.h>
#include <stdint.h>

#define AGENT_RESULT_MOST (1u << 20) /**< bytes of one on the wire */
#define AGENT_RESULT_MAX  (4u << 20) /**< bytes, unpacked */

/**
 * Make @p result fit.
 * @param out @p room bytes for a packed one.
 * @return its length; 0: it fits as it is; -EMSGSIZE: not even packed; -ENOMEM.
 */
int64_t agent_result_pack(const char *result, size_t len, char *out, size_t room);

/**
 * Undo it.
 * @param out the caller frees it; NULL when @p result is not packed.
 * @return its length; 0: it is not packed; -EPROTO: no zlib stream, or above AGENT_RESULT_MAX;
 * -ENOMEM.
 */
int64_t agent_result_unpack(const char *result, size_t len, char **out);

#endif
