/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_MESSAGE_H
#define GW_MESSAGE_H

/**
 * @file
 * What a call sends: the request as HTTP for its engine, hashes of its prompt for the router.
 */

#include "call.h"

/**
 * Make the message; @p out is malloc()ed, NULL when no engine gets it.
 * @return 0, -ENOMEM, -EMSGSIZE: the fields are too large for a head, -EINVAL: one is not legal.
 */
int gw_message(const struct gw_call *c, char **out, size_t *len);

/**
 * Sequence hashes of the prompt's full blocks: an eighth of its tokens on the wire.
 * @param n their number; 0 when there are none, or no memory: load alone decides then
 * @return malloc()ed, to be given to free(); NULL is none.
 */
uint64_t *gw_message_hashes(const struct gw_call *c, const struct gw_model *m, uint32_t *n);

#endif
