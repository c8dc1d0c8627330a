/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_RESULT_PACK_H
#define AGENT_RESULT_PACK_H

/**
 * @file
 * Transfer results between the agents of the two legs. A result must fit a message; a larger one is
 * sent as a zlib stream (RFC 1950), which begins with 0x78 instead of a brace. Block numbers
 * compress to a half or a third.
 */

#include <stddef.h>
#include <stdint.h>

#define AGENT_RESULT_MOST (1u << 20) /**< maximum bytes in a message */
#define AGENT_RESULT_MAX  (4u << 20) /**< maximum bytes, uncompressed */

/**
 * Compress @p result if it exceeds @p room.
 * @param out @p room bytes for the compressed result.
 * @return its length; 0: it fits uncompressed; -EMSGSIZE: too large even compressed; -ENOMEM.
 */
int64_t agent_result_pack(const char *result, size_t len, char *out, size_t room);

/**
 * Decompress a result.
 * @param out to be freed by the caller; NULL if @p result is not compressed.
 * @return its length; 0: not compressed; -EPROTO: invalid zlib stream, or above AGENT_RESULT_MAX;
 * -ENOMEM.
 */
int64_t agent_result_unpack(const char *result, size_t len, char **out);

#endif
